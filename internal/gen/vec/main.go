// Command vec writes the amd64 kernels of backend/cpu/internal/vec: the same
// descriptions once for AVX2 and once for AVX-512.
package main

import (
	"flag"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	wide := flag.Bool("avx512", false, "write the AVX-512 forms")
	flag.Parse()
	e := &emitter{wide: *wide}
	ConstraintExpr("!noasm")
	e.constants()
	elementwise(e)
	reductions(e)
	if !e.wide {
		// One form serves both sets: these wait for memory, not for lanes.
		searches(e)
		conversions(e)
	}
	Generate()
}
