package jinja

import (
	"fmt"
	"strings"
)

// Expressions.

type expr interface {
	eval(r *renderer, s *scope) any
}

type (
	constExpr struct{ v any }
	nameExpr  struct{ name string }
	captured  struct{} // the text a set or filter block captured
	listExpr  struct {
		kind listKind
		xs   []expr
	}
	dictExpr  struct{ keys, vals []expr }
	condExpr  struct{ cond, then, els expr }
	logicExpr struct {
		op   string
		a, b expr
	}
	notExpr     struct{ x expr }
	compareExpr struct {
		first expr
		ops   []string
		rest  []expr
	}
	binaryExpr struct {
		op   string
		a, b expr
	}
	concatExpr struct{ xs []expr }
	unaryExpr  struct {
		op string
		x  expr
	}
	attrExpr struct {
		x    expr
		name string
	}
	indexExpr struct{ x, i expr }
	sliceExpr struct {
		x     expr
		parts [3]expr
	}
	callExpr struct {
		f    expr
		args argExprs
	}
	filterExpr struct {
		x    expr
		name string
		args argExprs
	}
	testExpr struct {
		x    expr
		name string
		args argExprs
	}
	argExprs struct {
		pos            []expr
		kwNames        []string
		kw             []expr
		star, starStar expr
	}
)

// markup is text that the filters safe and escape marked: + escapes what is
// added to it. Nothing else here looks at the mark, so it lives only in
// variables and on the way to another +.
type markup string

func (r *renderer) eval(x expr, s *scope) any {
	v := r.evalMarked(x, s)
	if m, ok := v.(markup); ok {
		return string(m)
	}
	return v
}

// evalMarked is eval for the few places where the mark matters.
func (r *renderer) evalMarked(x expr, s *scope) any {
	r.step()
	r.deeper()
	v := x.eval(r, s)
	r.shallower()
	return v
}

func (x *constExpr) eval(*renderer, *scope) any    { return x.v }
func (x *captured) eval(r *renderer, _ *scope) any { return r.held }

func (x *nameExpr) eval(_ *renderer, s *scope) any {
	if v, ok := s.get(x.name); ok {
		return v
	}
	if f := globals(x.name); f != nil {
		return f
	}
	return &undef{fmt.Sprintf("'%s' is undefined", x.name)}
}

func (x *listExpr) eval(r *renderer, s *scope) any {
	l := &list{kind: x.kind, items: make([]any, len(x.xs))}
	r.charge(perItem * len(x.xs))
	for i, e := range x.xs {
		l.items[i] = r.eval(e, s)
	}
	return l
}

func (x *dictExpr) eval(r *renderer, s *scope) any {
	m := &Map{}
	r.charge(4 * perItem * len(x.keys))
	for i, k := range x.keys {
		m.set(r.key(r.eval(k, s)), r.eval(x.vals[i], s))
	}
	return m
}

// key returns v in the form it has as a dictionary key.
func (r *renderer) key(v any) any {
	switch v := v.(type) {
	case nil, string, int64:
		return v
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case float64:
		if n := int64(v); float64(n) == v {
			return n
		}
		return v
	case *undef:
		r.fail("%s", v.why)
	}
	r.fail("a %s cannot be a dictionary key", typeName(v))
	return nil
}

func (x *condExpr) eval(r *renderer, s *scope) any {
	if truth(r.eval(x.cond, s)) {
		return r.evalMarked(x.then, s)
	}
	if x.els == nil {
		return &undef{"the inline if-expression evaluated to false and no else section was defined"}
	}
	return r.evalMarked(x.els, s)
}

func (x *logicExpr) eval(r *renderer, s *scope) any {
	a := r.eval(x.a, s)
	if truth(a) == (x.op == "or") {
		return a
	}
	return r.eval(x.b, s)
}

func (x *notExpr) eval(r *renderer, s *scope) any { return !truth(r.eval(x.x, s)) }

func (x *compareExpr) eval(r *renderer, s *scope) any {
	a := r.eval(x.first, s)
	for i, op := range x.ops {
		b := r.eval(x.rest[i], s)
		if !r.relation(op, a, b) {
			return false
		}
		a = b
	}
	return true
}

func (x *binaryExpr) eval(r *renderer, s *scope) any {
	a, b := r.evalMarked(x.a, s), r.evalMarked(x.b, s)
	ma, oka := a.(markup)
	mb, okb := b.(markup)
	if oka {
		a = string(ma)
		if text, ok := b.(string); ok && x.op == "+" {
			b = escape(text)
		}
	}
	if okb {
		b = string(mb)
		if text, ok := a.(string); ok && x.op == "+" && !oka {
			a = escape(text)
		}
	}
	v := r.arith(x.op, a, b)
	if text, ok := v.(string); ok && (oka || okb) && x.op == "+" {
		return markup(text)
	}
	return v
}

func (x *concatExpr) eval(r *renderer, s *scope) any {
	var b strings.Builder
	for _, e := range x.xs {
		t := r.str(r.eval(e, s))
		r.charge(len(t))
		b.WriteString(t)
	}
	r.charge(b.Len())
	return b.String()
}

func (x *unaryExpr) eval(r *renderer, s *scope) any {
	switch v := r.eval(x.x, s).(type) {
	case bool:
		return r.arith(x.op, int64(0), v)
	case int64:
		return r.arith(x.op, int64(0), v)
	case float64:
		if x.op == "-" {
			return -v
		}
		return v
	case *undef:
		r.fail("%s", v.why)
	default:
		r.fail("bad operand for unary %s: %s", x.op, typeName(v))
	}
	return nil
}
