//go:build noasm || (!amd64 && !arm64)

package gemm

import "samebit/backend/cpu/internal/isa"

func native(isa.Set) (*Kernels, bool) { return nil, false }

func nativeFormat(isa.Set, DType) format { return format{} }
