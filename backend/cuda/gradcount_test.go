package cuda_test

import (
	"testing"

	"samebit/backend"
	"samebit/backend/cuda/emu"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// What the kernels of gradients issue per unit of work (docs/cuda.md 6).
func TestGradCounts(t *testing.T) {
	dev, watch := watchedAs(t, emu.Config{Workers: 2, Shared: 227 << 10}) // as an H200 has it
	r := newRig(t, dev)
	g, rnd := r.s.(backend.Grad), tensortest.NewRand(1, "counts")
	count := func(kernel string, f func()) emu.Counts {
		t.Helper()
		r.must(r.s.Sync())
		watch.ResetCounts()
		f()
		r.must(r.s.Sync())
		c := watch.Counts()[kernel]
		if c.Launches == 0 {
			t.Fatalf("%s was not launched", kernel)
		}
		return c
	}
	issued := func(c emu.Counts) (n float64) {
		for _, v := range c.Issued {
			n += float64(v)
		}
		return n
	}
	check := func(name string, got, low, high float64) {
		t.Helper()
		t.Logf("%-50s %8.3f", name, got)
		if got < low || got > high {
			t.Errorf("%s is %.3f, want %.3f to %.3f", name, got, low, high)
		}
	}
	product := func(kernel string, fmas float64, low float64, f func()) {
		t.Helper()
		c := count(kernel, f)
		fma := float64(c.Issued[emu.FMA])
		check(kernel+": FMA / needed", fma/fmas, 1, 1.2)
		check(kernel+": FMA / warp instructions", fma/issued(c), low, 1)
		check(kernel+": share of an H200's FMAs", share(c, 0), low/1.3, 1)
		check(kernel+": shared passes / FMA", float64(c.SharedPasses)/fma, 0, 1)
	}
	const n = 256
	x := func() tensor.Tensor { return r.random(rnd, 1, n, n) }
	dx, dy, w, p := x(), x(), r.weight(rnd, tensor.F32, n, n), r.segments(n)
	product("rowsGradLarge", n*n*n/32, 0.7, func() { g.LinearGrad(dx, dy, w) })
	product("weightGradLarge", n*n*n/32, 0.7, func() { g.WeightGrad(dx, dy, x(), p) })
	{
		const rows, d = 128, 128 // three pairs of blocks, two of which lie on the diagonal
		in := func() tensor.Tensor { return r.random(rnd, 1, rows, 1, d) }
		p := r.segments(rows)
		run := func() { g.AttentionGrad(in(), in(), in(), in(), in(), in(), in(), in(), p, 0.1, 0) }
		product("attnStats", 3*64*64*d/32, 0.3, run)
		product("attnGradQ", 3*3*64*64*d/32, 0.3, run)
		product("attnGradKV", 4*3*64*64*d/32, 0.3, run)
	}
	{
		const rows, dk, dv = 16, 128, 128
		in := func(dim ...int) tensor.Tensor { return r.random(rnd, 0.1, dim...) }
		p := r.s.Plan([]backend.Seg{{Rows: rows, DeltaIn: in(1, 1, dk, dv), DeltaOut: in(1, 1, dk, dv)}})
		run := func() {
			key, value, gate := func() tensor.Tensor { return in(rows, 1, dk) }, func() tensor.Tensor { return in(rows, 1, dv) }, func() tensor.Tensor { return in(rows, 1) }
			g.GatedDeltaGrad(key(), key(), value(), gate(), gate(), value(), key(), key(), value(), gate(), gate(), p, 0)
		}
		check("deltaForward: warp instructions / (row, 32 states)", issued(count("deltaForward", run))/(rows*dk*dv/32), 4, 20)
		c := count("deltaGrad", run)
		check("deltaGrad: warp instructions / (row, 32 states)", issued(c)/(rows*dk*dv/32), 12, 56)
		check("deltaGrad: shared conflicts / shared passes", float64(c.SharedConflicts)/float64(c.SharedPasses), 0, 0.2)
	}
}
