package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// magic says whether the kernel is the AVX-512 gemv of Q4_0, which converts no
// integers. A code q at bits b..b+3 of a dword becomes the float 2^15 + q·2^(b-8)
// when the upper bits are those of 2^15, and its weight is
//
//	d·(q-8) = FMA(d·2^(8-b), 2^15 + q·2^(b-8), -d·(2^(23-b) + 8))
//
// The added term is exact for d of 11 bits and b >= 7, and so is the whole. The
// four codes of a quad lie eight bits apart; two shifted views of the dword
// bring them in pairs to b = 8 and 16, and share the setting of the upper bits.
// (VPTERNLOGD on every code instead runs slower than mask and conversion on Zen 4,
// and a format with a minimum has no exact added term.)
//
// Vector registers: 0-3 chains, 4-11 factors and 12-19 added terms of both b,
// 20-23 the view, 24 the input, 25 and 26 masks, 27 upper bits, 28-31 temporaries.
func (w *walker) magic() bool { return w.evex && w.chain && w.f.name == "Q4_0" }

const magicUpper = 0x1p15

func (w *walker) magicConstants() {
	upper := math.Float32bits(magicUpper)
	for i, bits := range []uint32{0xf<<8 | upper, 0xf<<16 | upper, upper} {
		VMOVUPS(w.vector(bits), w.v(25+i))
	}
}

func (w *walker) magicScales() {
	factor := w.vector(math.Float32bits(0x1p-8))
	terms := [2]Mem{w.vector(math.Float32bits(-0x1p15 - w.f.off)), w.vector(math.Float32bits(-0x1p7 - w.f.off))}
	w.together(func(v int) {
		VCVTPH2PS(w.at(w.z, 0, v, 2), w.v(4+v))
	}, func(v int) {
		VMULPS(factor, w.v(4+v), w.v(8+v))
	}, func(v int) {
		VMULPS(terms[0], w.v(4+v), w.v(12+v))
	}, func(v int) {
		VMULPS(terms[1], w.v(4+v), w.v(16+v))
	})
}

// magicView loads the dwords of vector v shifted by n bits to the right (left
// where n < 0) and sets their upper bits. Shifts by eight are loads a byte
// apart, except where they would read behind the panel.
func (w *walker) magicView(disp, n, v int, dst reg.VecPhysical) {
	upper := w.v(27)
	switch {
	case n == -8, n == 8 && (disp == 0 || v < w.nv-1):
		VPORD(w.at(w.p, disp+n/8, v, 4), upper, dst)
	default:
		w.shifted(w.at(w.p, disp, v, 4), n, dst)
		VPORD(upper, dst, dst)
	}
}

// magicHalf walks 16 inputs.
func (w *walker) magicHalf() {
	x := w.v(24)
	for f := range 4 {
		for p := range 4 {
			if p%2 == 0 {
				for v := range w.nv {
					w.magicView(f/2*128, 8*p+f%2*4-8, v, w.v(20+v))
				}
			}
			VBROADCASTSS(Mem{Base: w.x, Disp: 4 * (4*f + p)}, x)
			w.together(func(v int) {
				VPANDD(w.v(25+p%2), w.v(20+v), w.v(28+v))
			}, func(v int) {
				VFMADD132PS(w.v(4+p%2*4+v), w.v(12+p%2*4+v), w.v(28+v))
			}, func(v int) {
				VFMADD231PS(x, w.v(28+v), w.acc(v))
			})
		}
	}
	ADDQ(U32(uint32(w.f.half())), w.p)
	ADDQ(Imm(64), w.x)
}

// vector is a vector of equal 32-bit values in memory.
func (w *walker) vector(bits uint32) Mem {
	m, ok := globals[bits]
	if !ok {
		set := "avx2"
		if w.evex {
			set = "avx512"
		}
		m = GLOBL(fmt.Sprintf("%s_%08x", set, bits), RODATA|NOPTR)
		for i := range lanes {
			DATA(4*i, U32(bits))
		}
		globals[bits] = m
	}
	return m
}
