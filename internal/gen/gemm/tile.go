package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// tiles generates the tile kernels: up to 6 rows by 16 columns in 12 of the 16
// AVX2 registers, up to 14 rows by 32 columns in 28 of the 32 of AVX-512.
func tiles() {
	for r := 1; r <= 6; r++ {
		tile(avx2, r)
	}
	for r := 1; r <= 14; r++ {
		tile(avx512, r)
	}
}

func tile(v isa, rows int) {
	TEXT(fmt.Sprintf("tile%d%s", rows, v.name), NOSPLIT,
		"func(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next *float32)")
	Pragma("noescape")
	Doc(fmt.Sprintf("tile%d%s is a tileFunc for tiles of %d rows by %d columns.", rows, v.name, rows, 2*v.lanes))
	dst, dstStride, src, srcStride := ptr("dst"), ptr("dstStride"), ptr("src"), ptr("srcStride")
	a, aStride, b, next, tiles := ptr("a"), ptr("aStride"), ptr("b"), ptr("next"), ptr("tiles")
	acc := v.vecs(2 * rows)
	w := v.vecs(2)
	x := v.vec()
	ap, bp, cnt := GP64(), GP64(), GP64()

	step := func(u int) {
		VMOVUPS(at(bp, u*width*4), w[0])
		VMOVUPS(at(bp, u*width*4+v.bytes()), w[1])
		PREFETCHT1(at(next, u*width*4))
		if v.lanes == 16 {
			PREFETCHT1(at(next, u*width*4+v.bytes()))
		}
		for r := range rows {
			VBROADCASTSS(at(ap, (u*rows+r)*4), x)
			VFMADD231PS(w[0], x, acc[2*r])
			VFMADD231PS(w[1], x, acc[2*r+1])
		}
	}
	advance := func(u int) {
		ADDQ(U32(uint32(u*rows*4)), ap)
		ADDQ(U32(uint32(u*width*4)), bp)
		ADDQ(U32(uint32(u*width*4)), next)
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
		VADDPS(at(src, v.bytes()), acc[2*r+1], acc[2*r+1])
		VMOVUPS(acc[2*r], at(dst, 0))
		VMOVUPS(acc[2*r+1], at(dst, v.bytes()))
		ADDQ(srcStride, src)
		ADDQ(dstStride, dst)
	}
	ADDQ(aStride, a)
	Comment("later tiles find the prefetched lines in the cache already")
	MOVQ(b, next)
	DECQ(tiles)
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}
