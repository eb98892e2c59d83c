//go:build !(linux && (amd64 || arm64)) && !(windows && amd64)

package driver

import (
	"fmt"
	"runtime"
)

// Load finds no driver on this platform: it fails with ErrNoDevice.
func Load(string) (Driver, error) {
	return nil, fmt.Errorf("cuda: on %s/%s: %w", runtime.GOOS, runtime.GOARCH, ErrNoDevice)
}
