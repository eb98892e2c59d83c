package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// turns generates the kernels that transpose a few rows. They walk four inputs at a time:
// each 128-bit lane takes those of four rows and is turned as a 4x4 matrix. Loads fill the
// lanes, so that no shuffles are needed between them, and an input is stored at once, so
// that lines of dst are written once. On Emerald Rapids 8 to 14 rows take 1.1 to 1.6 times
// as long as a copy from the second-level cache and 1.05 times from the third, where neither
// unrolling nor prefetching gains anything.
func turns() {
	for quads := 1; quads <= 4; quads++ {
		turn(quads)
	}
	turnHalves(4)
	turnHalves(8)
}

// turning is what all kernels have in common.
type turning struct {
	dst, dstStride, dst3, src, stride, stride3, rows, n reg.GPVirtual
}

func newTurning(name string, least, most int) turning {
	TEXT(name, NOSPLIT, "func(dst *float32, dstStride int, src *float32, srcStride int, rows, n int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s is a turnFunc for %d to %d rows.", name, least, most))
	t := turning{ptr("dst"), ptr("dstStride"), GP64(), ptr("src"), ptr("srcStride"), GP64(), ptr("rows"), ptr("n")}
	LEAQ(Mem{Base: t.dstStride, Index: t.dstStride, Scale: 2}, t.dst3)
	LEAQ(Mem{Base: t.stride, Index: t.stride, Scale: 2}, t.stride3)
	return t
}

// row is row r of the four at base, input the i-th of the four at dst.
func (t turning) row(base reg.GPVirtual, r int) Mem {
	return rowMem([]reg.GPVirtual{base}, t.stride, t.stride3, r)
}

func (t turning) input(dst reg.GPVirtual, i int) Mem {
	return rowMem([]reg.GPVirtual{dst}, t.dstStride, t.dst3, i)
}

// forward ends the loop: the next four inputs.
func (t turning) forward(bases, dsts []reg.GPVirtual) {
	for _, d := range dsts {
		LEAQ(Mem{Base: d, Index: t.dstStride, Scale: 4}, d)
	}
	for _, b := range bases {
		ADDQ(Imm(16), b)
	}
	SUBQ(Imm(4), t.n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// turn transposes as many rows as quads lanes hold, or up to three less: then the last
// row stands in for those that miss, and a mask keeps them from dst.
func turn(quads int) {
	most := 4 * quads
	t := newTurning(fmt.Sprintf("turn%dAVX512", most), most-3, most)
	bits, mask := GP32(), K()
	MOVQ(t.rows, reg.RCX)
	MOVL(U32(1), bits)
	SHLL(reg.CL, bits)
	DECL(bits)
	KMOVW(bits, mask)
	bases := []reg.GPVirtual{t.src}
	for q := 1; q < quads; q++ {
		b := GP64()
		LEAQ(Mem{Base: bases[q-1], Index: t.stride, Scale: 4}, b)
		bases = append(bases, b)
	}
	Comment("from the first row of the last four to the others")
	last := []reg.GPVirtual{nil, GP64(), GP64(), GP64()}
	XORQ(last[1], last[1])
	CMPQ(t.rows, Imm(uint64(most-2)))
	CMOVQGE(t.stride, last[1])
	LEAQ(Mem{Base: t.stride, Index: t.stride, Scale: 1}, last[2])
	CMPQ(t.rows, Imm(uint64(most-1)))
	CMOVQLT(last[1], last[2])
	MOVQ(t.stride3, last[3])
	CMPQ(t.rows, Imm(uint64(most)))
	CMOVQLT(last[2], last[3])
	r := avx512.vecs(4)
	Label("loop")
	for i := range r {
		for q, b := range bases {
			m := t.row(b, i)
			if q == quads-1 && i > 0 {
				m = Mem{Base: b, Index: last[i], Scale: 1}
			}
			switch q {
			case 0:
				VMOVUPS(m, r[i].AsX())
			case 1:
				VINSERTF128(Imm(1), m, r[i].AsY(), r[i].AsY())
			default:
				VINSERTF32X4(Imm(uint64(q)), m, r[i], r[i])
			}
		}
	}
	size := 16
	for size < 4*most {
		size *= 2
	}
	for i, c := range turn4x4(size, r) {
		VMOVUPS(c, mask, t.input(t.dst, i))
	}
	t.forward(bases, []reg.GPVirtual{t.dst})
}

// turnHalves transposes most/2 to most rows, 4 or 8, as the first and the last most/2, some
// perhaps in both: AVX2 has masked stores too, but they are slow on many machines.
func turnHalves(most int) {
	half := most / 2
	t := newTurning(fmt.Sprintf("turn%dAVX2", most), half, most)
	dst2, src2 := GP64(), t.rows
	SUBQ(Imm(uint64(half)), t.rows)
	LEAQ(Mem{Base: t.dst, Index: t.rows, Scale: 4}, dst2)
	IMULQ(t.stride, src2)
	ADDQ(t.src, src2)
	r := avx2.vecs(4)
	Label("loop")
	for i := range r {
		if most == 4 {
			VMOVUPS(t.row([]reg.GPVirtual{t.src, src2}[i/2], i%2), r[i].AsX())
			continue
		}
		VMOVUPS(t.row(t.src, i), r[i].AsX())
		VINSERTF128(Imm(1), t.row(src2, i), r[i], r[i])
	}
	for i, c := range turn4x4(4*most, r) {
		if most == 4 {
			VMOVLPS(c, t.input(t.dst, i))
			VMOVHPS(c, t.input(dst2, i))
			continue
		}
		VMOVUPS(c.AsX(), t.input(t.dst, i))
		VEXTRACTF128(Imm(1), c, t.input(dst2, i))
	}
	t.forward([]reg.GPVirtual{t.src, src2}, []reg.GPVirtual{t.dst, dst2})
}

// turn4x4 transposes the 4x4 matrices in the 128-bit lanes of r, size bytes of each.
func turn4x4(size int, r []reg.VecVirtual) []reg.VecVirtual {
	vecs := func() (v []reg.VecVirtual) {
		for range 4 {
			switch size {
			case 16:
				v = append(v, XMM())
			case 32:
				v = append(v, YMM())
			default:
				v = append(v, ZMM())
			}
		}
		return v
	}
	as := func(v reg.VecVirtual) reg.Register {
		switch size {
		case 16:
			return v.AsX()
		case 32:
			return v.AsY()
		}
		return v.AsZ()
	}
	t, u := vecs(), vecs()
	for i := range 2 {
		VUNPCKLPS(as(r[2*i+1]), as(r[2*i]), t[2*i])
		VUNPCKHPS(as(r[2*i+1]), as(r[2*i]), t[2*i+1])
	}
	for i := range 2 {
		VUNPCKLPD(t[2+i], t[i], u[2*i])
		VUNPCKHPD(t[2+i], t[i], u[2*i+1])
	}
	return u
}
