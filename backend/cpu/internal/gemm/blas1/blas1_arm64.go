//go:build !noasm

package blas1

import (
	"unsafe"

	"samebit/backend/cpu/internal/isa"
)

func at(p *float32, i int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(p), 4*i)) }

func chains(s isa.Set, acc *[atOnce]float32, x, y *float32, blocks, n int) bool {
	if s != isa.NEON {
		return false
	}
	switch a := &acc[0]; {
	case blocks >= 8:
		for b := 0; b < blocks; b += 8 {
			chains8NEON(&acc[b], at(x, b*kb), at(y, b*kb), n)
		}
	case blocks >= 4:
		chains4NEON(a, x, y, n)
		off := 4 * kb
		for b := 4; b < blocks; b++ {
			chains1NEON(&acc[b], at(x, off), at(y, off), n)
			off += kb
		}
	default:
		for b := range blocks {
			chains1NEON(&acc[b], at(x, b*kb), at(y, b*kb), n)
		}
	}
	return true
}

func rowsAtOnce(isa.Set) bool { return false }

func rows(*[8]float32, *float32, int, *float32, int, int) {}

func axpy(s isa.Set, a float32, x, y *float32, n int) bool {
	if s == isa.NEON {
		axpyNEON(a, x, y, n)
	}
	return s == isa.NEON
}

func scal(s isa.Set, a float32, x *float32, n int) bool {
	if s == isa.NEON {
		scalNEON(a, x, n)
	}
	return s == isa.NEON
}

func sumSq(s isa.Set, lane *[lanes]float32, x *float32, n int) bool {
	if s == isa.NEON {
		sumSqNEON(&lane[0], x, n)
	}
	return s == isa.NEON
}

//go:noescape
func chains1NEON(acc, x, y *float32, n int)

//go:noescape
func chains4NEON(acc, x, y *float32, n int)

//go:noescape
func chains8NEON(acc, x, y *float32, n int)

//go:noescape
func axpyNEON(a float32, x, y *float32, n int)

//go:noescape
func scalNEON(a float32, x *float32, n int)

//go:noescape
func sumSqNEON(lanes, x *float32, n int)
