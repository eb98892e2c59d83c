package emu

import (
	"fmt"
	"strings"
)

// SyntaxError is a place in PTX text that cannot be read or must not be run.
type SyntaxError struct {
	Line int
	What string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("emu: PTX line %d: %s", e.Line, e.What) }

func syntax(line int, format string, args ...any) error {
	return &SyntaxError{line, fmt.Sprintf(format, args...)}
}

// token is a word (with the dots inside it) or one mark of punctuation.
type token struct {
	text string
	line int
}

func wordByte(c byte) bool {
	return c == '_' || c == '$' || c == '%' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// lex cuts PTX text into tokens and drops comments. The texts are parts of src.
func lex(src string) ([]token, error) {
	var out []token
	line := 1
	for i := 0; i < len(src); {
		c := src[i]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(src[i:], "//"):
			n := strings.IndexByte(src[i:], '\n')
			if n < 0 {
				return out, nil
			}
			i += n
		case strings.HasPrefix(src[i:], "/*"):
			n := strings.Index(src[i:], "*/")
			if n < 0 {
				return nil, syntax(line, "a comment does not end")
			}
			line += strings.Count(src[i:i+n], "\n")
			i += n + 2
		case c == '"':
			n := strings.IndexByte(src[i+1:], '"')
			if n < 0 || strings.ContainsRune(src[i+1:i+1+n], '\n') {
				return nil, syntax(line, "a string does not end")
			}
			out = append(out, token{src[i : i+n+2], line})
			i += n + 2
		case wordByte(c):
			j := i + 1
			for j < len(src) && wordByte(src[j]) {
				j++
			}
			out = append(out, token{src[i:j], line})
			i = j
		case strings.IndexByte("(){}[]<>,;:@!|=+-~*/", c) >= 0:
			out = append(out, token{src[i : i+1], line})
			i++
		default:
			return nil, syntax(line, "unexpected character %q", c)
		}
	}
	return out, nil
}
