//go:build noasm || (!amd64 && !arm64)

package attn

import "samebit/backend/cpu/internal/isa"

// For returns the kernels of instruction set s, or the portable ones where s
// has none here.
func For(isa.Set) *Kernels { return generic() }
