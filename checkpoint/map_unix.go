//go:build darwin || freebsd || linux || netbsd || openbsd

package checkpoint

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
}

func unmap(data []byte) error { return unix.Munmap(data) }

// advise passes a hint about whole pages of a mapping; failing to follow it
// changes nothing that a program could observe.
func advise(pages []byte, h hint) {
	if len(pages) == 0 {
		return
	}
	advice := unix.MADV_DONTNEED
	switch h {
	case willNeed:
		advice = unix.MADV_WILLNEED
	case sequential:
		advice = unix.MADV_SEQUENTIAL
	}
	_ = unix.Madvise(pages, advice)
}
