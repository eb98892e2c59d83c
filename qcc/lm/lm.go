// Package lm is the small causal language model that archive attention is tried on:
// embedding, layers of LayerNorm, attention and a GELU network, and logits by the
// transposed embedding.
package lm

import (
	"context"
	"fmt"

	"samebit/backend"
	"samebit/nn"
	"samebit/qcc"
	"samebit/state"
	"samebit/tensor"
)

// Position says what tells the tokens' places apart besides attention.
type Position string

const (
	Sinusoidal Position = "sinusoidal"
	Learned    Position = "learned"
	None       Position = "none" // nothing, or the layers' rotation
)

// eps of the norms.
const eps = 1e-5

// Config describes a model. All layers are alike.
type Config struct {
	Layer       qcc.Config `json:"layer"`
	Layers      int        `json:"layers"`
	Vocab       int        `json:"vocab"`
	Position    Position   `json:"position"`
	MaxPosition int        `json:"max_position"` // longest text
}

// DefaultConfig is the model as published, for a vocabulary.
func DefaultConfig(vocab int) Config {
	return Config{Layer: qcc.DefaultConfig(256, 8), Layers: 4, Vocab: vocab, Position: Sinusoidal, MaxPosition: 4096}
}

// Validate reports the first rule that the configuration breaks, with
// qcc.ErrConfig.
func (c Config) Validate() error {
	if err := c.Layer.Validate(); err != nil {
		return err
	}
	if c.Layers < 1 || c.Layers > 1<<12 || c.Vocab < 1 || c.Vocab > 1<<24 || c.MaxPosition < 1 || c.MaxPosition > 1<<24 {
		return fmt.Errorf("lm: %d layers, %d tokens, texts of %d: want positive numbers, at most 2^12, 2^24 and 2^24: %w", c.Layers, c.Vocab, c.MaxPosition, qcc.ErrConfig)
	}
	if c.Position != Sinusoidal && c.Position != Learned && c.Position != None {
		return fmt.Errorf("lm: position %q: want %q, %q or %q: %w", c.Position, Sinusoidal, Learned, None, qcc.ErrConfig)
	}
	return nil
}

// Params are a model's parameters, row-major. C is the width of a row.
type Params struct {
	Embed        []float32 // [Vocab, C]
	Positions    []float32 // [MaxPosition, C] or fewer rows, with Learned
	NormW, NormB []float32 // [C]
	Layers       []LayerParams
}

// LayerParams are those of one layer.
type LayerParams struct {
	qcc.Projections
	*qcc.Params
	Norm1W, Norm1B, Norm2W, Norm2B []float32 // [C]
	W1, B1                         []float32 // [4C, C], [4C]
	W2, B2                         []float32 // [C, 4C], [C]
}

// Model is a model on a device. It is safe for concurrent use; a state belongs to
// one goroutine.
type Model struct {
	Config
	dev     backend.Device
	pool    *state.Pool
	closers []func()

	embed     backend.Weight
	positions backend.Weight // of Learned
	norm      [2]tensor.Tensor
	layers    []layer
	ctxs      chan *nn.Ctx // idle ones

	weights map[string]backend.Weight // everything above, by its name in files
	vectors map[string]tensor.Tensor
}

type layer struct {
	mix          *qcc.Mixer
	norm1, norm2 [2]tensor.Tensor
	w1, w2       backend.Weight
	b1, b2       tensor.Tensor
}

// New opens a model on a device. It fails with qcc.ErrConfig, qcc.ErrShape or
// backend.ErrUnsupported.
func New(dev backend.Device, c Config, p *Params) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if dev == nil || p == nil || len(p.Layers) != c.Layers {
		return nil, fmt.Errorf("lm: a device and the parameters of %d layers are needed: %w", c.Layers, qcc.ErrShape)
	}
	m := &Model{Config: c, dev: dev, ctxs: make(chan *nn.Ctx, 64), weights: map[string]backend.Weight{}, vectors: map[string]tensor.Tensor{}}
	if err := m.open(p); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Model) open(p *Params) (err error) {
	s, err := m.dev.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	l := &loader{m: m, s: s}
	w := m.Layer.Hidden
	m.embed = l.pack("embed", p.Embed, m.Vocab, w, backend.UseEmbed|backend.UseLinear)
	m.norm = [2]tensor.Tensor{l.vector("lnf_w", p.NormW, w), l.vector("lnf_b", p.NormB, w)}
	if m.Position == Learned {
		if len(p.Positions) == 0 || len(p.Positions)%w != 0 {
			return fmt.Errorf("lm: %d values of learned positions: want rows of %d: %w", len(p.Positions), w, qcc.ErrShape)
		}
		m.MaxPosition = min(m.MaxPosition, len(p.Positions)/w)
		m.positions = l.pack("pos_embed", p.Positions, len(p.Positions)/w, w, backend.UseEmbed)
	}
	for i := range p.Layers {
		q := &p.Layers[i]
		at := fmt.Sprintf("layers.%d.", i)
		y := layer{norm1: [2]tensor.Tensor{l.vector(at+"ln1_w", q.Norm1W, w), l.vector(at+"ln1_b", q.Norm1B, w)},
			norm2: [2]tensor.Tensor{l.vector(at+"ln2_w", q.Norm2W, w), l.vector(at+"ln2_b", q.Norm2B, w)}}
		y.w1, y.b1 = l.pack(at+"w1", q.W1, 4*w, w, backend.UseLinear), l.vector(at+"b1", q.B1, 4*w)
		y.w2, y.b2 = l.pack(at+"w2", q.W2, w, 4*w, backend.UseLinear), l.vector(at+"b2", q.B2, w)
		if l.err != nil {
			return l.err
		}
		mix, free, err := qcc.OpenMixer(m.dev, i, m.Layer, &q.Projections, q.Params)
		if err != nil {
			return fmt.Errorf("lm: layer %d: %w", i, err)
		}
		m.closers = append(m.closers, free)
		y.mix = mix
		l.mixer(at+"attn.", mix)
		m.layers = append(m.layers, y)
	}
	m.pool, err = state.NewPool(m.dev, 0)
	return err
}

// loader puts parameters on the device and keeps the first error.
type loader struct {
	m   *Model
	s   backend.Stream
	err error
}

func (l *loader) pack(name string, v []float32, out, in int, use backend.Use) backend.Weight {
	if l.err != nil || !l.fits(name, v, out*in) {
		return nil
	}
	t, err := tensor.FromF32(v, out, in)
	if err == nil {
		var w backend.Weight
		if w, err = l.m.dev.Pack(t, use); err == nil {
			l.m.closers = append(l.m.closers, func() { l.m.dev.Unpack(w) })
			l.m.weights[name] = w
			return w
		}
	}
	l.err = err
	return nil
}

func (l *loader) fits(name string, v []float32, n int) bool {
	if len(v) != n && l.err == nil {
		l.err = fmt.Errorf("lm: %s has %d values, want %d: %w", name, len(v), n, qcc.ErrShape)
	}
	return l.err == nil
}

func (l *loader) vector(name string, v []float32, n int) tensor.Tensor {
	if !l.fits(name, v, n) {
		return tensor.Tensor{}
	}
	b, err := l.m.dev.Alloc(4 * n)
	if err != nil {
		l.err = err
		return tensor.Tensor{}
	}
	l.m.closers = append(l.m.closers, func() { l.m.dev.Free(b) })
	t, err := tensor.New(b, 0, tensor.F32, n)
	if err == nil {
		l.s.Write(t, tensor.AsBytes(v))
		err = l.s.Sync()
	}
	l.m.vectors[name], l.err = t, err
	return t
}

// mixer notes what a mixer has put on the device.
func (l *loader) mixer(at string, x *qcc.Mixer) {
	for name, w := range map[string]backend.Weight{"q": x.Q, "k": x.K, "v": x.V, "o": x.O} {
		l.m.weights[at+name] = w
	}
	for name, t := range map[string]tensor.Tensor{"bq": x.BQ, "bk": x.BK, "bv": x.BV, "bo": x.BO} {
		l.m.vectors[at+name] = t
	}
	for _, f := range new(qcc.Params).Named(l.m.Layer) {
		l.m.vectors[at+f.Name] = x.Tensor(f.Name)
	}
}

// Close frees the model. States must have been released, and no call may be running
// or follow.
func (m *Model) Close() error {
	for {
		select {
		case c := <-m.ctxs:
			c.Close()
			c.Stream.Close()
			continue
		default:
		}
		break
	}
	var err error
	if m.pool != nil {
		err = m.pool.Close()
	}
	for _, f := range m.closers {
		f()
	}
	m.closers, m.pool = nil, nil
	return err
}

// NewState returns the state before the first token. Release it when done.
func (m *Model) NewState() (*qcc.State, error) {
	return qcc.NewState(m.pool, state.ID(m.Layer.Digest()), m.Layer, m.Layers)
}

// Decode writes the logits [len(ids), Vocab] of tokens that follow those in st. No
// tokens give no logits. It fails with qcc.ErrContextLimit beyond MaxPosition; after
// an error or a cancelled context the state is as it was.
func (m *Model) Decode(ctx context.Context, dst []float32, st *qcc.State, ids []int32) error {
	if len(dst) != len(ids)*m.Vocab {
		return fmt.Errorf("lm: %d values for the logits of %d tokens: want %d each: %w", len(dst), len(ids), m.Vocab, qcc.ErrShape)
	}
	if n := st.Len() + len(ids); n > m.MaxPosition {
		return fmt.Errorf("lm: %d tokens, the model takes %d: %w", n, m.MaxPosition, qcc.ErrContextLimit)
	}
	if len(ids) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := m.ctx()
	if err != nil {
		return err
	}
	defer m.done(c)
	defer c.Release(c.Mark())
	segs := []backend.Seg{{Rows: len(ids)}}
	if err := st.Begin(&segs[0], len(ids)); err != nil {
		return err
	}
	c.Plan = c.Stream.Plan(segs)
	logits, err := m.run(ctx, c, ids, segs)
	if err == nil {
		c.Stream.Read(tensor.AsBytes(dst), logits)
		err = c.Stream.Sync()
	}
	if err != nil {
		c.Stream.Reset()
		return fmt.Errorf("lm: %d tokens: %w", len(ids), err)
	}
	st.Commit(len(ids))
	return nil
}

// Forward writes the logits of a whole text, from a fresh state that it forgets.
func (m *Model) Forward(ctx context.Context, dst []float32, ids []int32) error {
	st, err := m.NewState()
	if err != nil {
		return err
	}
	defer st.Release()
	return m.Decode(ctx, dst, st, ids)
}

func (m *Model) ctx() (*nn.Ctx, error) {
	select {
	case c := <-m.ctxs:
		return c, nil
	default:
	}
	s, err := m.dev.NewStream()
	if err != nil {
		return nil, err
	}
	return nn.NewCtx(s, m.dev), nil
}

func (m *Model) done(c *nn.Ctx) {
	select {
	case m.ctxs <- c:
	default:
		c.Close()
		c.Stream.Close()
	}
}

// run is the model's pass over the rows of segments. No op writes over what it reads, so
// that a tape can keep everything.
func (m *Model) run(ctx context.Context, c *nn.Ctx, ids []int32, segs []backend.Seg) (tensor.Tensor, error) {
	s, n, w := c.Stream, len(ids), m.Layer.Hidden
	a, ok := s.(backend.Archive)
	if !ok {
		return tensor.Tensor{}, backend.ErrUnsupported
	}
	hint := c.Tmp(n, w)
	index, err := ints(c, ids)
	if err != nil {
		return index, err
	}
	s.Embed(hint, m.embed, index)
	x := hint
	if m.Position != None {
		rows, y := c.Tmp(n, w), c.Tmp(n, w)
		if err := m.places(c, rows, segs); err != nil {
			return x, err
		}
		s.Add(y, x, rows)
		x = y
	}
	for i := range m.layers {
		if err := ctx.Err(); err != nil {
			return x, err
		}
		l := &m.layers[i]
		h, y, mid := c.Tmp(n, w), c.Tmp(n, w), c.Tmp(n, w)
		s.LayerNorm(h, x, l.norm1[0], l.norm1[1], eps)
		l.mix.MixHint(c, y, h, hint)
		s.Add(mid, x, y)
		g, u, v := c.Tmp(n, w), c.Tmp(n, 4*w), c.Tmp(n, 4*w)
		s.LayerNorm(g, mid, l.norm2[0], l.norm2[1], eps)
		ub := c.Tmp(n, 4*w)
		s.Linear(u, g, l.w1)
		s.AddBias(ub, u, l.b1)
		a.GELU(v, ub)
		out, biased, z := c.Tmp(n, w), c.Tmp(n, w), c.Tmp(n, w)
		s.Linear(out, v, l.w2)
		s.AddBias(biased, out, l.b2)
		s.Add(z, mid, biased)
		x = z
	}
	h, logits := c.Tmp(n, w), c.Tmp(n, m.Vocab)
	s.LayerNorm(h, x, m.norm[0], m.norm[1], eps)
	s.Linear(logits, h, m.embed)
	return logits, s.Err()
}

// ints puts integers into scratch.
func ints(c *nn.Ctx, v []int32) (tensor.Tensor, error) {
	b, off := c.Tmp(len(v), 1).Buffer()
	if b == nil {
		return tensor.Tensor{}, fmt.Errorf("lm: scratch: %w", backend.ErrNoMemory)
	}
	t, err := tensor.New(b, off, tensor.I32, len(v))
	if err == nil {
		c.Stream.Write(t, tensor.AsBytes(v))
	}
	return t, err
}
