package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var pool = map[string]Mem{}

// once returns the data section of that name, filled at the first call.
func once(name string, fill func()) Mem {
	if m, ok := pool[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16)
	fill()
	pool[name] = m
	return m
}

// dup is a constant as eight equal float32.
func dup(name string, bits uint32) Mem {
	return once(name, func() {
		for i := range 8 {
			DATA(4*i, U32(bits))
		}
	})
}

func dupf(name string, f float32) Mem { return dup(name, math.Float32bits(f)) }

// Coefficients of exp (docs/numerics.md 4.1).
var expConst = []struct {
	name string
	f    float32
}{
	{"lo", -104}, {"l2e", 0x1.715476p+0}, {"magic", 0x1.8p+23},
	{"nln2hi", -0x1.62e43p-1}, {"nln2lo", 0x1.05c61p-29},
	{"c6", 0x1.6b69f2p-10}, {"c5", 0x1.122f2ep-7}, {"c4", 0x1.55568cp-5},
	{"c3", 0x1.5554a4p-3}, {"c2", 0x1p-1}, {"one", 1},
}

// constants256 returns how exp256 reads each of its constants.
func constants256() map[string]Op {
	c := map[string]Op{}
	for _, e := range expConst {
		c[e.name] = dupf("attn_"+e.name, e.f)
	}
	return c
}

// exp256 replaces each x <= 89, of up to 4 vectors, by exp(x). They go side by side like
// those of exp512.
func exp256(x []reg.VecVirtual, c map[string]Op) {
	t, n, q := make([]reg.VecVirtual, len(x)), make([]reg.VecVirtual, len(x)), make([]reg.VecVirtual, len(x))
	lo, magic := YMM(), YMM()
	VMOVUPS(c["lo"], lo)
	VMOVUPS(c["magic"], magic)
	each := func(f func(i int)) {
		for i := range x {
			f(i)
		}
	}
	each(func(i int) { VMAXPS(x[i], lo, x[i]) }) // x = max(-104, x); a NaN stays
	each(func(i int) { t[i] = YMM(); VMOVAPS(x[i], t[i]) })
	each(func(i int) { VFMADD132PS(c["l2e"], magic, t[i]) }) // t = x·L2E + MAGIC
	each(func(i int) { n[i] = YMM(); VSUBPS(magic, t[i], n[i]) })
	each(func(i int) { VFMADD231PS(c["nln2hi"], n[i], x[i]) }) // r = n·-LN2HI + x
	each(func(i int) { VFMADD231PS(c["nln2lo"], n[i], x[i]) }) // r = n·-LN2LO + r
	each(func(i int) { q[i] = YMM(); VMOVUPS(c["c6"], q[i]) })
	for _, k := range []string{"c5", "c4", "c3", "c2", "one", "one"} {
		each(func(i int) { VFMADD213PS(c[k], x[i], q[i]) }) // q = q·r + k
	}
	// t's low bits hold ni; n1 = ni >> 1, n2 = ni - n1, as exponents: both with their bias.
	each(func(i int) { VPSUBD(dup("attn_magicbits", 0x4b400000-2*127), t[i], t[i]) })
	each(func(i int) { VPSRAD(Imm(1), t[i], x[i]) })
	each(func(i int) { VPSUBD(x[i], t[i], t[i]) })
	each(func(i int) { VPSLLD(Imm(23), x[i], x[i]) })
	each(func(i int) { VPSLLD(Imm(23), t[i], t[i]) })
	each(func(i int) { VMULPS(x[i], q[i], q[i]) })
	each(func(i int) { VMULPS(t[i], q[i], x[i]) })
}

// constants512 is how exp512 reads its constants: two in registers, for the others the
// FMAs have operands that broadcast them.
func constants512() map[string]Op {
	c := map[string]Op{}
	for _, e := range expConst {
		c[e.name] = dupf("attn_"+e.name, e.f)
		if e.name == "lo" || e.name == "magic" {
			z := ZMM()
			VBROADCASTSS(c[e.name], z)
			c[e.name] = z
		}
	}
	return c
}

// exp512 replaces each x <= 89, of up to 8 vectors, by exp(x); one VSCALEF is the two
// products of the contract. The vectors go side by side: the scheduler has no room for
// enough of these chains one after the other.
func exp512(x []reg.VecVirtual, c map[string]Op) {
	t, q := make([]reg.VecVirtual, len(x)), make([]reg.VecVirtual, len(x))
	each := func(f func(x, t, q reg.VecVirtual)) {
		for i := range x {
			f(x[i], t[i], q[i])
		}
	}
	for i := range x {
		t[i], q[i] = ZMM(), ZMM()
	}
	each(func(x, t, q reg.VecVirtual) { VMAXPS(x, c["lo"], x) }) // x = max(-104, x); a NaN stays
	each(func(x, t, q reg.VecVirtual) { VMOVAPS(x, t) })
	each(func(x, t, q reg.VecVirtual) { VFMADD132PS_BCST(c["l2e"], c["magic"], t) }) // t = x·L2E + MAGIC
	each(func(x, t, q reg.VecVirtual) { VSUBPS(c["magic"], t, t) })                  // n = t - MAGIC
	each(func(x, t, q reg.VecVirtual) { VFMADD231PS_BCST(c["nln2hi"], t, x) })       // r = n·-LN2HI + x
	each(func(x, t, q reg.VecVirtual) { VFMADD231PS_BCST(c["nln2lo"], t, x) })       // r = n·-LN2LO + r
	each(func(x, t, q reg.VecVirtual) { VBROADCASTSS(c["c6"], q) })
	for _, k := range []string{"c5", "c4", "c3", "c2", "one", "one"} {
		each(func(x, t, q reg.VecVirtual) { VFMADD213PS_BCST(c[k], x, q) }) // q = q·r + k
	}
	each(func(x, t, q reg.VecVirtual) { VSCALEFPS(t, q, x) })
}

// slide is 8 set words and then 8 clear ones: 8 words from 4·(8-n) on select
// the first n lanes.
func slide() Mem {
	return once("attn_slide", func() {
		for i := range 16 {
			v := uint32(0)
			if i < 8 {
				v = math.MaxUint32
			}
			DATA(4*i, U32(v))
		}
	})
}

// firstLanes returns a vector that selects min(n, 8) lanes.
func firstLanes(n reg.GPVirtual) reg.VecVirtual {
	k, base := GP64(), GP64()
	MOVQ(U32(8), k)
	CMPQ(n, k)
	CMOVQLT(n, k)
	NEGQ(k)
	LEAQ(slide(), base)
	mask := YMM()
	VMOVUPS(Mem{Base: base, Index: k, Scale: 4, Disp: 32}, mask)
	return mask
}

// tailMask returns a load of the first min(n, width) floats, zero elsewhere.
func (m machine) tailMask(n reg.GPVirtual) func(src Mem, dst reg.VecVirtual) {
	if m.width == 8 {
		mask := firstLanes(n)
		return func(src Mem, dst reg.VecVirtual) { VMASKMOVPS(src, mask, dst) }
	}
	lim, bits := GP32(), GP32()
	MOVL(U32(16), lim)
	CMPL(n.As32(), lim)
	CMOVLLT(n.As32(), lim)
	MOVL(I32(-1), bits)
	BZHIL(lim, bits, bits)
	k := K()
	KMOVW(bits, k)
	return func(src Mem, dst reg.VecVirtual) { VMOVUPS_Z(src, k, dst) }
}

// fold joins the lanes of x by op in the tree 4, 2, 1 and returns an XMM whose lane 0 is
// the result.
func fold(x reg.VecVirtual, op func(a, b, c Op)) reg.VecVirtual {
	lo, hi := XMM(), XMM()
	VEXTRACTF128(Imm(1), x, hi)
	op(hi, x.AsX(), lo)
	VPERMILPS(Imm(0b1110), lo, hi)
	op(hi, lo, lo)
	VMOVSHDUP(lo, hi)
	op(hi, lo, lo)
	return lo
}

// foldPair joins the lanes of a and those of b by op in the tree 8, 4, 2, 1 and returns an
// XMM for each whose lane 0 is the result.
func foldPair(a, b reg.VecVirtual, op func(a, b, c Op)) (reg.Register, reg.Register) {
	x, t, second := ZMM(), ZMM(), XMM()
	VSHUFF64X2(Imm(0x44), b, a, x) // the lower halves
	VSHUFF64X2(Imm(0xee), b, a, t) // the upper halves
	op(t, x, x)
	VSHUFF64X2(Imm(0xb1), x, x, t)
	op(t, x, x)
	VPERMILPS(Imm(0x4e), x, t)
	op(t, x, x)
	VPERMILPS(Imm(0xb1), x, t)
	op(t, x, x)
	VEXTRACTF32X4(Imm(2), x, second)
	return x.AsX(), second
}

func add(a, b, c Op)  { VADDPS(a, b, c) }
func vmax(a, b, c Op) { VMAXPS(a, b, c) }
