// Package qccbench measures attention of constant memory beside exact attention:
// time, memory and how far the two are apart. Results have the field names of the
// published scripts and say of themselves whether they are synthetic, without a full
// cache beside them, or matched with one.
package qccbench

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/nn"
	"samebit/qcc"
	"samebit/state"
	"samebit/tensor"
)

// Head begins every result.
type Head struct {
	Schema        string `json:"schema"`
	RunID         string `json:"run_id"`
	Synthetic     bool   `json:"synthetic"`       // the project made the model, or the rows; see [Subject]
	QCCOnly       bool   `json:"qcc_only"`        // nothing exact was run beside it
	MatchedFullKV bool   `json:"matched_full_kv"` // exact attention ran the same rows with the same weights
	Threads       int    `json:"threads,omitempty"`
	Kernels       string `json:"kernels,omitempty"`
}

// A schema is a name between these.
const (
	schemaBefore = "samebit.qcc."
	schemaAfter  = "/1"
)

func head(name, run string, dev backend.Device) Head {
	h := Head{Schema: schemaBefore + name + schemaAfter, RunID: run}
	if dev != nil {
		i := dev.Info()
		h.Threads, h.Kernels = i.Threads, i.Kernels
	}
	return h
}

// Subject is what a result is of; results are joined by it.
//
// Synthetic, in a result's head, is true if the project made the model (random weights,
// or one that is in the program) or the rows (random tokens, generated records). It is
// false only for a model that somebody named and a text, rows or a manifest that somebody
// gave. It is what is known, and no more: whether a named model is a real one and given
// rows are a benchmark's is in no file, so no result says so.
type Subject struct {
	ModelID string `json:"model_id"`              // of its weights
	Memory  string `json:"memory"`                // how that of the own model is bounded
	Native  int    `json:"native_context_tokens"` // that the model was made for; 0: it says none
}

func subject(d *nn.Decoder, memory string) Subject {
	return Subject{ModelID: hex.EncodeToString(d.ID[:]), Memory: memory, Native: d.Context}
}

// Shell describes a model of random weights: a decoder whose layers have attention
// and a gated network of about as many weights as one of four times the width.
type Shell struct {
	Vocab, Hidden, Layers, Heads int
	Seed                         uint64
}

// Published is the shape of the published measurements.
var Published = Shell{Vocab: 4096, Hidden: 256, Layers: 2, Heads: 8, Seed: 123}

func (s Shell) check() error {
	if s.Vocab < 1 || s.Hidden < 1 || s.Layers < 1 || s.Heads < 1 || s.Hidden%(2*s.Heads) != 0 || max(s.Vocab, s.Hidden, s.Layers) > 1<<20 {
		return fmt.Errorf("qccbench: a model of %d tokens, %d wide, %d layers, %d heads: want positive numbers, and heads of even width that make up a row", s.Vocab, s.Hidden, s.Layers, s.Heads)
	}
	return nil
}

// open makes the decoder on a device. It has rotated positions and no limit of
// context.
func (s Shell) open(dev backend.Device) (*nn.Decoder, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	d := &nn.Decoder{Config: nn.Config{Hidden: s.Hidden, Vocab: s.Vocab, Eps: 1e-6}}
	stream, err := dev.NewStream()
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	weight := func(name string, out, in int, use backend.Use, scale float32) (w backend.Weight) {
		if err != nil {
			return nil
		}
		v := make([]float32, out*in)
		qcc.Uniform(v, s.Seed, name, scale)
		var t tensor.Tensor
		if t, err = tensor.FromF32(v, out, in); err == nil {
			if w, err = dev.Pack(t, use); err == nil {
				d.Closers = append(d.Closers, func() { dev.Unpack(w) })
			}
		}
		return w
	}
	ones := func() (t tensor.Tensor) {
		if err != nil {
			return t
		}
		v := make([]float32, s.Hidden)
		for i := range v {
			v[i] = 1
		}
		var b tensor.Buffer
		if b, err = dev.Alloc(4 * len(v)); err != nil {
			return t
		}
		d.Closers = append(d.Closers, func() { dev.Free(b) })
		if t, err = tensor.New(b, 0, tensor.F32, len(v)); err == nil {
			stream.Write(t, tensor.AsBytes(v))
			err = stream.Sync()
		}
		return t
	}
	dim := s.Hidden / s.Heads
	rope, err := backend.NewRoPE(1e6, dim, backend.Scaling{}, nil)
	if err != nil {
		return nil, err
	}
	d.Embed = weight("embedding", s.Vocab, s.Hidden, backend.UseEmbed|backend.UseLinear, 1)
	d.Head, d.Norm = d.Embed, ones()
	w := canon.InvSqrt(s.Hidden) // of linear layers, as published
	inner := (8*s.Hidden/3 + 15) / 16 * 16
	for l := range s.Layers {
		linear := func(name string, out, in int) backend.Weight {
			return weight(fmt.Sprint(l, name), out, in, backend.UseLinear, w)
		}
		d.Blocks = append(d.Blocks, nn.Block{Norm1: ones(), Norm2: ones(),
			Mix: &nn.Attention{Layer: l, Heads: s.Heads, KV: s.Heads, Dim: dim, RoPE: rope, Scale: canon.InvSqrt(dim),
				Q: linear("q", s.Hidden, s.Hidden), K: linear("k", s.Hidden, s.Hidden), V: linear("v", s.Hidden, s.Hidden), O: linear("o", s.Hidden, s.Hidden)},
			FFN: &nn.SwiGLU{Gate: linear("gate", inner, s.Hidden), Up: linear("up", inner, s.Hidden), Down: linear("down", s.Hidden, inner)},
		})
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	d.ID = state.ID{1: byte(s.Seed)}
	d.Shapes = nn.Shapes{KV: state.KVShape{Layers: s.Layers, Heads: s.Heads, Dim: dim}}
	d.NewState = d.Shapes.NewState(d.ID)
	return d, nil
}

// pair is a model and its retrofit on one device.
type pair struct {
	ctx  context.Context
	dev  backend.Device
	pool *state.Pool
	full *nn.Decoder
	own  *qcc.Patched
	c    *nn.Ctx
	next *rand.Rand

	given []int32 // tokens of a text; none: random ones
	at    int     // of those that are next
}

// openPair makes a shell and retrofits it; set changes the configuration.
func openPair(ctx context.Context, dev backend.Device, s Shell, set func(c *qcc.Config)) (*pair, error) {
	d, err := s.open(dev)
	if err != nil {
		return nil, err
	}
	c, err := qcc.ModelConfig(d)
	var a *qcc.Adapter
	if err == nil {
		set(&c)
		a, err = qcc.NewAdapter(d, qcc.Retrofit{Config: c, KV: qcc.KVRepeat}, 123)
	}
	var p *pair
	if err == nil {
		p, err = patched(ctx, dev, d, a)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return p, nil
}

// patched is openPair of a model and an adapter that there are. Closing the pair closes
// the model.
func patched(ctx context.Context, dev backend.Device, d *nn.Decoder, a *qcc.Adapter) (*pair, error) {
	p := &pair{ctx: ctx, dev: dev, full: d, next: rand.New(rand.NewPCG(1, 2))}
	var err error
	if p.own, err = qcc.Patch(dev, d, a); err != nil {
		return nil, err
	}
	if p.pool, err = state.NewPool(dev, 0); err != nil {
		p.own.Close()
		return nil, err
	}
	s, err := dev.NewStream()
	if err != nil {
		p.own.Close()
		return nil, err
	}
	p.c = nn.NewCtx(s, dev)
	return p, nil
}

func (p *pair) close() error {
	p.c.Close()
	p.c.Stream.Close()
	p.own.Close()
	err := p.pool.Close()
	p.full.Close()
	return err
}

// text are n tokens; see fill.
func (p *pair) text(n int) []state.Row {
	rows := make([]state.Row, n)
	p.fill(rows)
	return rows
}

// fill makes rows the next tokens of the text that was given, which begins again when it
// ends, or seeded random ones.
func (p *pair) fill(rows []state.Row) {
	for i := range rows {
		if len(p.given) == 0 {
			rows[i].Token = int32(p.next.IntN(p.full.Vocab))
			continue
		}
		rows[i].Token = p.given[p.at]
		p.at = (p.at + 1) % len(p.given)
	}
}

// covers refuses a text that was given but is shorter than what is measured.
func covers(text []int32, n int) error {
	if len(text) > 0 && len(text) < n {
		return fmt.Errorf("qccbench: the text has %d tokens, %d are measured: give a longer text, or measure less of it", len(text), n)
	}
	return nil
}

// run appends rows to a state in chunks and calls each, if given, with the logits of
// every row. It keeps no history, so that a text may be as long as it likes.
func (p *pair) run(d *nn.Decoder, st state.State, rows []state.Row, chunk int, each func(logits []float32)) error {
	seq := []nn.Seq{{State: st}}
	for at := 0; at < len(rows); at += chunk {
		s := &seq[0]
		s.In, s.Want = rows[at:min(at+chunk, len(rows))], nn.WantNone
		switch {
		case each != nil:
			s.Want = nn.WantAll
		case at+chunk >= len(rows):
			s.Want = nn.WantLast
		}
		if err := d.Forward(p.ctx, p.c, seq); err != nil {
			return err
		}
		for i := range s.In {
			if each != nil {
				each(s.Logits[i*d.Vocab : (i+1)*d.Vocab])
			}
		}
	}
	return nil
}

// fresh calls f with an empty state of a decoder.
func (p *pair) fresh(d *nn.Decoder, f func(st state.State) error) error {
	st, err := d.NewState(p.pool)
	if err != nil {
		return err
	}
	defer st.Release()
	return f(st)
}

// seconds times f.
func seconds(f func() error) (float64, error) {
	t := time.Now()
	err := f()
	return time.Since(t).Seconds(), err
}

// Elements is how much a bounded state holds beside an exact cache, by the published
// formula.
type Elements struct {
	Archive   int64   `json:"archive_elements"`
	Bounded   int64   `json:"bounded_elements"`
	Full      int64   `json:"full_elements"`
	Reduction float64 `json:"cache_reduction"`
}

func elements(c qcc.Config, layers, length int) Elements {
	ring := 2 * int64(c.KV) * int64(c.Dim)
	e := Elements{Bounded: c.Elements(layers), Full: ring * int64(layers) * int64(length)}
	rings := ring * int64(c.Window) * int64(layers)
	if c.Lexical {
		rings *= 2
	}
	e.Archive = e.Bounded - rings
	e.Reduction = float64(e.Full) / float64(e.Bounded)
	return e
}
