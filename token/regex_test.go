package token

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A small backtracking matcher for the syntax of the Split patterns: the slow
// meaning of splitter, taken from the text of the pattern.

// matcher matches text from byte i and calls next with the end of each
// possibility, best first, until next accepts one.
type matcher func(text string, i int, next func(int) bool) bool

type regexParser struct {
	s    string
	fold bool
}

func compileRegex(s string) matcher {
	p := &regexParser{s: s}
	m := p.alternatives()
	if p.s != "" {
		panic("regex left: " + p.s)
	}
	return m
}

func (p *regexParser) eat(prefix string) bool {
	rest, ok := strings.CutPrefix(p.s, prefix)
	if ok {
		p.s = rest
	}
	return ok
}

func (p *regexParser) alternatives() matcher {
	var alts []matcher
	for {
		alts = append(alts, p.sequence())
		if !p.eat("|") {
			break
		}
	}
	return func(text string, i int, next func(int) bool) bool {
		for _, m := range alts {
			if m(text, i, next) {
				return true
			}
		}
		return false
	}
}

func (p *regexParser) sequence() matcher {
	var parts []matcher
	for p.s != "" && p.s[0] != '|' && p.s[0] != ')' {
		m := p.atom()
		switch {
		case p.eat("?"):
			m = repeat(m, 0, 1)
		case p.eat("*"):
			m = repeat(m, 0, 1<<30)
		case p.eat("+"):
			m = repeat(m, 1, 1<<30)
		case p.eat("{"):
			bounds, rest, _ := strings.Cut(p.s, "}")
			lo, hi, _ := strings.Cut(bounds, ",")
			a, _ := strconv.Atoi(lo)
			b, _ := strconv.Atoi(hi)
			p.s = rest
			m = repeat(m, a, b)
		}
		parts = append(parts, m)
	}
	var from func(n int) matcher
	from = func(n int) matcher {
		if n == len(parts) {
			return func(_ string, i int, next func(int) bool) bool { return next(i) }
		}
		rest := from(n + 1)
		return func(text string, i int, next func(int) bool) bool {
			return parts[n](text, i, func(j int) bool { return rest(text, j, next) })
		}
	}
	return from(0)
}

func repeat(m matcher, lo, hi int) matcher {
	var try func(text string, i, count int, next func(int) bool) bool
	try = func(text string, i, count int, next func(int) bool) bool {
		if count < hi && m(text, i, func(j int) bool { return j > i && try(text, j, count+1, next) }) {
			return true
		}
		return count >= lo && next(i)
	}
	return func(text string, i int, next func(int) bool) bool { return try(text, i, 0, next) }
}

func (p *regexParser) atom() matcher {
	switch {
	case p.eat("(?i:"):
		p.fold = true
		m := p.alternatives()
		p.fold = false
		p.eat(")")
		return m
	case p.eat("(?!"):
		m := p.alternatives()
		p.eat(")")
		return func(text string, i int, next func(int) bool) bool {
			return !m(text, i, func(int) bool { return true }) && next(i)
		}
	case p.eat("["):
		negate := p.eat("^")
		var sets []func(rune) bool
		for !p.eat("]") {
			sets = append(sets, p.set())
		}
		return one(func(r rune) bool {
			in := false
			for _, s := range sets {
				in = in || s(r)
			}
			return in != negate
		})
	}
	return one(p.set())
}

func one(set func(rune) bool) matcher {
	return func(text string, i int, next func(int) bool) bool {
		if i >= len(text) {
			return false
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		return set(r) && next(i+size)
	}
}

// set reads one character or escape.
func (p *regexParser) set() func(rune) bool {
	in := func(t *unicode.RangeTable) func(rune) bool {
		return func(r rune) bool { return unicode.Is(t, r) }
	}
	switch {
	case p.eat(`\p{L}`):
		return in(unicode.L)
	case p.eat(`\p{M}`):
		return in(unicode.M)
	case p.eat(`\p{N}`):
		return in(unicode.N)
	case p.eat(`\s`):
		return in(unicode.White_Space)
	case p.eat(`\S`):
		return func(r rune) bool { return !unicode.Is(unicode.White_Space, r) }
	case p.eat(`\r`):
		return func(r rune) bool { return r == '\r' }
	case p.eat(`\n`):
		return func(r rune) bool { return r == '\n' }
	}
	c, size := utf8.DecodeRuneInString(p.s)
	p.s = p.s[size:]
	fold := p.fold
	return func(r rune) bool {
		if r == c {
			return true
		}
		for f := unicode.SimpleFold(c); fold && f != c; f = unicode.SimpleFold(f) {
			if f == r {
				return true
			}
		}
		return false
	}
}

// split cuts text into the matches of m, which must cover it.
func (m matcher) split(text string) (pieces []string) {
	for text != "" {
		end := 0
		if !m(text, 0, func(j int) bool { end = j; return j > 0 }) {
			panic("no match: " + strconv.Quote(text))
		}
		pieces = append(pieces, text[:end])
		text = text[end:]
	}
	return pieces
}

// slowSplit is the pre-tokenizer of the given name.
func slowSplit(pre string) func(text string) []string {
	if regex, ok := splitRegex()[pre]; ok {
		return compileRegex(regex).split
	}
	gpt2 := compileRegex(`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`)
	return func(text string) (pieces []string) {
		for text != "" {
			n := strings.IndexFunc(text, func(r rune) bool { return unicode.Is(unicode.N, r) })
			if n < 0 {
				n = len(text)
			}
			pieces = append(pieces, gpt2.split(text[:n])...)
			if text = text[n:]; text != "" {
				_, size := utf8.DecodeRuneInString(text)
				pieces = append(pieces, text[:size])
				text = text[size:]
			}
		}
		return pieces
	}
}
