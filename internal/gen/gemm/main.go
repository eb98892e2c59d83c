// Command gemm writes the amd64 assembly of backend/cpu/internal/gemm. Its
// argument names the group of kernels: tile, gemv, pack or blas1.
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
		tiles()
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
