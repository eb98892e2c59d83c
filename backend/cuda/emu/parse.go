package emu

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// typ is a PTX type: 'u', 's', 'b', 'f' and its bits, or 'p' for .pred.
type typ struct {
	kind byte
	bits int
}

func (t typ) bytes() int     { return t.bits / 8 }
func (t typ) float() bool    { return t.kind == 'f' }
func (t typ) signed() bool   { return t.kind == 's' }
func (t typ) String() string { return "." + string(t.kind) + strconv.Itoa(t.bits) }

var types = map[string]typ{
	"u8": {'u', 8}, "u16": {'u', 16}, "u32": {'u', 32}, "u64": {'u', 64},
	"s8": {'s', 8}, "s16": {'s', 16}, "s32": {'s', 32}, "s64": {'s', 64},
	"b8": {'b', 8}, "b16": {'b', 16}, "b32": {'b', 32}, "b64": {'b', 64},
	"f32": {'f', 32}, "f64": {'f', 64}, "pred": {'p', 1},
}

// typeOf reads a type of a declaration.
func typeOf(word string) (typ, bool) {
	name, dot := strings.CutPrefix(word, ".")
	t, ok := types[name]
	return t, dot && ok
}

// space is a state space.
type space uint8

const (
	generic space = iota
	global
	constant
	shared
	local
	param
)

var spaces = map[string]space{".global": global, ".const": constant, ".shared": shared, ".local": local, ".param": param}

// variable is a named piece of memory.
type variable struct {
	name   string
	space  space
	align  int
	size   int // bytes; 0 for an array without a length
	init   []byte
	extern bool
	line   int
	off    int    // in its space: shared, local, param
	addr   uint64 // global and const, when loaded
}

// register is one register of a kernel.
type register struct {
	name string
	t    typ
	id   int
}

// scope is a block of declarations.
type scope struct {
	up    *scope
	plain map[string]*register
	many  map[string]typ // by prefix, with bound
	bound map[string]int
	vars  map[string]*variable
}

// operandKind says what an operand is.
type operandKind uint8

const (
	opReg     operandKind = iota // register
	opImm                        // number
	opSpecial                    // %tid.x
	opSymbol                     // variable, label or function
	opAddr                       // [register or variable + offset]
	opVector                     // {a, b, …}
	opPair                       // d|p
	opSink                       // _
	opNotReg                     // !p
)

// operand is one operand as written.
type operand struct {
	kind  operandKind
	reg   *register
	v     *variable
	name  string // special register, label
	imm   uint64 // of an integer its two's complement
	fl    byte   // 'f' or 'd' if the number was written as the bits of one, 'n' if decimal
	off   int64
	parts []operand
}

// stmt is one instruction.
type stmt struct {
	line  int
	guard *register
	not   bool
	op    string   // with dots
	words []string // op cut at its dots
	args  []operand
}

// kernel is one entry as written.
type kernel struct {
	name   string
	line   int
	params []*variable
	psize  int
	vars   []*variable // shared and local
	body   []stmt
	labels map[string]int // index into body
	regs   []*register
	target map[string][]string // tables of brx.idx
	maxThr int
}

// module is a parsed text.
type module struct {
	lines   []string
	version string
	target  string
	vars    []*variable
	kernels []*kernel
}

// limits of a text, against allocating what it merely claims.
const (
	mostRegisters = 1 << 16
	mostBytes     = 1 << 31
)

type parser struct {
	toks []token
	pos  int
	m    *module
	mod  *scope
	k    *kernel
	s    *scope
	deep int
}

// parse reads a module.
func parse(src string) (*module, error) {
	toks, err := lex(src)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks, m: &module{lines: strings.Split(src, "\n")}}
	p.mod = &scope{vars: map[string]*variable{}}
	p.s = p.mod
	for p.pos < len(p.toks) {
		if err := p.directive(); err != nil {
			return nil, err
		}
	}
	if p.m.version == "" || p.m.target == "" {
		return nil, syntax(1, "a module begins with .version and .target")
	}
	return p.m, nil
}

func (p *parser) line() int {
	if p.pos < len(p.toks) {
		return p.toks[p.pos].line
	}
	if len(p.toks) > 0 {
		return p.toks[len(p.toks)-1].line
	}
	return 1
}

func (p *parser) peek() string {
	if p.pos < len(p.toks) {
		return p.toks[p.pos].text
	}
	return ""
}

func (p *parser) next() string {
	s := p.peek()
	p.pos++
	return s
}

func (p *parser) accept(s string) bool {
	if p.peek() == s {
		p.pos++
		return true
	}
	return false
}

func (p *parser) expect(s string) error {
	if !p.accept(s) {
		return syntax(p.line(), "%q was expected, %q found", s, p.peek())
	}
	return nil
}

func (p *parser) skipTo(end string) error {
	line := p.line()
	for p.pos < len(p.toks) {
		if p.next() == end {
			return nil
		}
	}
	return syntax(line, "%q is missing", end)
}

// directive reads one declaration of the module.
func (p *parser) directive() error {
	line := p.line()
	extern, linked := false, false
	for {
		switch t := p.next(); t {
		case ".version":
			p.m.version = p.next()
			return nil
		case ".target":
			p.m.target = p.next()
			for p.accept(",") {
				p.next()
			}
			return nil
		case ".address_size":
			if n := p.next(); n != "64" {
				return syntax(line, ".address_size %s: only 64 is supported", n)
			}
			return nil
		case ".visible", ".weak", ".common":
			linked = true
		case ".extern":
			extern = true
		case ".file":
			for p.pos < len(p.toks) && p.line() == line {
				p.pos++
			}
			return nil
		case ".section":
			if err := p.skipTo("{"); err != nil {
				return err
			}
			return p.skipTo("}")
		case ".pragma":
			return p.skipTo(";")
		case ".entry":
			return p.entry(line)
		case ".func":
			return syntax(line, ".func: calls are not supported, inline the function (__forceinline__)")
		case ".global", ".const", ".shared":
			vs, err := p.variables(spaces[t], extern)
			if err != nil {
				return err
			}
			p.m.vars = append(p.m.vars, vs...)
			return nil
		default:
			_ = linked
			return syntax(line, "unexpected %q in a module", t)
		}
	}
}

// number reads an unsigned number of a declaration.
func (p *parser) number(what string, most int) (int, error) {
	line := p.line()
	t := p.next()
	n, err := strconv.ParseUint(strings.TrimSuffix(t, "U"), 0, 62)
	if err != nil || n > uint64(most) {
		return 0, syntax(line, "%s %q is no number up to %d", what, t, most)
	}
	return int(n), nil
}

// variables reads what follows a state space: .align N .type name[n] = {…}, …;
func (p *parser) variables(sp space, extern bool) ([]*variable, error) {
	var out []*variable
	align := 0
	for {
		line := p.line()
		t := p.next()
		if t == ".align" {
			n, err := p.number("an alignment", 1<<12)
			if err != nil {
				return nil, err
			}
			if n == 0 || n&(n-1) != 0 {
				return nil, syntax(line, ".align %d is no power of two", n)
			}
			align = n
			continue
		}
		if t == ".ptr" || t == ".attribute" {
			return nil, syntax(line, "%s is not supported", t)
		}
		ty, ok := typeOf(t)
		if !ok || ty.kind == 'p' {
			return nil, syntax(line, "%q is no type of a variable", t)
		}
		for {
			v, err := p.variable(sp, ty, align, extern)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
			if !p.accept(",") {
				return out, p.expect(";")
			}
		}
	}
}

func (p *parser) variable(sp space, t typ, align int, extern bool) (*variable, error) {
	v := &variable{line: p.line(), name: p.next(), space: sp, align: max(align, t.bytes()), extern: extern}
	if !nameLike(v.name) {
		return nil, syntax(v.line, "%q is no name", v.name)
	}
	n := 1
	for p.accept("[") {
		if p.accept("]") {
			n = 0
			continue
		}
		d, err := p.number("an array length", mostBytes)
		if err != nil {
			return nil, err
		}
		if n *= d; n > mostBytes {
			return nil, syntax(v.line, "%s is larger than %d bytes", v.name, mostBytes)
		}
		if err := p.expect("]"); err != nil {
			return nil, err
		}
	}
	if v.size = n * t.bytes(); v.size > mostBytes {
		return nil, syntax(v.line, "%s is larger than %d bytes", v.name, mostBytes)
	}
	if v.size == 0 && !extern {
		return nil, syntax(v.line, "%s has no length", v.name)
	}
	if p.accept("=") {
		if err := p.initialiser(v, t); err != nil {
			return nil, err
		}
		if len(v.init) > v.size {
			return nil, syntax(v.line, "%d bytes initialise the %d of %s", len(v.init), v.size, v.name)
		}
	}
	if p.s.vars[v.name] != nil {
		return nil, syntax(v.line, "%s is declared twice", v.name)
	}
	p.s.vars[v.name] = v
	return v, nil
}

// initialiser reads numbers, in braces or one alone.
func (p *parser) initialiser(v *variable, t typ) error {
	depth := 0
	for {
		switch {
		case p.accept("{"):
			depth++
			continue
		case p.accept("}"):
			depth--
		case p.accept(","):
			continue
		default:
			line := p.line()
			o, err := p.immediate()
			if err != nil {
				return err
			}
			bits, err := o.bits(t, line)
			if err != nil {
				return err
			}
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], bits)
			v.init = append(v.init, b[:t.bytes()]...)
		}
		if depth == 0 {
			return nil
		}
	}
}

func nameLike(s string) bool {
	return s != "" && wordByte(s[0]) && s[0] != '.' && (s[0] < '0' || s[0] > '9')
}

// entry reads a kernel.
func (p *parser) entry(line int) error {
	k := &kernel{name: p.next(), line: line, labels: map[string]int{}, target: map[string][]string{}}
	if !nameLike(k.name) {
		return syntax(line, "%q is no name of a kernel", k.name)
	}
	for _, o := range p.m.kernels {
		if o.name == k.name {
			return syntax(line, "kernel %s is defined twice", k.name)
		}
	}
	p.k = k
	p.s = &scope{up: p.mod, vars: map[string]*variable{}}
	defer func() { p.s, p.k = p.mod, nil }()
	if p.accept("(") && !p.accept(")") {
		for {
			if err := p.expect(".param"); err != nil {
				return err
			}
			if err := p.param(); err != nil {
				return err
			}
			if p.accept(")") {
				break
			}
			if err := p.expect(","); err != nil {
				return err
			}
		}
	}
	for p.peek() != "{" {
		switch t := p.next(); t {
		case ".maxntid", ".reqntid":
			k.maxThr = 1
			for {
				n, err := p.number(t, 1024)
				if err != nil {
					return err
				}
				k.maxThr = min(k.maxThr*n, 1<<20)
				if !p.accept(",") {
					break
				}
			}
		case ".minnctapersm", ".maxnreg":
			if _, err := p.number(t, 1<<16); err != nil {
				return err
			}
		default:
			return syntax(p.line(), "unexpected %q before the body of kernel %s", t, k.name)
		}
	}
	p.next()
	if err := p.body(); err != nil {
		return err
	}
	p.m.kernels = append(p.m.kernels, k)
	return nil
}

// param reads one parameter of a kernel and lays it out.
func (p *parser) param() error {
	align := 0
	for {
		line := p.line()
		t := p.next()
		switch {
		case t == ".align":
			n, err := p.number("an alignment", 1<<12)
			if err != nil {
				return err
			}
			if n == 0 || n&(n-1) != 0 {
				return syntax(line, ".align %d is no power of two", n)
			}
			align = n
			continue
		case t == ".ptr":
			for strings.HasPrefix(p.peek(), ".") {
				if p.next() == ".align" {
					if _, err := p.number("an alignment", 1<<12); err != nil {
						return err
					}
				}
			}
			return syntax(line, ".ptr is not supported")
		}
		ty, ok := typeOf(t)
		if !ok || ty.kind == 'p' {
			return syntax(line, "%q is no type of a parameter", t)
		}
		v, err := p.variable(param, ty, align, false)
		if err != nil {
			return err
		}
		p.k.psize = (p.k.psize + v.align - 1) &^ (v.align - 1)
		v.off = p.k.psize
		if p.k.psize += v.size; p.k.psize > maxParams {
			return syntax(v.line, "the parameters of %s take more than %d bytes", p.k.name, maxParams)
		}
		p.k.params = append(p.k.params, v)
		return nil
	}
}

const maxParams = 4096

// body reads statements up to the closing brace.
func (p *parser) body() error {
	if p.deep++; p.deep > 64 {
		return syntax(p.line(), "blocks are nested more than 64 deep")
	}
	defer func() { p.deep-- }()
	for {
		line := p.line()
		switch t := p.peek(); t {
		case "":
			return syntax(line, "kernel %s does not end", p.k.name)
		case "}":
			p.next()
			return nil
		case "{":
			p.next()
			p.s = &scope{up: p.s, vars: map[string]*variable{}}
			if err := p.body(); err != nil {
				return err
			}
			p.s = p.s.up
		case ";":
			p.next()
		case ".reg":
			p.next()
			if err := p.registers(); err != nil {
				return err
			}
		case ".shared", ".local":
			p.next()
			vs, err := p.variables(spaces[t], false)
			if err != nil {
				return err
			}
			p.k.vars = append(p.k.vars, vs...)
		case ".loc", ".file":
			for p.pos < len(p.toks) && p.line() == line {
				p.pos++
			}
		case ".pragma":
			if err := p.skipTo(";"); err != nil {
				return err
			}
		default:
			if p.pos+2 < len(p.toks) && p.toks[p.pos+1].text == ":" && p.toks[p.pos+2].text != ":" {
				if !nameLike(t) {
					return syntax(line, "%q is no label", t)
				}
				if _, twice := p.k.labels[t]; twice {
					return syntax(line, "label %s is defined twice", t)
				}
				p.pos += 2
				if p.accept(".branchtargets") {
					for {
						p.k.target[t] = append(p.k.target[t], p.next())
						if !p.accept(",") {
							break
						}
					}
					if err := p.expect(";"); err != nil {
						return err
					}
					continue
				}
				p.k.labels[t] = len(p.k.body)
				continue
			}
			if strings.HasPrefix(t, ".") {
				return syntax(line, "directive %s is not supported", t)
			}
			if err := p.statement(); err != nil {
				return err
			}
		}
	}
}

// registers reads .reg .type %r<n>, name, …;
func (p *parser) registers() error {
	line := p.line()
	t, ok := typeOf(p.next())
	if !ok {
		return syntax(line, ".reg needs a type")
	}
	if p.s.plain == nil {
		p.s.plain, p.s.many, p.s.bound = map[string]*register{}, map[string]typ{}, map[string]int{}
	}
	for {
		name := p.next()
		if !nameLike(name) {
			return syntax(line, "%q is no name of a register", name)
		}
		if p.accept("<") {
			n, err := p.number("a count of registers", mostRegisters)
			if err != nil {
				return err
			}
			if err := p.expect(">"); err != nil {
				return err
			}
			p.s.many[name], p.s.bound[name] = t, n
		} else {
			p.s.plain[name] = p.newRegister(name, t)
		}
		if !p.accept(",") {
			return p.expect(";")
		}
	}
}

func (p *parser) newRegister(name string, t typ) *register {
	r := &register{name: name, t: t, id: len(p.k.regs)}
	p.k.regs = append(p.k.regs, r)
	return r
}

// find resolves a name to a register or a variable.
func (p *parser) find(name string) (*register, *variable) {
	for s := p.s; s != nil; s = s.up {
		if r := s.plain[name]; r != nil {
			return r, nil
		}
		if v := s.vars[name]; v != nil {
			return nil, v
		}
		prefix := strings.TrimRight(name, "0123456789")
		if t, ok := s.many[prefix]; ok && prefix != name {
			n, err := strconv.Atoi(name[len(prefix):])
			if err == nil && n < s.bound[prefix] {
				r := p.newRegister(name, t)
				s.plain[name] = r
				return r, nil
			}
		}
	}
	return nil, nil
}

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
