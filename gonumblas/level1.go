package gonumblas

import (
	"math"

	"samebit/internal/canon"
)

// Sdot returns DOT(x, y).
func (b Implementation) Sdot(n int, x []float32, incX int, y []float32, incY int) float32 {
	checkIncrements(incX, incY)
	checkN(n)
	if n == 0 {
		return 0
	}
	checkX(n, x, incX)
	checkY(n, y, incY)
	return b.blas().Dot(n, x, incX, y, incY)
}

// Saxpy sets y[i] = FMA(alpha, x[i], y[i]).
func (b Implementation) Saxpy(n int, alpha float32, x []float32, incX int, y []float32, incY int) {
	checkIncrements(incX, incY)
	checkN(n)
	if n == 0 {
		return
	}
	checkX(n, x, incX)
	checkY(n, y, incY)
	b.blas().Axpy(n, alpha, x, incX, y, incY)
}

// Sscal multiplies x by alpha; a negative incX changes nothing, as in gonum.
func (b Implementation) Sscal(n int, alpha float32, x []float32, incX int) {
	if incX == 0 {
		panic(zeroIncX)
	}
	if incX < 0 {
		return
	}
	checkN(n)
	if n == 0 {
		return
	}
	checkX(n, x, incX)
	b.blas().Scal(n, alpha, x, incX)
}

// Snrm2 returns the Euclidean norm √RSUM(x²); it is 0 for a negative incX, as in
// gonum. Where the sum of squares overflows or comes near the smallest numbers,
// x is scaled by the power of two below its largest magnitude, and the norm back.
func (b Implementation) Snrm2(n int, x []float32, incX int) float32 {
	if incX == 0 {
		panic(zeroIncX)
	}
	if incX < 0 {
		return 0
	}
	if len(x) <= (n-1)*incX {
		panic(shortX)
	}
	checkN(n)
	if n == 0 {
		return 0
	}
	s := b.blas().SumSquares(n, x, incX)
	if s < 0x1p-100 || s > math.MaxFloat32 {
		return b.scaledNorm(n, x, incX)
	}
	return canon.Sqrt(s) // NaN stays NaN
}

func (b Implementation) scaledNorm(n int, x []float32, incX int) float32 {
	var largest float32
	for i := range n {
		largest = max(largest, absolute(x[i*incX])) // max lets a NaN through
	}
	if largest == 0 || !(largest <= math.MaxFloat32) {
		return largest
	}
	_, e := math.Frexp(float64(largest))
	down, up := math.Ldexp(1, -e), math.Ldexp(1, e)
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(float64(x[i*incX]) * down)
	}
	return float32(float64(canon.Sqrt(b.blas().SumSquares(n, v, 1))) * up)
}

func absolute(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
