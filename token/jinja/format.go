package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// pad widens s to width characters; align is <, > or ^ (centre, the odd one on
// the right) or c (str.center, which puts it elsewhere for odd widths).
func (r *renderer) pad(s string, width int, fill string, align byte) string {
	if utf8.RuneCountInString(fill) != 1 {
		r.fail("the fill character must be exactly one character, not %q", fill)
	}
	n := width - utf8.RuneCountInString(s)
	if n <= 0 {
		return s
	}
	r.charge(len(s) + r.times(int64(n), len(fill)))
	left := 0
	switch align {
	case '>':
		left = n
	case '^':
		left = n / 2
	case 'c':
		left = n/2 + n&width&1
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, n-left)
}

// percent is Python's text % values.
func (r *renderer) percent(s string, vals any) string {
	var b strings.Builder
	pos := []any{vals}
	if l, ok := vals.(*list); ok && l.kind == kTuple {
		pos = l.items
	}
	named, _ := vals.(*Map)
	used := 0
	next := func() any {
		if used >= len(pos) {
			r.fail("not enough arguments for format string %q", s)
		}
		used++
		return pos[used-1]
	}
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		if strings.HasPrefix(s, "%") {
			b.WriteByte('%')
			s = s[1:]
			continue
		}
		var v any = absent{}
		if strings.HasPrefix(s, "(") && named != nil {
			j := strings.IndexByte(s, ')')
			if j < 0 {
				r.fail("format string: missing )")
			}
			v = r.item(named, s[1:j])
			s = s[j+1:]
			used = len(pos)
		}
		var f spec
		f.fill, f.align = " ", '>'
		for s != "" && strings.IndexByte("-0+ #", s[0]) >= 0 {
			switch s[0] {
			case '-':
				f.align = '<'
			case '0':
				f.zero = true
			case '+', ' ':
				f.sign = s[0]
			}
			s = s[1:]
		}
		s = f.widthAndPrecision(r, s)
		if s == "" {
			r.fail("format string ends inside a conversion")
		}
		if v == (absent{}) {
			v = next()
		}
		f.zero = f.zero && f.align != '<'
		f.verb = s[0]
		s = s[1:]
		switch f.verb {
		case 's', 'r':
			t := r.str(v)
			if f.verb == 'r' {
				t = r.reprText(v)
			}
			f.verb, f.zero = 's', false
			b.WriteString(r.pad(f.cut(t), f.width, " ", f.align))
		case 'i', 'u', 'd':
			if x, ok := v.(float64); ok {
				v = r.truncate(x, int64(0))
			}
			f.verb = 'd'
			fallthrough
		case 'x', 'X', 'o', 'e', 'E', 'f', 'F', 'g', 'G':
			if _, ok := asFloat(v); !ok {
				r.fail("format %%%c needs a number, not %s", f.verb, typeName(v))
			}
			b.WriteString(r.number(v, f))
		default:
			r.fail("unsupported format character %q", f.verb)
		}
		r.charge(b.Len())
	}
	if used < len(pos) && named == nil {
		if l, ok := vals.(*list); !ok || l.kind == kTuple {
			r.fail("not all arguments converted during string formatting")
		}
	}
	return b.String()
}

func (r *renderer) reprText(v any) string {
	var b strings.Builder
	r.repr(&b, v, 0)
	return b.String()
}

// spec is a format specification: [[fill]align][sign][0][width][,][.precision][verb].
type spec struct {
	fill        string
	align       byte
	sign        byte
	zero, comma bool
	width       int
	prec        int
	hasPrec     bool
	verb        byte
}

func (f *spec) cut(s string) string {
	if f.hasPrec {
		if rs := []rune(s); len(rs) > f.prec {
			return string(rs[:f.prec])
		}
	}
	return s
}

func (f *spec) widthAndPrecision(r *renderer, s string) string {
	num := func() int {
		n := 0
		for s != "" && s[0] >= '0' && s[0] <= '9' {
			if n = 10*n + int(s[0]-'0'); n > 1<<26 {
				r.fail("format width %d is too large", n)
			}
			s = s[1:]
		}
		return n
	}
	f.width = num()
	if strings.HasPrefix(s, ",") {
		f.comma, s = true, s[1:]
	}
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		if f.hasPrec, f.prec = true, num(); f.prec > 1000 {
			r.fail("format precision %d is too large", f.prec)
		}
	}
	return s
}

// number formats an int, bool or float.
func (r *renderer) number(v any, f spec) string {
	n, isInt := asInt(v)
	x, _ := asFloat(v)
	verb := f.verb
	var s string
	switch verb {
	case 'd', 'x', 'X', 'o', 'b':
		if !isInt {
			r.fail("format %c needs an integer, not %s", verb, typeName(v))
		}
		base := map[byte]int{'d': 10, 'x': 16, 'X': 16, 'o': 8, 'b': 2}[verb]
		s = strconv.FormatInt(n, base)
		if verb == 'X' {
			s = strings.ToUpper(s)
		}
	case 0:
		s = floatRepr(x)
		if isInt {
			s = itoa(n)
		} else if f.hasPrec {
			s = general(x, f.prec)
		}
	case 'g', 'G':
		p := 6
		if f.hasPrec {
			p = max(f.prec, 1)
		}
		s = general(x, p)
	case 'f', 'F', 'e', 'E', '%':
		p := 6
		if f.hasPrec {
			p = f.prec
		}
		if verb == '%' {
			s = strconv.FormatFloat(100*x, 'f', p, 64) + "%"
		} else {
			s = strconv.FormatFloat(x, verb|0x20, p, 64)
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			s = floatRepr(x)
		}
		if verb == 'E' {
			s = strings.ToUpper(s)
		}
	default:
		r.fail("unknown format code %q for a %s", verb, typeName(v))
	}
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	} else if f.sign == '+' || f.sign == ' ' {
		sign = string(f.sign)
	}
	if f.comma {
		whole, frac, dot := strings.Cut(s, ".")
		var b []byte
		for i := range len(whole) {
			if i > 0 && (len(whole)-i)%3 == 0 {
				b = append(b, ',')
			}
			b = append(b, whole[i])
		}
		if s = string(b); dot {
			s += "." + frac
		}
	}
	if f.zero {
		return sign + r.pad(s, f.width-len(sign), "0", '>')
	}
	return r.pad(sign+s, f.width, f.fill, f.align)
}

// general is Python's %g.
func general(x float64, p int) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return floatRepr(x)
	}
	e := strconv.FormatFloat(x, 'e', p-1, 64)
	i := strings.IndexByte(e, 'e')
	exp, _ := strconv.Atoi(e[i+1:])
	trim := func(s string) string {
		if strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
	if exp < -4 || exp >= p {
		return trim(e[:i]) + e[i:]
	}
	return trim(strconv.FormatFloat(x, 'f', p-1-exp, 64))
}

// format is str.format.
func (r *renderer) format(s string, a *args) string {
	var b strings.Builder
	auto := 0
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		c := s[i]
		s = s[i+1:]
		if s != "" && s[0] == c {
			b.WriteByte(c)
			s = s[1:]
			continue
		}
		j := strings.IndexByte(s, '}')
		if c == '}' || j < 0 {
			r.fail("str.format: single %q in the format string", c)
		}
		field, rest, _ := strings.Cut(s[:j], ":")
		s = s[j+1:]
		field, conv, hasConv := strings.Cut(field, "!")
		v := r.formatField(a, field, &auto)
		if hasConv {
			if v = r.str(v); conv == "r" {
				v = r.reprText(v)
			}
		}
		b.WriteString(r.formatValue(v, rest))
		r.charge(b.Len())
	}
	return b.String()
}

func (r *renderer) formatField(a *args, field string, auto *int) any {
	end := strings.IndexAny(field, ".[")
	path := ""
	if end >= 0 {
		field, path = field[:end], field[end:]
	}
	var v any
	n, err := strconv.Atoi(field)
	switch {
	case field == "":
		n, err = *auto, nil
		*auto++
		fallthrough
	case err == nil:
		if n < 0 || n >= len(a.pos) {
			r.fail("str.format: there is no argument %d", n)
		}
		v = a.pos[n]
	default:
		v = &undef{fmt.Sprintf("str.format: there is no argument named %s", field)}
		for _, k := range a.kw {
			if k.name == field {
				v = k.val
			}
		}
	}
	for _, p := range strings.FieldsFunc(path, func(c rune) bool { return strings.ContainsRune(".[]", c) }) {
		if i, err := strconv.ParseInt(p, 10, 64); err == nil {
			v = r.item(v, i)
		} else {
			v = r.item(v, p)
		}
	}
	if u, ok := v.(*undef); ok {
		r.fail("%s", u.why)
	}
	return v
}

func (r *renderer) formatValue(v any, s string) string {
	f := spec{fill: " "}
	if c, n := utf8.DecodeRuneInString(s); len(s) > n && strings.IndexByte("<>^", s[n]) >= 0 {
		f.fill, f.align, s = string(c), s[n], s[n+1:]
	} else if s != "" && strings.IndexByte("<>^", s[0]) >= 0 {
		f.align, s = s[0], s[1:]
	}
	if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
		f.sign, s = s[0], s[1:]
	}
	if strings.HasPrefix(s, "0") {
		f.zero, s = f.align == 0, s[1:]
	}
	s = f.widthAndPrecision(r, s)
	if len(s) > 1 {
		r.fail("str.format: bad format specification %q", s)
	}
	if s != "" {
		f.verb = s[0]
	}
	_, isNumber := asFloat(v)
	_, isBool := v.(bool)
	if !isNumber || isBool && f.verb == 0 {
		if f.verb != 0 && f.verb != 's' {
			r.fail("str.format: unknown format code %q for a %s", f.verb, typeName(v))
		}
		if f.align == 0 {
			f.align = '<'
		}
		return r.pad(f.cut(r.str(v)), f.width, f.fill, f.align)
	}
	if f.align == 0 {
		f.align = '>'
	}
	return r.number(v, f)
}

// strftime formats t by C's conversion characters, in English.
func strftime(format string, t time.Time) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := format[i] == '-' && i+1 < len(format)
		if bare {
			i++
		}
		s := ""
		switch c := format[i]; c {
		case '%':
			s = "%"
		case 'n':
			s = "\n"
		case 't':
			s = "\t"
		case 'j':
			s = fmt.Sprintf("%03d", t.YearDay())
		case 'u':
			s = strconv.Itoa((int(t.Weekday())+6)%7 + 1)
		case 'w':
			s = strconv.Itoa(int(t.Weekday()))
		case 's':
			s = itoa(t.Unix())
		case 'f':
			s = fmt.Sprintf("%06d", t.Nanosecond()/1000)
		default:
			layout, ok := map[byte]string{'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'e': "_2", 'm': "01",
				'y': "06", 'Y': "2006", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'Z': "MST", 'z': "-0700", 'F': "2006-01-02",
				'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05"}[c]
			if !ok {
				return "", fmt.Errorf("date format %q: %%%c is not supported", format, c)
			}
			s = t.Format(layout)
		}
		if bare {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
