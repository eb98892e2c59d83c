package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Pages of bf16. In each group of 16 values number j < 8 and number j+8 share a word
// (attn.At16): a shift and a mask give two vectors of float32, and 512 bits of two
// groups two vectors whose halves are joined when a chain is done.

const maxRows16 = 4 // a decode step

// high selects the upper half of every word.
func (m machine) high() reg.VecVirtual {
	v := m.vec()
	VBROADCASTSS(dup("attn_high", 0xffff0000), v)
	return v
}

// widen loads a vector of words and returns the first and the second half of its groups.
func (m machine) widen(src Mem, mask reg.VecVirtual) (lo, hi reg.VecVirtual) {
	lo, hi = m.vec(), m.vec()
	if m.width == 16 {
		VMOVDQU32(src, hi)
		VPSLLD(Imm(16), hi, lo)
		VPANDD(mask, hi, hi)
		return lo, hi
	}
	VMOVDQU(src, hi)
	VPSLLD(Imm(16), hi, lo)
	VPAND(mask, hi, hi)
	return lo, hi
}

// inOrder returns a pair of accumulators with their values in the order of slots or
// components.
func (m machine) inOrder(lo, hi reg.VecVirtual) [2]reg.VecVirtual {
	if m.width == 8 {
		return [2]reg.VecVirtual{lo, hi}
	}
	first, second := ZMM(), ZMM()
	VSHUFF64X2(Imm(0x44), hi, lo, first)  // the lower half of lo, then that of hi
	VSHUFF64X2(Imm(0xee), hi, lo, second) // the upper halves
	return [2]reg.VecVirtual{first, second}
}

// step16 is step on bf16: row(w) addresses the words of vectors 2w and 2w+1.
func (m machine) step16(acc [][]reg.VecVirtual, mask reg.VecVirtual, row func(w int) Mem, x func(r int) Mem) {
	element := func(r int) reg.VecVirtual {
		b := m.vec()
		VBROADCASTSS(x(r), b)
		return b
	}
	var held []reg.VecVirtual
	if m.width == 16 || len(acc) != 3 { // with three rows the registers do not hold their elements
		for r := range acc {
			held = append(held, element(r))
		}
	}
	for w := range len(acc[0]) / 2 {
		lo, hi := m.widen(row(w), mask)
		for r := range acc {
			var b reg.VecVirtual
			if held != nil {
				b = held[r]
			} else {
				b = element(r)
			}
			VFMADD231PS(lo, b, acc[r][2*w])
			VFMADD231PS(hi, b, acc[r][2*w+1])
		}
	}
}

// score16 is score on a page of bf16.
func (m machine) score16(rows int) {
	name := fmt.Sprintf("score16x%d%s", rows, m.name)
	TEXT(name, NOSPLIT, "func(s, q []float32, k, next []uint16, d int)")
	Doc(fmt.Sprintf("%s is score%d%s on a page of bf16.", name, rows, m.name))
	n := m.vectors(rows)
	strip := n * m.width * 2 // bytes
	const row = page * 2

	s := Load(Param("s").Base(), GP64()).(reg.GPVirtual)
	q0 := Load(Param("q").Base(), GP64()).(reg.GPVirtual)
	k0 := Load(Param("k").Base(), GP64()).(reg.GPVirtual)
	d := Load(Param("d"), GP64()).(reg.GPVirtual)
	var f *fetcher
	if ahead(rows) {
		f = newFetcher(2, false)
	}
	stride := GP64()
	MOVQ(d, stride)
	SHLQ(Imm(2), stride)
	q := newRows(rows, GP64(), stride)
	k, left, count, strips := GP64(), GP64(), GP64(), GP64()
	mask := m.high()

	MOVQ(U32(uint32(row/strip)), strips)
	Label("strip")
	MOVQ(k0, k)
	MOVQ(q0, q.p)
	q.aim()
	MOVQ(d, left)
	acc := m.tileRegs(rows, n)
	zero(acc)
	at := func(r, w int) Mem { return Mem{Base: s, Disp: r*page*4 + w*m.bytes()} }
	Comment("total = +0")
	for r := range acc {
		for w := range acc[r] {
			VMOVUPS(acc[r][w], at(r, w))
		}
	}
	Label("block")
	MOVQ(U32(dotBlock), count)
	CMPQ(left, count)
	CMOVQLT(left, count)
	SUBQ(count, left)
	steps := func(unroll int) {
		for u := range unroll {
			m.step16(acc, mask,
				func(w int) Mem { return Mem{Base: k, Disp: u*row + w*m.bytes()} },
				func(r int) Mem { return q.at(r, u*4) })
		}
		ADDQ(U32(uint32(unroll*row)), k)
		q.advance(unroll * 4)
	}
	Comment("d is a multiple of 16")
	Label("by4")
	f.fetch(4 * strip / 64)
	steps(4)
	SUBQ(U32(4), count)
	JNE(LabelRef("by4"))
	Comment("total = total + acc; acc = +0")
	for r := range acc {
		for w := 0; w < n; w += 2 {
			for i, a := range m.inOrder(acc[r][w], acc[r][w+1]) {
				VADDPS(at(r, w+i), a, a)
				VMOVUPS(a, at(r, w+i))
			}
			clearReg(acc[r][w])
			clearReg(acc[r][w+1])
		}
	}
	TESTQ(left, left)
	JNE(LabelRef("block"))
	ADDQ(U32(uint32(n*m.bytes())), s)
	ADDQ(U32(uint32(strip)), k0)
	DECQ(strips)
	JNE(LabelRef("strip"))
	VZEROUPPER()
	RET()
}

// pv16 is pv on a page of bf16.
func (m machine) pv16(rows int) {
	name := fmt.Sprintf("pv16x%d%s", rows, m.name)
	TEXT(name, NOSPLIT, "func(o, p []float32, v, next []uint16, d, lo, hi int, fac []float32)")
	Doc(fmt.Sprintf("%s is pv%d%s on a page of bf16.", name, rows, m.name))
	o0 := Load(Param("o").Base(), GP64()).(reg.GPVirtual)
	p0 := Load(Param("p").Base(), GP64()).(reg.GPVirtual)
	v0 := Load(Param("v").Base(), GP64()).(reg.GPVirtual)
	left := Load(Param("d"), GP64()).(reg.GPVirtual)
	slots := Load(Param("hi"), GP64()).(reg.GPVirtual)

	vstride, ostride := GP64(), GP64()
	MOVQ(left, ostride)
	SHLQ(Imm(2), ostride)
	o := newRows(rows, o0, ostride)
	o.aim()
	MOVQ(left, vstride)
	SHLQ(Imm(1), vstride)
	Comment("skip lo slots")
	v, p, count := GP64(), GP64(), GP64()
	MOVQ(NewParamAddr("lo", 104), count) // lo
	SUBQ(count, slots)
	LEAQ(Mem{Base: p0, Index: count, Scale: 4}, p0)
	IMULQ(vstride, count)
	ADDQ(count, v0)

	var f *fetcher
	if ahead(rows) {
		f = newFetcher(2, true)
	}
	emit := func(m machine, n int, label string) {
		mask := m.high()
		acc := m.tileRegs(rows, n)
		zero(acc)
		MOVQ(v0, v)
		MOVQ(p0, p)
		MOVQ(slots, count)
		Label(label + "slot")
		f.fetch((n*m.width*2 + 63) / 64)
		m.step16(acc, mask,
			func(w int) Mem { return Mem{Base: v, Disp: w * m.bytes()} },
			func(r int) Mem { return Mem{Base: p, Disp: r * page * 4} })
		ADDQ(vstride, v)
		ADDQ(U32(4), p)
		DECQ(count)
		JNE(LabelRef(label + "slot"))
		Comment("o = (acc + 0)·be + o·al")
		fac := Load(Param("fac").Base(), GP64()).(reg.GPVirtual)
		plus0, al, be := m.vec(), m.vec(), m.vec()
		clearReg(plus0)
		for r := range acc {
			VBROADCASTSS(Mem{Base: fac, Disp: r * 4}, al)
			VBROADCASTSS(Mem{Base: fac, Disp: (lanes + r) * 4}, be)
			for w := 0; w < n; w += 2 {
				for i, a := range m.inOrder(acc[r][w], acc[r][w+1]) {
					VADDPS(plus0, a, a)
					was := m.vec()
					VMULPS(o.at(r, (w+i)*m.bytes()), al, was)
					VFMADD231PS(a, be, was)
					VMOVUPS(was, o.at(r, (w+i)*m.bytes()))
				}
			}
		}
		o.advance(n * m.bytes())
		ADDQ(U32(uint32(n*m.width*2)), v0)
	}
	widths := []int{m.vectors(rows), 2}
	switch {
	case m.width == 16 && rows <= 3:
		widths = []int{8, 4, 2}
	case widths[0] == 2:
		widths = widths[:1]
	}
	for _, n := range widths {
		label := fmt.Sprintf("wide%d", n)
		Label(label)
		SUBQ(U32(uint32(n*m.width)), left)
		JLT(LabelRef(label + "end"))
		emit(m, n, label)
		JMP(LabelRef(label))
		Label(label + "end")
		ADDQ(U32(uint32(n*m.width)), left)
		JEQ(LabelRef("done"))
	}
	if m.width == 16 {
		Comment("the last 16 components")
		emit(avx2, 2, "last")
	}
	Label("done")
	VZEROUPPER()
	RET()
}

// widenPage emits the values of a page of bf16 in their order.
func widenPage() {
	m := avx2
	TEXT("widen"+m.name, NOSPLIT, "func(dst []float32, src []uint16)")
	Doc("widen" + m.name + " writes the values of a page of bf16, whole groups of 16, in their order.")
	to := Load(Param("dst").Base(), GP64()).(reg.GPVirtual)
	from := Load(Param("src").Base(), GP64()).(reg.GPVirtual)
	left := Load(Param("src").Len(), GP64()).(reg.GPVirtual)
	mask := m.high()
	Label("loop")
	SUBQ(U32(16), left)
	JLT(LabelRef("done"))
	lo, hi := m.widen(Mem{Base: from}, mask)
	VMOVUPS(lo, Mem{Base: to})
	VMOVUPS(hi, Mem{Base: to, Disp: 32})
	ADDQ(U32(32), from)
	ADDQ(U32(64), to)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}
