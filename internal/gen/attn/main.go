// Command attn writes the attention kernels of backend/cpu/internal/attn
// (docs/numerics.md 7): score, pv, softmax and their helpers. Those of amd64 come
// from avo, those of arm64 are plain text.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	page     = 64
	dotBlock = 128
	maxRows  = 6
	lanes    = 8 // rows of a softmax state

	// Offsets in the softmax state, bytes (attn.go: stM ..).
	stM, stL, stAl, stBe, stMB, stLB = 0, 32, 64, 96, 128, 160
)

// machine is what differs between the instruction sets.
type machine struct {
	name  string
	width int // float32 per vector
	vec   func() reg.VecVirtual
}

var (
	avx2   = machine{"AVX2", 8, YMM}
	avx512 = machine{"AVX512", 16, ZMM}
)

func (m machine) bytes() int { return m.width * 4 }

func main() {
	set := flag.String("set", "avx2", "instruction set: avx2, avx512 or neon")
	flag.Parse()
	ConstraintExpr("!noasm")
	m := avx2
	switch *set {
	case "avx2":
	case "avx512":
		m = avx512
	case "neon":
		if err := writeNEON(flag.Lookup("out").Value.String()); err != nil {
			fmt.Fprintln(os.Stderr, "attn:", err)
			os.Exit(1)
		}
		return
	default:
		fmt.Fprintf(os.Stderr, "attn: -set %q: want avx2, avx512 or neon\n", *set)
		os.Exit(2)
	}
	for rows := 1; rows <= maxRows; rows++ {
		m.score(rows)
	}
	for rows := 1; rows <= maxRows; rows++ {
		m.pv(rows)
	}
	for rows := 1; rows <= maxRows16; rows++ {
		m.score16(rows)
		m.pv16(rows)
	}
	if m.width == 16 {
		softmax512()
		weigh512()
	} else {
		softmax256()
		fold256()
		merge256()
		scaleTo256()
		weigh256()
		widenPage()
		fetchPage("fetchAMD64", "float32", 4)
		fetchPage("fetch16AMD64", "uint16", 2)
	}
	Generate()
}

// vectors returns how many vectors wide the register tile of that many rows is:
// enough chains to hide the FMA latency, no more than the registers hold, and a
// divisor of 64 slots.
func (m machine) vectors(rows int) int {
	if m.width == 16 {
		return 4
	}
	return [...]int{0, 8, 4, 4, 2, 2, 2}[rows]
}

func (m machine) tileRegs(rows, n int) [][]reg.VecVirtual {
	acc := make([][]reg.VecVirtual, rows)
	for r := range acc {
		for range n {
			acc[r] = append(acc[r], m.vec())
		}
	}
	return acc
}

func zero(acc [][]reg.VecVirtual) {
	for _, row := range acc {
		for _, a := range row {
			clearReg(a)
		}
	}
}

func clearReg(a reg.VecVirtual) { VXORPS(a, a, a) }

// rowsAt addresses up to six rows that lie stride bytes apart with two pointers
// and one index.
type rowsAt struct{ p, p3, stride reg.GPVirtual }

func newRows(rows int, p, stride reg.GPVirtual) rowsAt {
	a := rowsAt{p: p, stride: stride}
	if rows > 3 {
		a.p3 = GP64()
	}
	return a
}

func (a rowsAt) aim() {
	if a.p3 != nil {
		LEAQ(Mem{Base: a.p, Index: a.stride, Scale: 2}, a.p3)
		ADDQ(a.stride, a.p3)
	}
}

func (a rowsAt) advance(n int) {
	ADDQ(U32(uint32(n)), a.p)
	if a.p3 != nil {
		ADDQ(U32(uint32(n)), a.p3)
	}
}

func (a rowsAt) at(r, disp int) Mem {
	base := a.p
	if r >= 3 {
		base, r = a.p3, r-3
	}
	if r == 0 {
		return Mem{Base: base, Disp: disp}
	}
	return Mem{Base: base, Index: a.stride, Scale: uint8(r), Disp: disp}
}

// step adds the products of one k to the tile: acc[r][w] = x(r)·row[w] + acc.
func (m machine) step(acc [][]reg.VecVirtual, row func(w int) Mem, x func(r int) Mem, mask func(src Mem, dst reg.VecVirtual)) {
	load := func(w int) reg.VecVirtual {
		v := m.vec()
		if mask != nil {
			mask(row(w), v)
		} else {
			VMOVUPS(row(w), v)
		}
		return v
	}
	n := len(acc[0])
	if len(acc) < n { // few rows: hold their elements, stream the vectors
		var b []reg.VecVirtual
		for r := range acc {
			v := m.vec()
			VBROADCASTSS(x(r), v)
			b = append(b, v)
		}
		for w := range n {
			v := load(w)
			for r := range acc {
				VFMADD231PS(v, b[r], acc[r][w])
			}
		}
		return
	}
	var v []reg.VecVirtual
	for w := range n {
		v = append(v, load(w))
	}
	for r := range acc {
		b := m.vec()
		VBROADCASTSS(x(r), b)
		for w := range n {
			VFMADD231PS(v[w], b, acc[r][w])
		}
	}
}

// Prefetching. A decode step has few rows and streams its pages from memory, so those
// kernels fetch as many lines of the next page as they read of their own, in turn from 8
// places of it, or from 4 of a page of less than fullPage: the hardware goes on in each
// 4 KiB that it sees read, and so has several under way. On two cores of Emerald Rapids,
// pages of 64 KiB, a read in the order of addresses takes 1.15 times as long, one from
// places 2 KiB apart 1.17 and one with PREFETCHT1 1.13; 16 places are no faster.
const fullPage = 32 << 10

func ahead(rows int) bool { return rows <= 4 }

// fetcher prefetches a page: lines apart bytes from each other in turn, then those that
// follow them.
type fetcher struct {
	at, apart, end reg.GPVirtual // end is where at is after a line of each place
	back           reg.GPVirtual // from there to the next line of the first place
}

var turns int // of all fetchers, for labels

// newFetcher aims at the parameter next, of elements of so many bytes; half is for the
// second of two kernels that share it.
func newFetcher(size int, half bool) *fetcher {
	f := &fetcher{at: GP64(), apart: GP64(), end: GP64(), back: GP64()}
	Load(Param("next").Base(), f.at)
	Load(Param("next").Len(), f.end)
	IMUL3Q(U32(uint32(size)), f.end, f.end)
	Comment("half of what lies between two places")
	MOVQ(f.end, f.apart)
	MOVQ(f.end, f.back)
	SHRQ(Imm(4), f.apart)
	SHRQ(Imm(3), f.back)
	CMPQ(f.end, U32(fullPage))
	CMOVQLT(f.back, f.apart)
	if half {
		ADDQ(f.apart, f.at)
	}
	ADDQ(f.apart, f.apart)
	LEAQ(Mem{Base: f.end, Disp: -64}, f.back)
	ADDQ(f.at, f.end)
	return f
}

// fetch fetches so many lines, a power of 2.
func (f *fetcher) fetch(lines int) {
	if f == nil {
		return
	}
	for i := range lines {
		PREFETCHT0(Mem{Base: f.at})
		ADDQ(f.apart, f.at)
		if i != lines-1 && i%4 != 3 {
			continue
		}
		turns++
		on := fmt.Sprintf("on%d", turns)
		CMPQ(f.at, f.end)
		JLT(LabelRef(on))
		SUBQ(f.back, f.at)
		ADDQ(U32(64), f.end)
		Label(on)
	}
}

// liner prefetches line after line of next, which many rows are given a part of, as long
// as there are some. They go no further than L2: tiles of other rows come before the page
// is read, whose first would wait for all of it.
type liner struct{ at, on, last reg.GPVirtual }

func newLiner() *liner {
	l := &liner{at: GP64(), on: GP64(), last: GP64()}
	Load(Param("next").Base(), l.at)
	Load(Param("next").Len(), l.last)
	LEAQ(Mem{Base: l.at, Index: l.last, Scale: 4, Disp: -64}, l.last)
	return l
}

func (l *liner) fetch() {
	if l == nil {
		return
	}
	PREFETCHT1(Mem{Base: l.at})
	LEAQ(Mem{Base: l.at, Disp: 64}, l.on)
	CMPQ(l.on, l.last)
	CMOVQLE(l.on, l.at)
}

// fetchPage emits the fetching of all of a page, whose reading comes next.
func fetchPage(name, element string, size int) {
	TEXT(name, NOSPLIT, "func(next []"+element+")")
	Doc(name + " prefetches the lines of next.")
	left := Load(Param("next").Len(), GP64()).(reg.GPVirtual)
	IMUL3Q(U32(uint32(size)), left, left)
	f := newFetcher(size, false)
	Label("loop")
	SUBQ(U32(4*64), left)
	JLT(LabelRef("done"))
	f.fetch(4)
	JMP(LabelRef("loop"))
	Label("done")
	RET()
}

// score emits s[r][j] = DOT(q[r], k[:, j]) for a page: strips of slots, inside
// them blocks of 128 components whose sums are added to s.
func (m machine) score(rows int) {
	TEXT(fmt.Sprintf("score%d%s", rows, m.name), NOSPLIT, "func(s, q, k, next []float32, d int)")
	Doc(fmt.Sprintf("score%d%s writes s[r][j] = DOT(q[r], k[:, j]) for r < %d, j < 64; rows of s are 64 apart, rows of q are d apart.", rows, m.name, rows))
	n := m.vectors(rows)
	strip := n * m.bytes()

	s := Load(Param("s").Base(), GP64()).(reg.GPVirtual)
	q0 := Load(Param("q").Base(), GP64()).(reg.GPVirtual)
	k0 := Load(Param("k").Base(), GP64()).(reg.GPVirtual)
	d := Load(Param("d"), GP64()).(reg.GPVirtual)
	var f *fetcher
	if ahead(rows) {
		f = newFetcher(4, false)
	}
	stride := GP64()
	MOVQ(d, stride)
	SHLQ(Imm(2), stride)
	q := newRows(rows, GP64(), stride)
	k, left, count, strips := GP64(), GP64(), GP64(), GP64()

	MOVQ(U32(uint32(page*4/strip)), strips)
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
			m.step(acc,
				func(w int) Mem { return Mem{Base: k, Disp: u*page*4 + w*m.bytes()} },
				func(r int) Mem { return q.at(r, u*4) }, nil)
		}
		ADDQ(U32(uint32(unroll*page*4)), k)
		q.advance(unroll * 4)
	}
	Label("by4")
	SUBQ(U32(4), count)
	JLT(LabelRef("rest"))
	f.fetch(4 * strip / 64)
	steps(4)
	JMP(LabelRef("by4"))
	Label("rest")
	ADDQ(U32(4), count)
	JEQ(LabelRef("flush"))
	Label("by1")
	steps(1)
	DECQ(count)
	JNE(LabelRef("by1"))
	Label("flush")
	Comment("total = total + acc; acc = +0")
	for r := range acc {
		for w := range acc[r] {
			VADDPS(at(r, w), acc[r][w], acc[r][w])
			VMOVUPS(acc[r][w], at(r, w))
			clearReg(acc[r][w])
		}
	}
	TESTQ(left, left)
	JNE(LabelRef("block"))
	ADDQ(U32(uint32(strip)), s)
	ADDQ(U32(uint32(strip)), k0)
	DECQ(strips)
	JNE(LabelRef("strip"))
	VZEROUPPER()
	RET()
}

// pv emits o_b[r][c] = +0 + chain over slots lo..hi-1 of FMA(p[r][j], v[j][c], a)
// and o[r][c] = FMA(o_b, be[r], o[r][c]·al[r]).
func (m machine) pv(rows int) {
	TEXT(fmt.Sprintf("pv%d%s", rows, m.name), NOSPLIT, "func(o, p, v, next []float32, d, lo, hi int, fac []float32)")
	Doc(fmt.Sprintf("pv%d%s merges the weighted values of slots lo..hi-1 into o for r < %d; p is [r][64], v is [64][d], rows of o are d rounded up to 16 apart, fac holds al and be.", rows, m.name, rows))
	o0 := Load(Param("o").Base(), GP64()).(reg.GPVirtual)
	p0 := Load(Param("p").Base(), GP64()).(reg.GPVirtual)
	v0 := Load(Param("v").Base(), GP64()).(reg.GPVirtual)
	left := Load(Param("d"), GP64()).(reg.GPVirtual)
	slots := Load(Param("hi"), GP64()).(reg.GPVirtual)

	vstride, ostride := GP64(), GP64()
	LEAQ(Mem{Base: left, Disp: 15}, ostride)
	ANDQ(I8(-16), ostride)
	SHLQ(Imm(2), ostride)
	o := newRows(rows, o0, ostride)
	o.aim()
	MOVQ(left, vstride)
	SHLQ(Imm(2), vstride)
	Comment("skip lo slots")
	v, p, count := GP64(), GP64(), GP64()
	MOVQ(NewParamAddr("lo", 104), count) // lo
	SUBQ(count, slots)
	LEAQ(Mem{Base: p0, Index: count, Scale: 4}, p0)
	IMULQ(vstride, count)
	ADDQ(count, v0)
	var f *fetcher
	var l *liner
	if ahead(rows) {
		f = newFetcher(4, true)
	} else {
		l = newLiner()
	}

	emit := func(n int, label string, mask func(src Mem, dst reg.VecVirtual)) {
		acc := m.tileRegs(rows, n)
		zero(acc)
		MOVQ(v0, v)
		MOVQ(p0, p)
		MOVQ(slots, count)
		Label(label + "slot")
		f.fetch((n*m.bytes() + 63) / 64)
		l.fetch()
		m.step(acc,
			func(w int) Mem { return Mem{Base: v, Disp: w * m.bytes()} },
			func(r int) Mem { return Mem{Base: p, Disp: r * page * 4} }, mask)
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
			for w := range acc[r] {
				VADDPS(plus0, acc[r][w], acc[r][w])
				was := m.vec()
				VMULPS(o.at(r, w*m.bytes()), al, was)
				VFMADD231PS(acc[r][w], be, was)
				VMOVUPS(was, o.at(r, w*m.bytes()))
			}
		}
		o.advance(n * m.bytes())
		ADDQ(U32(uint32(n*m.bytes())), v0)
	}
	widths := []int{m.vectors(rows)}
	if m.width == 16 && rows <= 3 {
		widths = []int{8, 4} // whole rows of 128 components: one stream
	}
	for _, n := range widths {
		wide := fmt.Sprintf("wide%d", n)
		Label(wide)
		SUBQ(U32(uint32(n*m.width)), left)
		JLT(LabelRef(wide + "end"))
		emit(n, wide, nil)
		JMP(LabelRef(wide))
		Label(wide + "end")
		ADDQ(U32(uint32(n*m.width)), left)
		JEQ(LabelRef("done"))
	}
	Label("narrow")
	mask := m.tailMask(left)
	emit(1, "narrow", mask)
	SUBQ(U32(uint32(m.width)), left)
	JGT(LabelRef("narrow"))
	Label("done")
	VZEROUPPER()
	RET()
}
