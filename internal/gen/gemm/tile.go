package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tiles generates the tile kernels: up to 6 rows by 16 columns in 12 of the 16
// AVX2 registers, up to 14 rows by 32 columns in 28 of the 32 of AVX-512.
func tiles(f format) {
	for r := 1; r <= 6; r++ {
		tile(avx2, f, r)
	}
	for r := 1; r <= 14; r++ {
		tile(avx512, f, r)
	}
}

// tile generates a tile kernel on the panels of one format. 16-bit weights are
// widened in registers.
func tile(v isa, f format, rows int) {
	name := fmt.Sprintf("tile%d%s", rows, v.name)
	if f.name != "F32" {
		name = fmt.Sprintf("tile%s%d%s", f.name, rows, v.name)
	}
	TEXT(name, NOSPLIT,
		"func(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep int)")
	Pragma("noescape")
	doc := fmt.Sprintf("%s is a tileFunc for tiles of %d rows", name, rows)
	second := v.bytes() // from the first vector of columns to the second, in dst and src
	if v.lanes == 16 {
		doc += " by 32 columns"
	} else if f.name == "BF16" {
		second = 64
		doc += " by columns 0-7 and 16-23 after dst"
	} else {
		doc += " by 16 columns"
	}
	if f.name != "F32" {
		doc += "; b are " + f.name + " weights"
	}
	Doc(doc + ".")
	dst, dstStride, src, srcStride := ptr("dst"), ptr("dstStride"), ptr("src"), ptr("srcStride")
	a, aStride, b, next, tiles := ptr("a"), ptr("aStride"), ptr("b"), ptr("next"), ptr("tiles")
	nextStep := ptr("nextStep")
	acc := v.vecs(2 * rows)
	w := v.vecs(2)
	x := v.vec()
	ap, bp, cnt := GP64(), GP64(), GP64()

	var mask reg.VecVirtual
	if f.name == "BF16" {
		mask = v.mask()
	}

	step := func(u int) {
		o := u * f.step
		PREFETCHT1(at(next, 0))
		switch f.name {
		case "F32":
			VMOVUPS(at(bp, o), w[0])
			VMOVUPS(at(bp, o+v.bytes()), w[1])
			if v.lanes == 16 {
				PREFETCHT1(at(next, v.bytes()))
			}
		case "BF16":
			VMOVUPS(at(bp, o), w[1])
			VPSLLD(Imm(16), w[1], w[0])
			v.and(mask, w[1], w[1])
		case "F16":
			VCVTPH2PS(at(bp, o), w[0])
			VCVTPH2PS(at(bp, o+v.bytes()/2), w[1])
		}
		ADDQ(nextStep, next)
		for r := range rows {
			VBROADCASTSS(at(ap, (u*rows+r)*4), x)
			VFMADD231PS(w[0], x, acc[2*r])
			VFMADD231PS(w[1], x, acc[2*r+1])
		}
	}
	advance := func(u int) {
		ADDQ(U32(uint32(u*rows*4)), ap)
		ADDQ(U32(uint32(u*f.step)), bp)
	}

	Label("tile")
	v.zero(acc...)
	MOVQ(a, ap)
	MOVQ(b, bp)
	Load(Param("n"), cnt)
	SUBQ(Imm(4), cnt)
	JLT(LabelRef("tail"))
	Label("four")
	for u := range 4 {
		step(u)
	}
	advance(4)
	SUBQ(Imm(4), cnt)
	JGE(LabelRef("four"))
	Label("tail")
	ADDQ(Imm(4), cnt)
	JZ(LabelRef("add"))
	Label("one")
	step(0)
	advance(1)
	DECQ(cnt)
	JNZ(LabelRef("one"))

	Label("add")
	Comment("dst = src + acc")
	for r := range rows {
		VADDPS(at(src, 0), acc[2*r], acc[2*r])
		VADDPS(at(src, second), acc[2*r+1], acc[2*r+1])
		VMOVUPS(acc[2*r], at(dst, 0))
		VMOVUPS(acc[2*r+1], at(dst, second))
		ADDQ(srcStride, src)
		ADDQ(dstStride, dst)
	}
	ADDQ(aStride, a)
	DECQ(tiles)
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}
