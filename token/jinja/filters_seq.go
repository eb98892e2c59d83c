package jinja

import (
	"slices"
	"strings"
)

// sequenceFilter returns the filters that work on lists and dictionaries.
func sequenceFilter(name string) filterFunc {
	switch name {
	case "first":
		return func(r *renderer, v any, a *args) any {
			a.bind(r, 0)
			if items := r.iterate(v); len(items) > 0 {
				return items[0]
			}
			return &undef{"No first item, sequence was empty."}
		}
	case "last":
		return func(r *renderer, v any, a *args) any {
			a.bind(r, 0)
			if l, ok := v.(*list); ok && l.kind == kGen {
				r.fail("filter last: a generator cannot be reversed: make it a list first")
			}
			if items := r.iterate(v); len(items) > 0 {
				return items[len(items)-1]
			}
			return &undef{"No last item, sequence was empty."}
		}
	case "join":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 0, "d", "attribute")
			return r.join(r.str(given(p[0], "")), r.iterate(v), given(p[1], nil))
		}
	case "list":
		return func(r *renderer, v any, a *args) any {
			a.bind(r, 0)
			items := r.iterate(v)
			r.charge(perItem * len(items))
			return &list{kind: kList, items: slices.Clone(items)}
		}
	case "items":
		return func(r *renderer, v any, a *args) any {
			a.bind(r, 0)
			switch v := v.(type) {
			case *undef:
				return &list{kind: kGen}
			case *Map:
				return &list{kind: kGen, items: pairs(r, v)}
			}
			r.fail("filter items: a %s is not a mapping", typeName(v))
			return nil
		}
	case "reverse":
		return func(r *renderer, v any, a *args) any {
			a.bind(r, 0)
			items := slices.Clone(r.iterate(v))
			r.charge(perItem * len(items))
			slices.Reverse(items)
			if _, ok := v.(string); ok {
				return r.join("", items, nil)
			}
			return &list{kind: kGen, items: items}
		}
	case "map":
		return mapFilter
	case "select", "reject", "selectattr", "rejectattr":
		return selectFilter(strings.HasPrefix(name, "select"), strings.HasSuffix(name, "attr"))
	case "sort":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 0, "reverse", "case_sensitive", "attribute")
			items := slices.Clone(r.iterate(v))
			sens := truth(given(p[1], false))
			// one-element lists: the order of jinja2, where equal undefined values pass
			key := func(x any) any { return &list{items: []any{sortKey(x, sens)}} }
			if attr := given(p[2], nil); attr != nil {
				key = func(x any) any { return r.fields(x, attr, sens) }
			}
			r.sortItems(items, key, truth(given(p[0], false)))
			return &list{kind: kList, items: items}
		}
	case "unique":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 0, "case_sensitive", "attribute")
			out := &list{kind: kGen}
			seen := &Map{}
			for _, x := range r.iterate(v) {
				k := x
				if attr := given(p[1], nil); attr != nil {
					k = r.field(x, attr, absent{})
				}
				k = r.key(sortKey(k, truth(given(p[0], false))))
				if _, ok := seen.get(k); !ok {
					seen.set(k, nil)
					out.items = append(out.items, x)
				}
			}
			return out
		}
	case "dictsort":
		return dictSort
	case "sum":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 0, "attribute", "start")
			total := given(p[1], int64(0))
			for _, x := range r.iterate(v) {
				if attr := given(p[0], nil); attr != nil {
					x = r.field(x, attr, absent{})
				}
				total = r.arith("+", total, x)
			}
			return total
		}
	case "min", "max":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 0, "case_sensitive", "attribute")
			var best any = &undef{"No aggregated item, sequence was empty."}
			var bestKey any
			for i, x := range r.iterate(v) {
				k := x
				if attr := given(p[1], nil); attr != nil {
					k = r.field(x, attr, absent{})
				}
				k = sortKey(k, truth(given(p[0], false)))
				if i == 0 || name == "min" && r.compare(k, bestKey) < 0 || name == "max" && r.compare(k, bestKey) > 0 {
					best, bestKey = x, k
				}
			}
			return best
		}
	case "batch":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 1, "linecount", "fill_with")
			n := r.integer(p[0], 0)
			if n < 1 {
				r.fail("filter batch: size %d: want 1 or more", n)
			}
			out := &list{kind: kGen}
			for c := range slices.Chunk(r.iterate(v), n) {
				c = slices.Clone(c)
				if fill := given(p[1], nil); fill != nil {
					r.charge(r.times(int64(n), perItem))
					for len(c) < n {
						c = append(c, fill)
					}
				}
				out.items = append(out.items, &list{kind: kList, items: c})
			}
			return out
		}
	case "groupby":
		return groupBy
	}
	return nil
}

func (r *renderer) join(sep string, items []any, attr any) string {
	var b strings.Builder
	for i, x := range items {
		if attr != nil {
			x = r.field(x, attr, absent{})
		}
		if i > 0 {
			b.WriteString(sep)
		}
		s := r.str(x)
		r.charge(len(s) + len(sep))
		b.WriteString(s)
	}
	r.charge(b.Len())
	return b.String()
}

func pairs(r *renderer, m *Map) []any {
	r.charge(4 * perItem * len(m.keys))
	out := make([]any, len(m.keys))
	for i, k := range m.keys {
		out[i] = &list{kind: kTuple, items: []any{k, m.vals[i]}}
	}
	return out
}

// fields is the sort key of an attribute list "a,b.c": always a list, so that
// missing attributes are equal instead of an error.
func (r *renderer) fields(x, attr any, caseSensitive bool) any {
	l := &list{kind: kList}
	s, ok := attr.(string)
	if !ok {
		l.items = append(l.items, sortKey(r.field(x, attr, absent{}), caseSensitive))
		return l
	}
	for _, a := range strings.Split(s, ",") {
		l.items = append(l.items, sortKey(r.field(x, a, absent{}), caseSensitive))
	}
	return l
}

// iterateTrue is iterate for filters that take any false value as empty.
func (r *renderer) iterateTrue(v any) []any {
	if !truth(v) {
		return nil
	}
	return r.iterate(v)
}

func mapFilter(r *renderer, v any, a *args) any {
	out := &list{kind: kGen}
	var each func(any) any
	if len(a.pos) == 0 {
		p := a.bind(r, 0, "attribute", "default")
		if p[0] == (absent{}) {
			r.fail("filter map needs a filter's name or attribute=")
		}
		each = func(x any) any { return r.field(x, p[0], p[1]) }
	} else {
		name := r.str(a.pos[0])
		each = func(x any) any { return r.filter(name, x, &args{pos: a.pos[1:], kw: a.kw}) }
	}
	for _, x := range r.iterateTrue(v) {
		r.step()
		out.items = append(out.items, each(x))
	}
	return out
}

func selectFilter(keep, byAttr bool) filterFunc {
	return func(r *renderer, v any, a *args) any {
		rest := a.pos
		get := func(x any) any { return x }
		if byAttr {
			if len(rest) == 0 {
				r.fail("%s needs the name of an attribute", a.what)
			}
			attr := rest[0]
			rest = rest[1:]
			get = func(x any) any { return r.field(x, attr, absent{}) }
		}
		out := &list{kind: kGen}
		for _, x := range r.iterateTrue(v) {
			r.step()
			y := get(x)
			ok := false
			if len(rest) == 0 {
				ok = truth(y)
			} else {
				ok = r.test(r.str(rest[0]), y, &args{pos: rest[1:], kw: a.kw})
			}
			if ok == keep {
				out.items = append(out.items, x)
			}
		}
		return out
	}
}

func dictSort(r *renderer, v any, a *args) any {
	p := a.bind(r, 0, "case_sensitive", "by", "reverse")
	m, ok := v.(*Map)
	if !ok {
		r.fail("filter dictsort: a %s is not a mapping", typeName(v))
	}
	at := 0
	switch by := r.str(given(p[1], "key")); by {
	case "key":
	case "value":
		at = 1
	default:
		r.fail("filter dictsort: by %q: want key or value", by)
	}
	items := pairs(r, m)
	r.sortItems(items, func(x any) any {
		return sortKey(x.(*list).items[at], truth(given(p[0], false)))
	}, truth(given(p[2], false)))
	return &list{kind: kList, items: items}
}

func groupBy(r *renderer, v any, a *args) any {
	p := a.bind(r, 1, "attribute", "default", "case_sensitive")
	key := func(x any) any { return sortKey(r.field(x, p[0], p[1]), truth(given(p[2], false))) }
	items := slices.Clone(r.iterate(v))
	r.sortItems(items, key, false)
	out := &list{kind: kList}
	for i := 0; i < len(items); {
		j := i + 1
		for j < len(items) && r.equal(key(items[i]), key(items[j]), 0) {
			j++
		}
		out.items = append(out.items, &list{kind: kTuple, items: []any{r.field(items[i], p[0], p[1]), &list{kind: kList, items: items[i:j:j]}}})
		i = j
	}
	return out
}
