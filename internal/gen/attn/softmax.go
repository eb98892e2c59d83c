package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const softmaxSig = "func(s, st []float32, rows, lo, hi int, scale float32)"

// foldState emits, for the first n rows of the state,
// m' = max(m, mb), al = exp(m - m'), be = exp(mb - m'), l = FMA(lb, be, l·al).
func foldState(st, n reg.GPVirtual) {
	c := constants256()
	mask := firstLanes(n)
	m, mb, l, lb := YMM(), YMM(), YMM(), YMM()
	at := func(off int) Mem { return Mem{Base: st, Disp: off} }
	VMASKMOVPS(at(stM), mask, m)
	VMASKMOVPS(at(stMB), mask, mb)
	VMASKMOVPS(at(stL), mask, l)
	VMASKMOVPS(at(stLB), mask, lb)
	top := YMM()
	VMAXPS(mb, m, top)
	VMASKMOVPS(top, mask, at(stM))
	VSUBPS(top, m, m)
	VSUBPS(top, mb, mb)
	exp256([]reg.VecVirtual{m, mb}, c)
	VMASKMOVPS(m, mask, at(stAl))
	VMASKMOVPS(mb, mask, at(stBe))
	VMULPS(m, l, l)
	VFMADD231PS(mb, lb, l)
	VMASKMOVPS(l, mask, at(stL))
}

// softmax512: one row is four vectors of 16 slots, and two rows go side by side.
func softmax512() {
	TEXT("softmaxAVX512", NOSPLIT, softmaxSig)
	Doc("softmaxAVX512 turns raw scores [rows][64] into weights and merges m_b, l_b into st; rows <= 8 see slots lo..hi-1.")
	s := Load(Param("s").Base(), GP64()).(reg.GPVirtual)
	st := Load(Param("st").Base(), GP64()).(reg.GPVirtual)
	rows := Load(Param("rows"), GP64()).(reg.GPVirtual)
	scale := ZMM()
	VBROADCASTSS(NewParamAddr("scale", 72), scale)
	c := constants512()
	ninf := ZMM()
	VBROADCASTSS(dup("attn_ninf", 0xff800000), ninf)

	Comment("bits lo..hi-1 select the visible slots")
	sees := GP64()
	MOVQ(I64(-1), sees)
	MOVQ(U32(64), reg.RCX)
	SUBQ(NewParamAddr("hi", 64), reg.RCX)
	SHLQ(reg.CL, sees)
	SHRQ(reg.CL, sees)
	MOVQ(NewParamAddr("lo", 56), reg.RCX)
	SHRQ(reg.CL, sees)
	SHLQ(reg.CL, sees)
	var k [4]reg.OpmaskVirtual
	for i := range k {
		k[i] = K()
		KMOVW(sees.As32(), k[i])
		SHRQ(Imm(16), sees)
	}

	left := GP64()
	at := [2]reg.GPVirtual{GP64(), GP64()} // scores of the two rows
	to := [2]reg.GPVirtual{GP64(), GP64()} // and their state
	pairs := func(label string, body func()) {
		MOVQ(s, at[0])
		MOVQ(st, to[0])
		MOVQ(rows, left)
		Label(label)
		Comment("an odd row is a pair with itself")
		LEAQ(Mem{Base: at[0], Disp: page * 4}, at[1])
		LEAQ(Mem{Base: to[0], Disp: 4}, to[1])
		CMPQ(left, U8(1))
		CMOVQEQ(at[0], at[1])
		CMOVQEQ(to[0], to[1])
		body()
		ADDQ(U32(2*page*4), at[0])
		ADDQ(U8(8), to[0])
		SUBQ(U8(2), left)
		JGT(LabelRef(label))
	}
	newRows := func() (x [2][4]reg.VecVirtual) {
		for r := range x {
			for i := range x[r] {
				x[r][i] = ZMM()
			}
		}
		return x
	}
	var part [2]reg.VecVirtual
	pairs("max", func() {
		x := newRows()
		for r := range x {
			for i, v := range x[r] {
				VMOVAPS(ninf, v)
				VMULPS(Mem{Base: at[r], Disp: 64 * i}, scale, k[i], v)
			}
		}
		for r := range x {
			for i, v := range x[r] {
				VMOVUPS(v, Mem{Base: at[r], Disp: 64 * i})
			}
			a, b := ZMM(), ZMM()
			VMAXPS(x[r][0], x[r][1], a)
			VMAXPS(x[r][2], x[r][3], b)
			VMAXPS(a, b, a)
			part[r] = a
		}
		first, second := foldPair(part[0], part[1], vmax)
		VMOVSS(first, Mem{Base: to[0], Disp: stMB})
		VMOVSS(second, Mem{Base: to[1], Disp: stMB})
	})
	pairs("exp", func() {
		x := newRows()
		for r := range x {
			for i, v := range x[r] {
				VMOVUPS(Mem{Base: at[r], Disp: 64 * i}, v)
			}
		}
		for r := range x {
			for _, v := range x[r] {
				VSUBPS_BCST(Mem{Base: to[r], Disp: stMB}, v, v)
			}
		}
		exp512(append(x[0][:], x[1][:]...), c)
		Comment("l_b: slot j and j+32 share a lane, then the tree")
		for r := range x {
			for i, v := range x[r] {
				VMOVUPS(v, Mem{Base: at[r], Disp: 64 * i})
			}
			a, b := ZMM(), ZMM()
			VADDPS(x[r][2], x[r][0], a)
			VADDPS(x[r][3], x[r][1], b)
			VADDPS(b, a, a)
			part[r] = a
		}
		first, second := foldPair(part[0], part[1], add)
		VMOVSS(first, Mem{Base: to[0], Disp: stLB})
		VMOVSS(second, Mem{Base: to[1], Disp: stLB})
	})
	foldState(st, rows)
	VZEROUPPER()
	RET()
}

// softmax256: one row is eight vectors of 8 slots.
func softmax256() {
	TEXT("softmaxAVX2", NOSPLIT, softmaxSig)
	Doc("softmaxAVX2 turns raw scores [rows][64] into weights and merges m_b, l_b into st; rows <= 8 see slots lo..hi-1.")
	s := Load(Param("s").Base(), GP64()).(reg.GPVirtual)
	st := Load(Param("st").Base(), GP64()).(reg.GPVirtual)
	rows := Load(Param("rows"), GP64()).(reg.GPVirtual)
	c := constants256()
	index := once("attn_index", func() {
		for i := range page {
			DATA(4*i, U32(uint32(i)))
		}
	})
	row, at, left, idx, whole := GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(s, row)
	MOVQ(st, at)
	MOVQ(rows, left)
	LEAQ(index, idx)
	MOVQ(NewParamAddr("hi", 64), whole)
	SUBQ(NewParamAddr("lo", 56), whole)
	Label("max")
	scale := YMM()
	VBROADCASTSS(NewParamAddr("scale", 72), scale)
	var x [8]reg.VecVirtual
	for i := range x {
		x[i] = YMM()
		VMULPS(Mem{Base: row, Disp: 32 * i}, scale, x[i])
	}
	CMPQ(whole, U32(page))
	JEQ(LabelRef("all"))
	Comment("invisible slots: -Inf, so that p = +0")
	lo, hi, ninf := YMM(), YMM(), YMM()
	VPBROADCASTD(NewParamAddr("lo", 56), lo)
	VPBROADCASTD(NewParamAddr("hi", 64), hi)
	VMOVUPS(dup("attn_ninf", 0xff800000), ninf)
	for i := range x {
		under, over, j := YMM(), YMM(), YMM()
		VMOVDQU(Mem{Base: idx, Disp: 32 * i}, j)
		VPCMPGTD(j, lo, under) // lo > j
		VPCMPGTD(j, hi, over)  // hi > j
		VPANDN(over, under, over)
		VBLENDVPS(over, x[i], ninf, x[i])
	}
	Label("all")
	for i := range x {
		VMOVUPS(x[i], Mem{Base: row, Disp: 32 * i})
	}
	a, b := YMM(), YMM()
	VMAXPS(x[0], x[1], a)
	VMAXPS(x[2], x[3], b)
	VMAXPS(a, b, a)
	VMAXPS(x[4], x[5], b)
	VMAXPS(a, b, a)
	VMAXPS(x[6], x[7], b)
	VMAXPS(a, b, a)
	VMOVSS(fold(a, vmax), Mem{Base: at, Disp: stMB})
	ADDQ(U32(page*4), row)
	ADDQ(U32(4), at)
	DECQ(left)
	JNE(LabelRef("max"))

	MOVQ(s, row)
	MOVQ(st, at)
	MOVQ(rows, left)
	Label("exp")
	var sum reg.VecVirtual
	for half := range 2 {
		x := x[4*half:][:4]
		m := YMM()
		VBROADCASTSS(Mem{Base: at, Disp: stMB}, m)
		for i := range x {
			x[i] = YMM()
			VMOVUPS(Mem{Base: row, Disp: 32 * (4*half + i)}, x[i])
			VSUBPS(m, x[i], x[i])
		}
		exp256(x, c)
		for i := range x {
			VMOVUPS(x[i], Mem{Base: row, Disp: 32 * (4*half + i)})
		}
		if half == 1 {
			Comment("l_b: slot j and j+32 share a lane, then the tree")
			for i := range x {
				VADDPS(Mem{Base: row, Disp: 32 * i}, x[i], x[i])
			}
			VADDPS(x[2], x[0], x[0])
			VADDPS(x[3], x[1], x[1])
			VADDPS(x[1], x[0], x[0])
			sum = x[0]
		}
	}
	VMOVSS(fold(sum, add), Mem{Base: at, Disp: stLB})
	ADDQ(U32(page*4), row)
	ADDQ(U32(4), at)
	DECQ(left)
	JNE(LabelRef("exp"))
	foldState(st, rows)
	VZEROUPPER()
	RET()
}

func fold256() {
	TEXT("foldAVX2", NOSPLIT, "func(st []float32, rows int)")
	Doc("foldAVX2 merges m_b and l_b of rows <= 8 rows into st.")
	st := Load(Param("st").Base(), GP64()).(reg.GPVirtual)
	rows := Load(Param("rows"), GP64()).(reg.GPVirtual)
	foldState(st, rows)
	VZEROUPPER()
	RET()
}

// each emits body for whole vectors of n floats and, masked, for the rest; the
// pointers move along.
func each(n reg.GPVirtual, ptrs []reg.GPVirtual, body func(load func(p reg.GPVirtual) reg.VecVirtual, store func(x reg.VecVirtual, p reg.GPVirtual))) {
	Label("vector")
	SUBQ(U32(8), n)
	JLT(LabelRef("rest"))
	body(func(p reg.GPVirtual) reg.VecVirtual {
		x := YMM()
		VMOVUPS(Mem{Base: p}, x)
		return x
	}, func(x reg.VecVirtual, p reg.GPVirtual) { VMOVUPS(x, Mem{Base: p}) })
	for _, p := range ptrs {
		ADDQ(U32(32), p)
	}
	JMP(LabelRef("vector"))
	Label("rest")
	ADDQ(U32(8), n)
	JEQ(LabelRef("done"))
	mask := firstLanes(n)
	body(func(p reg.GPVirtual) reg.VecVirtual {
		x := YMM()
		VMASKMOVPS(Mem{Base: p}, mask, x)
		return x
	}, func(x reg.VecVirtual, p reg.GPVirtual) { VMASKMOVPS(x, mask, Mem{Base: p}) })
	Label("done")
	VZEROUPPER()
	RET()
}

func merge256() {
	TEXT("mergeAVX2", NOSPLIT, "func(o, ob []float32, al, be float32)")
	Doc("mergeAVX2 computes o[c] = FMA(ob[c], be, o[c]·al) for c < len(o).")
	o := Load(Param("o").Base(), GP64()).(reg.GPVirtual)
	n := Load(Param("o").Len(), GP64()).(reg.GPVirtual)
	ob := Load(Param("ob").Base(), GP64()).(reg.GPVirtual)
	al, be := YMM(), YMM()
	VBROADCASTSS(NewParamAddr("al", 48), al)
	VBROADCASTSS(NewParamAddr("be", 52), be)
	each(n, []reg.GPVirtual{o, ob}, func(load func(reg.GPVirtual) reg.VecVirtual, store func(reg.VecVirtual, reg.GPVirtual)) {
		x, y := load(o), load(ob)
		VMULPS(al, x, x)
		VFMADD231PS(y, be, x)
		store(x, o)
	})
}

func scaleTo256() {
	TEXT("scaleToAVX2", NOSPLIT, "func(out, o []float32, f float32)")
	Doc("scaleToAVX2 computes out[c] = o[c]·f for c < len(out).")
	out := Load(Param("out").Base(), GP64()).(reg.GPVirtual)
	n := Load(Param("out").Len(), GP64()).(reg.GPVirtual)
	o := Load(Param("o").Base(), GP64()).(reg.GPVirtual)
	f := YMM()
	VBROADCASTSS(NewParamAddr("f", 48), f)
	each(n, []reg.GPVirtual{out, o}, func(load func(reg.GPVirtual) reg.VecVirtual, store func(reg.VecVirtual, reg.GPVirtual)) {
		x := load(o)
		VMULPS(f, x, x)
		store(x, out)
	})
}

func weigh256() {
	TEXT("weighAVX2", NOSPLIT, "func(s []float32, m, inv float32)")
	Doc("weighAVX2 turns scores, whole pages of them, into exp(s - m)·inv.")
	s := Load(Param("s").Base(), GP64()).(reg.GPVirtual)
	c := constants256()
	m, inv := YMM(), YMM()
	VBROADCASTSS(NewParamAddr("m", 24), m)
	VBROADCASTSS(NewParamAddr("inv", 28), inv)
	left := GP64()
	Load(Param("s").Len(), left)
	SHRQ(Imm(3), left)
	JEQ(LabelRef("done"))
	Label("vector")
	x := YMM()
	VMOVUPS(Mem{Base: s}, x)
	VSUBPS(m, x, x)
	exp256([]reg.VecVirtual{x}, c)
	VMULPS(inv, x, x)
	VMOVUPS(x, Mem{Base: s})
	ADDQ(U32(32), s)
	DECQ(left)
	JNE(LabelRef("vector"))
	Label("done")
	VZEROUPPER()
	RET()
}

func weigh512() {
	TEXT("weighAVX512", NOSPLIT, "func(s []float32, m, inv float32)")
	Doc("weighAVX512 turns scores, whole pages of them, into exp(s - m)·inv.")
	s := Load(Param("s").Base(), GP64()).(reg.GPVirtual)
	c := constants512()
	m, inv := ZMM(), ZMM()
	VBROADCASTSS(NewParamAddr("m", 24), m)
	VBROADCASTSS(NewParamAddr("inv", 28), inv)
	left := GP64()
	Load(Param("s").Len(), left)
	SHRQ(Imm(6), left)
	JEQ(LabelRef("done"))
	Label("page")
	x := []reg.VecVirtual{ZMM(), ZMM(), ZMM(), ZMM()}
	for i, v := range x {
		VMOVUPS(Mem{Base: s, Disp: 64 * i}, v)
		VSUBPS(m, v, v)
	}
	exp512(x, c)
	for i, v := range x {
		VMULPS(inv, v, v)
		VMOVUPS(v, Mem{Base: s, Disp: 64 * i})
	}
	ADDQ(U32(4*page), s)
	DECQ(left)
	JNE(LabelRef("page"))
	Label("done")
	VZEROUPPER()
	RET()
}
