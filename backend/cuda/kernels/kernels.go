// Package kernels holds the CUDA kernels: CUDA C sources, and the PTX that
// scripts/build-ptx.sh makes of them and that drivers and the emulator load.
//
// The sources use only correctly rounded instructions in the orders of
// docs/numerics.md, except those of the fast mode, which have modules of their own;
// docs/cuda.md says how each kernel divides its work.
package kernels

import (
	"embed"
	"strings"
)

//go:embed *.ptx
var files embed.FS

// Modules lists the names of the modules: one per source file, of the products one
// per storage type. Those of the fast mode are not among them.
func Modules() []string { return modules(false) }

// Fast lists the modules of the fast mode, whose results are not exact.
func Fast() []string { return modules(true) }

func modules(fast bool) []string {
	list, _ := files.ReadDir(".") // of files that are part of the program
	var l []string
	for _, e := range list {
		if name := strings.TrimSuffix(e.Name(), ".ptx"); IsFast(name) == fast {
			l = append(l, name)
		}
	}
	return l
}

// IsFast reports whether a module belongs to the fast mode.
func IsFast(module string) bool { return strings.HasPrefix(module, "fast") }

// PTX is the text of a module; nil if there is none of that name.
func PTX(module string) []byte {
	b, _ := files.ReadFile(module + ".ptx")
	return b
}
