// Command quant writes the amd64 kernels of backend/cpu/internal/quant.
//
// One description serves both instruction sets: a walk over the inputs that
// forms the weights of nv vectors of rows, with either a store (expand) or a
// fused multiply-add into the rows' chains (gemv) at its end.
package main

import (
	"flag"
	"fmt"

	. "github.com/mmcloughlin/avo/build"
)

var isaFlag = flag.String("isa", "avx2", "avx2 or avx512")

func main() {
	flag.Parse()
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
