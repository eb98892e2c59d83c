package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// FromJSON reads one JSON value for use in a template: objects become *[Map]
// with the order of their keys kept (of equal keys the last value counts),
// numbers without fraction or exponent stay integers of any size.
func FromJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decode(d, 0)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("text after the value")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("jinja: read JSON of %d bytes: byte %d: %w", len(data), d.InputOffset(), err)
	}
	return v, nil
}

func decode(d *json.Decoder, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxValueDepth)
	}
	t, err := d.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return number(t.String())
	case json.Delim:
		if t == '[' {
			l := &list{}
			for d.More() {
				x, err := decode(d, depth+1)
				if err != nil {
					return nil, err
				}
				l.items = append(l.items, x)
			}
			_, err := d.Token()
			return l, err
		}
		m := &Map{}
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			x, err := decode(d, depth+1)
			if err != nil {
				return nil, err
			}
			m.set(k.(string), x)
		}
		_, err := d.Token()
		return m, err
	}
	return t, nil // nil, bool, string
}

// number reads a JSON number as Python's json does.
func number(s string) (any, error) {
	if !strings.ContainsAny(s, ".eE") {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, nil
		}
		if n, ok := new(big.Int).SetString(s, 10); ok && len(s) <= 4300 { // Python's own limit
			return n, nil
		}
		return nil, fmt.Errorf("bad number of %d characters", len(s))
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil, err
	}
	return f, nil
}

// dumper writes Python's json.dumps.
type dumper struct {
	r          *renderer
	b          strings.Builder
	ascii      bool
	sortKeys   bool
	indent     *string
	item, pair string // separators
}

func (d *dumper) dump(v any, depth int) {
	d.r.step()
	if depth > maxValueDepth {
		d.r.fail("tojson: value nested deeper than %d", maxValueDepth)
	}
	n := d.b.Len()
	switch v := v.(type) {
	case nil:
		d.b.WriteString("null")
	case bool:
		d.b.WriteString(strconv.FormatBool(v))
	case int64:
		d.b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		d.b.WriteString(v.String())
	case float64:
		d.b.WriteString(jsonFloat(v))
	case string:
		d.str(v)
	case *list:
		if v.kind > kTuple {
			d.r.fail("tojson: a %s is not JSON serializable: make it a list first", typeName(v))
		}
		d.sequence('[', ']', len(v.items), depth, func(i int) { d.dump(v.items[i], depth+1) })
		return
	case *Map:
		order := make([]int, len(v.keys))
		for i := range order {
			order[i] = i
		}
		if d.sortKeys {
			slices.SortStableFunc(order, func(a, b int) int { return d.r.compare(v.keys[a], v.keys[b]) })
		}
		d.sequence('{', '}', len(v.keys), depth, func(i int) {
			d.str(d.key(v.keys[order[i]]))
			d.b.WriteString(d.pair)
			d.dump(v.vals[order[i]], depth+1)
		})
		return
	case *undef:
		d.r.fail("tojson: undefined value: %s", v.why)
	default:
		d.r.fail("tojson: object of type %s is not JSON serializable", typeName(v))
	}
	d.r.charge(d.b.Len() - n)
}

func (d *dumper) key(k any) string {
	switch k := k.(type) {
	case string:
		return k
	case nil:
		return "null"
	case float64:
		return jsonFloat(k)
	}
	return d.r.str(k)
}

func (d *dumper) sequence(open, end byte, n, depth int, each func(int)) {
	d.b.WriteByte(open)
	for i := range n {
		if i > 0 {
			d.b.WriteString(d.item)
		}
		d.newline(depth + 1)
		each(i)
	}
	if n > 0 {
		d.newline(depth)
	}
	d.b.WriteByte(end)
}

func (d *dumper) newline(depth int) {
	if d.indent != nil {
		d.r.charge(1 + d.r.times(int64(depth), len(*d.indent)))
		d.b.WriteByte('\n')
		for range depth {
			d.b.WriteString(*d.indent)
		}
	}
}

func (d *dumper) str(s string) {
	d.b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			d.b.WriteByte('\\')
			d.b.WriteRune(c)
		case c == '\n':
			d.b.WriteString(`\n`)
		case c == '\r':
			d.b.WriteString(`\r`)
		case c == '\t':
			d.b.WriteString(`\t`)
		case c == '\f':
			d.b.WriteString(`\f`)
		case c == '\b':
			d.b.WriteString(`\b`)
		case c < 0x20 || d.ascii && c >= 0x7f && c < 0x10000:
			fmt.Fprintf(&d.b, `\u%04x`, c)
		case d.ascii && c >= 0x10000:
			c -= 0x10000
			fmt.Fprintf(&d.b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			d.b.WriteRune(c)
		}
	}
	d.b.WriteByte('"')
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}
