//go:build amd64 && !noasm

package quant

import (
	"samebit/backend/cpu/internal/isa"
	"samebit/internal/blockq"
)

// native returns the assembly kernels of t for s.
func native(s isa.Set, t blockq.Type) (kernels, bool) {
	switch s {
	case isa.AVX2:
		return avx2(t), true
	case isa.AVX512:
		return avx512(t), true
	}
	return kernels{}, false
}

func avx2(t blockq.Type) kernels {
	switch t {
	case blockq.Q8_0:
		return kernels{expandQ8_0AVX2, gemvQ8_0AVX2}
	case blockq.Q4_0:
		return kernels{expandQ4_0AVX2, gemvQ4_0AVX2}
	case blockq.Q4_1:
		return kernels{expandQ4_1AVX2, gemvQ4_1AVX2}
	case blockq.Q5_0:
		return kernels{expandQ5_0AVX2, gemvQ5_0AVX2}
	case blockq.Q5_1:
		return kernels{expandQ5_1AVX2, gemvQ5_1AVX2}
	case blockq.Q2_K:
		return kernels{expandQ2_KAVX2, gemvQ2_KAVX2}
	case blockq.Q3_K:
		return kernels{expandQ3_KAVX2, gemvQ3_KAVX2}
	case blockq.Q4_K:
		return kernels{expandQ4_KAVX2, gemvQ4_KAVX2}
	case blockq.Q5_K:
		return kernels{expandQ5_KAVX2, gemvQ5_KAVX2}
	case blockq.Q6_K:
		return kernels{expandQ6_KAVX2, gemvQ6_KAVX2}
	}
	return kernels{}
}

func avx512(t blockq.Type) kernels {
	switch t {
	case blockq.Q8_0:
		return kernels{expandQ8_0AVX512, gemvQ8_0AVX512}
	case blockq.Q4_0:
		return kernels{expandQ4_0AVX512, gemvQ4_0AVX512}
	case blockq.Q4_1:
		return kernels{expandQ4_1AVX512, gemvQ4_1AVX512}
	case blockq.Q5_0:
		return kernels{expandQ5_0AVX512, gemvQ5_0AVX512}
	case blockq.Q5_1:
		return kernels{expandQ5_1AVX512, gemvQ5_1AVX512}
	case blockq.Q2_K:
		return kernels{expandQ2_KAVX512, gemvQ2_KAVX512}
	case blockq.Q3_K:
		return kernels{expandQ3_KAVX512, gemvQ3_KAVX512}
	case blockq.Q4_K:
		return kernels{expandQ4_KAVX512, gemvQ4_KAVX512}
	case blockq.Q5_K:
		return kernels{expandQ5_KAVX512, gemvQ5_KAVX512}
	case blockq.Q6_K:
		return kernels{expandQ6_KAVX512, gemvQ6_KAVX512}
	}
	return kernels{}
}
