// Command gemm writes the amd64 assembly of backend/cpu/internal/gemm. Its
// argument names the group of kernels: tile, tilebf16,
// tilef16, gemv, pack or blas1.
package main

import (
	"flag"
	"log"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	flag.Parse()
	ConstraintExpr("!noasm")
	switch group := flag.Arg(0); group {
	case "tile":
		tiles(formats[0])
	case "tilebf16":
		tiles(formats[1])
	case "tilef16":
		tiles(formats[2])
	case "gemv":
		gemvs()
	case "pack":
		packs()
	case "blas1":
		blas1()
	default:
		log.Fatalf("gemm: no group of kernels %q", group)
	}
	Generate()
}
