package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// conversions writes the 16-bit formats; lengths are multiples of 16.
func conversions(e *emitter) {
	row := func(name, sig string, from, to int, body func(src, dst Mem)) {
		e.function(name, sig)
		dst, src := e.ptr("dst"), e.ptr("src")
		n := Load(Param("dst").Len(), GP64()).(reg.GPVirtual)
		mark("by16")
		CMPQ(n, Imm(16))
		JLT(label("done"))
		body(Mem{Base: src}, Mem{Base: dst})
		ADDQ(Imm(uint64(16*from)), src)
		ADDQ(Imm(uint64(16*to)), dst)
		SUBQ(Imm(16), n)
		JMP(label("by16"))
		mark("done")
		VZEROUPPER()
		RET()
	}
	row("widenBF16", "func(dst []float32, src []uint16)", 2, 4, func(src, dst Mem) {
		for i := range 2 {
			v := YMM()
			VPMOVZXWD(src.Offset(16*i), v)
			VPSLLD(Imm(16), v, v)
			VMOVUPS(v, dst.Offset(32*i))
		}
	})
	row("widenF16", "func(dst []float32, src []uint16)", 2, 4, func(src, dst Mem) {
		for i := range 2 {
			v := YMM()
			VCVTPH2PS(src.Offset(16*i), v)
			VMOVUPS(v, dst.Offset(32*i))
		}
	})
	row("narrowBF16", "func(dst []uint16, src []float32)", 4, 2, func(src, dst Mem) {
		var out [2]reg.VecVirtual
		for i := range out {
			x, nan, q, u := YMM(), YMM(), YMM(), YMM()
			VMOVUPS(src.Offset(32*i), x)
			VCMPPS(Imm(3), x, x, nan) // unordered
			VPSRLD(Imm(16), x, q)
			VPAND(e.c("i1"), q, u)
			VPADDD(e.c("i7fff"), u, u)
			VPADDD(x, u, u) // to nearest, ties to even
			VPSRLD(Imm(16), u, u)
			VPOR(e.c("i40"), q, q) // quiet NaN
			VBLENDVPS(nan, q, u, u)
			out[i] = u
		}
		VPACKUSDW(out[1], out[0], out[0])
		VPERMQ(Imm(0xd8), out[0], out[0])
		VMOVDQU(out[0], dst)
	})
	row("narrowF16", "func(dst []uint16, src []float32)", 4, 2, func(src, dst Mem) {
		for i := range 2 {
			v := YMM()
			VMOVUPS(src.Offset(32*i), v)
			VCVTPS2PH(Imm(0), v, dst.Offset(16*i))
		}
	})
}
