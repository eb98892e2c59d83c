//go:build unix

package cpu

import "golang.org/x/sys/unix"

// mapped returns zeroed pages. Mappings of several megabytes ask for huge pages:
// weights are read front to back every token, and small pages cost translations.
func mapped(bytes int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	if bytes >= 2<<20 {
		hugePages(b)
	}
	return b, nil
}

func unmap(b []byte) {
	if len(b) > 0 {
		_ = unix.Munmap(b) // a range that Mmap gave cannot fail to unmap
	}
}
