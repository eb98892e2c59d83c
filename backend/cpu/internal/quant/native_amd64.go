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
		k := avx2(t)
		k.pack, _ = packs(t)
		return k, true
	case isa.AVX512:
		k := avx512(t)
		if wide {
			k = avx512Wide(t)
		}
		_, k.pack = packs(t)
		return k, true
	}
	return kernels{}, false
}

func packs(t blockq.Type) (avx2, avx512 packFunc) {
	switch t {
	case blockq.Q8_0:
		return packQ8_0AVX2, packQ8_0AVX512
	case blockq.Q4_0:
		return packQ4_0AVX2, packQ4_0AVX512
	case blockq.Q4_1:
		return packQ4_1AVX2, packQ4_1AVX512
	case blockq.Q5_0:
		return packQ5_0AVX2, packQ5_0AVX512
	case blockq.Q5_1:
		return packQ5_1AVX2, packQ5_1AVX512
	case blockq.Q2_K:
		return packQ2_KAVX2, packQ2_KAVX512
	case blockq.Q3_K:
		return packQ3_KAVX2, packQ3_KAVX512
	case blockq.Q4_K:
		return packQ4_KAVX2, packQ4_KAVX512
	case blockq.Q5_K:
		return packQ5_KAVX2, packQ5_KAVX512
	case blockq.Q6_K:
		return packQ6_KAVX2, packQ6_KAVX512
	}
	return nil, nil
}

func avx2(t blockq.Type) kernels {
	switch t {
	case blockq.Q8_0:
		return kernels{expand: expandQ8_0AVX2, gemv: gemvQ8_0AVX2, tile: tiles{tileQ8_0_2AVX2, tileQ8_0_3AVX2, tileQ8_0_4AVX2}}
	case blockq.Q4_0:
		return kernels{expand: expandQ4_0AVX2, gemv: gemvQ4_0AVX2, tile: tiles{tileQ4_0_2AVX2, tileQ4_0_3AVX2, tileQ4_0_4AVX2}}
	case blockq.Q4_1:
		return kernels{expand: expandQ4_1AVX2, gemv: gemvQ4_1AVX2, tile: tiles{tileQ4_1_2AVX2, tileQ4_1_3AVX2, tileQ4_1_4AVX2}}
	case blockq.Q5_0:
		return kernels{expand: expandQ5_0AVX2, gemv: gemvQ5_0AVX2, tile: tiles{tileQ5_0_2AVX2, tileQ5_0_3AVX2, tileQ5_0_4AVX2}}
	case blockq.Q5_1:
		return kernels{expand: expandQ5_1AVX2, gemv: gemvQ5_1AVX2, tile: tiles{tileQ5_1_2AVX2, tileQ5_1_3AVX2, tileQ5_1_4AVX2}}
	case blockq.Q2_K:
		return kernels{expand: expandQ2_KAVX2, gemv: gemvQ2_KAVX2, tile: tiles{tileQ2_K_2AVX2, tileQ2_K_3AVX2, tileQ2_K_4AVX2}}
	case blockq.Q3_K:
		return kernels{expand: expandQ3_KAVX2, gemv: gemvQ3_KAVX2, tile: tiles{tileQ3_K_2AVX2, tileQ3_K_3AVX2, tileQ3_K_4AVX2}}
	case blockq.Q4_K:
		return kernels{expand: expandQ4_KAVX2, gemv: gemvQ4_KAVX2, tile: tiles{tileQ4_K_2AVX2, tileQ4_K_3AVX2, tileQ4_K_4AVX2}}
	case blockq.Q5_K:
		return kernels{expand: expandQ5_KAVX2, gemv: gemvQ5_KAVX2, tile: tiles{tileQ5_K_2AVX2, tileQ5_K_3AVX2, tileQ5_K_4AVX2}}
	case blockq.Q6_K:
		return kernels{expand: expandQ6_KAVX2, gemv: gemvQ6_KAVX2, tile: tiles{tileQ6_K_2AVX2, tileQ6_K_3AVX2, tileQ6_K_4AVX2}}
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
		return kernels{expand: expandQ8_0AVX512Wide, gemv: gemvQ8_0AVX512Wide, tile: tiles{tileQ8_0_2AVX512Wide, tileQ8_0_3AVX512Wide, tileQ8_0_4AVX512Wide}}
	case blockq.Q4_0:
		return kernels{expand: expandQ4_0AVX512Wide, gemv: gemvQ4_0AVX512Wide, tile: tiles{tileQ4_0_2AVX512Wide, tileQ4_0_3AVX512Wide, tileQ4_0_4AVX512Wide}}
	case blockq.Q4_1:
		return kernels{expand: expandQ4_1AVX512Wide, gemv: gemvQ4_1AVX512Wide, tile: tiles{tileQ4_1_2AVX512Wide, tileQ4_1_3AVX512Wide, tileQ4_1_4AVX512Wide}}
	case blockq.Q5_0:
		return kernels{expand: expandQ5_0AVX512Wide, gemv: gemvQ5_0AVX512Wide, tile: tiles{tileQ5_0_2AVX512Wide, tileQ5_0_3AVX512Wide, tileQ5_0_4AVX512Wide}}
	case blockq.Q5_1:
		return kernels{expand: expandQ5_1AVX512Wide, gemv: gemvQ5_1AVX512Wide, tile: tiles{tileQ5_1_2AVX512Wide, tileQ5_1_3AVX512Wide, tileQ5_1_4AVX512Wide}}
	case blockq.Q2_K:
		return kernels{expand: expandQ2_KAVX512Wide, gemv: gemvQ2_KAVX512Wide, tile: tiles{tileQ2_K_2AVX512Wide, tileQ2_K_3AVX512Wide, tileQ2_K_4AVX512Wide}}
	case blockq.Q3_K:
		return kernels{expand: expandQ3_KAVX512Wide, gemv: gemvQ3_KAVX512Wide, tile: tiles{tileQ3_K_2AVX512Wide, tileQ3_K_3AVX512Wide, tileQ3_K_4AVX512Wide}}
	case blockq.Q4_K:
		return kernels{expand: expandQ4_KAVX512Wide, gemv: gemvQ4_KAVX512Wide, tile: tiles{tileQ4_K_2AVX512Wide, tileQ4_K_3AVX512Wide, tileQ4_K_4AVX512Wide}}
	case blockq.Q5_K:
		return kernels{expand: expandQ5_KAVX512Wide, gemv: gemvQ5_KAVX512Wide, tile: tiles{tileQ5_K_2AVX512Wide, tileQ5_K_3AVX512Wide, tileQ5_K_4AVX512Wide}}
	case blockq.Q6_K:
		return kernels{expand: expandQ6_KAVX512Wide, gemv: gemvQ6_KAVX512Wide, tile: tiles{tileQ6_K_2AVX512Wide, tileQ6_K_3AVX512Wide, tileQ6_K_4AVX512Wide}}
	}
	return kernels{}
}
