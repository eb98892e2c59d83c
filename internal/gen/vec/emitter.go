package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// emitter knows the vector width and where the constants are.
type emitter struct {
	wide   bool
	table  Mem            // every constant sixteen times
	offset map[string]int // byte offset of a constant in table
	masks  Mem            // 32 words of ones, then 32 of zeros
	held   map[string]reg.VecVirtual
}

func (e *emitter) lanes() int {
	if e.wide {
		return 16
	}
	return 8
}

func (e *emitter) suffix() string {
	if e.wide {
		return "AVX512"
	}
	return "AVX2"
}

func (e *emitter) vec() reg.VecVirtual {
	if e.wide {
		return ZMM()
	}
	return YMM()
}

// constants lays out the table; names follow package canon.
func (e *emitter) constants() {
	f := math.Float32bits
	list := []struct {
		name string
		bits uint32
	}{
		{"lo", f(-104)}, {"hi", f(89)},
		{"l2e", f(0x1.715476p+0)}, {"magic", f(0x1.8p+23)},
		{"ln2hi", f(0x1.62e43p-1)}, {"ln2lo", f(-0x1.05c61p-29)},
		{"c6", f(0x1.6b69f2p-10)}, {"c5", f(0x1.122f2ep-7)}, {"c4", f(0x1.55568cp-5)},
		{"c3", f(0x1.5554a4p-3)}, {"c2", f(0.5)}, {"one", f(1)}, {"two", f(2)},
		{"bias", 0x4b400000 - 254},
		{"sign", 1 << 31}, {"abs", 1<<31 - 1},
		{"p0", f(0x1.555558p-1)}, {"p1", f(0x1.9996d8p-2)}, {"p2", f(0x1.25051p-2)},
		{"p3", f(0x1.b72bb8p-3)}, {"p4", f(0x1.f08af8p-3)},
		{"neginf", 0xff800000},
	}
	e.offset = map[string]int{}
	e.table = GLOBL("consts", RODATA|NOPTR)
	at := 0
	for _, c := range list {
		e.offset[c.name] = at
		for range 16 {
			DATA(at, U32(c.bits))
			at += 4
		}
	}
	e.masks = GLOBL("masks", RODATA|NOPTR)
	for i := range 64 {
		v := uint32(0)
		if i < 32 {
			v = math.MaxUint32
		}
		DATA(4*i, U32(v))
	}
}

// c is a constant as an operand: its register if hold was called, else memory.
func (e *emitter) c(name string) Op {
	if r, ok := e.held[name]; ok {
		return r
	}
	return e.table.Offset(e.offset[name])
}

// hold keeps constants in registers for the function being written. AVX2 has
// too few registers for more than those that an instruction wants there.
func (e *emitter) hold(must, may []string) {
	e.held = map[string]reg.VecVirtual{}
	if e.wide {
		must = append(must[:len(must):len(must)], may...)
	}
	for _, name := range must {
		if _, ok := e.held[name]; ok {
			continue
		}
		v := e.vec()
		VMOVUPS(e.table.Offset(e.offset[name]), v)
		e.held[name] = v
	}
}

func (e *emitter) function(name, signature string) {
	TEXT(name+e.suffix(), NOSPLIT, signature)
	Pragma("noescape")
	e.held = nil
}

func (e *emitter) ptr(param string) reg.GPVirtual {
	return Load(Param(param).Base(), GP64()).(reg.GPVirtual)
}

func (e *emitter) scalar(param string) reg.VecVirtual {
	v := e.vec()
	b, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(b.Addr, v)
	return v
}

// tail is the mask of the first n < lanes elements of a vector.
type tail struct {
	y reg.VecVirtual
	k reg.OpmaskVirtual
}

func (e *emitter) tailMask(n reg.GPVirtual) tail {
	if e.wide {
		m, k := GP32(), K()
		MOVL(U32(1), m)
		s := GP64()
		MOVQ(n, s)
		SHLXL(s.As32(), m, m)
		DECL(m)
		KMOVW(m, k)
		return tail{k: k}
	}
	base, at, y := GP64(), GP64(), YMM()
	LEAQ(e.masks.Offset(32*4), base)
	MOVQ(n, at)
	NEGQ(at)
	VMOVUPS(Mem{Base: base, Index: at, Scale: 4}, y)
	return tail{y: y}
}

func (e *emitter) load(m Mem, t *tail) reg.VecVirtual {
	v := e.vec()
	switch {
	case t == nil:
		VMOVUPS(m, v)
	case e.wide:
		VMOVUPS_Z(m, t.k, v)
	default:
		VMASKMOVPS(m, t.y, v)
	}
	return v
}

func (e *emitter) store(v reg.VecVirtual, m Mem, t *tail) {
	switch {
	case t == nil:
		VMOVUPS(v, m)
	case e.wide:
		VMOVUPS(v, t.k, m)
	default:
		VMASKMOVPS(v, t.y, m)
	}
}

func (e *emitter) zero() reg.VecVirtual {
	v := e.vec()
	if e.wide {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
	return v
}

func label(name string) LabelRef { return LabelRef(name) }

func mark(name string) { Label(name) }
