package qcc

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"samebit/backend/ref"
)

// Mistakes of the published program that this one must not make. Others are laws:
// what a step, a chunk and a whole text give is equal and causal with every option
// (TestLaws), whatever the company (TestRegistryGrouping), and refused combinations
// are refused (TestValidate).

// small is a layer with random parameters on the reference device.
func small(t *testing.T, c Config) *Layer {
	t.Helper()
	pr, p := randomLayer(t, rand.New(rand.NewPCG(8, 9)), c)
	l, err := New(ref.New(), c, pr, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func smallConfig() Config {
	c := DefaultConfig(12, 2)
	c.Window, c.Codes, c.Rank = 4, 5, 0
	return c
}

func forward(t *testing.T, l *Layer, x, hint []float32) []float32 {
	t.Helper()
	y := make([]float32, len(x))
	if err := l.Forward(context.Background(), y, Block{x, hint}); err != nil {
		t.Fatal(err)
	}
	return y
}

func text(rows int, c Config) []float32 {
	return noise(rand.New(rand.NewPCG(3, 4)), rows*c.Hidden)
}

func furthest(a, b []float32) float64 {
	d := 0.0
	for i := range a {
		d = max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}

// Fast scales over a long block divide nothing by a vanished power, and the block
// does not stay in memory.
func TestFastScalesStayFinite(t *testing.T) {
	c := smallConfig()
	c.Decay = []float64{0.995, 0.94, 0.85, 0.1}
	l := small(t, c)
	st, err := l.NewState()
	if err != nil {
		t.Fatal(err)
	}
	x := text(1500, c)
	y := make([]float32, len(x))
	if err := l.Chunk(context.Background(), y, st, Block{Hidden: x}); err != nil {
		t.Fatal(err)
	}
	for i, v := range y {
		if v-v != 0 {
			t.Fatalf("output %d is %v", i, v)
		}
	}
	if a := st.Account(); a.Window > 2*4*2*2*64*6 || a.Archive > 3*4*(2*5*4*7) {
		t.Errorf("after a block of 1500 rows the state takes %+v", a)
	}
	st.Release()
}

// Memory does not grow with the text.
func TestMemoryIsConstant(t *testing.T) {
	c := smallConfig()
	c.Window, c.Sinks = 70, 2
	l := small(t, c)
	st, err := l.NewState()
	if err != nil {
		t.Fatal(err)
	}
	rows := 20000
	if testing.Short() {
		rows = 2000
	}
	x, y := text(100, c), make([]float32, 100*c.Hidden)
	most := int64(0)
	for at := 0; at < rows; at += 100 {
		if err := l.Chunk(context.Background(), y, st, Block{Hidden: x}); err != nil {
			t.Fatal(err)
		}
		if at == 500 {
			most = l.pool.Bytes() + l.pool.Bytes()/2
		}
		if n := l.pool.Bytes(); at > 500 && n > most {
			t.Fatalf("%d bytes after %d rows", n, at)
		}
	}
	st.Release()
}

// A stride without stale reads changes nothing; with them it saves reads.
func TestReadStride(t *testing.T) {
	c := smallConfig()
	x := text(30, c)
	run := func(stride int, stale bool) ([]float32, int) {
		c.ReadStride, c.StaleReads = stride, stale
		l := small(t, c)
		st, err := l.NewState()
		if err != nil {
			t.Fatal(err)
		}
		defer st.Release()
		y := runCuts(t, l, st, x, nil, ones(30))
		if !c.Reuses() {
			return y, 26
		}
		return y, readCount(t, st)
	}
	plain, _ := run(1, false)
	strict, _ := run(3, false)
	sameBits(t, "a strict stride", strict, plain)
	stale, n := run(3, true)
	if n != 9 || furthest(stale, plain) == 0 {
		t.Errorf("%d of 26 reads with a stride of 3, want the first and 8 at multiples", n)
	}
}

// Leaving out a code changes the sum, not the equation.
func TestSparseReadsKeepTheEquation(t *testing.T) {
	c := smallConfig()
	c.Codes = 3
	pr, p := randomLayer(t, rand.New(rand.NewPCG(8, 9)), c)
	for h := range c.Heads { // the last code gets next to no weight
		for d := range c.Dim {
			p.Codes[(h*3+2)*c.Dim+d] = 0
			p.Codes[(h*3+0)*c.Dim+d] *= 0.2
			p.Codes[(h*3+1)*c.Dim+d] *= 0.2
		}
	}
	open := func(active int, mode SparseRead) *Layer {
		c.ActiveCodes, c.SparseRead = active, mode
		l, err := New(ref.New(), c, pr, p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	x := text(30, c)
	dense := forward(t, open(0, SparseAuto), x, nil)
	sameBits(t, "all codes active", forward(t, open(3, SparseAuto), x, nil), dense)
	sameBits(t, "the default follows dense reads", forward(t, open(2, SparseAuto), x, nil), forward(t, open(2, SparseGlobal), x, nil))
	if d := furthest(forward(t, open(2, SparseGlobal), x, nil), forward(t, open(2, SparsePerCode), x, nil)); d == 0 {
		t.Error("the two equations agree")
	}
}

// Lazy decay of all codes is eager decay, up to rounding.
func TestLazyOfAllIsEager(t *testing.T) {
	c := smallConfig()
	x := text(60, c)
	eager := forward(t, small(t, c), x, nil)
	c.ActiveCodes, c.LazyDecay = c.Codes, true
	// Products of up to 56 factors, each rounded, against one power rounded once.
	if d := furthest(forward(t, small(t, c), x, nil), eager); d > 2e-5 {
		t.Errorf("lazy and eager decay differ by %v", d)
	}
}

// Prefix landmarks answer alone: no gate has a say in any route.
func TestPrefixHasNoGate(t *testing.T) {
	c := smallConfig()
	c.Landmarks = LandmarksPrefix
	pr, p := randomLayer(t, rand.New(rand.NewPCG(8, 9)), c)
	q := *p
	q.GateBias = []float32{30, -30}
	x := text(30, c)
	var out [2][]float32
	for i, p := range []*Params{p, &q} {
		l, err := New(ref.New(), c, pr, p)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = forward(t, l, x, nil)
		l.Close()
	}
	sameBits(t, "another gate", out[1], out[0])
}

// With lexical addresses a read serves again for the same token, whatever the rows
// around it look like.
func TestLexicalReadsCompareHints(t *testing.T) {
	c := smallConfig()
	c.Lexical, c.ReadCloseness = true, ptr(0.999)
	l := small(t, c)
	hint := make([]float32, 0, 30*c.Hidden)
	for range 30 {
		hint = append(hint, text(1, c)...)
	}
	st, err := l.NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer st.Release()
	runCuts(t, l, st, text(30, c), hint, ones(30))
	if n := readCount(t, st); n != 1 {
		t.Errorf("%d reads of one token, want 1", n)
	}
}

// All requests of a registry see one layer, and a reset one begins anew.
func TestRequestsShareTheLayer(t *testing.T) {
	r := newTestRegistry(t, ref.New())
	p := projected("x", 0, 20, 15)
	a, err := r.Forward(context.Background(), "a", p)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"b", "a"} {
		r.Reset(id)
		b, err := r.Forward(context.Background(), id, p)
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, "request "+id, b, a)
	}
}

// A state does not take files and rows of another layer.
func TestForeignStates(t *testing.T) {
	c := smallConfig()
	a := small(t, c)
	c.Window++
	b := small(t, c)
	st, err := a.NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer st.Release()
	x := text(3, c)
	if err := b.Chunk(context.Background(), make([]float32, len(x)), st, Block{Hidden: x}); err == nil {
		t.Error("a layer took the state of another")
	}
	for _, in := range []Block{{Hidden: x[1:]}, {Hidden: x, Hint: x[1:]}} {
		if err := a.Chunk(context.Background(), make([]float32, len(x)), st, in); err == nil || st.Len() != 0 {
			t.Errorf("rows of wrong length: %v, %d rows", err, st.Len())
		}
	}
	c = smallConfig()
	c.NoArchive = true
	d := small(t, c)
	full, err := d.NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer full.Release()
	runCuts(t, d, full, text(4, c), nil, []int{1, 3})
	if err := d.Step(make([]float32, c.Hidden), full, Block{Hidden: text(1, c)}); err == nil || full.Len() != 4 {
		t.Errorf("a fifth row in a window of 4 without an archive: %v, %d rows", err, full.Len())
	}
}
