package token

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class says which sets of the patterns a character is in, as bits.
type class uint8

const (
	isLetter class = 1 << iota // \p{L}
	isMark                     // \p{M}
	isNumber                   // \p{N}: decimal digits, letter numbers, fractions, …
	isSpace                    // \s: the property White_Space
	isBreak                    // \r or \n
)

// classTable holds the class of every character of the basic plane: 64 KiB,
// where searching Unicode's range tables takes longer than the merges. The
// Unicode version is that of the Go release; what a later one assigns is a
// symbol here.
type classTable [1 << 16]class

// classes returns the table, made on first use.
var classes = sync.OnceValue(func() *classTable {
	t := new(classTable)
	for _, set := range []struct {
		table *unicode.RangeTable
		class class
	}{{unicode.L, isLetter}, {unicode.M, isMark}, {unicode.N, isNumber}, {unicode.White_Space, isSpace}} {
		for _, r := range set.table.R16 {
			for c := int(r.Lo); c <= int(r.Hi); c += int(r.Stride) {
				t[c] |= set.class
			}
		}
	}
	t['\r'] |= isBreak
	t['\n'] |= isBreak
	return t
})

// at returns the class and length of the character at byte i. A byte that is
// not UTF-8 is U+FFFD, a symbol, of length 1.
func (t *classTable) at(text string, i int) (class, int) {
	if b := text[i]; b < utf8.RuneSelf {
		return t[b], 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	switch {
	case r < 1<<16:
		return t[r], size
	case unicode.Is(unicode.L, r):
		return isLetter, size
	case unicode.Is(unicode.M, r):
		return isMark, size
	case unicode.Is(unicode.N, r):
		return isNumber, size
	}
	return 0, size
}
