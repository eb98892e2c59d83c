//go:build arm64 && !noasm

package quant

import (
	"unsafe"

	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
	"samebit/internal/blockq"
)

// native returns the NEON kernels of t. Gemv expands 128 inputs at a time into
// L1 and runs the chains from there: forming a weight costs more vector work
// than the store and load do, and the code stays small.
func native(s isa.Set, t blockq.Type, _ bool) (kernels, bool) {
	if s != isa.NEON {
		return kernels{}, false
	}
	blockLen := uintptr(layoutOf(t).blockLen)
	return kernels{
		expand: func(dst *float32, block *byte, chunks int) { expandNEON(t, dst, block, chunks) },
		gemv: func(y, x *float32, p *byte, chunks int) {
			var w [panel.KB * panel.Width]float32
			clear(unsafe.Slice(y, panel.Width))
			for at := 0; at < chunks; at += 4 {
				n := min(4, chunks-at)
				block := (*byte)(unsafe.Add(unsafe.Pointer(p), uintptr(at/4)*blockLen))
				expandNEON(t, &w[0], block, n)
				chainNEON(y, (*float32)(unsafe.Add(unsafe.Pointer(x), at*32*4)), &w[0], 32*n)
			}
		},
	}, true
}
