package backendtest

import (
	"math"
	"testing"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// gradOp is an op and its gradient for comparison with central differences: f is the
// op in float64, run calls the gradient with the inputs, the gradients of the
// results, and where the gradients of the inputs go.
type gradOp struct {
	name string
	in   [][]int // shapes of what is differentiated
	fix  [][]int // shapes of constants
	f    func(in, fix [][]float64) []float64
	out  []int // shape of the result
	run  func(e *Env, g backend.Grad, in, fix []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor)
	draw func(i int, v []float32) // shapes the drawn values of input i, fix after in
}

// gradTol is relative to the largest element of a gradient. No element takes more
// than some 60 roundings of 2⁻²⁴, most of which cancel; the central differences are
// good to 1e-9 (fourth order, h = 2⁻⁹).
const gradTol = 0x1p-18

// GradMeaning compares the gradients of a device with central differences of the
// ops in float64. It is enough to do so for package ref, whose bits the others have.
func GradMeaning(t *testing.T, dev backend.Device) {
	for _, op := range gradOps() {
		t.Run(op.name, func(t *testing.T) {
			for seed := range 3 {
				op.check(t, dev, seed)
			}
		})
	}
}

func (op *gradOp) check(t *testing.T, dev backend.Device, seed int) {
	t.Helper()
	e := newEnv(t, dev)
	defer e.close()
	r := tensortest.NewRand(Seed+uint64(seed), "grad", op.name)
	g := e.S.(backend.Grad)
	var in, fix [][]float64
	var it, ft []tensor.Tensor
	load := func(shapes [][]int, at int) (v [][]float64, t []tensor.Tensor) {
		for i, dim := range shapes {
			x := r.F32(tensortest.Ordinary, product(dim))
			for k := range x {
				x[k] = float32(math.Round(float64(x[k])*1024) / 1024)
			}
			if op.draw != nil {
				op.draw(at+i, x)
			}
			v, t = append(v, widen(x)), append(t, e.Flat(x, dim...))
		}
		return v, t
	}
	in, it = load(op.in, 0)
	fix, ft = load(op.fix, len(op.in))
	dyv := r.F32(tensortest.Ordinary, product(op.out))
	dy := e.Flat(dyv, op.out...)
	var d []tensor.Tensor
	for i, dim := range op.in {
		d = append(d, e.State(name("d%d", i), make([]float32, product(dim)), append([]int{}, dim...)...))
	}
	op.run(e, g, it, ft, dy, d)
	loss := func() (s float64) {
		for i, y := range op.f(in, fix) {
			s += float64(dyv[i]) * y
		}
		return s
	}
	for i, res := range e.Results() {
		want := make([]float64, len(in[i]))
		most := 0.0
		for k, at := range in[i] {
			const h = 0x1p-9
			var f [5]float64
			for n := range f {
				in[i][k] = at + float64(n-2)*h
				f[n] = loss()
			}
			in[i][k] = at
			want[k] = (f[0] - f[4] + 8*(f[3]-f[1])) / (12 * h)
			most = max(most, math.Abs(want[k]))
		}
		for k, w := range want {
			if d := math.Abs(float64(res.F32[k]) - w); !(d <= gradTol*most+1e-9) {
				t.Fatalf("seed %d: gradient of input %d at %d is %v, central differences give %v, the largest is %v", seed, i, k, res.F32[k], w, most)
			}
		}
	}
}

func widen(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

func sigmoid64(x float64) float64  { return 1 / (1 + math.Exp(-x)) }
func silu64(x float64) float64     { return x * sigmoid64(x) }
func softplus64(x float64) float64 { return math.Log1p(math.Exp(x)) }

// norm64 writes x/√(Σx²·k + eps).
func norm64(x []float64, k, eps float64) []float64 {
	s := 0.0
	for _, v := range x {
		s += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(s*k+eps)
	}
	return y
}

// perRow applies f to rows of n values of x.
func perRow(x []float64, n int, f func(r int, x []float64) []float64) []float64 {
	var y []float64
	for r := 0; r*n < len(x); r++ {
		y = append(y, f(r, x[r*n:(r+1)*n])...)
	}
	return y
}

func matmul64(x, w []float64, rows, n, k int) []float64 {
	y := make([]float64, rows*n)
	for i := range y {
		for j := range k {
			y[i] += x[i/n*k+j] * w[i%n*k+j]
		}
	}
	return y
}

// twoSegs are the segments of most cases: one crosses a block of rows in none, but
// two sequences make two.
func twoSegs(a, b int) []backend.Seg { return []backend.Seg{{Rows: a}, {Row: a, Rows: b}} }

func gradOps() []gradOp {
	const r, c, n = 5, 7, 6
	mul := func(in, _ [][]float64) []float64 { return matmul64(in[0], in[1], r, n, c) }
	return []gradOp{
		{name: "Linear", in: [][]int{{r, c}, {n, c}}, out: []int{r, n}, f: mul,
			run: func(e *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
				w, err := e.Dev.Pack(in[1], backend.UseLinear)
				e.must(err)
				e.weights = append(e.weights, w)
				g.LinearGrad(d[0], dy, w)
				g.WeightGrad(d[1], dy, in[0], e.S.Plan(twoSegs(2, 3)))
			}},
		{name: "Project", in: [][]int{{r, c}, {n, c}}, out: []int{r, n}, f: mul,
			run: func(e *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
				g.ProjectGrad(d[0], dy, in[1])
				g.WeightGrad(d[1], dy, in[0], e.S.Plan(twoSegs(4, 1)))
			}},
		{name: "AddBias", in: [][]int{{c}}, fix: [][]int{{r, c}}, out: []int{r, c},
			f: func(in, fix [][]float64) []float64 {
				return perRow(fix[0], c, func(_ int, x []float64) []float64 {
					y := make([]float64, c)
					for i := range y {
						y[i] = x[i] + in[0][i]
					}
					return y
				})
			},
			run: func(e *Env, g backend.Grad, _, _ []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
				g.BiasGrad(d[0], dy, e.S.Plan(twoSegs(2, 3)))
			}},
		{name: "Embed", in: [][]int{{4, c}}, out: []int{r, c},
			f: func(in, _ [][]float64) []float64 {
				var y []float64
				for _, id := range []int{3, 1, 3, 0, 3} {
					y = append(y, in[0][id*c:(id+1)*c]...)
				}
				return y
			},
			run: func(e *Env, g backend.Grad, _, _ []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
				g.EmbedGrad(d[0], dy, e.Ints([]int32{3, 1, 3, 0, 3}, r))
			}},
		{name: "Gather", in: [][]int{{4, c}}, out: []int{2, c},
			f: func(in, _ [][]float64) []float64 {
				return append(append([]float64(nil), in[0][2*c:3*c]...), in[0][:c]...)
			},
			run: func(e *Env, g backend.Grad, _, _ []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
				g.GatherGrad(d[0], dy, e.Ints([]int32{2, 0}, 2))
			}},
		{name: "RMSNorm", in: [][]int{{r, c}, {c}}, out: []int{r, c},
			f: func(in, _ [][]float64) []float64 {
				return perRow(in[0], c, func(_ int, x []float64) []float64 {
					y := norm64(x, 1.0/c, 1e-3)
					for i := range y {
						y[i] *= in[1][i]
					}
					return y
				})
			},
			run: func(e *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
				g.RMSNormGrad(d[0], d[1], dy, in[0], in[1], 1e-3, e.S.Plan(twoSegs(2, 3)))
			}},
		{name: "LayerNorm", in: [][]int{{r, c}, {c}, {c}}, out: []int{r, c},
			f: func(in, _ [][]float64) []float64 {
				return perRow(in[0], c, func(_ int, x []float64) []float64 {
					mean := 0.0
					for _, v := range x {
						mean += v / c
					}
					y := make([]float64, c)
					for i := range y {
						y[i] = x[i] - mean
					}
					y = norm64(y, 1.0/c, 1e-3)
					for i := range y {
						y[i] = y[i]*in[1][i] + in[2][i]
					}
					return y
				})
			},
			run: func(e *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
				g.LayerNormGrad(d[0], d[1], d[2], dy, in[0], in[1], 1e-3, e.S.Plan(twoSegs(2, 3)))
			}},
		{name: "SwiGLU", in: [][]int{{r, c}, {r, c}}, out: []int{r, c},
			f: func(in, _ [][]float64) []float64 {
				y := make([]float64, r*c)
				for i := range y {
					y[i] = silu64(in[0][i]) * in[1][i]
				}
				return y
			},
			run: func(_ *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
				g.SwiGLUGrad(d[0], d[1], dy, in[0], in[1])
			}},
		{name: "SigmoidMul", in: [][]int{{r, 2, c}, {r, 2, c}}, out: []int{r, 2, c},
			f: func(in, _ [][]float64) []float64 {
				y := make([]float64, 2*r*c)
				for i := range y {
					y[i] = in[0][i] * sigmoid64(in[1][i])
				}
				return y
			},
			run: func(_ *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
				g.SigmoidMulGrad(d[0], d[1], dy, in[0], in[1])
			}},
		{name: "Softmax", in: [][]int{{r, c}}, out: []int{r, c},
			f: func(in, _ [][]float64) []float64 {
				return perRow(in[0], c, func(_ int, x []float64) []float64 { return softmax64(x) })
			},
			run: func(e *Env, g backend.Grad, in, _ []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
				y := e.Flat(make([]float32, r*c), r, c)
				e.S.Softmax(y, in[0])
				g.SoftmaxGrad(d[0], dy, y)
			}},
		normRoPEOp(true), normRoPEOp(false), attentionOp(0), attentionOp(3), convOp(), l2Op(1), l2Op(0.25), gatesOp(), deltaOp(), gatedNormOp(),
		lossOp("CrossEntropy", func(x, _ []float64, row int) float64 {
			t := []int{3, -1, 0, 6, 3}[row]
			if t < 0 {
				return 0
			}
			return -math.Log(softmax64(x)[t])
		}, func(e *Env, g backend.Grad, loss, dx, x, _, w tensor.Tensor) {
			g.CrossEntropy(loss, dx, x, e.Ints([]int32{3, -1, 0, 6, 3}, 5), w, 0.5)
		}),
		lossOp("DistillKL", func(x, y []float64, _ int) (s float64) {
			a, b := make([]float64, len(x)), make([]float64, len(x))
			for i := range x {
				a[i], b[i] = y[i]/2, x[i]/2
			}
			a, b = softmax64(a), softmax64(b)
			for i := range a {
				s += 4 * a[i] * math.Log(a[i]/b[i])
			}
			return s
		}, func(_ *Env, g backend.Grad, loss, dx, x, y, w tensor.Tensor) {
			g.DistillKL(loss, dx, x, y, w, 2, 0.5)
		}),
		lossOp("SquaredError", func(x, y []float64, _ int) (s float64) {
			for i := range x {
				s += (x[i] - y[i]) * (x[i] - y[i]) / float64(len(x))
			}
			return s
		}, func(_ *Env, g backend.Grad, loss, dx, x, y, w tensor.Tensor) {
			g.SquaredError(loss, dx, x, y, w, 0.5)
		}),
		lossOp("CosineError", func(x, y []float64, _ int) float64 {
			x, y = norm64(x, 1, 0), norm64(y, 1, 0)
			s := 1.0
			for i := range x {
				s -= x[i] * y[i]
			}
			return s
		}, func(_ *Env, g backend.Grad, loss, dx, x, y, w tensor.Tensor) {
			g.CosineError(loss, dx, x, y, w, 0.5)
		}),
	}
}

func softmax64(x []float64) []float64 {
	s := 0.0
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = math.Exp(v)
		s += y[i]
	}
	for i := range y {
		y[i] /= s
	}
	return y
}

// lossOp is a loss with weights and a scale of 1/2. Its gradient begins at the loss:
// the drawn gradient of the result is replaced by ones through the weights.
func lossOp(op string, f func(x, y []float64, row int) float64, run func(e *Env, g backend.Grad, loss, dx, x, y, w tensor.Tensor)) gradOp {
	const r, c = 5, 7
	return gradOp{name: op, in: [][]int{{r, c}}, fix: [][]int{{r, c}}, out: []int{r},
		f: func(in, fix [][]float64) []float64 {
			return perRow(in[0], c, func(row int, x []float64) []float64 { return []float64{f(x, fix[0][row*c:(row+1)*c], row) / 2} })
		},
		run: func(e *Env, g backend.Grad, in, fix []tensor.Tensor, dy tensor.Tensor, d []tensor.Tensor) {
			loss := e.Flat(make([]float32, r), r)
			run(e, g, loss, d[0], in[0], fix[0], dy)
			// The loss itself, in the same precision.
			x, y, w, got := make([]float32, r*c), make([]float32, r*c), make([]float32, r), make([]float32, r)
			for i, t := range []tensor.Tensor{in[0], fix[0], dy, loss} {
				e.S.Read(bytesOf([][]float32{x, y, w, got}[i]), t)
			}
			e.must(e.S.Sync())
			for i := range r {
				want := f(widen(x[i*c:(i+1)*c]), widen(y[i*c:(i+1)*c]), i) * float64(w[i])
				if d := math.Abs(float64(got[i]) - want); !(d <= 1e-5*(1+math.Abs(want))) {
					e.T.Errorf("%s: loss of row %d is %v, want %v", op, i, got[i], want)
				}
			}
		}}
}
