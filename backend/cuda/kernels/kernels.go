// Package kernels holds the CUDA kernels: CUDA C sources, and the PTX that
// scripts/build-ptx.sh makes of them and that drivers and the emulator load.
//
// The sources use only correctly rounded instructions in the orders of
// docs/numerics.md; docs/cuda.md says how each kernel divides its work.
package kernels

import (
	"embed"
	"strings"
)

//go:embed *.ptx
var files embed.FS

// Modules lists the names of the modules: one per source file, of the products one
// per storage type.
func Modules() []string {
	list, _ := files.ReadDir(".") // of files that are part of the program
	var l []string
	for _, e := range list {
		l = append(l, strings.TrimSuffix(e.Name(), ".ptx"))
	}
	return l
}

// PTX is the text of a module; nil if there is none of that name.
func PTX(module string) []byte {
	b, _ := files.ReadFile(module + ".ptx")
	return b
}
