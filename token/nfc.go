package token

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// markRun is the number of combining marks in a row from which composeLong is
// used. A character decomposes to at most 3 marks, and norm allows 30.
const markRun = 9

// nfc returns the Unicode normal form C of s. Package norm follows the
// Stream-Safe Text Process and inserts U+034F after 30 combining marks, which
// NFC does not, so long runs are composed here.
func nfc(s string) string {
	if below(s, 0xCC) || norm.NFC.IsNormalString(s) {
		return s
	}
	if longestMarkRun(s) >= markRun {
		return composeLong(s)
	}
	return norm.NFC.String(s)
}

// below reports whether all bytes of s are below b. 0xCC begins U+0300, and
// what comes before that is its own normal form.
func below(s string, b byte) bool {
	for i := range len(s) {
		if s[i] >= b {
			return false
		}
	}
	return true
}

func longestMarkRun(s string) int {
	longest, run := 0, 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			run = 0
			i++
			continue
		}
		p := norm.NFC.PropertiesString(s[i:])
		if p.CCC() != 0 {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
		i += max(p.Size(), 1)
	}
	return longest
}

// decomposed is a character with its canonical combining class, or a byte that
// is not UTF-8 (bad, a starter that composes with nothing).
type decomposed struct {
	r   rune
	ccc uint8
	bad bool
}

// composeLong is the definition of NFC (Unicode standard, 3.11): decompose,
// sort marks by class, compose. It is slow, and linear but for the sorting.
func composeLong(s string) string {
	var chars []decomposed
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			chars = append(chars, decomposed{r: rune(s[i]), bad: true})
		case r < utf8.RuneSelf:
			chars = append(chars, decomposed{r: r})
		default:
			for _, d := range norm.NFD.String(s[i : i+size]) {
				chars = append(chars, decomposed{r: d, ccc: norm.NFD.PropertiesString(string(d)).CCC()})
			}
		}
		i += size
	}
	for i := 0; i < len(chars); i++ {
		j := i
		for j < len(chars) && chars[j].ccc != 0 {
			j++
		}
		slices.SortStableFunc(chars[i:j], func(a, b decomposed) int { return int(a.ccc) - int(b.ccc) })
		i = j
	}
	starter, last := -1, 0 // last: class of the character kept before this one
	kept := chars[:0]
	for _, c := range chars {
		// Blocked: something of the same or a higher class, or a starter, is between.
		adjacent := starter == len(kept)-1
		if starter >= 0 && (adjacent || last != 0 && last < int(c.ccc)) {
			if r, ok := compose(kept[starter], c); ok {
				kept[starter].r = r
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(kept)
		}
		last = int(c.ccc)
		kept = append(kept, c)
	}
	var out []byte
	for _, c := range kept {
		if c.bad {
			out = append(out, byte(c.r))
		} else {
			out = utf8.AppendRune(out, c.r)
		}
	}
	return string(out)
}

// compose returns the primary composite of two characters, if there is one.
func compose(a, b decomposed) (rune, bool) {
	if a.bad || b.bad || b.r < utf8.RuneSelf {
		return 0, false
	}
	pair := norm.NFC.String(string([]rune{a.r, b.r}))
	r, size := utf8.DecodeRuneInString(pair)
	return r, size == len(pair)
}
