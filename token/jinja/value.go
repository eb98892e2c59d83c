package jinja

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Inside a template a value is one of
//
//	nil (None), bool, int64, *big.Int (only carried), float64, string,
//	*list, *Map, *namespace, *undef, *function, *macro, *loop.

// Map is a dictionary that keeps the order its keys were first set in, as
// templates expect of messages and tools. The zero value is empty.
type Map struct {
	keys  []any // string, int64, float64 or nil
	vals  []any
	index map[any]int
}

// Set sets the value of a key; a new key goes last. The value may be anything
// [Template.Render] accepts.
func (m *Map) Set(key string, value any) { m.set(key, value) }

// Get returns the value of a key.
func (m *Map) Get(key string) (any, bool) { return m.get(key) }

// Len returns the number of keys.
func (m *Map) Len() int { return len(m.keys) }

func (m *Map) get(key any) (any, bool) {
	if i, ok := m.index[key]; ok {
		return m.vals[i], true
	}
	return nil, false
}

func (m *Map) set(key, value any) {
	if i, ok := m.index[key]; ok {
		m.vals[i] = value
		return
	}
	if m.index == nil {
		m.index = map[any]int{}
	}
	m.index[key] = len(m.keys)
	m.keys, m.vals = append(m.keys, key), append(m.vals, value)
}

func (m *Map) remove(key any) {
	i, ok := m.index[key]
	if !ok {
		return
	}
	m.keys, m.vals = slices.Delete(m.keys, i, i+1), slices.Delete(m.vals, i, i+1)
	delete(m.index, key)
	for j := i; j < len(m.keys); j++ {
		m.index[m.keys[j]] = j
	}
}

type listKind uint8

const (
	kList  listKind = iota
	kTuple          // (a, b)
	kRange          // range(…)
	kView           // d.keys(), d.values(), d.items()
	kGen            // what lazy filters return: always true, no length, read once
)

type list struct {
	kind   listKind
	items  []any
	bounds [3]int64 // of a range: first, end, step
}

// undef is a missing name, key or index; why says which.
type undef struct{ why string }

type namespace struct{ vars *Map }

type function struct {
	name string
	call func(r *renderer, a *args) any
}

// fromGo converts a Go value to a template value, copying what is mutable.
// Types it does not know go through their JSON form.
func fromGo(v any, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("value nested deeper than %d", maxValueDepth)
	}
	switch v := v.(type) {
	case nil, bool, string, int64, float64, *big.Int, *undef, *function:
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float32:
		return float64(v), nil
	case json.Number:
		return number(v.String())
	case json.RawMessage:
		return FromJSON(v)
	case []any:
		return fromSlice(v, depth)
	case *list:
		l, err := fromSlice(v.items, depth)
		if err == nil {
			l.(*list).kind = v.kind
		}
		return l, err
	case []string:
		l := &list{}
		for _, s := range v {
			l.items = append(l.items, s)
		}
		return l, nil
	case *Map:
		m := &Map{}
		if v == nil {
			return nil, nil
		}
		for i, k := range v.keys {
			x, err := fromGo(v.vals[i], depth+1)
			if err != nil {
				return nil, err
			}
			m.set(k, x)
		}
		return m, nil
	case map[string]any:
		m := &Map{}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			x, err := fromGo(v[k], depth+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			m.set(k, x)
		}
		return m, nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("value of type %T has no JSON form: %w", v, err)
	}
	return FromJSON(raw)
}

func fromSlice(v []any, depth int) (any, error) {
	l := &list{items: make([]any, len(v))}
	for i, x := range v {
		var err error
		if l.items[i], err = fromGo(x, depth+1); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return l, nil
}

// typeName is Python's name of the type, for messages.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *list:
		return [...]string{"list", "tuple", "range", "dict view", "generator"}[v.kind]
	case *Map:
		return "dict"
	case *undef:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loop:
		return "LoopContext"
	}
	return "function"
}

// truth is Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case nil, *undef:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *list:
		return v.kind == kGen || len(v.items) > 0
	case *Map:
		return len(v.keys) > 0
	}
	return true
}

// str is Python's str(v).
func (r *renderer) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case *undef:
		return ""
	}
	var b strings.Builder
	r.repr(&b, v, 0)
	return b.String()
}

// repr writes Python's repr(v).
func (r *renderer) repr(b *strings.Builder, v any, depth int) {
	r.step()
	if depth > maxValueDepth {
		r.fail("value nested deeper than %d", maxValueDepth)
	}
	n := b.Len()
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		b.WriteString(v.String())
	case float64:
		b.WriteString(floatRepr(v))
	case string:
		quoted(b, v)
	case *undef:
		b.WriteString("Undefined")
	case *list:
		r.reprList(b, v, depth)
		return
	case *Map:
		r.reprMap(b, v, depth)
		return
	case *namespace:
		b.WriteString("<Namespace ")
		r.reprMap(b, v.vars, depth)
		b.WriteString(">")
		return
	case *macro:
		fmt.Fprintf(b, "<Macro '%s'>", v.name)
	case *function:
		fmt.Fprintf(b, "<function %s>", v.name)
	default:
		fmt.Fprintf(b, "<%s>", typeName(v))
	}
	r.charge(b.Len() - n)
}

func (r *renderer) reprList(b *strings.Builder, v *list, depth int) {
	open, end := "[", "]"
	switch v.kind {
	case kTuple:
		open, end = "(", ")"
		if len(v.items) == 1 {
			end = ",)"
		}
	case kRange:
		fmt.Fprintf(b, "range(%d, %d", v.bounds[0], v.bounds[1])
		if v.bounds[2] != 1 {
			fmt.Fprintf(b, ", %d", v.bounds[2])
		}
		b.WriteString(")")
		return
	case kView:
		b.WriteString("dict_view")
	case kGen:
		b.WriteString("<generator object>")
		return
	}
	b.WriteString(open)
	for i, x := range v.items {
		if i > 0 {
			b.WriteString(", ")
		}
		r.repr(b, x, depth+1)
	}
	b.WriteString(end)
}

func (r *renderer) reprMap(b *strings.Builder, v *Map, depth int) {
	b.WriteString("{")
	for i, k := range v.keys {
		if i > 0 {
			b.WriteString(", ")
		}
		r.repr(b, k, depth+1)
		b.WriteString(": ")
		r.repr(b, v.vals[i], depth+1)
	}
	b.WriteString("}")
}

// floatRepr is Python's repr of a float: the shortest digits that read back,
// with an exponent below 1e-4 and from 1e16 on.
func floatRepr(f float64) string {
	s := strconv.FormatFloat(f, 'e', -1, 64)
	i := strings.IndexByte(s, 'e')
	if i < 0 { // NaN, Inf
		return strings.ToLower(strings.TrimPrefix(s, "+"))
	}
	if e, _ := strconv.Atoi(s[i+1:]); e < -4 || e >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quoted writes a Python string literal.
func quoted(b *strings.Builder, s string) {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b.WriteByte(q)
	for _, c := range s {
		switch {
		case c == rune(q) || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(b, `\u%04x`, c)
		default:
			fmt.Fprintf(b, `\U%08x`, c)
		}
	}
	b.WriteByte(q)
}
