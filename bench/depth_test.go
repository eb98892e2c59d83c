package bench

import (
	"bytes"
	"context"
	"math"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor"
)

// open loads a small model for a processor with two workers.
func open(t *testing.T, path string) *measure {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	set, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	shape, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := qwen3.Load(context.Background(), dev, shape, set, qwen3.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dec.Close)
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &measure{ctx: context.Background(), dev: dev, dec: dec, pool: pool, stream: s, cfg: ModelConfig{Decode: 2, Repeat: 2}}
}

// saved are the parts of a state.
func saved(t *testing.T, s state.State) map[string][]byte {
	t.Helper()
	f, err := newFilling(s)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]byte{}
	for name, part := range f.parts {
		raw, _ := part.Raw()
		m[name] = raw
	}
	return m
}

// A filling gives back the state it came from, which goes on with the same bits; laid
// out deeper, its pages come again in turn and the rest stays.
func TestFilling(t *testing.T) {
	for _, model := range []string{"qwen35-bf16", "qwen3-tied-bf16"} {
		t.Run(model, func(t *testing.T) {
			m := open(t, "../testdata/models/checkpoints/"+model)
			run, err := m.dec.NewRunner(m.stream, m.pool, nn.RunnerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer run.Close()
			rows := m.rows(2*backend.Page, 1)
			if err := run.Append(m.ctx, rows); err != nil {
				t.Fatal(err)
			}
			f, err := newFilling(run.State())
			if err != nil {
				t.Fatal(err)
			}
			want := saved(t, run.State())
			if err := run.Step(m.ctx, 3); err != nil {
				t.Fatal(err)
			}
			logits := bytes.Clone(tensor.AsBytes(run.Logits()))

			deep, err := m.dec.NewState(m.pool)
			if err != nil {
				t.Fatal(err)
			}
			defer deep.Release()
			if err := f.load(deep, len(rows)); err != nil {
				t.Fatal(err)
			}
			snap, err := deep.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			defer snap.Release()
			if err := run.Resume(rows, snap); err != nil {
				t.Fatal(err)
			}
			if err := run.Step(m.ctx, 3); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(logits, tensor.AsBytes(run.Logits())) {
				t.Error("a filling of its own depth goes on with other bits")
			}

			if err := f.load(deep, 5*backend.Page); err != nil {
				t.Fatal(err)
			}
			if deep.Len() != 5*backend.Page {
				t.Errorf("%d rows deep, want %d", deep.Len(), 5*backend.Page)
			}
			for name, got := range saved(t, deep) {
				from := map[string]string{"kv.2": "kv.0", "kv.3": "kv.1", "kv.4": "kv.0"}[name]
				if from == "" {
					from = name
				}
				if !bytes.Equal(got, want[from]) {
					t.Errorf("%s is not %s", name, from)
				}
			}
		})
	}
}

// Depths beyond what is run for real, and those that end within a page, are reached
// before every repetition.
func TestDeepen(t *testing.T) {
	m := open(t, "../testdata/models/checkpoints/qwen35-bf16")
	m.dec.Context = 0
	run, err := m.dec.NewRunner(m.stream, m.pool, nn.RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, depth := range []int{0, 5, blockRows, blockRows + 1, 3*blockRows - 63} {
		setup, done, err := m.deepen(run, depth)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := run.Reset(); err != nil {
				t.Fatal(err)
			}
			if err := setup(run); err != nil {
				t.Fatal(err)
			}
			if n := run.State().Len(); n != max(depth, 1) {
				t.Errorf("%d rows deep, want %d", n, max(depth, 1))
			}
			if err := run.Step(m.ctx, 1); err != nil {
				t.Fatal(err)
			}
		}
		done()
	}
	run.Close()
	if err := m.pool.Close(); err != nil {
		t.Error(err)
	}
}

// What a step reads and a prompt computes, counted once more by hand.
func TestWork(t *testing.T) {
	m := open(t, "../testdata/models/checkpoints/qwen3-tied-bf16")
	var held, perRow int64
	for i := range m.dec.Blocks {
		a, f := m.dec.Blocks[i].Mix.(*nn.Attention), m.dec.Blocks[i].FFN.(*nn.SwiGLU)
		for _, w := range []backend.Weight{a.Q, a.K, a.V, a.O, f.Gate, f.Up, f.Down} {
			held += w.Bytes()
			perRow += int64(w.In() * w.Out())
		}
	}
	if got, want := stepBytes(m.dec), held+m.dec.Head.Bytes(); got != want {
		t.Errorf("a step reads %d bytes, want %d", got, want)
	}
	a := m.dec.Blocks[0].Mix.(*nn.Attention)
	const rows = 7
	want := 2*(perRow*rows+int64(m.dec.Head.In()*m.dec.Head.Out())) + int64(len(m.dec.Blocks)*4*a.Heads*a.Dim*rows*(rows+1)/2)
	if got := promptFlops(m.dec, rows); math.Abs(float64(got-want)) > 1 {
		t.Errorf("a prompt of %d rows needs %d operations, want %d", rows, got, want)
	}
	const seqs, depth = 3, 11
	want = seqs * (2*(perRow+int64(m.dec.Head.In()*m.dec.Head.Out())) + int64(len(m.dec.Blocks)*4*a.Heads*a.Dim*(depth+1)))
	if got := stepFlops(m.dec, seqs, depth); math.Abs(float64(got-want)) > 1 {
		t.Errorf("a step of %d sequences behind %d rows needs %d operations, want %d", seqs, depth, got, want)
	}
}
