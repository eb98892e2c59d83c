package backendtest

import (
	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

func moeCases() []Case {
	var l []Case
	for _, z := range []struct {
		r, e, k int
		why     string
	}{
		{1, 1, 1, "one expert"},
		{3, 8, 2, "two of eight"},
		{5, 64, 10, "ten of sixty-four"},
		{2, 33, 33, "all of an odd number"},
		{0, 4, 2, "no rows"},
	} {
		for _, k := range []tensortest.Kind{tensortest.Ordinary, tensortest.Wide, tensortest.Ties, tensortest.MinusZeros} {
			l = append(l, Case{"Route", name("%d/%d of %d/%s", z.r, z.k, z.e, k), z.why, func(e *Env, r *tensortest.Rand) {
				x := e.In(r.F32(k, z.r*z.e), z.r, z.e)
				e.S.Route(e.OutInts("experts", z.r, z.k), e.Out("weights", z.r, z.k), x, z.k, false)
				e.S.Route(e.OutInts("renormalised experts", z.r, z.k), e.Out("renormalised weights", z.r, z.k), x, z.k, true)
			}})
		}
	}
	for _, z := range []struct {
		r, c, f, e, k int
		dt            tensor.DType
		kind          tensortest.Kind
		why           string
	}{
		{1, 33, 17, 4, 2, tensor.F32, tensortest.Ordinary, "decode"},
		{7, 40, 24, 4, 2, tensor.BF16, tensortest.Ordinary, "experts with no, one and several rows"},
		{9, 31, 65, 3, 3, tensor.F16, tensortest.Ordinary, "all experts"},
		{5, 64, 32, 5, 1, tensor.Q8_0, tensortest.Ordinary, "one expert of five"},
		{2, 256, 256, 2, 1, tensor.Q4_K, tensortest.Ordinary, "blocks of 256"},
		{4, 20, 12, 4, 2, tensor.F32, tensortest.Specials, "edges of float32"},
		{4, 20, 12, 4, 2, tensor.F32, tensortest.Subnormal, "products that underflow"},
		{0, 8, 8, 2, 1, tensor.F32, tensortest.Ordinary, "no rows"},
	} {
		l = append(l, Case{"Experts", name("%dx%dx%d/%d of %d/%v/%s", z.r, z.c, z.f, z.k, z.e, z.dt, z.kind), z.why, func(e *Env, r *tensortest.Rand) {
			gate, up, down := experts(e, r, z.kind, z.dt, z.e, z.c, z.f)
			x := e.In(r.F32(z.kind, z.r*z.c), z.r, z.c)
			e.S.Experts(e.Out("dst", z.r, z.c), x, e.Ints(choose(r, z.r, z.k, z.e), z.r, z.k), e.In(r.F32(z.kind, z.r*z.k), z.r, z.k), gate, up, down)
		}})
	}
	return l
}

func experts(e *Env, r *tensortest.Rand, kind tensortest.Kind, dt tensor.DType, n, c, f int) (gate, up, down []backend.Weight) {
	for range n {
		gate = append(gate, e.Pack(r, kind, dt, f, c))
		up = append(up, e.Pack(r, kind, dt, f, c))
		down = append(down, e.Pack(r, kind, dt, c, f))
	}
	return gate, up, down
}

// choose draws k of n experts per row, ascending.
func choose(r *tensortest.Rand, rows, k, n int) []int32 {
	var l []int32
	for range rows {
		left := k
		for e := range n {
			if r.Intn(n-e) < left {
				l = append(l, int32(e))
				left--
			}
		}
	}
	return l
}
