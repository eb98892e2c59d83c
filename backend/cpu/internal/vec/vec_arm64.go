//go:build arm64 && !noasm

package vec

import (
	"math"

	"samebit/backend/cpu/internal/isa"
	"samebit/internal/canon"
)

// The NEON kernels take multiples of four values (sums: of 32); the portable
// ones do the rest.

//go:noescape
func addNEON(dst, a, b []float32)

//go:noescape
func subNEON(dst, a, b []float32)

//go:noescape
func mulNEON(dst, a, b []float32)

//go:noescape
func scaleNEON(dst, x []float32, s float32)

//go:noescape
func divideNEON(dst, x []float32, s float32)

//go:noescape
func addSquareMax7NEON(y, x0, x1, x2, x3, x4, x5, x6 []float32, s float32)

//go:noescape
func addScalarNEON(dst, x []float32, s float32)

//go:noescape
func fmaScalarNEON(y, x []float32, s float32)

//go:noescape
func fmaNEON(y, a, b []float32)

//go:noescape
func scaleMulNEON(dst, x, w []float32, s float32)

//go:noescape
func scaleMulAddNEON(dst, x, w, b []float32, s float32)

//go:noescape
func scaleMulSiLUNEON(dst, x, w, z []float32, s float32)

//go:noescape
func expNEON(dst, x []float32)

//go:noescape
func expSubNEON(dst, x []float32, s float32)

//go:noescape
func sigmoidNEON(dst, x []float32)

//go:noescape
func siluNEON(dst, x []float32)

//go:noescape
func swigluNEON(dst, g, u []float32)

//go:noescape
func sigmoidMulNEON(dst, x, z []float32)

//go:noescape
func rotateNEON(lo, hi, a, b, c, s []float32)

//go:noescape
func conv4SiLUNEON(dst, x0, x1, x2, x3, w0, w1, w2, w3 []float32)

//go:noescape
func sumRowsNEON(lane *[32]float32, x []float32)

//go:noescape
func sumSquareRowsNEON(lane *[32]float32, x []float32)

//go:noescape
func maxRowsNEON(lane *[32]float32, x []float32)

//go:noescape
func softplusNEON(dst, x []float32)

func native(s isa.Set) *Kernels {
	if s == isa.NEON {
		return &neon
	}
	return nil
}

var neon = Kernels{
	Set: isa.NEON,

	add: pairs(addNEON, generic.add), sub: pairs(subNEON, generic.sub), mul: pairs(mulNEON, generic.mul),
	scale: scaled(scaleNEON, generic.scale), addScalar: scaled(addScalarNEON, generic.addScalar),
	divide: scaled(divideNEON, generic.divide),
	addSquareMax7: func(y, x0, x1, x2, x3, x4, x5, x6 []float32, s float32) {
		n := len(y) &^ 3
		addSquareMax7NEON(y[:n], x0, x1, x2, x3, x4, x5, x6, s)
		generic.addSquareMax7(y[n:], x0[n:], x1[n:], x2[n:], x3[n:], x4[n:], x5[n:], x6[n:], s)
	},
	fmaScalar: scaled(fmaScalarNEON, generic.fmaScalar), fma: pairs(fmaNEON, generic.fma),

	scaleMul: func(dst, x, w []float32, r float32) {
		n := len(dst) &^ 3
		scaleMulNEON(dst[:n], x, w, r)
		generic.scaleMul(dst[n:], x[n:], w[n:], r)
	},
	scaleMulAdd: func(dst, x, w, b []float32, r float32) {
		n := len(dst) &^ 3
		scaleMulAddNEON(dst[:n], x, w, b, r)
		generic.scaleMulAdd(dst[n:], x[n:], w[n:], b[n:], r)
	},
	scaleMulSiLU: func(dst, x, w, z []float32, r float32) {
		n := len(dst) &^ 3
		scaleMulSiLUNEON(dst[:n], x, w, z, r)
		generic.scaleMulSiLU(dst[n:], x[n:], w[n:], z[n:], r)
	},

	exp: singles(expNEON, generic.exp), sigmoid: singles(sigmoidNEON, generic.sigmoid),
	silu: singles(siluNEON, generic.silu), softplus: singles(softplusNEON, generic.softplus),
	expSub: scaled(expSubNEON, generic.expSub),
	swiglu: pairs(swigluNEON, generic.swiglu), sigmoidMul: pairs(sigmoidMulNEON, generic.sigmoidMul),

	rotate: func(lo, hi, a, b, c, s []float32) {
		n := len(lo) &^ 3
		rotateNEON(lo[:n], hi, a, b, c, s)
		generic.rotate(lo[n:], hi[n:], a[n:], b[n:], c[n:], s[n:])
	},
	conv4SiLU: func(dst, x0, x1, x2, x3, w0, w1, w2, w3 []float32) {
		n := len(dst) &^ 3
		conv4SiLUNEON(dst[:n], x0, x1, x2, x3, w0, w1, w2, w3)
		generic.conv4SiLU(dst[n:], x0[n:], x1[n:], x2[n:], x3[n:], w0[n:], w1[n:], w2[n:], w3[n:])
	},

	sum: func(x []float32) float32 {
		var total float32
		for len(x) > 0 {
			n := min(len(x), 1024)
			var lane [32]float32
			sumRowsNEON(&lane, x[:n&^31])
			for i, v := range x[n&^31 : n] {
				lane[i] += v
			}
			total += fold(&lane)
			x = x[n:]
		}
		return total
	},
	sumSquares: func(x []float32) float32 {
		var total float32
		for len(x) > 0 {
			n := min(len(x), 1024)
			var lane [32]float32
			sumSquareRowsNEON(&lane, x[:n&^31])
			for i, v := range x[n&^31 : n] {
				lane[i] = canon.FMA32(v, v, lane[i])
			}
			total += fold(&lane)
			x = x[n:]
		}
		return total
	},
	max: func(x []float32) float32 {
		var lane [32]float32
		for i := range lane {
			lane[i] = float32(math.Inf(-1))
		}
		n := len(x) &^ 31
		maxRowsNEON(&lane, x[:n])
		return max(largest(lane[:]), largest(x[n:]))
	},
	index: generic.index,
}

func singles(asm, rest func(dst, x []float32)) func(dst, x []float32) {
	return func(dst, x []float32) {
		n := len(dst) &^ 3
		asm(dst[:n], x)
		rest(dst[n:], x[n:])
	}
}

func pairs(asm, rest func(dst, a, b []float32)) func(dst, a, b []float32) {
	return func(dst, a, b []float32) {
		n := len(dst) &^ 3
		asm(dst[:n], a, b)
		rest(dst[n:], a[n:], b[n:])
	}
}

func scaled(asm, rest func(dst, x []float32, s float32)) func(dst, x []float32, s float32) {
	return func(dst, x []float32, s float32) {
		n := len(dst) &^ 3
		asm(dst[:n], x, s)
		rest(dst[n:], x[n:], s)
	}
}
