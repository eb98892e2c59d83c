package jinja

import (
	"math"
	"math/bits"
	"strings"
)

// relation is a comparison operator on two values.
func (r *renderer) relation(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b, 0)
	case "!=":
		return !r.equal(a, b, 0)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	if f, ok := a.(float64); ok && f != f {
		return false
	}
	if f, ok := b.(float64); ok && f != f {
		return false
	}
	c := r.compare(a, b)
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// equal is Python's ==: numbers by value (True is 1), the rest by content.
func (r *renderer) equal(a, b any, depth int) bool {
	r.step()
	if depth > maxValueDepth {
		r.fail("==: value nested deeper than %d", maxValueDepth)
	}
	if fa, ok := asFloat(a); ok {
		fb, ok := asFloat(b)
		ia, oka := asInt(a)
		ib, okb := asInt(b)
		if oka && okb {
			return ia == ib
		}
		return ok && fa == fb
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		b, ok := b.(string)
		return ok && a == b
	case *undef:
		_, ok := b.(*undef)
		return ok
	case *list:
		b, ok := b.(*list)
		if !ok || a.kind != b.kind || len(a.items) != len(b.items) || a.kind == kGen {
			return ok && a == b
		}
		for i := range a.items {
			if !r.equal(a.items[i], b.items[i], depth+1) {
				return false
			}
		}
		return true
	case *Map:
		b, ok := b.(*Map)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		for i, k := range a.keys {
			v, ok := b.get(k)
			if !ok || !r.equal(a.vals[i], v, depth+1) {
				return false
			}
		}
		return true
	}
	return a == b
}

func asFloat(v any) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	n, ok := asInt(v)
	return float64(n), ok
}

// compare orders numbers, strings and lists; anything else fails.
func (r *renderer) compare(a, b any) int { return r.order(a, b, 0) }

func (r *renderer) order(a, b any, depth int) int {
	r.step()
	if depth > maxValueDepth {
		r.fail("<: value nested deeper than %d", maxValueDepth)
	}
	sign := func(less, more bool) int {
		switch {
		case less:
			return -1
		case more:
			return 1
		}
		return 0
	}
	if fa, ok := asFloat(a); ok {
		if fb, ok := asFloat(b); ok {
			ia, oka := asInt(a)
			ib, okb := asInt(b)
			if oka && okb {
				return sign(ia < ib, ia > ib)
			}
			return sign(fa < fb, fa > fb)
		}
	}
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			return strings.Compare(a, b)
		}
	case *list:
		if b, ok := b.(*list); ok && a.kind == b.kind && a.kind <= kTuple {
			for i := range min(len(a.items), len(b.items)) {
				if !r.equal(a.items[i], b.items[i], depth+1) {
					return r.order(a.items[i], b.items[i], depth+1)
				}
			}
			return sign(len(a.items) < len(b.items), len(a.items) > len(b.items))
		}
	case *undef:
		r.fail("%s", a.why)
	}
	if u, ok := b.(*undef); ok {
		r.fail("%s", u.why)
	}
	r.fail("%s and %s cannot be ordered", typeName(a), typeName(b))
	return 0
}

func (r *renderer) contains(in, x any) bool {
	switch in := in.(type) {
	case string:
		s, ok := x.(string)
		if !ok {
			if u, ok := x.(*undef); ok {
				r.fail("%s", u.why)
			}
			r.fail("'in <string>' needs a string on its left, not %s", typeName(x))
		}
		r.charge(len(in))
		return strings.Contains(in, s)
	case *Map:
		switch x.(type) {
		case *list, *Map, *undef:
			if u, ok := x.(*undef); ok {
				r.fail("%s", u.why)
			}
			if l, ok := x.(*list); ok && l.kind == kTuple {
				return false // no dictionary here has tuples as keys
			}
			r.fail("a %s cannot be a dictionary key", typeName(x))
		}
		_, ok := in.get(r.key(x))
		return ok
	case *list, *undef:
		for _, y := range r.iterate(in) {
			if r.equal(x, y, 0) {
				return true
			}
		}
		return false
	}
	r.fail("a %s cannot be searched with 'in'", typeName(in))
	return false
}

// arith is a binary operator. Integers that leave 64 bits fail.
func (r *renderer) arith(op string, a, b any) any {
	for _, v := range []any{a, b} {
		if u, ok := v.(*undef); ok {
			r.fail("%s", u.why)
		}
	}
	switch x := a.(type) {
	case string:
		switch y := b.(type) {
		case string:
			if op == "+" {
				r.charge(len(x) + len(y))
				return x + y
			}
		}
		if n, ok := asInt(b); ok && op == "*" {
			return r.repeat(x, n)
		}
		if op == "%" {
			return r.percent(x, b)
		}
	case *list:
		if y, ok := b.(*list); ok && op == "+" && x.kind == y.kind && x.kind <= kTuple {
			r.charge(perItem * (len(x.items) + len(y.items)))
			return &list{kind: x.kind, items: append(append([]any(nil), x.items...), y.items...)}
		}
		if n, ok := asInt(b); ok && op == "*" && x.kind <= kTuple {
			return r.repeatList(x, n)
		}
	}
	ia, oka := asInt(a)
	ib, okb := asInt(b)
	if oka && okb {
		return r.intArith(op, ia, ib)
	}
	if oka && op == "*" {
		switch y := b.(type) {
		case string:
			return r.repeat(y, ia)
		case *list:
			if y.kind <= kTuple {
				return r.repeatList(y, ia)
			}
		}
	}
	fa, oka := asFloat(a)
	fb, okb := asFloat(b)
	if !oka || !okb {
		r.fail("operator %s does not work on %s and %s", op, typeName(a), typeName(b))
	}
	switch op {
	case "+":
		return fa + fb
	case "-":
		return fa - fb
	case "*":
		return fa * fb
	case "**":
		return math.Pow(fa, fb)
	}
	if fb == 0 {
		r.fail("division by zero")
	}
	switch op {
	case "/":
		return fa / fb
	case "//":
		return math.Floor(fa / fb)
	}
	m := math.Mod(fa, fb)
	if m != 0 && (m < 0) != (fb < 0) {
		m += fb
	}
	return m
}

func (r *renderer) repeat(s string, n int64) string {
	if n <= 0 || s == "" {
		return ""
	}
	r.charge(r.times(n, len(s)))
	return strings.Repeat(s, int(n))
}

func (r *renderer) repeatList(l *list, n int64) *list {
	out := &list{kind: l.kind}
	if n > 0 && len(l.items) > 0 {
		r.charge(r.times(n, perItem*len(l.items)))
		for range n {
			out.items = append(out.items, l.items...)
		}
	}
	return out
}

func (r *renderer) intArith(op string, a, b int64) any {
	over := false
	var n int64
	switch op {
	case "+":
		n = a + b
		over = (n > a) != (b > 0) && b != 0
	case "-":
		n = a - b
		over = (n < a) != (b > 0) && b != 0
	case "*":
		n, over = mul(a, b)
	case "**":
		if b < 0 {
			if a == 0 {
				r.fail("division by zero")
			}
			return math.Pow(float64(a), float64(b))
		}
		n = 1
		for b > 0 && !over {
			if b&1 == 1 {
				n, over = mul(n, a)
			}
			if b >>= 1; b > 0 && !over {
				a, over = mul(a, a)
			}
		}
	default:
		if b == 0 {
			r.fail("division by zero")
		}
		if op == "/" {
			return float64(a) / float64(b)
		}
		q, m := a/b, a%b
		if m != 0 && (m < 0) != (b < 0) {
			q, m = q-1, m+b
		}
		if op == "%" {
			return m
		}
		n, over = q, a == math.MinInt64 && b == -1
	}
	if over {
		r.fail("%d %s %d does not fit 64 bits", a, op, b)
	}
	return n
}

// mul multiplies and reports whether the product leaves 64 bits.
func mul(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(abs(a), abs(b))
	n := a * b
	limit := uint64(math.MaxInt64)
	if (a < 0) != (b < 0) {
		limit++
	}
	return n, hi != 0 || lo > limit
}

func abs(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}
