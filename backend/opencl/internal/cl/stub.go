//go:build !((linux && (amd64 || arm64)) || (windows && amd64))

package cl

import (
	"fmt"
	"runtime"
)

// Load fails: no library can be loaded here without cgo.
func Load() (API, error) {
	return nil, fmt.Errorf("a program for %s/%s cannot load an OpenCL library: use linux/amd64, linux/arm64 or windows/amd64", runtime.GOOS, runtime.GOARCH)
}
