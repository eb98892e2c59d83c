//go:build noasm || (!amd64 && !arm64)

package quant

import (
	"samebit/backend/cpu/internal/isa"
	"samebit/internal/blockq"
)

// native finds no assembly in this build.
func native(isa.Set, blockq.Type, bool) (kernels, bool) { return kernels{}, false }
