package sample

import (
	"fmt"
	"unicode/utf8"
)

// StopMatcher finds stop strings in text that arrives in pieces, across any
// piece borders, and lets no byte of a stop string through. What it does
// depends on the text alone, not on how the text is cut into pieces.
//
//	for each decoded piece { out, done := m.Push(piece); send(out); if done { break } }
//	send(m.Flush())
//
// Pieces that are whole UTF-8 give outputs that are whole UTF-8. Make one with
// [NewStopMatcher]; it serves one sequence.
type StopMatcher struct {
	stops   []stop
	held    []byte // the longest end of the text that may be a stop's beginning
	matched string
	done    bool
}

// stop is one string with its Knuth–Morris–Pratt table: fail[i] is the length
// of the longest proper prefix of text that ends text[:i+1]; n is how much of
// text the input ends with.
type stop struct {
	text string
	fail []int
	n    int
}

// NewStopMatcher returns a matcher for the given strings; none at all lets
// everything through. An empty string or broken UTF-8 is an error.
func NewStopMatcher(stops []string) (*StopMatcher, error) {
	m := &StopMatcher{}
	for i, s := range stops {
		if s == "" {
			return nil, fmt.Errorf("sample: new stop matcher: stop string %d of %d is empty and would match everywhere: leave it out", i+1, len(stops))
		}
		if !utf8.ValidString(s) {
			return nil, fmt.Errorf("sample: new stop matcher: stop string %q is not valid UTF-8: no text would contain it", s)
		}
		fail := make([]int, len(s))
		for j, n := 1, 0; j < len(s); j++ {
			for n > 0 && s[j] != s[n] {
				n = fail[n-1]
			}
			if s[j] == s[n] {
				n++
			}
			fail[j] = n
		}
		m.stops = append(m.stops, stop{text: s, fail: fail})
	}
	return m, nil
}

// Push takes the next piece of text and returns what may be shown now, and
// whether a stop string has been found. Text from the stop string on is
// dropped, in this call and in all later ones.
//
// The stop found is the one that ends first; of several ending at the same
// byte the longest, so that the text is cut where the earliest begins.
func (m *StopMatcher) Push(piece string) (out string, done bool) {
	if m.done {
		return "", true
	}
	if len(m.stops) == 0 {
		return piece, false
	}
	for i := range len(piece) {
		m.held = append(m.held, piece[i])
		if cut := m.step(piece[i]); cut > 0 {
			m.done = true
			out = string(m.held[:len(m.held)-cut])
			m.held = nil
			return out, true
		}
	}
	keep := 0
	for i := range m.stops {
		keep = max(keep, m.stops[i].n)
	}
	out = string(m.held[:len(m.held)-keep])
	m.held = append(m.held[:0], m.held[len(m.held)-keep:]...)
	return out, false
}

// step advances every stop by one byte and returns the length of the longest
// that is complete, or 0.
func (m *StopMatcher) step(b byte) int {
	found := 0
	for i := range m.stops {
		s := &m.stops[i]
		for s.n > 0 && s.text[s.n] != b {
			s.n = s.fail[s.n-1]
		}
		if s.text[s.n] == b {
			s.n++
		}
		if s.n == len(s.text) && s.n > found {
			found, m.matched = s.n, s.text
		}
	}
	return found
}

// Flush ends the text: it returns what was held back because it looked like the
// beginning of a stop string, nothing after a match.
func (m *StopMatcher) Flush() string {
	out := string(m.held)
	m.held, m.done = nil, true
	return out
}

// Matched returns the stop string that was found, or "".
func (m *StopMatcher) Matched() string { return m.matched }
