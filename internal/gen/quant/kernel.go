package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const width = 32 // rows of a panel

// form is one way to write the kernels of a format.
type form struct {
	name  string
	evex  bool // AVX-512 instructions and registers
	lanes int  // rows in a vector
	ahead int  // blocks from what gemv reads to what it prefetches; 0: nothing
}

var (
	avx2   = form{"AVX2", false, 8, 2}
	avx512 = form{"AVX512", true, 8, 0}
	wide   = form{"AVX512Wide", true, 16, 2}
)

// walker holds the registers of one kernel.
//
// Vector registers of gemv and expand: 0-3 chains, 4-7 minima, 8-11 four weights' bytes, 12
// the broadcast input, 13 the mask, 14 and 15 temporaries. The scales of the four byte
// positions, D·2⁻⁸ᵖ, lie on the stack and are memory operands. EVEX code has the first two
// in 16-23, its constants in 24-30, and a temporary for each vector in 13, 14, 15 and 31.
// There are two forms of it.
//
// With 256-bit vectors, for Zen 4: 512 bits for one panel leave two chains, and two panels
// at once are no faster in L2 and 12 % slower from DRAM there. The bound is the number of
// vector instructions on four units, not the chains: more of them in flight change nothing.
// Nor does it pay on Zen 4 to make floats of codes by setting upper bits (VPTERNLOGD, or
// VPOR once for two codes), nor by a permutation of a table. The two products per weight
// alone allow 29.4 G weights/s, and with mask and conversion still do; scales take 7 %
// (Q4_0) to 11 % (Q4_K) of that. Forming them one chunk ahead in a second table, converting
// a head once per block, scaling by integer steps of the exponent, and prefetching by
// software were each as fast or slower.
//
// With 512-bit vectors (wide), for processors that run them at full rate (isa.Wide): Intel's
// have three units of 256 bits, of which only two convert and multiply, or two of 512, so
// that the four instructions of a vector take 1.5 cycles for 8 weights or 2 for 16. All
// scales of the two vectors lie in 16-23, a block's head as floats in 2, 3, 6 and 7 (3 %).
// Each line is prefetched two blocks ahead, in AVX2 as well: on Emerald Rapids gemv from
// memory is 1.4 (Q2_K) to 1.8 times as fast by it, and with AVX2 1.2 to 1.5 times; from L2
// it makes no difference. There and with AVX2 few weights need a conversion (bits, shuffles).
//
// A tile of up to four rows of inputs walks two vectors, with AVX2 half a panel at a time:
// 0-7 are its chains, 8 and 9 minima, 10 and 11 four weights' bytes. The second half finds
// the block in L1, so the next is prefetched: Q8_0 from memory is 1.3 times as fast by it.
type walker struct {
	form
	f     format
	chain bool
	exact bool // shuffles in spite of minima
	rows  int  // of inputs, in the order of package gemm's tiles; 0: one, or none
	nv    int  // vectors of weights walked together

	group                   reg.Register // first row of the vectors, where these are not the whole panel
	bytes                   reg.Register // 4·group, where planes are walked by pointers
	p, z, head, x, y, table reg.Register
	constants               map[string]Op
}

func kernel(f format, in form, chain bool) {
	w := &walker{form: in, f: f, chain: chain, nv: 1, constants: map[string]Op{}}
	if chain {
		w.nv = width / w.lanes // the whole panel: its chains hide the latency of an addition
	}
	name := funcName(f, in, chain)
	if chain {
		TEXT(name, 0, "func(y, x *float32, panel *byte, chunks int)")
		Doc(fmt.Sprintf("%s writes y[lane] = DOT(x, weight) of a panel of %s over chunks·32 inputs.", name, f.name))
	} else {
		TEXT(name, 0, "func(dst *float32, block *byte, chunks int)")
		Doc(fmt.Sprintf("%s writes the weights of up to 4 chunks of 32 inputs of a %s panel as dst[32·chunks][32].", name, f.name))
	}
	Pragma("noescape")
	w.body()
	VZEROUPPER()
	RET()
}

// maxTile is the most rows of a tile: its chains by two vectors fill eight registers.
const maxTile = 4

// tile generates a kernel that adds one block to the chains of some rows of inputs.
func tile(f format, in form, rows int) {
	w := &walker{form: in, f: f, chain: true, rows: rows, nv: 2, constants: map[string]Op{}}
	name := fmt.Sprintf("tile%s_%d%s", f.name, rows, in.name)
	TEXT(name, 0, "func(dst *float32, dstStride int, src *float32, srcStride int, a *float32, block *byte, chunks int)")
	Doc(fmt.Sprintf("%s is a tileFunc of %s for %d rows.", name, f.name, rows))
	Pragma("noescape")
	w.tile()
	VZEROUPPER()
	RET()
}

func (w *walker) tile() {
	w.p, w.z, w.head, w.table, w.x, w.group = GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	chunks, from, to := GP64(), GP64(), GP64()
	w.prepare()
	if !w.whole() {
		XORQ(w.group, w.group)
		Label("group")
	}
	Load(Param("block"), w.p)
	Load(Param("a"), w.x)
	Load(Param("chunks"), chunks)
	for i := range w.rows * w.nv {
		VXORPS(w.acc(i), w.acc(i), w.acc(i))
	}
	w.blocks(chunks)
	Comment("dst = src + acc")
	Load(Param("src"), from)
	Load(Param("dst"), to)
	fromStride, toStride := Load(Param("srcStride"), GP64()), Load(Param("dstStride"), GP64())
	for r := range w.rows {
		for v := range w.nv {
			acc := w.acc(r*w.nv + v)
			VADDPS(w.at(from, 0, v, 4), acc, acc)
			VMOVUPS(acc, w.at(to, 0, v, 4))
		}
		ADDQ(fromStride, from)
		ADDQ(toStride, to)
	}
	if !w.whole() {
		ADDQ(Imm(uint64(w.nv*w.lanes)), w.group)
		CMPQ(w.group, Imm(width))
		JNE(LabelRef("group"))
	}
}

// whole says whether the vectors walked together span the panel.
func (w *walker) whole() bool { return w.nv*w.lanes >= width }

var vectors = []reg.VecPhysical{
	reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
	reg.Y16, reg.Y17, reg.Y18, reg.Y19, reg.Y20, reg.Y21, reg.Y22, reg.Y23, reg.Y24, reg.Y25, reg.Y26, reg.Y27, reg.Y28, reg.Y29, reg.Y30, reg.Y31,
}

var vectors512 = []reg.VecPhysical{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}

func (w *walker) v(i int) reg.VecPhysical {
	if w.lanes == 16 {
		return vectors512[i]
	}
	return vectors[i]
}

func (w *walker) acc(v int) reg.VecPhysical { return w.v(v) }

func (w *walker) min(v int) reg.VecPhysical {
	if w.rows > 0 {
		return w.v(8 + v)
	}
	return w.v(4 + v)
}

func (w *walker) q(v int) reg.VecPhysical {
	if w.bits() {
		return w.v(8)
	}
	if w.rows > 0 {
		return w.v(10 + v)
	}
	return w.v(8 + v)
}

// at addresses the part of vector v in a row-wise array of elem-byte entries; vectors
// beyond the panel are of the next block.
func (w *walker) at(base reg.Register, disp, v, elem int) Mem {
	if n := width / w.lanes; v >= n {
		v, disp = v-n, disp+w.f.block()
	}
	m := Mem{Base: base, Disp: disp + v*w.lanes*elem}
	if !w.whole() {
		m.Index, m.Scale = w.group, uint8(elem)
	}
	return m
}

// plane addresses vector v of the planes at disp from p.
func (w *walker) plane(disp, v int) Mem {
	if w.pointers() {
		return Mem{Base: w.p, Disp: disp + v*w.lanes*4}
	}
	return w.at(w.p, disp, v, 4)
}

// output addresses the weights of vector v at disp that expand stores.
func (w *walker) output(disp, v int) Mem {
	if w.pointers() {
		return Mem{Base: w.y, Disp: disp}
	}
	return w.at(w.y, disp, v, 4)
}

// pointers says whether p, and y of expand, lie at the first of the rows walked rather than
// the panel's: VEX instructions of three operands take two micro-operations with an index.
func (w *walker) pointers() bool { return !w.evex && !w.whole() }

// scaleAt is where D·2⁻⁸ᵖ of vector v lies.
func (w *walker) scaleAt(v, p int) Op {
	switch {
	case w.lanes == 16:
		return w.v(16 + 4*v + p)
	case w.evex && p < 2:
		return w.v(16 + 2*v + p)
	}
	return Mem{Base: w.table, Disp: (v*4 + p) * w.lanes * 4}
}

var globals = map[uint32]Mem{}

// constant is a vector of equal 32-bit values: a register, or memory where the
// chains leave none. All constants of a kernel must be asked for once before its loops.
func (w *walker) constant(bits uint32) Op {
	key := fmt.Sprint(bits)
	if op, ok := w.constants[key]; ok {
		return op
	}
	m := w.vector(bits)
	var op Op = m
	if n := len(w.constants); w.evex {
		r := w.v(24 + n)
		if w.bits() {
			r = w.v(11 + n)
		}
		VMOVUPS(m, r)
		op = r
	}
	w.constants[key] = op
	return op
}

// vector is a vector of equal 32-bit values in memory.
func (w *walker) vector(bits uint32) Mem {
	m, ok := globals[bits]
	if !ok {
		set, size := "avx2", 32
		if w.evex {
			set, size = "avx512", 64
		}
		m = GLOBL(fmt.Sprintf("%s_%08x", set, bits), RODATA|NOPTR)
		for i := 0; i < size; i += 4 {
			DATA(i, U32(bits))
		}
		globals[bits] = m
	}
	return m
}

func (w *walker) mask(p int) uint32 { return (1<<(w.f.width+w.f.hi) - 1) << (8 * p) }

// low and high are the parts that the two planes fill in each byte.
func (w *walker) low() uint32  { return (1<<w.f.width - 1) * 0x01010101 }
func (w *walker) high() uint32 { return (1<<w.f.hi - 1) << w.f.width * 0x01010101 }

func (w *walker) body() {
	w.p, w.z, w.head, w.table = GP64(), GP64(), GP64(), GP64()
	rest, chunks := GP64(), GP64()
	var block, dst reg.Register
	if w.chain {
		w.x, w.y = Load(Param("x"), GP64()), Load(Param("y"), GP64())
		Load(Param("panel"), w.p)
		Load(Param("chunks"), rest)
	} else {
		w.y, w.group = GP64(), GP64()
		dst, block = Load(Param("dst"), GP64()), Load(Param("block"), GP64())
		Load(Param("chunks"), rest)
	}
	w.prepare()
	if !w.chain {
		XORQ(w.group, w.group)
		Label("group")
		MOVQ(block, w.p)
		if w.pointers() {
			LEAQ(Mem{Base: dst, Index: w.group, Scale: 4}, w.y)
		} else {
			MOVQ(dst, w.y)
		}
		MOVQ(rest, chunks)
		w.blocks(chunks)
		ADDQ(Imm(uint64(w.lanes)), w.group)
		CMPQ(w.group, Imm(32))
		JNE(LabelRef("group"))
		return
	}
	VXORPS(w.acc(0), w.acc(0), w.acc(0))
	for v := range w.nv {
		VMOVUPS(w.acc(0), w.total(v))
	}
	if w.bits() {
		w.pairs(rest, chunks)
	}
	Label("block")
	MOVQ(U32(4), chunks)
	CMPQ(rest, chunks)
	CMOVQLT(rest, chunks)
	SUBQ(chunks, rest)
	w.blocks(chunks)
	TESTQ(rest, rest)
	JNZ(LabelRef("block"))
	if w.bits() {
		Label("done")
	}
}

// prepare makes room for scales and loads the constants.
func (w *walker) prepare() {
	f := w.f
	if w.lanes == 8 {
		size := 4*4*w.lanes*4 + 64
		if !w.evex {
			size += 2 * 4 * w.lanes * 4 // heads
		}
		frame := AllocLocal(size)
		LEAQ(frame, w.table)
		ADDQ(Imm(63), w.table)
		ANDQ(I32(-64), w.table)
	}
	if w.bits() {
		w.bitConstants()
		return
	}
	w.shuffleConstants()
	if w.evex && w.shuffles() {
		if f.hi > 0 {
			w.constant(w.low())
		}
		return
	}
	for p := range 4 {
		if f.width < 8 || p < 3 {
			w.constant(w.mask(p))
		}
	}
	w.constant(math.Float32bits(0x1p-8))
	if !f.min {
		w.constant(math.Float32bits(f.off))
	}
	if f.hi > 0 {
		w.constant(w.low())
		if !w.evex {
			w.constant(w.high())
		}
	}
	if f.scale == nibbles {
		w.constant(15)
	}
}

func (w *walker) total(v int) Mem { return Mem{Base: w.y, Disp: v * w.lanes % width * 4} }

// label is that of a loop over the vectors walked together.
func (w *walker) label(name string) string {
	switch {
	case w.nv*w.lanes > width:
		return name + "OfPair"
	case w.exact:
		return name + "Exact"
	}
	return name
}

// minima says whether some minima allow shuffles and some do not.
func (w *walker) minima() bool { return w.mayShuffle() && w.f.min }

// blocks walks the chunks of one block in the way its head allows.
func (w *walker) blocks(chunks reg.Register) {
	if w.minima() && w.f.head() > 0 {
		w.either(w.p, func() { w.block(chunks) })
	} else {
		w.block(chunks)
	}
}

// block walks the chunks of one block.
func (w *walker) block(chunks reg.Register) {
	if w.chain && w.rows == 0 {
		for v := range w.nv {
			VXORPS(w.acc(v), w.acc(v), w.acc(v))
		}
	}
	if w.pointers() {
		w.bytes = GP64()
		MOVQ(w.group, w.bytes)
		SHLQ(Imm(2), w.bytes)
	}
	if w.f.head() > 0 {
		MOVQ(w.p, w.head)
		if w.rows == 0 || w.lanes == 16 {
			for at := 0; at < w.f.head(); at += 64 {
				w.prefetch(Mem{Base: w.head, Disp: at}, 0)
			}
		}
		for at := 0; at < w.f.head() && w.heads(); at += 64 {
			for v := range w.nv {
				w.widen(at, v)
			}
		}
		ADDQ(U32(uint32(w.f.head())), w.p)
	}
	if w.pointers() {
		ADDQ(w.bytes, w.p)
	}
	Label(w.label("chunk"))
	MOVQ(w.p, w.z)
	if w.pointers() {
		SUBQ(w.bytes, w.z)
	}
	if w.rows == 0 || w.lanes == 16 {
		for at := 0; at < w.f.chunkHead(); at += 64 {
			for block := 0; block < w.nv; block += width / w.lanes {
				w.prefetch(w.at(w.z, at, block, 0), 0)
			}
		}
	}
	ADDQ(U32(uint32(w.f.chunkHead())), w.p)
	if w.minima() && w.f.scale == plain {
		w.either(w.z, w.halves)
	} else {
		w.halves()
	}
	DECQ(chunks)
	JNZ(LabelRef(w.label("chunk")))
	if w.chain && w.rows == 0 {
		for v := range w.nv {
			VADDPS(w.total(v), w.acc(v), w.acc(v))
			VMOVUPS(w.acc(v), w.total(v))
		}
	}
}

// halves walks 32 inputs. It is unrolled for formats with a one-bit plane,
// whose shifts differ between the halves.
func (w *walker) halves() {
	if w.f.scale == plain || w.f.scale == sub32 {
		w.scales(0)
	}
	if w.f.hi == 1 {
		w.half(0)
		w.half(1)
		return
	}
	n := GP64()
	MOVQ(U32(2), n)
	Label(w.label("half"))
	w.half(0)
	if w.f.scale == sub16 || w.f.scale == nibbles {
		ADDQ(Imm(32), w.z)
	}
	DECQ(n)
	JNZ(LabelRef(w.label("half")))
}

func (w *walker) and(a, b, dst Op) {
	if w.evex {
		VPANDD(a, b, dst)
	} else {
		VPAND(a, b, dst)
	}
}

// shifted loads dwords and shifts them right (left where n < 0).
func (w *walker) shifted(m Mem, n int, dst reg.VecPhysical) {
	var src Op = m
	if n == 0 || !w.evex {
		if w.evex {
			VMOVDQU32(m, dst)
		} else {
			VMOVDQU(m, dst)
		}
		src = dst
	}
	switch {
	case n > 0:
		VPSRLD(Imm(uint64(n)), src, dst)
	case n < 0:
		VPSLLD(Imm(uint64(-n)), src, dst)
	}
}

// prefetch fetches the line of m, a part of vector v, of a later block.
func (w *walker) prefetch(m Mem, v int) {
	ahead := w.ahead
	if w.rows > 0 && w.lanes == 8 {
		ahead = 1
	}
	if ahead > 0 && w.chain && v*w.lanes%16 == 0 { // 16 dwords are a line
		m.Disp += ahead * w.f.block()
		PREFETCHT0(m)
	}
}

// quad puts the codes of inputs 4f..4f+3 of half h into the bytes of q(v);
// bits above the code are left over from its neighbours.
func (w *walker) quad(h, f, v int) {
	q, t := w.q(v), w.v(15)
	if f%(8/w.f.width) == 0 {
		w.prefetch(w.plane(f*w.f.width/8*128, v), v)
	}
	if w.f.width == 8 {
		w.shifted(w.plane(f*128, v), 0, q)
		return
	}
	per := 8 / w.f.width // quads in a dword
	switch {
	case w.evex || f%per > 0 && w.f.hi > 0:
		w.shifted(w.plane(f/per*128, v), f%per*w.f.width, q)
	case f%per > 0:
		VPSRLD(Imm(uint64(w.f.width)), q, q)
	case w.f.hi == 0:
		VMOVDQU(w.plane(f/per*128, v), q)
	default:
		VPAND(w.plane(f/per*128, v), w.codeMask(f), q)
	}
	switch w.f.hi {
	case 0:
		return
	case 1:
		w.shifted(w.at(w.z, w.f.bitPlane(), v, 4), 4*h+f-w.f.width, t)
	case 2:
		if f == 0 {
			w.prefetch(w.plane(64*w.f.width, v), v)
		}
		w.shifted(w.plane(64*w.f.width, v), 2*f-w.f.width, t)
	}
	if w.evex {
		if w.shuffles() {
			w.and(w.v(23), t, t)
		}
		VPTERNLOGD(Imm(0xe4), w.constant(w.low()), t, q) // low ? q : t
		return
	}
	if f%per > 0 {
		VPAND(w.codeMask(f), q, q)
	}
	VPAND(w.constant(w.high()), t, t)
	VPOR(t, q, q)
}

// half walks 16 inputs.
func (w *walker) half(h int) {
	if w.bits() {
		w.bitHalf(h)
		return
	}
	if w.f.scale == sub16 || w.f.scale == nibbles {
		w.scales(h)
	}
	for f := range 4 {
		if w.shuffles() {
			w.codes(h, f)
		} else {
			if w.f.hi > 0 && !w.evex && w.chain {
				VMOVDQU(w.vector(w.low()), w.v(13))
			}
			for v := range w.nv {
				w.quad(h, f, v)
			}
		}
		for p := range 4 {
			k := 4*f + p
			if w.chain && w.rows == 0 {
				VBROADCASTSS(Mem{Base: w.x, Disp: 4 * k}, w.v(12))
			}
			if w.shuffles() {
				w.shuffled(f, p)
				w.multiply(k, p)
				continue
			}
			var mask Op
			if w.f.width < 8 || p < 3 {
				mask = w.constant(w.mask(p))
				if m, ok := mask.(Mem); ok {
					VMOVDQU(m, w.v(13))
					mask = w.v(13)
				}
			}
			w.together(func(v int) {
				if mask == nil {
					VPSRLD(Imm(24), w.q(v), w.temporary(v, p))
				} else {
					w.and(mask, w.q(v), w.temporary(v, p))
				}
			}, func(v int) {
				VCVTDQ2PS(w.temporary(v, p), w.temporary(v, p))
			}, func(v int) {
				d := w.scaleAt(v, p)
				if mask == nil {
					d = w.scaleAt(v, 0)
				}
				if w.f.min && w.f.scale == plain {
					VFMADD132PS(d, w.min(v), w.temporary(v, p)) // D·q + m
				} else {
					VFMSUB132PS(d, w.min(v), w.temporary(v, p)) // D·q - min
				}
			}, func(v int) {
				if w.rows > 0 {
					return
				}
				if w.chain {
					VFMADD231PS(w.v(12), w.temporary(v, p), w.acc(v))
				} else {
					VMOVUPS(w.temporary(v, p), w.output(k*128, v))
				}
			})
			w.multiply(k, p)
		}
	}
	w.advance()
}

// multiply adds a tile's products of input k, whose weights are of byte p.
func (w *walker) multiply(k, p int) {
	for r := range w.rows {
		VBROADCASTSS(Mem{Base: w.x, Disp: 4 * (k*w.rows + r)}, w.v(12))
		for v := range w.nv {
			VFMADD231PS(w.v(12), w.temporary(v, p), w.acc(r*w.nv+v))
		}
	}
}

// advance goes to the next half.
func (w *walker) advance() {
	ADDQ(U32(uint32(w.f.half())), w.p)
	switch {
	case w.rows > 0:
		ADDQ(U32(uint32(64*w.rows)), w.x)
	case w.chain:
		ADDQ(Imm(64), w.x)
	default:
		ADDQ(U32(2048), w.y)
	}
}

// together emits the steps for all vectors: with AVX-512, which has a temporary
// for each, step by step, which Zen 4 runs up to 3 % faster, as equal
// instructions in a row spread evenly over its units; else vector by vector.
func (w *walker) together(steps ...func(v int)) {
	if w.evex {
		for _, step := range steps {
			for v := range w.nv {
				step(v)
			}
		}
		return
	}
	for v := range w.nv {
		for _, step := range steps {
			step(v)
		}
	}
}

// temporary is where the weights of vector v at byte p are formed.
func (w *walker) temporary(v, p int) reg.VecPhysical {
	if w.evex {
		return w.v([]int{13, 14, 15, 31}[v])
	}
	return w.v(14 + (v+p)&1)
}
