package rclc

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor"
	"samebit/token"
	"samebit/token/jinja"
)

var bg = context.Background()

// agentModels are a dense model and a hybrid, with the tokenizer bpe-512.
var agentModels = []string{"qwen3-bf16", "qwen35-f32"}

// rig is a model that counts the rows it runs.
type rig struct {
	*Model
	t   testing.TB
	tok *token.Tokenizer
	ran *atomic.Int64
	// before, if set, is called before each pass.
	before func()
}

type countingFFN struct {
	nn.FFN
	g *rig
}

func (f countingFFN) Apply(c *nn.Ctx, dst, x tensor.Tensor) {
	f.g.ran.Add(int64(x.Dim(0)))
	if f.g.before != nil {
		f.g.before()
	}
	f.FFN.Apply(c, dst, x)
}

func newRig(t testing.TB, name string, change ...func(*qwen3.Config)) *rig {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	dev, err := cpu.New(cpu.Config{Threads: 1})
	must(err)
	set, err := checkpoint.Open("../testdata/models/gguf/" + name + ".gguf")
	must(err)
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	must(err)
	for _, f := range change {
		f(&cfg)
	}
	dec, err := qwen3.Load(bg, dev, cfg, set, qwen3.LoadOptions{})
	must(err)
	pool, err := state.NewPool(dev, 0)
	must(err)
	tok, err := token.Open("../testdata/models/tokenizers/bpe-512")
	must(err)
	chat, err := NewChat(tok, jinja.ChatML())
	must(err)
	g := &rig{t: t, tok: tok, ran: new(atomic.Int64)}
	dec.Blocks[0].FFN = countingFFN{dec.Blocks[0].FFN, g}
	g.Model, err = NewModel(dec, pool, ModelConfig{ModelType: cfg.ModelType, Checkpoint: name, Tokenizer: tok, Chat: chat})
	must(err)
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err) // a page was not given back
		}
		dec.Close()
		dev.Close()
	})
	return g
}

// forwards returns the rows that f ran.
func (g *rig) forwards(f func()) int {
	before := g.ran.Load()
	f()
	return int(g.ran.Load() - before)
}

func (g *rig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// refused wants an error of this cause and code.
func (g *rig) refused(what string, err, cause error, code string) {
	g.t.Helper()
	if !errors.Is(err, cause) || Code(err) != code {
		g.t.Errorf("%s: got %v (code %q), want %v (code %q)", what, err, Code(err), cause, code)
	}
}

func (g *rig) bind(cfg AgentConfig) *Agent {
	g.t.Helper()
	a, err := Bind(bg, g.Model, cfg)
	g.must(err)
	g.t.Cleanup(a.Close)
	return a
}

// sender is what the agent would send, released with the test.
func (g *rig) sender(a *Agent) *Sender {
	g.t.Helper()
	s, err := a.Sender(bg)
	g.must(err)
	g.t.Cleanup(s.Release)
	return s
}

// next are the logits after the rows of s and one token more, from the snapshot.
func (g *rig) next(s *Sender) []float32 {
	g.t.Helper()
	r, stream, err := g.NewRunner()
	g.must(err)
	defer stream.Close()
	defer r.Close()
	g.must(r.Resume(s.Rows, s.Snap))
	g.must(r.Step(bg, 7))
	return slices.Clone(r.Logits())
}

// cold are the same logits of a run over the rows from nothing.
func (g *rig) cold(rows []state.Row) []float32 {
	g.t.Helper()
	r, stream, err := g.NewRunner()
	g.must(err)
	defer stream.Close()
	defer r.Close()
	g.must(r.Append(bg, rows))
	g.must(r.Step(bg, 7))
	return slices.Clone(r.Logits())
}

func (g *rig) same(what string, got, want []float32) {
	g.t.Helper()
	if len(got) != len(want) || len(got) == 0 {
		g.t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			g.t.Fatalf("%s: value %d of %d is %x, want %x", what, i, len(got), math.Float32bits(got[i]), math.Float32bits(want[i]))
		}
	}
}

// exact wants the state to be that of its rows.
func (g *rig) exact(what string, s *Sender) {
	g.t.Helper()
	g.must(s.Validate())
	g.same(what, g.next(s), g.cold(s.Rows))
}

// generate samples greedily from inputs.
func (g *rig) generate(in *Inputs, n int) (ids []int32, r *nn.Runner) {
	g.t.Helper()
	r, stream, err := in.Runner(bg)
	g.must(err)
	g.t.Cleanup(func() { r.Close(); stream.Close() })
	for range n {
		best := 0
		for i, x := range r.Logits() {
			if x > r.Logits()[best] {
				best = i
			}
		}
		ids = append(ids, int32(best))
		g.must(r.Step(bg, int32(best)))
	}
	return ids, r
}

func says(role, text string) jinja.Message { return jinja.Message{Role: role, Content: text} }

func bothModels(t *testing.T, f func(t *testing.T, g *rig)) {
	for _, name := range agentModels {
		t.Run(name, func(t *testing.T) { f(t, newRig(t, name)) })
	}
}
