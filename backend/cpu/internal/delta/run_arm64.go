//go:build arm64 && !noasm

package delta

import (
	"unsafe"

	"samebit/backend/cpu/internal/isa"
)

//go:noescape
func beginNEON(s *byte)

//go:noescape
func stepNEON(s *byte)

//go:noescape
func stepLastNEON(s *byte)

//go:noescape
func stepFirstNEON(s *byte)

//go:noescape
func stepFirstLastNEON(s *byte)

func native(s isa.Set) func(h *Head, tmp []float32) {
	if s != isa.NEON {
		return nil
	}
	return func(h *Head, tmp []float32) { run(h, tmp, s) }
}

// do is one sweep.
func (s *step) do(first, last bool, _ isa.Set) {
	p := (*byte)(unsafe.Pointer(s))
	if first {
		beginNEON(p)
	}
	switch {
	case first && last:
		stepFirstLastNEON(p)
	case first:
		stepFirstNEON(p)
	case last:
		stepLastNEON(p)
	default:
		stepNEON(p)
	}
}
