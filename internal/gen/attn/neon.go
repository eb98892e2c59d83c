package main

import (
	"fmt"
	"math"
	"os"
	"strings"
)

// neon writes arm64 text. Go's assembler has no names for most vector float
// instructions, so these are words with the instruction as a comment.
type neon struct{ b strings.Builder }

func (a *neon) f(format string, args ...any) { fmt.Fprintf(&a.b, format+"\n", args...) }
func (a *neon) op(format string, args ...any) {
	fmt.Fprintf(&a.b, "\t"+format+"\n", args...)
}

func (a *neon) text(name, args string, size int) {
	a.f("\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d", name, args, name, size)
}

func (a *neon) word3(name string, base uint32, d, n, m int) {
	a.op("WORD $0x%08x // %s v%d.4s, v%d.4s, v%d.4s", base|uint32(m)<<16|uint32(n)<<5|uint32(d), name, d, n, m)
}

func (a *neon) fadd(d, n, m int)  { a.word3("fadd", 0x4E20D400, d, n, m) }
func (a *neon) fsub(d, n, m int)  { a.word3("fsub", 0x4EA0D400, d, n, m) }
func (a *neon) fmul(d, n, m int)  { a.word3("fmul", 0x6E20DC00, d, n, m) }
func (a *neon) fmla(d, n, m int)  { a.word3("fmla", 0x4E20CC00, d, n, m) } // d = n·m + d
func (a *neon) fmax(d, n, m int)  { a.word3("fmax", 0x4E20F400, d, n, m) }
func (a *neon) faddp(d, n, m int) { a.word3("faddp", 0x6E20D400, d, n, m) }
func (a *neon) fmaxp(d, n, m int) { a.word3("fmaxp", 0x6E20F400, d, n, m) }
func (a *neon) add(d, n, m int)   { a.word3("add", 0x4EA08400, d, n, m) }
func (a *neon) sub(d, n, m int)   { a.word3("sub", 0x6EA08400, d, n, m) }
func (a *neon) orr(d, n, m int)   { a.word3("orr", 0x4EA01C00, d, n, m) }
func (a *neon) bsl(d, n, m int)   { a.word3("bsl", 0x6E601C00, d, n, m) } // d = d ? n : m
func (a *neon) mov(d, n int)      { a.orr(d, n, n) }
func (a *neon) zero(d int)        { a.op("VEOR V%d.B16, V%d.B16, V%d.B16", d, d, d) }
func (a *neon) sshr1(d, n int) {
	a.op("WORD $0x%08x // sshr v%d.4s, v%d.4s, #1", 0x4F3F0400|uint32(n)<<5|uint32(d), d, n)
}
func (a *neon) shl16(d, n int) {
	a.op("WORD $0x%08x // shl v%d.4s, v%d.4s, #16", 0x4F305400|uint32(n)<<5|uint32(d), d, n)
}
func (a *neon) and(d, n, m int) { a.op("VAND V%d.B16, V%d.B16, V%d.B16", m, n, d) }
func (a *neon) shl23(d, n int) {
	a.op("WORD $0x%08x // shl v%d.4s, v%d.4s, #23", 0x4F375400|uint32(n)<<5|uint32(d), d, n)
}

// fmlaAt is d = n·m[i] + d.
func (a *neon) fmlaAt(d, n, m, i int) {
	a.op("WORD $0x%08x // fmla v%d.4s, v%d.4s, v%d.s[%d]",
		0x4F801000|uint32(i&1)<<21|uint32(m)<<16|uint32(i>>1)<<11|uint32(n)<<5|uint32(d), d, n, m, i)
}

func (a *neon) splat(v int, f float32) {
	a.op("MOVW $0x%08x, R3 // %g", math.Float32bits(f), f)
	a.op("VDUP R3, V%d.S4", v)
}

// Registers of exp: constants from V16, temporaries from V27.
const (
	eLo, eL2e, eMagic, eHi, eLow, eC6, eC5, eC4, eC3, eC2, eOne = 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26
)

func (a *neon) expConstants() {
	for i, e := range expConst {
		a.splat(16+i, e.f)
	}
	a.op("MOVD $127, R3")
	a.op("VDUP R3, V31.S4")
}

// exp replaces v[x] <= 89 by exp; it uses V27..V30, and V31 holds 127.
func (a *neon) exp(x int) {
	const t, n, q, q2 = 27, 28, 29, 30
	a.fmax(x, x, eLo)
	a.mov(t, eMagic)
	a.fmla(t, x, eL2e)   // t = x·L2E + MAGIC
	a.fsub(n, t, eMagic) // n = t - MAGIC
	a.fmla(x, n, eHi)    // r = n·-LN2HI + x
	a.fmla(x, n, eLow)   // r = n·-LN2LO + r
	a.sub(t, t, eMagic)  // the low bits of t hold ni
	p := eC6
	to, other := q, q2
	for _, c := range []int{eC5, eC4, eC3, eC2, eOne, eOne} {
		a.mov(to, c)
		a.fmla(to, p, x) // q = q·r + c
		p = to
		to, other = other, to
	}
	a.sshr1(n, t) // n1 = ni >> 1
	a.sub(t, t, n)
	a.add(n, n, 31)
	a.add(t, t, 31)
	a.shl23(n, n)
	a.shl23(t, t)
	a.fmul(x, p, n)
	a.fmul(x, x, t)
}

func neonVectors(rows int) int { return [...]int{0, 16, 8, 8, 4, 4, 4}[rows] }

// tileStep adds u-th elements of the row registers times n vectors at reg.
func (a *neon) tileStep(rows, n, u int, at func(w int) string) {
	tmp := rows*n + rows // registers left for the vectors
	free := 32 - tmp
	for w := range n {
		v := tmp + w%free
		a.op("FMOVQ %s, F%d", at(w), v)
		for r := range rows {
			a.fmlaAt(r*n+w, v, rows*n+r, u)
		}
	}
}

// score: d is a multiple of 4.
func (a *neon) score(rows int) {
	n := neonVectors(rows)
	strip := n * 16
	a.text(fmt.Sprintf("score%dNEON", rows), "s, q, k, next []float32, d int", 104)
	a.op("MOVD s_base+0(FP), R0")
	a.op("MOVD k_base+48(FP), R1")
	a.op("MOVD d+96(FP), R2")
	a.op("MOVD $%d, R15 // strips", 256/strip)
	a.f("strip:")
	a.op("MOVD q_base+24(FP), R4")
	for r := 1; r < rows; r++ {
		a.op("ADD R2<<2, R%d, R%d", 3+r, 4+r)
	}
	a.op("MOVD R1, R10")
	a.op("MOVD R2, R11 // components left")
	for i := range rows * n {
		a.zero(i)
	}
	for r := range rows {
		for w := range n {
			a.op("FMOVQ F%d, %d(R0)", r*n+w, r*256+w*16)
		}
	}
	a.f("block:")
	a.op("MOVD $128, R12")
	a.op("CMP R12, R11")
	a.op("CSEL LT, R11, R12, R12")
	a.op("SUB R12, R11")
	a.f("by4:")
	for r := range rows {
		a.op("FMOVQ.P 16(R%d), F%d", 4+r, rows*n+r)
	}
	for u := range 4 {
		a.tileStep(rows, n, u, func(w int) string { return fmt.Sprintf("%d(R10)", u*256+w*16) })
	}
	a.op("ADD $1024, R10")
	a.op("SUBS $4, R12")
	a.op("BNE by4")
	for r := range rows { // total = total + acc; acc = +0
		for w := range n {
			v := rows * n
			a.op("FMOVQ %d(R0), F%d", r*256+w*16, v)
			a.fadd(v, v, r*n+w)
			a.op("FMOVQ F%d, %d(R0)", v, r*256+w*16)
			a.zero(r*n + w)
		}
	}
	a.op("CBNZ R11, block")
	a.op("ADD $%d, R0", strip)
	a.op("ADD $%d, R1", strip)
	a.op("SUBS $1, R15")
	a.op("BNE strip")
	a.op("RET")
}

// pv: d is a multiple of 4; wide strips, then strips of one vector.
func (a *neon) pv(rows int) {
	a.text(fmt.Sprintf("pv%dNEON", rows), "o, p, v, next []float32, d, lo, hi int, fac []float32", 144)
	a.op("MOVD o_base+0(FP), R0")
	a.op("MOVD p_base+24(FP), R1")
	a.op("MOVD v_base+48(FP), R2")
	a.op("MOVD d+96(FP), R14 // components left")
	a.op("MOVD lo+104(FP), R13")
	a.op("MOVD hi+112(FP), R12")
	a.op("SUB R13, R12 // slots")
	a.op("MOVD fac_base+120(FP), R15")
	a.op("LSL $2, R14, R16 // bytes of a row of v")
	a.op("ADD R13<<2, R1, R1")
	a.op("MUL R16, R13, R13")
	a.op("ADD R13, R2, R2")
	a.op("ADD $15, R14, R17")
	a.op("AND $~15, R17, R17")
	a.op("LSL $2, R17, R17 // bytes of a row of o")
	emit := func(n int, l string) {
		for i := range rows * n {
			a.zero(i)
		}
		a.op("MOVD R2, R10")
		a.op("MOVD R1, R4")
		for r := 1; r < rows; r++ {
			a.op("ADD $%d, R4, R%d", r*256, 4+r)
		}
		a.op("MOVD R12, R11")
		a.f("%sby4:", l)
		a.op("SUBS $4, R11")
		a.op("BLT %srest", l)
		for r := range rows {
			a.op("FMOVQ.P 16(R%d), F%d", 4+r, rows*n+r)
		}
		for u := range 4 {
			a.tileStep(rows, n, u, func(w int) string { return fmt.Sprintf("%d(R10)", w*16) })
			a.op("ADD R16, R10")
		}
		a.op("B %sby4", l)
		a.f("%srest:", l)
		a.op("ADDS $4, R11")
		a.op("BEQ %sflush", l)
		a.f("%sby1:", l)
		for r := range rows {
			a.op("FMOVS.P 4(R%d), F%d", 4+r, rows*n+r)
		}
		a.tileStep(rows, n, 0, func(w int) string { return fmt.Sprintf("%d(R10)", w*16) })
		a.op("ADD R16, R10")
		a.op("SUBS $1, R11")
		a.op("BNE %sby1", l)
		a.f("%sflush:", l)
		a.merge(rows, n)
		a.op("ADD $%d, R0", n*16)
		a.op("ADD $%d, R2", n*16)
	}
	n := neonVectors(rows)
	a.f("wide:")
	a.op("SUBS $%d, R14", n*4)
	a.op("BLT tail")
	emit(n, "wide")
	a.op("B wide")
	a.f("tail:")
	a.op("ADDS $%d, R14", n*4)
	a.op("BEQ done")
	a.f("narrow:")
	emit(1, "narrow")
	a.op("SUBS $4, R14")
	a.op("BNE narrow")
	a.f("done:")
	a.op("RET")
}

// merge emits o = (acc + 0)·be + o·al for the tile in the first registers; rows of o
// begin at R0, R17 bytes apart, and R15 is fac.
func (a *neon) merge(rows, n int) {
	a.op("MOVD R0, R10")
	be, al, was := rows*n, rows*n+1, rows*n+2
	if was > 31 { // a tile that fills the registers
		panic("neon pv: no registers left")
	}
	for r := range rows {
		a.op("FMOVS %d(R15), F%d", r*4, al)
		a.op("VDUP V%d.S[0], V%d.S4", al, al)
		a.op("FMOVS %d(R15), F%d", (lanes+r)*4, be)
		a.op("VDUP V%d.S[0], V%d.S4", be, be)
		for w := range n {
			a.zero(was)
			a.fadd(r*n+w, r*n+w, was) // o_b = +0 + a
			a.op("FMOVQ %d(R10), F%d", w*16, was)
			a.fmul(was, was, al)
			a.fmla(was, r*n+w, be) // o = o_b·be + o·al
			a.op("FMOVQ F%d, %d(R10)", was, w*16)
		}
		a.op("ADD R17, R10")
	}
}

// foldState merges the first R2 rows of the state at R1; exp's registers are set.
func (a *neon) foldState() {
	a.op("MOVD $attn_slide<>(SB), R3")
	a.op("SUB R2<<2, R3")
	a.op("ADD $32, R3")
	for half := range 2 {
		off := half * 16
		const mask, m, mb, l, lb, top, was = 0, 1, 2, 3, 4, 5, 6
		store := func(v, at int) {
			a.op("FMOVQ %d(R1), F%d", at+off, was)
			a.mov(7, mask)
			a.bsl(7, v, was)
			a.op("FMOVQ F7, %d(R1)", at+off)
		}
		if half == 1 {
			a.op("ADD $16, R3")
		}
		a.op("FMOVQ (R3), F%d", mask)
		a.op("FMOVQ %d(R1), F%d", stM+off, m)
		a.op("FMOVQ %d(R1), F%d", stMB+off, mb)
		a.op("FMOVQ %d(R1), F%d", stL+off, l)
		a.op("FMOVQ %d(R1), F%d", stLB+off, lb)
		a.fmax(top, m, mb)
		store(top, stM)
		a.fsub(m, m, top)
		a.fsub(mb, mb, top)
		a.exp(m)
		a.exp(mb)
		store(m, stAl)
		store(mb, stBe)
		a.fmul(l, l, m)
		a.fmla(l, lb, mb)
		store(l, stL)
	}
}

func (a *neon) softmax() {
	a.text("softmaxNEON", "s, st []float32, rows int, scale float32", 60)
	a.op("MOVD s_base+0(FP), R0")
	a.op("MOVD st_base+24(FP), R1")
	a.op("MOVD rows+48(FP), R2")
	a.expConstants()
	a.op("MOVD R1, R4")
	a.op("MOVD R2, R5")
	a.f("row:")
	a.op("FMOVS scale+56(FP), F27")
	a.op("VDUP V27.S[0], V27.S4")
	for i := range 16 {
		a.op("FMOVQ %d(R0), F%d", i*16, i)
		a.fmul(i, i, 27)
	}
	a.fmax(27, 0, 1)
	a.fmax(28, 2, 3)
	for i := 4; i < 16; i++ {
		a.fmax(27+i%2, 27+i%2, i)
	}
	a.fmax(27, 27, 28)
	a.fmaxp(27, 27, 27)
	a.fmaxp(27, 27, 27)
	a.op("FMOVS F27, %d(R4)", stMB)
	a.op("VDUP V27.S[0], V28.S4")
	for i := range 16 {
		a.fsub(i, i, 28)
	}
	for i := range 16 {
		a.exp(i)
		a.op("FMOVQ F%d, %d(R0)", i, i*16)
	}
	for h := 8; h > 0; h /= 2 { // slots j and j+32, then the tree 16, 8, 4
		for i := range h {
			a.fadd(i, i, i+h)
		}
	}
	a.op("VEXT $8, V0.B16, V0.B16, V1.B16")
	a.fadd(0, 0, 1)
	a.faddp(0, 0, 0)
	a.op("FMOVS F0, %d(R4)", stLB)
	a.op("ADD $256, R0")
	a.op("ADD $4, R4")
	a.op("SUBS $1, R5")
	a.op("BNE row")
	a.foldState()
	a.op("RET")

	a.text("foldNEON", "st []float32, rows int", 32)
	a.op("MOVD st_base+0(FP), R1")
	a.op("MOVD rows+24(FP), R2")
	a.expConstants()
	a.foldState()
	a.op("RET")
}

func (a *neon) vectors() {
	a.text("mergeNEON", "o, ob []float32, al, be float32", 56)
	a.op("MOVD o_base+0(FP), R0")
	a.op("MOVD o_len+8(FP), R2")
	a.op("MOVD ob_base+24(FP), R1")
	a.op("FMOVS al+48(FP), F0")
	a.op("VDUP V0.S[0], V0.S4")
	a.op("FMOVS be+52(FP), F1")
	a.op("VDUP V1.S[0], V1.S4")
	a.f("loop:")
	a.op("SUBS $4, R2")
	a.op("BLT done")
	a.op("FMOVQ (R0), F2")
	a.op("FMOVQ.P 16(R1), F3")
	a.fmul(2, 2, 0)
	a.fmla(2, 3, 1)
	a.op("FMOVQ.P F2, 16(R0)")
	a.op("B loop")
	a.f("done:")
	a.op("RET")

	a.text("scaleToNEON", "out, o []float32, f float32", 52)
	a.op("MOVD out_base+0(FP), R0")
	a.op("MOVD out_len+8(FP), R2")
	a.op("MOVD o_base+24(FP), R1")
	a.op("FMOVS f+48(FP), F0")
	a.op("VDUP V0.S[0], V0.S4")
	a.f("loop:")
	a.op("SUBS $4, R2")
	a.op("BLT done")
	a.op("FMOVQ.P 16(R1), F2")
	a.fmul(2, 2, 0)
	a.op("FMOVQ.P F2, 16(R0)")
	a.op("B loop")
	a.f("done:")
	a.op("RET")

	a.text("weighNEON", "s []float32, m, inv float32", 32)
	a.op("MOVD s_base+0(FP), R0")
	a.expConstants()
	a.op("FMOVS m+24(FP), F1")
	a.op("VDUP V1.S[0], V1.S4")
	a.op("FMOVS inv+28(FP), F2")
	a.op("VDUP V2.S[0], V2.S4")
	a.op("MOVD s_len+8(FP), R2")
	a.op("LSR $2, R2")
	a.f("loop:")
	a.op("CBZ R2, done")
	a.op("FMOVQ (R0), F0")
	a.fsub(0, 0, 1)
	a.exp(0)
	a.fmul(0, 0, 2)
	a.op("FMOVQ.P F0, 16(R0)")
	a.op("SUB $1, R2")
	a.op("B loop")
	a.f("done:")
	a.op("RET")
}

func writeNEON(path string) error {
	a := &neon{}
	a.f("// Code generated by command: attn -set neon. DO NOT EDIT.\n")
	a.f("//go:build !noasm\n")
	a.f("// Needs ASIMD. Vector float instructions are given as words.\n")
	a.f("#include \"textflag.h\"\n")
	for i := range 16 {
		v := "0"
		if i < 8 {
			v = "0xffffffff"
		}
		a.f("DATA attn_slide<>+%d(SB)/4, $%s", 4*i, v)
	}
	a.f("GLOBL attn_slide<>(SB), RODATA|NOPTR, $64")
	for rows := 1; rows <= maxRows; rows++ {
		a.score(rows)
	}
	for rows := 1; rows <= maxRows; rows++ {
		a.pv(rows)
	}
	for rows := 1; rows <= maxRows16; rows++ {
		a.score16(rows)
		a.pv16(rows)
	}
	a.widenPage()
	a.softmax()
	a.vectors()
	return os.WriteFile(path, []byte(a.b.String()), 0o644)
}
