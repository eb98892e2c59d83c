package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// blas1 generates the vector kernels of package blas1.
func blas1() {
	for c := 1; c < 8; c++ {
		chains(c)
	}
	lanesOverBlocks(1)
	lanesOverBlocks(2)
	lanesOverRows()
	for _, v := range isas {
		axpy(v)
		scal(v)
		sumSq(v)
	}
}

// chains generates c scalar chains over blocks of kb elements: a block is one
// chain by contract, so only several blocks together keep the FMA units busy.
func chains(c int) {
	name := fmt.Sprintf("chains%dFMA", c)
	TEXT(name, NOSPLIT, "func(acc, x, y *float32, n int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s sets acc[b] to the chain over x[128·b+i]·y[128·b+i], i < n, for b < %d; n > 0.", name, c))
	acc, x, y, n := ptr("acc"), ptr("x"), ptr("y"), ptr("n")
	sum := make([]reg.VecVirtual, c)
	for i := range sum {
		sum[i] = XMM()
		VXORPS(sum[i], sum[i], sum[i])
	}
	step := func(u int) {
		for b, s := range sum {
			t := XMM()
			VMOVSS(at(x, b*kb*4+u*4), t)
			VFMADD231SS(at(y, b*kb*4+u*4), t, s)
		}
	}
	SUBQ(Imm(4), n)
	JLT(LabelRef("tail"))
	Label("four")
	for u := range 4 {
		step(u)
	}
	ADDQ(Imm(16), x)
	ADDQ(Imm(16), y)
	SUBQ(Imm(4), n)
	JGE(LabelRef("four"))
	Label("tail")
	ADDQ(Imm(4), n)
	JZ(LabelRef("done"))
	Label("one")
	step(0)
	ADDQ(Imm(4), x)
	ADDQ(Imm(4), y)
	DECQ(n)
	JNZ(LabelRef("one"))
	Label("done")
	for i, s := range sum {
		VMOVSS(s, at(acc, i*4))
	}
	RET()
}

// lanesOverBlocks generates chains over 8·groups full blocks with one lane per
// block: four steps of four blocks are transposed at a time.
func lanesOverBlocks(groups int) {
	name := fmt.Sprintf("chains%dx128AVX2", 8*groups)
	TEXT(name, NOSPLIT, "func(acc, x, y *float32)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s sets acc[b] to the chain over x[128·b+i]·y[128·b+i], i < 128, for b < %d.", name, 8*groups))
	acc, x, y := ptr("acc"), ptr("x"), ptr("y")
	sum := avx2.vecs(groups)
	avx2.zero(sum...)
	steps := GP64()
	MOVQ(U32(kb/4), steps)
	block := func(p reg.Register, g int) func(b int) Mem {
		return func(b int) Mem { return at(p, (8*g+b)*kb*4) }
	}
	Label("loop")
	for g, s := range sum {
		xs, ys := fourColumns(block(x, g)), fourColumns(block(y, g))
		for i := range xs {
			VFMADD231PS(xs[i], ys[i], s)
		}
	}
	ADDQ(Imm(16), x)
	ADDQ(Imm(16), y)
	DECQ(steps)
	JNZ(LabelRef("loop"))
	for g, s := range sum {
		VMOVUPS(s, at(acc, g*32))
	}
	VZEROUPPER()
	RET()
}

// fourColumns loads four elements of each of eight chains and returns them element
// by element, a lane per chain.
func fourColumns(chain func(i int) Mem) []reg.VecVirtual {
	r := avx2.vecs(4)
	for i := range r {
		// A broadcast defines the whole register, which a load of its lower
		// half would not (the allocator would keep it alive from the start).
		VBROADCASTF128(chain(i), r[i])
		VINSERTF128(Imm(1), chain(i+4), r[i], r[i])
	}
	t := avx2.vecs(4)
	VUNPCKLPS(r[1], r[0], t[0])
	VUNPCKHPS(r[1], r[0], t[1])
	VUNPCKLPS(r[3], r[2], t[2])
	VUNPCKHPS(r[3], r[2], t[3])
	VUNPCKLPD(t[2], t[0], r[0])
	VUNPCKHPD(t[2], t[0], r[1])
	VUNPCKLPD(t[3], t[1], r[2])
	VUNPCKHPD(t[3], t[1], r[3])
	return r
}

// lanesOverRows generates the chains of eight rows with one lane per row.
func lanesOverRows() {
	TEXT("rows8AVX2", NOSPLIT, "func(acc, x *float32, xStride int, y *float32, yStride int, n int)")
	Pragma("noescape")
	Doc("rows8AVX2 sets acc[r] to the chain over x[r·xStride/4+i]·y[r·yStride/4+i], i < n, for r < 8; n is a positive multiple of 4.")
	acc, x, y, n := ptr("acc"), ptr("x"), ptr("y"), ptr("n")
	xStride, yStride := ptr("xStride"), ptr("yStride")
	sum := avx2.vec()
	avx2.zero(sum)
	xs, x3 := rowBases(x, xStride, 8)
	ys, y3 := rowBases(y, yStride, 8)
	Label("loop")
	a := fourColumns(func(i int) Mem { return rowMem(xs, xStride, x3, i) })
	b := fourColumns(func(i int) Mem { return rowMem(ys, yStride, y3, i) })
	for i := range a {
		VFMADD231PS(a[i], b[i], sum)
	}
	for _, p := range [][]reg.GPVirtual{xs, ys} {
		ADDQ(Imm(16), p[0])
		ADDQ(Imm(16), p[1])
	}
	SUBQ(Imm(4), n)
	JNZ(LabelRef("loop"))
	VMOVUPS(sum, at(acc, 0))
	VZEROUPPER()
	RET()
}

// elementwise generates a loop over four vectors, then one, then single elements.
func elementwise(v isa, n reg.GPVirtual, vector func(off int), single func(), advance func(bytes int)) {
	for _, l := range []struct {
		name  string
		count int
	}{{"four", 4 * v.lanes}, {"vector", v.lanes}} {
		SUBQ(Imm(uint64(l.count)), n)
		JLT(LabelRef(l.name + "done"))
		Label(l.name)
		for o := 0; o < l.count; o += v.lanes {
			vector(o * 4)
		}
		advance(l.count * 4)
		SUBQ(Imm(uint64(l.count)), n)
		JGE(LabelRef(l.name))
		Label(l.name + "done")
		ADDQ(Imm(uint64(l.count)), n)
	}
	JZ(LabelRef("done"))
	Label("one")
	single()
	advance(4)
	DECQ(n)
	JNZ(LabelRef("one"))
	Label("done")
	VZEROUPPER()
	RET()
}

func axpy(v isa) {
	TEXT("axpy"+v.name, NOSPLIT, "func(a float32, x, y *float32, n int)")
	Pragma("noescape")
	Doc("axpy" + v.name + " sets y[i] = FMA(a, x[i], y[i]), i < n.")
	x, y, n := ptr("x"), ptr("y"), ptr("n")
	a, t := v.vec(), v.vec()
	VBROADCASTSS(NewParamAddr("a", 0), a)
	elementwise(v, n, func(o int) {
		VMOVUPS(at(y, o), t)
		VFMADD231PS(at(x, o), a, t)
		VMOVUPS(t, at(y, o))
	}, func() {
		s := XMM()
		VMOVSS(at(y, 0), s)
		VFMADD231SS(at(x, 0), a.AsX(), s)
		VMOVSS(s, at(y, 0))
	}, func(b int) {
		ADDQ(U32(uint32(b)), x)
		ADDQ(U32(uint32(b)), y)
	})
}

func scal(v isa) {
	TEXT("scal"+v.name, NOSPLIT, "func(a float32, x *float32, n int)")
	Pragma("noescape")
	Doc("scal" + v.name + " sets x[i] = a·x[i], i < n.")
	x, n := ptr("x"), ptr("n")
	a, t := v.vec(), v.vec()
	VBROADCASTSS(NewParamAddr("a", 0), a)
	elementwise(v, n, func(o int) {
		VMULPS(at(x, o), a, t)
		VMOVUPS(t, at(x, o))
	}, func() {
		s := XMM()
		VMULSS(at(x, 0), a.AsX(), s)
		VMOVSS(s, at(x, 0))
	}, func(b int) {
		ADDQ(U32(uint32(b)), x)
	})
}

func sumSq(v isa) {
	TEXT("sumSq"+v.name, NOSPLIT, "func(lanes, x *float32, n int)")
	Pragma("noescape")
	Doc("sumSq" + v.name + " sets lanes[j] = FMA(x[i], x[i], lanes[j]) for ascending i < n, j = i mod 32; n is a positive multiple of 32.")
	lanes, x, n := ptr("lanes"), ptr("x"), ptr("n")
	acc := v.vecs(32 / v.lanes)
	for i, r := range acc {
		VMOVUPS(at(lanes, i*v.bytes()), r)
	}
	t := v.vec()
	Label("loop")
	for i, r := range acc {
		VMOVUPS(at(x, i*v.bytes()), t)
		VFMADD231PS(t, t, r)
	}
	ADDQ(U32(128), x)
	SUBQ(Imm(32), n)
	JNZ(LabelRef("loop"))
	for i, r := range acc {
		VMOVUPS(r, at(lanes, i*v.bytes()))
	}
	VZEROUPPER()
	RET()
}
