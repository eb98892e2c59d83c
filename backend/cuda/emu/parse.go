package emu

import (
	"encoding/binary"
	"strconv"
	"strings"

	"samebit/backend/cuda/driver"
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
	mostBytes     = 1<<31 - 1
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
	extern := false
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
		case ".visible", ".weak", ".common": // linkage, and there is nothing to link with
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

// alignment reads the number behind .align.
func (p *parser) alignment() (int, error) {
	line := p.line()
	n, err := p.number("an alignment", 1<<12)
	if err == nil && (n == 0 || n&(n-1) != 0) {
		err = syntax(line, ".align %d is no power of two", n)
	}
	return n, err
}

// variables reads what follows a state space: .align N .type name[n] = {…}, …;
func (p *parser) variables(sp space, extern bool) ([]*variable, error) {
	var out []*variable
	align := 0
	for {
		line := p.line()
		t := p.next()
		if t == ".align" {
			n, err := p.alignment()
			if err != nil {
				return nil, err
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
		if d > 0 && n > mostBytes/d {
			return nil, syntax(v.line, "%s is larger than %d bytes", v.name, mostBytes)
		}
		n *= d
		if err := p.expect("]"); err != nil {
			return nil, err
		}
	}
	if n > mostBytes/max(1, t.bytes()) { // a predicate has no bytes
		return nil, syntax(v.line, "%s is larger than %d bytes", v.name, mostBytes)
	}
	v.size = n * t.bytes()
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
		if t == ".align" {
			n, err := p.alignment()
			if err != nil {
				return err
			}
			align = n
			continue
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
		if p.k.psize += v.size; p.k.psize > driver.MaxParams {
			return syntax(v.line, "the parameters of %s take more than %d bytes", p.k.name, driver.MaxParams)
		}
		p.k.params = append(p.k.params, v)
		return nil
	}
}

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
