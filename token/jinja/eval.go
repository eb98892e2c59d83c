package jinja

import (
	"fmt"
	"strconv"
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

func (x *attrExpr) eval(r *renderer, s *scope) any { return r.attr(r.eval(x.x, s), x.name) }

// attr is x.name: a method or field of the value's type, else the item.
func (r *renderer) attr(v any, name string) any {
	switch v := v.(type) {
	case *undef:
		r.fail("%s", v.why)
	case *Map:
		if f := mapMethod(v, name); f != nil {
			return f
		}
		if x, ok := v.get(name); ok {
			return x
		}
	case *namespace:
		if x, ok := v.vars.get(name); ok {
			return x
		}
	case *loop:
		return v.attr(name)
	case string:
		if f := stringMethod(v, name); f != nil {
			return f
		}
	case *list:
		if f := listMethod(v, name); f != nil {
			return f
		}
	case *macro:
		if name == "name" {
			return v.name
		}
	}
	return &undef{fmt.Sprintf("'%s object' has no attribute '%s'", typeName(v), name)}
}

func (x *indexExpr) eval(r *renderer, s *scope) any {
	v := r.eval(x.x, s)
	return r.item(v, r.eval(x.i, s))
}

// item is x[i]: the item, else the attribute of that name, else undefined.
func (r *renderer) item(v, i any) any {
	switch v := v.(type) {
	case *undef:
		r.fail("%s", v.why)
	case *Map:
		switch i.(type) {
		case *list, *Map, *undef:
			return &undef{fmt.Sprintf("a %s is not a key", typeName(i))}
		}
		if x, ok := v.get(r.key(i)); ok {
			return x
		}
	case *list:
		if n, ok := asInt(i); ok && v.kind <= kRange {
			if n < 0 {
				n += int64(len(v.items))
			}
			if n >= 0 && n < int64(len(v.items)) {
				return v.items[n]
			}
			return &undef{fmt.Sprintf("list of %d has no element %d", len(v.items), n)}
		}
	case string:
		if n, ok := asInt(i); ok {
			r.charge(len(v))
			rs := []rune(v)
			if n < 0 {
				n += int64(len(rs))
			}
			if n >= 0 && n < int64(len(rs)) {
				return string(rs[n])
			}
			return &undef{fmt.Sprintf("string of %d characters has no character %d", len(rs), n)}
		}
	}
	if name, ok := i.(string); ok {
		return r.attr(v, name)
	}
	return &undef{fmt.Sprintf("'%s object' has no element %s", typeName(v), r.str(i))}
}

func asInt(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func (x *sliceExpr) eval(r *renderer, s *scope) any {
	v := r.eval(x.x, s)
	var part [3]any
	for i, e := range x.parts {
		if e != nil {
			part[i] = r.eval(e, s)
		}
	}
	switch v := v.(type) {
	case string:
		r.charge(len(v))
		rs := []rune(v)
		idx, _ := r.slice(len(rs), part)
		out := make([]rune, len(idx))
		for i, j := range idx {
			out[i] = rs[j]
		}
		return string(out)
	case *list:
		if v.kind > kRange {
			return &undef{fmt.Sprintf("a %s cannot be sliced: make it a list first", typeName(v))}
		}
		idx, at := r.slice(len(v.items), part)
		r.charge(perItem * len(idx))
		out := &list{kind: v.kind, items: make([]any, len(idx))}
		if v.kind == kRange {
			out.bounds = [3]int64{v.bounds[0] + at[0]*v.bounds[2], v.bounds[0] + at[1]*v.bounds[2], at[2] * v.bounds[2]}
		}
		for i, j := range idx {
			out.items[i] = v.items[j]
		}
		return out
	case *undef:
		r.fail("%s", v.why)
	}
	return &undef{fmt.Sprintf("a %s cannot be sliced", typeName(v))}
}

// slice returns the indices of [a:b:step] on n elements, as Python counts them,
// and the resolved a, b and step.
func (r *renderer) slice(n int, part [3]any) ([]int, [3]int64) {
	get := func(v any, def int) int {
		if v == nil {
			return def
		}
		i, ok := asInt(v)
		if !ok {
			r.fail("slice indices must be integers, not %s", typeName(v))
		}
		return int(max(-1<<40, min(i, 1<<40)))
	}
	step := get(part[2], 1)
	if step == 0 {
		r.fail("slice step cannot be zero")
	}
	lo, hi, from, to := 0, n, 0, n
	if step < 0 {
		lo, hi, from, to = -1, n-1, n-1, -1
	}
	clamp := func(v any, def int) int {
		i := get(v, def)
		if v != nil && i < 0 {
			i += n
		}
		return max(lo, min(i, hi))
	}
	from, to = clamp(part[0], from), clamp(part[1], to)
	var out []int
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		out = append(out, i)
	}
	return out, [3]int64{int64(from), int64(to), int64(step)}
}

type kwarg struct {
	name string
	val  any
}

// args are the arguments of one call; what names the callee in messages.
type args struct {
	what string
	pos  []any
	kw   []kwarg
}

func (r *renderer) args(x argExprs, s *scope) *args {
	a := &args{}
	for _, e := range x.pos {
		a.pos = append(a.pos, r.eval(e, s))
	}
	for i, e := range x.kw {
		a.kw = append(a.kw, kwarg{x.kwNames[i], r.eval(e, s)})
	}
	if x.star != nil {
		a.pos = append(a.pos, r.iterate(r.eval(x.star, s))...)
	}
	if x.starStar != nil {
		m, ok := r.eval(x.starStar, s).(*Map)
		if !ok {
			r.fail("the value after ** is not a dictionary")
		}
		for i, k := range m.keys {
			a.kw = append(a.kw, kwarg{r.str(k), m.vals[i]})
		}
	}
	return a
}

// bind assigns the arguments to names, of which the first need are required;
// those not given are absent{}.
func (a *args) bind(r *renderer, need int, names ...string) []any {
	if len(a.pos) > len(names) {
		r.fail("%s takes at most %d arguments, not %d", a.what, len(names), len(a.pos))
	}
	out := make([]any, len(names))
	for i := range out {
		out[i] = absent{}
	}
	copy(out, a.pos)
kw:
	for _, k := range a.kw {
		for i, n := range names {
			if n == k.name {
				out[i] = k.val
				continue kw
			}
		}
		r.fail("%s takes no argument named %s", a.what, k.name)
	}
	for i := range need {
		if out[i] == (absent{}) {
			r.fail("%s needs the argument %s", a.what, names[i])
		}
	}
	return out
}

// absent marks an argument that was not given.
type absent struct{}

func (r *renderer) call(f any, a *args, x expr) any {
	switch f := f.(type) {
	case *function:
		a.what = f.name
		return f.call(r, a)
	case *macro:
		return r.callMacro(f, a)
	case *undef:
		r.fail("%s", f.why)
	}
	r.fail("a %s cannot be called (%s)", typeName(f), describe(x))
	return nil
}

func describe(x expr) string {
	switch x := x.(type) {
	case *nameExpr:
		return x.name
	case *attrExpr:
		return describe(x.x) + "." + x.name
	}
	return "expression"
}

func (x *callExpr) eval(r *renderer, s *scope) any {
	f := r.eval(x.f, s)
	return r.call(f, r.args(x.args, s), x.f)
}

func (x *filterExpr) eval(r *renderer, s *scope) any {
	v := r.evalMarked(x.x, s)
	m, marked := v.(markup)
	if marked {
		v = string(m)
	}
	a := r.args(x.args, s)
	switch {
	case x.name == "safe":
		return markup(r.str(r.filter(x.name, v, a)))
	case x.name == "e" || x.name == "escape":
		if marked {
			return m
		}
		return markup(r.str(r.filter(x.name, v, a)))
	}
	return r.filter(x.name, v, a)
}

func (x *testExpr) eval(r *renderer, s *scope) any {
	v := r.eval(x.x, s)
	return r.test(x.name, v, r.args(x.args, s))
}

// iterate returns the elements a loop over v visits.
func (r *renderer) iterate(v any) []any {
	switch v := v.(type) {
	case *list:
		items := v.items
		if v.kind == kGen {
			v.items = nil // a generator is read once
		}
		return items
	case *Map:
		r.charge(perItem * len(v.keys))
		return append([]any(nil), v.keys...)
	case string:
		r.charge(perItem * len(v))
		out := make([]any, 0, len(v))
		for _, c := range v {
			out = append(out, string(c))
		}
		return out
	case *undef:
		return nil
	}
	r.fail("a %s cannot be looped over", typeName(v))
	return nil
}

// globals are the functions every template knows; raise_exception and
// strftime_now among them are transformers' own.
func globals(name string) any {
	f := map[string]func(*renderer, *args) any{
		"range": rangeOf, "namespace": namespaceOf, "dict": dictOf, "raise_exception": raise, "joiner": joiner,
	}[name]
	if f == nil {
		return nil
	}
	return &function{name, f}
}

func raise(r *renderer, a *args) any {
	v := a.bind(r, 1, "message")
	panic(&Error{Template: r.name, Line: r.line, Msg: r.str(v[0]), Raised: true})
}

func rangeOf(r *renderer, a *args) any {
	if len(a.pos) == 0 || len(a.pos) > 3 || len(a.kw) > 0 {
		r.fail("range takes 1 to 3 arguments")
	}
	var n [3]int64
	for i, v := range a.pos {
		x, ok := asInt(v)
		if !ok {
			r.fail("range: a %s is not an integer", typeName(v))
		}
		n[i] = max(-1<<50, min(x, 1<<50))
	}
	from, to, by := int64(0), n[0], int64(1)
	if len(a.pos) > 1 {
		from, to = n[0], n[1]
	}
	if len(a.pos) == 3 {
		by = n[2]
	}
	if by == 0 {
		r.fail("range: step cannot be zero")
	}
	l := &list{kind: kRange, bounds: [3]int64{from, to, by}}
	for i := from; by > 0 && i < to || by < 0 && i > to; i += by {
		if len(l.items) == maxRange {
			r.fail("range: more than %d elements", maxRange)
		}
		l.items = append(l.items, i)
	}
	return l
}

func dictOf(r *renderer, a *args) any {
	m := &Map{}
	for _, v := range a.pos {
		r.update(m, v)
	}
	for _, k := range a.kw {
		m.set(k.name, k.val)
	}
	return m
}

// update sets the entries of v, a dictionary or a list of pairs, in m.
func (r *renderer) update(m *Map, v any) {
	if d, ok := v.(*Map); ok {
		r.charge(4 * perItem * len(d.keys))
		for i, k := range d.keys {
			m.set(k, d.vals[i])
		}
		return
	}
	for _, p := range r.iterate(v) {
		kv := r.iterate(p)
		if len(kv) != 2 {
			r.fail("dict: an entry has %d parts, not 2", len(kv))
		}
		m.set(r.key(kv[0]), kv[1])
	}
}

func namespaceOf(r *renderer, a *args) any { return &namespace{dictOf(r, a).(*Map)} }

func joiner(r *renderer, a *args) any {
	v := a.bind(r, 0, "sep")
	used := false
	return &function{"joiner", func(*renderer, *args) any {
		if !used {
			used = true
			return ""
		}
		if v[0] == (absent{}) {
			return ", "
		}
		return v[0]
	}}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
