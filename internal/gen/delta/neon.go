package main

import (
	"samebit/internal/gen/vec/neon"
)

// Registers of the NEON forms: eight for each of d, out and kv, four
// broadcast values, four for the state and the totals.
const (
	regD, regOut, regKV = 0, 8, 16
	regK, regQ, regK1   = 24, 25, 26
	regG1, regG, regS   = 27, 28, 29 // regS and two more
)

type arm struct{ *neon.Writer }

func writeNEON(path string) error {
	w := arm{neon.New("go run ./delta -neon " + path)}
	w.begin()
	for _, first := range []bool{false, true} {
		for _, last := range []bool{false, true} {
			w.step(first, last)
		}
	}
	return w.Save(path)
}

func (w arm) text(name string) {
	w.Line("\nTEXT ·%sNEON(SB), NOSPLIT, $0-8", name)
	w.I("MOVD s+0(FP), R0")
}

func (w arm) pointer(r, off int) { w.I("MOVD %d(R0), R%d", off, r) }

// broadcast loads the float at the address r into four lanes and moves on.
func (w arm) broadcast(v, r int) { w.I("VLD1R.P 4(R%d), [V%d.S4]", r, v) }

// factor loads a scalar of step.
func (w arm) factor(v, off int) {
	w.I("ADD $%d, R0, R1", off)
	w.I("VLD1R (R1), [V%d.S4]", v)
}

// clear sets eight registers to zero.
func (w arm) clear(from int) {
	for c := range 8 {
		w.Zero(from + c)
	}
}

// totals adds eight registers to 32 values in memory, or stores zeros there.
// R1 moves.
func (w arm) totals(from int) {
	for c := range 8 {
		w.I("VLD1 (R1), [V%d.S4]", regS)
		w.Add(regS, regS, from+c)
		w.I("VST1.P [V%d.S4], 16(R1)", regS)
	}
}

func (w arm) zeros() {
	w.Zero(regS)
	for range 8 {
		w.I("VST1.P [V%d.S4], 16(R1)", regS)
	}
}

// blocks walks R2 rows in blocks of 128; R3 counts inside a block.
func (w arm) blocks(start, row, flush func()) {
	w.Line("block:")
	w.I("MOVD $128, R3")
	w.I("CMP R3, R2")
	w.I("CSEL LT, R2, R3, R3")
	w.I("SUB R3, R2")
	start()
	w.Line("row:")
	row()
	w.I("SUB $1, R3")
	w.I("CBNZ R3, row")
	flush()
	w.I("CBNZ R2, block")
	w.I("RET")
}

// begin: kv[j] = DOT over i (src[i][j]·g, k[i]).
func (w arm) begin() {
	w.text("begin")
	w.pointer(2, offDk)
	w.pointer(4, offSrc)
	w.pointer(5, offSrcStride)
	w.pointer(6, offK)
	w.factor(regG, offG)
	w.I("ADD $%d, R0, R1", offKV)
	w.zeros()
	w.blocks(func() { w.clear(regKV) }, func() {
		w.broadcast(regK, 6)
		w.I("MOVD R4, R7")
		for c := range 8 {
			s := regS + c%3
			w.I("VLD1.P 16(R7), [V%d.S4]", s)
			w.Mul(s, s, regG) // S·g
			w.FMA(regKV+c, s, regK)
		}
		w.I("ADD R5, R4")
	}, func() {
		w.I("ADD $%d, R0, R1", offKV)
		w.totals(regKV)
	})
}

// step is one token in one sweep; see the amd64 form.
func (w arm) step(first, last bool) {
	name := "step"
	if first {
		name += "First"
	}
	if last {
		name += "Last"
	}
	w.text(name)
	w.factor(regG, offBeta)
	w.pointer(4, offV)
	w.I("ADD $%d, R0, R1", offKV)
	for c := range 8 {
		w.I("VLD1.P 16(R4), [V%d.S4]", regD+c)
		w.I("VLD1.P 16(R1), [V%d.S4]", regS)
		w.Sub(regD+c, regD+c, regS)
		w.Mul(regD+c, regD+c, regG) // (v - kv)·beta
	}
	w.pointer(1, offOut)
	w.zeros()
	if !last {
		w.I("ADD $%d, R0, R1", offKV)
		w.zeros()
		w.factor(regG1, offG1)
		w.pointer(8, offK1)
	}
	if first {
		w.factor(regG, offG)
	}
	for i, off := range []int{offSrc, offSrcStride, offDst, offDstStride} {
		w.pointer(4+i, off)
	}
	w.pointer(9, offK)
	w.pointer(10, offQ)
	w.pointer(2, offDk)
	w.blocks(func() {
		w.clear(regOut)
		if !last {
			w.clear(regKV)
		}
	}, func() {
		w.broadcast(regK, 9)
		w.broadcast(regQ, 10)
		if !last {
			w.broadcast(regK1, 8)
		}
		w.I("MOVD R4, R11")
		w.I("MOVD R6, R12")
		for c := range 8 {
			s := regS + c%3
			w.I("VLD1.P 16(R11), [V%d.S4]", s)
			if first {
				w.Mul(s, s, regG)
			}
			w.FMA(s, regD+c, regK)
			w.FMA(regOut+c, s, regQ)
			if !last {
				w.Mul(s, s, regG1)
				w.FMA(regKV+c, s, regK1)
			}
			w.I("VST1.P [V%d.S4], 16(R12)", s)
		}
		w.I("ADD R5, R4")
		w.I("ADD R7, R6")
	}, func() {
		w.pointer(1, offOut)
		w.totals(regOut)
		if !last {
			w.I("ADD $%d, R0, R1", offKV)
			w.totals(regKV)
		}
	})
}
