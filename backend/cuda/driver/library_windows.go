//go:build windows && amd64

package driver

import (
	"fmt"

	"golang.org/x/sys/windows"
)

const libraryName = "nvcuda.dll"

// openLibrary loads a library and returns a finder of its functions.
func openLibrary(path string) (find func(name string) uintptr, err error) {
	flags := uintptr(0)
	if path == libraryName {
		flags = windows.LOAD_LIBRARY_SEARCH_SYSTEM32
	}
	h, err := windows.LoadLibraryEx(path, 0, flags)
	if err != nil {
		return nil, fmt.Errorf("cuda: loading %s: %w: %v", path, ErrNoDriver, err)
	}
	return func(name string) uintptr {
		p, err := windows.GetProcAddress(h, name)
		if err != nil {
			return 0
		}
		return p
	}, nil
}
