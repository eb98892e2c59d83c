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
	live map[*stmt]bool
}

func gather(k *kernel) *facts {
	f := &facts{map[*register][]*stmt{}, map[*register][]*stmt{}, map[*stmt]bool{}}
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
		if st.guard != nil {
			f.uses[st.guard] = append(f.uses[st.guard], st)
		}
	}
	for i := range k.body {
		f.keep(&k.body[i])
	}
	return f
}

// computing are the instructions that do nothing but write a register.
var computing = []string{"abs", "add", "and", "bfe", "bfi", "bfind", "brev", "clz", "copysign", "cvt", "cvta", "div", "fma", "lop3", "mad", "max", "min", "mov", "mul", "neg", "not", "or", "popc", "prmt",
	"rcp", "rem", "selp", "setp", "shf", "shl", "shr", "sqrt", "sub", "xor"}

// keep notes which instructions matter: those that do more than to write a register,
// and those that write one which such an instruction reads, or another that matters.
func (f *facts) keep(st *stmt) {
	if slices.Contains(computing, st.words[0]) || f.live[st] {
		return
	}
	left := []*stmt{st}
	for len(left) > 0 {
		st := left[len(left)-1]
		left = left[:len(left)-1]
		if f.live[st] {
			continue
		}
		f.live[st] = true
		read := []*register{st.guard}
		for _, o := range st.args {
			read = append(read, registers(o)...)
		}
		for _, r := range read {
			if r != nil {
				left = append(left, f.defs[r]...)
			}
		}
	}
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
	if v, ok := f.constant(st.args[2]); ok && v == 0x4b000000 {
		return st.args[1], true
	}
	v, ok := f.constant(st.args[1])
	return st.args[2], ok && v == 0x4b000000 && f.selects(st.args[3])
}

// selects reports whether a selector of prmt takes a byte of the second operand and
// three of the first: 0x3214, 0x3215, 0x3216 or 0x3217.
func (f *facts) selects(o operand) bool {
	if by, ok := f.constant(o); ok {
		return by&^3 == 0x3214
	}
	st := f.def(o)
	if st == nil || st.op != "or.b32" {
		return false
	}
	by, ok := f.constant(st.args[2])
	return ok && by == 0x3214 && f.width(st.args[1]) <= 2
}

// codes bounds where every byte of a word of codes has bits that are set, from low
// to below high, whichever instruction wrote it, as far as so many steps tell.
func (f *facts) codes(o operand, steps int) (low, high int) {
	if o.kind == opImm || o.reg == nil || steps == 0 || len(f.defs[o.reg]) == 0 {
		return 0, 8
	}
	low, high = 8, 0
	for _, st := range f.defs[o.reg] {
		l, h := 0, 8
		switch st.words[0] {
		case "mov":
			l, h = f.codes(st.args[1], steps-1)
		case "or":
			l, h = f.codes(st.args[1], steps-1)
			l2, h2 := f.codes(st.args[2], steps-1)
			l, h = min(l, l2), max(h, h2)
		case "and":
			if v, ok := f.constant(st.args[2]); ok && uint32(v) == uint32(v&255)*0x01010101 && v&255 != 0 {
				l, h = bits.TrailingZeros8(uint8(v)), bits.Len8(uint8(v))
			}
		}
		low, high = min(low, l), max(high, h)
	}
	return low, high
}

// significant bounds the significant bits of a float that is a code, a scale of a
// block, or their product, also with a power of two: a multiple of 2^-52, far from
// what underflows. The power itself adds none.
func (f *facts) significant(o operand) int {
	if v, ok := f.constant(o); ok && v&0x7fffff == 0 && v>>23 >= 127-4 && v>>23 <= 127 {
		return 0
	}
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
			low, high := f.codes(codes, 4)
			if zero == 0 {
				return high - low
			}
			return max(bits.Len64(zero-1), bits.Len64(1<<high-1-zero))
		}
	}
	return unknown
}

// exact reports whether a step never rounds: the product of a scale and a code, a
// code taken out of 2^23, or what exp leaves of x after multiples of the high part
// of ln 2. That has 21 bits, so that both are multiples of 2^-25, and what is left
// of an x within the limits is less than a half; with the multiple 0 it is x.
func (f *facts) exact(st *stmt) bool {
	switch st.op {
	case "mul.rn.f32":
		return f.exactProduct(st) || f.firstPower(st)
	case "fma.rn.f32":
		hi, ok := f.constant(st.args[2])
		n := f.def(st.args[1])
		if !ok || hi != 0xbf317218 || n == nil || n.op != "sub.rn.f32" || st.args[3].reg == nil {
			return false
		}
		t := f.def(n.args[1])
		magic, ok := f.constant(n.args[2])
		x, turns := f.turns(t)
		return ok && magic == 0x4b400000 && turns && x == st.args[3].reg && f.limited(st.args[3])
	case "sub.rn.f32":
		if t := f.def(st.args[1]); t != nil { // the multiple of ln 2 out of 1.5·2^23 and it
			magic, ok := f.constant(st.args[2])
			if _, turns := f.turns(t); turns && ok && magic == 0x4b400000 && f.limited(t.args[1]) {
				return true
			}
		}
		_, byte8 := f.magic(st.args[1])
		return byte8 && f.always(st.args[2], func(v uint64) bool { return v>>8 == 0x4b0000 })
	}
	return false
}

// exactProduct reports whether the product of a step, its first two operands, never
// rounds.
func (f *facts) exactProduct(st *stmt) bool {
	return f.significant(st.args[1])+f.significant(st.args[2]) <= 24
}

// turns reports whether t is 1.5·2^23 + x/ln 2 of exp, and of which x.
func (f *facts) turns(t *stmt) (x *register, ok bool) {
	if t == nil || t.op != "fma.rn.f32" {
		return nil, false
	}
	scale, ok1 := f.constant(t.args[2])
	magic, ok2 := f.constant(t.args[3])
	return t.args[1].reg, ok1 && ok2 && scale == 0x3fb8aa3b && magic == 0x4b400000 && t.args[1].reg != nil
}

// unselected reports whether the lowest byte of the constant that st moves is in no
// result: all that read it choose other bytes.
func (f *facts) unselected(st *stmt) bool {
	if st.words[0] != "mov" || st.args[0].reg == nil || st.args[1].kind != opImm || st.args[1].imm&255 == 255 {
		return false
	}
	r := st.args[0].reg
	for _, u := range f.uses[r] {
		if u.op != "prmt.b32" {
			return false
		}
		by, ok := f.constant(u.args[3])
		if !ok || u.args[3].reg == r {
			return false
		}
		for i := range 4 {
			switch by >> (4 * i) & 7 {
			case 0:
				ok = ok && u.args[1].reg != r
			case 4:
				ok = ok && u.args[2].reg != r
			}
		}
		if !ok {
			return false
		}
	}
	return len(f.uses[r]) > 0
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

// low bounds how many of a register's low bits matter, as far as shifts, sums and
// differences of 32 bits tell within so many steps.
func (f *facts) low(r *register, steps int) int {
	most := 0
	for _, st := range f.uses[r] {
		n := 32
		if steps > 0 && len(st.args) == 3 && st.args[0].kind != opImm && st.args[0].reg != nil {
			by, ok := f.constant(st.args[2])
			switch st.op {
			case "shl.b32":
				if ok && by < 32 && st.args[1].reg == r {
					n = 32 - int(by)
				}
			case "shr.s32", "shr.u32":
				if ok && by < 32 && st.args[1].reg == r {
					n = min(32, int(by)+f.low(st.args[0].reg, steps-1))
				}
			case "add.s32", "sub.s32":
				n = f.low(st.args[0].reg, steps-1)
			}
		}
		most = max(most, n)
	}
	return most
}

// shiftedOut reports whether st adds a constant of which no bit matters.
func (f *facts) shiftedOut(st *stmt) bool {
	if st.op != "add.s32" || st.args[0].reg == nil {
		return false
	}
	v, ok := f.constant(st.args[2])
	return ok && bits.TrailingZeros64(v) >= f.low(st.args[0].reg, 4)
}

// firstPower reports whether st is the first of the two products with powers of two
// that end exp: one of a number between 1/2 and 2 and a normal power, which is exact.
func (f *facts) firstPower(st *stmt) bool {
	if st.op != "mul.rn.f32" {
		return false
	}
	for _, o := range st.args[1:] {
		power := f.def(o)
		if power == nil || power.op != "mov.b32" {
			continue
		}
		biased := f.def(power.args[1])
		if biased == nil || biased.op != "add.s32" {
			continue
		}
		one, ok := f.constant(biased.args[2])
		field := f.def(biased.args[1])
		if !ok || one != 127<<23 || field == nil || field.op != "shl.b32" {
			continue
		}
		by, ok := f.constant(field.args[2])
		half := f.def(field.args[1])
		if ok && by == 23 && half != nil && f.halves(half) {
			return true
		}
	}
	return false
}

// lowRest reports whether st takes multiples of the low part of ln 2 off the rest of
// exp, whose product changes nothing when it is rounded by itself: all arguments
// between the limits were tried.
func (f *facts) lowRest(st *stmt) bool {
	if st.op != "fma.rn.f32" {
		return false
	}
	lo, ok := f.constant(st.args[2])
	rest := f.def(st.args[3])
	return ok && lo == 0x3102e308 && rest != nil && st.args[1].reg != nil && st.args[1].reg == rest.args[1].reg && rest.op == "fma.rn.f32" && f.exact(rest)
}

// halves reports whether st halves the exponent of exp, which two powers of two
// share: with a quarter for the first one both are normal too, and the first
// product is exact.
func (f *facts) halves(st *stmt) bool {
	if st.op != "shr.s32" {
		return false
	}
	n := f.def(st.args[1])
	if n == nil || n.op != "add.s32" {
		return false
	}
	off, ok := f.constant(n.args[2])
	moved := f.def(n.args[1])
	if !ok || uint32(off) != 0xb4c00000 || moved == nil || moved.op != "mov.b32" {
		return false
	}
	t := f.def(moved.args[1])
	if _, ok := f.turns(t); !ok {
		return false
	}
	return f.limited(t.args[1])
}

// limited reports whether an operand is no less than -104 and no more than 89: by
// both limits of exp, or by the lower one as the negative of something absolute.
func (f *facts) limited(o operand) bool {
	x := f.def(o)
	if x == nil || x.op != "selp.f32" {
		return false
	}
	if v, ok := f.constant(x.args[1]); ok && v == 0x42b20000 {
		if x = f.def(x.args[2]); x == nil || x.op != "selp.f32" {
			return false
		}
		v, ok = f.constant(x.args[1])
		return ok && v == 0xc2d00000
	} else if !ok || v != 0xc2d00000 {
		return false
	}
	x = f.def(x.args[2])
	if x == nil || x.op != "neg.f32" {
		return false
	}
	x = f.def(x.args[1])
	return x != nil && x.op == "abs.f32"
}
