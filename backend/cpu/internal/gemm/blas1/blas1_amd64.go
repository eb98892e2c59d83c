//go:build !noasm

package blas1

import "samebit/backend/cpu/internal/isa"

// chains computes blocks partial sums of n steps; n is 128 for more than one
// block, and blocks is at most 8 or 16.
func chains(s isa.Set, acc *[atOnce]float32, x, y *float32, blocks, n int) bool {
	if s == isa.Generic {
		return false
	}
	switch a := &acc[0]; blocks {
	case 1:
		chains1FMA(a, x, y, n)
	case 2:
		chains2FMA(a, x, y, n)
	case 3:
		chains3FMA(a, x, y, n)
	case 4:
		chains4FMA(a, x, y, n)
	case 5:
		chains5FMA(a, x, y, n)
	case 6:
		chains6FMA(a, x, y, n)
	case 7:
		chains7FMA(a, x, y, n)
	case 8:
		chains8x128AVX2(a, x, y)
	case 16:
		chains16x128AVX2(a, x, y)
	}
	return true
}

func rowsAtOnce(s isa.Set) bool { return s != isa.Generic }

// rows computes the chains of eight rows over n terms, a multiple of 4.
func rows(acc *[8]float32, x *float32, ldx int, y *float32, ldy, n int) {
	rows8AVX2(&acc[0], x, 4*ldx, y, 4*ldy, n)
}

func axpy(s isa.Set, a float32, x, y *float32, n int) bool {
	switch s {
	case isa.AVX2:
		axpyAVX2(a, x, y, n)
	case isa.AVX512:
		axpyAVX512(a, x, y, n)
	default:
		return false
	}
	return true
}

func scal(s isa.Set, a float32, x *float32, n int) bool {
	switch s {
	case isa.AVX2:
		scalAVX2(a, x, n)
	case isa.AVX512:
		scalAVX512(a, x, n)
	default:
		return false
	}
	return true
}

func sumSq(s isa.Set, lane *[lanes]float32, x *float32, n int) bool {
	switch s {
	case isa.AVX2:
		sumSqAVX2(&lane[0], x, n)
	case isa.AVX512:
		sumSqAVX512(&lane[0], x, n)
	default:
		return false
	}
	return true
}
