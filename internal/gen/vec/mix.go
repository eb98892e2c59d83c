package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// mixRows writes the sum of a few weighted rows of dst's length: per element one
// chain over the rows (numerics.md 2, one block), lanes over the elements.
func mixRows(e *emitter) {
	e.function("mixRows", "func(dst, w, x []float32)")
	dst, w, x := e.ptr("dst"), e.ptr("w"), e.ptr("x")
	n := Load(Param("dst").Len(), GP64()).(reg.GPVirtual)
	rows := Load(Param("w").Len(), GP64()).(reg.GPVirtual)
	stride := GP64()
	MOVQ(n, stride)
	SHLQ(Imm(2), stride)
	zero := e.zero()

	// columns sums so many vectors side by side, so that their chains overlap.
	columns := func(name string, cols int, t *tail) {
		acc := make(vecs, cols)
		for i := range acc {
			acc[i] = e.zero()
		}
		xp, wp, k := GP64(), GP64(), GP64()
		MOVQ(x, xp)
		MOVQ(w, wp)
		MOVQ(rows, k)
		TESTQ(k, k)
		JZ(label(name + "store"))
		mark(name + "row")
		b := e.vec()
		VBROADCASTSS(Mem{Base: wp}, b)
		for i := range acc {
			m := Mem{Base: xp, Disp: 4 * e.lanes() * i}
			if t == nil {
				VFMADD231PS(m, b, acc[i]) // acc = w·x + acc, one rounding
			} else {
				VFMADD231PS(e.load(m, t), b, acc[i])
			}
		}
		ADDQ(stride, xp)
		ADDQ(Imm(4), wp)
		DECQ(k)
		JNZ(label(name + "row"))
		mark(name + "store")
		for i := range acc {
			VADDPS(zero, acc[i], acc[i]) // a chain may end at -0
			e.store(acc[i], Mem{Base: dst, Disp: 4 * e.lanes() * i}, t)
		}
	}
	for _, cols := range []int{4, 2, 1} {
		name := fmt.Sprintf("c%d", cols)
		wide := cols * e.lanes()
		mark(name)
		CMPQ(n, I32(int32(wide)))
		JLT(label(name + "end"))
		columns(name, cols, nil)
		ADDQ(I32(int32(4*wide)), dst)
		ADDQ(I32(int32(4*wide)), x)
		SUBQ(I32(int32(wide)), n)
		JMP(label(name))
		mark(name + "end")
	}
	TESTQ(n, n)
	JZ(label("done"))
	t := e.tailMask(n)
	columns("t", 1, &t)
	mark("done")
	VZEROUPPER()
	RET()
}
