package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// width is the number of outputs in a panel, kb the block length of DOT.
const (
	width = 32
	kb    = 128
)

// isa is one vector width.
type isa struct {
	name  string
	lanes int // float32s of a vector
}

var (
	avx2   = isa{"AVX2", 8}
	avx512 = isa{"AVX512", 16}
	isas   = []isa{avx2, avx512}
)

func (v isa) bytes() int { return v.lanes * 4 }

func (v isa) vec() reg.VecVirtual {
	if v.lanes == 16 {
		return ZMM()
	}
	return YMM()
}

func (v isa) vecs(n int) []reg.VecVirtual {
	r := make([]reg.VecVirtual, n)
	for i := range r {
		r[i] = v.vec()
	}
	return r
}

// zero clears registers.
func (v isa) zero(rs ...reg.VecVirtual) {
	for _, r := range rs {
		if v.lanes == 16 {
			VPXORD(r, r, r)
		} else {
			VXORPS(r, r, r)
		}
	}
}

// ptr loads a parameter into a general register.
func ptr(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name), r)
	return r
}

func at(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }
