package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind uint8

const (
	tEOF kind = iota
	tData
	tVarBegin
	tVarEnd
	tBlockBegin
	tBlockEnd
	tName
	tString
	tInt
	tFloat
	tOp
)

type token struct {
	kind kind
	text string // a string literal's value, else the source text
	line int
}

// lexer cuts a template into tokens the way jinja2 does with trim_blocks and
// lstrip_blocks on, which is what transformers renders with:
//
//	{%- and -%} (also in {{ and {#) eat all white space on their side,
//	the newline after %} and #} is dropped,
//	blanks between a line's start and {% or {# are dropped, except before {%+.
type lexer struct {
	name string
	src  string
	pos  int
	line int
	toks []token
	// lineStart says whether the last match ended with a newline, so that
	// blanks from here on are at the start of a line.
	lineStart bool
	open      []byte // brackets to close before an end tag counts
}

func lex(name, src string) []token {
	src = strings.ReplaceAll(src, "\r\n", "\n")
	src = strings.ReplaceAll(src, "\r", "\n")
	src = strings.TrimSuffix(src, "\n") // keep_trailing_newline is off
	l := &lexer{name: name, src: src, line: 1, lineStart: true}
	for l.pos < len(l.src) {
		l.root()
	}
	l.emit(tEOF, "")
	return l.toks
}

func (l *lexer) emit(k kind, text string) { l.toks = append(l.toks, token{k, text, l.line}) }

func (l *lexer) fail(format string, args ...any) { fail(l.name, l.line, format, args...) }

// advance moves n bytes on and keeps the line count.
func (l *lexer) advance(n int) {
	s := l.src[l.pos : l.pos+n]
	l.line += strings.Count(s, "\n")
	l.pos += n
	if n > 0 {
		l.lineStart = s[n-1] == '\n'
	}
}

// root reads text up to the next tag, and the tag.
func (l *lexer) root() {
	rest := l.src[l.pos:]
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 >= len(rest) {
			l.emit(tData, rest)
			l.advance(len(rest))
			return
		}
		at += i
		if c := rest[at+1]; c == '{' || c == '%' || c == '#' {
			break
		}
		at++
	}
	text, tag := rest[:at], rest[at+1]
	body := at + 2
	sign := byte(0)
	if body < len(rest) && (rest[body] == '-' || rest[body] == '+') {
		sign = rest[body]
		body++
	}
	if sign == '+' && tag == '{' { // {{+ is a plus sign of the expression
		sign = 0
		body--
	}
	text = l.strip(text, sign, tag == '{')
	if text != "" {
		l.emit(tData, text)
	}
	l.advance(body)
	switch tag {
	case '{':
		l.emit(tVarBegin, "{{")
		l.inside("}}", tVarEnd)
	case '#':
		l.comment()
	default:
		if !l.raw() {
			l.emit(tBlockBegin, "{%")
			l.inside("%}", tBlockEnd)
		}
	}
}

// strip applies the white space rules to the text before a tag.
func (l *lexer) strip(text string, sign byte, variable bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == '+' || variable {
		return text
	}
	i := strings.LastIndexByte(text, '\n') + 1
	if (i > 0 || l.lineStart) && strings.TrimLeftFunc(text[i:], isSpace) == "" {
		return text[:i]
	}
	return text
}

// end reports whether an end tag starts here and eats it and what follows it.
func (l *lexer) end(tag string) bool {
	rest := l.src[l.pos:]
	switch {
	case strings.HasPrefix(rest, tag):
		n := len(tag)
		if tag != "}}" && strings.HasPrefix(rest[n:], "\n") {
			n++
		}
		l.advance(n)
	case strings.HasPrefix(rest, "-"+tag):
		n := len(tag) + 1
		l.advance(len(rest) - len(strings.TrimLeftFunc(rest[n:], isSpace)))
	case tag != "}}" && strings.HasPrefix(rest, "+"+tag):
		l.advance(len(tag) + 1)
	default:
		return false
	}
	return true
}

func (l *lexer) comment() {
	if l.pos == len(l.src) { // nothing after {#: jinja2 lets it pass
		return
	}
	for start := l.line; !l.end("#}"); l.advance(1) {
		if l.pos >= len(l.src) {
			fail(l.name, start, "comment opened with {# is not closed with #}")
		}
	}
}

// raw reads {% raw %}…{% endraw %} if it stands here (after "{%").
func (l *lexer) raw() bool {
	rest := l.src[l.pos:]
	after, ok := strings.CutPrefix(strings.TrimLeftFunc(rest, isSpace), "raw")
	after = strings.TrimLeftFunc(after, isSpace)
	minus := strings.HasPrefix(after, "-%}")
	if !ok || !minus && !strings.HasPrefix(after, "%}") {
		return false
	}
	after = strings.TrimPrefix(strings.TrimPrefix(after, "-"), "%}")
	if minus {
		after = strings.TrimLeftFunc(after, isSpace)
	}
	start := l.line
	l.advance(len(rest) - len(after))
	for i := 0; ; i++ {
		j := strings.Index(after[i:], "{%")
		if j < 0 {
			fail(l.name, start, "raw block is not closed with {%% endraw %%}")
		}
		i += j
		tag, sign := after[i+2:], byte(0)
		if tag != "" && (tag[0] == '-' || tag[0] == '+') {
			sign, tag = tag[0], tag[1:]
		}
		tag, ok := strings.CutPrefix(strings.TrimLeftFunc(tag, isSpace), "endraw")
		tag = strings.TrimLeftFunc(tag, isSpace)
		if !ok || !strings.HasPrefix(tag, "%}") && !strings.HasPrefix(tag, "-%}") && !strings.HasPrefix(tag, "+%}") {
			continue
		}
		if text := l.strip(after[:i], sign, false); text != "" {
			l.emit(tData, text)
		}
		l.advance(len(after) - len(tag))
		l.end("%}")
		return true
	}
}

// inside reads the tokens of an expression or statement up to its end tag.
func (l *lexer) inside(tag string, endKind kind) {
	l.open = l.open[:0]
	start := l.line
	for {
		rest := l.src[l.pos:]
		trimmed := strings.TrimLeftFunc(rest, isSpace)
		l.advance(len(rest) - len(trimmed))
		if l.pos >= len(l.src) {
			fail(l.name, start, "tag is not closed with %s", tag)
		}
		if len(l.open) == 0 && l.end(tag) {
			l.emit(endKind, tag)
			return
		}
		l.token()
	}
}

func (l *lexer) token() {
	rest := l.src[l.pos:]
	c := rest[0]
	switch {
	case c == '"' || c == '\'':
		l.str(c)
		return
	case c >= '0' && c <= '9':
		l.number()
		return
	}
	if r, _ := utf8.DecodeRuneInString(rest); r == '_' || unicode.IsLetter(r) {
		n := strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
		})
		if n < 0 {
			n = len(rest)
		}
		l.emit(tName, rest[:n])
		l.advance(n)
		return
	}
	n := 1
	if len(rest) > 1 {
		switch rest[:2] {
		case "**", "//", "==", "!=", ">=", "<=":
			n = 2
		}
	}
	op := rest[:n]
	switch op {
	case "(", "[", "{":
		l.open = append(l.open, map[string]byte{"(": ')', "[": ']', "{": '}'}[op])
	case ")", "]", "}":
		if k := len(l.open) - 1; k < 0 || l.open[k] != op[0] {
			l.fail("unexpected %q: no such bracket is open", op)
		}
		l.open = l.open[:len(l.open)-1]
	case "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", ">", "<", "=", ".", ":", "|", ",", ";":
	default:
		r, _ := utf8.DecodeRuneInString(rest)
		l.fail("unexpected character %q in a tag", r)
	}
	l.emit(tOp, op)
	l.advance(n)
}

// number reads an integer or, if a fraction or exponent follows and the number
// is not itself an attribute (x.0.1), a float.
func (l *lexer) number() {
	s := l.src[l.pos:]
	digits := func(i int, set string) int {
		for i < len(s) && (strings.IndexByte(set, s[i]) >= 0 || s[i] == '_') {
			i++
		}
		return i
	}
	const dec = "0123456789"
	if len(s) > 2 && s[0] == '0' && strings.IndexByte("xXoObB", s[1]) >= 0 {
		n := digits(2, dec+"abcdefABCDEF")
		l.emit(tInt, s[:n])
		l.advance(n)
		return
	}
	n, k := digits(0, dec), tInt
	attr := len(l.toks) > 0 && l.toks[len(l.toks)-1].kind == tOp && l.toks[len(l.toks)-1].text == "."
	if !attr {
		if n+1 < len(s) && s[n] == '.' && s[n+1] >= '0' && s[n+1] <= '9' {
			n, k = digits(n+1, dec), tFloat
		}
		if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
			e := n + 1
			if e < len(s) && (s[e] == '+' || s[e] == '-') {
				e++
			}
			if e < len(s) && s[e] >= '0' && s[e] <= '9' {
				n, k = digits(e, dec), tFloat
			}
		}
	}
	l.emit(k, s[:n])
	l.advance(n)
}

// str reads a string literal with Python's escapes; newlines in it are kept.
func (l *lexer) str(quote byte) {
	s := l.src[l.pos:]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			l.emit(tString, b.String())
			l.advance(i + 1)
			return
		case c == '\\' && i+1 < len(s):
			i += unescape(&b, s[i+1:])
		default:
			b.WriteByte(c)
		}
	}
	l.fail("string opened with %c is not closed", quote)
}

// unescape writes what the escape sequence "\" + s means and returns how many
// bytes of s belong to it.
func unescape(b *strings.Builder, s string) int {
	code := func(from, n, base int) (rune, bool) {
		v := rune(0)
		if len(s) < from+n {
			return 0, false
		}
		for _, c := range []byte(s[from : from+n]) {
			d := strings.IndexByte("0123456789abcdef", c)
			if c >= 'A' && c <= 'F' {
				d = int(c-'A') + 10
			}
			if d < 0 || d >= base {
				return 0, false
			}
			v = v*rune(base) + rune(d)
		}
		return v, true
	}
	if i := strings.IndexByte("abfnrtv\\'\"", s[0]); i >= 0 {
		b.WriteByte("\a\b\f\n\r\t\v\\'\""[i])
		return 1
	}
	switch s[0] {
	case '\n':
		return 1
	case 'x', 'u', 'U':
		n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[0]]
		if v, ok := code(1, n, 16); ok {
			b.WriteRune(v)
			return 1 + n
		}
	case '0', '1', '2', '3', '4', '5', '6', '7':
		for n := 3; n > 0; n-- {
			if v, ok := code(0, n, 8); ok {
				b.WriteRune(v)
				return n
			}
		}
	}
	b.WriteByte('\\')
	_, n := utf8.DecodeRuneInString(s)
	b.WriteString(s[:n])
	return n
}

// isSpace is Python's str.isspace, which is also \s of its regular expressions.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
