package delta

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"samebit/backend/cpu/internal/isa"
	"samebit/internal/canon"
	"samebit/internal/canon/canontest"
)

func sets(t *testing.T, run func(t *testing.T, k *Kernels)) {
	t.Helper()
	for _, s := range isa.Available() {
		t.Run(s.String(), func(t *testing.T) { run(t, For(s)) })
	}
}

// dot is numerics.md 2.
func dot(x, y []float32) float32 {
	var total float32
	for b := 0; b < len(x); b += 128 {
		var acc float32
		for i := b; i < min(b+128, len(x)); i++ {
			acc = canon.FMA32(x[i], y[i], acc)
		}
		total += acc
	}
	return total
}

// naive is numerics.md 8 read aloud: one column and one row at a time.
func naive(h *Head) {
	S := h.Dst[:h.Dk*h.Dv]
	copy(S, h.Src)
	col := make([]float32, h.Dk)
	for t := range h.T {
		q, k := h.Q[t*h.QStride:][:h.Dk], h.K[t*h.KStride:][:h.Dk]
		for j := range h.Dv {
			for i := range col {
				col[i] = S[i*h.Dv+j] * h.G[t*h.GStride]
			}
			d := float32(h.V[t*h.VStride+j]-dot(col, k)) * h.Beta[t*h.BetaStride]
			for i := range col {
				col[i] = canon.FMA32(k[i], d, col[i])
				S[i*h.Dv+j] = col[i]
			}
			h.Out[t*h.OutStride+j] = dot(col, q)
		}
	}
}

// random is a head with strides beyond its rows and values of usual size.
func random(r *rand.Rand, T, dk, dv int) *Head {
	draw := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64() * scale)
		}
		return x
	}
	h := &Head{T: T, Dk: dk, Dv: dv, QStride: dk + 3, KStride: dk + 5, VStride: dv + 7, OutStride: dv + 1, GStride: 2, BetaStride: 3}
	h.Src = draw(dk*dv, 1)
	h.Q, h.K = draw(T*h.QStride, 1/math.Sqrt(float64(dk))), draw(T*h.KStride, 1/math.Sqrt(float64(dk)))
	h.V = draw(T*h.VStride, 1)
	h.G, h.Beta = make([]float32, T*h.GStride), make([]float32, T*h.BetaStride)
	for i := range h.G {
		h.G[i] = 1 - r.Float32()*0.2
	}
	for i := range h.Beta {
		h.Beta[i] = r.Float32()
	}
	return h
}

// outputs gives a copy of h fresh guarded outputs.
func outputs(h *Head) (c *Head, intact func() bool) {
	d := *h
	var a, b func() bool
	d.Dst, a = canontest.Guarded(h.Dk * h.Dv)
	d.Out, b = canontest.Guarded(max((h.T-1)*h.OutStride+h.Dv, 0))
	return &d, func() bool { return a() && b() }
}

// rows is the part [lo, hi) of the rows of h, with the state from src.
func rows(h *Head, lo, hi int, src []float32) *Head {
	c := *h
	c.T, c.Src = hi-lo, src
	c.Q, c.K, c.V = h.Q[lo*h.QStride:], h.K[lo*h.KStride:], h.V[lo*h.VStride:]
	c.Out = h.Out[min(lo*h.OutStride, len(h.Out)):]
	c.G, c.Beta = h.G[lo*h.GStride:], h.Beta[lo*h.BetaStride:]
	return &c
}

func tmp(h *Head) []float32 {
	x := make([]float32, Scratch(h.Dk, h.Dv))
	for i := range x {
		x[i] = float32(math.NaN()) // what it holds must not matter
	}
	return x
}

func same(t *testing.T, what string, got, want *Head, intact bool) {
	t.Helper()
	if d := canontest.Diff(got.Out, want.Out); d != "" {
		t.Fatalf("%s: out:\n%s", what, d)
	}
	if d := canontest.Diff(got.Dst, want.Dst); d != "" {
		t.Fatalf("%s: state:\n%s", what, d)
	}
	if !intact {
		t.Fatalf("%s: wrote outside its slices", what)
	}
}

func TestShapes(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		const seed = 5
		r := rand.New(rand.NewPCG(seed, 1))
		dks, dvs := []int{1, 12, 13, 32, 64, 100, 127, 128, 129, 160, 256, 257}, []int{1, 8, 16, 31, 32, 33, 64, 70}
		if testing.Short() {
			dks, dvs = []int{12, 128, 129}, []int{8, 33}
		}
		for _, dk := range dks {
			for _, dv := range dvs {
				for _, T := range []int{0, 1, 2, 3} {
					h := random(r, T, dk, dv)
					want, _ := outputs(h)
					naive(want)
					got, intact := outputs(h)
					k.Run(got, tmp(h))
					what := fmt.Sprintf("dk=%d dv=%d T=%d seed %d", dk, dv, T, seed)
					same(t, what, got, want, intact())
					// state in place
					got, intact = outputs(h)
					copy(got.Dst, h.Src)
					got.Src = got.Dst
					k.Run(got, tmp(h))
					same(t, what+" in place", got, want, intact())
				}
			}
		}
	})
}

func TestGoldens(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		for _, c := range canontest.Cases(t, "delta_rule") {
			dk, dv, T := c.Int("dk"), c.Int("dv"), c.Int("t")
			h := &Head{
				T: T, Dk: dk, Dv: dv, QStride: dk, KStride: dk, VStride: dv, OutStride: dv, GStride: 1, BetaStride: 1,
				Src: c.In["s0"].F32(), Q: c.In["q"].F32(), K: c.In["k"].F32(), V: c.In["v"].F32(),
				G: c.In["decay"].F32(), Beta: c.In["beta"].F32(),
			}
			got, intact := outputs(h)
			k.Run(got, tmp(h))
			want := &Head{Out: c.Out["o"].F32(), Dst: c.Out["s"].F32()}
			same(t, fmt.Sprintf("dk=%d dv=%d T=%d", dk, dv, T), got, want, intact())
		}
	})
}

// The worked example of docs/numerics.md 14.
func TestWorkedExample(t *testing.T) {
	gen := func(a, n int, by float32) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = canontest.Gen(a, i) / by
		}
		return x
	}
	bits := func(u ...uint32) []float32 {
		x := make([]float32, len(u))
		for i := range u {
			x[i] = math.Float32frombits(u[i])
		}
		return x
	}
	sets(t, func(t *testing.T, k *Kernels) {
		h := &Head{
			T: 2, Dk: 4, Dv: 2, QStride: 4, KStride: 4, VStride: 2, OutStride: 2, GStride: 1, BetaStride: 1,
			Src: gen(7, 8, 1), K: gen(8, 8, 3), Q: gen(9, 8, 3), V: gen(10, 4, 1),
			G: []float32{0.9, 0.8}, Beta: []float32{0.3, 0.7},
		}
		got, intact := outputs(h)
		k.Run(got, tmp(h))
		same(t, "worked example", got, &Head{
			Out: bits(0xbfcfc980, 0xbfdeb46a, 0x3ee8f7e7, 0x3f47f606),
			Dst: bits(0x3f945b94, 0x3f80764e, 0x3f4146e9, 0x3e27f29c, 0x3e6a0a85, 0xbf40e5df, 0xbe98834e, 0xbfd5e434),
		}, intact())
	})
}

// T rows at once are T times one row, for every T around the chunk sizes other
// engines use, and every prefix followed by single rows: what lies beyond the
// rows of a call, pads among them, never reaches the state.
func TestEveryLength(t *testing.T) {
	most := 130
	if testing.Short() {
		most = 9
	}
	sets(t, func(t *testing.T, k *Kernels) {
		const seed = 7
		r := rand.New(rand.NewPCG(seed, 2))
		h := random(r, most, 16, 33)
		one, _ := outputs(h)
		state := h.Src
		for T := 1; T <= most; T++ {
			step := rows(one, T-1, T, state)
			step.Dst = make([]float32, len(h.Src))
			k.Run(step, tmp(h))
			state = step.Dst

			full := rows(h, 0, T, h.Src)
			got, intact := outputs(full)
			k.Run(got, tmp(h))
			want := &Head{Out: one.Out[:len(got.Out)], Dst: state}
			for i := range got.Out { // gaps between rows are not written
				if i%h.OutStride >= h.Dv && got.Out[i] != 0 {
					t.Fatalf("T=%d: wrote between the output rows", T)
				}
			}
			same(t, fmt.Sprintf("T=%d seed %d", T, seed), got, want, intact())
		}
	})
}

// Any cut of the rows gives the same bits.
func TestCuts(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		const seed = 9
		r := rand.New(rand.NewPCG(seed, 3))
		n := 60
		if testing.Short() {
			n = 4
		}
		for range n {
			T, dk, dv := 1+r.IntN(70), 12+r.IntN(30), 1+r.IntN(70)
			h := random(r, T, dk, dv)
			want, _ := outputs(h)
			k.Run(want, tmp(h))
			got, intact := outputs(h)
			state, plan := h.Src, []int{}
			for at := 0; at < T; {
				end := min(T, at+1+r.IntN(T))
				part := rows(got, at, end, state)
				k.Run(part, tmp(h))
				state, at, plan = part.Dst, end, append(plan, end)
			}
			same(t, fmt.Sprintf("T=%d dk=%d dv=%d cut at %v seed %d", T, dk, dv, plan, seed), got, want, intact())
		}
	})
}

// Decays that forms with cumulated logarithms cannot take: the state stays
// finite and equals the recurrence.
func TestSmallDecay(t *testing.T) {
	for _, g := range []float32{1e-12, 0, 1, math.SmallestNonzeroFloat32, 0x1p-130} {
		sets(t, func(t *testing.T, k *Kernels) {
			r := rand.New(rand.NewPCG(13, 4))
			h := random(r, 64, 24, 40)
			for i := range h.G {
				h.G[i] = g
			}
			want, _ := outputs(h)
			naive(want)
			got, intact := outputs(h)
			k.Run(got, tmp(h))
			same(t, fmt.Sprintf("g=%g", g), got, want, intact())
			for i, v := range got.Dst {
				if v != v || math.IsInf(float64(v), 0) {
					t.Fatalf("g=%g: state[%d] = %g", g, i, v)
				}
			}
		})
	}
}

// Subnormal states and chains that end at -0 come out alike.
func TestTinyValues(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(15, 5))
		h := random(r, 3, 130, 40)
		for _, x := range [][]float32{h.Src, h.V} {
			for i := range x {
				x[i] *= 0x1p-133
			}
		}
		want, _ := outputs(h)
		naive(want)
		got, intact := outputs(h)
		k.Run(got, tmp(h))
		same(t, "subnormals", got, want, intact())
	})
}

func TestGates(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(17, 6))
		for n := 1; n < 40; n++ {
			a, b, ae, dt := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
			for i := range a {
				a[i], b[i] = float32(r.NormFloat64()*6), float32(r.NormFloat64()*6)
				ae[i], dt[i] = r.Float32()*16, float32(r.NormFloat64())
			}
			g, beta := make([]float32, n), make([]float32, n)
			k.Gates(g, beta, a, b, ae, dt)
			for i := range g {
				wg, wb := canon.Exp(-float32(ae[i]*canon.Softplus(a[i]+dt[i]))), canon.Sigmoid(b[i])
				if !canontest.Same(g[i], wg) || !canontest.Same(beta[i], wb) {
					t.Fatalf("n=%d [%d]: g %g beta %g, want %g %g", n, i, g[i], beta[i], wg, wb)
				}
			}
		}
	})
}

func TestNoAllocation(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 7))
	h := random(r, 2, 16, 40)
	got, _ := outputs(h)
	sc := tmp(h)
	for _, s := range isa.Available() {
		k := For(s)
		if n := testing.AllocsPerRun(10, func() { k.Run(got, sc) }); n != 0 {
			t.Errorf("%v: %g allocations", s, n)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	for _, s := range isa.Available() {
		k := For(s)
		for _, c := range []struct{ T, d int }{{1, 128}, {8, 128}, {64, 128}, {256, 128}, {64, 64}, {64, 256}} {
			T := c.T
			if s == isa.Generic && T > 1 {
				continue
			}
			b.Run(fmt.Sprintf("%v/dk=%d/dv=%d/T=%d", s, c.d, c.d, T), func(b *testing.B) {
				h := random(rand.New(rand.NewPCG(1, 1)), T, c.d, c.d)
				got, _ := outputs(h)
				sc := tmp(h)
				best := time.Duration(1 << 62) // a shared machine disturbs the mean
				b.ReportAllocs()
				for b.Loop() {
					start := time.Now()
					k.Run(got, sc)
					best = min(best, time.Since(start))
				}
				b.ReportMetric(float64(best.Nanoseconds())/float64(T)/1000, "best-us/row")
			})
		}
	}
}
