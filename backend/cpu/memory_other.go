//go:build !unix

package cpu

import "unsafe"

// mapped falls back to the Go heap where there is no anonymous mapping.
func mapped(bytes int) ([]byte, error) {
	const align = 256
	b := make([]byte, bytes+align)
	o := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (align - 1))
	return b[o : o+bytes : o+bytes], nil
}

func unmap([]byte) {}
