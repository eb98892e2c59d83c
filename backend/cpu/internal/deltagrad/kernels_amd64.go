//go:build !noasm

package deltagrad

import "samebit/backend/cpu/internal/isa"

func native(s isa.Set) []strip {
	switch s {
	case isa.AVX2:
		return []strip{{64, dots64AVX2, pairs64AVX2, update64AVX2}, {32, dots32AVX2, pairs32AVX2, update32AVX2}}
	case isa.AVX512:
		return []strip{{64, dots64AVX512, pairs64AVX512, update64AVX512}, {32, dots32AVX512, pairs32AVX512, update32AVX512}}
	}
	return nil
}
