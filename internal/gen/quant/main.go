// Command quant writes the assembly kernels of backend/cpu/internal/quant.
//
// On amd64 one description serves both instruction sets: a walk over the inputs that
// forms the weights of nv vectors of rows, with either a store (expand) or a
// fused multiply-add into the rows' chains (gemv) at its end.
package main

import (
	"flag"
	"fmt"
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
	wide := *isaFlag == "avx512"
	ConstraintExpr("amd64,!noasm")
	for _, f := range formats {
		if wide {
			kernel(f, wide, 2, false)
			kernel(f, wide, 2, true)
			kernel(f, wide, 4, true)
		} else {
			kernel(f, wide, 4, false)
			kernel(f, wide, 4, true)
		}
	}
	Generate()
}

// funcName is e.g. gemv2Q4_KAVX512: two panels at a time.
func funcName(f format, wide bool, panels int, chain bool) string {
	set := "AVX2"
	if wide {
		set = "AVX512"
	}
	if !chain {
		return fmt.Sprintf("expand%s%s", f.name, set)
	}
	return fmt.Sprintf("gemv%d%s%s", panels, f.name, set)
}
