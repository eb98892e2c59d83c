package emu

import "unsafe"

// within reports whether b lies in the n bytes at p.
func within(b []byte, p *byte, n int) bool {
	if len(b) == 0 {
		return false
	}
	from, at := uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&b[0]))
	return at >= from && at-from+uintptr(len(b)) <= uintptr(n)
}
