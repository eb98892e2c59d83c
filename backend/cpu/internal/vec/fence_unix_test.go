//go:build unix

package vec

import (
	"syscall"
	"testing"
	"unsafe"
)

// fenced returns n floats that end where unreadable memory begins, so that a
// kernel that touches what lies behind its slice faults.
func fenced(tb testing.TB, n int) []float32 {
	tb.Helper()
	page := syscall.Getpagesize()
	size := (4*n + page - 1) / page * page
	b, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { syscall.Munmap(b) })
	if err := syscall.Mprotect(b[size:], syscall.PROT_NONE); err != nil {
		tb.Fatal(err)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[size-4*n])), n)
}
