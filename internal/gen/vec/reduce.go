package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// reductions writes RSUM (numerics.md 3): 32 lanes per block of 1024.
func reductions(e *emitter) {
	for _, squares := range []bool{false, true} {
		name := "sum"
		if squares {
			name = "sumSquares"
		}
		e.rsum(name, "func(x []float32) float32", "x", func() []reg.GPVirtual { return nil }, func(acc reg.VecVirtual, x reg.GPVirtual, off int, t *tail) {
			m := Mem{Base: x, Disp: off}
			switch {
			case squares:
				v := e.load(m, t)
				VFMADD231PS(v, v, acc)
			case t != nil:
				VADDPS(e.load(m, t), acc, acc)
			default:
				VADDPS(m, acc, acc)
			}
		})
	}
}

// rsum writes one RSUM over the slice x. params loads what step needs besides and
// returns the pointers that go along with x; step adds a vector of elements at byte
// off of these, or with a tail some of them, to lanes.
func (e *emitter) rsum(name, sig, over string, params func() []reg.GPVirtual, step func(acc reg.VecVirtual, x reg.GPVirtual, off int, t *tail)) {
	e.function(name, sig)
	x := e.ptr(over)
	n := Load(Param(over).Len(), GP64()).(reg.GPVirtual)
	others := params()
	regs := 32 / e.lanes()
	total := XMM()
	VXORPS(total, total, total)
	m, limit := GP64(), GP64()
	MOVQ(I32(1024), limit)

	mark("block")
	TESTQ(n, n)
	JZ(label("done"))
	MOVQ(n, m)
	CMPQ(m, limit)
	CMOVQGT(limit, m)
	SUBQ(m, n)
	acc := make(vecs, regs)
	for i := range acc {
		acc[i] = e.zero()
	}
	mark("row")
	CMPQ(m, Imm(32))
	JLT(label("rest"))
	for i := range acc {
		step(acc[i], x, 4*e.lanes()*i, nil)
	}
	ADDQ(Imm(128), x)
	for _, o := range others {
		ADDQ(Imm(128), o)
	}
	SUBQ(Imm(32), m)
	JMP(label("row"))
	mark("rest")
	TESTQ(m, m)
	JZ(label("fold"))
	// Absent elements read as +0, which changes no lane.
	if e.wide {
		bits, k := GP32(), K()
		MOVL(U32(1), bits)
		SHLXL(m.As32(), bits, bits)
		DECL(bits)
		KMOVW(bits, k)
		step(acc[0], x, 0, &tail{k: k})
		SHRL(Imm(16), bits)
		k2 := K()
		KMOVW(bits, k2)
		step(acc[1], x, 64, &tail{k: k2})
	} else {
		base := GP64()
		LEAQ(e.masks.Offset(128), base)
		NEGQ(m)
		for i := range acc {
			y := YMM()
			VMOVUPS(Mem{Base: base, Index: m, Scale: 4, Disp: 32 * i}, y)
			step(acc[i], x, 32*i, &tail{y: y})
		}
	}
	mark("fold")
	if e.wide {
		VADDPS(acc[1], acc[0], acc[0]) // 16
		hi := YMM()
		VEXTRACTF32X8(Imm(1), acc[0], hi)
		y := acc[0].AsY()
		VADDPS(hi, y, y) // 8
	} else {
		VADDPS(acc[2], acc[0], acc[0]) // 16
		VADDPS(acc[3], acc[1], acc[1])
		VADDPS(acc[1], acc[0], acc[0]) // 8
	}
	lo := foldYMM(acc[0].AsY(), VADDPS)
	VADDSS(lo, total, total)
	JMP(label("block"))
	mark("done")
	VZEROUPPER()
	Store(total, ReturnIndex(0))
	RET()
}

// foldYMM folds eight lanes by 4, 2, 1 into lane 0.
func foldYMM(y reg.Register, op func(...Op)) reg.VecVirtual {
	hi, lo := XMM(), XMM()
	VEXTRACTF128(Imm(1), y, hi)
	VEXTRACTF128(Imm(0), y, lo)
	op(hi, lo, lo) // 4
	VMOVHLPS(lo, lo, hi)
	op(hi, lo, lo) // 2
	VMOVSHDUP(lo, hi)
	op(hi, lo, lo) // 1
	return lo
}

// searches writes max and the first index of a value.
func searches(e *emitter) {
	e.function("max", "func(x []float32) float32")
	x := e.ptr("x")
	n := Load(Param("x").Len(), GP64()).(reg.GPVirtual)
	acc := make(vecs, 4)
	for i := range acc {
		acc[i] = e.vec()
		VMOVUPS(e.c("neginf"), acc[i])
	}
	for _, u := range []int{4, 1} {
		mark(fmt.Sprintf("by%d", u))
		CMPQ(n, Imm(uint64(8*u)))
		JLT(label(fmt.Sprintf("after%d", u)))
		for i := range u {
			v := e.load(Mem{Base: x, Disp: 32 * i}, nil)
			VMAXPS(acc[i], v, acc[i]) // a NaN in v loses
		}
		ADDQ(Imm(uint64(32*u)), x)
		SUBQ(Imm(uint64(8*u)), n)
		JMP(label(fmt.Sprintf("by%d", u)))
		mark(fmt.Sprintf("after%d", u))
	}
	TESTQ(n, n)
	JZ(label("fold"))
	t := e.tailMask(n)
	v := e.load(Mem{Base: x}, &t)
	inf := e.vec()
	VMOVUPS(e.c("neginf"), inf)
	VBLENDVPS(t.y, v, inf, v)
	VMAXPS(acc[0], v, acc[0])
	mark("fold")
	VMAXPS(acc[2], acc[0], acc[0])
	VMAXPS(acc[3], acc[1], acc[1])
	VMAXPS(acc[1], acc[0], acc[0])
	r := foldYMM(acc[0], VMAXPS)
	z := XMM()
	VXORPS(z, z, z)
	VADDSS(z, r, r) // -0 becomes +0
	VZEROUPPER()
	Store(r, ReturnIndex(0))
	RET()

	e.function("index", "func(x []float32, v float32) int")
	x = e.ptr("x")
	n = Load(Param("x").Len(), GP64()).(reg.GPVirtual)
	want := e.scalar("v")
	at, bits := GP64(), GP32()
	XORQ(at, at)
	mark("by8")
	CMPQ(n, Imm(8))
	JLT(label("rest"))
	eq := e.vec()
	VCMPPS(Imm(0), Mem{Base: x, Index: at, Scale: 4}, want, eq)
	VMOVMSKPS(eq, bits)
	TESTL(bits, bits)
	JNZ(label("found"))
	ADDQ(Imm(8), at)
	SUBQ(Imm(8), n)
	JMP(label("by8"))
	mark("rest")
	TESTQ(n, n)
	JZ(label("none"))
	t = e.tailMask(n)
	w := e.load(Mem{Base: x, Index: at, Scale: 4}, &t)
	VCMPPS(Imm(0), w, want, w)
	VANDPS(t.y, w, w)
	VMOVMSKPS(w, bits)
	TESTL(bits, bits)
	JNZ(label("found"))
	mark("none")
	MOVQ(I32(-1), at)
	JMP(label("out"))
	mark("found")
	BSFL(bits, bits)
	b64 := GP64()
	MOVL(bits, b64.As32())
	ADDQ(b64, at)
	mark("out")
	VZEROUPPER()
	Store(at, ReturnIndex(0))
	RET()
}
