//go:build !noasm

package gemm

import "samebit/backend/cpu/internal/isa"

var (
	turnsAVX2   = []turnFunc{2: turn4AVX2, 3: turn4AVX2, 4: turn4AVX2, 5: turn8AVX2, 6: turn8AVX2, 7: turn8AVX2, 8: turn8AVX2}
	turnsAVX512 = []turnFunc{
		1: turn4AVX512, 2: turn4AVX512, 3: turn4AVX512, 4: turn4AVX512,
		5: turn8AVX512, 6: turn8AVX512, 7: turn8AVX512, 8: turn8AVX512,
		9: turn12AVX512, 10: turn12AVX512, 11: turn12AVX512, 12: turn12AVX512,
		13: turn16AVX512, 14: turn16AVX512, 15: turn16AVX512, 16: turn16AVX512,
	}
)

func native(s isa.Set) (*Kernels, bool) {
	switch s {
	case isa.AVX2:
		return &Kernels{mr: 6, wide: 3, turn: turnsAVX2, pairs: true, many: 4, side: packRows, tile: [maxRows + 1]tileFunc{
			1: tile1AVX2, 2: tile2AVX2, 3: tile3AVX2, 4: tile4AVX2, 5: tile5AVX2, 6: tile6AVX2,
		}, fused: [2]fusedTiles{
			{name: "bf16", step: 8, panelStep: 32, tile: [maxRows + 1]tileFunc{1: tileBF161AVX2, 2: tileBF162AVX2, 3: tileBF163AVX2, 4: tileBF164AVX2, 5: tileBF165AVX2, 6: tileBF166AVX2}},
			{name: "f16", step: 16, panelStep: 32, tile: [maxRows + 1]tileFunc{1: tileF161AVX2, 2: tileF162AVX2, 3: tileF163AVX2, 4: tileF164AVX2, 5: tileF165AVX2, 6: tileF166AVX2}},
		}}, true
	case isa.AVX512:
		return &Kernels{mr: 14, wide: 14, turn: turnsAVX512, pairs: true, many: 12, side: packRowsAVX512, tile: [maxRows + 1]tileFunc{
			1: tile1AVX512, 2: tile2AVX512, 3: tile3AVX512, 4: tile4AVX512, 5: tile5AVX512, 6: tile6AVX512, 7: tile7AVX512,
			8: tile8AVX512, 9: tile9AVX512, 10: tile10AVX512, 11: tile11AVX512, 12: tile12AVX512, 13: tile13AVX512, 14: tile14AVX512,
		}, fused: [2]fusedTiles{
			{name: "bf16", tile: [maxRows + 1]tileFunc{1: tileBF161AVX512, 2: tileBF162AVX512, 3: tileBF163AVX512, 4: tileBF164AVX512, 5: tileBF165AVX512, 6: tileBF166AVX512, 7: tileBF167AVX512, 8: tileBF168AVX512, 9: tileBF169AVX512, 10: tileBF1610AVX512, 11: tileBF1611AVX512, 12: tileBF1612AVX512, 13: tileBF1613AVX512, 14: tileBF1614AVX512}},
			{name: "f16", tile: [maxRows + 1]tileFunc{1: tileF161AVX512, 2: tileF162AVX512, 3: tileF163AVX512, 4: tileF164AVX512, 5: tileF165AVX512, 6: tileF166AVX512, 7: tileF167AVX512, 8: tileF168AVX512, 9: tileF169AVX512, 10: tileF1610AVX512, 11: tileF1611AVX512, 12: tileF1612AVX512, 13: tileF1613AVX512, 14: tileF1614AVX512}},
		}}, true
	}
	return nil, false
}

func nativeFormat(s isa.Set, dt DType) format {
	switch s {
	case isa.AVX2:
		return formatAVX2(dt)
	case isa.AVX512:
		return formatAVX512(dt)
	}
	return format{}
}

func formatAVX2(dt DType) format {
	switch dt {
	case BF16:
		return format{
			gemv:     []gemvKernel{{3, gemvBF16x3AVX2}, {2, gemvBF16x2AVX2}, {1, gemvBF16x1AVX2}},
			expand:   expandBF16AVX2,
			pack:     func(dst, src *byte, stride, n int) { packHalfAVX2(dst, src, stride, 16*stride, n) },
			packStep: 16,
			narrow:   packNarrowAVX2,
		}
	case F16:
		return format{
			gemv:     []gemvKernel{{3, gemvF16x3AVX2}, {2, gemvF16x2AVX2}, {1, gemvF16x1AVX2}},
			expand:   expandF16AVX2,
			pack:     func(dst, src *byte, stride, n int) { packHalfAVX2(dst, src, 2*stride, stride, n) },
			packStep: 16,
		}
	}
	return format{
		gemv:     []gemvKernel{{3, gemvF32x3AVX2}, {2, gemvF32x2AVX2}, {1, gemvF32x1AVX2}},
		pack:     packF32AVX2,
		packStep: 16,
	}
}

func formatAVX512(dt DType) format {
	switch dt {
	case BF16:
		return format{
			gemv:     []gemvKernel{{4, gemvBF16x4AVX512}, {3, gemvBF16x3AVX512}, {2, gemvBF16x2AVX512}, {1, gemvBF16x1AVX512}},
			expand:   expandBF16AVX512,
			pack:     func(dst, src *byte, stride, n int) { packHalfAVX512(dst, src, stride, 16*stride, n) },
			packStep: 16,
			narrow:   packNarrowAVX512,
		}
	case F16:
		return format{
			gemv:     []gemvKernel{{4, gemvF16x4AVX512}, {3, gemvF16x3AVX512}, {2, gemvF16x2AVX512}, {1, gemvF16x1AVX512}},
			expand:   expandF16AVX512,
			pack:     func(dst, src *byte, stride, n int) { packHalfAVX512(dst, src, 2*stride, stride, n) },
			packStep: 16,
		}
	}
	return format{
		gemv:     []gemvKernel{{4, gemvF32x4AVX512}, {3, gemvF32x3AVX512}, {2, gemvF32x2AVX512}, {1, gemvF32x1AVX512}},
		pack:     packF32AVX512,
		packNow:  packF32CachedAVX512,
		packStep: 16,
	}
}
