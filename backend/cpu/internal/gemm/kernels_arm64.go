//go:build !noasm

package gemm

import (
	"unsafe"

	"samebit/backend/cpu/internal/isa"
)

func native(s isa.Set) (*Kernels, bool) {
	if s != isa.NEON {
		return nil, false
	}
	return &Kernels{mr: 6, turn: []turnFunc{4: pack4Func(pack4NEON).turn}, side: packRows, tile: [maxRows + 1]tileFunc{
		1: tile1NEON, 2: tile2NEON, 3: tile3NEON, 4: tile4NEON, 5: tile5NEON, 6: tile6NEON,
	}, fused: [2]fusedTiles{
		{name: "bf16", step: 8, panelStep: 32, tile: [maxRows + 1]tileFunc{1: tileBF161NEON, 2: tileBF162NEON, 3: tileBF163NEON, 4: tileBF164NEON, 5: tileBF165NEON, 6: tileBF166NEON}},
		{name: "f16", step: 16, panelStep: 32, tile: [maxRows + 1]tileFunc{1: tileF161NEON, 2: tileF162NEON, 3: tileF163NEON, 4: tileF164NEON, 5: tileF165NEON, 6: tileF166NEON}},
	}}, true
}

func nativeFormat(s isa.Set, dt DType) format {
	if s != isa.NEON {
		return format{}
	}
	switch dt {
	case BF16:
		return format{gemv: []gemvKernel{{2, gemvBF16x2NEON}, {1, gemvBF16x1NEON}}, expand: expandBF16NEON, packStep: 16,
			pack: func(dst, src *byte, stride, n int) { packHalfNEON(dst, src, stride, 16*stride, n) }}
	case F16:
		return format{gemv: []gemvKernel{{2, gemvF16x2NEON}, {1, gemvF16x1NEON}}, expand: expandF16NEON, packStep: 16,
			pack: func(dst, src *byte, stride, n int) { packHalfNEON(dst, src, 2*stride, stride, n) }}
	}
	return format{gemv: []gemvKernel{{2, gemvF32x2NEON}, {1, gemvF32x1NEON}}, pack: packF32NEON, packStep: 16}
}

// pack4Func is a turnFunc for four rows.
type pack4Func func(dst *float32, dstStride int, src *float32, srcStride int, n int)

func (f pack4Func) turn(dst *float32, dstStride int, src *float32, srcStride int, _, n int) {
	f(dst, dstStride, src, srcStride, n)
}

// packF32NEON packs 16 inputs at a time, a cache line of every row.
func packF32NEON(dst, src *byte, stride, n int) {
	for i := 0; i < n; i += 16 {
		for r := 0; r < width; r += 4 {
			d := (*float32)(unsafe.Add(unsafe.Pointer(dst), (i*width+r)*4))
			s := (*float32)(unsafe.Add(unsafe.Pointer(src), r*stride+i*4))
			pack4NEON(d, width*4, s, stride, 16)
		}
	}
}

// packHalfNEON packs 32 inputs at a time, a cache line of every row.
func packHalfNEON(dst, src *byte, wordStride, pairStride, n int) {
	for i := 0; i < n; i += 32 {
		for w := 0; w < 16; w += 4 {
			d := (*byte)(unsafe.Add(unsafe.Pointer(dst), i*width*2+w*4))
			s := (*byte)(unsafe.Add(unsafe.Pointer(src), w*wordStride+i*2))
			packHalf4NEON(d, s, wordStride, pairStride, min(32, n-i))
		}
	}
}

//go:noescape
func packHalf4NEON(dst, src *byte, wordStride, pairStride, n int)

//go:noescape
func tile1NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tile2NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tile3NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tile4NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tile5NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tile6NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func gemvF32x1NEON(y, x *float32, w *byte, panelBytes, k, groups int)

//go:noescape
func gemvF32x2NEON(y, x *float32, w *byte, panelBytes, k, groups int)

//go:noescape
func gemvBF16x1NEON(y, x *float32, w *byte, panelBytes, k, groups int)

//go:noescape
func gemvBF16x2NEON(y, x *float32, w *byte, panelBytes, k, groups int)

//go:noescape
func gemvF16x1NEON(y, x *float32, w *byte, panelBytes, k, groups int)

//go:noescape
func gemvF16x2NEON(y, x *float32, w *byte, panelBytes, k, groups int)

//go:noescape
func expandBF16NEON(dst *float32, src *byte, n int)

//go:noescape
func expandF16NEON(dst *float32, src *byte, n int)

//go:noescape
func pack4NEON(dst *float32, dstStride int, src *float32, srcStride int, n int)

//go:noescape
func tileBF161NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileBF162NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileBF163NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileBF164NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileBF165NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileBF166NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileF161NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileF162NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileF163NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileF164NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileF165NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

//go:noescape
func tileF166NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)
