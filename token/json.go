package token

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const maxDepth = 100 // nesting of JSON; real files have 6

// A cursor reads JSON in one pass without building values: a vocabulary has
// some 300,000 strings, and each is needed only until the next.
type cursor struct {
	data []byte
	pos  int
	buf  []byte // a string with escapes
}

func (c *cursor) fail(format string, args ...any) error {
	return fmt.Errorf("JSON at byte %d: %s", c.pos, fmt.Sprintf(format, args...))
}

// peek skips white space and returns the next byte, 0 at the end.
func (c *cursor) peek() byte {
	for ; c.pos < len(c.data); c.pos++ {
		switch b := c.data[c.pos]; b {
		case ' ', '\t', '\n', '\r':
		default:
			return b
		}
	}
	return 0
}

func (c *cursor) expect(b byte) error {
	if got := c.peek(); got != b {
		if c.pos >= len(c.data) {
			return c.fail("ends where %q should be", b)
		}
		return c.fail("found %q where %q should be", got, b)
	}
	c.pos++
	return nil
}

// object calls field at each value; key is valid only until the next string is read.
func (c *cursor) object(field func(key []byte) error) error {
	return c.list('{', '}', func(int) error {
		key, err := c.str()
		if err != nil {
			return err
		}
		if err := c.expect(':'); err != nil {
			return err
		}
		return field(key)
	})
}

// array calls element at each value.
func (c *cursor) array(element func(i int) error) error { return c.list('[', ']', element) }

func (c *cursor) list(open, close byte, element func(i int) error) error {
	if err := c.expect(open); err != nil {
		return err
	}
	if c.peek() == close {
		c.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		if c.peek() == close {
			c.pos++
			return nil
		}
		if err := c.expect(','); err != nil {
			return err
		}
	}
}

// end fails if anything but white space is left.
func (c *cursor) end() error {
	if b := c.peek(); c.pos < len(c.data) {
		return c.fail("found %q after the value", b)
	}
	return nil
}

// str reads a string. The result aliases the input, or scratch that the next
// call overwrites.
func (c *cursor) str() ([]byte, error) {
	if err := c.expect('"'); err != nil {
		return nil, err
	}
	start := c.pos
	for ; c.pos < len(c.data); c.pos++ {
		switch b := c.data[c.pos]; {
		case b == '"':
			c.pos++
			return c.data[start : c.pos-1], nil
		case b == '\\':
			c.buf = append(c.buf[:0], c.data[start:c.pos]...)
			return c.escaped()
		case b < ' ':
			return nil, c.fail("control character %#02x in a string", b)
		}
	}
	return nil, c.fail("ends inside a string")
}

// escaped reads the rest of a string from its first backslash.
func (c *cursor) escaped() ([]byte, error) {
	for c.pos < len(c.data) {
		b := c.data[c.pos]
		c.pos++
		switch {
		case b == '"':
			return c.buf, nil
		case b < ' ':
			return nil, c.fail("control character %#02x in a string", b)
		case b != '\\':
			c.buf = append(c.buf, b)
			continue
		}
		if c.pos >= len(c.data) {
			break
		}
		b = c.data[c.pos]
		c.pos++
		switch b {
		case '"', '\\', '/':
			c.buf = append(c.buf, b)
		case 'b':
			c.buf = append(c.buf, '\b')
		case 'f':
			c.buf = append(c.buf, '\f')
		case 'n':
			c.buf = append(c.buf, '\n')
		case 'r':
			c.buf = append(c.buf, '\r')
		case 't':
			c.buf = append(c.buf, '\t')
		case 'u':
			r, err := c.hex4()
			if err != nil {
				return nil, err
			}
			if utf16.IsSurrogate(r) {
				if c.pos+1 >= len(c.data) || c.data[c.pos] != '\\' || c.data[c.pos+1] != 'u' {
					return nil, c.fail("lone surrogate \\u%04x", r)
				}
				c.pos += 2
				low, err := c.hex4()
				if err != nil {
					return nil, err
				}
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					return nil, c.fail("lone surrogate before \\u%04x", low)
				}
			}
			c.buf = utf8.AppendRune(c.buf, r)
		default:
			return nil, c.fail("unknown escape \\%c", b)
		}
	}
	return nil, c.fail("ends inside a string")
}

func (c *cursor) hex4() (rune, error) {
	if c.pos+4 > len(c.data) {
		return 0, c.fail("ends inside \\u")
	}
	n, err := strconv.ParseUint(string(c.data[c.pos:c.pos+4]), 16, 16)
	if err != nil {
		return 0, c.fail("\\u%s is not hexadecimal", c.data[c.pos:c.pos+4])
	}
	c.pos += 4
	return rune(n), nil
}

// integer reads a number without fraction or exponent.
func (c *cursor) integer() (int64, error) {
	c.peek()
	start := c.pos
	for c.pos < len(c.data) && (c.data[c.pos] == '-' || c.data[c.pos] >= '0' && c.data[c.pos] <= '9') {
		c.pos++
	}
	n, err := strconv.ParseInt(string(c.data[start:c.pos]), 10, 64)
	if err != nil {
		return 0, c.fail("%.20q is not an integer", c.data[start:min(c.pos+1, len(c.data))])
	}
	return n, nil
}

// raw returns the text of the next value, balanced but otherwise unchecked.
func (c *cursor) raw() ([]byte, error) {
	c.peek()
	start, depth := c.pos, 0
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case '"':
			if err := c.skipString(); err != nil {
				return nil, err
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return nil, c.fail("nested deeper than %d", maxDepth)
			}
			c.pos++
			continue
		case '}', ']':
			if depth == 0 {
				return nil, c.fail("found %q where a value should be", c.data[c.pos])
			}
			depth--
			c.pos++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return nil, c.fail("found %q where a value should be", c.data[c.pos])
			}
			c.pos++
			continue
		default:
			c.skipScalar()
		}
		if depth == 0 {
			return c.data[start:c.pos], nil
		}
	}
	return nil, c.fail("ends inside a value")
}

func (c *cursor) skipString() error {
	for c.pos++; c.pos < len(c.data); c.pos++ {
		switch c.data[c.pos] {
		case '"':
			c.pos++
			return nil
		case '\\':
			c.pos++
		}
	}
	return c.fail("ends inside a string")
}

func (c *cursor) skipScalar() {
	for ; c.pos < len(c.data); c.pos++ {
		switch c.data[c.pos] {
		case '"', '{', '[', '}', ']', ',', ':', ' ', '\t', '\n', '\r':
			return
		}
	}
}

// decode reads the next value into v by encoding/json, for the small parts.
func (c *cursor) decode(v any) error {
	start := c.pos
	raw, err := c.raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("JSON from byte %d: %w", start, err)
	}
	return nil
}

// skip passes over the next value.
func (c *cursor) skip() error {
	start := c.pos
	raw, err := c.raw()
	if err == nil && !json.Valid(raw) {
		err = fmt.Errorf("JSON from byte %d: invalid value", start)
	}
	return err
}
