package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/term"
)

// typed is a terminal on which keys were pressed, a chunk per read.
func typed(chunks ...string) (*lines, *bytes.Buffer) {
	var readers []io.Reader
	for _, c := range chunks {
		readers = append(readers, strings.NewReader(c))
	}
	out := new(bytes.Buffer)
	l := &lines{out: out, keys: &keys{r: io.MultiReader(readers...)}}
	l.edit = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{l.keys, out}, "> ")
	l.edit.History = &history{}
	return l, out
}

func TestEditing(t *testing.T) {
	const up = "\x1b[A"
	tests := []struct {
		name string
		keys []string
		want []string // turns, up to the end of the input
		why  string
	}{
		{"plain", []string{"one\rtwo\r"}, []string{"one", "two"}, "a line is a turn"},
		{"backspace", []string{"hek\x7fllo\r"}, []string{"hello"}, "line editing"},
		{"history", []string{"one\r", up + "!\r"}, []string{"one", "one!"}, "arrow up brings the last line back"},
		{"continued", []string{"one\\\rtwo\r"}, []string{"one\ntwo"}, "a backslash joins lines"},
		{"interrupt", []string{"abc", "\x03", "def\r"}, []string{"def"}, "Ctrl-C drops the line and no more"},
		{"interrupt inside", []string{"abc\x1b[D\x1b[D", "\x03def\r"}, []string{"def"}, "wherever the cursor is"},
		{"interrupt after a joined line", []string{"one\\\r", "\x03", "two\r"}, []string{"two"}, "and the lines before it"},
		{"two interrupts", []string{"\x03", "\x03", "x\r"}, []string{"x"}, "an empty line is no end"},
		{"paste", []string{"\x1b[200~one\rtwo\rthree\x1b[201~", "\r"}, []string{"one\ntwo\nthree"}, "a pasted text is one turn"},
		{"end", []string{"one\r\x04two\r"}, []string{"one"}, "Ctrl-D ends"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, out := typed(tt.keys...)
			for i := 0; ; i++ {
				turn, err := l.turn()
				if err != nil {
					if !errors.Is(err, io.EOF) || i != len(tt.want) {
						t.Errorf("turn %d: %v, want %d turns and the end (%s)\n%q", i, err, len(tt.want), tt.why, out)
					}
					return
				}
				if i >= len(tt.want) || turn != tt.want[i] {
					t.Fatalf("turn %d is %q, want %q (%s)\n%q", i, turn, tt.want, tt.why, out)
				}
			}
		})
	}
}

func TestTurnsWithoutTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		io.WriteString(w, "one\r\ntwo\\\nthree\n\nlast \\")
		w.Close()
	}()
	l := newLines(r, os.Stdout)
	for _, want := range []string{"one", "two\nthree", "", "last \n"} {
		want = strings.TrimRight(want, "\n")
		if got, err := l.read(t.Context(), nil); err != nil || strings.TrimRight(got, "\n") != want {
			t.Errorf("turn = %q, %v; want %q", got, err, want)
		}
	}
	if _, err := l.read(t.Context(), nil); !errors.Is(err, io.EOF) {
		t.Errorf("after the last turn: %v, want the end", err)
	}
}
