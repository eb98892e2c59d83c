package backendtest

import (
	"fmt"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// world is a layer of every kind with some sequences of rows. However the rows
// are cut into passes and joined with those of strangers, each sequence must get
// the same bits (docs/numerics.md 2, 7 and 8).
type world struct {
	plan           int
	hq, hkv, d     int
	window         int
	hk, hv, dk, dv int
	c, taps        int
	n, k           int // experts, experts per row
	rope           *backend.RoPE
	half           bool  // pages are BF16
	rows           []int // by sequence
	data           []map[string][]float32
	weights        map[string][]float32
	raw            [][]byte // linear and experts
}

// step is some rows of a sequence in a pass.
type step struct{ seq, rows int }

func newWorld(t testing.TB, plan int) *world {
	r := tensortest.NewRand(Seed+uint64(plan), "world")
	w := &world{plan: plan, hkv: r.Between(1, 3), d: 2 * r.Between(1, 20), hk: r.Between(1, 2), dk: r.Between(1, 24), dv: r.Between(1, 24), c: r.Between(1, 40), taps: r.Between(1, 4)}
	w.hq, w.hv = w.hkv*r.Between(1, 8), w.hk*r.Between(1, 3)
	w.n = r.Between(1, 4)
	w.k = r.Between(1, w.n)
	if r.Intn(2) == 0 {
		w.window = r.Between(1, 90)
	}
	var err error
	if w.rope, err = backend.NewRoPE(1e4, 2*r.Between(1, w.d/2), backend.Scaling{}, nil); err != nil {
		t.Fatal(err)
	}
	const o = tensortest.Ordinary
	w.weights = map[string][]float32{"q": r.F32(o, w.d), "conv": r.F32(o, w.taps*w.c), "norm": r.F32(o, w.c), "delta norm": r.F32(o, w.dv)}
	for range 1 + 3*w.n {
		w.raw = append(w.raw, bytesOf(r.F32(o, w.c*w.c)))
	}
	for range r.Between(1, 4) {
		n := r.Between(1, 30)
		if r.Intn(3) == 0 {
			n = r.Between(50, 140)
		}
		small := func(n int) []float32 {
			v := r.F32(o, n)
			for i := range v {
				v[i] = 0.5 + v[i]*0.125
			}
			return v
		}
		w.rows = append(w.rows, n)
		w.data = append(w.data, map[string][]float32{
			"q": r.F32(o, n*w.hq*w.d), "k": r.F32(o, n*w.hkv*w.d), "v": r.F32(o, n*w.hkv*w.d), "x": r.F32(o, n*w.c),
			"dq": r.F32(o, n*w.hk*w.dk), "dk": r.F32(o, n*w.hk*w.dk), "dv": r.F32(o, n*w.hv*w.dv), "z": r.F32(o, n*w.hv*w.dv),
			"g": small(n * w.hv), "beta": small(n * w.hv), "router": r.F32(o, n*w.n),
		})
	}
	return w
}

func (w *world) String() string {
	return fmt.Sprintf("seed %d plan %d: %d sequences of %v rows, heads %d:%d of %d, pages of BF16 %v, window %d, rotary %d, delta heads %d:%d of %dx%d, %d channels, %d taps, %d of %d experts",
		Seed, w.plan, len(w.rows), w.rows, w.hq, w.hkv, w.d, w.half, w.window, 2*len(w.rope.Inv), w.hk, w.hv, w.dk, w.dv, w.c, w.taps, w.k, w.n)
}

// alone gives every sequence a pass of its own, with all its rows.
func (w *world) alone() [][]step {
	var l [][]step
	for i, n := range w.rows {
		l = append(l, []step{{i, n}})
	}
	return l
}

// shuffled draws passes: any cuts, any company.
func (w *world) shuffled(r *tensortest.Rand) [][]step {
	left := append([]int(nil), w.rows...)
	var l [][]step
	for {
		var pass []step
		most := []int{1, 3, 20, 200}[r.Intn(4)]
		for s := range left {
			if left[s] == 0 || r.Intn(3) == 0 {
				continue
			}
			n := r.Between(1, min(left[s], most))
			pass = append(pass, step{s, n})
			left[s] -= n
		}
		for i := len(pass) - 1; i > 0; i-- { // any order of sequences
			j := r.Intn(i + 1)
			pass[i], pass[j] = pass[j], pass[i]
		}
		if pass != nil {
			l = append(l, pass)
		}
		if rowsLeft(left) == 0 {
			return l
		}
	}
}

func rowsLeft(l []int) int {
	n := 0
	for _, v := range l {
		n += v
	}
	return n
}

// run plays the passes and returns what every sequence got, row after row.
func (w *world) run(t testing.TB, dev backend.Device, passes [][]step) []map[string][]float32 {
	t.Helper()
	e := newEnv(t, dev)
	defer e.close()
	e.half = w.half
	var lin []backend.Weight
	for _, raw := range w.raw {
		lin = append(lin, e.PackBytes(raw, tensor.F32, w.c, w.c))
	}
	segs := make([]backend.Seg, len(w.rows))
	got := make([]map[string][]float32, len(w.rows))
	for i, n := range w.rows {
		got[i] = map[string][]float32{}
		segs[i] = backend.Seg{
			KV:      e.pages(1, w.hkv, w.d, n),
			DeltaIn: e.Flat(make([]float32, w.hv*w.dk*w.dv), 1, w.hv, w.dk, w.dv), DeltaOut: e.Flat(make([]float32, w.hv*w.dk*w.dv), 1, w.hv, w.dk, w.dv),
			ConvIn: e.Flat(make([]float32, (w.taps-1)*w.c), 1, w.taps-1, w.c), ConvOut: e.Flat(make([]float32, (w.taps-1)*w.c), 1, w.taps-1, w.c),
			SumIn: e.Flat(make([]float32, w.c), w.c), SumOut: e.Flat(make([]float32, w.c), w.c),
		}
	}
	e.must(e.S.Sync())
	for _, pass := range passes {
		w.pass(e, pass, segs, lin, got)
	}
	for i, s := range segs {
		e.outs = nil
		e.readPages(s.KV, w.rows[i])
		e.S.Copy(e.State("delta state", nil, 1, w.hv, w.dk, w.dv), s.DeltaIn)
		e.S.Copy(e.State("sum", nil, 1, w.c), s.SumIn.Reshape(1, w.c))
		e.S.Copy(e.State("conv state", nil, 1, w.taps-1, w.c), s.ConvIn)
		for _, r := range e.Results() {
			got[i][r.Name] = r.F32
		}
	}
	return got
}

func (w *world) pass(e *Env, pass []step, segs []backend.Seg, lin []backend.Weight, got []map[string][]float32) {
	var list []backend.Seg
	rows := 0
	for _, s := range pass {
		g := segs[s.seq]
		g.Row, g.Rows = rows, s.rows
		list = append(list, g)
		rows += s.rows
	}
	in := func(what string, dim ...int) tensor.Tensor {
		var v []float32
		for i, s := range pass {
			d := w.data[s.seq][what]
			per := len(d) / w.rows[s.seq]
			v = append(v, d[list[i].Slot*per:(list[i].Slot+s.rows)*per]...)
		}
		return e.In(v, append([]int{rows}, dim...)...)
	}
	vec := func(what string, dim ...int) tensor.Tensor {
		return e.Flat(w.weights[what], append(dim, 1)...).Reshape(dim...)
	}
	e.outs = nil
	p, s := e.S.Plan(list), e.S
	q, k := e.Out("q", rows, w.hq, w.d), e.Out("k", rows, w.hkv, w.d)
	s.NormRoPE(q, in("q", w.hq, w.d), vec("q", w.d), 1e-6, w.rope, p)
	s.NormRoPE(k, in("k", w.hkv, w.d), tensor.Tensor{}, 0, w.rope, p)
	s.PutKV(p, 0, k, in("v", w.hkv, w.d))
	s.Attention(e.Out("attention", rows, w.hq, w.d), q, p, 0, 0.25, w.window)

	x := in("x", w.c)
	s.Conv(e.Out("conv", rows, w.c), x, vec("conv", w.taps, w.c), p, 0)
	dq, dk := e.Out("dq", rows, w.hk, w.dk), e.Out("dk", rows, w.hk, w.dk)
	s.L2Norm(dq, in("dq", w.hk, w.dk), 1e-6, 0.25)
	s.L2Norm(dk, in("dk", w.hk, w.dk), 1e-6, 1)
	o := e.Out("delta", rows, w.hv, w.dv)
	s.GatedDelta(o, dq, dk, in("dv", w.hv, w.dv), in("g", w.hv), in("beta", w.hv), p, 0)
	s.GatedRMSNorm(e.Out("gated norm", rows, w.hv, w.dv), o, in("z", w.hv, w.dv), vec("delta norm", w.dv), 1e-6)

	y := e.Out("norm", rows, w.c)
	s.RMSNorm(y, x, vec("norm", w.c), 1e-6)
	s.SumRows(p, y)
	s.Linear(e.Out("linear", rows, w.c), y, lin[0])
	ids, weights := e.OutInts("experts", rows, w.k), e.Out("expert weights", rows, w.k)
	s.Route(ids, weights, in("router", w.n), w.k, true)
	s.Experts(e.Out("mixture", rows, w.c), y, ids, weights, lin[1:1+w.n], lin[1+w.n:1+2*w.n], lin[1+2*w.n:])

	for _, r := range e.Results() {
		if r.I32 != nil {
			r.F32 = make([]float32, len(r.I32))
			for i, v := range r.I32 {
				r.F32[i] = float32(v)
			}
		}
		per := len(r.F32) / rows
		for i, s := range pass {
			got[s.seq][r.Name] = append(got[s.seq][r.Name], r.F32[list[i].Row*per:(list[i].Row+s.rows)*per]...)
		}
	}
	for _, s := range pass {
		g := &segs[s.seq]
		g.Slot, g.Pos = g.Slot+s.rows, g.Pos+s.rows
		g.DeltaIn, g.DeltaOut = g.DeltaOut, g.DeltaIn
		g.ConvIn, g.ConvOut = g.ConvOut, g.ConvIn
		g.SumIn, g.SumOut = g.SumOut, g.SumIn
	}
}

// Laws plays the random worlds from first on: whole sequences alone, on package
// ref (every fourth) and on the device, then cut and joined in three ways.
func Laws(t testing.TB, dev backend.Device, first, plans int) {
	t.Helper()
	for i := first; i < first+plans; i++ {
		w := newWorld(t, i)
		w.half = i%3 == 1 && dev.Info().BF16Pages
		want := w.run(t, dev, w.alone())
		if i%4 == 0 {
			if d := w.diff(w.run(t, ref.New(), w.alone()), want); d != "" {
				t.Fatalf("%v\nwhole sequences differ from package ref: %s", w, d)
			}
		}
		r := tensortest.NewRand(Seed+uint64(i), "passes")
		for range 3 {
			passes := w.shuffled(r)
			if d := w.diff(want, w.run(t, dev, passes)); d != "" {
				t.Fatalf("%v\npasses (sequence, rows) %v\nthe bits depend on cuts or company: %s", w, passes, d)
			}
		}
	}
}

func (w *world) diff(want, got []map[string][]float32) string {
	for s := range want {
		for _, op := range []string{"q", "k", "attention", "conv", "dq", "dk", "delta", "gated norm", "norm", "linear", "experts", "expert weights", "mixture", "page 0", "page 1", "page 2", "delta state", "conv state"} {
			if d := tensortest.DiffBits(want[s][op], got[s][op]); d != "" {
				return fmt.Sprintf("%s of sequence %d: %s", op, s, d)
			}
		}
	}
	return ""
}
