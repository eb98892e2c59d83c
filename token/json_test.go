package token

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf16"
)

// Strings are read as encoding/json reads them, however they are written.
func TestCursorStrings(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for i := range 2000 {
		text := strings.ToValidUTF8(randomText(rng), "?") + "\"\\/\b\f\n\r\t"[:rng.IntN(9)]
		plain, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var escaped strings.Builder
		escaped.WriteByte('"')
		for _, u := range utf16.Encode([]rune(text)) {
			fmt.Fprintf(&escaped, `\u%04X`, u)
		}
		escaped.WriteByte('"')
		c := cursor{data: []byte(" [" + string(plain) + ",\n" + escaped.String() + "\t] ")}
		if raw, err := (&cursor{data: c.data}).raw(); err != nil || !json.Valid(raw) {
			t.Fatalf("text %d: raw gives %q, %v", i, raw, err)
		}
		n := 0
		if err := c.array(func(int) error {
			s, err := c.str()
			if err == nil && string(s) != text {
				err = fmt.Errorf("got %q, want %q", s, text)
			}
			n++
			return err
		}); err != nil || n != 2 || c.end() != nil {
			t.Fatalf("text %d of seed 11, 12: %d strings, %v", i, n, err)
		}
	}
}

func TestCursorErrors(t *testing.T) {
	for _, text := range []string{``, `"`, `"a`, `"\`, `"\"`, `"\x"`, `"\u12"`, `"\u12G4"`, `"\ud800"`, `"\ud800\n"`, `"\ud800\u0041"`, `"\udc00"`, "\"\n\"", "\"\\t\n\"", `a`} {
		c := cursor{data: []byte(text)}
		if s, err := c.str(); err == nil {
			t.Errorf("str of %q gives %q", text, s)
		}
	}
	for _, text := range []string{``, `[`, `{"a"`, `]`, `}`, `,`, `"`, `[[]`, `["\"]`} {
		c := cursor{data: []byte(text)}
		if s, err := c.raw(); err == nil {
			t.Errorf("raw of %q gives %q", text, s)
		}
	}
	for _, text := range []string{``, `-`, `1-1`, `99999999999999999999`, `x`} {
		c := cursor{data: []byte(text)}
		if n, err := c.integer(); err == nil {
			t.Errorf("integer of %q gives %d", text, n)
		}
	}
	for _, text := range []string{`[1,]`, `[1 2]`, `[,1]`, `[1`, `[`, `1`} {
		c := cursor{data: []byte(text)}
		if err := c.array(func(int) error { _, err := c.integer(); return err }); err == nil {
			t.Errorf("array takes %q", text)
		}
	}
	for _, text := range []string{`{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{1:1}`, `{"a":1 "b":2}`} {
		c := cursor{data: []byte(text)}
		if err := c.object(func([]byte) error { _, err := c.integer(); return err }); err == nil {
			t.Errorf("object takes %q", text)
		}
	}
	for _, text := range []string{`tru`, `[1,]`, `{"a":1]`, `01`} {
		c := cursor{data: []byte(text)}
		if err := c.skip(); err == nil {
			t.Errorf("skip takes %q", text)
		}
	}
}
