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
	return &Kernels{mr: 6, cols: 16, rows: pack4NEON, tile: [maxRows + 1]tileFunc{
		1: tile1NEON, 2: tile2NEON, 3: tile3NEON, 4: tile4NEON, 5: tile5NEON, 6: tile6NEON,
	}}, true
}

func nativeFormat(s isa.Set, dt DType) format {
	if s != isa.NEON {
		return format{}
	}
	switch dt {
	case BF16:
		return format{gemv: []gemvKernel{{2, gemvBF16x2NEON}, {1, gemvBF16x1NEON}}, expand: expandBF16NEON}
	case F16:
		return format{gemv: []gemvKernel{{2, gemvF16x2NEON}, {1, gemvF16x1NEON}}, expand: expandF16NEON}
	}
	return format{gemv: []gemvKernel{{2, gemvF32x2NEON}, {1, gemvF32x1NEON}}, pack: packF32NEON, packStep: 16}
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

//go:noescape
func tile1NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next *float32)

//go:noescape
func tile2NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next *float32)

//go:noescape
func tile3NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next *float32)

//go:noescape
func tile4NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next *float32)

//go:noescape
func tile5NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next *float32)

//go:noescape
func tile6NEON(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next *float32)

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
