package checkpoint

import (
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON strictly from bytes and keeps nothing but a position.
// encoding/json would accept duplicate keys, repair broken UTF-8 and build
// values before anything about them is known.
type scanner struct {
	b   []byte
	pos int
}

const (
	maxName  = 4096 // bytes of a tensor's or file's name
	maxDepth = 32   // nesting of a value that is skipped
)

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("JSON byte %d: %s", s.pos, fmt.Sprintf(format, args...))
}

// next skips white space and returns the next byte without taking it, 0 at the
// end (a NUL is never valid here, so the two need no distinction).
func (s *scanner) next() byte {
	for s.pos < len(s.b) {
		switch c := s.b[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if got := s.next(); got != c {
		if s.pos >= len(s.b) {
			return s.errorf("ends where %q is expected", c)
		}
		return s.errorf("%q where %q is expected", got, c)
	}
	s.pos++
	return nil
}

// end fails unless only white space follows.
func (s *scanner) end() error {
	if s.next(); s.pos < len(s.b) {
		return s.errorf("%q after the end of the value", s.b[s.pos])
	}
	return nil
}

// object calls member for every key, which must read the value.
func (s *scanner) object(member func(key string) error) error {
	return s.list('{', '}', func() error {
		key, err := s.str(maxName)
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return member(key)
	})
}

// array calls element at every element, which must read it.
func (s *scanner) array(element func() error) error { return s.list('[', ']', element) }

func (s *scanner) list(first, last byte, item func() error) error {
	if err := s.expect(first); err != nil {
		return err
	}
	if s.next() == last {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if s.next() == ',' {
			s.pos++
			continue
		}
		return s.expect(last)
	}
}

// str reads a string of at most limit bytes (an escape may spell a byte with
// six).
func (s *scanner) str(limit int) (string, error) {
	raw, escaped, err := s.rawString()
	if err != nil {
		return "", err
	}
	n := len(raw)
	if escaped && n <= 6*limit {
		raw = unescape(raw)
		n = len(raw)
	}
	if n > limit {
		return "", s.errorf("string of %d bytes, at most %d are allowed here", n, limit)
	}
	return string(raw), nil
}

// rawString takes a string and returns what is between the quotes, checked:
// valid UTF-8, no control characters, complete escapes, paired surrogates.
func (s *scanner) rawString() (raw []byte, escaped bool, err error) {
	if err := s.expect('"'); err != nil {
		return nil, false, err
	}
	start := s.pos
	for s.pos < len(s.b) {
		switch c := s.b[s.pos]; {
		case c == '"':
			raw = s.b[start:s.pos]
			if !utf8.Valid(raw) {
				return nil, false, s.errorf("string is not valid UTF-8")
			}
			s.pos++
			return raw, escaped, nil
		case c < ' ':
			return nil, false, s.errorf("control character %#02x in a string", c)
		case c == '\\':
			escaped = true
			n := escapeLen(s.b[s.pos:])
			if n == 0 {
				return nil, false, s.errorf("invalid escape in a string")
			}
			s.pos += n
		default:
			s.pos++
		}
	}
	return nil, false, s.errorf("string without an end")
}

// escapeLen returns the length of the escape (both halves of a surrogate pair)
// at the start of b, 0 when it is invalid.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r, ok := hex4(b)
		if !ok {
			return 0
		}
		if !utf16.IsSurrogate(r) {
			return 6
		}
		if low, ok := hex4(b[6:]); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
			return 12
		}
	}
	return 0
}

// hex4 reads \uXXXX.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape decodes what rawString has checked.
func unescape(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			i++
			continue
		}
		n := escapeLen(raw[i:])
		switch c := raw[i+1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(raw[i:])
			if n == 12 {
				low, _ := hex4(raw[i+6:])
				r = utf16.DecodeRune(r, low)
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
		i += n
	}
	return out
}

// uint reads a non-negative integer without sign, fraction or exponent.
func (s *scanner) uint() (uint64, error) {
	s.next()
	start, n := s.pos, uint64(0)
	for s.pos < len(s.b) && '0' <= s.b[s.pos] && s.b[s.pos] <= '9' {
		hi, lo := bits.Mul64(n, 10)
		sum, carry := bits.Add64(lo, uint64(s.b[s.pos]-'0'), 0)
		if hi != 0 || carry != 0 {
			return 0, s.errorf("number beyond 2^64")
		}
		n = sum
		s.pos++
	}
	digits := s.b[start:s.pos]
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, s.errorf("a non-negative integer is expected")
	}
	if s.pos < len(s.b) {
		switch s.b[s.pos] {
		case '.', 'e', 'E':
			return 0, s.errorf("a non-negative integer is expected")
		}
	}
	return n, nil
}

// skip reads any value and forgets it.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.errorf("nested deeper than %d", maxDepth)
	}
	switch c := s.next(); {
	case c == '{':
		return s.list('{', '}', func() error {
			if _, _, err := s.rawString(); err != nil {
				return err
			}
			if err := s.expect(':'); err != nil {
				return err
			}
			return s.skip(depth + 1)
		})
	case c == '[':
		return s.list('[', ']', func() error { return s.skip(depth + 1) })
	case c == '"':
		_, _, err := s.rawString()
		return err
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	return s.errorf("a value is expected")
}

func (s *scanner) literal(word string) error {
	if len(s.b)-s.pos < len(word) || string(s.b[s.pos:s.pos+len(word)]) != word {
		return s.errorf("a value is expected")
	}
	s.pos += len(word)
	return nil
}

// number takes the longest run of number characters and asks strconv. That is a
// little wider than JSON's grammar (01 passes), which is harmless for a value
// nobody reads.
func (s *scanner) number() error {
	start := s.pos
	for s.pos < len(s.b) {
		switch c := s.b[s.pos]; {
		case '0' <= c && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			s.pos++
			continue
		}
		break
	}
	if s.pos-start > 64 {
		return s.errorf("number of %d characters", s.pos-start)
	}
	if _, err := strconv.ParseFloat(string(s.b[start:s.pos]), 64); err != nil {
		return s.errorf("invalid number")
	}
	return nil
}
