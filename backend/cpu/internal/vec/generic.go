package vec

import (
	"math"

	"samebit/backend/cpu/internal/isa"
	"samebit/internal/canon"
)

// The portable kernels are the meaning of all the others. Explicit float32
// conversions keep products and sums apart where the contract has two
// roundings.
var generic = Kernels{
	Set: isa.Generic,
	add: func(dst, a, b []float32) {
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	},
	sub: func(dst, a, b []float32) {
		for i := range dst {
			dst[i] = a[i] - b[i]
		}
	},
	mul: func(dst, a, b []float32) {
		for i := range dst {
			dst[i] = a[i] * b[i]
		}
	},
	scale: func(dst, x []float32, s float32) {
		for i := range dst {
			dst[i] = x[i] * s
		}
	},
	divide: func(dst, x []float32, s float32) {
		for i := range dst {
			dst[i] = x[i] / s
		}
	},
	addSquareMax7: func(y, x0, x1, x2, x3, x4, x5, x6 []float32, s float32) {
		for i := range y {
			t := float32(math.Inf(-1))
			for _, x := range [...]float32{x0[i], x1[i], x2[i], x3[i], x4[i], x5[i], x6[i]} {
				if x > t {
					t = x
				}
			}
			t *= s
			y[i] += float32(t * t)
		}
	},
	addScalar: func(dst, x []float32, s float32) {
		for i := range dst {
			dst[i] = x[i] + s
		}
	},
	fmaScalar: func(y, x []float32, s float32) {
		for i := range y {
			y[i] = canon.FMA32(s, x[i], y[i])
		}
	},
	fma: func(y, a, b []float32) {
		for i := range y {
			y[i] = canon.FMA32(a[i], b[i], y[i])
		}
	},
	scaleMul: func(dst, x, w []float32, r float32) {
		for i := range dst {
			dst[i] = float32(x[i]*r) * w[i]
		}
	},
	scaleMulAdd: func(dst, x, w, b []float32, r float32) {
		for i := range dst {
			dst[i] = float32(float32(x[i]*r)*w[i]) + b[i]
		}
	},
	scaleMulSiLU: func(dst, x, w, z []float32, r float32) {
		for i := range dst {
			dst[i] = float32(float32(x[i]*r)*w[i]) * canon.SiLU(z[i])
		}
	},
	exp:      each(canon.Exp),
	sigmoid:  each(canon.Sigmoid),
	silu:     each(canon.SiLU),
	softplus: each(canon.Softplus),
	expSub: func(dst, x []float32, m float32) {
		for i := range dst {
			dst[i] = canon.Exp(x[i] - m)
		}
	},
	swiglu: func(dst, g, u []float32) {
		for i := range dst {
			dst[i] = canon.SiLU(g[i]) * u[i]
		}
	},
	sigmoidMul: func(dst, x, z []float32) {
		for i := range dst {
			dst[i] = x[i] * canon.Sigmoid(z[i])
		}
	},
	rotate: func(lo, hi, a, b, c, s []float32) {
		for i := range lo {
			x, y := a[i], b[i]
			lo[i] = canon.FMA32(x, c[i], -float32(y*s[i]))
			hi[i] = canon.FMA32(y, c[i], float32(x*s[i]))
		}
	},
	conv4SiLU: func(dst, x0, x1, x2, x3, w0, w1, w2, w3 []float32) {
		for i := range dst {
			dst[i] = canon.SiLU(conv4(x0[i], x1[i], x2[i], x3[i], w0[i], w1[i], w2[i], w3[i]))
		}
	},
	sum:        sum,
	sumSquares: sumSquares,
	max:        largest,
	index: func(x []float32, v float32) int {
		for i := range x {
			if x[i] == v {
				return i
			}
		}
		return -1
	},
}

func each(f func(float32) float32) func(dst, x []float32) {
	return func(dst, x []float32) {
		for i := range dst {
			dst[i] = f(x[i])
		}
	}
}

// conv4 is the DOT of four taps: a chain from +0, added to a total of +0.
func conv4(x0, x1, x2, x3, w0, w1, w2, w3 float32) float32 {
	acc := canon.FMA32(x0, w0, 0)
	acc = canon.FMA32(x1, w1, acc)
	acc = canon.FMA32(x2, w2, acc)
	acc = canon.FMA32(x3, w3, acc)
	return 0 + acc
}

func largest(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m + 0
}

// sum is RSUM of numerics.md 3: 32 lanes in blocks of 1024.
func sum(x []float32) float32 {
	var total float32
	for len(x) > 0 {
		n := min(len(x), 1024)
		var lane [32]float32
		for i, v := range x[:n] {
			lane[i%32] += v
		}
		total += fold(&lane)
		x = x[n:]
	}
	return total
}

// sumSquares is the same order with each square fused into its lane.
func sumSquares(x []float32) float32 {
	var total float32
	for len(x) > 0 {
		n := min(len(x), 1024)
		var lane [32]float32
		for i, v := range x[:n] {
			lane[i%32] = canon.FMA32(v, v, lane[i%32])
		}
		total += fold(&lane)
		x = x[n:]
	}
	return total
}

func fold(lane *[32]float32) float32 {
	for h := 16; h > 0; h /= 2 {
		for j := range h {
			lane[j] += lane[j+h]
		}
	}
	return lane[0]
}
