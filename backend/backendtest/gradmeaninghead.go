package backendtest

import (
	"math"

	"samebit/backend"
	"samebit/tensor"
)

func normRoPEOp(weighted bool) gradOp {
	const r, h, d = 4, 2, 10
	rope, err := backend.NewRoPE(1e4, 6, backend.Scaling{}, nil)
	if err != nil {
		panic(err)
	}
	op := gradOp{name: "NormRoPE", in: [][]int{{r, h, d}, {d}}, out: []int{r, h, d},
		f: func(in, _ [][]float64) []float64 {
			return perRow(in[0], d, func(row int, x []float64) []float64 {
				pos := row / h
				if pos >= 3 { // the second segment
					pos -= 3
				}
				y := append([]float64(nil), x...)
				if weighted {
					y = norm64(x, 1.0/d, 1e-3)
					for i := range y {
						y[i] *= in[1][i]
					}
				}
				cos, sin := make([]float32, 3), make([]float32, 3)
				rope.Angles(cos, sin, 5+pos)
				for i := range cos {
					a, b, c, s := y[i], y[i+3], float64(cos[i]), float64(sin[i])
					y[i], y[i+3] = a*c-b*s, b*c+a*s
				}
				return y
			})
		},
		run: func(e *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, dx []tensor.Tensor) {
			p := e.S.Plan([]backend.Seg{{Rows: 3, Pos: 5}, {Row: 3, Rows: 1, Pos: 5}})
			w, dw := tensor.Tensor{}, tensor.Tensor{}
			if weighted {
				w, dw = in[1], dx[1]
			}
			g.NormRoPEGrad(dx[0], dw, dy, in[0], w, 1e-3, rope, p)
		}}
	if !weighted {
		op.name += "/no norm"
		op.in = op.in[:1]
	}
	return op
}

func attentionOp(window int) gradOp {
	const hq, hkv, d, a, b = 4, 2, 6, 5, 3
	return gradOp{name: name("Attention/window=%d", window), in: [][]int{{a + b, hq, d}, {a + b, hkv, d}, {a + b, hkv, d}}, out: []int{a + b, hq, d},
		f: func(in, _ [][]float64) []float64 {
			return perRow(in[0], d, func(n int, q []float64) []float64 {
				row, h := n/hq, n%hq/(hq/hkv)
				lo := 0
				if row >= a {
					lo = a
				}
				if window > 0 {
					lo = max(lo, row-window+1)
				}
				var s []float64
				for j := lo; j <= row; j++ {
					x := 0.0
					for i := range q {
						x += q[i] * in[1][(j*hkv+h)*d+i]
					}
					s = append(s, 0.375*x)
				}
				y := make([]float64, d)
				for j, p := range softmax64(s) {
					for i := range y {
						y[i] += p * in[2][((lo+j)*hkv+h)*d+i]
					}
				}
				return y
			})
		},
		run: func(e *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, dx []tensor.Tensor) {
			p := e.S.Plan([]backend.Seg{{Rows: a, KV: e.pages(1, hkv, d, a)}, {Row: a, Rows: b, KV: e.pages(1, hkv, d, b)}})
			e.S.PutKV(p, 0, in[1], in[2])
			y := e.Flat(make([]float32, (a+b)*hq*d), a+b, hq, d)
			e.S.Attention(y, in[0], p, 0, 0.375, window)
			g.AttentionGrad(dx[0], dx[1], dx[2], dy, y, in[0], in[1], in[2], p, 0.375, window)
		}}
}

func convOp() gradOp {
	const c, taps, a, b = 5, 4, 6, 2
	return gradOp{name: "Conv", in: [][]int{{a + b, c}, {taps, c}}, fix: [][]int{{1, taps - 1, c}}, out: []int{a + b, c},
		f: func(in, fix [][]float64) []float64 {
			return perRow(in[0], c, func(row int, _ []float64) []float64 {
				y := make([]float64, c)
				for i := range y {
					x := 0.0
					for j := range taps {
						first, t := 0, row-taps+1+j
						if row >= a {
							first = a
						}
						v := 0.0
						if t >= first {
							v = in[0][t*c+i]
						} else {
							v = fix[0][(taps-1+t-first)*c+i]
						}
						x += v * in[1][j*c+i]
					}
					y[i] = silu64(x)
				}
				return y
			})
		},
		run: func(e *Env, g backend.Grad, in, fix []tensor.Tensor, dy tensor.Tensor, dx []tensor.Tensor) {
			out := e.Flat(make([]float32, (taps-1)*c), 1, taps-1, c)
			p := e.S.Plan([]backend.Seg{{Rows: a, ConvIn: fix[0], ConvOut: out}, {Row: a, Rows: b, ConvIn: fix[0], ConvOut: out}})
			g.ConvGrad(dx[0], dx[1], dy, in[0], in[1], p, 0)
		}}
}

func l2Op(scale float32) gradOp {
	const r, h, d = 3, 2, 7
	return gradOp{name: name("L2Norm/scale=%v", scale), in: [][]int{{r, h, d}}, out: []int{r, h, d},
		f: func(in, _ [][]float64) []float64 {
			return perRow(in[0], d, func(_ int, x []float64) []float64 {
				y := norm64(x, 1, 1e-3)
				for i := range y {
					y[i] *= float64(scale)
				}
				return y
			})
		},
		run: func(_ *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, dx []tensor.Tensor) {
			g.L2NormGrad(dx[0], dy, in[0], 1e-3, scale)
		}}
}

// gatesOp lays g and beta side by side as the result.
func gatesOp() gradOp {
	const r, h = 5, 3
	return gradOp{name: "DeltaGates", in: [][]int{{r, h}, {r, h}, {h}, {h}}, out: []int{2 * r, h},
		draw: func(i int, v []float32) {
			for k := range v {
				if i == 2 { // exp(A_log)
					v[k] = float32(math.Abs(float64(v[k]))) + 0.25
				}
			}
		},
		f: func(in, _ [][]float64) []float64 {
			y := make([]float64, 2*r*h)
			for i := range r * h {
				y[i] = math.Exp(-in[2][i%h] * softplus64(in[0][i]+in[3][i%h]))
				y[r*h+i] = sigmoid64(in[1][i])
			}
			return y
		},
		run: func(e *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, dx []tensor.Tensor) {
			out := e.Flat(make([]float32, 2*r*h), 2*r, h)
			e.S.DeltaGates(out.Rows(0, r), out.Rows(r, 2*r), in[0], in[1], in[2], in[3])
			g.DeltaGatesGrad(dx[0], dx[1], dx[2], dx[3], dy.Rows(0, r), dy.Rows(r, 2*r), out.Rows(0, r), out.Rows(r, 2*r), in[0], in[2], in[3], e.S.Plan(twoSegs(2, 3)))
		}}
}

func deltaOp() gradOp {
	const hk, hv, dk, dv, a, b = 2, 4, 5, 3, 6, 2
	const n = a + b
	return gradOp{name: "GatedDelta", in: [][]int{{n, hk, dk}, {n, hk, dk}, {n, hv, dv}, {n, hv}, {n, hv}}, fix: [][]int{{1, hv, dk, dv}}, out: []int{n, hv, dv},
		draw: func(i int, v []float32) {
			for k := range v {
				switch i {
				case 1:
					v[k] /= 4
				case 3, 4:
					v[k] = 0.5 + v[k]/16
				}
			}
		},
		f: func(in, fix [][]float64) []float64 {
			y := make([]float64, n*hv*dv)
			for h := range hv {
				S := make([]float64, dk*dv)
				for t := range n {
					if t == 0 || t == a {
						copy(S, fix[0][h*dk*dv:])
					}
					q, k := in[0][(t*hk+h/2)*dk:], in[1][(t*hk+h/2)*dk:]
					g, be := in[3][t*hv+h], in[4][t*hv+h]
					for j := range dv {
						kv := 0.0
						for i := range dk {
							S[i*dv+j] *= g
							kv += S[i*dv+j] * k[i]
						}
						d := (in[2][(t*hv+h)*dv+j] - kv) * be
						for i := range dk {
							S[i*dv+j] += k[i] * d
							y[(t*hv+h)*dv+j] += S[i*dv+j] * q[i]
						}
					}
				}
			}
			return y
		},
		run: func(e *Env, g backend.Grad, in, fix []tensor.Tensor, dy tensor.Tensor, dx []tensor.Tensor) {
			out := e.Flat(make([]float32, hv*dk*dv), 1, hv, dk, dv)
			p := e.S.Plan([]backend.Seg{{Rows: a, DeltaIn: fix[0], DeltaOut: out}, {Row: a, Rows: b, DeltaIn: fix[0], DeltaOut: out}})
			g.GatedDeltaGrad(dx[0], dx[1], dx[2], dx[3], dx[4], dy, in[0], in[1], in[2], in[3], in[4], p, 0)
		}}
}

func gatedNormOp() gradOp {
	const r, h, d = 3, 2, 7
	return gradOp{name: "GatedRMSNorm", in: [][]int{{r, h, d}, {r, h, d}, {d}}, out: []int{r, h, d},
		f: func(in, _ [][]float64) []float64 {
			return perRow(in[0], d, func(row int, x []float64) []float64 {
				y := norm64(x, 1.0/d, 1e-3)
				for i := range y {
					y[i] *= in[2][i] * silu64(in[1][row*d+i])
				}
				return y
			})
		},
		run: func(e *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, dx []tensor.Tensor) {
			g.GatedRMSNormGrad(dx[0], dx[1], dx[2], dy, in[0], in[1], in[2], 1e-3, e.S.Plan(twoSegs(2, 1)))
		}}
}
