package gemm

import (
	"encoding/binary"

	"samebit/backend/cpu/internal/isa"
)

// narrowBlock is how many inputs of a panel are narrowed before they are packed, where
// no kernel does both: 16 KiB of them.
const narrowBlock = 256

// Narrower returns a packer for an available instruction set that fills one panel of
// the BF16 codec from rows <= 32 rows of k little-endian float32; row r begins at
// src[r*stride]. It reports whether every value is one of bf16; if not, the panel holds
// nothing of use. It allocates nothing and may be called concurrently.
func Narrower(s isa.Set) func(dst, src []byte, stride, rows, k int) bool {
	f, pack := nativeFormat(s, BF16), Codec(s, BF16).Pack
	return func(dst, src []byte, stride, rows, k int) bool {
		n := 0
		if f.narrow != nil && rows == width && k >= f.packStep {
			n = k - k%f.packStep
			_, _ = dst[2*width*n-1], src[(width-1)*stride+4*k-1]
			if f.narrow(&dst[0], &src[0], stride, n) {
				return false
			}
			if n == k {
				return true
			}
		}
		var half [2 * width * narrowBlock]byte
		for ; n < k; n += narrowBlock {
			m := min(narrowBlock, k-n)
			for r := range rows {
				if !halves(half[2*r*m:2*(r+1)*m], src[r*stride+4*n:]) {
					return false
				}
			}
			pack(dst[2*width*n:], half[:], 2*m, rows, m)
		}
		return true
	}
}

// halves writes the upper halves of len(dst)/2 words and reports whether all lower
// halves are zero.
func halves(dst, src []byte) bool {
	src = src[:2*len(dst)]
	var or uint64
	for ; len(src) >= 16; src, dst = src[16:], dst[8:] {
		a, b := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])
		or |= a | b
		binary.LittleEndian.PutUint64(dst, a>>16&0xffff|a>>48<<16|b>>16<<48>>16|b>>48<<48)
	}
	for ; len(src) > 0; src, dst = src[4:], dst[2:] {
		w := binary.LittleEndian.Uint32(src)
		or |= uint64(w)
		binary.LittleEndian.PutUint16(dst, uint16(w>>16))
	}
	return or&0x0000ffff_0000ffff == 0
}
