package main

import "fmt"

// halfMask is the register that selects the upper half of every word.
const halfMask = 31

func (a *neon) high() {
	a.op("MOVW $0xffff0000, R3")
	a.op("VDUP R3, V%d.S4", halfMask)
}

// tileStep16 is tileStep on bf16: at(q) addresses the q-th vector of words. Two of them
// hold a group of 16 values: their lower halves are its first 8, their upper ones the rest.
func (a *neon) tileStep16(rows, n, u int, at func(q int) string) {
	tmp := rows*n + rows // registers left, less the mask, in pairs
	pairs := (halfMask - tmp) / 2
	for q := range n / 2 {
		lo := tmp + q%pairs*2
		hi := lo + 1
		w := q/2*4 + q%2 // of the lower halves; the upper ones are two vectors on
		a.op("FMOVQ %s, F%d", at(q), hi)
		a.shl16(lo, hi)
		a.and(hi, hi, halfMask)
		for r := range rows {
			a.fmlaAt(r*n+w, lo, rows*n+r, u)
		}
		for r := range rows {
			a.fmlaAt(r*n+w+2, hi, rows*n+r, u)
		}
	}
}

// score16: d is a multiple of 16.
func (a *neon) score16(rows int) {
	n := neonVectors(rows)
	strip := n * 8 // bytes of a row of the page
	a.text(fmt.Sprintf("score16x%dNEON", rows), "s, q []float32, k, next []uint16, d int", 104)
	a.op("MOVD s_base+0(FP), R0")
	a.op("MOVD k_base+48(FP), R1")
	a.op("MOVD d+96(FP), R2")
	a.op("MOVD $%d, R15 // strips", 128/strip)
	a.high()
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
		a.tileStep16(rows, n, u, func(q int) string { return fmt.Sprintf("%d(R10)", u*128+q*16) })
	}
	a.op("ADD $512, R10")
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
	a.op("ADD $%d, R0", n*16)
	a.op("ADD $%d, R1", strip)
	a.op("SUBS $1, R15")
	a.op("BNE strip")
	a.op("RET")
}

// pv16: d is a multiple of 16; wide strips, then strips of 16 components.
func (a *neon) pv16(rows int) {
	a.text(fmt.Sprintf("pv16x%dNEON", rows), "o, p []float32, v, next []uint16, d, lo, hi int, fac []float32", 144)
	a.op("MOVD o_base+0(FP), R0")
	a.op("MOVD p_base+24(FP), R1")
	a.op("MOVD v_base+48(FP), R2")
	a.op("MOVD d+96(FP), R14 // components left")
	a.op("MOVD lo+104(FP), R13")
	a.op("MOVD hi+112(FP), R12")
	a.op("SUB R13, R12 // slots")
	a.op("MOVD fac_base+120(FP), R15")
	a.op("LSL $1, R14, R16 // bytes of a row of v")
	a.op("LSL $2, R14, R17 // bytes of a row of o")
	a.op("ADD R13<<2, R1, R1")
	a.op("MUL R16, R13, R13")
	a.op("ADD R13, R2, R2")
	a.high()
	at := func(q int) string { return fmt.Sprintf("%d(R10)", q*16) }
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
			a.tileStep16(rows, n, u, at)
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
		a.tileStep16(rows, n, 0, at)
		a.op("ADD R16, R10")
		a.op("SUBS $1, R11")
		a.op("BNE %sby1", l)
		a.f("%sflush:", l)
		a.merge(rows, n)
		a.op("ADD $%d, R0", n*16)
		a.op("ADD $%d, R2", n*8)
	}
	n := neonVectors(rows)
	if n > 4 {
		a.f("wide:")
		a.op("SUBS $%d, R14", n*4)
		a.op("BLT tail")
		emit(n, "wide")
		a.op("B wide")
		a.f("tail:")
		a.op("ADDS $%d, R14", n*4)
		a.op("BEQ done")
	}
	a.f("narrow:")
	emit(4, "narrow")
	a.op("SUBS $16, R14")
	a.op("BNE narrow")
	a.f("done:")
	a.op("RET")
}

func (a *neon) widenPage() {
	a.text("widenNEON", "dst []float32, src []uint16", 48)
	a.op("MOVD dst_base+0(FP), R0")
	a.op("MOVD src_base+24(FP), R1")
	a.op("MOVD src_len+32(FP), R2")
	a.high()
	a.f("loop:")
	a.op("SUBS $16, R2")
	a.op("BLT done")
	for q := range 2 {
		a.op("FMOVQ %d(R1), F%d", q*16, q)
		a.shl16(2, q)
		a.and(3, q, halfMask)
		a.op("FMOVQ F2, %d(R0)", q*16)
		a.op("FMOVQ F3, %d(R0)", q*16+32)
	}
	a.op("ADD $32, R1")
	a.op("ADD $64, R0")
	a.op("B loop")
	a.f("done:")
	a.op("RET")
}
