package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// shuffles says whether AVX2 and wide code makes floats of codes by a byte shuffle, without
// conversion. A lane of 16 bytes that holds codes and one byte of a constant gives any four
// of the codes as floats: the constant is the upper byte, with the sign and all but the last
// bit of the exponent, and the code a lower one. With the constant 0x3f and a code of at most
// 7 bits in byte 2 the float is v = 1/2 + q·2⁻⁸, and the weight
//
//	D·(q - off) = (D·2⁸)·v - D·(128 + off),
//
// one fused step of exact operands: D has at most 18 bits, and 128 + off at most 6 without
// its factors of two. An eighth bit would reach the exponent, so codes of Q8_0, and those of
// Q4_0 that are the upper halves of bytes and stay there, go into byte 1, where D has 11
// bits: v = 1/2 + q·2⁻¹⁶ and, with the constant 0x41, v = 8 + q·2⁻⁸.
//
// With minima the same holds of D·128 + M where the halves these come from have exponents
// of like size. Both are integers below 2¹⁷·63/64 (scales have 6 bits) by a power of two, so
// that the sum fits 24 bits if the exponent of the minimum is 0 to 14 above that of the scale:
// in Qwen3-0.6B in Q4_K_M it is 2 to 4. Where a row has another, conversions are used.
//
// A conversion has the two units of products. With AVX2 a shuffle has a third one too: on
// Emerald Rapids gemv from L2 is 1.08 to 1.2 times as fast by it and tiles are 1.05 to 1.2
// times, with two planes 1.2 to 1.3 times as expand and tiles of floats; expand, with all that
// shuffles need in registers, is 1.2 to 1.38 times as fast. An index in memory takes that
// back, and what is taken off in memory costs tiles 2 to 4 %, as only two instructions that
// load and compute run in a cycle. Hence tiles do not take inputs from
// memory either: four rows as rotated vectors, without broadcasts, have fewer
// micro-operations and 0.84 of the speed. Wide code has two units for all; a shuffle into a
// copy of the constant leaves out the mask: gemv 1.1 to 1.2 times, tiles 1.05 to 1.13 times.
// Formats of bits gain nothing.
//
// Registers: D·2⁸ (Q8_0: D·2¹⁶) where minima lie else. In AVX2 code 13, in tiles 14, is the
// mask, 15, in tiles 12, the index, 13 a vector of constants; what is taken off is in memory
// or, in tiles, in registers that are left. Its expand has indices in 0-3, 5-7 and 9, masks
// in 10 and 11, constants in 12, and in 13 and 15 what is taken off. Wide code has this in 16
// and 17, then indices in 18-21, the constant in 22 and a mask in 23.
func (w *walker) shuffles() bool { return w.mayShuffle() && (!w.f.min || w.exact) }

// mayShuffle says whether all or some blocks are shuffled. Wide expand is 1.05 to 1.1 times as
// fast by it in formats with a plane of 2 bits and 0.9 to 1.02 times in others, as copies of
// the constant take issue slots.
func (w *walker) mayShuffle() bool {
	return !w.evex || w.lanes == 16 && !w.bits() && (w.chain || w.f.width == 2 || w.f.hi == 2)
}

// either emits walk, of what has its halves of d and of minima at from, with shuffles for
// where these are exact and without.
func (w *walker) either(from reg.Register, walk func()) {
	var apart [2]reg.VecPhysical
	for i := range apart {
		d, min := vectors[12+2*i], vectors[13+2*i] // of 16 rows
		VMOVDQU(w.vector(0x7c007c00), d)
		VPAND(Mem{Base: from, Disp: 64 + 32*i}, d, min)
		VPAND(Mem{Base: from, Disp: 32 * i}, d, d)
		VPSUBW(d, min, d)
		VPSUBUSW(w.vector(14*0x04000400), d, d) // 0 where the difference is 0 to 14
		apart[i] = d
	}
	VPOR(apart[0], apart[1], apart[0])
	VPTEST(apart[0], apart[0])
	JZ(LabelRef("exact"))
	walk()
	if w.evex {
		w.shuffleConstants() // scales lay there
	}
	JMP(LabelRef("walked"))
	Label("exact")
	w.exact = true
	walk()
	w.exact = false
	Label("walked")
}

const (
	half8   = 0x3f // upper byte of 1/2
	eight8  = 0x41 // of 8
	nothing = 0x80 // index that shuffles a zero
)

// upper says whether the codes of quad f are upper halves of bytes and stay there.
func (w *walker) upper(f int) bool {
	return !w.evex && w.f.width == 4 && w.f.hi == 0 && !w.f.min && f&1 == 1
}

// shuffleConstants loads what wide code and expand have in registers.
func (w *walker) shuffleConstants() {
	switch {
	case !w.mayShuffle():
	case w.evex:
		for p := range 4 {
			to := 2
			if w.f.width == 8 {
				to = 1
			}
			VMOVDQU32(w.shuffle(p, to, nothing, true), w.v(18+p))
		}
		VMOVDQU32(w.vector(half8<<24), w.v(22))
		mask := w.low()
		if w.f.hi > 0 {
			mask = w.high()
		}
		VMOVDQU32(w.vector(mask), w.v(23))
		below := GP64()
		MOVQ(U64(0x7777777777777777), below)
		KMOVQ(below, reg.K1)
	case !w.chain:
		for f := range 2 {
			if f == 0 || w.upper(f) {
				for p := range 4 {
					VMOVDQU(w.indices(f, p), w.index(f, p))
				}
				VMOVDQU(w.vector(w.codeBits(f)), w.codeMask(f))
			}
		}
		if w.f.width == 8 || w.upper(1) {
			VMOVDQU(w.vector(w.fill()), w.filler())
		}
	}
}

// fill are the constants that come in where OR does not make them.
func (w *walker) fill() uint32 {
	if w.f.width == 8 {
		return half8 * 0x01010101
	}
	return eight8 * 0x01010101
}

// filler is where they are.
func (w *walker) filler() reg.VecPhysical {
	if w.chain {
		return w.v(13)
	}
	return w.v(12)
}

// indices says where the codes of byte p of quad f go.
func (w *walker) indices(f, p int) Mem {
	switch {
	case w.f.width == 8:
		return w.shuffle(p, 1, 3-p&2, true)
	case w.upper(f) && p == 0:
		return w.shuffle(p, 1, nothing, true)
	case w.upper(f):
		return w.shuffle(p-1, 1, 15, false)
	case p == 0:
		return w.shuffle(p, 2, nothing, true)
	}
	return w.shuffle(p, 2, 0, true)
}

// index is where AVX2 code has them.
func (w *walker) index(f, p int) reg.VecPhysical {
	switch {
	case !w.chain && w.upper(f):
		return w.v([]int{5, 6, 7, 9}[p])
	case !w.chain:
		return w.v(p)
	case w.rows > 0:
		return w.v(12)
	}
	return w.v(15)
}

// codeBits are those of the codes of quad f in memory.
func (w *walker) codeBits(f int) uint32 {
	if w.upper(f) {
		return ^w.low()
	}
	return w.low()
}

// codeMask is where AVX2 code has them.
func (w *walker) codeMask(f int) reg.VecPhysical {
	switch {
	case !w.chain && w.upper(f):
		return w.v(11)
	case !w.chain:
		return w.v(10)
	case w.rows > 0 && w.shuffles():
		return w.v(14)
	}
	return w.v(13)
}

// codes puts the codes of quad f into the bytes of q; those of Q8_0 a shuffle takes from memory.
func (w *walker) codes(h, f int) {
	mask := w.codeMask(f)
	switch {
	case w.evex:
		mask = w.v(23)
	case !w.chain:
	case w.f.width == 8:
		VMOVDQU(w.vector(w.fill()), w.filler())
	default:
		VMOVDQU(w.vector(w.codeBits(f)), mask)
	}
	for v := range w.nv {
		if w.f.hi > 0 {
			w.quad(h, f, v)
			continue
		}
		per := 8 / w.f.width
		m := w.plane(f/per*128, v)
		if f%per == 0 {
			w.prefetch(m, v)
		}
		switch {
		case w.f.width == 8 && w.evex:
			w.shifted(m, 0, w.q(v))
		case w.f.width == 8:
		case f%per == 0 || w.upper(f):
			w.and(m, mask, w.q(v))
		default:
			w.shifted(m, f%per*w.f.width, w.q(v))
			w.and(mask, w.q(v), w.q(v))
		}
	}
	if w.chain && w.upper(f) {
		VMOVDQU(w.vector(w.fill()), w.filler())
	}
}

// shuffled forms the weights of byte p of quad f and, unless there are rows, uses them.
func (w *walker) shuffled(f, p int) {
	if w.evex {
		for v := range w.nv {
			t := w.temporary(v, p)
			VMOVDQA32(w.v(22), t)
			VPSHUFB(w.v(18+p), w.q(v), reg.K1, t)
			w.weigh(f, p, v, t)
		}
		return
	}
	index := w.index(f, p)
	if w.chain {
		VMOVDQU(w.indices(f, p), index)
	}
	small := w.f.width < 8 && !w.upper(f) // codes below the constant
	var constant Op
	if small && p < 2 {
		constant = w.vector([]uint32{half8 << 24, half8}[p])
		if w.chain && w.rows == 0 { // 1.02 to 1.05 times as fast as from memory, tiles are not
			VMOVDQU(constant, w.v(13))
			constant = w.v(13)
		}
	}
	for v := range w.nv {
		q, t := w.q(v), w.v(14)
		if w.rows > 0 {
			t = w.temporary(v, p)
		}
		switch {
		case w.f.width == 8 && p&1 == 0: // constants to the other words
			VPBLENDW(Imm([]uint64{0x55, 0, 0xaa}[p]), w.plane(f*128, v), w.filler(), q)
		case small && p == 1: // byte 0 is done, and the constant has all bits of its code
			VPOR(constant, q, q)
		}
		VPSHUFB(index, q, t)
		switch {
		case small && p == 0:
			VPOR(constant, t, t)
		case w.upper(f) && p == 0:
			VPOR(w.vector(eight8<<24), t, t)
			VPALIGNR(Imm(1), q, w.filler(), q) // a constant comes in, byte 0 leaves
		}
		w.weigh(f, p, v, t)
	}
}

// weigh makes weights of the floats t.
func (w *walker) weigh(f, p, v int, t reg.VecPhysical) {
	set := 0
	if w.upper(f) {
		set = 1
	}
	VFMSUB213PS(w.less(v, set), w.min(v), t)
	switch {
	case w.rows > 0:
	case w.chain:
		VFMADD231PS(w.v(12), t, w.acc(v))
	default:
		VMOVUPS(t, w.output((4*f+p)*128, v))
	}
}

var shuffleTables = map[string]Mem{}

// shuffle is the index for byte from of each dword as byte to, below the byte constant, of
// the dword or of the lane.
func (w *walker) shuffle(from, to, constant int, ofDword bool) Mem {
	set, dwords := "avx2", 8
	if w.evex {
		set, dwords = "avx512", 16
	}
	name := fmt.Sprintf("%s_shuffle_%d_%d_%d_%t", set, from, to, constant, ofDword)
	m, ok := shuffleTables[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for i := range dwords {
			r := uint32(4 * (i % 4))
			c := uint32(constant)
			if ofDword && constant != nothing {
				c += r
			}
			d := uint32(nothing*0x010101) | c<<24
			d &^= 0xff << (8 * to)
			DATA(4*i, U32(d|(r+uint32(from))<<(8*to)))
		}
		shuffleTables[name] = m
	}
	return m
}

// less is where what is taken off by set lies: in tiles in a register, where one is left.
func (w *walker) less(v, set int) Op {
	switch n := 2*w.rows + 2*set + v; {
	case w.evex:
		return w.v(16 + v)
	case !w.chain:
		return w.v(13 + 2*set)
	case w.rows > 0 && n < 8:
		return w.v(n)
	case w.rows == maxTile && n == 8 && (w.f.hi > 0 || w.f.min):
		return w.v(13)
	}
	return w.scaleAt(v, set)
}

// shuffleScales puts D·2⁸ or, for Q8_0, D·2¹⁶ where else minima lie, and what is taken off
// into its place.
func (w *walker) shuffleScales(h int) {
	c := func(f float32) Mem { return w.vector(math.Float32bits(f)) }
	for v := range w.nv {
		d, scaled := w.v(14), w.min(v)
		// set puts what is taken off into the register it is given.
		set := func(i int, form func(less reg.VecPhysical)) {
			place := w.less(v, i)
			less, ok := place.(reg.VecPhysical)
			if !ok {
				less = w.v(15)
			}
			form(less)
			if !ok {
				VMOVUPS(less, place)
			}
		}
		times := func(i int, of reg.VecPhysical, factor float32) {
			set(i, func(less reg.VecPhysical) { VMULPS(c(factor), of, less) })
		}
		// minimum adds D·128 to a minimum, a small integer in less, times dmin.
		minimum := func(less reg.VecPhysical) {
			VCVTDQ2PS(less, less)
			VMULPS(w.half16(64, v), less, less)
			VFMADD231PS(c(0.5), scaled, less)
		}
		scale := func() {
			VCVTDQ2PS(d, d)
			VMULPS(w.half16(0, v), d, scaled)
			if !w.heads() {
				VMULPS(c(0x1p8), scaled, scaled)
			}
		}
		switch {
		case w.f.scale == sub32:
			VPMOVZXBD(w.at(w.z, 0, v, 1), d)
			scale()
			set(0, func(less reg.VecPhysical) {
				VPMOVZXBD(w.at(w.z, 32, v, 1), less)
				minimum(less)
			})
		case w.f.scale == nibbles:
			VPMOVZXBD(w.at(w.z, 32*h, v, 1), d)
			w.and(w.vector(15), d, d)
			scale()
			set(0, func(less reg.VecPhysical) {
				VPMOVZXBD(w.at(w.z, 32*h, v, 1), less)
				VPSRLD(Imm(4), less, less)
				minimum(less)
			})
		case w.f.scale == sub16:
			VPMOVSXBD(w.at(w.z, 32*h, v, 1), d)
			scale()
			times(0, scaled, (128+w.f.off)*0x1p-8)
		case w.f.width == 8:
			VCVTPH2PS(w.at(w.z, 0, v, 2), d)
			VMULPS(c(0x1p16), d, scaled)
			times(0, d, 0x1p15+w.f.off)
		case w.f.min:
			VCVTPH2PS(w.at(w.z, 0, v, 2), d)
			VMULPS(c(0x1p8), d, scaled)
			set(0, func(less reg.VecPhysical) {
				VCVTPH2PS(w.at(w.z, 64, v, 2), less)
				VFMSUB231PS(c(0.5), scaled, less) // D·128 - m
			})
		default:
			VCVTPH2PS(w.at(w.z, 0, v, 2), d)
			VMULPS(c(0x1p8), d, scaled)
			times(0, d, 0x1p7+w.f.off)
			if w.f.hi == 0 {
				times(1, d, 0x1p11+w.f.off)
			}
		}
	}
}

// half16 is where the halves of a head at disp are floats, which it makes them if none did.
func (w *walker) half16(disp, v int) Op {
	if w.heads() {
		return w.headed(disp, v)
	}
	VCVTPH2PS(w.at(w.head, disp, v, 2), w.v(13))
	return w.v(13)
}
