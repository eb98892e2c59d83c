package backendtest

import (
	"math"
	"testing"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// runMeaning states results that docs/numerics.md 2, 5, 7 and 11 fix in words, so
// that a device and package ref cannot be wrong together.
func runMeaning(t *testing.T, dev backend.Device) {
	inf, nan, minus := float32(math.Inf(1)), float32(math.NaN()), math.Float32frombits(1<<31)
	run := func(name string, f func(t *testing.T, e *Env)) {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, dev)
			defer e.close()
			f(t, e)
		})
	}
	ints := func(t *testing.T, e *Env, want ...int32) {
		t.Helper()
		if d := tensortest.DiffI32(want, e.Results()[0].I32); d != "" {
			t.Error(d)
		}
	}
	run("ArgMax", func(t *testing.T, e *Env) {
		rows := [][]float32{
			{3, 3, 3, 3}, {1, 5, 5, 2}, {minus, 0, minus, 0}, {nan, 1, nan, 2}, {nan, nan, nan, nan}, {-inf, -inf, -inf, -inf},
			{nan, -inf, nan, -inf}, {-1, inf, inf, 0}, {-0x1p-149, minus, -1, -2}, {-3, -2, -1, -1},
		}
		var all []float32
		for _, r := range rows {
			all = append(all, r...)
		}
		e.S.ArgMax(e.OutInts("dst", len(rows)), e.In(all, len(rows), 4))
		ints(t, e, 0, 1, 0, 3, -1, 0, 1, 1, 1, 2)
	})
	run("ArgMax of long rows", func(t *testing.T, e *Env) {
		const n = 1061
		at := []int{0, 1, 31, 32, 511, 1023, 1024, n - 1}
		v := make([]float32, len(at)*n)
		var want []int32
		for r, i := range at {
			v[r*n+i] = 2
			for j := i + 1; j < n; j += 5 { // ties behind it
				v[r*n+j] = 2
			}
			if i > 0 {
				v[r*n+i-1] = nan
			}
			want = append(want, int32(i))
		}
		e.S.ArgMax(e.OutInts("dst", len(at)), e.In(v, len(at), n))
		ints(t, e, want...)
	})
	run("Route takes the lower of equal experts", func(t *testing.T, e *Env) {
		e.S.Route(e.OutInts("experts", 3, 2), e.Out("weights", 3, 2), e.In([]float32{1, 1, 1, 1, 0, 2, 1, 2, 5, 4, 4, 4}, 3, 4), 2, true)
		ints(t, e, 0, 1, 1, 3, 0, 1)
	})
	run("no product is -0", func(t *testing.T, e *Env) {
		w := e.PackBytes(bytesOf([]float32{-0x1p-100, -0x1p-100, minus, -0x1p-149, -0x1p-149, 0}), tensor.F32, 2, 3)
		x := e.In([]float32{0x1p-100, 0x1p-100, 1, minus, minus, minus}, 2, 3)
		e.S.Linear(e.Out("rows", 2, 2), x, w)
		e.S.Linear(e.Out("one row", 1, 2), x.Rows(0, 1), w)
		e.check(t, make([]float32, 4), make([]float32, 2))
	})
	run("zeros appended to both operands change nothing", func(t *testing.T, e *Env) {
		r := tensortest.NewRand(Seed, "padding")
		const k, long = 130, 300
		x, w := r.F32(tensortest.Subnormal, k), r.F32(tensortest.Subnormal, 5*k)
		px, pw := make([]float32, long), make([]float32, 5*long)
		copy(px, x)
		for n := range 5 {
			copy(pw[n*long:], w[n*k:(n+1)*k])
		}
		e.S.Linear(e.Out("short", 1, 5), e.In(x, 1, k), e.PackBytes(bytesOf(w), tensor.F32, 5, k))
		e.S.Linear(e.Out("long", 1, 5), e.In(px, 1, long), e.PackBytes(bytesOf(pw), tensor.F32, 5, long))
		got := e.Results()
		if d := tensortest.DiffBits(got[0].F32, got[1].F32); d != "" {
			t.Error(d)
		}
	})
	run("a NaN score spoils its row alone", func(t *testing.T, e *Env) {
		const d, n = 8, 70
		r := tensortest.NewRand(Seed, "nan score")
		pages := e.pages(1, 1, d, n)
		k := r.F32(tensortest.Ordinary, n*d)
		p := e.S.Plan([]backend.Seg{{Rows: n, KV: pages}})
		k[66*d+3] = nan
		e.S.PutKV(p, 0, e.In(k, n, 1, d), e.In(r.F32(tensortest.Ordinary, n*d), n, 1, d))
		e.S.Attention(e.Out("dst", n, 1, d), e.In(r.F32(tensortest.Ordinary, n*d), n, 1, d), p, 0, 1, 0)
		for i, v := range e.Results()[0].F32 {
			if bad := v != v; bad != (i/d >= 66) {
				t.Fatalf("row %d, component %d is %v", i/d, i%d, v)
			}
		}
	})
	run("attention to one slot is its value", func(t *testing.T, e *Env) {
		const d, n = 5, 130
		r := tensortest.NewRand(Seed, "window of one")
		v := r.F32(tensortest.Ordinary, n*d)
		for i := range v {
			if v[i] == 0 {
				v[i] = 1 // a chain never ends at -0
			}
		}
		p := e.S.Plan([]backend.Seg{{Rows: n, KV: e.pages(1, 1, d, n)}})
		e.S.PutKV(p, 0, e.In(r.F32(tensortest.Ordinary, n*d), n, 1, d), e.In(v, n, 1, d))
		e.S.Attention(e.Out("dst", n, 1, d), e.In(r.F32(tensortest.Ordinary, n*d), n, 1, d), p, 0, 1, 1)
		e.check(t, v)
	})
	run("beta 0 and decay 1 keep the state", func(t *testing.T, e *Env) {
		r := tensortest.NewRand(Seed, "kept state")
		const dk, dv = 13, 7
		s := r.F32(tensortest.Ordinary, dk*dv)
		p := e.S.Plan([]backend.Seg{{Rows: 3, DeltaIn: e.Flat(s, 1, 1, dk, dv), DeltaOut: e.State("state", nil, 1, 1, dk, dv)}})
		f := func(d int) tensor.Tensor { return e.In(r.F32(tensortest.Ordinary, 3*d), 3, 1, d) }
		dst := e.Flat(make([]float32, 3*dv), 3, 1, dv)
		e.S.GatedDelta(dst, f(dk), f(dk), f(dv), e.In([]float32{1, 1, 1}, 3, 1), e.In([]float32{0, 0, 0}, 3, 1), p, 0)
		e.check(t, s)
	})
	run("softmax of overflow", func(t *testing.T, e *Env) {
		e.S.Softmax(e.Out("dst", 4, 3), e.In([]float32{inf, 0, 0, -inf, -inf, -inf, nan, 0, 0, -inf, 5, -inf}, 4, 3))
		e.check(t, []float32{nan, nan, nan, nan, nan, nan, nan, nan, nan, 0, 1, 0})
	})
}
