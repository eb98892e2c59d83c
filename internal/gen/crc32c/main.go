// Command crc32c writes the amd64 assembly of internal/crc32c.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	vectors = 8  // sums that are folded side by side
	size    = 64 // bytes of a vector
)

// power is x^n modulo the Castagnoli polynomial, bit 31-i for x^i.
func power(n int) uint32 {
	c := uint32(1) << 31
	for range n {
		c = c>>1 ^ -(c&1)&0x82f63b78
	}
	return c
}

// constants are the factors that move 128 bits of the message forward by so many bytes,
// one pair for each lane: of its first half and of its second. The product of two
// reflected numbers is one bit short, hence the shift.
func constants(name string, bytes ...int) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, n := range bytes {
		var lo, hi uint64
		if n > 0 {
			lo, hi = uint64(power(8*n+32))<<1, uint64(power(8*n-32))<<1
		}
		DATA(16*i, U64(lo))
		DATA(16*i+8, U64(hi))
	}
	return m
}

// fold sets x = move(x) ^ y, in which k says how far.
func fold(x reg.VecVirtual, k, y Op) {
	t := ZMM()
	VPCLMULQDQ(Imm(0x00), k, x, t)
	VPCLMULQDQ(Imm(0x11), k, x, x)
	VPTERNLOGD(Imm(0x96), y, t, x)
}

func main() {
	ConstraintExpr("!noasm")
	TEXT("foldAVX512", NOSPLIT, "func(p *byte, n int) uint32")
	Pragma("noescape")
	Doc("foldAVX512 is the CRC-32C of n bytes, a positive multiple of 512. It needs AVX512F, VPCLMULQDQ and SSE4.2.")
	p, n := Load(Param("p"), GP64()), Load(Param("n"), GP64())
	var x [vectors]reg.VecVirtual
	for i := range x {
		x[i] = ZMM()
		VMOVDQU32(Mem{Base: p, Disp: size * i}, x[i])
	}
	Comment("the sum begins with ones")
	ones, first := GP32(), XMM()
	MOVL(I32(-1), ones)
	VMOVD(ones, first)
	VPXORD(first.AsZ(), x[0], x[0])
	all := vectors * size
	k := ZMM()
	VMOVDQU32(constants("folds", all, all, all, all), k)
	JMP(LabelRef("next"))
	Label("loop")
	for i := range x {
		fold(x[i], k, Mem{Base: p, Disp: size * i})
	}
	Label("next")
	ADDQ(U32(uint32(all)), p)
	SUBQ(U32(uint32(all)), n)
	JNZ(LabelRef("loop"))
	Comment("vectors to one, as a tree")
	for _, by := range []int{1, 2, 4} {
		d := by * size
		VMOVDQU32(constants(fmt.Sprintf("fold%d", d), d, d, d, d), k)
		for i := by - 1; i < vectors; i += 2 * by {
			fold(x[i], k, x[i+by])
			x[i+by] = x[i]
		}
	}
	Comment("its four lanes to one")
	z, y, lane, last := x[vectors-1], YMM(), XMM(), XMM()
	VEXTRACTI32X4(Imm(3), z, last)
	VPXORD(k, k, k)
	zero := k
	k = ZMM()
	VMOVDQU32(constants("lanes", 48, 32, 16, 0), k)
	fold(z, k, zero)
	VEXTRACTI64X4(Imm(1), z, y)
	VPXOR(z.AsY(), y, y)
	VEXTRACTI128(Imm(1), y, lane)
	VPXOR(y.AsX(), lane, lane)
	VPXOR(lane, last, last)
	Comment("the sum of 16 bytes")
	sum, half := GP64(), GP64()
	XORQ(sum, sum)
	VMOVQ(last, half)
	CRC32Q(half, sum)
	VPEXTRQ(Imm(1), last, half)
	CRC32Q(half, sum)
	NOTL(sum.As32())
	Store(sum.As32(), ReturnIndex(0))
	VZEROUPPER()
	RET()
	Generate()
}
