package emu

import (
	"math"
	"strconv"
	"strings"
)

// statement reads one instruction.
func (p *parser) statement() error {
	st := stmt{line: p.line()}
	if p.accept("@") {
		st.not = p.accept("!")
		name := p.next()
		r, _ := p.find(name)
		if r == nil || r.t.kind != 'p' {
			return syntax(st.line, "@%s: no predicate of this name", name)
		}
		st.guard = r
	}
	st.op = p.next()
	if !nameLike(st.op) || strings.HasPrefix(st.op, "%") {
		return syntax(st.line, "%q is no instruction", st.op)
	}
	for p.accept(":") { // ld.global.L1::no_allocate.f32
		if err := p.expect(":"); err != nil {
			return err
		}
		st.op += "::" + p.next()
	}
	st.words = strings.Split(st.op, ".")
	for !p.accept(";") {
		if len(st.args) > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		if len(st.args) > 8 {
			return syntax(st.line, "%s has too many operands", st.op)
		}
		o, err := p.operand()
		if err != nil {
			return err
		}
		st.args = append(st.args, o)
	}
	p.k.body = append(p.k.body, st)
	return nil
}

// operand reads one operand.
func (p *parser) operand() (operand, error) {
	line := p.line()
	switch {
	case p.accept("["):
		o, err := p.simple()
		if err != nil {
			return o, err
		}
		a := operand{kind: opAddr, reg: o.reg, v: o.v}
		switch {
		case o.kind == opImm && o.fl == 0:
			a.off = int64(o.imm)
		case o.kind == opReg, o.kind == opSymbol && o.v != nil:
			a.off = o.off
		default:
			return a, syntax(line, "an address is a register or a variable, with an offset")
		}
		for p.peek() == "+" || p.peek() == "-" {
			n, err := p.offset()
			if err != nil {
				return a, err
			}
			a.off += n
		}
		return a, p.expect("]")
	case p.accept("{"):
		o := operand{kind: opVector}
		for {
			e, err := p.simple()
			if err != nil {
				return o, err
			}
			o.parts = append(o.parts, e)
			if p.accept("}") {
				return o, nil
			}
			if err := p.expect(","); err != nil {
				return o, err
			}
			if len(o.parts) >= 4 {
				return o, syntax(line, "a vector has at most 4 parts")
			}
		}
	case p.accept("!"):
		o, err := p.simple()
		if err != nil {
			return o, err
		}
		if o.kind != opReg || o.reg.t.kind != 'p' {
			return o, syntax(line, "! needs a predicate")
		}
		o.kind = opNotReg
		return o, nil
	}
	o, err := p.simple()
	if err != nil {
		return o, err
	}
	if p.accept("|") {
		q, err := p.simple()
		if err != nil {
			return o, err
		}
		return operand{kind: opPair, parts: []operand{o, q}}, nil
	}
	for o.kind == opSymbol && o.v != nil && (p.peek() == "+" || p.peek() == "-") {
		n, err := p.offset()
		if err != nil {
			return o, err
		}
		o.off += n
	}
	return o, nil
}

// offset reads +n or -n.
func (p *parser) offset() (int64, error) {
	line := p.line()
	neg := p.next() == "-"
	o, err := p.immediate()
	if err != nil {
		return 0, err
	}
	if o.fl != 0 {
		return 0, syntax(line, "an offset is an integer")
	}
	if neg {
		return -int64(o.imm), nil
	}
	return int64(o.imm), nil
}

// simple reads a register, a number or a name.
func (p *parser) simple() (operand, error) {
	line := p.line()
	t := p.peek()
	switch {
	case t == "_":
		p.next()
		return operand{kind: opSink}, nil
	case t == "-" || t != "" && t[0] >= '0' && t[0] <= '9':
		return p.immediate()
	case !nameLike(t):
		return operand{}, syntax(line, "an operand was expected, %q found", t)
	}
	p.next()
	if special(t) {
		return operand{kind: opSpecial, name: t}, nil
	}
	if t == "WARP_SZ" {
		return operand{kind: opImm, imm: 32}, nil
	}
	r, v := p.find(t)
	switch {
	case r != nil:
		return operand{kind: opReg, reg: r}, nil
	case v != nil:
		return operand{kind: opSymbol, v: v, name: t}, nil
	case strings.HasPrefix(t, "%"):
		return operand{}, syntax(line, "register %s is not declared", t)
	}
	return operand{kind: opSymbol, name: t}, nil
}

// immediate reads a number.
func (p *parser) immediate() (operand, error) {
	line := p.line()
	neg := p.accept("-")
	t := p.next()
	o := operand{kind: opImm}
	low := strings.ToLower(t)
	var err error
	switch {
	case strings.HasPrefix(low, "0f") && len(t) == 10:
		o.fl = 'f'
		o.imm, err = strconv.ParseUint(t[2:], 16, 32)
		if neg {
			o.imm ^= 1 << 31
		}
	case strings.HasPrefix(low, "0d") && len(t) == 18:
		o.fl = 'd'
		o.imm, err = strconv.ParseUint(t[2:], 16, 64)
		if neg {
			o.imm ^= 1 << 63
		}
	case strings.Contains(t, ".") && !strings.HasPrefix(low, "0x"):
		var f float64
		f, err = strconv.ParseFloat(t, 64)
		if neg {
			f = -f
		}
		o.fl, o.imm = 'n', math.Float64bits(f)
	default:
		o.imm, err = strconv.ParseUint(strings.TrimSuffix(t, "U"), 0, 64)
		if neg {
			o.imm = -o.imm
		}
	}
	if err != nil || strings.Contains(t, "_") {
		return o, syntax(line, "%q is no number", t)
	}
	return o, nil
}

// bits are the bits of a number as an operand of type t.
func (o operand) bits(t typ, line int) (uint64, error) {
	if !t.float() {
		if o.fl != 0 {
			if t.kind == 'b' && (o.fl == 'f' && t.bits == 32 || o.fl == 'd' && t.bits == 64) {
				return o.imm, nil
			}
			return 0, syntax(line, "a float where %v is wanted", t)
		}
		if t.bits < 64 {
			if s := int64(o.imm); s < -(1<<(t.bits-1)) || s >= 1<<t.bits {
				return 0, syntax(line, "%d does not fit %v", s, t)
			}
			return o.imm & (1<<t.bits - 1), nil
		}
		return o.imm, nil
	}
	var f float64
	switch {
	case o.fl == 'f' && t.bits == 32, o.fl == 'd' && t.bits == 64:
		return o.imm, nil
	case o.fl == 'f':
		f = float64(math.Float32frombits(uint32(o.imm)))
	case o.fl == 0:
		return 0, syntax(line, "an integer where %v is wanted", t)
	default:
		f = math.Float64frombits(o.imm)
	}
	if t.bits == 32 {
		return uint64(math.Float32bits(float32(f))), nil
	}
	return math.Float64bits(f), nil
}
