//go:build noasm || (!amd64 && !arm64)

package vec

import "samebit/backend/cpu/internal/isa"

func native(isa.Set) *Kernels { return nil }
