package token

import (
	"strings"
	"unicode/utf8"
)

// Decode appends the bytes of ids to dst. They need not be UTF-8; see
// [Tokenizer.Text]. Ids that are no token add nothing.
func (t *Tokenizer) Decode(dst []byte, ids []int32) []byte {
	for _, id := range ids {
		if t.words.has(id) {
			dst = append(dst, t.words.at(id)...)
		}
	}
	return dst
}

// DecodeSkip is Decode without special tokens.
func (t *Tokenizer) DecodeSkip(dst []byte, ids []int32) []byte {
	for _, id := range ids {
		if t.words.has(id) && t.words.kind[id]&kindSpecial == 0 {
			dst = append(dst, t.words.at(id)...)
		}
	}
	return dst
}

// Text returns the text of ids as valid UTF-8: each maximal ill-formed part of
// the bytes becomes one U+FFFD, as Unicode recommends.
func (t *Tokenizer) Text(ids []int32) string { return validText(string(t.Decode(nil, ids))) }

// TextSkip is Text without special tokens.
func (t *Tokenizer) TextSkip(ids []int32) string { return validText(string(t.DecodeSkip(nil, ids))) }

// A Decoder turns ids into text one at a time. What it returns is valid UTF-8
// and adds up to what [Tokenizer.Text] gives for all ids at once: an
// incomplete character at the end is held back until it is complete or broken.
type Decoder struct {
	Tokenizer   *Tokenizer
	SkipSpecial bool // leave out special tokens, as TextSkip does

	held string // a proper prefix of a well-formed character, at most 3 bytes
}

// Push returns the text that id completes, possibly empty. It allocates only
// when a character spans tokens or is broken.
func (d *Decoder) Push(id int32) string {
	t := d.Tokenizer
	if t == nil || !t.words.has(id) || d.SkipSpecial && t.words.kind[id]&kindSpecial != 0 {
		return ""
	}
	s := t.words.at(id)
	if d.held != "" {
		s = d.held + s
	}
	n := len(s) - incompleteTail(s)
	d.held = s[n:]
	return validText(s[:n])
}

// Flush returns U+FFFD if a character was left incomplete, and makes d ready
// for another text.
func (d *Decoder) Flush() string {
	held := d.held
	d.held = ""
	return validText(held)
}

// validText returns s with U+FFFD for each maximal ill-formed part.
// strings.ToValidUTF8 puts one for each run of them, ranging over s one for
// each byte.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n, _ = illFormed(s)
			b.WriteRune(utf8.RuneError)
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// incompleteTail returns the length of the proper prefix of a well-formed
// character at the end of s, 0 to 3.
func incompleteTail(s string) int {
	for n := 1; n <= 3 && n <= len(s); n++ {
		if tail := s[len(s)-n:]; utf8.RuneStart(tail[0]) {
			if _, more := illFormed(tail); more {
				return n
			}
			return 0
		}
	}
	return 0
}

// illFormed returns the length of the maximal ill-formed part that s begins
// with: the longest prefix of s that begins a well-formed character, or one
// byte. more reports whether s ends where that character would go on.
func illFormed(s string) (n int, more bool) {
	size, lo, hi := 0, byte(0x80), byte(0xBF)
	switch b := s[0]; { // table 3-7 of the Unicode standard
	case b >= 0xC2 && b <= 0xDF:
		size = 2
	case b >= 0xE0 && b <= 0xEF:
		size = 3
		if b == 0xE0 {
			lo = 0xA0
		} else if b == 0xED {
			hi = 0x9F
		}
	case b >= 0xF0 && b <= 0xF4:
		size = 4
		if b == 0xF0 {
			lo = 0x90
		} else if b == 0xF4 {
			hi = 0x8F
		}
	default:
		return 1, false
	}
	for n = 1; n < size; n++ {
		if n == len(s) {
			return n, true
		}
		if s[n] < lo || s[n] > hi {
			return n, false
		}
		lo, hi = 0x80, 0xBF
	}
	return n, false
}
