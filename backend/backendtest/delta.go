package backendtest

import (
	"samebit/backend"
	"samebit/tensor/tensortest"
)

// delta is a shape of the delta rule.
type delta struct {
	rows           []int // per sequence
	hk, hv, dk, dv int
	layers         int
	why            string
}

var deltas = []delta{
	{[]int{1}, 1, 1, 4, 2, 1, "the smallest"},
	{[]int{1}, 2, 4, 32, 16, 2, "decode"},
	{[]int{5}, 1, 3, 12, 20, 1, "widths that differ"},
	{[]int{3}, 1, 1, 160, 8, 1, "a reduction of two blocks"},
	{[]int{3}, 1, 2, 129, 33, 1, "one above a block, odd values"},
	{[]int{1, 1, 1, 1}, 2, 2, 16, 24, 1, "decode of four sequences"},
	{[]int{7, 1, 4}, 2, 6, 20, 12, 3, "ragged"},
	{[]int{2}, 1, 2, 128, 128, 1, "the widths of the real models"},
}

func deltaCases() []Case {
	var l []Case
	for _, z := range deltas {
		kinds := []tensortest.Kind{tensortest.Ordinary}
		if z.dk == 12 || z.dk == 32 {
			kinds = tensortest.Kinds()
		}
		for _, k := range kinds {
			l = append(l, Case{"GatedDelta", name("%v/heads=%d:%d/%dx%d/%s", z.rows, z.hk, z.hv, z.dk, z.dv, k), z.why, func(e *Env, r *tensortest.Rand) {
				z.run(e, r, k)
			}})
		}
	}
	for _, z := range []struct {
		rows []int
		c, w int
		why  string
	}{
		{[]int{1}, 1, 4, "the smallest"},
		{[]int{1}, 67, 4, "decode"},
		{[]int{2}, 33, 4, "fewer rows than history"},
		{[]int{3}, 31, 4, "as many rows as history"},
		{[]int{11}, 40, 4, "prefill"},
		{[]int{1, 5, 2, 1}, 35, 4, "ragged"},
		{[]int{6}, 12, 2, "two taps"},
		{[]int{6}, 19, 3, "three taps"},
		{[]int{4, 1}, 9, 1, "no history"},
		{[]int{5}, 17, 7, "more taps than models use"},
	} {
		for _, k := range tensortest.Kinds() {
			if k != tensortest.Ordinary && z.c != 35 {
				continue
			}
			l = append(l, Case{"Conv", name("%v/c=%d/taps=%d/%s", z.rows, z.c, z.w, k), z.why, func(e *Env, r *tensortest.Rand) {
				var segs []backend.Seg
				row := 0
				for i, n := range z.rows {
					m := 2 * (z.w - 1) * z.c
					segs = append(segs, backend.Seg{Row: row, Rows: n,
						ConvIn:  e.State("history", r.F32(k, m), 2, z.w-1, z.c),
						ConvOut: e.State(name("new history %d", i), r.F32(k, m), 2, z.w-1, z.c)})
					row += n
				}
				p := e.S.Plan(segs)
				e.S.Conv(e.Out("dst", row, z.c), e.In(r.F32(k, row*z.c), row, z.c), e.Flat(r.F32(k, z.w*z.c), z.w, z.c), p, 1)
			}})
		}
	}
	for _, z := range headSizes {
		for _, k := range tensortest.Kinds() {
			n := z.r * z.h * z.d
			shape := name("%dx%dx%d/%s", z.r, z.h, z.d, k)
			l = append(l,
				Case{"L2Norm", shape, z.why, func(e *Env, r *tensortest.Rand) {
					x := e.In(r.F32(k, n), z.r, z.h, z.d)
					e.S.L2Norm(e.Out("dst", z.r, z.h, z.d), x, 1e-6, 1)
					e.S.L2Norm(e.Out("scaled", z.r, z.h, z.d), x, 1e-6, 0.3535533905932738)
				}},
				Case{"GatedRMSNorm", shape, z.why, func(e *Env, r *tensortest.Rand) {
					e.S.GatedRMSNorm(e.Out("dst", z.r, z.h, z.d), e.In(r.F32(k, n), z.r, z.h, z.d), e.In(r.F32(k, n), z.r, z.h, z.d), e.In(r.F32(k, z.d), z.d), 1e-6)
				}},
				Case{"DeltaGates", shape, z.why, func(e *Env, r *tensortest.Rand) {
					m := z.r * z.d
					a, b := e.In(r.F32(k, m), z.r, z.d), e.In(r.F32(k, m), z.r, z.d)
					e.S.DeltaGates(e.Out("g", z.r, z.d), e.Out("beta", z.r, z.d), a, b, e.In(r.F32(k, z.d), z.d), e.In(r.F32(k, z.d), z.d))
				}})
		}
	}
	return l
}

func (z delta) run(e *Env, r *tensortest.Rand, k tensortest.Kind) {
	var segs []backend.Seg
	row := 0
	for i, n := range z.rows {
		m := z.layers * z.hv * z.dk * z.dv
		segs = append(segs, backend.Seg{Row: row, Rows: n,
			DeltaIn:  e.State("state", r.F32(k, m), z.layers, z.hv, z.dk, z.dv),
			DeltaOut: e.State(name("new state %d", i), r.F32(k, m), z.layers, z.hv, z.dk, z.dv)})
		row += n
	}
	p := e.S.Plan(segs)
	q, key, v := r.F32(k, row*z.hk*z.dk), r.F32(k, row*z.hk*z.dk), r.F32(k, row*z.hv*z.dv)
	for i := range key {
		q[i], key[i] = q[i]*0.0625, key[i]*0.0625
	}
	g, beta := r.F32(k, row*z.hv), r.F32(k, row*(z.hv+1))
	for _, v := range [2][]float32{g, beta} {
		for i := range v {
			v[i] = 0.5 + float32(v[i]*0.125) // within (0, 1) where k is ordinary
		}
	}
	in := e.In(append(append([]float32(nil), q...), key...), 2*row, z.hk, z.dk)
	e.S.GatedDelta(e.Out("dst", row, z.hv, z.dv), in.Rows(0, row), in.Rows(row, 2*row), e.In(v, row, z.hv, z.dv),
		e.In(g, row, z.hv), e.In(beta, row, z.hv+1).Cols(1, z.hv+1), p, z.layers-1) // rows of other distances
}
