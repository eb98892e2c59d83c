// Package isa says which instruction sets the kernels of the cpu backend may
// use here. Every set gives the same bits; tests walk all that are available.
package isa

import (
	"fmt"
	"strings"
)

// Set is one implementation of the kernels.
type Set uint8

const (
	Generic Set = iota // portable Go
	NEON               // arm64 ASIMD
	AVX2               // amd64 with AVX2, FMA and F16C
	AVX512             // amd64 with AVX-512 F, DQ, VL and BW
)

var names = [...]string{"generic", "neon", "avx2", "avx512"}

func (s Set) String() string {
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("isa.Set(%d)", uint8(s))
}

// Available lists the sets that this machine and build can run, Generic first,
// the fastest last.
func Available() []Set { return append([]Set{Generic}, native()...) }

// Best is the fastest available set.
func Best() Set { a := Available(); return a[len(a)-1] }

// Wide says whether [AVX512] is available here and its 512-bit vectors do twice the work of
// 256-bit ones in the same time: kernels that come in both widths choose by it.
func Wide() bool { return wide }

// Parse finds an available set by name; the empty name means Best.
func Parse(name string) (Set, error) {
	if name == "" {
		return Best(), nil
	}
	var have []string
	for _, s := range Available() {
		if s.String() == name {
			return s, nil
		}
		have = append(have, s.String())
	}
	return 0, fmt.Errorf("isa: %q is not available here (available: %s)", name, strings.Join(have, ", "))
}
