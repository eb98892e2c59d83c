package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"samebit/backend/cpu/internal/isa"
	"samebit/internal/canon/canontest"
)

func sets(t *testing.T, run func(t *testing.T, k *Kernels)) {
	t.Helper()
	for _, s := range isa.Available() {
		t.Run(s.String(), func(t *testing.T) { run(t, For(s)) })
	}
}

// lengths walks every tail of every vector width and the edges of RSUM.
func lengths() []int {
	var n []int
	for i := 1; i <= 70; i++ {
		n = append(n, i)
	}
	return append(n, 127, 128, 129, 1023, 1024, 1025, 2047, 2560, 4099)
}

// fill draws values of every kind: mostly ordinary, some of any bit pattern.
func fill(r *rand.Rand, x []float32) {
	for i := range x {
		switch r.IntN(8) {
		case 0:
			x[i] = math.Float32frombits(r.Uint32())
		case 1:
			x[i] = []float32{0, float32(math.Copysign(0, -1)), 1, -1, 88.8, -88.8, -104, 89}[r.IntN(8)]
		default:
			x[i] = float32(r.NormFloat64() * 4)
		}
	}
}

// ops are all kernels in one form: up to four inputs, one scalar, an output
// that starts as a copy of the first input.
var ops = map[string]func(k *Kernels, dst, a, b, c, d []float32, s float32){
	"Add":       func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.Add(dst, a, b) },
	"Sub":       func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.Sub(dst, a, b) },
	"Mul":       func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.Mul(dst, a, b) },
	"Scale":     func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.Scale(dst, a, s) },
	"AddScalar": func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.AddScalar(dst, a, s) },
	"Divide":    func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.Divide(dst, a, s) },
	"AddSquareMax7": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		if n := len(dst) - 6; n > 0 {
			k.AddSquareMax7(dst[:n], b, s)
		}
	},
	"FMAScalar":  func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.FMAScalar(dst, s, b) },
	"FMA":        func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.FMA(dst, b, c) },
	"Exp":        func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.Exp(dst, a) },
	"ExpSub":     func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.ExpSub(dst, a, s) },
	"Sigmoid":    func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.Sigmoid(dst, a) },
	"SiLU":       func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.SiLU(dst, a) },
	"Softplus":   func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.Softplus(dst, a) },
	"SwiGLU":     func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.SwiGLU(dst, a, b) },
	"SigmoidMul": func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.SigmoidMul(dst, a, b) },
	"RMSNorm":    func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.RMSNorm(dst, a, b, 1e-6) },
	"RMSNorm no weight": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		k.RMSNorm(dst, a, nil, 1e-6)
	},
	"GatedRMSNorm": func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.GatedRMSNorm(dst, a, b, c, 1e-5) },
	"L2Norm":       func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.L2Norm(dst, a, 1e-6, s) },
	"LayerNorm":    func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.LayerNorm(dst, a, b, c, 1e-5) },
	"LayerNorm no bias": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		k.LayerNorm(dst, a, b, nil, 1e-5)
	},
	"LayerNorm no weight": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		k.LayerNorm(dst, a, nil, b, 1e-5)
	},
	"LayerNorm bare": func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.LayerNorm(dst, a, nil, nil, 1e-5) },
	"SoftmaxGrad": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		p := append([]float32(nil), b...)
		k.SoftmaxGrad(p, dst, s, 0.5, -1.5)
		k.Mul(dst, dst, p)
	},
	"ExpSum": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		dst[0] = k.ExpSum(b, s, make([]float32, len(b)))
	},
	"SwiGLUGrad": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		up := append([]float32(nil), b...)
		k.SwiGLUGrad(dst, up, b, c, d, make([]float32, 3*len(dst)), false)
		k.Add(dst, dst, up)
	},
	"SwiGLUGrad first": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		up := append([]float32(nil), b...)
		k.SwiGLUGrad(dst, up, b, c, d, make([]float32, 3*len(dst)), true)
		k.Add(dst, dst, up)
	},
	"RMSNormGrad": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		part := append([]float32(nil), a...)
		k.RMSNormGrad(dst, part, b, c, d, make([]float32, 3*len(dst)), 1e-6, false)
		k.Add(dst, dst, part)
	},
	"LayerNormGrad": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		dw, db := append([]float32(nil), a...), append([]float32(nil), b...)
		k.LayerNormGrad(dst, dw, db, b, c, d, make([]float32, 3*len(dst)), 1e-5, false)
		k.Add(dst, dst, dw)
		k.Add(dst, dst, db)
	},
	"RMSNormGrad first, no part": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		k.RMSNormGrad(dst, nil, b, c, d, make([]float32, 3*len(dst)), 1e-6, true)
	},
	"SoftmaxLossGrad": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		k.SoftmaxLossGrad(dst, append([]float32(nil), b...), 0.3, len(dst)/2, s, false)
	},
	"SoftmaxLossGrad first": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		k.SoftmaxLossGrad(dst, append([]float32(nil), b...), 0.3, len(dst)/2, s, true)
	},
	"AdamW": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		m, v := append([]float32(nil), b...), append([]float32(nil), c...)
		k.AdamW(dst, m, v, d, &AdamWStep{Beta1: 0.9, Rest1: 0.1, Beta2: 0.99, Rest2: 0.01, Scale2: 1.2, Rate: 0.01, Decay: 0.999, Eps: 1e-8, Clip: 0.7})
		k.Mul(m, m, v)
		k.Add(dst, dst, m)
	},
	"Softmax": func(k *Kernels, dst, a, b, c, d []float32, s float32) { k.Softmax(dst, a) },
	"Conv4SiLU": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		k.Conv4SiLU(dst, &[4][]float32{b, c, d, b}, &[4][]float32{c, b, b, d})
	},
	"Rotate": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		h := len(dst) / 2
		k.Rotate(dst, a, b[:h], c[:h])
	},
	"Rotate part": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		h := len(dst) / 4
		k.Rotate(dst, a, b[:h], c[:h])
	},
	"SumRows": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		for range 3 {
			k.SumRows(dst, b, 0, 2)
		}
	},
	"scalars": func(k *Kernels, dst, a, b, c, d []float32, s float32) {
		clear(dst)
		out := []float32{k.Sum(a), k.SumSquares(a), k.Max(a), float32(k.ArgMax(a))}
		copy(dst, out[s2i(s)%len(out):])
	},
}

func s2i(s float32) int { return int(math.Float32bits(s) >> 3 & 0xff) }

// Every kernel of every set gives the bits of the portable one, for any length
// and alignment, reads nothing behind its slices and writes nothing around
// them; also when the output is the first input.
func TestSetsAgree(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		const seed = 3
		r := rand.New(rand.NewPCG(seed, 5))
		var in [4][]float32
		for i := range in {
			in[i] = fenced(t, 4200)
		}
		for _, n := range lengths() {
			if testing.Short() && n > 140 {
				continue
			}
			x := [4][]float32{}
			for i := range in {
				x[i] = in[i][len(in[i])-n:]
				fill(r, x[i])
			}
			if n%3 == 0 { // ordinary values throughout, so that sums are numbers
				for i := range in {
					for j := range x[i] {
						x[i][j] = float32(r.NormFloat64())
					}
				}
			}
			s := float32(r.NormFloat64())
			for name, op := range ops {
				want := append([]float32(nil), x[0]...)
				tmp := append([]float32(nil), x[2]...)
				op(&generic, want, x[0], x[1], tmp, x[3], s)
				got, intact := canontest.Guarded(n)
				copy(got, x[0])
				copy(tmp, x[2])
				op(k, got, x[0], x[1], tmp, x[3], s)
				if d := canontest.Diff(got, want); d != "" || !intact() {
					t.Fatalf("%s n=%d seed %d, guards intact %v:\n%s", name, n, seed, intact(), d)
				}
				if name == "Rotate part" && n < 4 {
					continue
				}
				same, intact := canontest.Guarded(n)
				copy(same, x[0])
				copy(tmp, x[2])
				op(k, same, same, x[1], tmp, x[3], s)
				if name == "scalars" {
					continue // clears its argument first
				}
				if d := canontest.Diff(same, want); d != "" || !intact() {
					t.Fatalf("%s in place n=%d seed %d, guards intact %v:\n%s", name, n, seed, intact(), d)
				}
			}
		}
	})
}

func TestGoldensUnary(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		for op, fn := range map[string]func(dst, x []float32){
			"exp": k.Exp, "sigmoid": k.Sigmoid, "silu": k.SiLU, "softplus": k.Softplus,
		} {
			for _, c := range canontest.Cases(t, op) {
				x := c.In["x"].F32()
				fn(x, x)
				if d := canontest.Diff(x, c.Out["y"].F32()); d != "" {
					t.Errorf("%s:\n%s", op, d)
				}
			}
		}
		for _, c := range canontest.Cases(t, "fma") {
			y := c.In["c"].F32()
			k.FMA(y, c.In["a"].F32(), c.In["b"].F32())
			if d := canontest.Diff(y, c.Out["r"].F32()); d != "" {
				t.Errorf("fma:\n%s", d)
			}
		}
	})
}

func TestGoldensRows(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		for _, c := range canontest.Cases(t, "rsum") {
			x := c.In["x"].F32()
			got := []float32{k.Sum(x), k.SumSquares(x)}
			if d := canontest.Diff(got, []float32{c.Out["sum"].F32()[0], c.Out["sumsq"].F32()[0]}); d != "" {
				t.Errorf("rsum K=%d:\n%s", len(x), d)
			}
		}
		for _, c := range canontest.Cases(t, "rmsnorm") {
			x := c.In["x"].F32()
			y := make([]float32, len(x))
			k.RMSNorm(y, x, c.In["w"].F32(), c.Bits("eps_bits"))
			if d := canontest.Diff(y, c.Out["y"].F32()); d != "" {
				t.Errorf("rmsnorm K=%d:\n%s", len(x), d)
			}
			k.L2Norm(y, x, 1e-6, 1)
			if d := canontest.Diff(y, c.Out["l2norm"].F32()); d != "" {
				t.Errorf("l2norm K=%d:\n%s", len(x), d)
			}
		}
		for _, c := range canontest.Cases(t, "softmax") {
			x := c.In["x"].F32()
			y := make([]float32, len(x))
			k.Softmax(y, x)
			if d := canontest.Diff(y, c.Out["p"].F32()); d != "" {
				t.Errorf("softmax K=%d:\n%s", len(x), d)
			}
			if got, want := k.ArgMax(x), int(c.Out["argmax"].I32()[0]); got != want {
				t.Errorf("argmax K=%d: %d, want %d", len(x), got, want)
			}
			if d := canontest.Diff([]float32{k.Max(x)}, c.Out["max"].F32()[:1]); d != "" {
				t.Errorf("max K=%d:\n%s", len(x), d)
			}
		}
		for _, c := range canontest.Cases(t, "rope") {
			x, d, p := c.In["x"].F32(), c.Int("d"), c.Int("applied_at_pos_index")
			h := d / 2
			k.Rotate(x, x, c.Out["cos"].F32()[p*h:][:h], c.Out["sin"].F32()[p*h:][:h])
			if d := canontest.Diff(x, c.Out["y"].F32()); d != "" {
				t.Errorf("rope d=%d:\n%s", len(x), d)
			}
		}
	})
}

func bits(u ...uint32) []float32 {
	x := make([]float32, len(u))
	for i := range u {
		x[i] = math.Float32frombits(u[i])
	}
	return x
}

// The worked examples of docs/numerics.md 14.
func TestWorkedExamples(t *testing.T) {
	gen := func(a, n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = canontest.Gen(a, i)
		}
		return x
	}
	sets(t, func(t *testing.T, k *Kernels) {
		for n, want := range map[int][]float32{
			1: bits(0xbde00000, 0x3c440000), 31: bits(0xbf342aab, 0x408e6455), 33: bits(0xbfba0001, 0x4097e1b9),
			100: bits(0xc02e4000, 0x4169b1e2), 1024: bits(0x3eaaaab3, 0x43174264), 1025: bits(0x3f640004, 0x431791e6),
			2560: bits(0xc0baaaab, 0x43bd6619),
		} {
			x := gen(3, n)
			for i := range x {
				x[i] /= 3
			}
			if d := canontest.Diff([]float32{k.Sum(x), k.SumSquares(x)}, want); d != "" {
				t.Errorf("RSUM K=%d:\n%s", n, d)
			}
		}
		y := make([]float32, 5)
		k.RMSNorm(y, gen(11, 5), gen(12, 5), 1e-6)
		if d := canontest.Diff(y, bits(0x3d01588e, 0xbcf8fb06, 0x3ec15323, 0x3fa0b4e3, 0xc01b4ced)); d != "" {
			t.Errorf("RMSNorm:\n%s", d)
		}
		k.Softmax(y, gen(13, 5))
		if d := canontest.Diff(y, bits(0x3ee368d5, 0x3e856d22, 0x3e1c9186, 0x3db7b979, 0x3d579734)); d != "" {
			t.Errorf("Softmax:\n%s", d)
		}
	})
}

func TestArgMax(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	neg0 := float32(math.Copysign(0, -1))
	sets(t, func(t *testing.T, k *Kernels) {
		for _, tt := range []struct {
			x    []float32
			want int
			why  string
		}{
			{nil, -1, "empty"},
			{[]float32{nan, nan, nan}, -1, "nothing but NaN"},
			{[]float32{nan, -inf, nan}, 1, "-Inf beats NaN"},
			{[]float32{-inf, -inf}, 0, "tie of -Inf"},
			{[]float32{neg0, 0}, 0, "zeros tie"},
			{[]float32{-1, 0, neg0}, 1, "zeros tie"},
			{[]float32{1, 7, nan, 7, 2, 7, 7, 7, 7, 7}, 1, "lowest index"},
			{[]float32{nan, inf, inf}, 1, "Inf"},
		} {
			if got := k.ArgMax(tt.x); got != tt.want {
				t.Errorf("ArgMax(%v) = %d, want %d (%s)", tt.x, got, tt.want, tt.why)
			}
		}
		for n := 1; n < 100; n++ {
			x := fenced(t, n)
			for i := range x {
				x[i] = -float32(n)
			}
			for at := range n {
				old := x[at]
				x[at] = -0.5
				if got := k.ArgMax(x); got != at {
					t.Fatalf("n=%d: %d, want %d", n, got, at)
				}
				x[at] = old
			}
		}
	})
}

func TestCheck(t *testing.T) {
	for _, s := range isa.Available() {
		if err := For(s).Check(); err != nil {
			t.Error(err)
		}
	}
}

// Results that must be +0, never -0: sums, the maximum of zeros, and the chain
// of taps before SiLU (numerics.md 11).
func TestPlusZero(t *testing.T) {
	neg0 := float32(math.Copysign(0, -1))
	sets(t, func(t *testing.T, k *Kernels) {
		for n := 1; n < 70; n++ {
			zeros, down, up := fenced(t, n), fenced(t, n), fenced(t, n)
			for i := range zeros {
				zeros[i], down[i], up[i] = neg0, -0x1p-80, 0x1p-80
			}
			y := make([]float32, n)
			k.Conv4SiLU(y, &[4][]float32{down, down, down, down}, &[4][]float32{up, up, up, up})
			got := append(y, k.Sum(zeros), k.SumSquares(down), k.Max(zeros))
			if d := canontest.Diff(got, make([]float32, n+3)); d != "" {
				t.Fatalf("n=%d (conv, then sum, squares, max):\n%s", n, d)
			}
		}
	})
}

func TestNoAllocation(t *testing.T) {
	x, y := make([]float32, 1000), make([]float32, 1000)
	for _, s := range isa.Available() {
		k := For(s)
		if n := testing.AllocsPerRun(20, func() { k.RMSNorm(y, x, x, 1e-6); k.Softmax(y, x); k.SwiGLU(y, x, x) }); n != 0 {
			t.Errorf("%v: %g allocations", s, n)
		}
	}
}
