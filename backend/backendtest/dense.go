package backendtest

import (
	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// size is a matrix product [r, k]·[n, k]ᵀ.
type size struct {
	r, n, k int
	why     string
}

var sizes = []size{
	{1, 1, 1, "the smallest"},
	{1, 33, 127, "one row, one output beyond a panel, K one below a block"},
	{1, 97, 129, "one row, K one above a block"},
	{1, 257, 64, "one row, several groups of panels"},
	{2, 31, 128, "one output below a panel, a whole block"},
	{5, 65, 257, "K one above two blocks"},
	{7, 37, 255, "K one below two blocks"},
	{13, 40, 385, "rows beyond one tile"},
	{31, 64, 96, "whole panels"},
	{67, 35, 33, "many rows, small K"},
	{3, 8, 1025, "K of nine blocks"},
	{0, 5, 7, "no rows"},
}

func denseCases() []Case {
	var l []Case
	for _, z := range sizes {
		shape := name("%dx%dx%d", z.r, z.n, z.k)
		l = append(l,
			Case{"Linear", shape, z.why, func(e *Env, r *tensortest.Rand) {
				w := e.Pack(r, tensortest.Ordinary, tensor.F32, z.n, z.k)
				e.S.Linear(e.Out("dst", z.r, z.n), e.In(r.F32(tensortest.Ordinary, z.r*z.k), z.r, z.k), w)
			}},
			Case{"Project", shape, z.why, func(e *Env, r *tensortest.Rand) {
				w := e.In(r.F32(tensortest.Ordinary, z.n*z.k), z.n, z.k)
				e.S.Project(e.Out("dst", z.r, z.n), e.In(r.F32(tensortest.Ordinary, z.r*z.k), z.r, z.k), w)
			}},
			Case{"LinearRows", shape, z.why, func(e *Env, r *tensortest.Rand) {
				w := e.Pack(r, tensortest.Ordinary, tensor.F32, z.n, z.k)
				ids := r.I32(min(z.n, 5), z.n)
				e.S.LinearRows(e.Out("dst", z.r, len(ids)), e.In(r.F32(tensortest.Ordinary, z.r*z.k), z.r, z.k), w, e.Ints(ids, len(ids)))
			}},
			Case{"Embed", shape, z.why, func(e *Env, r *tensortest.Rand) {
				w := e.Pack(r, tensortest.Ordinary, tensor.F32, z.n, z.k)
				e.S.Embed(e.Out("dst", z.r, z.k), w, e.Ints(r.I32(z.r, z.n), z.r))
			}},
			Case{"Gather", shape, z.why, func(e *Env, r *tensortest.Rand) {
				x := e.In(r.F32(tensortest.Ordinary, z.n*z.k), z.n, z.k)
				e.S.Gather(e.Out("dst", z.r, z.k), x, e.Ints(r.I32(z.r, z.n), z.r))
			}},
		)
	}
	for _, k := range []tensortest.Kind{tensortest.Wide, tensortest.Subnormal, tensortest.Specials, tensortest.MinusZeros} {
		for _, rows := range []int{1, 9} {
			l = append(l, Case{"Linear", name("%s/rows=%d", k, rows), "values at the edges of float32", func(e *Env, r *tensortest.Rand) {
				w := e.Pack(r, k, tensor.F32, 45, 300)
				e.S.Linear(e.Out("dst", rows, 45), e.In(r.F32(k, rows*300), rows, 300), w)
			}}, Case{"Project", name("%s/rows=%d", k, rows), "values at the edges of float32", func(e *Env, r *tensortest.Rand) {
				w := e.In(r.F32(k, 45*140), 45, 140)
				e.S.Project(e.Out("dst", rows, 45), e.In(r.F32(k, rows*140), rows, 140), w)
			}})
		}
	}
	return l
}

// productCases are products of the same rows with weights of several sizes and types.
func productCases() []Case {
	var l []Case
	for _, z := range []struct {
		r, k int
		n    []int
		dt   []tensor.DType
		why  string
	}{
		{1, 1024, []int{2048, 256, 256}, []tensor.DType{tensor.Q4_K, tensor.Q4_K, tensor.Q6_K}, "a decode step's projections, of two types"},
		{1, 320, []int{5, 97, 1, 640}, []tensor.DType{tensor.BF16, tensor.F32, tensor.F16, tensor.Q8_0}, "a share of less than a panel, and parts of panels"},
		{1, 33, []int{1}, []tensor.DType{tensor.F32}, "one product"},
		{7, 256, []int{65, 33}, []tensor.DType{tensor.Q4_0, tensor.F32}, "rows"},
		{3, 32, nil, nil, "no product"},
		{0, 32, []int{3, 4}, []tensor.DType{tensor.F32, tensor.F32}, "no rows"},
	} {
		l = append(l, Case{"Linears", name("%dx%vx%d", z.r, z.n, z.k), z.why, func(e *Env, r *tensortest.Rand) {
			var dst []tensor.Tensor
			var w []backend.Weight
			for i, n := range z.n {
				dst = append(dst, e.Out(name("dst %d", i), z.r, n))
				w = append(w, e.Pack(r, tensortest.Ordinary, z.dt[i], n, z.k))
			}
			backend.Linears(e.S, dst, e.In(r.F32(tensortest.Ordinary, z.r*z.k), z.r, z.k), w)
		}})
	}
	return l
}

// weightCases walk all storage types.
func weightCases() []Case {
	var l []Case
	for _, dt := range Dtypes() {
		bv := dt.BlockValues()
		for _, z := range []size{
			{1, 33, max(bv, 129/bv*bv), "decode"},
			{1, 130, bv, "one block per row, several panels"},
			{2, 31, 2 * bv, "two rows"},
			{11, 65, 3 * bv, "prefill, an odd number of blocks"},
		} {
			shape := name("%v/%dx%dx%d", dt, z.r, z.n, z.k)
			l = append(l,
				Case{"Linear", shape, z.why, func(e *Env, r *tensortest.Rand) {
					w := e.Pack(r, tensortest.Ordinary, dt, z.n, z.k)
					e.S.Linear(e.Out("dst", z.r, z.n), e.In(r.F32(tensortest.Ordinary, z.r*z.k), z.r, z.k), w)
				}},
				Case{"LinearRows", shape, z.why, func(e *Env, r *tensortest.Rand) {
					w := e.Pack(r, tensortest.Ordinary, dt, z.n, z.k)
					ids := []int32{int32(z.n - 1), 0, int32(z.n - 1), int32(z.n / 2)}
					e.S.LinearRows(e.Out("dst", z.r, 4), e.In(r.F32(tensortest.Ordinary, z.r*z.k), z.r, z.k), w, e.Ints(ids, 4))
				}},
				Case{"Embed", shape, z.why, func(e *Env, r *tensortest.Rand) {
					w := e.Pack(r, tensortest.Wide, dt, z.n, z.k)
					e.S.Embed(e.Out("dst", z.n, z.k), w, e.Ints(count32(z.n), z.n))
				}},
			)
		}
	}
	return l
}

func count32(n int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(i)
	}
	return v
}

// rowCases are the ops that work on rows by themselves.
func rowCases() []Case {
	var l []Case
	for _, z := range []struct {
		r, c int
		why  string
	}{
		{1, 1, "the smallest"},
		{3, 31, "below the lanes of a reduction"},
		{2, 33, "above them"},
		{5, 128, "whole vectors"},
		{1, 1023, "one below a block of a reduction"},
		{4, 1025, "one above"},
		{2, 2560, "a hidden width with two and a half blocks"},
		{300, 7, "many short rows"},
		{0, 9, "no rows"},
	} {
		for _, k := range tensortest.Kinds() {
			if k != tensortest.Ordinary && z.c != 33 && z.c != 1025 {
				continue
			}
			n := z.r * z.c
			shape := name("%dx%d/%s", z.r, z.c, k)
			op := func(op string, f func(e *Env, r *tensortest.Rand)) {
				l = append(l, Case{op, shape, z.why, f})
			}
			op("AddBias", func(e *Env, r *tensortest.Rand) {
				e.S.AddBias(e.Out("dst", z.r, z.c), e.In(r.F32(k, n), z.r, z.c), e.In(r.F32(k, z.c), z.c))
				x := e.InOut("in place", r.F32(k, n), z.r, z.c)
				e.S.AddBias(x, x, e.In(r.F32(k, z.c), z.c))
			})
			op("Add", func(e *Env, r *tensortest.Rand) {
				a, b := e.In(r.F32(k, n), z.r, z.c), e.In(r.F32(k, n), z.r, z.c)
				e.S.Add(e.Out("dst", z.r, z.c), a, b)
				x, y := e.InOut("dst is a", r.F32(k, n), z.r, z.c), e.InOut("dst is b", r.F32(k, n), z.r, z.c)
				e.S.Add(x, x, b)
				e.S.Add(y, a, y)
			})
			op("RMSNorm", func(e *Env, r *tensortest.Rand) {
				e.S.RMSNorm(e.Out("dst", z.r, z.c), e.In(r.F32(k, n), z.r, z.c), e.In(r.F32(k, z.c), z.c), 1e-6)
			})
			op("LayerNorm", func(e *Env, r *tensortest.Rand) {
				e.S.LayerNorm(e.Out("dst", z.r, z.c), e.In(r.F32(k, n), z.r, z.c), e.In(r.F32(k, z.c), z.c), e.In(r.F32(k, z.c), z.c), 1e-5)
			})
			op("SwiGLU", func(e *Env, r *tensortest.Rand) {
				g, u := r.F32(k, n), e.In(r.F32(k, n), z.r, z.c)
				for i := range g {
					g[i] *= 32 // reaches both ends of exp
				}
				e.S.SwiGLU(e.Out("dst", z.r, z.c), e.In(g, z.r, z.c), u)
				x := e.InOut("dst is gate", g, z.r, z.c)
				e.S.SwiGLU(x, x, u)
			})
			op("SigmoidMul", func(e *Env, r *tensortest.Rand) {
				x, g := r.F32(k, n), r.F32(k, n)
				for i := range g {
					g[i] *= 32
				}
				e.S.SigmoidMul(e.Out("dst", z.r, z.c), e.In(x, z.r, z.c), e.In(g, z.r, z.c))
			})
			op("Softmax", func(e *Env, r *tensortest.Rand) {
				e.S.Softmax(e.Out("dst", z.r, z.c), e.In(r.F32(k, n), z.r, z.c))
			})
			op("ArgMax", func(e *Env, r *tensortest.Rand) {
				e.S.ArgMax(e.OutInts("dst", z.r), e.In(r.F32(k, n), z.r, z.c))
			})
			op("AddGated", func(e *Env, r *tensortest.Rand) {
				e.S.AddGated(e.Out("dst", z.r, z.c), e.In(r.F32(k, n), z.r, z.c), e.In(r.F32(k, n), z.r, z.c), e.In(r.F32(k, z.r), z.r, 1))
			})
			op("SumRows", func(e *Env, r *tensortest.Rand) {
				var segs []backend.Seg
				for row := 0; row < z.r; { // one row, then twice as many as before, and so on
					g := backend.Seg{Row: row, Rows: min(row+1, z.r-row), SumIn: e.Flat(r.F32(k, z.c), z.c)}
					g.SumOut = e.State(name("sum %d", len(segs)), r.F32(k, z.c), z.c, 1).Reshape(z.c)
					segs, row = append(segs, g), row+g.Rows
				}
				e.S.SumRows(e.S.Plan(segs), e.In(r.F32(k, n), z.r, z.c))
			})
			op("Copy", func(e *Env, r *tensortest.Rand) {
				e.S.Copy(e.Out("dst", z.r, z.c), e.In(r.F32(k, n), z.r, z.c))
				e.S.Copy(e.Out("one axis", z.c), e.In(r.F32(k, z.c), z.c))
				e.S.Copy(e.OutInts("ints", z.c), e.Ints(r.I32(z.c, 1<<30), z.c))
			})
		}
	}
	for _, z := range headSizes {
		shape := name("%dx%dx%d", z.r, z.h, z.d)
		n := z.r * z.h * z.d
		l = append(l,
			Case{"SigmoidMul", shape, "query and gate lie side by side in each head", func(e *Env, r *tensortest.Rand) {
				both := e.In(r.F32(tensortest.Ordinary, 2*n), z.r, 2*z.h*z.d).Heads(z.h, 2*z.d)
				e.S.SigmoidMul(e.Out("dst", z.r, z.h, z.d), both.Cols(0, z.d), both.Cols(z.d, 2*z.d))
				x := e.In(r.F32(tensortest.Ordinary, n), z.r, z.h*z.d).Heads(z.h, z.d)
				e.S.SigmoidMul(e.Out("flat dst", z.r, z.h*z.d).Heads(z.h, z.d), x, both.Cols(z.d, 2*z.d))
			}},
			Case{"Copy", shape, "three axes with gaps", func(e *Env, r *tensortest.Rand) {
				x := e.In(r.F32(tensortest.Ordinary, n), z.r, z.h, z.d)
				e.S.Copy(e.Out("dst", z.r, z.h, z.d), x)
				e.S.Copy(e.State("dense", nil, z.r, z.h, z.d), x)
			}},
		)
	}
	return l
}
