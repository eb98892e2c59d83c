package main

import "fmt"

func params(names ...string) {
	for i, n := range names {
		emit("MOVD %s+%d(FP), R%d", n, i*8, i)
	}
}

func blas1() {
	for _, c := range []int{1, 4, 8} {
		chains(c)
	}
	axpy()
	scal()
	sumSq()
}

func chains(c int) {
	text(fmt.Sprintf("acc[b] = the chain over x[128·b+i]·y[128·b+i], i < n, for b < %d; n > 0.", c), fmt.Sprintf("chains%dNEON", c), "(acc, x, y *float32, n int)", 32)
	params("acc", "x", "y", "n")
	zero(0, c)
	label("loop")
	for b := range c {
		emit("FMOVS %d(R1), F%d", b*kb*4, 8+b)
		emit("FMOVS %d(R2), F%d", b*kb*4, 16+b)
		emit("FMADDS F%d, F%d, F%d, F%d", 16+b, b, 8+b, b)
	}
	emit("ADD $4, R1")
	emit("ADD $4, R2")
	emit("SUBS $1, R3")
	emit("BNE loop")
	for b := range c {
		emit("FMOVS F%d, %d(R0)", b, b*4)
	}
	emit("RET")
}

// elementwise: sixteen elements at a time, then one; the length is in R3.
func elementwise(sixteen, one func()) {
	emit("SUBS $16, R3")
	emit("BLT tail")
	label("vector")
	sixteen()
	emit("SUBS $16, R3")
	emit("BGE vector")
	label("tail")
	emit("ADDS $16, R3")
	emit("BEQ done")
	label("one")
	one()
	emit("SUBS $1, R3")
	emit("BNE one")
	label("done")
	emit("RET")
}

func axpy() {
	text("y[i] = FMA(a, x[i], y[i]), i < n.", "axpyNEON", "(a float32, x, y *float32, n int)", 32)
	emit("FMOVS a+0(FP), F31")
	emit("VDUP V31.S[0], V30.S4")
	emit("MOVD x+8(FP), R1")
	emit("MOVD y+16(FP), R2")
	emit("MOVD n+24(FP), R3")
	elementwise(func() {
		emit("VLD1.P 64(R1), %s", four(0))
		emit("VLD1 (R2), %s", four(4))
		for i := range 4 {
			emit("VFMLA V30.S4, V%d.S4, V%d.S4", i, 4+i)
		}
		emit("VST1.P %s, 64(R2)", four(4))
	}, func() {
		emit("FMOVS.P 4(R1), F0")
		emit("FMOVS (R2), F1")
		emit("FMADDS F31, F1, F0, F1")
		emit("FMOVS.P F1, 4(R2)")
	})
}

func scal() {
	text("x[i] = a·x[i], i < n.", "scalNEON", "(a float32, x *float32, n int)", 24)
	emit("FMOVS a+0(FP), F31")
	emit("VDUP V31.S[0], V30.S4")
	emit("MOVD x+8(FP), R1")
	emit("MOVD n+16(FP), R3")
	elementwise(func() {
		emit("VLD1 (R1), %s", four(0))
		for i := range 4 {
			emit("WORD $0x%08x // FMUL V30.S4, V%d.S4, V%d.S4", 0x6e20dc00|30<<16|i<<5|i, i, i)
		}
		emit("VST1.P %s, 64(R1)", four(0))
	}, func() {
		emit("FMOVS (R1), F0")
		emit("FMULS F31, F0, F0")
		emit("FMOVS.P F0, 4(R1)")
	})
}

func sumSq() {
	text("lanes[j] = FMA(x[i], x[i], lanes[j]), j = i mod 32; n is a positive multiple of 32.", "sumSqNEON", "(lanes, x *float32, n int)", 24)
	params("lanes", "x", "n")
	emit("MOVD R0, R3")
	emit("VLD1.P 64(R3), %s", four(0))
	emit("VLD1.P 64(R3), %s", four(4))
	label("loop")
	emit("VLD1.P 64(R1), %s", four(16))
	emit("VLD1.P 64(R1), %s", four(20))
	for i := range 8 {
		emit("VFMLA V%d.S4, V%d.S4, V%d.S4", 16+i, 16+i, i)
	}
	emit("SUBS $32, R2")
	emit("BNE loop")
	emit("VST1.P %s, 64(R0)", four(0))
	emit("VST1.P %s, 64(R0)", four(4))
	emit("RET")
}
