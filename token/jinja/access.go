package jinja

import "fmt"

// Attributes, items, slices, and what a loop visits.

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
			break
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
	r.fail("a %s cannot be sliced", typeName(v))
	return nil
}

// slice returns the indices of [a:b:step] on length elements, as Python counts them,
// and the resolved a, b and step.
func (r *renderer) slice(length int, part [3]any) ([]int, [3]int64) {
	n := int64(length)
	get := func(v any, def int64) int64 {
		if v == nil {
			return def
		}
		i, ok := asInt(v)
		if !ok {
			r.fail("slice indices must be integers, not %s", typeName(v))
		}
		return max(-1<<40, min(i, 1<<40)) // sums with lengths do not overflow
	}
	step := get(part[2], 1)
	if step == 0 {
		r.fail("slice step cannot be zero")
	}
	lo, hi, from, to := int64(0), n, int64(0), n
	if step < 0 {
		lo, hi, from, to = -1, n-1, n-1, -1
	}
	clamp := func(v any, def int64) int64 {
		i := get(v, def)
		if v != nil && i < 0 {
			i += n
		}
		return max(lo, min(i, hi))
	}
	from, to = clamp(part[0], from), clamp(part[1], to)
	var out []int
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		out = append(out, int(i))
	}
	return out, [3]int64{from, to, step}
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
