package cuda_test

import (
	"context"
	"path/filepath"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/cuda/emu"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor/tensortest"
)

const models = "../../testdata/models"

// player runs a model on a device.
type player struct {
	t    *testing.T
	dec  *nn.Decoder
	run  *nn.Runner
	pool *state.Pool
	rows [][]float32
}

func newPlayer(t *testing.T, dev backend.Device, path string) *player {
	t.Helper()
	set, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{t: t}
	if p.dec, err = qwen3.Load(context.Background(), dev, cfg, set, qwen3.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	if p.pool, err = state.NewPool(dev, 0); err != nil {
		t.Fatal(err)
	}
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if p.run, err = p.dec.NewRunner(s, p.pool, nn.RunnerConfig{ChunkRows: 50}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.run.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := p.pool.Close(); err != nil {
			t.Error(err)
		}
		p.dec.Close()
	})
	return p
}

func (p *player) append(rows []state.Row) {
	p.t.Helper()
	err := p.run.AppendAll(context.Background(), rows, func(_ int, logits []float32) {
		p.rows = append(p.rows, append([]float32(nil), logits...))
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// say appends n times the id of the largest logit of the row before.
func (p *player) say(n int, logits []float32) {
	p.t.Helper()
	for range n {
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		p.append([]state.Row{{Token: int32(best)}})
		logits = p.last()
	}
}

func (p *player) last() []float32 { return p.rows[len(p.rows)-1] }

// play is a prompt and the tokens that the model says after it.
func (p *player) play(prompt, steps int) {
	p.t.Helper()
	r := tensortest.NewRand(7, "prompt")
	rows := make([]state.Row, prompt)
	for i := range rows {
		rows[i].Token = int32(r.Intn(p.dec.Vocab))
	}
	p.append(rows)
	p.say(steps, p.last())
}

func same(t *testing.T, want, got [][]float32) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%d rows of logits, want %d", len(got), len(want))
	}
	for i := range want {
		if d := tensortest.DiffBits(want[i], got[i]); d != "" {
			t.Fatalf("logits of row %d (-cpu +cuda): %s", i, d)
		}
	}
}

// paths lists the small models; in short tests one dense, one hybrid, one of
// experts and one of quantised weights.
func paths(t *testing.T) []string {
	if testing.Short() {
		var l []string
		for _, n := range []string{"checkpoints/qwen3-tied-bf16", "checkpoints/qwen35-bf16", "checkpoints/qwen3next-moe-bf16", "gguf/qwen3-mixed.gguf"} {
			l = append(l, filepath.Join(models, n))
		}
		return l
	}
	a, err := filepath.Glob(filepath.Join(models, "checkpoints", "*"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := filepath.Glob(filepath.Join(models, "gguf", "*.gguf"))
	if err != nil || len(a) == 0 || len(b) == 0 {
		t.Fatalf("%d checkpoints and %d GGUF files (%v)", len(a), len(b), err)
	}
	return append(a, b...)
}

// Whole models say the same, logit by logit, as on the processor.
func TestModels(t *testing.T) {
	for _, path := range paths(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			host, err := cpu.New(cpu.Config{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			a, b := newPlayer(t, host, path), newPlayer(t, open(t, emu.Config{}), path)
			a.play(70, 4)
			b.play(70, 4)
			same(t, a.rows, b.rows)
		})
	}
}

// A state leaves the processor in the middle of a text, goes on on the device and
// comes back.
func TestStateMoves(t *testing.T) {
	for _, name := range []string{"qwen3-untied-fp32", "qwen35-8l-bf16"} {
		t.Run(name, func(t *testing.T) {
			host, err := cpu.New(cpu.Config{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			path := filepath.Join(models, "checkpoints", name)
			want := newPlayer(t, host, path)
			want.play(66, 9)

			first, second, third := newPlayer(t, host, path), newPlayer(t, open(t, emu.Config{}), path), newPlayer(t, host, path)
			first.play(66, 3)
			move(t, first, second)
			second.say(3, first.last())
			move(t, second, third)
			third.say(3, second.last())
			same(t, want.rows, append(append(first.rows, second.rows...), third.rows...))
		})
	}
}

func move(t *testing.T, from, to *player) {
	t.Helper()
	snap, err := from.run.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	st, err := to.dec.NewState(to.pool)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Release()
	if err := state.Move(st, snap); err != nil {
		t.Fatal(err)
	}
	there, err := st.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Release()
	if err := to.run.Resume(from.run.History(), there); err != nil {
		t.Fatal(err)
	}
}
