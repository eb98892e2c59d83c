package jinja

import "strconv"

// Calls, and the functions every template knows.

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
