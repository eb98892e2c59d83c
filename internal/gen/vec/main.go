// Command vec writes the amd64 kernels of backend/cpu/internal/vec: the same
// descriptions once for AVX2 and once for AVX-512, and the
// arm64 kernels.
package main

import (
	"flag"
	"log"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	wide := flag.Bool("avx512", false, "write the AVX-512 forms")
	arm64 := flag.String("neon", "", "write the arm64 forms to this file instead")
	flag.Parse()
	if *arm64 != "" {
		if err := writeNEON(*arm64, "go run ./vec -neon "+*arm64); err != nil {
			log.Fatal(err)
		}
		return
	}
	e := &emitter{wide: *wide}
	ConstraintExpr("!noasm")
	e.constants()
	elementwise(e)
	reductions(e)
	mixRows(e)
	gradients(e)
	if !e.wide {
		// One form serves both sets: it waits for memory, not for lanes.
		searches(e)
	}
	Generate()
}
