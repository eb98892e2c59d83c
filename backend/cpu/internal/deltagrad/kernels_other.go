//go:build noasm || !amd64

package deltagrad

import "samebit/backend/cpu/internal/isa"

func native(isa.Set) []strip { return nil }
