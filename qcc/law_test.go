package qcc

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/tensor"
)

// randomConfig draws a configuration that is valid.
func randomConfig(r *rand.Rand) Config {
	pick := func(l ...int) int { return l[r.IntN(len(l))] }
	yes := func(oneIn int) bool { return r.IntN(oneIn) == 0 }
	kv := pick(1, 2, 3)
	heads := kv * pick(1, 1, 2)
	c := DefaultConfig(0, heads)
	c.KV, c.Dim, c.Hidden = kv, pick(2, 3, 5, 8, 17), pick(4, 7, 16)
	c.Window, c.Codes, c.Scales, c.MaxPosition = pick(1, 2, 3, 5, 8, 70), pick(1, 2, 3, 5), pick(1, 2, 3, 4), pick(1, 64, 4096)
	c.Rank, c.Share = pick(0, 0, 1, 3), yes(4)
	if yes(3) {
		c.Sinks = r.IntN(c.Window + 1)
	}
	if yes(2) {
		c.RoPE = &RoPE{Theta: 10000, Dim: c.Dim &^ 1, Factor: float64(pick(0, 1, 2))}
	}
	c.PositionInvariant = yes(2)
	if yes(5) && kv == heads {
		c.Lexical, c.Hidden = true, heads*c.Dim
	}
	if yes(3) {
		c.ActiveCodes = 1 + r.IntN(c.Codes)
		c.LazyDecay = yes(2)
		c.SparseRead = []SparseRead{SparseAuto, SparseGlobal, SparsePerCode}[r.IntN(3)]
	}
	c.PerCode = yes(4)
	if yes(3) {
		x := float64(pick(-1, 0, 1)) / 4
		c.Threshold = &x
	}
	c.KernelCompat = !c.LazyDecay && yes(5)
	c.ActiveQuery = c.Rank > 0 && yes(3)
	c.Landmarks = []Landmarks{LandmarksNone, LandmarksNone, LandmarksPersistent, LandmarksPrefix, LandmarksPrefixPair}[r.IntN(5)]
	c.LandmarkTemp = float64(pick(1, 2, 4)) / 2
	if yes(4) {
		x := float64(pick(0, 1, 4)) / 4
		c.Remote = &x
	}
	c.NormGating = yes(4)
	if c.ActiveCodes == 0 && !c.Lexical && !(c.Share && kv != heads) && yes(3) {
		e := DefaultExact()
		e.Sets, e.Ways = pick(1, 2, 5), pick(1, 2)
		e.Probe = pick(0, 1, e.Sets)
		e.FIFO, e.Soft, e.MassMerge = yes(4), yes(2), yes(3)
		e.Threshold, e.RecencyWeight = float64(pick(-9, 0)), float64(pick(0, 1))
		if !e.FIFO && (e.Probe == 0 || e.Probe == e.Sets) && yes(3) {
			e.QualityFirst = true
		}
		c.Exact = e
	}
	if c.Landmarks == LandmarksNone && yes(3) {
		c.AddressRank = pick(1, 2, 4)
	}
	return c
}

// randomLayer draws a layer's parameters.
func randomLayer(t *testing.T, r *rand.Rand, c Config) (*Projections, *Params) {
	t.Helper()
	p, err := NewParams(c, r.Uint64())
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	for _, f := range p.Named(c) { // nothing stays at its first value
		for i, x := range noise(r, len(*f.Values)) {
			(*f.Values)[i] += 0.5 * x
		}
	}
	if c.Exact != nil {
		for i := range p.AdmBias {
			p.AdmBias[i] += 4
		}
	}
	pr := &Projections{}
	for _, f := range []Named{{"", &pr.Q, []int{c.Heads * c.Dim}}, {"", &pr.K, []int{c.keyHeads() * c.Dim}}, {"", &pr.V, []int{c.keyHeads() * c.Dim}}} {
		*f.Values = noise(r, f.Size()*c.Hidden)
	}
	pr.O = noise(r, c.Hidden*c.Heads*c.Dim)
	pr.BK = noise(r, c.keyHeads()*c.Dim)
	return pr, p
}

func randomCuts(r *rand.Rand, n int) []int {
	var l []int
	for n > 0 {
		k := min(n, 1+r.IntN([]int{1, 3, 20, n}[r.IntN(4)]))
		l, n = append(l, k), n-k
	}
	return l
}

// sameState compares what two states save, bit by bit.
func sameState(t *testing.T, what string, a, b *State) {
	t.Helper()
	x, y := saved(t, a), saved(t, b)
	if len(x) != len(y) {
		t.Errorf("%s: %d tensors, want %d", what, len(x), len(y))
	}
	for name, v := range y {
		got, _ := x[name].F32()
		want, _ := v.F32()
		if !bytes.Equal(tensor.AsBytes(got), tensor.AsBytes(want)) {
			t.Errorf("%s: %s has other bits", what, name)
			return
		}
	}
}

// Steps, chunks and whole texts give the same bits, on every device, and so do
// states that were forked, saved or rewound.
func TestLaws(t *testing.T) {
	fast, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Close()
	n := 200
	if testing.Short() {
		n = 20
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 42))
		c := randomConfig(r)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("%+v", c)
				}
			}()
			lawsOf(t, r, c, fast)
		})
		if !ok {
			break
		}
	}
}

func lawsOf(t *testing.T, r *rand.Rand, c Config, fast backend.Device) {
	pr, p := randomLayer(t, r, c)
	open := func(d backend.Device) *Layer {
		l, err := New(d, c, pr, p)
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
	slow, quick := open(ref.New()), open(fast)
	rows := c.From() + 4 + r.IntN(30)
	x := noise(r, rows*c.Hidden)
	var hint []float32
	if c.Lexical && r.IntN(2) == 0 {
		hint = noise(r, rows*c.Hidden)
	}
	state := func(l *Layer) *State {
		st, err := l.NewState()
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	one := state(slow)
	defer one.Release()
	want := runCuts(t, slow, one, x, hint, ones(rows))
	for i, v := range want {
		if v-v != 0 {
			t.Fatalf("output %d is %v", i, v)
		}
	}
	for _, l := range []*Layer{slow, quick} {
		st := state(l)
		sameBits(t, "in chunks on "+l.dev.Name(), runCuts(t, l, st, x, hint, randomCuts(r, rows)), want)
		sameState(t, "in chunks on "+l.dev.Name(), st, one)
		st.Release()
		if t.Failed() {
			return
		}
	}

	// Half of the text, from where other things happen.
	half := rows/2 + r.IntN(rows/2)
	part := func(v []float32, from, to int) []float32 {
		if v == nil {
			return nil
		}
		return v[from*c.Hidden : to*c.Hidden]
	}
	a := state(quick)
	defer a.Release()
	runCuts(t, quick, a, part(x, 0, half), part(hint, 0, half), randomCuts(r, half))
	b, err := a.fork()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	runCuts(t, quick, b, part(x, 0, 3), part(hint, 0, 3), []int{3}) // the fork goes elsewhere
	var file bytes.Buffer
	if err := a.Save(&file); err != nil {
		t.Fatal(err)
	}
	d := state(slow)
	defer d.Release()
	if err := d.Read(bytes.NewReader(file.Bytes())); err != nil {
		t.Fatal(err)
	}
	rest := part(want, half, rows)
	sameBits(t, "after a fork", runCuts(t, quick, a, part(x, half, rows), part(hint, half, rows), randomCuts(r, rows-half)), rest)
	sameBits(t, "after saving and reading on another device", runCuts(t, slow, d, part(x, half, rows), part(hint, half, rows), randomCuts(r, rows-half)), rest)
	sameState(t, "after saving and reading", d, one)

	reached, err := a.Truncate(half)
	if err != nil || reached > half || reached != a.Len() {
		t.Fatalf("truncating to %d reached %d of %d: %v", half, reached, a.Len(), err)
	}
	sameBits(t, "after truncating", runCuts(t, quick, a, part(x, reached, rows), part(hint, reached, rows), randomCuts(r, rows-reached)), part(want, reached, rows))

	// A later token changes no earlier output.
	y := append([]float32(nil), x...)
	y[len(y)-1] += 1
	e := state(quick)
	defer e.Release()
	got := runCuts(t, quick, e, y, hint, []int{rows})
	sameBits(t, "with another last token", got[:(rows-1)*c.Hidden], want[:(rows-1)*c.Hidden])

	// A cancelled call changes nothing.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := quick.Chunk(ctx, got[:c.Hidden], a, Block{Hidden: x[:c.Hidden]}); err == nil || a.Len() != rows {
		t.Errorf("a cancelled chunk: %v, %d rows", err, a.Len())
	}
}
