//go:build noasm || !amd64

package quant

import (
	"samebit/backend/cpu/internal/isa"
	"samebit/internal/blockq"
)

// native finds no assembly here: NEON uses the portable kernels.
func native(isa.Set, blockq.Type) (kernels, bool) { return kernels{}, false }
