//go:build linux && (amd64 || arm64)

package driver

import (
	"fmt"

	"github.com/ebitengine/purego"
)

const libraryName = "libcuda.so.1"

// openLibrary loads a library and returns a finder of its functions.
func openLibrary(path string) (find func(name string) uintptr, err error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("cuda: loading %s: %w: %v", path, ErrNoDriver, err)
	}
	return func(name string) uintptr {
		p, err := purego.Dlsym(h, name)
		if err != nil {
			return 0
		}
		return p
	}, nil
}
