package gemm

import (
	"unsafe"

	"samebit/backend/cpu/internal/isa"
)

// Packer is PackPanel without trans for one instruction set. Unlike that it
// allocates nothing.
type Packer struct {
	pack func(dst, src *byte, stride, n int) // nil: plain Go
	step int
}

// PackerFor returns the packer of an available instruction set.
func PackerFor(s isa.Set) Packer {
	f := nativeFormat(s, F32)
	if f.packNow != nil {
		f.pack = f.packNow
	}
	return Packer{f.pack, f.packStep}
}

// Pack fills one float32 panel dst[k][32]: output r has its inputs at
// src[r·ld + i]. rows <= 32; missing rows become zeros.
func (p Packer) Pack(dst, src []float32, ld, rows, k int) {
	n := 0
	if p.pack != nil && rows == width && k >= p.step {
		n = k - k%p.step
		_ = src[(width-1)*ld+k-1]
		p.pack((*byte)(unsafe.Pointer(&dst[0])), (*byte)(unsafe.Pointer(&src[0])), ld*4, n)
	}
	for i := n; i < k; i++ {
		d := dst[i*width : (i+1)*width]
		for r := range rows {
			d[r] = src[r*ld+i]
		}
		clear(d[rows:])
	}
}
