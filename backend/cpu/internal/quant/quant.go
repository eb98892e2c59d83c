// Package quant multiplies by block-quantised weights that stay quantised in
// memory: codecs of panels of 32 rows for the GGUF block formats. Every product
// is the DOT of docs/numerics.md 2 on the defined float32 weights (numerics.md
// 9), so it has the bits of a product with the dequantised matrix.
package quant

//go:generate sh -c "cd ../../../../internal/gen && go run ./quant -isa avx2 -pkg quant -out ../../backend/cpu/internal/quant/quant_avx2_amd64.s -stubs ../../backend/cpu/internal/quant/quant_avx2_amd64.go"
//go:generate sh -c "cd ../../../../internal/gen && go run ./quant -isa avx512 -pkg quant -out ../../backend/cpu/internal/quant/quant_avx512_amd64.s -stubs ../../backend/cpu/internal/quant/quant_avx512_amd64.go"
//go:generate sh -c "cd ../../../../internal/gen && go run ./quant -isa pack -pkg quant -out ../../backend/cpu/internal/quant/pack_amd64.s -stubs ../../backend/cpu/internal/quant/pack_amd64.go"
//go:generate sh -c "cd ../../../../internal/gen && go run ./quant -isa neon -out ../../backend/cpu/internal/quant/quant_neon_arm64.s -stubs ../../backend/cpu/internal/quant/quant_neon_arm64.go"

import (
	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
	"samebit/internal/blockq"
)

// kernels are the funcs of one format for one instruction set. They assume
// whole panels and valid lengths.
type kernels struct {
	// expand writes dst[32·chunks][32] from the 128-input block at block,
	// chunks <= 4.
	expand func(dst *float32, block *byte, chunks int)
	// gemv writes y[32] for one panel of 32·chunks inputs.
	gemv func(y, x *float32, panel *byte, chunks int)
	tile tiles    // none: nil
	pack packFunc // likewise
}

// packFunc fills a panel, which begins at a cache line, from 32 rows of blocks of the
// file that begin stride bytes apart.
type packFunc func(dst, src *byte, stride, blocks int)

// tiles are the kernels for 2 to 4 rows of inputs, see panel.Codec.
type tiles [maxTile - 1]tileFunc

const maxTile = 4

// tileFunc adds the block of 32·chunks inputs, chunks <= 4, to the chains of some rows
// of inputs a[i][row]: dst[row] = src[row] + Σ(chain from +0). Strides are in bytes.
type tileFunc func(dst *float32, dstStride int, src *float32, srcStride int, a *float32, block *byte, chunks int)

// Codec returns the panel codec of a valid block format t for s. K must be a
// multiple of t.BlockValues().
//
// Zeros: Expand and Gemv form weights such as d·(q-8) by one fused step, so
// that a weight of zero is always +0 there, while blockq and Row keep the sign
// of d; no DOT can tell the difference. An infinite d, which no encoder
// writes, may give NaN where the plain product gives an infinity.
func Codec(s isa.Set, t blockq.Type) panel.Codec { return codec(s, t, isa.Wide()) }

// codec is Codec with 512-bit vectors or without, where s has them.
func codec(s isa.Set, t blockq.Type, wide bool) panel.Codec {
	l := layoutOf(t)
	c := panel.Codec{
		Name:  t.String(),
		Bytes: l.bytes,
		Pack:  func(dst, src []byte, stride, rows, k int) { l.pack(dst, src, stride, rows, k) },
		Row:   func(dst []float32, p []byte, lane, k int) { l.row(dst[:k], p, lane) },
	}
	if k, ok := native(s, t, wide); ok {
		if k.pack != nil {
			c.Pack = func(dst, src []byte, stride, rows, n int) { l.packNative(k.pack, dst, src, stride, rows, n) }
		}
		c.Expand = func(dst []float32, p []byte, _, k0, n int) {
			if n == 0 {
				return
			}
			b := p[l.block(k0):]
			_, _ = dst[32*n-1], b[l.bytes(n)-1]
			k.expand(&dst[0], &b[0], n/32)
		}
		c.Gemv = func(y, x []float32, p []byte, k0 int) { gemv(&k, l.bytes(k0), y, x, p, k0) }
		if k.tile[0] != nil {
			c.MaxTile = maxTile
			c.Tile = func(rows int, dst *float32, dstStride int, src *float32, srcStride int, a *float32, p []byte, k0, n int) {
				b := p[l.block(k0):]
				_ = b[l.bytes(n)-1]
				k.tile[rows-2](dst, dstStride, src, srcStride, a, &b[0], n/32)
			}
		}
		return c
	}
	c.Expand = func(dst []float32, p []byte, _, k0, n int) { l.expand(dst, p, k0, n) }
	c.Gemv = l.gemv
	return c
}

func gemv(k *kernels, stride int, y, x []float32, p []byte, n int) {
	if n == 0 {
		clear(y)
		return
	}
	panels := len(y) / panel.Width
	x = x[:n]
	p = p[:panels*stride]
	for i := range panels {
		k.gemv(&y[i*panel.Width], &x[0], &p[i*stride], n/32)
	}
}
