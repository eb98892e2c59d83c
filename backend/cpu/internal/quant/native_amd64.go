//go:build amd64 && !noasm

package quant

import (
	"samebit/backend/cpu/internal/isa"
	"samebit/internal/blockq"
)

// native returns the assembly kernels of t for s, those with 512-bit vectors where wide
// says so and s has them.
func native(s isa.Set, t blockq.Type, wide bool) (kernels, bool) {
	switch s {
	case isa.AVX2:
		return avx2(t), true
	case isa.AVX512:
		if wide {
			return avx512Wide(t), true
		}
		return avx512(t), true
	}
	return kernels{}, false
}

func avx2(t blockq.Type) kernels {
	switch t {
	case blockq.Q8_0:
		return kernels{expandQ8_0AVX2, gemvQ8_0AVX2, tiles{tileQ8_0_2AVX2, tileQ8_0_3AVX2, tileQ8_0_4AVX2}}
	case blockq.Q4_0:
		return kernels{expandQ4_0AVX2, gemvQ4_0AVX2, tiles{tileQ4_0_2AVX2, tileQ4_0_3AVX2, tileQ4_0_4AVX2}}
	case blockq.Q4_1:
		return kernels{expandQ4_1AVX2, gemvQ4_1AVX2, tiles{tileQ4_1_2AVX2, tileQ4_1_3AVX2, tileQ4_1_4AVX2}}
	case blockq.Q5_0:
		return kernels{expand: expandQ5_0AVX2, gemv: gemvQ5_0AVX2}
	case blockq.Q5_1:
		return kernels{expand: expandQ5_1AVX2, gemv: gemvQ5_1AVX2}
	case blockq.Q2_K:
		return kernels{expandQ2_KAVX2, gemvQ2_KAVX2, tiles{tileQ2_K_2AVX2, tileQ2_K_3AVX2, tileQ2_K_4AVX2}}
	case blockq.Q3_K:
		return kernels{expand: expandQ3_KAVX2, gemv: gemvQ3_KAVX2}
	case blockq.Q4_K:
		return kernels{expandQ4_KAVX2, gemvQ4_KAVX2, tiles{tileQ4_K_2AVX2, tileQ4_K_3AVX2, tileQ4_K_4AVX2}}
	case blockq.Q5_K:
		return kernels{expand: expandQ5_KAVX2, gemv: gemvQ5_KAVX2}
	case blockq.Q6_K:
		return kernels{expand: expandQ6_KAVX2, gemv: gemvQ6_KAVX2}
	}
	return kernels{}
}

func avx512(t blockq.Type) kernels {
	switch t {
	case blockq.Q8_0:
		return kernels{expand: expandQ8_0AVX512, gemv: gemvQ8_0AVX512}
	case blockq.Q4_0:
		return kernels{expand: expandQ4_0AVX512, gemv: gemvQ4_0AVX512}
	case blockq.Q4_1:
		return kernels{expand: expandQ4_1AVX512, gemv: gemvQ4_1AVX512}
	case blockq.Q5_0:
		return kernels{expand: expandQ5_0AVX512, gemv: gemvQ5_0AVX512}
	case blockq.Q5_1:
		return kernels{expand: expandQ5_1AVX512, gemv: gemvQ5_1AVX512}
	case blockq.Q2_K:
		return kernels{expand: expandQ2_KAVX512, gemv: gemvQ2_KAVX512}
	case blockq.Q3_K:
		return kernels{expand: expandQ3_KAVX512, gemv: gemvQ3_KAVX512}
	case blockq.Q4_K:
		return kernels{expand: expandQ4_KAVX512, gemv: gemvQ4_KAVX512}
	case blockq.Q5_K:
		return kernels{expand: expandQ5_KAVX512, gemv: gemvQ5_KAVX512}
	case blockq.Q6_K:
		return kernels{expand: expandQ6_KAVX512, gemv: gemvQ6_KAVX512}
	}
	return kernels{}
}

func avx512Wide(t blockq.Type) kernels {
	switch t {
	case blockq.Q8_0:
		return kernels{expandQ8_0AVX512Wide, gemvQ8_0AVX512Wide, tiles{tileQ8_0_2AVX512Wide, tileQ8_0_3AVX512Wide, tileQ8_0_4AVX512Wide}}
	case blockq.Q4_0:
		return kernels{expandQ4_0AVX512Wide, gemvQ4_0AVX512Wide, tiles{tileQ4_0_2AVX512Wide, tileQ4_0_3AVX512Wide, tileQ4_0_4AVX512Wide}}
	case blockq.Q4_1:
		return kernels{expandQ4_1AVX512Wide, gemvQ4_1AVX512Wide, tiles{tileQ4_1_2AVX512Wide, tileQ4_1_3AVX512Wide, tileQ4_1_4AVX512Wide}}
	case blockq.Q5_0:
		return kernels{expandQ5_0AVX512Wide, gemvQ5_0AVX512Wide, tiles{tileQ5_0_2AVX512Wide, tileQ5_0_3AVX512Wide, tileQ5_0_4AVX512Wide}}
	case blockq.Q5_1:
		return kernels{expandQ5_1AVX512Wide, gemvQ5_1AVX512Wide, tiles{tileQ5_1_2AVX512Wide, tileQ5_1_3AVX512Wide, tileQ5_1_4AVX512Wide}}
	case blockq.Q2_K:
		return kernels{expandQ2_KAVX512Wide, gemvQ2_KAVX512Wide, tiles{tileQ2_K_2AVX512Wide, tileQ2_K_3AVX512Wide, tileQ2_K_4AVX512Wide}}
	case blockq.Q3_K:
		return kernels{expandQ3_KAVX512Wide, gemvQ3_KAVX512Wide, tiles{tileQ3_K_2AVX512Wide, tileQ3_K_3AVX512Wide, tileQ3_K_4AVX512Wide}}
	case blockq.Q4_K:
		return kernels{expandQ4_KAVX512Wide, gemvQ4_KAVX512Wide, tiles{tileQ4_K_2AVX512Wide, tileQ4_K_3AVX512Wide, tileQ4_K_4AVX512Wide}}
	case blockq.Q5_K:
		return kernels{expandQ5_KAVX512Wide, gemvQ5_KAVX512Wide, tiles{tileQ5_K_2AVX512Wide, tileQ5_K_3AVX512Wide, tileQ5_K_4AVX512Wide}}
	case blockq.Q6_K:
		return kernels{expandQ6_KAVX512Wide, gemvQ6_KAVX512Wide, tiles{tileQ6_K_2AVX512Wide, tileQ6_K_3AVX512Wide, tileQ6_K_4AVX512Wide}}
	}
	return kernels{}
}
