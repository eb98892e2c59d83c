package emu

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
)

// Mutant is a module with one instruction changed.
type Mutant struct {
	Kernel string // that has the instruction
	Line   int
	What   string // "fma.rn.f32: addend dropped"
	Was    string // the line as it was
	Now    string

	ptx      string
	from, to int // of the line in ptx
}

// Text is the whole module with the change.
func (m Mutant) Text() string { return m.ptx[:m.from] + m.Now + m.ptx[m.to:] }

// Alone is the changed kernel by itself, as a module.
func (m Mutant) Alone() string {
	const entry = "\n.visible .entry "
	begin := strings.Index(m.ptx, entry+m.Kernel+"(")
	end := strings.Index(m.ptx[m.to:], entry)
	if end < 0 {
		end = len(m.ptx) - m.to
	}
	return m.ptx[:strings.Index(m.ptx, entry)] + m.ptx[begin:m.from] + m.Now + m.ptx[m.to:m.to+end]
}

// Mutants changes the arithmetic of a module, one instruction at a time: other
// operators, operands swapped, constants and shift amounts off by one, signs, the
// rounding, fused steps parted, comparisons turned and widened, other shuffles,
// results left out, barriers dropped. A suite that lets few of them pass looks at
// what the kernels compute. Every mutant is a module that the emulator loads,
// also those that Check would refuse. A text that the emulator refuses has none.
//
// What is known to mean the same is left out:
//   - anything about an instruction whose result nothing reads;
//   - another rounding of a step that is exact: the product of a block's scale and a
//     code (at most 24 bits), a code taken out of 2^23, the multiple of ln 2 in
//     exp, what is left of its argument without the high part of that, its first
//     product by a power of two;
//   - two roundings instead of one of x·y + z where that product is exact, or in exp's
//     second rest, where all arguments were tried;
//   - x·y + 0 at the beginning of a chain without the 0, or in two roundings: only
//     the sign of a zero can differ, and chains are added to +0;
//   - a shift without the sign of a size or position, which is never negative;
//   - another constant for the zeros that stand for what lies outside an operand:
//     they meet zeros, or their results are not stored;
//   - the limits -104 and 89 of exp moved by little: exp is 0 and Inf there
//     already;
//   - its exponent parted in a quarter and the rest instead of halves;
//   - another lowest byte of a constant of which only others are taken;
//   - a constant not added, or subtracted, of which later shifts leave no bit.
//
// Constants of floats change by 2^-15 of their value, not by the last bit, which
// one result in a million would show, and for the same reason those below 2^-24,
// the low parts of others, by a quarter or more; masks lose their lowest bit. Some mutants
// that are left still mean the same (a bound that is always met), so no suite kills
// all.
func Mutants(ptx string) iter.Seq[Mutant] {
	return func(yield func(Mutant) bool) {
		m, err := parse(ptx)
		if err != nil {
			return
		}
		begins := make([]int, len(m.lines))
		for i, at := 0, 0; i < len(begins); i++ {
			begins[i] = at
			at += len(m.lines[i]) + 1
		}
		for _, k := range m.kernels {
			if _, err := compile(m, k); err != nil {
				return
			}
			f := gather(k)
			for i := range k.body {
				st := &k.body[i]
				if !f.live[st] {
					continue
				}
				line := m.lines[st.line-1]
				w, ok := written(line, st)
				if !ok {
					continue
				}
				for _, c := range changes(f, st, w) {
					from := begins[st.line-1]
					if !yield(Mutant{k.name, st.line, st.op + ": " + c.what, trim(line), c.text, ptx, from, from + len(line)}) {
						return
					}
				}
			}
		}
	}
}

// source is one instruction on a line of its own, cut into its parts.
type source struct {
	head string   // up to the operation, with the guard
	args []string // operands as written
}

// written cuts the line of a statement; ok is false if there is more on it.
func written(line string, st *stmt) (s source, ok bool) {
	code, _, _ := strings.Cut(line, "//")
	if strings.Count(code, ";") != 1 || strings.ContainsAny(code, ":") {
		return s, false
	}
	head, rest, found := strings.Cut(code, st.op)
	if !found || strings.TrimSpace(head) != "" && !strings.HasPrefix(strings.TrimSpace(head), "@") {
		return s, false
	}
	rest, _, _ = strings.Cut(rest, ";")
	s.head = head
	depth, from := 0, 0
	for i, c := range rest {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				s.args = append(s.args, strings.TrimSpace(rest[from:i]))
				from = i + 1
			}
		}
	}
	if t := strings.TrimSpace(rest[from:]); t != "" {
		s.args = append(s.args, t)
	}
	return s, len(s.args) == len(st.args)
}

// line writes an instruction.
func (s source) line(op string, args ...string) string {
	return s.head + op + " " + strings.Join(args, ", ") + ";"
}

type change struct{ what, text string }

// changes are the mutants of one instruction.
func changes(f *facts, st *stmt, s source) []change {
	var out []change
	add := func(what, text string) { out = append(out, change{what, text}) }
	name := st.words[0]
	suffix := strings.TrimPrefix(st.op, name)
	last := st.words[len(st.words)-1]
	t := types[last]
	float := t.float()
	a := s.args
	// other gives the instruction another name, and other modifiers.
	other := func(what, op string) { add(what, s.line(op, a...)) }
	swap := func(i, j int) {
		b := append([]string(nil), a...)
		if b[i] != b[j] {
			b[i], b[j] = b[j], b[i]
			add("operands swapped", s.line(st.op, b...))
		}
	}
	copyOf := func(what string, i int) { add(what, s.line("mov."+moved(t), a[0], a[i])) }
	mod := func(from, to string) string { return strings.Replace(st.op, "."+from, "."+to, 1) }
	guarded := st.guard != nil
	sign := func() {
		if float && !guarded {
			add("sign of the result", s.line(st.op, a...)+" "+s.line("neg."+last, a[0], a[0]))
		}
	}
	rounding := func() {
		if float && t.bits == 32 && strings.Contains(suffix, ".rn") && !f.exact(st) {
			other("rounded to zero", mod("rn", "rz"))
		}
	}
	switch name {
	case "add":
		if !f.shiftedOut(st) {
			other("subtracts", "sub"+suffix)
			copyOf("first operand only", 1)
		}
		copyOf("second operand only", 2)
		rounding()
		sign()
	case "sub":
		other("adds", "add"+suffix)
		swap(1, 2)
		copyOf("first operand only", 1)
		rounding()
	case "mul":
		switch {
		case float:
			other("adds", "add"+suffix)
			copyOf("first operand only", 1)
			copyOf("second operand only", 2)
			rounding()
			sign()
		case st.words[1] == "lo":
			other("adds", "add."+last)
			copyOf("first operand only", 1)
		case st.words[1] == "hi":
			other("the low half", mod("hi", "lo"))
		}
	case "fma", "mad":
		switch {
		case float:
			first := f.fromZero(st.args[3])
			if !first {
				add("addend dropped", s.line("mul.rn."+last, a[:3]...))
			}
			copyOf("product dropped", 3)
			if !guarded && !first && !(st.op == "fma.rn.f32" && f.exactProduct(st)) && !f.lowRest(st) {
				add("parted into two roundings", fmt.Sprintf("%s{ .reg .%s %%parted; mul.rn.%s %%parted, %s, %s; add.rn.%s %s, %%parted, %s; }", s.head, last, last, a[1], a[2], last, a[0], a[3]))
			}
			rounding()
			sign()
		case st.words[1] == "lo":
			add("addend dropped", s.line("mul.lo."+last, a[:3]...))
			copyOf("product dropped", 3)
			add("adds", s.line("add."+last, a[0], a[1], a[3]))
		case st.words[1] == "wide":
			add("addend dropped", s.line("mul.wide."+last, a[:3]...))
		}
	case "div":
		swap(1, 2)
		copyOf("first operand only", 1)
		if float {
			other("multiplies", "mul"+suffix)
		} else {
			other("the remainder", "rem."+last)
		}
		rounding()
	case "rem":
		other("the quotient", "div."+last)
		copyOf("first operand only", 1)
	case "rcp", "sqrt":
		copyOf("the operand", 1)
		rounding()
		sign()
	case "neg", "abs":
		copyOf("the operand", 1)
	case "not":
		if t.kind == 'p' {
			add("the operand", s.line("mov.pred", a[0], a[1]))
		} else {
			copyOf("the operand", 1)
		}
	case "min":
		other("the greater", "max"+suffix)
		copyOf("first operand only", 1)
	case "max":
		other("the lesser", "min"+suffix)
		copyOf("first operand only", 1)
	case "and":
		other("or", "or"+suffix)
	case "or":
		other("and", "and"+suffix)
	case "xor":
		other("or", "or"+suffix)
	case "shl":
		other("right", "shr.u"+strconv.Itoa(t.bits))
	case "shr":
		other("left", "shl.b"+strconv.Itoa(t.bits))
		if t.signed() && f.field(st.args[1]) {
			other("without the sign", "shr.u"+strconv.Itoa(t.bits))
		}
	case "setp":
		saturates := false
		for _, o := range st.args[1:] {
			saturates = saturates || o.kind == opImm && (o.imm == 0xc2d00000 || o.imm == 0x42b20000)
		}
		for _, p := range [][2]string{{"lt", "le"}, {"le", "lt"}, {"gt", "ge"}, {"ge", "gt"}, {"eq", "ne"}, {"ne", "eq"}, {"nan", "num"}, {"num", "nan"},
			{"ltu", "leu"}, {"leu", "ltu"}, {"gtu", "geu"}, {"geu", "gtu"}, {"equ", "neu"}, {"neu", "equ"}} {
			if st.words[1] == p[0] && !saturates {
				other("."+p[1], mod(p[0], p[1]))
			}
		}
		for _, p := range [][2]string{{"lt", "ge"}, {"le", "gt"}, {"gt", "le"}, {"ge", "lt"}, {"ltu", "ge"}, {"leu", "gt"}, {"gtu", "le"}, {"geu", "lt"}} {
			if st.words[1] == p[0] {
				other("."+p[1], mod(p[0], p[1]))
			}
		}
	case "selp":
		swap(1, 2)
	case "shfl":
		for _, p := range [][2]string{{"bfly", "idx"}, {"down", "bfly"}, {"idx", "bfly"}, {"up", "bfly"}} {
			if st.words[2] == p[0] {
				other("."+p[1], mod(p[0], p[1]))
			}
		}
		add("own value", s.line("mov.b32", strings.TrimSpace(strings.Split(a[0], "|")[0]), a[1]))
	case "cvt":
		for _, p := range [][2]string{{"rni", "rzi"}, {"rzi", "rni"}, {"rmi", "rzi"}, {"rpi", "rzi"}} {
			if strings.Contains(suffix, "."+p[0]+".") {
				other("."+p[1], mod(p[0], p[1]))
			}
		}
	case "bar":
		if st.words[1] == "sync" {
			add("dropped", "")
		}
	case "st":
		add("dropped", "")
	case "popc", "clz", "brev", "bfind":
		if t.bits == 32 {
			add("the operand", s.line("mov.b32", a[0], a[1]))
		}
	}
	// Constants, of moves too: compilers load those of floats beforehand.
	switch name {
	case "add", "sub", "mul", "fma", "mad", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr", "setp", "selp", "mov", "bfe", "bfi", "lop3", "prmt", "shfl", "shf", "copysign":
		for i, o := range st.args {
			if i == 0 || o.kind != opImm || name == "shfl" && i > 2 || t.kind == 'p' {
				continue
			}
			if f.padding(st) || f.unselected(st) || (name == "setp" || name == "selp") && (o.imm == 0xc2d00000 || o.imm == 0x42b20000) {
				continue
			}
			if i == 2 && o.imm == 1 && f.halves(st) {
				continue
			}
			b := append([]string(nil), a...)
			var what string
			if b[i], what = nudged(o, name, a[i]); b[i] == "" {
				continue
			}
			add(what, s.line(st.op, b...))
		}
	}
	return out
}

// moved is the type of a mov between registers of type t.
func moved(t typ) string {
	switch {
	case t.float():
		return "f" + strconv.Itoa(t.bits)
	case t.kind == 'p':
		return "pred"
	}
	return "b" + strconv.Itoa(t.bits)
}

// nudged is a constant a little further.
func nudged(o operand, name, text string) (to, what string) {
	switch o.fl {
	case 'f':
		if e := o.imm >> 23 & 255; e > 0 && e < 127-24 {
			return fmt.Sprintf("0f%08X", o.imm^0x400000), "constant " + text + " off by a part"
		}
		return fmt.Sprintf("0f%08X", o.imm^0x100), "constant " + text + " off by its last bits"
	case 'd':
		return fmt.Sprintf("0d%016X", o.imm^1), "constant " + text + " off by its last bit"
	case 'n':
		return "", ""
	}
	v := int64(o.imm)
	if name == "and" && v != 0 {
		return strconv.FormatInt(v&(v-1), 10), "mask " + text + " without its lowest bit"
	}
	step := int64(1)
	if name == "lop3" && v == 255 || v == 1<<63-1 || v == 1<<32-1 || v == 1<<16-1 {
		step = -1
	}
	if v == -1 {
		return "-2", "constant -1 off by one"
	}
	return strconv.FormatInt(v+step, 10), "constant " + text + " off by one"
}
