package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// bits says whether wide code makes floats of codes without conversion. One VPTERNLOGD
// keeps a code and lays the exponent of 1 above it: v = 1 + q·2⁻ˢ, where byte 1 of a dword
// has s = 15 and byte 2 has s = 7; the other two get there by a rotation. The weight is
//
//	D·(q - off) = (D·2ˢ)·v - D·(2ˢ + off),
//
// one fused step of exact operands: D is a half, and 2ˢ + off is a multiple of off with a
// quotient of at most 13 bits, so that the product fits 24. A D of K formats has up to 18
// bits, and 8 bits of a code in byte 2 would reach the exponent.
//
// 13 vector instructions for 4 weights instead of 16 are less than two chains take, so
// gemv walks two blocks at once, whose chains are added to the totals in order: 1.15 to 1.2
// times as fast as with conversions on Emerald Rapids, tiles 1.1 to 1.14 times.
//
// Registers: 0-7 chains, 8 four weights' bytes, 9 these rotated, 10 a copy of either, 11-14
// constants, 15 a temporary, 16-31 D·2⁷, D·2¹⁵, D·(2⁷ + off), D·(2¹⁵ + off) of each vector.
func (w *walker) bits() bool {
	return w.lanes == 16 && w.f.scale == plain && !w.f.min && w.f.width == 4
}

const one = 0x3f800000 // as a float

func (w *walker) bitConstants() {
	w.constant(w.mask(1))
	w.constant(w.mask(2))
	w.constant(one)
	if w.f.hi > 0 {
		w.constant(w.low())
	}
}

// bitScale is factor i of vector v, in the order above.
func (w *walker) bitScale(v, i int) reg.VecPhysical { return w.v(16 + 4*v + i) }

func (w *walker) bitScales() {
	for v := range w.nv {
		VCVTPH2PS(w.at(w.z, 0, v, 2), w.v(15))
		for i, c := range []float32{0x1p7, 0x1p15, 0x1p7 + w.f.off, 0x1p15 + w.f.off} {
			VMULPS(w.vector(math.Float32bits(c)), w.v(15), w.bitScale(v, i)) // exact
		}
	}
}

func (w *walker) bitHalf(h int) {
	q, rotated, spare := w.v(8), w.v(9), w.v(10)
	for f := range 4 {
		for v := range w.nv {
			w.quad(h, f, v)
			VPRORD(Imm(16), q, rotated)
			for p := range 4 {
				t, byte := q, p
				if p == 0 || p == 3 {
					t, byte = rotated, (p+2)%4
				}
				if p < 2 { // needed again
					VMOVDQA32(t, spare)
					t = spare
				}
				s := 2 - byte
				VPTERNLOGD(Imm(0xea), w.constant(one), w.constant(w.mask(byte)), t) // t & mask | one
				VFMSUB132PS(w.bitScale(v, s), w.bitScale(v, 2+s), t)
				w.use(4*f+p, v, t)
			}
		}
	}
	w.advance()
}

// use multiplies the weights of vector v and input k of the half, or stores them.
func (w *walker) use(k, v int, weights reg.VecPhysical) {
	switch {
	case !w.chain:
		VMOVUPS(weights, w.at(w.y, k*128, v, 4))
	case w.rows == 0:
		VFMADD231PS_BCST(Mem{Base: w.x, Disp: v*w.lanes/width*512 + 4*k}, weights, w.acc(v))
	default:
		for r := range w.rows {
			VFMADD231PS_BCST(Mem{Base: w.x, Disp: 4 * (k*w.rows + r)}, weights, w.acc(r*w.nv+v))
		}
	}
}

// pairs walks two blocks at once while there are two whole ones of the rest of the chunks.
func (w *walker) pairs(rest, chunks reg.Register) {
	Label("pair")
	CMPQ(rest, Imm(8))
	JLT(LabelRef("block"))
	SUBQ(Imm(8), rest)
	MOVQ(U32(4), chunks)
	nv := w.nv
	w.nv *= 2
	w.block(chunks)
	w.nv = nv
	ADDQ(U32(uint32(w.f.block())), w.p)
	ADDQ(U32(512), w.x)
	TESTQ(rest, rest)
	JNZ(LabelRef("pair"))
	JMP(LabelRef("done"))
}
