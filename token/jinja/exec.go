package jinja

import (
	"fmt"
	"strings"
)

// Statements. exec writes to r.out and says whether a loop is to be left.

type ctl uint8

const (
	ctlNone ctl = iota
	ctlBreak
	ctlContinue
)

type stmt interface {
	exec(r *renderer, s *scope) ctl
}

type (
	textStmt  struct{ text string }
	printStmt struct {
		line int
		x    expr
	}
	ifStmt struct {
		line      int
		cond      expr
		then, els []stmt
		elif      *ifStmt
	}
	forStmt struct {
		line      int
		target    target
		iter      expr
		cond      expr // nil: all items
		body, els []stmt
	}
	setStmt struct {
		line    int
		to      target
		val     expr // for a block: the filters on what it captured
		block   []stmt
		isBlock bool
	}
	macroStmt struct {
		line   int
		name   string
		params []param
		body   []stmt
	}
	callStmt struct {
		line   int
		params []param
		call   expr
		body   []stmt
	}
	filterStmt struct {
		line  int
		chain expr
		body  []stmt
	}
	withStmt struct {
		line  int
		names []string
		vals  []expr
		body  []stmt
	}
	jumpStmt struct{ how ctl }
	// target is a name, names to unpack into, or an attribute of a namespace.
	target struct {
		names []string
		tuple bool
		attr  string
	}
	param struct {
		name string
		def  expr
	}
)

// scope holds the names set in a loop body, macro or block; reading falls
// through to the scopes outside, setting never does. Most scopes hold two or
// three names, so the first few lie in a list.
type scope struct {
	few   []named // starts in first
	first [3]named
	many  map[string]any
	outer *scope
}

type named struct {
	name string
	val  any
}

func (s *scope) own(name string) (any, bool) {
	for i := range s.few {
		if s.few[i].name == name {
			return s.few[i].val, true
		}
	}
	v, ok := s.many[name]
	return v, ok
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.outer {
		if v, ok := s.own(name); ok {
			return v, true
		}
	}
	return nil, false
}

func (s *scope) set(name string, v any) {
	for i := range s.few {
		if s.few[i].name == name {
			s.few[i].val = v
			return
		}
	}
	if _, ok := s.many[name]; !ok && len(s.few) < 8 {
		if s.few == nil {
			s.few = s.first[:0]
		}
		s.few = append(s.few, named{name, v})
		return
	}
	if s.many == nil {
		s.many = map[string]any{}
	}
	s.many[name] = v
}

// renderer is the state of one rendering.
type renderer struct {
	name   string
	line   int
	out    *strings.Builder
	limits Limits
	steps  int
	work   int64 // bytes and elements created so far
	depth  int   // nested evaluations
	calls  int   // nested macro calls
	held   any   // what a set or filter block captured
}

func (r *renderer) fail(format string, args ...any) { fail(r.name, r.line, format, args...) }

// step counts one evaluation against the limit.
func (r *renderer) step() {
	if r.steps++; r.steps > r.limits.Steps {
		r.fail("more than %d steps: raise Limits.Steps if the template can be trusted", r.limits.Steps)
	}
}

// charge counts n bytes or elements made or searched.
func (r *renderer) charge(n int) {
	if n > r.limits.Output {
		r.fail("a value of %d bytes exceeds the limit of %d: raise Limits.Output if the template can be trusted", n, r.limits.Output)
	}
	if r.work += int64(n); r.work > 64*int64(r.limits.Output) {
		r.fail("values of more than %d bytes were made: raise Limits.Output if the template can be trusted", 64*int64(r.limits.Output))
	}
}

// times is n·size, the bytes to charge for n parts of size bytes. It fails beyond the
// limit of a value, before the product or n leaves an int.
func (r *renderer) times(n int64, size int) int {
	if size > 0 && n > int64(r.limits.Output/size) {
		r.fail("a value of %d times %d bytes exceeds the limit of %d: raise Limits.Output if the template can be trusted", n, size, r.limits.Output)
	}
	return int(n) * size
}

func (r *renderer) write(s string) {
	if r.out.Len()+len(s) > r.limits.Output {
		r.fail("output exceeds the limit of %d bytes: raise Limits.Output if the template can be trusted", r.limits.Output)
	}
	r.charge(len(s))
	r.out.WriteString(s)
}

func (r *renderer) run(body []stmt, s *scope) ctl {
	r.deeper()
	defer r.shallower()
	for _, x := range body {
		r.step()
		if c := x.exec(r, s); c != ctlNone {
			return c
		}
	}
	return ctlNone
}

func (r *renderer) deeper() {
	if r.depth++; r.depth > maxEval {
		r.fail("evaluation nested deeper than %d", maxEval)
	}
}

func (r *renderer) shallower() { r.depth-- }

// capture runs body with its output kept aside.
func (r *renderer) capture(body []stmt, s *scope) string {
	var b strings.Builder
	old := r.out
	r.out = &b
	r.run(body, s)
	r.out = old
	return b.String()
}

func (x *textStmt) exec(r *renderer, _ *scope) ctl { r.write(x.text); return ctlNone }

func (x *printStmt) exec(r *renderer, s *scope) ctl {
	r.line = x.line
	r.write(r.str(r.eval(x.x, s)))
	return ctlNone
}

func (x *ifStmt) exec(r *renderer, s *scope) ctl {
	for ; ; x = x.elif {
		r.line = x.line
		if truth(r.eval(x.cond, s)) {
			return r.run(x.then, s)
		}
		if x.elif == nil {
			return r.run(x.els, s)
		}
	}
}

func (x *jumpStmt) exec(*renderer, *scope) ctl { return x.how }

func (x *setStmt) exec(r *renderer, s *scope) ctl {
	r.line = x.line
	if x.isBlock {
		text := r.capture(x.block, &scope{outer: s})
		r.line, r.held = x.line, text
	}
	v := r.evalMarked(x.val, s)
	r.assign(s, x.to, v)
	return ctlNone
}

func (r *renderer) assign(s *scope, t target, v any) {
	switch {
	case t.attr != "":
		old, _ := s.get(t.names[0])
		ns, ok := old.(*namespace)
		if !ok {
			r.fail("set %s.%s: %s is not a namespace but %s", t.names[0], t.attr, t.names[0], typeName(old))
		}
		ns.vars.set(t.attr, v)
	case t.tuple:
		items := r.iterate(v)
		if len(items) != len(t.names) {
			r.fail("%d values to unpack into %d names (%s)", len(items), len(t.names), strings.Join(t.names, ", "))
		}
		for i, n := range t.names {
			s.set(n, items[i])
		}
	default:
		s.set(t.names[0], v)
	}
}

// loop is the loop variable inside a for body.
type loop struct {
	i, depth int
	items    []any
	last     any // of changed
	called   bool
}

func (l *loop) attr(name string) any {
	n := int64(len(l.items))
	i := int64(l.i)
	switch name {
	case "index":
		return i + 1
	case "index0":
		return i
	case "revindex":
		return n - i
	case "revindex0":
		return n - i - 1
	case "first":
		return i == 0
	case "last":
		return i == n-1
	case "length":
		return n
	case "depth":
		return int64(l.depth + 1)
	case "depth0":
		return int64(l.depth)
	case "previtem":
		if i > 0 {
			return l.items[i-1]
		}
		return &undef{"there is no previous item"}
	case "nextitem":
		if i < n-1 {
			return l.items[i+1]
		}
		return &undef{"there is no next item"}
	case "cycle":
		return &function{"loop.cycle", func(r *renderer, a *args) any {
			if len(a.pos) == 0 {
				r.fail("loop.cycle: no items for cycling given")
			}
			return a.pos[l.i%len(a.pos)]
		}}
	case "changed":
		return &function{"loop.changed", func(r *renderer, a *args) any {
			now := &list{kind: kTuple, items: a.pos}
			same := l.called && r.equal(l.last, now, 0)
			l.called, l.last = true, now
			return !same
		}}
	}
	return &undef{fmt.Sprintf("the loop variable has no attribute %q", name)}
}

func (x *forStmt) exec(r *renderer, s *scope) ctl {
	r.line = x.line
	items := r.iterate(r.eval(x.iter, s))
	if x.cond != nil {
		var kept []any
		for _, v := range items {
			in := &scope{outer: s}
			r.assign(in, x.target, v)
			if truth(r.eval(x.cond, in)) {
				kept = append(kept, v)
			}
		}
		items = kept
	} else {
		items = append([]any(nil), items...) // the body may append to the list
	}
	r.charge(perItem * len(items))
	if len(items) == 0 {
		return r.run(x.els, &scope{outer: s})
	}
	l := &loop{items: items}
	for l.i = range items {
		r.steps += 3 // a turn costs about as much as four evaluations
		r.step()
		in := &scope{outer: s}
		in.set("loop", l)
		r.line = x.line
		r.assign(in, x.target, items[l.i])
		if r.run(x.body, in) == ctlBreak {
			break
		}
	}
	return ctlNone
}

func (x *withStmt) exec(r *renderer, s *scope) ctl {
	r.line = x.line
	in := &scope{outer: s}
	for i, n := range x.names {
		in.set(n, r.eval(x.vals[i], s))
	}
	return r.run(x.body, in)
}

func (x *filterStmt) exec(r *renderer, s *scope) ctl {
	text := r.capture(x.body, &scope{outer: s})
	r.line, r.held = x.line, text
	r.write(r.str(r.eval(x.chain, s)))
	return ctlNone
}

// macro is a macro with the scope it was defined in.
type macro struct {
	name   string
	params []param
	body   []stmt
	outer  *scope
}

func (x *macroStmt) exec(r *renderer, s *scope) ctl {
	s.set(x.name, &macro{x.name, x.params, x.body, s})
	return ctlNone
}

func (x *callStmt) exec(r *renderer, s *scope) ctl {
	r.line = x.line
	c := x.call.(*callExpr)
	a := r.args(c.args, s)
	a.kw = append(a.kw, kwarg{"caller", &macro{"caller", x.params, x.body, s}})
	r.write(r.str(r.call(r.eval(c.f, s), a, c.f)))
	return ctlNone
}

func (r *renderer) callMacro(m *macro, a *args) any {
	if r.calls++; r.calls > maxCalls {
		r.fail("macro %s: calls nested deeper than %d", m.name, maxCalls)
	}
	defer func() { r.calls-- }()
	in := &scope{outer: m.outer}
	if len(a.pos) > len(m.params) {
		r.fail("macro %s takes %d arguments, not %d", m.name, len(m.params), len(a.pos))
	}
	for i, v := range a.pos {
		in.set(m.params[i].name, v)
	}
kw:
	for _, k := range a.kw {
		if k.name == "caller" {
			in.set("caller", k.val)
			continue
		}
		for i, p := range m.params {
			if p.name == k.name {
				if i < len(a.pos) {
					r.fail("macro %s got two values for %s", m.name, k.name)
				}
				in.set(k.name, k.val)
				continue kw
			}
		}
		r.fail("macro %s takes no argument named %s", m.name, k.name)
	}
	line := r.line
	for _, p := range m.params {
		if _, ok := in.own(p.name); ok {
			continue
		}
		if p.def == nil {
			in.set(p.name, &undef{fmt.Sprintf("parameter '%s' was not provided", p.name)})
		} else {
			in.set(p.name, r.eval(p.def, in))
		}
	}
	text := r.capture(m.body, in)
	r.line = line
	return text
}
