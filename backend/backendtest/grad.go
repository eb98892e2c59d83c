package backendtest

import (
	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// GradCases is the table of the ops of backend.Grad, for RunCases on a device whose
// streams have them.
func GradCases() []Case {
	l := gradProductCases()
	l = append(l, gradRowCases()...)
	l = append(l, gradAttentionCases()...)
	return append(l, gradDeltaCases()...)
}

// segs are segments of so many rows each.
func segsOf(rows ...int) []backend.Seg {
	var l []backend.Seg
	at := 0
	for _, n := range rows {
		l = append(l, backend.Seg{Row: at, Rows: n})
		at += n
	}
	return l
}

// cutRows cuts n rows into segments of odd sizes.
func cutRows(n int) []int {
	var l []int
	for size := 1; n > 0; size = 3*size + 2 {
		l = append(l, min(size, n))
		n -= min(size, n)
	}
	return l
}

func (e *Env) grad() backend.Grad { return e.S.(backend.Grad) }

func gradProductCases() []Case {
	var l []Case
	for _, z := range append(sizes, size{300, 33, 65, "segments beyond blocks of rows"}, size{129, 70, 31, "one row above a block"}) {
		shape := name("%dx%dx%d", z.r, z.n, z.k)
		kinds := []tensortest.Kind{tensortest.Ordinary}
		if z.r == 7 {
			kinds = tensortest.Kinds()
		}
		for _, k := range kinds {
			l = append(l,
				Case{"LinearGrad", shape + "/" + string(k), z.why, func(e *Env, r *tensortest.Rand) {
					w := e.Pack(r, k, tensor.F32, z.n, z.k)
					e.grad().LinearGrad(e.InOut("dx", r.F32(k, z.r*z.k), z.r, z.k), e.In(r.F32(k, z.r*z.n), z.r, z.n), w)
				}},
				Case{"ProjectGrad", shape + "/" + string(k), z.why, func(e *Env, r *tensortest.Rand) {
					w := e.In(r.F32(k, z.n*z.k), z.n, z.k)
					e.grad().ProjectGrad(e.InOut("dx", r.F32(k, z.r*z.k), z.r, z.k), e.In(r.F32(k, z.r*z.n), z.r, z.n), w)
				}},
				Case{"WeightGrad", shape + "/" + string(k), z.why, func(e *Env, r *tensortest.Rand) {
					p := e.S.Plan(segsOf(cutRows(z.r)...))
					e.grad().WeightGrad(e.InOut("dw", r.F32(k, z.n*z.k), z.n, z.k), e.In(r.F32(k, z.r*z.n), z.r, z.n), e.In(r.F32(k, z.r*z.k), z.r, z.k), p)
				}},
				Case{"BiasGrad", shape + "/" + string(k), z.why, func(e *Env, r *tensortest.Rand) {
					p := e.S.Plan(segsOf(cutRows(z.r)...))
					e.grad().BiasGrad(e.InOut("db", r.F32(k, z.n), z.n), e.In(r.F32(k, z.r*z.n), z.r, z.n), p)
				}},
				Case{"EmbedGrad", shape + "/" + string(k), z.why, func(e *Env, r *tensortest.Rand) {
					ids := r.I32(z.r, z.n)
					for i := range ids {
						if i%5 == 3 {
							ids[i] = -1
						}
					}
					e.grad().EmbedGrad(e.InOut("dtable", r.F32(k, z.n*z.k), z.n, z.k), e.In(r.F32(k, z.r*z.k), z.r, z.k), e.Ints(ids, z.r))
				}},
				Case{"GatherGrad", shape + "/" + string(k), z.why, func(e *Env, r *tensortest.Rand) {
					e.grad().GatherGrad(e.InOut("dx", r.F32(k, z.n*z.k), z.n, z.k), e.In(r.F32(k, z.r*z.k), z.r, z.k), e.Ints(r.I32(z.r, z.n), z.r))
				}})
		}
	}
	for _, dt := range Dtypes() {
		k := 2 * max(dt.BlockValues(), 16)
		l = append(l, Case{"LinearGrad", name("%v", dt), "frozen weights of every type", func(e *Env, r *tensortest.Rand) {
			w := e.Pack(r, tensortest.Ordinary, dt, 43, k)
			e.grad().LinearGrad(e.InOut("dx", r.F32(tensortest.Ordinary, 9*k), 9, k), e.In(r.F32(tensortest.Ordinary, 9*43), 9, 43), w)
		}})
	}
	for _, whole := range []bool{true, false} {
		l = append(l, Case{"Repack", name("bf16=%v", whole), "a weight whose first values are bf16 gets others, or none are", func(e *Env, r *tensortest.Rand) {
			v := r.F32(tensortest.Ordinary, 45*70)
			for i := range v {
				if whole {
					v[i] = float32(int(v[i]))
				}
			}
			w := e.PackBytes(bytesOf(v), tensor.F32, 45, 70)
			x := e.In(r.F32(tensortest.Ordinary, 5*70), 5, 70)
			e.S.Linear(e.Out("before", 5, 45), x, w)
			e.grad().Repack(w, e.Flat(r.F32(tensortest.Wide, 45*70), 45, 70))
			e.S.Linear(e.Out("after", 5, 45), x, w)
			e.S.Embed(e.Out("row", 1, 70), w, e.Ints([]int32{44}, 1))
		}})
	}
	return l
}

func gradRowCases() []Case {
	var l []Case
	for _, z := range []struct {
		r, c int
		why  string
	}{
		{1, 1, "the smallest"}, {3, 31, "below the lanes of a reduction"}, {2, 33, "above them"}, {150, 20, "more rows than a block"}, {4, 1025, "above a block of a reduction"}, {40, 300, "several chunks"},
	} {
		for _, k := range tensortest.Kinds() {
			if k != tensortest.Ordinary && z.r != 3 && z.r != 2 {
				continue
			}
			shape, n := name("%dx%d/%s", z.r, z.c, k), z.r*z.c
			in := func(e *Env, r *tensortest.Rand) tensor.Tensor { return e.In(r.F32(k, n), z.r, z.c) }
			out := func(e *Env, r *tensortest.Rand, what string) tensor.Tensor {
				return e.InOut(what, r.F32(k, n), z.r, z.c)
			}
			add := func(op string, f func(e *Env, g backend.Grad, r *tensortest.Rand)) {
				l = append(l, Case{op, shape, z.why, func(e *Env, r *tensortest.Rand) { f(e, e.grad(), r) }})
			}
			add("Zero", func(e *Env, g backend.Grad, r *tensortest.Rand) { g.Zero(e.State("dst", r.F32(k, n), z.r, z.c)) })
			add("Accumulate", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				g.Accumulate(out(e, r, "dst"), in(e, r))
				g.Accumulate(e.InOut("heads", r.F32(k, n), z.r, 1, z.c), e.In(r.F32(k, n), z.r, 1, z.c))
			})
			add("RMSNormGrad", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				p := e.S.Plan(segsOf(cutRows(z.r)...))
				dy, x, w := in(e, r), in(e, r), e.In(r.F32(k, z.c), z.c)
				g.RMSNormGrad(out(e, r, "dx"), e.InOut("dw", r.F32(k, z.c), z.c), dy, x, w, 1e-6, p)
				g.RMSNormGrad(out(e, r, "dx alone"), tensor.Tensor{}, dy, x, w, 1e-6, nil)
			})
			add("LayerNormGrad", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				p := e.S.Plan(segsOf(cutRows(z.r)...))
				dy, x, w, none := in(e, r), in(e, r), e.In(r.F32(k, z.c), z.c), tensor.Tensor{}
				vec := func(what string) tensor.Tensor { return e.InOut(what, r.F32(k, z.c), z.c) }
				g.LayerNormGrad(out(e, r, "dx"), vec("dw"), vec("db"), dy, x, w, 1e-5, p)
				g.LayerNormGrad(out(e, r, "dx beside dw"), vec("dw alone"), none, dy, x, w, 1e-5, p)
				g.LayerNormGrad(out(e, r, "dx beside db"), none, vec("db alone"), dy, x, w, 1e-5, p)
				g.LayerNormGrad(out(e, r, "dx alone"), none, none, dy, x, w, 1e-5, nil)
			})
			add("SwiGLUGrad", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				g.SwiGLUGrad(out(e, r, "dgate"), out(e, r, "dup"), in(e, r), in(e, r), in(e, r))
			})
			add("SigmoidMulGrad", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				g.SigmoidMulGrad(out(e, r, "dx"), out(e, r, "dgate"), in(e, r), in(e, r), in(e, r))
				both := e.In(r.F32(k, 2*n), z.r, 2*z.c).Heads(1, 2*z.c)
				db := e.InOut("side by side", r.F32(k, 2*n), z.r, 2*z.c).Heads(1, 2*z.c)
				g.SigmoidMulGrad(db.Cols(0, z.c), db.Cols(z.c, 2*z.c), e.In(r.F32(k, n), z.r, 1, z.c), both.Cols(0, z.c), both.Cols(z.c, 2*z.c))
			})
			add("SoftmaxGrad", func(e *Env, g backend.Grad, r *tensortest.Rand) { g.SoftmaxGrad(out(e, r, "dx"), in(e, r), in(e, r)) })
			add("CrossEntropy", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				ids := r.I32(z.r, z.c)
				ids[z.r/2] = -1
				x, t := in(e, r), e.Ints(ids, z.r)
				g.CrossEntropy(e.Out("loss", z.r), out(e, r, "dx"), x, t, e.In(r.F32(tensortest.Ordinary, z.r), z.r), 0.25)
				g.CrossEntropy(e.Out("unweighted", z.r), out(e, r, "dx unweighted"), x, t, tensor.Tensor{}, 0.25)
				g.CrossEntropy(e.Out("loss alone", z.r), tensor.Tensor{}, x, t, tensor.Tensor{}, 0.25)
			})
			add("DistillKL", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				g.DistillKL(e.Out("loss", z.r), out(e, r, "dx"), in(e, r), in(e, r), e.In(r.F32(tensortest.Ordinary, z.r), z.r), 1.5, 0.25)
			})
			add("SquaredError", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				g.SquaredError(e.Out("loss", z.r), out(e, r, "dx"), in(e, r), in(e, r), e.In(r.F32(tensortest.Ordinary, z.r), z.r), 0.25)
			})
			add("CosineError", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				x := in(e, r)
				g.CosineError(e.Out("loss", z.r), out(e, r, "dx"), x, in(e, r), e.In(r.F32(tensortest.Ordinary, z.r), z.r), 0.25)
				g.CosineError(e.Out("of zeros", z.r), out(e, r, "dx of zeros"), e.In(make([]float32, n), z.r, z.c), x, tensor.Tensor{}, 0.25)
			})
			add("SumSquares", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				g.SumSquares(e.Out("sum", 1), e.Flat(r.F32(k, n), z.r, z.c))
			})
			add("AdamW", func(e *Env, g backend.Grad, r *tensortest.Rand) {
				v := r.F32(k, n)
				for i := range v {
					v[i] *= v[i]
				}
				g.AdamW(e.State("w", r.F32(k, n), z.r, z.c), e.State("m", r.F32(k, n), z.r, z.c), e.State("v", v, z.r, z.c), e.Flat(r.F32(k, n), z.r, z.c),
					backend.AdamWStep{Beta1: 0.9, Rest1: 0.1, Beta2: 0.999, Rest2: 0.001, Scale2: 20, Rate: 0.01, Decay: 0.9999, Eps: 1e-8, Clip: 0.7})
			})
		}
	}
	return l
}

func gradAttentionCases() []Case {
	var l []Case
	for _, z := range []struct {
		rows           []int
		hq, hkv, d     int
		window, rotary int
		why            string
	}{
		{[]int{1}, 1, 1, 8, 0, 8, "one row sees itself"},
		{[]int{5}, 2, 1, 20, 0, 6, "part of a block, partial rotary"},
		{[]int{64}, 4, 2, 32, 0, 32, "a whole block"},
		{[]int{65, 3}, 3, 1, 33, 0, 32, "one row beyond, odd width"},
		{[]int{150}, 2, 2, 64, 0, 64, "three blocks"},
		{[]int{7, 140, 1}, 4, 1, 160, 0, 0, "scores of two blocks of a DOT, no rotation"},
		{[]int{130}, 2, 1, 16, 1, 16, "a window of one"},
		{[]int{200}, 2, 1, 16, 70, 16, "a window that skips blocks"},
		{[]int{140}, 1, 1, 12, 64, 8, "a window of a block"},
	} {
		for _, k := range tensortest.Kinds() {
			if k != tensortest.Ordinary && len(z.rows) != 2 {
				continue
			}
			n := 0
			for _, r := range z.rows {
				n += r
			}
			shape := name("%v/heads=%d:%d/d=%d/window=%d/%s", z.rows, z.hq, z.hkv, z.d, z.window, k)
			l = append(l, Case{"AttentionGrad", shape, z.why, func(e *Env, r *tensortest.Rand) {
				q := func(what string) tensor.Tensor { return e.InOut(what, r.F32(k, n*z.hq*z.d), n, z.hq, z.d) }
				kv := func(what string) tensor.Tensor { return e.InOut(what, r.F32(k, n*z.hkv*z.d), n, z.hkv, z.d) }
				in := func(h int) tensor.Tensor { return e.In(r.F32(k, n*h*z.d), n, h, z.d) }
				e.grad().AttentionGrad(q("dq"), kv("dk"), kv("dv"), in(z.hq), in(z.hq), in(z.hq), in(z.hkv), in(z.hkv), e.S.Plan(segsOf(z.rows...)), 0.25, z.window)
			}}, Case{"NormRoPEGrad", shape, z.why, func(e *Env, r *tensortest.Rand) {
				var rope *backend.RoPE
				if z.rotary > 0 {
					var err error
					rope, err = backend.NewRoPE(1e4, z.rotary, backend.Scaling{}, nil)
					e.must(err)
				}
				segs := segsOf(z.rows...)
				for i := range segs {
					segs[i].Pos = 100 * i
				}
				p := e.S.Plan(segs)
				in := func() tensor.Tensor { return e.In(r.F32(k, n*z.hq*z.d), n, z.hq, z.d) }
				dx := func(what string) tensor.Tensor { return e.InOut(what, r.F32(k, n*z.hq*z.d), n, z.hq, z.d) }
				w := e.In(r.F32(k, z.d), z.d)
				e.grad().NormRoPEGrad(dx("dx"), e.InOut("dw", r.F32(k, z.d), z.d), in(), in(), w, 1e-6, rope, p)
				e.grad().NormRoPEGrad(dx("frozen"), tensor.Tensor{}, in(), in(), w, 1e-6, rope, p)
				e.grad().NormRoPEGrad(dx("no norm"), tensor.Tensor{}, in(), in(), tensor.Tensor{}, 1e-6, rope, p)
			}})
		}
	}
	return l
}

func gradDeltaCases() []Case {
	var l []Case
	for _, z := range append(deltas, delta{[]int{70, 33}, 2, 4, 10, 9, 1, "several kept states"}, delta{[]int{40}, 1, 1, 6, 131, 1, "values of two blocks"}, delta{[]int{37}, 1, 2, 103, 70, 1, "strips of both widths and columns left over"}) {
		kinds := []tensortest.Kind{tensortest.Ordinary}
		if z.dk == 12 {
			kinds = tensortest.Kinds()
		}
		for _, k := range kinds {
			l = append(l, Case{"GatedDeltaGrad", name("%v/heads=%d:%d/%dx%d/%s", z.rows, z.hk, z.hv, z.dk, z.dv, k), z.why, func(e *Env, r *tensortest.Rand) { z.grad(e, r, k) }})
		}
	}
	for _, z := range []struct {
		rows []int
		c, w int
		why  string
	}{
		{[]int{1}, 1, 4, "the smallest"}, {[]int{2}, 33, 4, "fewer rows than history"}, {[]int{200, 3}, 70, 4, "more rows than a block"}, {[]int{1, 5, 2, 1}, 35, 4, "ragged"}, {[]int{6}, 19, 3, "three taps"}, {[]int{4, 1}, 9, 1, "no history"},
	} {
		for _, k := range tensortest.Kinds() {
			if k != tensortest.Ordinary && z.c != 35 {
				continue
			}
			l = append(l, Case{"ConvGrad", name("%v/c=%d/taps=%d/%s", z.rows, z.c, z.w, k), z.why, func(e *Env, r *tensortest.Rand) {
				segs, n := segsOf(z.rows...), 0
				for i := range segs {
					m := 2 * (z.w - 1) * z.c
					segs[i].ConvIn, segs[i].ConvOut = e.Flat(r.F32(k, m), 2, z.w-1, z.c), e.Flat(r.F32(k, m), 2, z.w-1, z.c)
					n += segs[i].Rows
				}
				p := e.S.Plan(segs)
				in := func() tensor.Tensor { return e.In(r.F32(k, n*z.c), n, z.c) }
				w := e.Flat(r.F32(k, z.w*z.c), z.w, z.c)
				e.grad().ConvGrad(e.InOut("dx", r.F32(k, n*z.c), n, z.c), e.State("dw", r.F32(k, z.w*z.c), z.w, z.c), in(), in(), w, p, 1)
				e.grad().ConvGrad(e.InOut("frozen", r.F32(k, n*z.c), n, z.c), tensor.Tensor{}, in(), in(), w, p, 1)
			}})
		}
	}
	for _, z := range append(headSizes, struct {
		r, h, d int
		why     string
	}{200, 2, 9, "more rows than a block"}) {
		for _, k := range tensortest.Kinds() {
			n, m := z.r*z.h*z.d, z.r*z.d
			l = append(l, Case{"L2NormGrad", name("%dx%dx%d/%s", z.r, z.h, z.d, k), z.why, func(e *Env, r *tensortest.Rand) {
				in := func() tensor.Tensor { return e.In(r.F32(k, n), z.r, z.h, z.d) }
				e.grad().L2NormGrad(e.InOut("dx", r.F32(k, n), z.r, z.h, z.d), in(), in(), 1e-6, 1)
				e.grad().L2NormGrad(e.InOut("scaled", r.F32(k, n), z.r, z.h, z.d), in(), in(), 1e-6, 0.3)
			}}, Case{"GatedRMSNormGrad", name("%dx%dx%d/%s", z.r, z.h, z.d, k), z.why, func(e *Env, r *tensortest.Rand) {
				p := e.S.Plan(segsOf(cutRows(z.r)...))
				in := func() tensor.Tensor { return e.In(r.F32(k, n), z.r, z.h, z.d) }
				out := func(what string) tensor.Tensor { return e.InOut(what, r.F32(k, n), z.r, z.h, z.d) }
				w := e.In(r.F32(k, z.d), z.d)
				e.grad().GatedRMSNormGrad(out("dx"), out("dz"), e.InOut("dw", r.F32(k, z.d), z.d), in(), in(), in(), w, 1e-6, p)
				e.grad().GatedRMSNormGrad(out("frozen dx"), out("frozen dz"), tensor.Tensor{}, in(), in(), in(), w, 1e-6, p)
			}}, Case{"DeltaGatesGrad", name("%dx%d/%s", z.r, z.d, k), z.why, func(e *Env, r *tensortest.Rand) {
				p := e.S.Plan(segsOf(cutRows(z.r)...))
				in := func() tensor.Tensor { return e.In(r.F32(k, m), z.r, z.d) }
				out := func(what string) tensor.Tensor { return e.InOut(what, r.F32(k, m), z.r, z.d) }
				v := func() tensor.Tensor { return e.In(r.F32(k, z.d), z.d) }
				dv := func(what string) tensor.Tensor { return e.InOut(what, r.F32(k, z.d), z.d) }
				a, t := v(), v()
				e.grad().DeltaGatesGrad(out("da"), out("db"), dv("dAExp"), dv("dDTBias"), in(), in(), in(), in(), in(), a, t, p)
				e.grad().DeltaGatesGrad(out("frozen da"), out("frozen db"), tensor.Tensor{}, tensor.Tensor{}, in(), in(), in(), in(), in(), a, t, nil)
				e.grad().DeltaGatesGrad(out("one da"), out("one db"), tensor.Tensor{}, dv("one dDTBias"), in(), in(), in(), in(), in(), a, t, p)
			}})
		}
	}
	return l
}

func (z delta) grad(e *Env, r *tensortest.Rand, k tensortest.Kind) {
	segs, n := segsOf(z.rows...), 0
	for i := range segs {
		m := z.layers * z.hv * z.dk * z.dv
		segs[i].DeltaIn, segs[i].DeltaOut = e.Flat(r.F32(k, m), z.layers, z.hv, z.dk, z.dv), e.Flat(r.F32(k, m), z.layers, z.hv, z.dk, z.dv)
		n += segs[i].Rows
	}
	p := e.S.Plan(segs)
	key := func() tensor.Tensor {
		v := r.F32(k, n*z.hk*z.dk)
		for i := range v {
			v[i] *= 0.0625
		}
		return e.In(v, n, z.hk, z.dk)
	}
	gate := func() tensor.Tensor {
		v := r.F32(k, n*z.hv)
		for i := range v {
			v[i] = 0.5 + float32(v[i]*0.125)
		}
		return e.In(v, n, z.hv)
	}
	val := func() tensor.Tensor { return e.In(r.F32(k, n*z.hv*z.dv), n, z.hv, z.dv) }
	dkey := func(what string) tensor.Tensor { return e.InOut(what, r.F32(k, n*z.hk*z.dk), n, z.hk, z.dk) }
	dgate := func(what string) tensor.Tensor { return e.InOut(what, r.F32(k, n*z.hv), n, z.hv) }
	e.grad().GatedDeltaGrad(dkey("dq"), dkey("dk"), e.InOut("dv", r.F32(k, n*z.hv*z.dv), n, z.hv, z.dv), dgate("dg"), dgate("dbeta"),
		val(), key(), key(), val(), gate(), gate(), p, z.layers-1)
}
