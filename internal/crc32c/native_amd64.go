//go:build !noasm

package crc32c

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// step is what foldAVX512 takes at a time, in bytes.
const step = 512

var vectors = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42

// fold returns the sum of the first n bytes.
func fold(data []byte) (sum uint32, n int) {
	if n = len(data) &^ (step - 1); n == 0 || !vectors {
		return 0, 0
	}
	return foldAVX512(unsafe.SliceData(data), n), n
}
