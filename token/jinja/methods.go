package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

type methodFunc func(r *renderer, a *args) any

func bound(owner, name string, f methodFunc) any {
	if f == nil {
		return nil
	}
	return &function{owner + "." + name, f}
}

// mapMethod returns the bound method of a dictionary, nil if there is none.
func mapMethod(m *Map, name string) any {
	var f methodFunc
	switch name {
	case "get":
		f = func(r *renderer, a *args) any {
			p := a.bind(r, 1, "key", "default")
			if v, ok := m.get(r.key(p[0])); ok {
				return v
			}
			return given(p[1], nil)
		}
	case "items":
		f = func(r *renderer, a *args) any { a.bind(r, 0); return &list{kind: kView, items: pairs(r, m)} }
	case "keys":
		f = func(r *renderer, a *args) any {
			a.bind(r, 0)
			r.charge(perItem * len(m.keys))
			return &list{kind: kView, items: slices.Clone(m.keys)}
		}
	case "values":
		f = func(r *renderer, a *args) any {
			a.bind(r, 0)
			r.charge(perItem * len(m.keys))
			return &list{kind: kView, items: slices.Clone(m.vals)}
		}
	case "copy":
		f = func(r *renderer, a *args) any { a.bind(r, 0); c := &Map{}; r.update(c, m); return c }
	case "update":
		f = func(r *renderer, a *args) any {
			if len(a.pos) > 0 {
				r.update(m, a.pos[0])
			}
			for _, k := range a.kw {
				m.set(k.name, k.val)
			}
			return nil
		}
	case "setdefault":
		f = func(r *renderer, a *args) any {
			p := a.bind(r, 1, "key", "default")
			k := r.key(p[0])
			if v, ok := m.get(k); ok {
				return v
			}
			m.set(k, given(p[1], nil))
			return given(p[1], nil)
		}
	case "pop":
		f = func(r *renderer, a *args) any {
			p := a.bind(r, 1, "key", "default")
			k := r.key(p[0])
			v, ok := m.get(k)
			if !ok {
				if p[1] == (absent{}) {
					r.fail("dict.pop: no key %s", r.str(p[0]))
				}
				return p[1]
			}
			r.charge(perItem * len(m.keys))
			m.remove(k)
			return v
		}
	}
	return bound("dict", name, f)
}

func listMethod(l *list, name string) any {
	var f methodFunc
	switch name {
	case "index", "count":
		f = func(r *renderer, a *args) any {
			p := a.bind(r, 1, "value")
			n := int64(0)
			for i, x := range l.items {
				if r.equal(x, p[0], 0) {
					if n++; name == "index" {
						return int64(i)
					}
				}
			}
			if name == "index" {
				r.fail("list.index: the value is not in the list")
			}
			return n
		}
	}
	if l.kind == kList {
		switch name {
		case "append":
			f = func(r *renderer, a *args) any {
				r.charge(perItem)
				l.items = append(l.items, a.bind(r, 1, "value")[0])
				return nil
			}
		case "extend":
			f = func(r *renderer, a *args) any {
				more := r.iterate(a.bind(r, 1, "values")[0])
				r.charge(perItem * len(more))
				l.items = append(l.items, more...)
				return nil
			}
		case "insert":
			f = func(r *renderer, a *args) any {
				p := a.bind(r, 2, "index", "value")
				i := r.integer(p[0], 0)
				if i < 0 {
					i += len(l.items)
				}
				r.charge(perItem * len(l.items))
				l.items = slices.Insert(l.items, max(0, min(i, len(l.items))), p[1])
				return nil
			}
		case "pop":
			f = func(r *renderer, a *args) any {
				i := r.integer(given(a.bind(r, 0, "index")[0], int64(-1)), -1)
				if i < 0 {
					i += len(l.items)
				}
				if i < 0 || i >= len(l.items) {
					r.fail("list.pop: no element %d in a list of %d", i, len(l.items))
				}
				v := l.items[i]
				r.charge(perItem * (len(l.items) - i))
				l.items = slices.Delete(l.items, i, i+1)
				return v
			}
		case "reverse":
			f = func(r *renderer, a *args) any { r.charge(perItem * len(l.items)); slices.Reverse(l.items); return nil }
		case "copy":
			f = func(r *renderer, a *args) any {
				r.charge(perItem * len(l.items))
				return &list{kind: kList, items: slices.Clone(l.items)}
			}
		}
	}
	if l.kind > kRange {
		return nil
	}
	return bound("list", name, f)
}

// stringMethod returns the bound method of a string, nil if there is none.
func stringMethod(s, name string) any {
	f := stringMethodFunc(s, name)
	if f == nil {
		return nil
	}
	return bound("str", name, func(r *renderer, a *args) any { r.charge(len(s)); return f(r, a) })
}

func stringMethodFunc(s, name string) methodFunc {
	switch name {
	case "startswith", "endswith":
		has := strings.HasPrefix
		if name == "endswith" {
			has = strings.HasSuffix
		}
		return func(r *renderer, a *args) any {
			p := a.bind(r, 1, "prefix")
			if l, ok := p[0].(*list); ok && l.kind == kTuple {
				return slices.ContainsFunc(l.items, func(x any) bool { return has(s, r.text(a, x)) })
			}
			return has(s, r.text(a, p[0]))
		}
	case "strip", "lstrip", "rstrip":
		return func(r *renderer, a *args) any {
			return strip(r, s, a.bind(r, 0, "chars")[0], name != "rstrip", name != "lstrip")
		}
	case "removeprefix":
		return func(r *renderer, a *args) any { return strings.TrimPrefix(s, r.text(a, a.bind(r, 1, "prefix")[0])) }
	case "removesuffix":
		return func(r *renderer, a *args) any { return strings.TrimSuffix(s, r.text(a, a.bind(r, 1, "suffix")[0])) }
	case "split", "rsplit":
		return func(r *renderer, a *args) any {
			p := a.bind(r, 0, "sep", "maxsplit")
			return r.split(s, a, given(p[0], nil), r.integer(given(p[1], nil), -1), name == "rsplit")
		}
	case "splitlines":
		return func(r *renderer, a *args) any {
			l := &list{}
			for _, x := range splitLines(s, truth(given(a.bind(r, 0, "keepends")[0], false))) {
				l.items = append(l.items, x)
			}
			return l
		}
	case "partition", "rpartition":
		return func(r *renderer, a *args) any {
			sep := r.text(a, a.bind(r, 1, "sep")[0])
			if sep == "" {
				r.fail("str.%s: empty separator", name)
			}
			i, out := strings.Index(s, sep), []any{s, "", ""}
			if name == "rpartition" {
				i, out = strings.LastIndex(s, sep), []any{"", "", s}
			}
			if i >= 0 {
				out = []any{s[:i], sep, s[i+len(sep):]}
			}
			return &list{kind: kTuple, items: out}
		}
	case "replace":
		return func(r *renderer, a *args) any {
			p := a.bind(r, 2, "old", "new", "count")
			return r.replace(s, r.text(a, p[0]), r.text(a, p[1]), r.integer(given(p[2], nil), -1))
		}
	case "join":
		return func(r *renderer, a *args) any {
			items := r.iterate(a.bind(r, 1, "iterable")[0])
			for i, x := range items {
				if _, ok := x.(string); !ok {
					r.fail("str.join: element %d is a %s, not a string", i, typeName(x))
				}
			}
			return r.join(s, items, nil)
		}
	case "find", "rfind", "index", "rindex", "count":
		return func(r *renderer, a *args) any {
			sub := r.text(a, a.bind(r, 1, "sub")[0])
			if name == "count" {
				return int64(strings.Count(s, sub))
			}
			i := strings.Index(s, sub)
			if name[0] == 'r' {
				i = strings.LastIndex(s, sub)
			}
			if i < 0 {
				if strings.HasSuffix(name, "index") {
					r.fail("str.%s: substring not found", name)
				}
				return int64(-1)
			}
			return int64(utf8.RuneCountInString(s[:i]))
		}
	case "format":
		return func(r *renderer, a *args) any { return r.format(s, a) }
	case "zfill":
		return func(r *renderer, a *args) any {
			w := r.integer(a.bind(r, 1, "width")[0], 0)
			sign := ""
			if s != "" && (s[0] == '-' || s[0] == '+') {
				sign = s[:1]
			}
			return sign + r.pad(s[len(sign):], w-len(sign), "0", '>')
		}
	case "ljust", "rjust", "center":
		return func(r *renderer, a *args) any {
			p := a.bind(r, 1, "width", "fillchar")
			fill := r.text(a, given(p[1], " "))
			return r.pad(s, r.integer(p[0], 0), fill, map[string]byte{"ljust": '<', "rjust": '>', "center": 'c'}[name])
		}
	}
	return caseMethod(s, name)
}

// caseMethod returns the methods without arguments that look at characters.
func caseMethod(s, name string) methodFunc {
	plain := func(f func() any) methodFunc {
		return func(r *renderer, a *args) any { a.bind(r, 0); return f() }
	}
	every := func(ok func(rune) bool) methodFunc {
		return plain(func() any {
			return s != "" && strings.IndexFunc(s, func(c rune) bool { return !ok(c) }) < 0
		})
	}
	switch name {
	case "upper":
		return plain(func() any { return strings.ToUpper(s) })
	case "lower", "casefold":
		return plain(func() any { return strings.ToLower(s) })
	case "capitalize":
		return plain(func() any { return capitalize(s) })
	case "title":
		return plain(func() any {
			letter := false
			return strings.Map(func(c rune) rune {
				was := letter
				if letter = unicode.IsLetter(c); letter && !was {
					return unicode.ToTitle(c)
				}
				return unicode.ToLower(c)
			}, s)
		})
	case "swapcase":
		return plain(func() any {
			return strings.Map(func(c rune) rune {
				if unicode.IsUpper(c) {
					return unicode.ToLower(c)
				}
				return unicode.ToUpper(c)
			}, s)
		})
	case "isdigit", "isdecimal", "isnumeric":
		return every(unicode.IsDigit)
	case "isalpha":
		return every(unicode.IsLetter)
	case "isalnum":
		return every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) })
	case "isspace":
		return every(isSpace)
	case "isupper", "islower":
		return plain(func() any { return caseTest(s, name == "isupper") })
	}
	return nil
}

// caseTest is str.isupper or str.islower: at least one cased letter, all alike.
func caseTest(s string, upper bool) bool {
	seen := false
	for _, c := range s {
		switch {
		case unicode.IsUpper(c) && upper, unicode.IsLower(c) && !upper:
			seen = true
		case unicode.IsUpper(c), unicode.IsLower(c):
			return false
		}
	}
	return seen
}

// text returns a string argument.
func (r *renderer) text(a *args, v any) string {
	switch v := v.(type) {
	case string:
		return v
	case *undef:
		r.fail("%s: %s", a.what, v.why)
	}
	r.fail("%s: a %s is not a string", a.what, typeName(v))
	return ""
}

func strip(r *renderer, s string, chars any, left, right bool) string {
	in := isSpace
	if chars = given(chars, nil); chars != nil {
		set, ok := chars.(string)
		if !ok {
			r.fail("strip: a %s is not a string", typeName(chars))
		}
		if len(set) > 64 && len(s) > 64 {
			r.charge(r.times(int64(len(set)), len(s))) // the search below is that long at worst
		}
		in = func(c rune) bool { return strings.ContainsRune(set, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, in)
	}
	if right {
		s = strings.TrimRightFunc(s, in)
	}
	return s
}

func (r *renderer) replace(s, old, with string, n int) string {
	count := strings.Count(s, old)
	if n >= 0 {
		count = min(count, n)
	}
	r.charge(len(s) + r.times(int64(count), max(len(with)-len(old), 0)))
	return strings.Replace(s, old, with, n)
}

func (r *renderer) split(s string, a *args, sep any, n int, fromRight bool) *list {
	l := &list{}
	defer func() { r.charge(perItem * len(l.items)) }()
	add := func(x string) { l.items = append(l.items, x) }
	r.charge(len(s))
	if sep != nil {
		sep := r.text(a, sep)
		switch {
		case sep == "":
			r.fail("%s: empty separator", a.what)
		case fromRight && n >= 0:
			var parts []string
			for ; n > 0; n-- {
				i := strings.LastIndex(s, sep)
				if i < 0 {
					break
				}
				parts, s = append(parts, s[i+len(sep):]), s[:i]
			}
			add(s)
			for i := len(parts) - 1; i >= 0; i-- {
				add(parts[i])
			}
		default:
			if n >= 0 {
				n++
			}
			for _, x := range strings.SplitN(s, sep, n) {
				add(x)
			}
		}
		return l
	}
	if fromRight && n >= 0 {
		var parts []string
		for s = strings.TrimRightFunc(s, isSpace); s != ""; n-- {
			i := strings.LastIndexFunc(s, isSpace)
			if n == 0 || i < 0 {
				parts = append(parts, s)
				break
			}
			_, w := utf8.DecodeRuneInString(s[i:])
			parts = append(parts, s[i+w:])
			s = strings.TrimRightFunc(s[:i], isSpace)
		}
		for i := len(parts) - 1; i >= 0; i-- {
			add(parts[i])
		}
		return l
	}
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; n-- {
		i := strings.IndexFunc(s, isSpace)
		if n == 0 || i < 0 {
			add(s) // after maxsplit cuts the rest keeps its trailing white space
			break
		}
		add(s[:i])
		s = strings.TrimLeftFunc(s[i:], isSpace)
	}
	return l
}

// splitLines is str.splitlines.
func splitLines(s string, keep bool) []string {
	var out []string
	for s != "" {
		i := strings.IndexFunc(s, func(c rune) bool {
			return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
		})
		if i < 0 {
			return append(out, s)
		}
		_, w := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			w = 2
		}
		if keep {
			out = append(out, s[:i+w])
		} else {
			out = append(out, s[:i])
		}
		s = s[i+w:]
	}
	return out
}
