// Command quant writes the assembly kernels of backend/cpu/internal/quant.
//
// On amd64 one description serves both instruction sets: a walk over the inputs that
// forms the weights of a panel's rows, with either a store (expand) or fused
// multiply-adds into the rows' chains (gemv; tile for several rows of inputs) at
// its end. AVX-512 has two forms of it, with vectors of 256 and of 512 bits.
package main

import (
	"flag"
	"log"

	. "github.com/mmcloughlin/avo/build"
)

var isaFlag = flag.String("isa", "avx2", "avx2, avx512, neon, or pack: the layout of panels for amd64")

func main() {
	flag.Parse()
	if *isaFlag == "neon" {
		if err := generateNEON(flag.Lookup("out").Value.String(), flag.Lookup("stubs").Value.String()); err != nil {
			log.Fatal(err)
		}
		return
	}
	if *isaFlag == "pack" {
		ConstraintExpr("amd64,!noasm")
		packs()
		Generate()
		return
	}
	forms := []form{avx2}
	if *isaFlag == "avx512" {
		forms = []form{avx512, wide}
	}
	ConstraintExpr("amd64,!noasm")
	for _, f := range formats {
		for _, in := range forms {
			kernel(f, in, false)
			kernel(f, in, true)
			for rows := 2; rows <= maxTile && in != avx512; rows++ {
				tile(f, in, rows)
			}
		}
	}
	Generate()
}

// funcName is e.g. gemvQ4_KAVX512.
func funcName(f format, in form, chain bool) string {
	verb := "expand"
	if chain {
		verb = "gemv"
	}
	return verb + f.name + in.name
}
