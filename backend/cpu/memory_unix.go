//go:build unix

package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapped returns zeroed pages. Mappings of several megabytes begin at a huge page
// and ask for them: weights and old keys are read front to back every token, and
// small pages cost translations.
func mapped(bytes int) ([]byte, error) {
	if bytes < hugePage {
		return unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	}
	// Ask for more than needed and give the ends back.
	page := unix.Getpagesize()
	size := (bytes + page - 1) / page * page
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size+hugePage), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	skip := int(-uintptr(p) & (hugePage - 1))
	if skip > 0 {
		if err := unix.MunmapPtr(p, uintptr(skip)); err != nil {
			return nil, err
		}
	}
	q := unsafe.Add(p, skip)
	if rest := hugePage - skip; rest > 0 {
		if err := unix.MunmapPtr(unsafe.Add(q, size), uintptr(rest)); err != nil {
			return nil, err
		}
	}
	b := unsafe.Slice((*byte)(q), bytes)
	hugePages(b)
	return b, nil
}

func unmap(b []byte) {
	switch {
	case len(b) == 0:
	case len(b) < hugePage:
		_ = unix.Munmap(b) // a range that Mmap gave cannot fail to unmap
	default:
		page := unix.Getpagesize()
		_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr((len(b)+page-1)/page*page))
	}
}
