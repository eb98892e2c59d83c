package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// packs generates the kernels that lay out weights and activations.
func packs() {
	for _, v := range isas {
		pack32(v, v.lanes == 16)
		pack16(v)
		packNarrow(v)
	}
	pack32(avx512, false)
	turns()
	packRows()
}

// rowMem addresses row r of n <= 16 rows from base, stride bytes apart, with the
// pointers base, base+4·stride, … in bases.
func rowMem(bases []reg.GPVirtual, stride, stride3 reg.GPVirtual, r int) Mem {
	m := Mem{Base: bases[r/4]}
	switch r % 4 {
	case 1:
		m.Index, m.Scale = stride, 1
	case 2:
		m.Index, m.Scale = stride, 2
	case 3:
		m.Index, m.Scale = stride3, 1
	}
	return m
}

// rowBases returns src, src+4·stride, … for n rows and 3·stride.
func rowBases(src, stride reg.GPVirtual, n int) (bases []reg.GPVirtual, stride3 reg.GPVirtual) {
	stride3 = GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	for i := range n / 4 {
		b := GP64()
		if i == 0 {
			MOVQ(src, b)
		} else {
			LEAQ(Mem{Base: bases[i-1], Index: stride, Scale: 4}, b)
		}
		bases = append(bases, b)
	}
	return bases, stride3
}

// transpose turns r, an lanes x lanes matrix of 32-bit words in registers; the
// columns come back in order. It needs as many registers again.
func (v isa) transpose(r []reg.VecVirtual) []reg.VecVirtual {
	n := v.lanes
	var u []reg.VecVirtual
	for i := 0; i < n; i += 4 {
		u = append(u, turn4x4(v.bytes(), r[i:i+4])...)
	}
	// u[4g+c], 128-bit lane l: column 4l+c of rows 4g … 4g+3.
	out := v.vecs(n)
	if n == 8 {
		for c := range 4 {
			VPERM2F128(Imm(0x20), u[4+c], u[c], out[c])
			VPERM2F128(Imm(0x31), u[4+c], u[c], out[4+c])
		}
		return out
	}
	for c := range 4 {
		a, b, d, e := v.vec(), v.vec(), v.vec(), v.vec()
		VSHUFF32X4(Imm(0x88), u[4+c], u[c], a)    // lanes 0 2 of rows 0-3, 0 2 of rows 4-7
		VSHUFF32X4(Imm(0xdd), u[4+c], u[c], b)    // lanes 1 3
		VSHUFF32X4(Imm(0x88), u[12+c], u[8+c], d) // the same of rows 8-15
		VSHUFF32X4(Imm(0xdd), u[12+c], u[8+c], e)
		VSHUFF32X4(Imm(0x88), d, a, out[c])
		VSHUFF32X4(Imm(0x88), e, b, out[4+c])
		VSHUFF32X4(Imm(0xdd), d, a, out[8+c])
		VSHUFF32X4(Imm(0xdd), e, b, out[12+c])
	}
	return out
}

// pack32 packs panels of 32-bit weights: for each group of v.lanes rows, blocks
// of 16 inputs, one cache line of every row. stream stores past the cache, for
// weights that are packed once at load.
func pack32(v isa, stream bool) {
	name := "packF32" + v.name
	if v.lanes == 16 && !stream {
		name = "packF32Cached" + v.name
	}
	TEXT(name, NOSPLIT, "func(dst, src *byte, stride, n int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s writes dst[i][r] = row r, input i, for 32 rows and n inputs, a positive multiple of 16.", name))
	dst, src, stride, n := ptr("dst"), ptr("src"), ptr("stride"), ptr("n")
	bases, stride3 := rowBases(src, stride, v.lanes)
	wrap := GP64() // from the last group of rows back to the first
	MOVQ(stride, wrap)
	SHLQ(Imm(5), wrap)
	next := GP64()
	MOVQ(stride, next)
	SHLQ(Imm(uint64(log2(v.lanes))), next)
	v.packLoop(packing{dst: dst, n: n, next: next, wrap: wrap, bases: bases, columns: width, from: 4, stream: stream}, func(i, b int, r reg.VecVirtual) {
		m := rowMem(bases, stride, stride3, i)
		if b == 0 {
			p := m
			p.Disp = 256
			PREFETCHT0(p)
		}
		m.Disp = b * 4
		VMOVUPS(m, r)
	})
	VZEROUPPER()
	RET()
}

// packing describes the loop of a packer.
type packing struct {
	dst, n     reg.Register
	bases      []reg.GPVirtual // of rowBases
	next, wrap reg.Register    // from a group of rows to the next, and from behind the last to the first
	columns    int             // words of 32 bits of an input in the panel
	from       int             // bytes of a weight in the source
	stream     bool            // store past the cache
}

// packLoop writes 16 inputs at a time, a cache line or half of one of every row: for each
// group of v.lanes columns, blocks of v.lanes inputs. load fills r with those from input b
// on of the word at row i of the group.
func (v isa) packLoop(p packing, load func(i, b int, r reg.VecVirtual)) {
	Label("loop")
	for g := range p.columns / v.lanes {
		for b := 0; b < 16; b += v.lanes {
			r := v.vecs(v.lanes)
			for i := range r {
				load(i, b, r[i])
			}
			for i, c := range v.transpose(r) {
				to := at(p.dst, (b+i)*p.columns*4+g*v.bytes())
				if p.stream {
					VMOVNTPS(c, to)
				} else {
					VMOVUPS(c, to)
				}
			}
		}
		for _, b := range p.bases {
			ADDQ(p.next, b)
		}
	}
	for _, b := range p.bases {
		SUBQ(p.wrap, b)
		ADDQ(Imm(uint64(16*p.from)), b)
	}
	ADDQ(U32(uint32(16*p.columns*4)), p.dst)
	SUBQ(Imm(16), p.n)
	JNZ(LabelRef("loop"))
	if p.stream {
		SFENCE()
	}
}

func log2(n int) (l int) {
	for ; n > 1; n /= 2 {
		l++
	}
	return l
}

// pack16 packs panels of 16-bit weights: word j of an input holds rows lo(j) =
// j·wordStride and lo(j) + pairStride (in bytes).
func pack16(v isa) {
	name := "packHalf" + v.name
	TEXT(name, NOSPLIT, "func(dst, src *byte, wordStride, pairStride, n int)")
	Pragma("noescape")
	Doc(name+" writes 16 words of two 16-bit weights for each of n inputs, a positive multiple of 16:",
		"word j = src[j·wordStride] | src[j·wordStride + pairStride]<<16.")
	dst, src, stride, pair, n := ptr("dst"), ptr("src"), ptr("wordStride"), ptr("pairStride"), ptr("n")
	bases, stride3 := rowBases(src, stride, v.lanes)
	next, wrap := GP64(), GP64()
	MOVQ(stride, next)
	SHLQ(Imm(uint64(log2(v.lanes))), next)
	MOVQ(stride, wrap)
	SHLQ(Imm(4), wrap)
	tmp := GP64()
	v.packLoop(packing{dst: dst, n: n, next: next, wrap: wrap, bases: bases, columns: 16, from: 2, stream: v.lanes == 16}, func(i, b int, r reg.VecVirtual) {
		m := rowMem(bases, stride, stride3, i)
		m.Disp = b * 2
		LEAQ(m, tmp)
		h := v.vec()
		VPMOVZXWD(Mem{Base: tmp}, r)
		VPMOVZXWD(Mem{Base: tmp, Index: pair, Scale: 1}, h)
		if b == 0 {
			PREFETCHT0(Mem{Base: tmp, Disp: 256})
			PREFETCHT0(Mem{Base: tmp, Index: pair, Scale: 1, Disp: 256})
		}
		VPSLLD(Imm(16), h, h)
		if v.lanes == 16 {
			VPORD(h, r, r)
		} else {
			VPOR(h, r, r)
		}
	})
	VZEROUPPER()
	RET()
}

// packNarrow packs panels of 32-bit weights whose lower halves are zero as those of
// their upper halves.
func packNarrow(v isa) {
	name := "packNarrow" + v.name
	TEXT(name, NOSPLIT, "func(dst, src *byte, stride, n int) bool")
	Pragma("noescape")
	Doc(name+" writes 16 words of the upper halves of 32-bit weights for each of n inputs, a positive multiple of 16:",
		"word j = row j>>16 | row j+16 &^ 0xffff. It reports whether any lower half is not zero.")
	dst, src, stride, n := ptr("dst"), ptr("src"), ptr("stride"), ptr("n")
	bases, stride3 := rowBases(src, stride, v.lanes)
	next, pair := GP64(), GP64()
	MOVQ(stride, next)
	SHLQ(Imm(uint64(log2(v.lanes))), next)
	MOVQ(stride, pair)
	SHLQ(Imm(4), pair) // also from the last group of rows back to the first
	tmp := GP64()
	low, any := v.vec(), v.vec()
	v.zero(any)
	if v.lanes == 16 {
		VPTERNLOGD(Imm(0xff), low, low, low)
	} else {
		VPCMPEQD(low, low, low)
	}
	VPSRLD(Imm(16), low, low)
	v.packLoop(packing{dst: dst, n: n, next: next, wrap: pair, bases: bases, columns: 16, from: 4, stream: v.lanes == 16}, func(i, b int, r reg.VecVirtual) {
		m := rowMem(bases, stride, stride3, i)
		m.Disp = b * 4
		LEAQ(m, tmp)
		h := v.vec()
		VMOVUPS(Mem{Base: tmp}, r)
		VMOVUPS(Mem{Base: tmp, Index: pair, Scale: 1}, h)
		if b == 0 {
			PREFETCHT0(Mem{Base: tmp, Disp: 256})
			PREFETCHT0(Mem{Base: tmp, Index: pair, Scale: 1, Disp: 256})
		}
		if v.lanes == 16 {
			VPTERNLOGD(Imm(0xfe), h, r, any) // any | r | h
			VPSRLD(Imm(16), r, r)
			VPTERNLOGD(Imm(0xf4), low, h, r) // r | h&^low
		} else {
			VPOR(r, any, any)
			VPOR(h, any, any)
			VPSRLD(Imm(16), r, r)
			VPBLENDW(Imm(0xaa), h, r, r)
		}
	})
	wide := GP8()
	if v.lanes == 16 {
		k := K()
		VPTESTMD(low, any, k)
		KORTESTW(k, k)
	} else {
		VPTEST(low, any)
	}
	SETNE(wide)
	Store(wide, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// packRows copies n short rows, a vector each.
func packRows() {
	TEXT("packRowsAVX512", NOSPLIT, "func(dst *float32, dstStride int, src *float32, srcStride int, width int, n int)")
	Pragma("noescape")
	Doc("packRowsAVX512 is a packRowsFunc.")
	dst, dstStride, src, stride, n := ptr("dst"), ptr("dstStride"), ptr("src"), ptr("srcStride"), ptr("n")
	Load(Param("width"), reg.RCX)
	bits, mask := GP32(), K()
	MOVL(U32(1), bits)
	SHLL(reg.CL, bits)
	DECL(bits)
	KMOVW(bits, mask)
	x := avx512.vec()
	DECQ(n)
	JZ(LabelRef("last"))
	Label("loop")
	VMOVUPS_Z(Mem{Base: src}, mask, x)
	Comment("what is beyond the row, the next one overwrites")
	VMOVUPS(x, Mem{Base: dst})
	ADDQ(stride, src)
	ADDQ(dstStride, dst)
	DECQ(n)
	JNZ(LabelRef("loop"))
	Label("last")
	VMOVUPS_Z(Mem{Base: src}, mask, x)
	VMOVUPS(x, mask, Mem{Base: dst})
	VZEROUPPER()
	RET()
}
