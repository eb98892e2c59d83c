package cuda_test

import (
	"fmt"
	"slices"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// starting is a framed tensor of random values, as gradients are that something was
// added to before.
func (r *rig) starting(rnd *tensortest.Rand, scale float32, dim ...int) (whole, x tensor.Tensor) {
	r.t.Helper()
	whole, x = r.framed(dim...)
	r.s.Copy(x, r.random(rnd, scale, dim...))
	return whole, x
}

// segments is a plan of whole sequences of so many rows.
func (r *rig) segments(rows ...int) backend.Plan {
	var l []backend.Seg
	at := 0
	for _, n := range rows {
		l = append(l, backend.Seg{Row: at, Rows: n})
		at += n
	}
	return r.s.Plan(l)
}

// gradForms are uses of gradients: large tiles, long rows, many rows.
func gradForms() []form {
	var l []form
	one := func(name string, kernels []string, run func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor) {
		l = append(l, form{name, kernels, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor { return run(r, r.s.(backend.Grad), rnd) }})
	}
	for _, scale := range []float32{1, tiny} {
		for _, z := range []struct {
			rows, n, k int
			kernel     string
		}{{129, 132, 65, "rowsGradLarge"}, {70, 20, 130, "rowsGradLarge"}, {131, 16, 67, "rowsGradLarge"}, {68, 260, 132, "rowsGradLarge"}, {65, 4, 96, "rowsGradLarge"}, {71, 36, 131, "rowsGradLarge"}, {69, 16, 129, "rowsGradLarge"}, {66, 4, 68, "rowsGradLarge"}, {132, 4, 66, "rowsGradLarge"}, {130, 8, 68, "rowsGradLarge"},
			{33, 130, 65, "rowsGradSmall"}, {34, 17, 66, "rowsGradSmall"}, {35, 15, 67, "rowsGradSmall"}, {36, 33, 98, "rowsGradSmall"}, {32, 16, 64, "rowsGradSmall"}, {3, 1, 7, "rowsGradSmall"}, {1, 2, 37, "rowsGradSmall"}, {2, 1, 39, "rowsGradSmall"}} {
			one(fmt.Sprintf("LinearGrad/%dx%dx%d/%g", z.rows, z.n, z.k, scale), []string{z.kernel, "expand"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
				whole, dx := r.starting(rnd, scale, z.rows, z.k)
				g.LinearGrad(dx, r.random(rnd, scale, z.rows, z.n), r.weight(rnd, tensor.F32, z.n, z.k))
				return []tensor.Tensor{whole}
			})
		}
		for _, z := range []struct {
			rows   []int
			n, k   int
			kernel string
		}{{[]int{130, 7, 16, 1}, 68, 132, "weightGradLarge"}, {[]int{17}, 132, 100, "weightGradLarge"}, {[]int{128, 3}, 100, 128, "weightGradLarge"}, {[]int{32}, 128, 68, "weightGradLarge"},
			{[]int{129, 5}, 33, 65, "weightGradSmall"}, {[]int{16, 16}, 34, 66, "weightGradSmall"}, {[]int{1}, 35, 67, "weightGradSmall"}, {[]int{48}, 36, 98, "weightGradSmall"}, {[]int{3, 20}, 5, 1, "weightGradSmall"}, {[]int{2}, 2, 37, "weightGradSmall"}, {[]int{1, 2}, 3, 39, "weightGradSmall"}} {
			one(fmt.Sprintf("WeightGrad/%v/%dx%d/%g", z.rows, z.n, z.k, scale), []string{z.kernel}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
				p := r.segments(z.rows...)
				whole, dw := r.starting(rnd, scale, z.n, z.k)
				g.WeightGrad(dw, r.random(rnd, scale, p.Rows(), z.n), r.random(rnd, 1, p.Rows(), z.k), p)
				return []tensor.Tensor{whole}
			})
		}
	}
	for _, k := range append([]int{129, 130, 131, 132}, outputRests...) { // all rests where a thread has all of its rows
		for _, rows := range []int{36, 68} {
			one(fmt.Sprintf("LinearGrad/%dx16x%d", rows, k), []string{"expand"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
				whole, dx := r.starting(rnd, 1, rows, k)
				g.LinearGrad(dx, r.random(rnd, 1, rows, 16), r.weight(rnd, tensor.F32, 16, k))
				return []tensor.Tensor{whole}
			})
		}
		one(fmt.Sprintf("WeightGrad/17/36x%d", k), []string{"weightGradSmall"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
			whole, dw := r.starting(rnd, 1, 36, k)
			g.WeightGrad(dw, r.random(rnd, 1, 17, 36), r.random(rnd, 1, 17, k), r.segments(17))
			return []tensor.Tensor{whole}
		})
	}
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q2_K, tensor.Q3_K, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K} {
		k := upTo(dt, 140)
		one(fmt.Sprintf("LinearGrad/%v", dt), []string{"expand"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
			whole, dx := r.starting(rnd, 1, 3, k)
			g.LinearGrad(dx, r.random(rnd, 1, 3, 70), r.weight(rnd, dt, 70, k))
			return []tensor.Tensor{whole}
		})
	}
	for _, z := range [][2]int{{33, 33}, {70, 36}, {5, 100}, {64, 8}} {
		one(fmt.Sprintf("Repack/%dx%d", z[0], z[1]), []string{"repack"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
			w := r.weight(rnd, tensor.F32, z[0], z[1])
			g.Repack(w, r.random(rnd, 1, z[0], z[1]))
			ids := make([]int32, z[0])
			for i := range ids {
				ids[i] = int32(i)
			}
			y, x := r.f32(nil, z[0], z[1]), r.f32(nil, 2, z[0])
			r.s.Embed(y, w, r.ints(ids, z[0]))
			r.s.Linear(x, r.random(rnd, 1, 2, z[1]), w)
			return []tensor.Tensor{y, x}
		})
	}
	return slices.Concat(l, gradRowForms(), gradSequenceForms())
}

func gradRowForms() []form {
	var l []form
	one := func(name string, kernels []string, run func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor) {
		l = append(l, form{name, kernels, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor { return run(r, r.s.(backend.Grad), rnd) }})
	}
	const long = 33*1024 + 40 // more blocks than a CTA has warps
	one("norms/long", []string{"rmsNormGrad", "layerNormGrad", "softmaxGrad", "l2NormGrad"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
		a, dx := r.starting(rnd, 1, 1, long)
		b, dp := r.starting(rnd, 1, 1, long)
		dw := r.random(rnd, 1, long)
		x, dy := r.random(rnd, 1, 1, long), r.random(rnd, 1, 1, long)
		g.RMSNormGrad(dx, dw, dy, x, r.random(rnd, 1, long), 1e-6, r.segments(1))
		g.SoftmaxGrad(dp, dy, x)
		g.L2NormGrad(dp.Heads(1, long), dy.Heads(1, long), x.Heads(1, long), 1e-6, 0.5)
		g.LayerNormGrad(dp, dw, tensor.Tensor{}, dy, x, r.random(rnd, 1, long), 1e-5, r.segments(1))
		return []tensor.Tensor{a, b, dw}
	})
	one("losses/long", []string{"crossEntropy", "distillKL", "squaredError", "cosineError"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
		const n = 128*1024 + 300 // more blocks of a DOT than a CTA has threads
		loss := r.f32(nil, 4, 2)
		var all []tensor.Tensor
		x, y := r.random(rnd, 3, 1, n), r.random(rnd, 3, 1, n)
		for i := range 4 {
			whole, dx := r.starting(rnd, 1, 1, n)
			at := loss.Rows(i, i+1).Cols(0, 1).Reshape(1)
			w := r.random(rnd, 1, 1)
			switch i {
			case 0:
				g.CrossEntropy(at, dx, x, r.ints([]int32{77777}, 1), w, 0.3)
			case 1:
				g.DistillKL(at, dx, x, y, w, 1.7, 0.3)
			case 2:
				g.SquaredError(at, dx, x, y, w, 0.3)
			case 3:
				g.CosineError(at, dx, x, y, w, 0.3)
			}
			all = append(all, whole)
		}
		return append(all, loss)
	})
	one("losses/tiny", []string{"cosineError", "squaredError"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
		loss := r.f32(nil, 3)
		var all []tensor.Tensor
		for i, scale := range []float32{1e-7, 1e-21, tiny} { // about the least product of norms, and below
			n := 133 + i
			x, y := r.random(rnd, scale, 3, n), r.random(rnd, scale, 3, n)
			whole, dx := r.starting(rnd, scale, 3, n)
			g.CosineError(loss, dx, x, y, r.random(rnd, 1, 3), 0.3)
			g.SquaredError(loss, dx, x, y, tensor.Tensor{}, 0.3)
			all = append(all, whole)
		}
		return append(all, loss)
	})
	one("losses/many", []string{"crossEntropy", "distillKL"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
		const rows = 400 // each has a logarithm
		loss, more := r.f32(nil, rows), r.f32(nil, rows)
		whole, dx := r.starting(rnd, 1, rows, 2)
		x, y := r.random(rnd, 1, rows, 2), r.random(rnd, 1, rows, 2)
		g.CrossEntropy(loss, dx, x, r.ints(rnd.I32(rows, 2), rows), tensor.Tensor{}, 0.3)
		g.DistillKL(more, dx, x, y, r.random(rnd, 1, rows), 0.9, 0.3)
		return []tensor.Tensor{whole, loss, more}
	})
	one("losses/large", []string{"crossEntropy", "distillKL"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
		loss := r.f32(nil, 5)
		whole, dx := r.starting(rnd, 1, 5, 3)
		x, y := r.random(rnd, 40, 5, 3), r.random(rnd, 40, 5, 3)
		g.CrossEntropy(loss, dx, x, r.ints([]int32{0, 1, 2, -1, 0}, 5), r.random(rnd, 1, 5), 0.3)
		more := r.f32(nil, 5)
		g.DistillKL(more, dx, x, y, tensor.Tensor{}, 0.9, 0.3)
		return []tensor.Tensor{whole, loss, more}
	})
	for _, n := range []int{5, 1023, 1025, 4*1024 + 1, 7*1024 - 5, 33*1024 + 40, 65*1024 - 3} {
		one(fmt.Sprintf("SumSquares/%d", n), []string{"squareBlocks", "addBlocks"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
			y := r.f32(nil, 1)
			g.SumSquares(y, r.random(rnd, 1, n))
			return []tensor.Tensor{y}
		})
	}
	one("AdamW", []string{"adamW"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
		const n = 700
		_, w := r.starting(rnd, 1, n)
		m, v, d := r.random(rnd, 1, n), r.f32(nil, n), r.random(rnd, 1, n)
		for range 2 {
			g.AdamW(w, m, v, d, backend.AdamWStep{Beta1: 0.9, Rest1: 0.1, Beta2: 0.99, Rest2: 0.01, Scale2: 7, Rate: 0.01, Decay: 0.99, Eps: 1e-3, Clip: 0.7})
		}
		z := r.random(rnd, 1, 3, 40)
		g.Zero(z.Rows(1, 2))
		return []tensor.Tensor{w, m, v, z}
	})
	one("scatter", []string{"scatterRows"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
		const rows, cols = 140, 300
		ids := rnd.I32(rows, 9)
		back := make([]int32, rows)
		for i := range ids {
			back[i] = ids[i]
			if i%7 == 3 {
				ids[i] = -1
			}
		}
		a, table := r.starting(rnd, 1, 10, cols)
		b, dx := r.starting(rnd, 1, 10, cols)
		dy := r.random(rnd, 1, rows, cols)
		g.EmbedGrad(table, dy, r.ints(ids, rows))
		g.GatherGrad(dx, dy, r.ints(back, rows))
		return []tensor.Tensor{a, b}
	})
	for _, z := range []struct {
		name       string
		scale, eps float32
		k, heads   int
	}{{"", 1, 1e-6, 125, 2}, {"/tiny", 1e-21, 1e-43, 125, 3}, {"/large", 40, 1e-6, 300, 3}} {
		one("gradients of rows"+z.name, []string{"rmsNormParts", "layerNormParts", "normRoPEParts", "gatedParts", "biasParts", "swiGLUGrad", "convParts"}, func(r *rig, g backend.Grad, rnd *tensortest.Rand) []tensor.Tensor {
			var all []tensor.Tensor
			rows, k := 146, z.k // blocks of 128, 7, 5 and 6 rows
			cut := []int{135, 140}
			if z.scale > 1 {
				rows, cut = 4, []int{1, 2}
			}
			in := func(scale float32, dim ...int) tensor.Tensor { return r.random(rnd, scale, dim...) }
			out := func(dim ...int) tensor.Tensor {
				whole, x := r.starting(rnd, 1, dim...)
				all = append(all, whole)
				return x
			}
			vec := func(n int) tensor.Tensor { x := in(1, n); all = append(all, x); return x }
			rope, err := backend.NewRoPE(100, k/4*2, backend.Scaling{}, nil)
			r.must(err)
			history := func() tensor.Tensor { return in(z.scale, 2, 3, k) }
			p := r.s.Plan([]backend.Seg{{Rows: cut[0], Pos: 5, ConvIn: history(), ConvOut: history()}, {Row: cut[0], Rows: cut[1] - cut[0], Pos: 70, ConvIn: history(), ConvOut: history()},
				{Row: cut[1], Rows: rows - cut[1], Pos: 9, ConvIn: history(), ConvOut: history()}})
			x, dy, w := in(z.scale, rows, k), in(1, rows, k), in(1, k)
			d := k / z.heads
			heads := func(t tensor.Tensor) tensor.Tensor { return t.Cols(0, z.heads*d).Heads(z.heads, d) }
			g.RMSNormGrad(out(rows, k), vec(k), dy, x, w, z.eps, p)
			g.LayerNormGrad(out(rows, k), vec(k), vec(k), dy, x, w, z.eps, p)
			g.BiasGrad(vec(k), dy, p)
			part := in(1, d)
			g.NormRoPEGrad(heads(out(rows, k)), vec(d), heads(dy), heads(x), part, z.eps, ropeOf(r, d), p)
			g.NormRoPEGrad(out(rows, k).Heads(1, k), vec(k), dy.Heads(1, k), x.Heads(1, k), w, z.eps, rope, p)
			g.GatedRMSNormGrad(heads(out(rows, k)), heads(out(rows, k)), vec(d), heads(dy), heads(x), heads(in(z.scale, rows, k)), part, z.eps, p)
			g.SwiGLUGrad(out(rows, k), out(rows, k), dy, x, in(1, rows, k))
			g.SigmoidMulGrad(out(rows, k), out(rows, k), dy, in(1, rows, k), x)
			taps := out(4, k)
			g.ConvGrad(out(rows, k), taps, dy, x, in(1, 4, k), p, 1)
			n := min(k, 70)
			few := func(t tensor.Tensor) tensor.Tensor { return t.Cols(0, n) }
			ds := in(1, rows, k)
			g.DeltaGatesGrad(few(out(rows, k)), few(out(rows, k)), vec(n), vec(n), few(dy), few(ds), few(in(1, rows, k)), few(in(1, rows, k)), few(x), in(1, n), in(1, n), p)
			return all
		})
	}
	return l
}

// gradSequenceForms have operands of their own, so that rows beyond a sequence are
// not there.
func gradSequenceForms() []form {
	var l []form
	// Windows of all remainders by 4, as a thread has 4 x 4 pairs.
	for _, z := range []struct {
		rows               []int
		hq, hkv, d, window int
		scale              float32
	}{{[]int{65}, 2, 1, 40, 0, 0.3}, {[]int{3, 70}, 1, 1, 36, 0, 0.3}, {[]int{130}, 2, 2, 33, 20, 0.3}, {[]int{127}, 1, 1, 68, 0, 0.3}, {[]int{62}, 1, 1, 130, 0, 0.3}, {[]int{140}, 3, 1, 4, 66, 0.3},
		{[]int{71}, 4, 2, 7, 21, 0.3}, {[]int{2, 66}, 2, 1, 5, 35, 0.3}, {[]int{68}, 2, 1, 9, 0, 12}} {
		l = append(l, form{fmt.Sprintf("AttentionGrad/%v/%d:%d/%d/%d/%g", z.rows, z.hq, z.hkv, z.d, z.window, z.scale), []string{"attnStats", "attnGradQ", "attnGradKV"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			in := func(rows, heads int) tensor.Tensor { return r.random(rnd, 1, rows, heads, z.d) }
			p := r.segments(z.rows...)
			n := p.Rows()
			return r.attentionGrad(rnd, 1, in(n, z.hq), in(n, z.hq), in(n, z.hq), in(n, z.hkv), in(n, z.hkv), p, z.scale, z.window)
		}})
	}
	// Operands so small that chains which do not begin with zero are seen, and weights
	// of pairs that do not meet which are not zero: the first rows have large slopes.
	for _, z := range []struct {
		name                    string
		q, k, v, y, first, last float32 // how large; first and last are of dy
		scale, start            float32
	}{{"tiny slopes", 1, 1, 1, 1, 1e-38, 1e-38, 0.3, 1e-38}, {"tiny keys", 1e-3, 1e-36, 1e-38, 1e-38, 1e36, 1, 1e38, 1e-38}, {"tiny queries", 1e-36, 1e-3, 1e-2, 1e-2, 1e-38, 1e-38, 1e38, 1e-38}} {
		l = append(l, form{"AttentionGrad/" + z.name, []string{"attnStats", "attnGradQ", "attnGradKV"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			const rows, d = 66, 9
			in := func(scale float32) tensor.Tensor { return r.random(rnd, scale, rows, 1, d) }
			dy := in(z.last)
			r.s.Copy(dy.Rows(0, rows/2), r.random(rnd, z.first, rows/2, 1, d))
			return r.attentionGrad(rnd, z.start, dy, in(z.y), in(z.q), in(z.k), in(z.v), r.segments(rows), z.scale, 0)
		}})
	}
	for _, z := range []struct {
		rows           []int
		hk, hv, dk, dv int
		kernels        []string
	}{{[]int{7, 18}, 1, 2, 33, 35, []string{"deltaForward", "deltaGrad", "addHeads"}}, {[]int{3}, 1, 1, 400, 5, []string{"deltaForwardWide", "deltaGrad"}},
		{[]int{6}, 1, 2, 398, 70, []string{"deltaForwardWide", "deltaGradWide"}}, {[]int{5, 1}, 2, 2, 64, 66, []string{"deltaGrad"}}, {[]int{4}, 1, 1, 131, 129, []string{"deltaForward", "deltaGradWide"}},
		// More than 4 or 8 terms after the first 128, all remainders.
		{[]int{3}, 1, 1, 133, 45, []string{"deltaForward", "deltaGrad"}}, {[]int{3}, 1, 1, 134, 46, []string{"deltaForward", "deltaGrad"}}, {[]int{2, 1}, 1, 1, 143, 47, []string{"deltaForward", "deltaGrad"}},
		{[]int{2}, 1, 1, 10, 42, []string{"deltaGrad"}}, {[]int{2}, 1, 1, 12, 44, []string{"deltaGrad"}}, {[]int{2}, 1, 1, 17, 41, []string{"deltaGrad"}},
		{[]int{2}, 1, 1, 19, 5, []string{"deltaGrad"}}, {[]int{2}, 1, 1, 21, 6, []string{"deltaGrad"}}, {[]int{2}, 1, 1, 22, 7, []string{"deltaGrad"}},
		{[]int{2}, 1, 1, 145, 130, []string{"deltaGradWide"}}, {[]int{2}, 1, 1, 146, 131, []string{"deltaGradWide"}}, {[]int{2}, 1, 1, 147, 133, []string{"deltaGradWide"}},
		{[]int{2}, 1, 1, 1030, 3, []string{"deltaGrad"}}, {[]int{2}, 1, 1, 1030, 17, []string{"deltaGradWide"}}, // more than a block of RSUM
		{[]int{3}, 1, 1, 389, 3, []string{"deltaForwardWide"}}, {[]int{3}, 1, 1, 391, 2, []string{"deltaForwardWide"}},
		{[]int{2}, 1, 1, 66, 303, []string{"deltaGradWide"}}, {[]int{3}, 1, 1, 303, 71, []string{"deltaGradWide"}}, {[]int{2}, 1, 1, 325, 85, []string{"deltaGradWide"}}, {[]int{2}, 1, 1, 404, 75, []string{"deltaForwardWide", "deltaGradWide"}}} {
		l = append(l, form{fmt.Sprintf("GatedDeltaGrad/%v/%d:%d/%dx%d", z.rows, z.hk, z.hv, z.dk, z.dv), z.kernels, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			var segs []backend.Seg
			n := 0
			for _, rows := range z.rows {
				state := func() tensor.Tensor { return r.random(rnd, 0.3, 2, z.hv, z.dk, z.dv) }
				segs = append(segs, backend.Seg{Row: n, Rows: rows, DeltaIn: state(), DeltaOut: state()})
				n += rows
			}
			p := r.s.Plan(segs)
			key, value := func() tensor.Tensor { return r.random(rnd, 0.1, n, z.hk, z.dk) }, func() tensor.Tensor { return r.random(rnd, 1, n, z.hv, z.dv) }
			gate := func() tensor.Tensor { return r.random(rnd, 0.5, n, z.hv) }
			var all []tensor.Tensor
			out := func(dim ...int) tensor.Tensor {
				whole, x := r.starting(rnd, 1, dim...)
				all = append(all, whole)
				return x
			}
			r.s.(backend.Grad).GatedDeltaGrad(out(n, z.hk, z.dk), out(n, z.hk, z.dk), out(n, z.hv, z.dv), out(n, z.hv), out(n, z.hv), value(), key(), key(), value(), gate(), gate(), p, 1)
			return all
		}})
	}
	return l
}

// ropeOf turns a part of heads of width d.
func ropeOf(r *rig, d int) *backend.RoPE {
	rope, err := backend.NewRoPE(100, d/4*2, backend.Scaling{}, nil)
	r.must(err)
	return rope
}

// attentionGrad adds to gradients that begin with values of the size of start.
func (r *rig) attentionGrad(rnd *tensortest.Rand, start float32, dy, y, q, k, v tensor.Tensor, p backend.Plan, scale float32, window int) []tensor.Tensor {
	r.t.Helper()
	var whole [3]tensor.Tensor
	var d [3]tensor.Tensor
	for i, x := range [3]tensor.Tensor{q, k, v} {
		whole[i], d[i] = r.starting(rnd, start, x.Dim(0), x.Dim(1), x.Dim(2))
	}
	r.s.(backend.Grad).AttentionGrad(d[0], d[1], d[2], dy, y, q, k, v, p, scale, window)
	return whole[:]
}
