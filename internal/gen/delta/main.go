// Command delta writes the amd64 and arm64 kernels of backend/cpu/internal/delta: one
// sweep of the gated delta rule over a strip of 32 state columns.
package main

import (
	"flag"
	"log"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets into the Go struct step.
const (
	offSrc, offDst, offOut, offV      = 0, 8, 16, 24
	offQ, offK, offK1, offWide        = 32, 40, 48, 56
	offSrcStride, offDstStride, offDk = 64, 72, 80
	offG, offG1, offBeta              = 88, 92, 96
	offKV                             = 100
)

func main() {
	wide := flag.Bool("avx512", false, "write the AVX-512 forms")
	arm64 := flag.String("neon", "", "write the arm64 forms to this file instead")
	flag.Parse()
	if *arm64 != "" {
		if err := writeNEON(*arm64); err != nil {
			log.Fatal(err)
		}
		return
	}
	ConstraintExpr("!noasm")
	e := emitter{wide: *wide}
	e.begin()
	for _, first := range []bool{false, true} {
		for _, last := range []bool{false, true} {
			e.step(first, last)
		}
	}
	Generate()
}

type emitter struct{ wide bool }

func (e emitter) vec() reg.VecVirtual {
	if e.wide {
		return ZMM()
	}
	return YMM()
}

// count is the number of vectors in 32 columns, size their bytes.
func (e emitter) count() int {
	if e.wide {
		return 2
	}
	return 4
}

func (e emitter) size() int { return 128 / e.count() }

func (e emitter) vecs() []reg.VecVirtual {
	v := make([]reg.VecVirtual, e.count())
	for i := range v {
		v[i] = e.vec()
	}
	return v
}

func (e emitter) clear(v []reg.VecVirtual) {
	for i := range v {
		if e.wide {
			VPXORD(v[i], v[i], v[i])
		} else {
			VXORPS(v[i], v[i], v[i])
		}
	}
}

func (e emitter) text(name string) (arg reg.GPVirtual, ptr func(off int) reg.GPVirtual) {
	if e.wide {
		name += "AVX512"
	} else {
		name += "AVX2"
	}
	TEXT(name, NOSPLIT, "func(s *byte)")
	Pragma("noescape")
	arg = Load(Param("s"), GP64()).(reg.GPVirtual)
	return arg, func(off int) reg.GPVirtual {
		r := GP64()
		MOVQ(Mem{Base: arg, Disp: off}, r)
		return r
	}
}

// factor is a scalar of step as a multiplier: a register, or, for want of
// registers in AVX2, eight copies in memory that lie in one cache line.
func (e emitter) factor(arg, copies reg.GPVirtual, off, slot int) Op {
	v := e.vec()
	VBROADCASTSS(Mem{Base: arg, Disp: off}, v)
	if e.wide {
		return v
	}
	m := Mem{Base: copies, Disp: 32 * slot}
	VMOVUPS(v, m)
	return m
}

// blocks walks dk rows in blocks of 128 and flushes the chains after each:
// total += acc (numerics.md 2).
func (e emitter) blocks(dk reg.GPVirtual, start, row, flush func()) {
	n, limit := GP64(), GP64()
	MOVQ(I32(128), limit)
	Label("block")
	MOVQ(dk, n)
	CMPQ(n, limit)
	CMOVQGT(limit, n)
	SUBQ(n, dk)
	start()
	Label("row")
	row()
	DECQ(n)
	JNZ(LabelRef("row"))
	flush()
	TESTQ(dk, dk)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// begin: kv[j] = DOT over i (src[i][j]·g, k[i]).
func (e emitter) begin() {
	arg, ptr := e.text("begin")
	src, stride, k, dk := ptr(offSrc), ptr(offSrcStride), ptr(offK), ptr(offDk)
	g := e.vec()
	VBROADCASTSS(Mem{Base: arg, Disp: offG}, g)
	kv := e.vecs()
	e.clear(kv)
	for c := range kv {
		VMOVUPS(kv[c], Mem{Base: arg, Disp: offKV + e.size()*c})
	}
	e.blocks(dk, func() { e.clear(kv) }, func() {
		b := e.vec()
		VBROADCASTSS(Mem{Base: k}, b)
		for c := range kv {
			s := e.vec()
			VMULPS(Mem{Base: src, Disp: e.size() * c}, g, s) // S·g
			VFMADD231PS(b, s, kv[c])
		}
		ADDQ(stride, src)
		ADDQ(Imm(4), k)
	}, func() {
		for c := range kv {
			m := Mem{Base: arg, Disp: offKV + e.size()*c}
			VADDPS(m, kv[c], kv[c])
			VMOVUPS(kv[c], m)
		}
	})
}

// step is one token in one sweep. first: the state is read undecayed and
// multiplied by g here. last: no token follows, the state is stored undecayed.
//
//	d = (v - kv)·beta;  S = FMA(k[i], d, S);  out = DOT(S, q)
//	S = S·g1;  kv = DOT(S, k1)
func (e emitter) step(first, last bool) {
	name := "step"
	if first {
		name += "First"
	}
	if last {
		name += "Last"
	}
	arg, ptr := e.text(name)
	d, out, kv := e.vecs(), e.vecs(), e.vecs()
	beta := e.vec()
	VBROADCASTSS(Mem{Base: arg, Disp: offBeta}, beta)
	v := ptr(offV)
	for c := range d {
		VMOVUPS(Mem{Base: v, Disp: e.size() * c}, d[c])
		VSUBPS(Mem{Base: arg, Disp: offKV + e.size()*c}, d[c], d[c])
		VMULPS(beta, d[c], d[c]) // (v - kv)·beta
	}
	outp := ptr(offOut)
	total := func(base reg.GPVirtual, off int, acc []reg.VecVirtual, add bool) {
		for c := range acc {
			m := Mem{Base: base, Disp: off + e.size()*c}
			if add {
				VADDPS(m, acc[c], acc[c])
			}
			VMOVUPS(acc[c], m)
		}
	}
	e.clear(out)
	total(outp, 0, out, false)
	if !last {
		total(arg, offKV, out, false)
	}
	var g, g1 Op
	copies := ptr(offWide)
	if first {
		g = e.factor(arg, copies, offG, 0)
	}
	if !last {
		g1 = e.factor(arg, copies, offG1, 1)
	}
	src, dst, q, k := ptr(offSrc), ptr(offDst), ptr(offQ), ptr(offK)
	var k1 reg.GPVirtual
	if !last {
		k1 = ptr(offK1)
	}
	srcStride, dstStride, dk := ptr(offSrcStride), ptr(offDstStride), ptr(offDk)
	e.blocks(dk, func() {
		e.clear(out)
		if !last {
			e.clear(kv)
		}
	}, func() {
		bk, bq, bk1 := e.vec(), e.vec(), e.vec()
		VBROADCASTSS(Mem{Base: k}, bk)
		VBROADCASTSS(Mem{Base: q}, bq)
		if !last {
			VBROADCASTSS(Mem{Base: k1}, bk1)
		}
		for c := range out {
			s := e.vec()
			VMOVUPS(Mem{Base: src, Disp: e.size() * c}, s)
			if first {
				VMULPS(g, s, s)
			}
			VFMADD231PS(bk, d[c], s)
			VFMADD231PS(bq, s, out[c])
			if !last {
				VMULPS(g1, s, s)
				VFMADD231PS(bk1, s, kv[c])
			}
			VMOVUPS(s, Mem{Base: dst, Disp: e.size() * c})
		}
		ADDQ(srcStride, src)
		ADDQ(dstStride, dst)
		ADDQ(Imm(4), k)
		ADDQ(Imm(4), q)
		if !last {
			ADDQ(Imm(4), k1)
		}
	}, func() {
		total(outp, 0, out, true)
		if !last {
			total(arg, offKV, kv, true)
		}
	})
}
