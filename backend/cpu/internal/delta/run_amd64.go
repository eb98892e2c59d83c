//go:build amd64 && !noasm

package delta

import (
	"unsafe"

	"samebit/backend/cpu/internal/isa"
)

func native(s isa.Set) func(h *Head, tmp []float32) {
	if s != isa.AVX2 && s != isa.AVX512 {
		return nil
	}
	return func(h *Head, tmp []float32) { run(h, tmp, s) }
}

// do is one sweep. The calls are spelled out because a call through a variable
// would move s to the heap.
func (s *step) do(first, last bool, set isa.Set) {
	p := (*byte)(unsafe.Pointer(s))
	if set == isa.AVX512 {
		if first {
			beginAVX512(p)
		}
		switch {
		case first && last:
			stepFirstLastAVX512(p)
		case first:
			stepFirstAVX512(p)
		case last:
			stepLastAVX512(p)
		default:
			stepAVX512(p)
		}
		return
	}
	if first {
		beginAVX2(p)
	}
	switch {
	case first && last:
		stepFirstLastAVX2(p)
	case first:
		stepFirstAVX2(p)
	case last:
		stepLastAVX2(p)
	default:
		stepAVX2(p)
	}
}
