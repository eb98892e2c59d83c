package gemm

import (
	"math"
	"unsafe"

	"samebit/internal/canon"
)

// genericTile is the meaning of every tileFunc.
func genericTile(rows int, dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int) {
	w := unsafe.Slice(b, n*width)
	for t := range tiles {
		x := unsafe.Slice(at(a, t*aStride/4), n*rows)
		for r := range rows {
			var acc [width]float32
			for i := range n {
				chain(&acc, x[i*rows+r], w[i*width:])
			}
			row := t*rows + r
			s := unsafe.Slice(at(src, row*srcStride/4), width)
			d := unsafe.Slice(at(dst, row*dstStride/4), width)
			for l := range acc {
				d[l] = s[l] + acc[l]
			}
		}
	}
}

// chain takes one step of 32 chains: acc = FMA(x, w, acc).
func chain(acc *[width]float32, x float32, w []float32) {
	w = w[:width]
	for l := range acc {
		acc[l] = canon.FMA32(x, w[l], acc[l])
	}
}

// genericGemv is the meaning of every gemvFunc.
func genericGemv(dt DType, y, x []float32, panels []byte, k int) {
	step := dt.step()
	bytes := align64(k * step)
	for p := range len(y) / width {
		var total [width]float32
		src := panels[p*bytes:]
		for k0 := 0; k0 < k; k0 += kb {
			var acc, w [width]float32
			for i := k0; i < min(k0+kb, k); i++ {
				dt.expand(w[:], src[i*step:], 1)
				chain(&acc, x[i], w[:])
			}
			for l := range total {
				total[l] += acc[l]
			}
		}
		copy(y[p*width:(p+1)*width], total[:])
	}
}

// expand writes n inputs of a panel as float32.
func (d DType) expand(dst []float32, src []byte, n int) {
	switch d {
	case F32:
		copy(dst[:n*width], floats(src[:n*width*4]))
	case BF16:
		for i := range n {
			for l := range width {
				dst[i*width+l] = math.Float32frombits(uint32(half(src, i, bf16At(l))) << 16)
			}
		}
	case F16:
		for i := range n {
			for l := range width {
				dst[i*width+l] = f16(half(src, i, l))
			}
		}
	}
}

func align64(n int) int { return (n + 63) &^ 63 }

// half returns element e of input i of a panel of 16-bit weights.
func half(src []byte, i, e int) uint16 {
	o := (i*width + e) * 2
	return uint16(src[o]) | uint16(src[o+1])<<8
}

// bf16At is where a bf16 panel keeps a lane: 32-bit word r of an input holds
// output r in its low half and output r+16 in its high half, so that a shift
// and a mask widen a whole vector.
func bf16At(lane int) int { return lane%16*2 + lane/16 }

// f16 widens an IEEE binary16, exactly.
func f16(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp, frac := uint32(h>>10&31), uint32(h&0x3ff)
	switch exp {
	case 0:
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
