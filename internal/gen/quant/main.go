// Command quant writes the assembly kernels of backend/cpu/internal/quant.
//
// On amd64 one description serves both instruction sets: a walk over the inputs that
// forms the weights of a panel's rows, with either a store (expand) or fused
// multiply-adds into the rows' chains (gemv; tile for several rows of inputs, AVX2) at
// its end.
package main

import (
	"flag"
	"log"

	. "github.com/mmcloughlin/avo/build"
)

var isaFlag = flag.String("isa", "avx2", "avx2, avx512 or neon")

func main() {
	flag.Parse()
	if *isaFlag == "neon" {
		if err := generateNEON(flag.Lookup("out").Value.String(), flag.Lookup("stubs").Value.String()); err != nil {
			log.Fatal(err)
		}
		return
	}
	evex := *isaFlag == "avx512"
	ConstraintExpr("amd64,!noasm")
	for _, f := range formats {
		kernel(f, evex, false)
		kernel(f, evex, true)
		for rows := 2; rows <= maxTile && f.tiles() && !evex; rows++ {
			tile(f, rows)
		}
	}
	Generate()
}

// funcName is e.g. gemvQ4_KAVX512.
func funcName(f format, evex, chain bool) string {
	verb, set := "expand", "AVX2"
	if chain {
		verb = "gemv"
	}
	if evex {
		set = "AVX512"
	}
	return verb + f.name + set
}
