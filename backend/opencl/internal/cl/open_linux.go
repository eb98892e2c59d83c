//go:build amd64 || arm64

package cl

import "github.com/ebitengine/purego"

// libraries are the names of the ICD loader.
var libraries = []string{"libOpenCL.so.1", "libOpenCL.so"}

func open(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

func symbol(lib uintptr, name string) (uintptr, error) { return purego.Dlsym(lib, name) }
