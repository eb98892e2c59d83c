package jinja

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filter is v|name(args).
func (r *renderer) filter(name string, v any, a *args) any {
	a.what = "filter " + name
	if s, ok := v.(string); ok {
		r.charge(len(s))
	}
	if f := filterTable(name); f != nil {
		return f(r, v, a)
	}
	r.fail("there is no filter named %s", name)
	return nil
}

type filterFunc func(r *renderer, v any, a *args) any

func filterTable(name string) filterFunc {
	switch name {
	case "tojson":
		return toJSON
	case "trim":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 0, "chars")
			return strip(r, r.str(v), p[0], true, true)
		}
	case "length", "count":
		return func(r *renderer, v any, a *args) any { a.bind(r, 0); return r.length(v) }
	case "string":
		return func(r *renderer, v any, a *args) any { a.bind(r, 0); return r.str(v) }
	case "safe":
		return func(r *renderer, v any, a *args) any { a.bind(r, 0); return r.str(v) }
	case "upper", "lower", "title", "capitalize":
		return func(r *renderer, v any, a *args) any {
			a.bind(r, 0)
			s := r.str(v)
			switch name {
			case "upper":
				return strings.ToUpper(s)
			case "lower":
				return strings.ToLower(s)
			case "title":
				return titleWords(s)
			}
			return capitalize(s)
		}
	case "default", "d":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 0, "default_value", "boolean")
			_, missing := v.(*undef)
			if missing || truth(given(p[1], false)) && !truth(v) {
				return given(p[0], "")
			}
			return v
		}
	case "replace":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 2, "old", "new", "count")
			return r.replace(r.str(v), r.str(p[0]), r.str(p[1]), r.integer(given(p[2], nil), -1))
		}
	case "e", "escape", "forceescape":
		return func(r *renderer, v any, a *args) any {
			a.bind(r, 0)
			s := escape(r.str(v))
			r.charge(len(s))
			return s
		}
	case "indent":
		return indent
	case "format":
		return func(r *renderer, v any, a *args) any {
			if len(a.kw) == 0 {
				return r.percent(r.str(v), &list{kind: kTuple, items: a.pos})
			}
			m := &Map{}
			for _, k := range a.kw {
				m.set(k.name, k.val)
			}
			return r.percent(r.str(v), m)
		}
	case "center":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 0, "width")
			return r.pad(r.str(v), r.integer(given(p[0], nil), 80), " ", '^')
		}
	case "wordcount":
		return func(r *renderer, v any, a *args) any {
			a.bind(r, 0)
			return int64(len(regexp.MustCompile(`[\pL\pN_]+`).FindAllStringIndex(r.str(v), -1)))
		}
	case "int":
		return toInt
	case "float":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 0, "default")
			switch v := v.(type) {
			case string:
				if f, ok := parseFloat(v); ok {
					return f
				}
			case *undef:
				r.fail("%s", v.why)
			default:
				if f, ok := asFloat(v); ok {
					return f
				}
			}
			return given(p[0], 0.0)
		}
	case "abs":
		return func(r *renderer, v any, a *args) any {
			a.bind(r, 0)
			if f, ok := v.(float64); ok {
				return math.Abs(f)
			}
			if n, ok := asInt(v); ok && n < 0 {
				return r.intArith("-", 0, n)
			} else if ok {
				return n
			}
			r.fail("filter abs: bad operand %s", typeName(v))
			return nil
		}
	case "round":
		return round
	case "attr":
		return func(r *renderer, v any, a *args) any {
			p := a.bind(r, 1, "name")
			if _, ok := v.(*Map); ok { // attributes only, no items
				if f := mapMethod(v.(*Map), r.str(p[0])); f != nil {
					return f
				}
				return &undef{"'dict object' has no attribute '" + r.str(p[0]) + "'"}
			}
			return r.attr(v, r.str(p[0]))
		}
	}
	return sequenceFilter(name)
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;").Replace(s)
}

// given returns v, or def if the argument was left out.
func given(v, def any) any {
	if v == (absent{}) {
		return def
	}
	return v
}

// widest bounds integers that are widths, indices and counts: beyond what any value has,
// and their sums with lengths stay in an int.
const widest = min(1<<40, math.MaxInt>>1)

// integer returns v as an integer, def for None.
func (r *renderer) integer(v any, def int) int {
	if v == nil {
		return def
	}
	n, ok := asInt(v)
	if !ok {
		r.fail("a %s is not an integer", typeName(v))
	}
	return int(max(-widest, min(n, widest)))
}

func (r *renderer) length(v any) any {
	switch v := v.(type) {
	case string:
		r.charge(len(v))
		return int64(utf8.RuneCountInString(v))
	case *Map:
		return int64(len(v.keys))
	case *undef:
		return int64(0)
	case *list:
		if v.kind != kGen {
			return int64(len(v.items))
		}
	case *loop:
		return int64(len(v.items))
	}
	r.fail("a %s has no length", typeName(v))
	return nil
}

// toJSON is transformers' tojson, which is json.dumps and nothing else: no
// HTML escapes, non-ASCII kept unless ensure_ascii is set.
func toJSON(r *renderer, v any, a *args) any {
	p := a.bind(r, 0, "ensure_ascii", "indent", "separators", "sort_keys")
	d := &dumper{r: r, item: ", ", pair: ": ", ascii: truth(given(p[0], false)), sortKeys: truth(given(p[3], false))}
	switch w := given(p[1], nil).(type) {
	case nil:
	case string:
		d.indent = &w
	default:
		s := r.repeat(" ", int64(r.integer(w, 0)))
		d.indent = &s
	}
	if d.indent != nil {
		d.item = ","
	}
	if sep := given(p[2], nil); sep != nil {
		l := r.iterate(sep)
		if len(l) != 2 {
			r.fail("tojson: separators needs two strings")
		}
		d.item, d.pair = r.str(l[0]), r.str(l[1])
	}
	d.dump(v, 0)
	return d.b.String()
}

func indent(r *renderer, v any, a *args) any {
	p := a.bind(r, 0, "width", "first", "blank")
	s := r.text(a, v)
	in, ok := given(p[0], int64(4)).(string)
	if !ok {
		in = r.repeat(" ", int64(r.integer(given(p[0], int64(4)), 4)))
	}
	lines := splitLines(s+"\n", false)
	r.charge(len(s) + r.times(int64(len(lines)), len(in)))
	for i, l := range lines {
		if i > 0 && l != "" || i > 0 && truth(given(p[2], false)) {
			lines[i] = in + l
		}
	}
	s = strings.Join(lines, "\n")
	if truth(given(p[1], false)) {
		s = in + s
	}
	return s
}

func toInt(r *renderer, v any, a *args) any {
	p := a.bind(r, 0, "default", "base")
	switch v := v.(type) {
	case string:
		s := strings.TrimFunc(v, isSpace)
		base := r.integer(given(p[1], nil), 10)
		if base < 0 || base == 1 || base > 36 {
			r.fail("filter int: base %d", base)
		}
		if base == 16 || base == 8 || base == 2 {
			if low := strings.ToLower(s); len(s) > 2 && strings.HasPrefix(low, map[int]string{16: "0x", 8: "0o", 2: "0b"}[base]) {
				s = s[2:]
			}
		}
		if n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), base, 64); err == nil {
			return n
		}
		if f, ok := parseFloat(v); ok {
			return r.truncate(f, given(p[0], int64(0)))
		}
	case float64:
		return r.truncate(v, given(p[0], int64(0)))
	case *undef:
		r.fail("%s", v.why)
	default:
		if n, ok := asInt(v); ok {
			return n
		}
	}
	return given(p[0], int64(0))
}

func (r *renderer) truncate(f float64, def any) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return def
	}
	if f = math.Trunc(f); math.Abs(f) >= 1<<63 {
		r.fail("%g does not fit 64 bits", f)
	}
	return int64(f)
}

func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}

func round(r *renderer, v any, a *args) any {
	p := a.bind(r, 0, "precision", "method")
	prec := r.integer(given(p[0], nil), 0)
	method := r.str(given(p[1], "common"))
	x, ok := asFloat(v)
	if !ok {
		r.fail("filter round: a %s is not a number", typeName(v))
	}
	if prec > 300 || prec < -300 {
		r.fail("filter round: precision %d", prec)
	}
	switch method {
	case "common":
		if n, ok := asInt(v); ok && prec >= 0 {
			return n
		}
		if prec < 0 {
			q := math.Pow(10, float64(-prec))
			x = math.RoundToEven(x/q) * q
			if _, ok := asInt(v); ok {
				return int64(x)
			}
			return x
		}
		x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'f', prec, 64), 64)
		return x
	case "ceil":
		return math.Ceil(x*math.Pow(10, float64(prec))) / math.Pow(10, float64(prec))
	case "floor":
		return math.Floor(x*math.Pow(10, float64(prec))) / math.Pow(10, float64(prec))
	}
	r.fail("filter round: method %q: want common, ceil or floor", method)
	return nil
}

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToTitle(s[:n]) + strings.ToLower(s[n:])
}

// titleWords is jinja2's title filter: words begin after white space, hyphens
// and opening brackets.
func titleWords(s string) string {
	var b strings.Builder
	start := true
	for _, c := range s {
		switch {
		case c == '-' || strings.ContainsRune("([{<", c) || isSpace(c):
			start = true
			b.WriteRune(c)
		case start:
			start = false
			b.WriteRune(unicode.ToUpper(c))
		default:
			b.WriteRune(unicode.ToLower(c))
		}
	}
	return b.String()
}

// sortKey lowers strings for the filters that ignore case by default.
func sortKey(v any, caseSensitive bool) any {
	if s, ok := v.(string); ok && !caseSensitive {
		return strings.ToLower(s)
	}
	return v
}

// field returns the part of x that a dotted path ("a.0.b") or index names.
func (r *renderer) field(x, path, def any) any {
	parts := []any{path}
	if s, ok := path.(string); ok {
		parts = parts[:0]
		for _, p := range strings.Split(s, ".") {
			if n, err := strconv.ParseInt(p, 10, 64); err == nil && n >= 0 {
				parts = append(parts, n)
			} else {
				parts = append(parts, p)
			}
		}
	}
	for _, p := range parts {
		x = r.item(x, p)
		if _, ok := x.(*undef); ok && def != (absent{}) {
			x = def
		}
	}
	return x
}

func (r *renderer) sortItems(items []any, key func(any) any, reverse bool) {
	r.charge(perItem * len(items))
	slices.SortStableFunc(items, func(a, b any) int {
		c := r.compare(key(a), key(b))
		if reverse {
			c = -c
		}
		return c
	})
}
