// Package parity shows that a model gives the same bits on every path: it runs
// one text in many ways and compares every logit of every row with ==.
package parity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/nn"
	"samebit/sample"
	"samebit/state"
)

// Config chooses the text and the ways. The zero value is the full comparison.
type Config struct {
	Prompt   int        // rows of the prompt; 0 means 600
	Generate int        // greedy tokens after it; 0 means 64
	Threads  []int      // nil means 1, 2, 3, 8
	Chunks   []int      // nil means 1, 7, 64, 600
	Batches  []int      // sequences per pass; nil means 1, 2, 16
	Impls    []string   // kernels of the cpu device; nil means all that are available
	Devices  []Target   // compared with the processor, in place of its own ways
	Log      func(Case) // told of each finished case
}

// Case is one way of running the text.
type Case struct {
	Name      string  `json:"name"`
	Values    int64   `json:"values"`    // logits compared
	Differing int64   `json:"differing"` // of them with other bits
	First     string  `json:"first,omitempty"`
	Seconds   float64 `json:"seconds"`
}

// Report is the outcome. Hash is the SHA-256 of the float32 bits, little-endian,
// of all logits, row by row: the same on every machine.
type Report struct {
	Hash      string `json:"hash"`
	Rows      int    `json:"rows"`
	Values    int64  `json:"values"`
	Differing int64  `json:"differing"`
	Cases     []Case `json:"cases"`
}

// Loader puts the model on a device.
type Loader func(ctx context.Context, dev backend.Device) (*nn.Decoder, error)

func (c Config) withDefaults() Config {
	if c.Prompt == 0 {
		c.Prompt = 600
	}
	if c.Generate == 0 {
		c.Generate = 64
	}
	if c.Threads == nil {
		c.Threads = []int{1, 2, 3, 8}
	}
	if c.Chunks == nil {
		c.Chunks = []int{1, 7, 64, 600}
	}
	if c.Batches == nil {
		c.Batches = []int{1, 2, 16}
	}
	if c.Impls == nil {
		c.Impls = cpu.Impls()
	}
	if c.Log == nil {
		c.Log = func(Case) {}
	}
	return c
}

// seed fixes the prompts, so that every machine runs the same rows.
const seed = 20260101

// prompt is n seeded rows below vocab.
func prompt(vocab, n, which int) []state.Row {
	r := rand.New(rand.NewPCG(seed, uint64(which)))
	rows := make([]state.Row, n)
	for i := range rows {
		rows[i].Token = int32(r.IntN(vocab))
	}
	return rows
}

// run is a comparison under way.
type run struct {
	cfg  Config
	load Loader
	rep  Report
	base []float32 // [rows, vocab]
	rows []state.Row
}

// Run compares all ways. A difference is in the report; the error is for what
// could not be run.
func Run(ctx context.Context, load Loader, cfg Config) (Report, error) {
	cfg = cfg.withDefaults()
	if len(cfg.Impls) == 0 {
		return Report{}, fmt.Errorf("parity: no kernels to compare: leave Impls nil for all of %v", cpu.Impls())
	}
	for _, n := range cfg.Batches {
		if n < 1 {
			return Report{}, fmt.Errorf("parity: a batch of %d sequences: want at least one", n)
		}
	}
	if cfg.Prompt < 1 || cfg.Generate < 1 {
		return Report{}, fmt.Errorf("parity: %d prompt rows and %d generated: want at least one of each", cfg.Prompt, cfg.Generate)
	}
	r := &run{cfg: cfg, load: load}
	best := cfg.Impls[len(cfg.Impls)-1]
	if cfg.Devices != nil {
		err := r.devices(ctx, best)
		return r.rep, err
	}
	if err := r.baseline(ctx, best); err != nil {
		return r.rep, err
	}
	err := r.on(ctx, cpu.Config{Impl: best, Threads: 2}, func(l *lab) error {
		for _, n := range cfg.Chunks {
			if err := r.check(ctx, l, fmt.Sprintf("chunks of %d", n), l.chunks(n)); err != nil {
				return err
			}
		}
		for _, n := range cfg.Batches {
			if err := r.check(ctx, l, fmt.Sprintf("batch of %d with strangers", n), l.batch(n)); err != nil {
				return err
			}
		}
		for _, w := range l.stateWays() {
			if err := r.check(ctx, l, w.name, w.f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return r.rep, err
	}
	for _, n := range cfg.Threads {
		if err := r.alone(ctx, fmt.Sprintf("threads: %d", n), cpu.Config{Impl: best, Threads: n}); err != nil {
			return r.rep, err
		}
	}
	for _, impl := range cfg.Impls {
		if err := r.alone(ctx, "kernels: "+impl, cpu.Config{Impl: impl, Threads: 2}); err != nil {
			return r.rep, err
		}
	}
	return r.rep, nil
}

// on opens a device and the model on it.
func (r *run) on(ctx context.Context, cfg cpu.Config, f func(*lab) error) error {
	dev, err := cpu.New(cfg)
	if err != nil {
		return err
	}
	defer dev.Close()
	return r.onDevice(ctx, dev, f)
}

func (r *run) onDevice(ctx context.Context, dev backend.Device, f func(*lab) error) error {
	dec, err := r.load(ctx, dev)
	if err != nil {
		return err
	}
	defer dec.Close()
	if n := r.cfg.Prompt + r.cfg.Generate; dec.Context > 0 && n > dec.Context {
		return fmt.Errorf("parity: %d rows exceed the model's context of %d", n, dec.Context)
	}
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		return err
	}
	s, err := dev.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	err = f(&lab{run: r, dec: dec, pool: pool, stream: s})
	if cerr := pool.Close(); err == nil {
		err = cerr
	}
	return err
}

// alone checks plain chunks on a device of their own.
func (r *run) alone(ctx context.Context, name string, cfg cpu.Config) error {
	return r.on(ctx, cfg, func(l *lab) error { return r.check(ctx, l, name, l.chunks(128)) })
}

// baseline runs the text once, which fixes the generated rows and the hash.
func (r *run) baseline(ctx context.Context, impl string) error {
	return r.on(ctx, cpu.Config{Impl: impl, Threads: 2}, func(l *lab) error {
		start := time.Now()
		r.rows = prompt(l.dec.Vocab, r.cfg.Prompt, 0)
		h := sha256.New()
		keep := func(_ int, logits []float32) {
			r.base = append(r.base, logits...)
			binary.Write(h, binary.LittleEndian, logits) // a hash cannot fail
		}
		run, err := l.runner(512)
		if err != nil {
			return err
		}
		defer run.Close()
		if err := run.AppendAll(ctx, r.rows, keep); err != nil {
			return err
		}
		for range r.cfg.Generate {
			id, err := greedy(run.Logits())
			if err != nil {
				return err
			}
			row := state.Row{Token: id}
			r.rows = append(r.rows, row)
			if err := run.AppendAll(ctx, []state.Row{row}, keep); err != nil {
				return err
			}
		}
		r.rep.Hash, r.rep.Rows = hex.EncodeToString(h.Sum(nil)), len(r.rows)
		c := Case{Name: "baseline: prompt, then greedy steps", Values: int64(len(r.base)), Seconds: time.Since(start).Seconds()}
		r.rep.Cases = append(r.rep.Cases, c)
		r.cfg.Log(c)
		return nil
	})
}

func greedy(logits []float32) (int32, error) {
	s, err := sample.New(sample.Config{}, len(logits))
	if err != nil {
		return 0, err
	}
	return s.Next(logits, nil, 0, 0)
}

// way runs the text and hands over the logits of every row it can see.
type way func(ctx context.Context, see func(row int, logits []float32)) error

// check runs one way and counts differing bits.
func (r *run) check(ctx context.Context, l *lab, name string, w way) error {
	start, vocab := time.Now(), l.dec.Vocab
	c := Case{Name: name}
	err := w(ctx, func(row int, logits []float32) {
		want := r.base[row*vocab : (row+1)*vocab]
		for i, v := range logits {
			c.Values++
			if math.Float32bits(v) != math.Float32bits(want[i]) && !(v != v && want[i] != want[i]) {
				if c.Differing++; c.First == "" {
					c.First = fmt.Sprintf("row %d, logit %d: %08x, want %08x", row, i, math.Float32bits(v), math.Float32bits(want[i]))
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("parity: %s: %w", name, err)
	}
	if c.Values == 0 {
		return fmt.Errorf("parity: %s: no logits were compared", name)
	}
	c.Seconds = time.Since(start).Seconds()
	r.rep.Cases = append(r.rep.Cases, c)
	r.rep.Values += c.Values
	r.rep.Differing += c.Differing
	r.cfg.Log(c)
	return nil
}

// lab is a model on a device.
type lab struct {
	run    *run
	dec    *nn.Decoder
	pool   *state.Pool
	stream backend.Stream
}

func (l *lab) runner(chunk int) (*nn.Runner, error) {
	return l.dec.NewRunner(l.stream, l.pool, nn.RunnerConfig{ChunkRows: chunk})
}

// with runs f with a fresh runner.
func (l *lab) with(chunk int, f func(*nn.Runner) error) error {
	r, err := l.runner(chunk)
	if err != nil {
		return err
	}
	defer r.Close()
	return f(r)
}

// chunks appends the whole text n rows at a time.
func (l *lab) chunks(n int) way {
	return func(ctx context.Context, see func(int, []float32)) error {
		return l.with(n, func(r *nn.Runner) error { return r.AppendAll(ctx, l.run.rows, see) })
	}
}

// batch shares every pass with n-1 strangers whose chunks have other lengths.
func (l *lab) batch(n int) way {
	return func(ctx context.Context, see func(int, []float32)) (err error) {
		c := nn.NewCtx(l.stream, l.pool.Device())
		defer c.Close()
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		seqs := make([]nn.Seq, n)
		texts := make([][]state.Row, n)
		own := rnd.IntN(n) // where the text stands among the strangers
		for i := range seqs {
			if seqs[i].State, err = l.dec.NewState(l.pool); err != nil {
				return err
			}
			defer seqs[i].State.Release()
			texts[i] = prompt(l.dec.Vocab, len(l.run.rows), i+1)
		}
		texts[own] = l.run.rows
		for at := 0; at < len(l.run.rows); {
			for i := range seqs {
				have := seqs[i].State.Len()
				if have == len(texts[i]) { // a stranger begins anew
					if _, err := seqs[i].State.Truncate(0); err != nil {
						return err
					}
					have = 0
				}
				m := 1 + rnd.IntN(9)
				if i == own {
					m = 1 + rnd.IntN(47)
				}
				m = state.Room(seqs[i].State, min(m, len(texts[i])-have))
				seqs[i].In, seqs[i].Want = texts[i][have:have+m], nn.WantNone
			}
			seqs[own].Want = nn.WantAll
			if err := l.dec.Forward(ctx, c, seqs); err != nil {
				return err
			}
			for i := range seqs[own].In {
				see(at+i, seqs[own].Logits[i*l.dec.Vocab:(i+1)*l.dec.Vocab])
			}
			at += len(seqs[own].In)
		}
		return nil
	}
}

// elsewhere is n other rows after the first at, fewer where the context ends.
func (l *lab) elsewhere(at, n, which int) []state.Row {
	if c := l.dec.Context; c > 0 {
		n = min(n, c-at)
	}
	return prompt(l.dec.Vocab, n, which)
}

type namedWay struct {
	name string
	f    way
}

// stateWays leave the straight path in the middle of the text.
func (l *lab) stateWays() []namedWay {
	n := len(l.run.rows)
	a, b := max(1, n/3), min(n/2+1, n-1)
	rest := func(ctx context.Context, r *nn.Runner, from int, see func(int, []float32)) error {
		return r.AppendAll(ctx, l.run.rows[from:], func(i int, v []float32) { see(from+i, v) })
	}
	return []namedWay{
		{"saved to bytes and restored", func(ctx context.Context, see func(int, []float32)) error {
			var file bytes.Buffer
			err := l.with(64, func(r *nn.Runner) error {
				if err := r.AppendAll(ctx, l.run.rows[:b], see); err != nil {
					return err
				}
				return r.Save(&file)
			})
			if err != nil {
				return err
			}
			return l.with(33, func(r *nn.Runner) error {
				if err := r.Load(&file); err != nil {
					return err
				}
				return rest(ctx, r, b, see)
			})
		}},
		{"snapshot resumed twice", func(ctx context.Context, see func(int, []float32)) error {
			return l.with(64, func(r *nn.Runner) error {
				if err := r.Append(ctx, l.run.rows[:a]); err != nil {
					return err
				}
				snap, err := r.Snapshot()
				if err != nil {
					return err
				}
				defer snap.Release()
				if err := rest(ctx, r, a, see); err != nil { // the original goes on first
					return err
				}
				for range 2 {
					err := l.with(50, func(q *nn.Runner) error {
						if err := q.Resume(l.run.rows[:a], snap); err != nil {
							return err
						}
						return rest(ctx, q, a, see)
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		}},
		{"forked, both go on", func(ctx context.Context, see func(int, []float32)) error {
			return l.with(64, func(r *nn.Runner) error {
				if err := r.Append(ctx, l.run.rows[:b]); err != nil {
					return err
				}
				f, err := r.Fork()
				if err != nil {
					return err
				}
				defer f.Close()
				if err := f.Append(ctx, l.elsewhere(b, 70, 99)); err != nil { // elsewhere
					return err
				}
				if err := rest(ctx, r, b, see); err != nil {
					return err
				}
				if err := f.Truncate(ctx, b); err != nil {
					return err
				}
				return rest(ctx, f, b, see)
			})
		}},
		{"truncated and replayed", func(ctx context.Context, see func(int, []float32)) error {
			return l.with(64, func(r *nn.Runner) error {
				if err := r.Append(ctx, l.run.rows[:b]); err != nil {
					return err
				}
				if err := r.Append(ctx, l.elsewhere(b, 130, 98)); err != nil {
					return err
				}
				if err := r.Rewind(ctx, a); err != nil {
					return err
				}
				see(a-1, r.Logits())
				return rest(ctx, r, a, see)
			})
		}},
	}
}
