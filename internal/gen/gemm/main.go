// Command gemm writes the amd64 kernels of backend/cpu/internal/gemm.
package main

import (
	. "github.com/mmcloughlin/avo/build"
)

func main() { Generate() }
