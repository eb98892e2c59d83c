package qcc

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/grad"
	"samebit/tensor"
)

// Mistakes of the published program in training that this one must not make. That
// lexical hints, correction, kernel features and the temperature of landmarks have
// their gradients is shown by TestGradientsAreSlopes, that the company of a text
// and the cut of a batch do not matter by TestGradientBits.

// backward is Layer.Backward into fresh gradients.
func backward(t *testing.T, l *Layer, x, dy []float32) (*Params, []float32) {
	t.Helper()
	d, dx := zeros(l.Config), make([]float32, len(x))
	if err := l.Backward(context.Background(), d, Block{Hidden: dx}, Block{Hidden: x}, dy); err != nil {
		t.Fatal(err)
	}
	return d, dx
}

// What a row puts out has no slope by later rows, not even where there are more
// codes than rows for landmarks to be taken from.
func TestGradientsAreCausal(t *testing.T) {
	for _, marks := range []Landmarks{LandmarksNone, LandmarksPersistent, LandmarksPrefix, LandmarksPrefixPair} {
		c := smallConfig()
		c.Landmarks, c.Codes, c.Rank = marks, 12, 2
		l := small(t, c)
		const rows, at = 14, 9
		dy := make([]float32, rows*c.Hidden)
		copy(dy[at*c.Hidden:], text(1, c))
		_, dx := backward(t, l, text(rows, c), dy)
		for i, v := range dx {
			if late := i >= (at+1)*c.Hidden; late && v != 0 {
				t.Errorf("landmarks %q: row %d has slope %v in row %d", marks, at, v, i/c.Hidden)
			}
		}
		if !slices.ContainsFunc(dx[:(at+1)*c.Hidden], func(v float32) bool { return v != 0 }) {
			t.Errorf("landmarks %q: no slopes at all", marks)
		}
	}
}

// A code that a threshold keeps shut learns to open.
func TestShutCodesLearn(t *testing.T) {
	c := smallConfig()
	c.Heads, c.Dim = 1, c.Hidden
	c.Codes, c.Threshold = 2, ptr(0.0)
	pr, p := randomLayer(t, rand.New(rand.NewPCG(8, 9)), c)
	x := text(12, c)
	// The second code points away from what every key has in common.
	fill(pr.K, 0)
	fill(pr.BK, 0.5)
	fill(p.Codes[:c.Dim], 0.25)
	fill(p.Codes[c.Dim:], -0.05)
	l, err := New(ref.New(), c, pr, p)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d, _ := backward(t, l, x, text(12, c))
	if !slices.ContainsFunc(d.Codes[c.Dim:], func(v float32) bool { return v != 0 }) {
		t.Error("the gradient of a code that is shut is dead")
	}
}

// A gradient is that of a fresh state, whatever ran before, and no state of another
// text changes; gradients are added.
func TestBackwardIsFresh(t *testing.T) {
	c := smallConfig()
	c.Rank = 2
	l := small(t, c)
	st, err := l.NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer st.Release()
	x, dy := text(20, c), text(20, c)
	y := make([]float32, len(x))
	if err := l.Chunk(context.Background(), y, st, Block{Hidden: x}); err != nil {
		t.Fatal(err)
	}
	before := saved(t, st)
	d, dx := backward(t, l, x, dy)
	again, dxAgain := backward(t, l, x, dy)
	sameBits(t, "gradients of rows", dxAgain, dx)
	after := saved(t, st)
	for name := range before {
		was, _ := before[name].F32()
		is, _ := after[name].F32()
		sameBits(t, "state of another text, "+name, is, was)
	}
	if err := l.Backward(context.Background(), again, Block{}, Block{Hidden: x}, dy); err != nil {
		t.Fatal(err)
	}
	l1, l2 := d.Named(c), again.Named(c)
	for i := range l1 {
		for k, v := range *l1[i].Values { // one block of rows: one add
			if got := (*l2[i].Values)[k]; got != v+v {
				t.Fatalf("gradient of %s at %d is %v after twice %v", l1[i].Name, k, got, v)
			}
		}
	}
	sameBits(t, "what is used, after gradients", forward(t, l, x, nil), y)
}

// What a step has changed is what the next pass uses.
func TestStepsAreUsed(t *testing.T) {
	c := smallConfig()
	c.Rank = 2
	l := small(t, c)
	x, dy := text(20, c), text(20, c)
	backward(t, l, x, dy)
	tr := &l.trainer
	opt, err := grad.NewAdamW(tr.params, grad.AdamWConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opt.Step(0.05); err != nil {
		t.Fatal(err)
	}
	p := &Params{}
	for _, f := range p.Named(c) {
		*f.Values = make([]float32, f.Size())
		tr.device.stream.Read(tensor.AsBytes(*f.Values), tr.of[f.Name].Value)
	}
	if err := tr.device.stream.Sync(); err != nil {
		t.Fatal(err)
	}
	stepped, err := New(ref.New(), c, mustProjections(t, c), p)
	if err != nil {
		t.Fatal(err)
	}
	defer stepped.Close()
	want, _ := backward(t, stepped, x, dy)
	got, _ := backward(t, l, x, dy)
	sameBits(t, "gradients after a step", got.Codes, want.Codes)
	sameBits(t, "gradients of the bias after a step", got.GateBias, want.GateBias)
}

func mustProjections(t *testing.T, c Config) *Projections {
	pr, _ := randomLayer(t, rand.New(rand.NewPCG(8, 9)), c)
	return pr
}

func TestBackwardRefuses(t *testing.T) {
	c := smallConfig()
	x := text(12, c)
	for what, set := range map[string]func(c *Config){
		"lazy decay":    func(c *Config) { c.ActiveCodes, c.LazyDecay = 2, true },
		"an exact tier": func(c *Config) { c.Exact = DefaultExact(); c.Exact.Sets = 2 },
	} {
		c := smallConfig()
		set(&c)
		l := small(t, c)
		if err := l.Backward(context.Background(), nil, Block{}, Block{Hidden: x}, x); !errors.Is(err, ErrUntrainable) {
			t.Errorf("%s: %v, want ErrUntrainable", what, err)
		}
	}
	l := small(t, c)
	d := zeros(c)
	d.Codes = d.Codes[1:]
	dx := make([]float32, len(x))
	for what, f := range map[string]func() error{
		"a gradient of another size": func() error { return l.Backward(context.Background(), d, Block{}, Block{Hidden: x}, x) },
		"rows of another size":       func() error { return l.Backward(context.Background(), nil, Block{Hidden: dx[1:]}, Block{Hidden: x}, x) },
		"outputs of another size":    func() error { return l.Backward(context.Background(), nil, Block{}, Block{Hidden: x}, x[c.Hidden:]) },
		"inputs that are no rows":    func() error { return l.Backward(context.Background(), nil, Block{}, Block{Hidden: x[1:]}, x) },
		"hints of another size":      func() error { return l.Backward(context.Background(), nil, Block{Hint: dx[1:]}, Block{Hidden: x}, x) },
	} {
		if err := f(); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v, want ErrShape", what, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Backward(ctx, nil, Block{Hidden: dx}, Block{Hidden: x}, x); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled gradient: %v", err)
	}
	if slices.ContainsFunc(dx, func(v float32) bool { return v != 0 }) || slices.ContainsFunc(d.Mix, func(v float32) bool { return v != 0 }) {
		t.Error("a call that failed added something")
	}
	if err := l.Backward(context.Background(), nil, Block{}, Block{}, nil); err != nil {
		t.Errorf("a text of no rows: %v", err)
	}
	c.ActiveCodes = 2
	sparse, dense := small(t, c), small(t, smallConfig())
	a, _ := backward(t, sparse, x, x)
	b, _ := backward(t, dense, x, x)
	sameBits(t, "gradients with sparse reads", a.Codes, b.Codes)
	l2 := small(t, smallConfig())
	l2.Close()
	if err := l2.Backward(context.Background(), nil, Block{}, Block{Hidden: x}, x); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("a closed layer: %v, want ErrClosed", err)
	}
}
