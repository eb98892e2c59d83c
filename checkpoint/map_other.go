//go:build !(darwin || freebsd || linux || netbsd || openbsd || windows)

package checkpoint

import (
	"io"
	"os"
)

// mapFile reads the file where there is no mapping (js, wasip1, plan9, ...).
func mapFile(f *os.File, size int) ([]byte, error) {
	data := make([]byte, size)
	_, err := io.ReadFull(f, data)
	return data, err
}

func unmap([]byte) error { return nil }

func advise([]byte, hint) {}
