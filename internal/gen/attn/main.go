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

// Prefetching. A decode step has few rows and streams its pages from memory, so
// those kernels fetch ahead, into L2: fetching into L1 is limited by its few
// miss buffers.
type ahead int

const (
	none ahead = iota
	near       // it reads in the order of addresses: aheadBytes ahead of it, across to the next page
	far        // it reads in strips: all of the next page, in the order of addresses
)

// aheadBytes is how far near looks: 8 and 16 KiB are no faster, and 1 KiB does not
// keep the memory busy.
const aheadBytes = 4096

// Lines that near fetches besides at the end of a kernel, which keep the memory busy
// until the next one runs: over the softmax, and over what comes between pages.
const (
	softmaxLines = 16
	pageLines    = 8
)

func (m machine) ahead(rows int) ahead {
	switch {
	case rows > 4:
		return none
	case m.width == 16 || rows == 1:
		return near
	}
	return far
}

// fetcher prefetches what a kernel reads, in its order: some rows ahead of it, and
// after the last of them from next on.
type fetcher struct{ at, end, next reg.GPVirtual }

func newFetcher() fetcher { return fetcher{GP64(), GP64(), GP64()} }

// start aims at row min(n, rows) of rows from base on, stride bytes apart, after which
// comes the parameter next; n is a multiple of the rows between calls of turn, and so
// is rows.
func (f fetcher) start(base, rows, stride reg.GPVirtual, n int) {
	Load(Param("next").Base(), f.next)
	MOVQ(U32(uint32(n)), f.at)
	CMPQ(rows, f.at)
	CMOVQLT(rows, f.at)
	IMULQ(stride, f.at)
	ADDQ(base, f.at)
	MOVQ(rows, f.end)
	IMULQ(stride, f.end)
	ADDQ(base, f.end)
}

// strip has another strip of the same rows, bytes further, come before the next page
// if left > last.
func (f fetcher) strip(base reg.GPVirtual, bytes int, left reg.GPVirtual, last int) {
	other := GP64()
	LEAQ(Mem{Base: base, Disp: bytes}, other)
	CMPQ(left, U32(uint32(last)))
	CMOVQGT(other, f.next)
}

// turn goes on with next where the rows end.
func (f fetcher) turn() {
	CMPQ(f.at, f.end)
	CMOVQEQ(f.next, f.at)
}

func (f fetcher) fetch(disp int) { PREFETCHT1(Mem{Base: f.at, Disp: disp}) }

// more fetches the next lines at once; the kernel that comes fetches them again.
func (f fetcher) more(lines int) {
	for i := range lines {
		f.fetch(64 * i)
	}
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
	mode := m.ahead(rows)
	var pf reg.GPVirtual
	if mode == far {
		pf = Load(Param("next").Base(), GP64()).(reg.GPVirtual)
	}
	var f fetcher
	if mode == near {
		f = newFetcher()
		by4, row := GP64(), GP64()
		MOVQ(d, by4)
		ANDQ(I8(-4), by4)
		MOVQ(U32(page*4), row)
		f.start(k0, by4, row, aheadBytes/(page*4))
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
		if mode == near {
			f.turn()
		}
		for u := range unroll {
			for line := 0; line < strip; line += 64 {
				switch mode {
				case near:
					f.fetch(u*page*4 + line)
				case far:
					PREFETCHT1(Mem{Base: pf, Disp: u*strip + line})
				}
			}
			m.step(acc,
				func(w int) Mem { return Mem{Base: k, Disp: u*page*4 + w*m.bytes()} },
				func(r int) Mem { return q.at(r, u*4) }, nil)
		}
		ADDQ(U32(uint32(unroll*page*4)), k)
		switch mode {
		case near:
			ADDQ(U32(uint32(unroll*strip)), f.at)
		case far:
			ADDQ(U32(uint32(unroll*strip)), pf)
		}
		q.advance(unroll * 4)
	}
	Label("by4")
	SUBQ(U32(4), count)
	JLT(LabelRef("rest"))
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
	if mode == near {
		f.more(softmaxLines)
	}
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
	mode := m.ahead(rows)
	var pf reg.GPVirtual
	if mode == far {
		pf = Load(Param("next").Base(), GP64()).(reg.GPVirtual)
	}
	slots := Load(Param("hi"), GP64()).(reg.GPVirtual)
	fac := Load(Param("fac").Base(), GP64()).(reg.GPVirtual)

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
	var f fetcher
	if mode == near {
		f = newFetcher()
	}

	// emit does n vectors; when left > last, others come after them.
	emit := func(n int, label string, mask func(src Mem, dst reg.VecVirtual), last int) {
		if mode == near {
			f.start(v0, slots, vstride, aheadBytes/(n*m.bytes()))
			f.strip(v0, n*m.bytes(), left, last)
		}
		acc := m.tileRegs(rows, n)
		zero(acc)
		MOVQ(v0, v)
		MOVQ(p0, p)
		MOVQ(slots, count)
		Label(label + "slot")
		if mode == near {
			f.turn()
		}
		for line := 0; line < n*m.bytes(); line += 64 {
			switch mode {
			case near:
				f.fetch(line)
			case far:
				PREFETCHT1(Mem{Base: pf, Disp: line})
			}
		}
		switch mode {
		case near:
			ADDQ(vstride, f.at)
		case far:
			ADDQ(U32(uint32(n*m.bytes())), pf)
		}
		m.step(acc,
			func(w int) Mem { return Mem{Base: v, Disp: w * m.bytes()} },
			func(r int) Mem { return Mem{Base: p, Disp: r * page * 4} }, mask)
		ADDQ(vstride, v)
		ADDQ(U32(4), p)
		DECQ(count)
		JNE(LabelRef(label + "slot"))
		Comment("o = (acc + 0)·be + o·al")
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
		emit(n, wide, nil, 0)
		JMP(LabelRef(wide))
		Label(wide + "end")
		ADDQ(U32(uint32(n*m.width)), left)
		JEQ(LabelRef("done"))
	}
	Label("narrow")
	mask := m.tailMask(left)
	emit(1, "narrow", mask, m.width)
	SUBQ(U32(uint32(m.width)), left)
	JGT(LabelRef("narrow"))
	Label("done")
	if mode == near {
		f.more(pageLines)
	}
	VZEROUPPER()
	RET()
}
