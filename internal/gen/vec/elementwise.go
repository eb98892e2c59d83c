package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type vecs = []reg.VecVirtual

// loop describes an elementwise kernel: outs[i] = body(ins[i], scalars). All
// slices have the length of the first output.
type loop struct {
	name    string
	outs    []string
	ins     []string
	scalars []string
	unroll  int
	must    []string // constants wanted in registers
	may     []string // constants kept there if there is room
	body    func(in, s vecs) vecs
}

func (e *emitter) loop(l loop) {
	// y of an update is input and output; it is named once
	seen := map[string]bool{}
	var names []string
	for _, n := range append(append([]string{}, l.outs...), l.ins...) {
		if !seen[n] {
			seen[n] = true
			names = append(names, n)
		}
	}
	sig := "func(" + strings.Join(names, ", ") + " []float32"
	if len(l.scalars) > 0 {
		sig += ", " + strings.Join(l.scalars, ", ") + " float32"
	}
	e.function(l.name, sig+")")
	ptrs := map[string]reg.GPVirtual{}
	for _, n := range names {
		ptrs[n] = e.ptr(n)
	}
	n := Load(Param(l.outs[0]).Len(), GP64()).(reg.GPVirtual)
	e.hold(l.must, l.may)
	var s vecs
	for _, name := range l.scalars {
		s = append(s, e.scalar(name))
	}
	at := GP64()
	XORQ(at, at)
	step := func(u int, t *tail) {
		for i := range u {
			var in vecs
			for _, name := range l.ins {
				in = append(in, e.load(Mem{Base: ptrs[name], Index: at, Scale: 1, Disp: 4 * e.lanes() * i}, t))
			}
			for j, v := range l.body(in, s) {
				e.store(v, Mem{Base: ptrs[l.outs[j]], Index: at, Scale: 1, Disp: 4 * e.lanes() * i}, t)
			}
		}
	}
	sizes := []int{1}
	if l.unroll > 1 {
		sizes = []int{l.unroll, 1}
	}
	for _, u := range sizes {
		top, end := fmt.Sprintf("by%d", u), fmt.Sprintf("after%d", u)
		mark(top)
		CMPQ(n, I32(int32(u*e.lanes())))
		JLT(label(end))
		step(u, nil)
		ADDQ(I32(int32(4*u*e.lanes())), at)
		SUBQ(I32(int32(u*e.lanes())), n)
		JMP(label(top))
		mark(end)
	}
	TESTQ(n, n)
	JZ(label("done"))
	t := e.tailMask(n)
	step(1, &t)
	mark("done")
	VZEROUPPER()
	RET()
}

// op2 is dst = op(a, b) on fresh registers; b is the second source, which AVX
// lists first.
func (e *emitter) op2(op func(...Op), b Op, a reg.VecVirtual) reg.VecVirtual {
	v := e.vec()
	op(b, a, v)
	return v
}

var (
	expMust = []string{"lo", "hi", "magic"}
	expMay  = []string{"l2e", "ln2hi", "ln2lo", "c6", "c5", "c4", "c3", "c2", "one"}
)

// exp is numerics.md 4.1; it consumes x.
func (e *emitter) exp(x reg.VecVirtual) reg.VecVirtual {
	r := e.vec()
	VMAXPS(x, e.c("lo"), r) // x is the second source: a NaN passes
	VMINPS(r, e.c("hi"), r)
	t := e.vec()
	VMOVUPS(e.c("l2e"), t)
	VFMADD213PS(e.c("magic"), r, t)     // t = x·L2E + MAGIC
	n := e.op2(VSUBPS, e.c("magic"), t) // n = t - MAGIC
	VFNMADD231PS(e.c("ln2hi"), n, r)    // r = x - n·LN2HI
	VFNMADD231PS(e.c("ln2lo"), n, r)    // r = r - n·LN2LO
	q := e.vec()
	VMOVUPS(e.c("c6"), q)
	for _, c := range []string{"c5", "c4", "c3", "c2", "one", "one"} {
		VFMADD213PS(e.c(c), r, q) // q = q·r + c
	}
	if e.wide {
		VSCALEFPS(n, q, q) // q·2ⁿ, one rounding
		return q
	}
	a := e.op2(VPSUBD, e.c("bias"), t) // ni + 254 > 0
	h := e.vec()
	VPSRLD(Imm(1), a, h) // n1 + 127
	VPSUBD(h, a, a)      // n2 + 127
	VPSLLD(Imm(23), h, h)
	VPSLLD(Imm(23), a, a)
	VMULPS(h, q, q) // exact
	VMULPS(a, q, q)
	return q
}

// onePlusExpNeg is 1 + exp(-x).
func (e *emitter) onePlusExpNeg(x reg.VecVirtual) reg.VecVirtual {
	d := e.exp(e.op2(VXORPS, e.c("sign"), x))
	VADDPS(e.c("one"), d, d)
	return d
}

func (e *emitter) silu(x reg.VecVirtual) reg.VecVirtual {
	return e.op2(VDIVPS, e.onePlusExpNeg(x), x)
}

func (e *emitter) sigmoid(x reg.VecVirtual) reg.VecVirtual {
	return e.op2(VDIVPS, e.onePlusExpNeg(x), e.c("one").(reg.VecVirtual))
}

// softplus is max(x, 0) + log1p(exp(-|x|)), numerics.md 4.3.
func (e *emitter) softplus(x reg.VecVirtual) reg.VecVirtual {
	u := e.exp(e.op2(VORPS, e.c("sign"), x)) // exp(-|x|)
	d := e.op2(VADDPS, e.c("two"), u)
	s := e.op2(VDIVPS, d, u) // s = u / (2 + u)
	z := e.op2(VMULPS, s, s)
	p := e.vec()
	VMOVUPS(e.c("p4"), p)
	for _, c := range []string{"p3", "p2", "p1", "p0"} {
		VFMADD213PS(e.c(c), z, p)
	}
	VMULPS(p, z, z)                 // w = z·p
	w := e.op2(VSUBPS, z, u)        // u - w
	VFNMADD231PS(w, s, u)           // u - s·(u - w)
	m := e.op2(VMAXPS, e.zero(), x) // +0 unless x > 0
	VADDPS(u, m, m)
	return m
}

func elementwise(e *emitter) {
	one := func(v reg.VecVirtual) vecs { return vecs{v} }
	dst := []string{"dst"}
	siluMust := append([]string{"one"}, expMust...)

	e.loop(loop{name: "add", outs: dst, ins: []string{"a", "b"}, unroll: 4,
		body: func(in, _ vecs) vecs { return one(e.op2(VADDPS, in[1], in[0])) }})
	e.loop(loop{name: "sub", outs: dst, ins: []string{"a", "b"}, unroll: 4,
		body: func(in, _ vecs) vecs { return one(e.op2(VSUBPS, in[1], in[0])) }})
	e.loop(loop{name: "mul", outs: dst, ins: []string{"a", "b"}, unroll: 4,
		body: func(in, _ vecs) vecs { return one(e.op2(VMULPS, in[1], in[0])) }})
	e.loop(loop{name: "scale", outs: dst, ins: []string{"x"}, scalars: []string{"s"}, unroll: 4,
		body: func(in, s vecs) vecs { return one(e.op2(VMULPS, s[0], in[0])) }})
	e.loop(loop{name: "divide", outs: dst, ins: []string{"x"}, scalars: []string{"s"}, unroll: 4,
		body: func(in, s vecs) vecs { return one(e.op2(VDIVPS, s[0], in[0])) }})
	e.loop(loop{name: "addSquareMax7", outs: []string{"y"}, ins: []string{"y", "x0", "x1", "x2", "x3", "x4", "x5", "x6"}, scalars: []string{"s"}, must: []string{"neginf"},
		body: func(in, s vecs) vecs {
			t := e.op2(VMAXPS, e.c("neginf"), in[1]) // the second source, listed first, stays when x is NaN
			for _, x := range in[2:] {
				VMAXPS(t, x, t)
			}
			VMULPS(s[0], t, t)
			VMULPS(t, t, t)
			return one(e.op2(VADDPS, t, in[0]))
		}})
	e.loop(loop{name: "addScalar", outs: dst, ins: []string{"x"}, scalars: []string{"s"}, unroll: 4,
		body: func(in, s vecs) vecs { return one(e.op2(VADDPS, s[0], in[0])) }})
	e.loop(loop{name: "fmaScalar", outs: []string{"y"}, ins: []string{"y", "x"}, scalars: []string{"s"}, unroll: 4,
		body: func(in, s vecs) vecs { VFMADD231PS(s[0], in[1], in[0]); return one(in[0]) }})
	e.loop(loop{name: "fma", outs: []string{"y"}, ins: []string{"y", "a", "b"}, unroll: 4,
		body: func(in, _ vecs) vecs { VFMADD231PS(in[2], in[1], in[0]); return one(in[0]) }})
	e.loop(loop{name: "scaleMul", outs: dst, ins: []string{"x", "w"}, scalars: []string{"r"}, unroll: 4,
		body: func(in, s vecs) vecs {
			VMULPS(s[0], in[0], in[0])
			return one(e.op2(VMULPS, in[1], in[0])) // (x·r)·w
		}})
	e.loop(loop{name: "scaleMulAdd", outs: dst, ins: []string{"x", "w", "b"}, scalars: []string{"r"}, unroll: 2,
		body: func(in, s vecs) vecs {
			VMULPS(s[0], in[0], in[0])
			VMULPS(in[1], in[0], in[0])
			return one(e.op2(VADDPS, in[2], in[0])) // ((x·r)·w) + b
		}})
	e.loop(loop{name: "scaleMulSiLU", outs: dst, ins: []string{"x", "w", "z"}, scalars: []string{"r"}, must: expMust, may: expMay,
		body: func(in, s vecs) vecs {
			VMULPS(s[0], in[0], in[0])
			VMULPS(in[1], in[0], in[0])
			return one(e.op2(VMULPS, e.silu(in[2]), in[0])) // ((x·r)·w)·silu(z)
		}})
	e.loop(loop{name: "exp", outs: dst, ins: []string{"x"}, must: expMust, may: expMay,
		body: func(in, _ vecs) vecs { return one(e.exp(in[0])) }})
	e.loop(loop{name: "expSub", outs: dst, ins: []string{"x"}, scalars: []string{"m"}, must: expMust, may: expMay,
		body: func(in, s vecs) vecs { return one(e.exp(e.op2(VSUBPS, s[0], in[0]))) }})
	e.loop(loop{name: "sigmoid", outs: dst, ins: []string{"x"}, must: siluMust, may: append(expMay, "sign"),
		body: func(in, _ vecs) vecs { return one(e.sigmoid(in[0])) }})
	e.loop(loop{name: "silu", outs: dst, ins: []string{"x"}, must: expMust, may: append(expMay, "sign"),
		body: func(in, _ vecs) vecs { return one(e.silu(in[0])) }})
	e.loop(loop{name: "softplus", outs: dst, ins: []string{"x"}, must: expMust, may: expMay,
		body: func(in, _ vecs) vecs { return one(e.softplus(in[0])) }})
	e.loop(loop{name: "swiglu", outs: dst, ins: []string{"g", "u"}, must: expMust, may: append(expMay, "sign"),
		body: func(in, _ vecs) vecs { return one(e.op2(VMULPS, in[1], e.silu(in[0]))) }})
	e.loop(loop{name: "sigmoidMul", outs: dst, ins: []string{"x", "z"}, must: siluMust, may: append(expMay, "sign"),
		body: func(in, _ vecs) vecs { return one(e.op2(VMULPS, e.sigmoid(in[1]), in[0])) }})
	e.loop(loop{name: "rotate", outs: []string{"lo", "hi"}, ins: []string{"a", "b", "c", "s"},
		body: func(in, _ vecs) vecs {
			a, b, c, s := in[0], in[1], in[2], in[3]
			lo, hi := e.op2(VMULPS, s, b), e.op2(VMULPS, s, a)
			VFMSUB231PS(c, a, lo) // lo = a·cos - b·sin
			VFMADD231PS(c, b, hi) // hi = b·cos + a·sin
			return vecs{lo, hi}
		}})
	conv := func(in vecs) reg.VecVirtual {
		acc := e.zero()
		for i := range 4 {
			VFMADD231PS(in[4+i], in[i], acc)
		}
		VADDPS(e.zero(), acc, acc) // total = +0 + acc
		return acc
	}
	taps := []string{"x0", "x1", "x2", "x3", "w0", "w1", "w2", "w3"}
	e.loop(loop{name: "conv4SiLU", outs: dst, ins: taps, must: nil, may: append(append(expMay, expMust...), "sign"),
		body: func(in, _ vecs) vecs { return one(e.siluSpare(conv(in))) }})
}

// siluSpare is silu where no register may be held across the loop: the two
// clamps, which want their constant in a register, load it each time.
func (e *emitter) siluSpare(x reg.VecVirtual) reg.VecVirtual {
	if e.wide {
		return e.silu(x)
	}
	old := e.held
	e.held = map[string]reg.VecVirtual{}
	for _, name := range expMust {
		v := e.vec()
		VMOVUPS(e.table.Offset(e.offset[name]), v)
		e.held[name] = v
	}
	y := e.silu(x)
	e.held = old
	return y
}
