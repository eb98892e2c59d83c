package emu

import (
	"math/bits"
	"slices"
)

// facts are what is known of a kernel's registers without running it. They rest on
// registers that one instruction writes.
type facts struct {
	defs map[*register][]*stmt
	uses map[*register][]*stmt
}

func gather(k *kernel) *facts {
	f := &facts{map[*register][]*stmt{}, map[*register][]*stmt{}}
	for i := range k.body {
		st := &k.body[i]
		for j, o := range st.args {
			to := f.uses
			if j == 0 && !slices.Contains([]string{"st", "bra", "red", "bar"}, st.words[0]) {
				to = f.defs
			}
			for _, r := range registers(o) {
				to[r] = append(to[r], st)
			}
		}
	}
	return f
}

// registers lists those of an operand.
func registers(o operand) []*register {
	if len(o.parts) > 0 {
		var l []*register
		for _, p := range o.parts {
			l = append(l, registers(p)...)
		}
		return l
	}
	if o.reg != nil {
		return []*register{o.reg}
	}
	return nil
}

// def is the only instruction that writes an operand; nil if there is none.
func (f *facts) def(o operand) *stmt {
	if o.kind == opImm || o.reg == nil || len(f.defs[o.reg]) != 1 {
		return nil
	}
	return f.defs[o.reg][0]
}

// constant is the value of a number or of a register that holds one.
func (f *facts) constant(o operand) (uint64, bool) {
	if o.kind == opImm {
		return o.imm, true
	}
	if st := f.def(o); st != nil && st.words[0] == "mov" && st.args[1].kind == opImm {
		return st.args[1].imm, true
	}
	return 0, false
}

// always reports whether every instruction that writes an operand puts a constant
// there that is so.
func (f *facts) always(o operand, is func(uint64) bool) bool {
	if o.kind == opImm || o.reg == nil {
		v, ok := f.constant(o)
		return ok && is(v)
	}
	for _, st := range f.defs[o.reg] {
		if st.words[0] != "mov" || st.args[1].kind != opImm || !is(st.args[1].imm) {
			return false
		}
	}
	return len(f.defs[o.reg]) > 0
}

const unknown = 64

// width bounds the significant bits of an integer that is not negative, or of a
// field with its sign (of eight bits seven: -128 has one).
func (f *facts) width(o operand) int {
	if v, ok := f.constant(o); ok {
		return bits.Len64(v)
	}
	st := f.def(o)
	if st == nil {
		return unknown
	}
	switch n, imm := uint64(0), false; st.words[0] {
	case "ld":
		switch st.words[len(st.words)-1] {
		case "u8":
			return 8
		case "s8":
			return 7
		case "u16":
			return 16
		}
	case "and":
		if n, imm = f.constant(st.args[2]); imm {
			return min(bits.Len64(n), f.width(st.args[1]))
		}
	case "shr":
		if n, imm = f.constant(st.args[2]); imm && n < 32 && st.words[1][1:] == "32" {
			if st.words[1] == "s32" {
				return 31 - int(n)
			}
			return 32 - int(n)
		}
	case "or", "xor", "selp":
		return max(f.width(st.args[1]), f.width(st.args[2]))
	case "add":
		return max(f.width(st.args[1]), f.width(st.args[2])) + 1
	case "cvt":
		if st.op == "cvt.u32.u16" || st.op == "cvt.u16.u32" {
			return min(16, f.width(st.args[1]))
		}
	}
	return unknown
}

// magic is the word of codes of which o is one: 2^23 and a byte, made by prmt.
func (f *facts) magic(o operand) (codes operand, ok bool) {
	st := f.def(o)
	if st == nil || st.op != "mov.b32" {
		return o, false
	}
	if st = f.def(st.args[1]); st == nil || st.words[0] != "prmt" {
		return o, false
	}
	v, ok := f.constant(st.args[2])
	return st.args[1], ok && v == 0x4b000000
}

// codeBits bounds the bits of every byte of a word of codes.
func (f *facts) codeBits(o operand) int {
	if st := f.def(o); st != nil {
		switch st.words[0] {
		case "or":
			return max(f.codeBits(st.args[1]), f.codeBits(st.args[2]))
		case "and":
			if v, ok := f.constant(st.args[2]); ok {
				return bits.Len64(v >> 24 & 255)
			}
		}
	}
	return 8
}

// significant bounds the significant bits of a float that is a code, a scale of a
// block, or their product: a multiple of 2^-48, far from what underflows.
func (f *facts) significant(o operand) int {
	st := f.def(o)
	if st == nil {
		return unknown
	}
	switch st.op {
	case "cvt.f32.f16":
		return 11
	case "cvt.rn.f32.s32", "cvt.rn.f32.u32", "cvt.rn.f32.u16":
		return f.width(st.args[1])
	case "mul.rn.f32":
		return f.significant(st.args[1]) + f.significant(st.args[2])
	case "sub.rn.f32":
		if codes, ok := f.magic(st.args[1]); ok && f.exact(st) { // less the code of zero, which has one bit
			v, _ := f.constant(st.args[2])
			zero := v & 255
			return max(bits.Len64(max(zero, 1)-1), bits.Len64(1<<f.codeBits(codes)-1-zero))
		}
	}
	return unknown
}

// exact reports whether a step never rounds: the product of a scale and a code, or
// a code taken out of 2^23.
func (f *facts) exact(st *stmt) bool {
	switch st.op {
	case "mul.rn.f32":
		return f.significant(st.args[1])+f.significant(st.args[2]) <= 24
	case "sub.rn.f32":
		_, byte8 := f.magic(st.args[1])
		return byte8 && f.always(st.args[2], func(v uint64) bool { return v>>8 == 0x4b0000 })
	}
	return false
}

// fromZero reports whether an operand is the zero with which a chain begins.
func (f *facts) fromZero(o operand) bool {
	v, ok := f.constant(o)
	return ok && v == 0
}

// field reports whether a value was shifted up, as before a shift down with sign.
func (f *facts) field(o operand) bool {
	st := f.def(o)
	return st != nil && st.words[0] == "shl"
}

// padding reports whether the zero that st puts into a register stands for
// what lies outside an operand: the register is else loaded, or only stored
// to shared memory.
func (f *facts) padding(st *stmt) bool {
	if st.words[0] != "mov" || st.args[1].kind != opImm || st.args[1].imm != 0 || st.args[0].reg == nil {
		return false
	}
	r := st.args[0].reg
	loaded := func(d *stmt) bool { return d.words[0] == "ld" && slices.Contains(d.words, "global") }
	for _, d := range f.defs[r] {
		if loaded(d) {
			return true
		}
		if d.words[0] == "mov" && d.args[1].reg != nil && slices.ContainsFunc(f.defs[d.args[1].reg], loaded) {
			return true
		}
	}
	use := f.uses[r]
	return len(use) > 0 && !slices.ContainsFunc(use, func(d *stmt) bool { return d.words[0] != "st" || d.words[1] != "shared" })
}
