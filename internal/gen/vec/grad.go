package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gradients writes the kernels of numerics.md 10. What is added to a gradient that
// holds nothing yet is added to +0 ("First").
func gradients(e *emitter) {
	siluMust := append([]string{"one"}, expMust...)

	e.loop(loop{name: "softmaxGrad", outs: []string{"p", "d"}, ins: []string{"p", "d"}, scalars: []string{"m", "c", "s"}, must: expMust, may: expMay,
		body: func(in, s vecs) vecs {
			p := e.exp(e.op2(VSUBPS, s[0], in[0])) // p = exp(p - m)
			d := in[1]
			VSUBPS(s[1], d, d)
			VMULPS(d, p, d)
			VMULPS(s[2], d, d) // d = (p·(d - c))·s
			return vecs{p, d}
		}})
	e.loop(loop{name: "adamW", outs: []string{"w", "m", "v"}, ins: []string{"w", "m", "v", "g"},
		scalars: []string{"clip", "beta1", "rest1", "beta2", "rest2", "scale2", "eps", "rate", "decay"},
		body: func(in, s vecs) vecs {
			w, m, v, g := in[0], in[1], in[2], in[3]
			VMULPS(s[0], g, g)
			t := e.op2(VMULPS, s[2], g)
			VMULPS(s[1], m, m)
			VADDPS(t, m, m) // m = m·β1 + g·(1-β1)
			VMULPS(g, g, g)
			VMULPS(s[4], g, g)
			VMULPS(s[3], v, v)
			VADDPS(g, v, v) // v = v·β2 + (g·g)·(1-β2)
			VMULPS(s[5], v, t)
			VSQRTPS(t, t)
			VADDPS(s[6], t, t)
			VDIVPS(t, m, t)
			VMULPS(s[7], t, t)
			VMULPS(s[8], w, w)
			VSUBPS(t, w, w) // w = w·decay - (m / (sqrt(v·c2) + eps))·rate
			return vecs{w, m, v}
		}})

	for _, first := range []bool{false, true} {
		suffix, sums := "", func(names ...string) []string { return names }
		plus := func(in vecs, i int, t reg.VecVirtual) reg.VecVirtual { return e.op2(VADDPS, t, in[i]) }
		rest := func(in vecs, n int) vecs { return in[n:] }
		if first {
			suffix, sums = "First", func(...string) []string { return nil }
			plus = func(_ vecs, _ int, t reg.VecVirtual) reg.VecVirtual { return e.op2(VADDPS, t, e.zero()) }
			rest = func(in vecs, _ int) vecs { return in }
		}
		e.loop(loop{name: "swigluGrad" + suffix, outs: []string{"dg", "du"}, ins: append(sums("dg", "du"), "dy", "g", "u"), must: siluMust, may: append(expMay, "sign"),
			body: func(in, _ vecs) vecs {
				r := rest(in, 2)
				dy, g, u := r[0], r[1], r[2]
				d := e.onePlusExpNeg(g)
				VDIVPS(d, g, g)                                     // a = silu(g)
				sg := e.op2(VDIVPS, d, e.c("one").(reg.VecVirtual)) // sigmoid(g)
				t := e.op2(VSUBPS, sg, e.c("one").(reg.VecVirtual)) // 1 - sg
				VFMADD231PS(t, g, sg)                               // slope
				VMULPS(dy, u, u)
				VMULPS(sg, u, u) // (dy·up)·slope
				VMULPS(g, dy, dy)
				return vecs{plus(in, 0, u), plus(in, 1, dy)}
			}})
		e.loop(loop{name: "normGrad" + suffix, outs: []string{"dx"}, ins: append(sums("dx"), "dy", "x", "w"), scalars: []string{"r", "c"}, unroll: 2,
			body: func(in, s vecs) vecs {
				v := rest(in, 1)
				dy, x, w := v[0], v[1], v[2]
				VMULPS(s[0], x, x)        // xh
				VMULPS(w, dy, dy)         // g
				VFNMADD231PS(s[1], x, dy) // FMA(-c, xh, g)
				VMULPS(s[0], dy, dy)
				return vecs{plus(in, 0, dy)}
			}})
		e.loop(loop{name: "softmaxLossGrad" + suffix, outs: []string{"d"}, ins: append(sums("d"), "e"), scalars: []string{"inv", "s"}, unroll: 4,
			body: func(in, s vecs) vecs {
				v := rest(in, 1)[0]
				VMULPS(s[0], v, v)
				VMULPS(s[1], v, v) // (e·inv)·s
				return vecs{plus(in, 0, v)}
			}})
	}

	var m reg.VecVirtual
	e.rsum("expSum", "func(x []float32, m float32) float32", "x", func() []reg.GPVirtual {
		e.hold(expMust, nil) // the fold wants low registers
		m = e.scalar("m")
		return nil
	}, func(acc reg.VecVirtual, x reg.GPVirtual, off int, t *tail) {
		v := e.load(Mem{Base: x, Disp: off}, t)
		VSUBPS(m, v, v)
		v = e.exp(v) // exp(x - m)
		switch {
		case t == nil:
			VADDPS(v, acc, acc)
		case e.wide:
			VADDPS(v, acc, t.k, acc)
		default:
			VANDPS(t.y, v, v)
			VADDPS(v, acc, acc)
		}
	})

	for _, part := range []bool{false, true} {
		name, sig := "normGradSum", "func(dy, x, w []float32, r float32) float32"
		if part {
			name, sig = "normGradSumPart", "func(dy, x, w, part []float32, r float32) float32"
		}
		var w, x, p reg.GPVirtual
		var r reg.VecVirtual
		e.rsum(name, sig, "dy", func() []reg.GPVirtual {
			x, w, r = e.ptr("x"), e.ptr("w"), e.scalar("r")
			if !part {
				return []reg.GPVirtual{x, w}
			}
			p = e.ptr("part")
			return []reg.GPVirtual{x, w, p}
		}, func(acc reg.VecVirtual, dy reg.GPVirtual, off int, t *tail) {
			g, xh := e.load(Mem{Base: dy, Disp: off}, t), e.load(Mem{Base: x, Disp: off}, t)
			VMULPS(r, xh, xh)
			if part {
				sum := e.load(Mem{Base: p, Disp: off}, t)
				VFMADD231PS(xh, g, sum) // part = FMA(dy, xh, part)
				e.store(sum, Mem{Base: p, Disp: off}, t)
			}
			v := e.load(Mem{Base: w, Disp: off}, t)
			VMULPS(v, g, g)
			VMULPS(xh, g, g) // (dy·w)·xh
			VADDPS(g, acc, acc)
		})
	}
}
