package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// packer writes the kernels that lay out panels. A lane is a row: dwords are gathered
// from blocks of the file that lie a stride apart, so that what is to be done with the
// codes of a row is done with those of all, and they are stored as they come. A panel
// takes width/lanes passes over all inputs; each prefetches what the next will read.
type packer struct {
	form
	f          format
	rows, next reg.Register // of the pass: the current block of the first row, and what the next pass reads
	index      reg.VecVirtual
	zero       reg.VecVirtual
	ones       reg.Register // a mask of all lanes, which a gather uses up
	d4, d2, d1 reg.Register // the panel from the pass's first row on, for fields of so many bytes
}

var packForms = []form{{name: "AVX2", lanes: 8}, {name: "AVX512", evex: true, lanes: 16}}

// packBodies lay out one block of the file, of so many bytes.
var packBodies = []struct {
	name  string
	bytes int
	body  func(*packer)
}{
	{"Q8_0", 34, (*packer).q8},
	{"Q4_0", 18, (*packer).q4},
	{"Q4_1", 20, (*packer).q4},
	{"Q5_0", 22, (*packer).q4},
	{"Q5_1", 24, (*packer).q4},
	{"Q2_K", 84, (*packer).q2K},
	{"Q3_K", 110, (*packer).q3K},
	{"Q4_K", 144, (*packer).q45K},
	{"Q5_K", 176, (*packer).q45K},
	{"Q6_K", 210, (*packer).q6K},
}

// spread times four bits is a dword with one of them in each byte's lowest bit.
const spread = 0x00204081

func packs() {
	for _, c := range []uint32{0x80808080, 0x0f0f0f0f, 0x3f3f3f3f, 0x30303030, 0x03030303, 0x01010101, 0xe0e0e0e0, 0xff, 0xffff, 0xf, spread} {
		GLOBL(fmt.Sprintf("pack%08x", c), RODATA|NOPTR)
		for i := range 16 {
			DATA(4*i, U32(c))
		}
	}
	for _, b := range packBodies {
		for _, f := range formats {
			for _, in := range packForms {
				if f.name == b.name {
					pack(f, in, b.bytes, b.body)
				}
			}
		}
	}
}

func pack(f format, in form, bytes int, body func(*packer)) {
	name := "pack" + f.name + in.name
	TEXT(name, NOSPLIT, "func(dst, src *byte, stride, blocks int)")
	Doc(fmt.Sprintf("%s is a packFunc of %s.", name, f.name))
	Pragma("noescape")
	p := &packer{form: in, f: f, rows: GP64(), next: GP64(), d4: GP64(), d2: GP64(), d1: GP64()}
	size := f.block() / 4
	if f.scale != plain {
		size = 2 * f.block()
	}
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	stride := Load(Param("stride"), GP64())
	p.index = p.vec()
	Comment("lane times stride")
	lanes := GLOBL("lanes"+name, RODATA|NOPTR)
	for i := range in.lanes {
		DATA(4*i, U32(uint32(i)))
	}
	s := XMM()
	VMOVD(stride.(reg.GPVirtual).As32(), s)
	VPBROADCASTD(s, p.index)
	VPMULLD(lanes, p.index, p.index)
	if in.evex {
		p.zero = ZMM()
		VPXORD(p.zero, p.zero, p.zero)
		p.ones = K()
		KXNORW(p.ones, p.ones, p.ones)
	} else {
		p.ones = YMM()
		VPCMPEQD(p.ones, p.ones, p.ones)
	}
	skip := GP64() // from the first row of a pass to that of the next
	MOVQ(stride, skip)
	IMUL3Q(Imm(uint64(in.lanes)), skip, skip)
	passes, blocks := GP64(), GP64()
	MOVQ(dst, p.d4)
	MOVQ(dst, p.d2)
	MOVQ(dst, p.d1)
	MOVQ(U32(uint32(width/in.lanes)), passes)
	Label("pass")
	MOVQ(src, p.rows)
	ADDQ(skip, src)
	MOVQ(src, p.next)
	Load(Param("blocks"), blocks)
	Label("block")
	for at := 0; at < bytes*in.lanes; at += 64 {
		PREFETCHT0(Mem{Base: p.next, Disp: at})
	}
	ADDQ(U32(uint32(bytes*in.lanes)), p.next)
	body(p)
	ADDQ(U32(uint32(bytes)), p.rows)
	for _, d := range []reg.Register{p.d4, p.d2, p.d1} {
		ADDQ(U32(uint32(size)), d)
	}
	DECQ(blocks)
	JNZ(LabelRef("block"))
	Comment("back to the first block, for the next rows")
	back := GP64()
	Load(Param("blocks"), back)
	IMUL3Q(U32(uint32(size)), back, back)
	for i, d := range []reg.Register{p.d1, p.d2, p.d4} {
		SUBQ(back, d)
		ADDQ(U32(uint32(in.lanes<<i)), d)
	}
	DECQ(passes)
	JNZ(LabelRef("pass"))
	if in.evex {
		SFENCE()
	}
	VZEROUPPER()
	RET()
}

func (p *packer) vec() reg.VecVirtual {
	if p.evex {
		return ZMM()
	}
	return YMM()
}

// all is a constant in every dword.
func (p *packer) all(c uint32) Mem {
	return NewDataAddr(NewStaticSymbol(fmt.Sprintf("pack%08x", c)), 0)
}

// load gathers the dwords at an offset of the blocks.
func (p *packer) load(at int) reg.VecVirtual {
	v := p.vec()
	m := Mem{Base: p.rows, Disp: at, Index: p.index, Scale: 1}
	if p.evex {
		k := K()
		KMOVW(p.ones, k)
		VMOVDQA32(p.zero, v) // gathers wait for what they replace
		VPGATHERDD(m, k, v)
		return v
	}
	mask := p.vec()
	VMOVDQU(p.ones, mask)
	VPXOR(v, v, v)
	VPGATHERDD(mask, m, v)
	return v
}

// store writes dwords at an offset of the panel's block.
func (p *packer) store(v reg.VecVirtual, at int) {
	if p.evex {
		VMOVNTDQ(v, Mem{Base: p.d4, Disp: at})
	} else {
		VMOVDQU(v, Mem{Base: p.d4, Disp: at})
	}
}

func (p *packer) and(c uint32, v reg.VecVirtual) reg.VecVirtual {
	t := p.vec()
	if p.evex {
		VPANDD(p.all(c), v, t)
	} else {
		VPAND(p.all(c), v, t)
	}
	return t
}

// or adds w to v.
func (p *packer) or(w, v reg.VecVirtual) {
	if p.evex {
		VPORD(w, v, v)
	} else {
		VPOR(w, v, v)
	}
}

// shift moves v up, or down for n < 0.
func (p *packer) shift(n int, v reg.VecVirtual) reg.VecVirtual {
	t := p.vec()
	switch {
	case n > 0:
		VPSLLD(Imm(uint64(n)), v, t)
	case n < 0:
		VPSRLD(Imm(uint64(-n)), v, t)
	default:
		return v
	}
	return t
}

// shorts writes the lower halves of dwords.
func (p *packer) shorts(v reg.VecVirtual, at int) {
	m := Mem{Base: p.d2, Disp: at}
	if p.evex {
		VPMOVDW(v, m)
		return
	}
	t := p.and(0xffff, v)
	VPACKUSDW(t, t, t)
	VPERMQ(Imm(0x08), t, t)
	VMOVDQU(t.AsX(), m)
}

// bytes writes the lowest bytes of dwords.
func (p *packer) bytes(v reg.VecVirtual, at int) {
	m := Mem{Base: p.d1, Disp: at}
	if p.evex {
		VPMOVDB(v, m)
		return
	}
	t := p.and(0xff, v)
	VPACKUSDW(t, t, t)
	VPERMQ(Imm(0x08), t, t)
	VPACKUSWB(t, t, t)
	VMOVQ(t.AsX(), m)
}

// nibbles stores a's low nibbles below b's at low, their high nibbles alike at high.
func (p *packer) nibbles(a, b reg.VecVirtual, low, high int) {
	const mask = 0x0f0f0f0f
	up, down := p.shift(4, b), p.shift(-4, a)
	if p.evex { // where the mask is set the first, else the second
		VPTERNLOGD(Imm(0xe4), p.all(mask), up, a)
		VPTERNLOGD(Imm(0xe4), p.all(mask), b, down)
		p.store(a, low)
		p.store(down, high)
		return
	}
	m := p.vec()
	VMOVDQU(p.all(mask), m)
	for _, x := range []struct {
		first, second reg.VecVirtual
		at            int
	}{{a, up, low}, {down, b, high}} {
		s := p.vec()
		VPAND(m, x.first, x.first)
		VPANDN(x.second, m, s)
		VPOR(s, x.first, x.first)
		p.store(x.first, x.at)
	}
}

// q8 makes codes unsigned.
func (p *packer) q8() {
	p.shorts(p.load(0), 0)
	for i := range 8 {
		v := p.load(2 + 4*i)
		if p.evex {
			VPXORD(p.all(0x80808080), v, v)
		} else {
			VPXOR(p.all(0x80808080), v, v)
		}
		p.store(v, p.f.chunkHead()+128*i)
	}
}

func (p *packer) q4() {
	d := p.load(0)
	p.shorts(d, 0)
	from := 2
	if p.f.min {
		p.shorts(p.shift(-16, d), 64)
		from = 4
	}
	if p.f.hi == 1 {
		p.fifth(from)
		from += 4
	}
	for i := range 2 {
		at := p.f.chunkHead() + 128*i
		p.nibbles(p.load(from+8*i), p.load(from+8*i+4), at, at+p.f.half())
	}
}

// fifth: bit i of byte b of the plane is bit 4i+b of the dword at an offset.
func (p *packer) fifth(at int) {
	bits := p.load(at)
	var z reg.VecVirtual
	for i := range 8 {
		b := p.and(0xf, p.shift(-4*i, bits))
		VPMULLD(p.all(spread), b, b)
		b = p.shift(i, p.and(0x01010101, b))
		if i == 0 {
			z = b
		} else {
			p.or(b, z)
		}
	}
	p.store(z, p.f.bitPlane())
}

// chunk is the offset of chunk c of a K block, which becomes two blocks of a panel.
func (p *packer) chunk(c int) int {
	return c/4*p.f.block() + p.f.head() + c%4*(p.f.chunkHead()+2*p.f.half())
}

// q45K: see blockq.Scales45 for the six-bit scales and minima.
func (p *packer) q45K() {
	d := p.load(0)
	m := p.shift(-16, d)
	for i := range 2 {
		p.shorts(d, i*p.f.block())
		p.shorts(m, i*p.f.block()+64)
	}
	u, v, w := p.load(4), p.load(8), p.load(12)
	for i, x := range []reg.VecVirtual{u, v} { // scales, minima
		low := p.and(0x3f3f3f3f, x)
		high := p.and(0x30303030, p.shift(-2, x))
		p.or(p.and(0x0f0f0f0f, p.shift(-4*i, w)), high)
		for c := range 4 {
			p.bytes(p.shift(-8*c, low), p.chunk(c)+32*i)
			p.bytes(p.shift(-8*c, high), p.chunk(4+c)+32*i)
		}
	}
	qs := 16
	if p.f.hi == 1 {
		qs = 48
		p.bitPlanes(16)
	}
	for c := 0; c < 8; c += 2 {
		for i := range 4 {
			at := p.f.chunkHead() + i/2*p.f.half() + i%2*128
			b := qs + 16*c + 8*i
			p.nibbles(p.load(b), p.load(b+4), p.chunk(c)+at, p.chunk(c+1)+at)
		}
	}
}

// bitPlanes: bit c of byte b of dword i from an offset on is bit i of byte b of chunk c's
// plane.
func (p *packer) bitPlanes(at int) {
	for c := 0; c < 8; c += 4 {
		var z [4]reg.VecVirtual
		for i := range 8 {
			h := p.load(at + 4*i)
			for j := range z {
				b := p.shift(i, p.and(0x01010101, p.shift(-c-j, h)))
				if i == 0 {
					z[j] = b
				} else {
					p.or(b, z[j])
				}
			}
		}
		for j, v := range z {
			p.store(v, p.chunk(c+j)+p.f.bitPlane())
		}
	}
}

// pairs stores bits 2j and 2j+1 of each byte of four dwords, those of dword i at bits 2i
// and 2i+1.
func (p *packer) pairs(h [4]reg.VecVirtual, j, at int) {
	var z reg.VecVirtual
	for i, x := range h {
		b := p.shift(2*i, p.and(0x03030303, p.shift(-2*j, x)))
		if i == 0 {
			z = b
		} else {
			p.or(b, z)
		}
	}
	p.store(z, at)
}

// quads loads four dwords.
func (p *packer) quads(at int) (h [4]reg.VecVirtual) {
	for i := range h {
		h[i] = p.load(at + 4*i)
	}
	return h
}

// subScales writes four of the sixteen scales of 16 inputs each, the bytes of s.
func (p *packer) subScales(s reg.VecVirtual, first int) {
	for b := range 4 {
		p.bytes(p.shift(-8*b, s), p.chunk((first+b)/2)+b%2*32)
	}
}

// twoBits writes the codes of two bits from an offset on as the main plane.
func (p *packer) twoBits(from int) {
	for n := range 2 {
		for half := range 2 {
			h := p.quads(from + 32*n + 16*half)
			for j := range 4 {
				p.pairs(h, j, p.chunk(4*n+j)+p.f.chunkHead()+half*p.f.half())
			}
		}
	}
}

func (p *packer) q2K() {
	d := p.load(80)
	m := p.shift(-16, d)
	for i := range 2 {
		p.shorts(d, i*p.f.block())
		p.shorts(m, i*p.f.block()+64)
	}
	for i := range 4 {
		p.subScales(p.load(4*i), 4*i)
	}
	p.twoBits(16)
}

// q3K: see blockq.Scales3 for the signed six-bit scales.
func (p *packer) q3K() {
	d := p.shift(-16, p.load(106))
	for i := range 2 {
		p.shorts(d, i*p.f.block())
	}
	low, high := [2]reg.VecVirtual{p.load(96), p.load(100)}, p.load(104)
	for g := range 4 {
		s := p.and(0x0f0f0f0f, p.shift(-4*(g/2), low[g%2]))
		p.or(p.shift(4, p.and(0x03030303, p.shift(-2*g, high))), s)
		VPADDB(p.all(0xe0e0e0e0), s, s) // less 32
		p.subScales(s, 4*g)
	}
	p.bitPlanes(0)
	p.twoBits(32)
}

func (p *packer) q6K() {
	d := p.shift(-16, p.load(206))
	for i := range 2 {
		p.shorts(d, i*p.f.block())
	}
	for i := range 4 {
		p.subScales(p.load(192+4*i), 4*i)
	}
	for n := range 2 {
		for half := range 2 {
			h := p.quads(128 + 32*n + 16*half)
			for j := range 4 {
				p.pairs(h, j, p.chunk(4*n+j)+p.f.chunkHead()+half*p.f.half()+256)
			}
			for j := range 2 {
				for i := range 2 {
					at := p.f.chunkHead() + half*p.f.half() + 128*i
					b := 64*n + 32*j + 16*half + 8*i
					p.nibbles(p.load(b), p.load(b+4), p.chunk(4*n+j)+at, p.chunk(4*n+j+2)+at)
				}
			}
		}
	}
}
