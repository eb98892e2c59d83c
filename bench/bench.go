// Package bench measures models and kernels, in the form in which the scripts in
// bench/peers measure other engines, so that runs can be put side by side.
//
// Numbers are repeated and every repetition is kept: a machine that others use
// too shows in their spread and in the difference between wall and CPU time.
package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// Result is one measurement. Rates are units per second: of the best, and of the
// median repetition.
type Result struct {
	Model   string    `json:"model,omitempty"`
	Test    string    `json:"test"` // load, prefill, decode, batch, gemm, gemv, …
	Shape   string    `json:"shape,omitempty"`
	KV      string    `json:"kv,omitempty"` // storage type of a model's keys and values; empty for F32
	N       int       `json:"n,omitempty"`
	Depth   int       `json:"depth,omitempty"`
	Seqs    int       `json:"nseq,omitempty"`
	Threads int       `json:"t"`
	Kernels string    `json:"kernels"`
	Unit    string    `json:"unit"`
	Best    float64   `json:"best"`
	Median  float64   `json:"median"`
	Wall    []float64 `json:"wall"` // seconds per repetition
	CPU     []float64 `json:"cpu"`  // process seconds per repetition
	PeakMiB int64     `json:"peak_mib,omitempty"`
	Bytes   int64     `json:"bytes,omitempty"`   // of the file; of weights and states that a step of a decode reads
	Flops   int64     `json:"flops,omitempty"`   // of the products and attention of a prompt, or of a step of a decode
	Inexact string    `json:"inexact,omitempty"` // of a device that is not bit-exact: why
	Slow    string    `json:"slow,omitempty"`    // of a device that is slower than it should be: why
}

// finish fills in the rates of work units per repetition.
func (r *Result) finish(work float64) {
	r.Best, r.Median = work/slices.Min(r.Wall), work/Median(r.Wall)
	r.PeakMiB = peakMiB()
}

// Median is the middle of values, the upper one of two.
func Median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// timed runs f once and notes its times.
func (r *Result) timed(f func() error) error {
	c, t := CPUSeconds(), time.Now()
	if err := f(); err != nil {
		return err
	}
	r.Wall = append(r.Wall, time.Since(t).Seconds())
	r.CPU = append(r.CPU, CPUSeconds()-c)
	return nil
}

// ModelConfig says what to measure of a model.
type ModelConfig struct {
	Name    string
	Prompts []int // lengths; nil means 128 and 512
	Decode  int   // tokens; 0 means 32
	Depths  []int // rows before them, beyond 512 as copies of the first 512; nil means 0
	Seqs    []int // sequences that decode together, 64 rows deep
	Repeat  int   // 0 means 5
}

// Model measures a decoder: prompts, decoding at depths, decoding in batches.
// Each repetition starts from an empty or equally deep sequence.
func Model(ctx context.Context, dev backend.Device, dec *nn.Decoder, cfg ModelConfig, emit func(Result)) error {
	if cfg.Prompts == nil {
		cfg.Prompts = []int{128, 512}
	}
	if cfg.Decode == 0 {
		cfg.Decode = 32
	}
	if cfg.Depths == nil {
		cfg.Depths = []int{0}
	}
	if cfg.Repeat == 0 {
		cfg.Repeat = 5
	}
	if least := slices.Min(append(slices.Concat(cfg.Prompts, cfg.Seqs), cfg.Decode, cfg.Repeat)); least < 1 {
		return fmt.Errorf("bench: %d tokens, sequences or repetitions: want at least one", least)
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
	m := &measure{ctx: ctx, cfg: cfg, dev: dev, dec: dec, pool: pool, stream: s, emit: emit}
	if err := m.all(); err != nil {
		return err
	}
	return pool.Close()
}

type measure struct {
	ctx    context.Context
	cfg    ModelConfig
	dev    backend.Device
	dec    *nn.Decoder
	pool   *state.Pool
	stream backend.Stream
	emit   func(Result)
	block  *filling // blockRows rows, once a depth has needed them
}

// warmRows bounds the rows of the prompt that warms up for one.
const warmRows = 256

func (m *measure) result(test string) Result {
	i := m.dev.Info()
	r := Result{Model: m.cfg.Name, Test: test, Threads: i.Threads, Kernels: i.Kernels, Inexact: i.Inexact, Slow: i.Slow, Unit: "tokens/s"}
	if dt := m.dec.Shapes.KV.Stored(); dt != tensor.F32 {
		r.KV = dt.String()
	}
	return r
}

func (m *measure) all() error {
	for _, n := range m.cfg.Prompts {
		if err := m.prefill(n); err != nil {
			return err
		}
	}
	for _, d := range m.cfg.Depths {
		if err := m.decode(d); err != nil {
			return err
		}
	}
	for _, n := range m.cfg.Seqs {
		if err := m.batch(n); err != nil {
			return fmt.Errorf("bench: batch of %d: %w", n, err)
		}
	}
	return nil
}

// rows are seeded tokens.
func (m *measure) rows(n, which int) []state.Row {
	r := rand.New(rand.NewPCG(1, uint64(which)))
	rows := make([]state.Row, n)
	for i := range rows {
		rows[i].Token = int32(r.IntN(m.dec.Vocab))
	}
	return rows
}

// prefill times prompts of n rows, each in an empty sequence.
func (m *measure) prefill(n int) error {
	r := m.result("prefill")
	r.N, r.Flops = n, promptFlops(m.dec, n)
	run, err := m.dec.NewRunner(m.stream, m.pool, nn.RunnerConfig{})
	if err != nil {
		return err
	}
	defer run.Close()
	rows := m.rows(n, 1)
	if err := run.Append(m.ctx, rows[:min(n, warmRows)]); err != nil {
		return err
	}
	for range m.cfg.Repeat {
		if err := run.Reset(); err != nil {
			return err
		}
		if err := r.timed(func() error { return run.Append(m.ctx, rows) }); err != nil {
			return err
		}
	}
	r.finish(float64(n))
	m.emit(r)
	return nil
}

// decode times steps at a depth, after a warm-up.
func (m *measure) decode(depth int) error {
	r := m.result("decode")
	r.N, r.Depth, r.Flops = m.cfg.Decode, depth, stepFlops(m.dec, 1, depth)
	run, err := m.dec.NewRunner(m.stream, m.pool, nn.RunnerConfig{})
	if err != nil {
		return err
	}
	defer run.Close()
	setup, done, err := m.deepen(run, depth)
	if err != nil {
		return err
	}
	defer done()
	steps := m.rows(m.cfg.Decode, 3)
	for i := range m.cfg.Repeat + 1 {
		if err := run.Reset(); err != nil {
			return err
		}
		if err := setup(run); err != nil {
			return err
		}
		if i == 0 {
			if n := stepBytes(m.dec); n > 0 {
				r.Bytes = n + run.State().Bytes()
			}
			if err := run.Step(m.ctx, steps[0].Token); err != nil {
				return err
			}
			continue
		}
		err := r.timed(func() error {
			for _, row := range steps {
				if err := run.Step(m.ctx, row.Token); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	r.finish(float64(m.cfg.Decode))
	m.emit(r)
	return nil
}

// batch times n sequences that decode together, a page of rows deep. Each holds the
// same rows in memory of its own.
func (m *measure) batch(n int) error {
	const depth = backend.Page
	r := m.result("batch")
	r.N, r.Depth, r.Seqs, r.Flops = m.cfg.Decode, depth, n, stepFlops(m.dec, n, depth)
	c := nn.NewCtx(m.stream, m.dev)
	defer c.Close()
	seqs := make([]nn.Seq, n)
	var err error
	for i := range seqs {
		if seqs[i].State, err = m.dec.NewState(m.pool); err != nil {
			return err
		}
		defer seqs[i].State.Release()
	}
	seqs[0].In, seqs[0].Want = m.rows(depth, 10), nn.WantNone
	if err := m.dec.Forward(m.ctx, c, seqs[:1]); err != nil {
		return err
	}
	past, err := newFilling(seqs[0].State)
	if err != nil {
		return err
	}
	step := m.rows(n, 4)
	steps := func(k int) error {
		for range k {
			for j := range seqs {
				seqs[j].In, seqs[j].Want = step[j:j+1], nn.WantLast
			}
			if err := m.dec.Forward(m.ctx, c, seqs); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range m.cfg.Repeat + 1 {
		for j := range seqs {
			if err := past.load(seqs[j].State, depth); err != nil {
				return err
			}
		}
		if i == 0 {
			if r.Bytes = stepBytes(m.dec); r.Bytes > 0 {
				for j := range seqs {
					r.Bytes += seqs[j].State.Bytes()
				}
			}
			if err := steps(1); err != nil {
				return err
			}
			continue
		}
		if err := r.timed(func() error { return steps(m.cfg.Decode) }); err != nil {
			return err
		}
	}
	r.finish(float64(n * m.cfg.Decode))
	m.emit(r)
	return nil
}

// Load measures opening a model: open must do all of it and clean up after.
func Load(name string, repeat int, bytes int64, open func() (closeIt func(), err error)) (Result, error) {
	if repeat < 1 {
		return Result{}, fmt.Errorf("bench: loading %s %d times: want at least once", name, repeat)
	}
	r := Result{Model: name, Test: "load", Unit: "GB/s", Bytes: bytes, Threads: runtime.GOMAXPROCS(0)}
	for range repeat {
		var done func()
		if err := r.timed(func() (err error) { done, err = open(); return }); err != nil {
			return r, err
		}
		done()
	}
	r.finish(float64(bytes) / 1e9)
	return r, nil
}
