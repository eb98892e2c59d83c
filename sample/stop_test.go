package sample

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func pushAll(t *testing.T, stops, pieces []string) (string, *StopMatcher) {
	t.Helper()
	m, err := NewStopMatcher(stops)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range pieces {
		out, _ := m.Push(p)
		if !utf8.ValidString(out) {
			t.Errorf("stops %q: piece %q gave broken UTF-8 %q", stops, p, out)
		}
		b.WriteString(out)
	}
	b.WriteString(m.Flush())
	return b.String(), m
}

func TestStopMatcher(t *testing.T) {
	tests := []struct {
		name, want, matched string
		stops, pieces       []string
	}{
		{"over two tokens", "alpha ", "beta gamma", []string{"beta gamma"}, []string{"alpha", " beta", " gamma", " delta"}},
		{"ends inside a token", "alpha ", "beta ga", []string{"beta ga"}, []string{"alpha", " beta", " gamma", " delta"}},
		{"role prefix", "Hi", "\nUser:", []string{"\nUser:"}, []string{"Hi", "\nUser", ":", " more"}},
		{"no match, held text comes out", "Hi\nUser", "", []string{"\nUser:"}, []string{"Hi", "\nUser"}},
		{"nothing after the match", "one, two, three, four, ", "five", []string{"five"}, []string{"one, two, three, four, five, six", ", seven"}},
		{"restart inside a partial match", "aa", "ab", []string{"ab"}, []string{"a", "a", "ab", "b"}},
		{"first to end wins", "a", "bc", []string{"abcd", "bc"}, []string{"ab", "cd"}},
		{"longest of those ending together", "x", "abc", []string{"c", "abc", "bc"}, []string{"xab", "c"}},
		{"at the very start", "", "stop", []string{"stop"}, []string{"stop", "x"}},
		{"no stops", "abc", "", nil, []string{"a", "bc"}},
		{"shared first byte of a rune", "né", "è", []string{"è"}, []string{"né", "è"}},
		{"joined emoji", "👩‍👩", "👩‍👩‍👧", []string{"👩‍👩‍👧"}, []string{"👩‍👩", "👩‍👩‍👧", "!"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, m := pushAll(t, tt.stops, tt.pieces)
			if got != tt.want || m.Matched() != tt.matched {
				t.Errorf("got %q matched %q, want %q matched %q", got, m.Matched(), tt.want, tt.matched)
			}
			if out, _ := m.Push("late"); tt.matched != "" && out != "" {
				t.Errorf("text after the match came out: %q", out)
			}
		})
	}
	for _, bad := range []string{"", "\xff"} {
		if _, err := NewStopMatcher([]string{"ok", bad}); err == nil {
			t.Errorf("stop string %q was accepted", bad)
		}
	}
}

// However the text is cut, the output is the text before the stop that ends first.
func TestStopMatcherPieces(t *testing.T) {
	const seed = 71
	r := rand.New(rand.NewPCG(seed, 0))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[r.IntN(2)]
		}
		return string(b)
	}
	for range 2000 {
		text := word(r.IntN(30))
		stops := []string{word(1 + r.IntN(6)), word(2 + r.IntN(8))}
		want := text
	ends:
		for end := range len(text) + 1 {
			best := 0
			for _, s := range stops {
				if strings.HasSuffix(text[:end], s) {
					best = max(best, len(s))
				}
			}
			if best > 0 {
				want = text[:end-best]
				break ends
			}
		}
		m, _ := NewStopMatcher(stops)
		var got string
		for rest := text; rest != ""; {
			n := 1 + r.IntN(len(rest))
			out, _ := m.Push(rest[:n])
			got, rest = got+out, rest[n:]
			if !strings.HasPrefix(want, got) {
				t.Fatalf("seed %d: text %q stops %q: %q came out, want only %q", seed, text, stops, got, want)
			}
		}
		if got += m.Flush(); got != want {
			t.Fatalf("seed %d: text %q stops %q: got %q, want %q", seed, text, stops, got, want)
		}
	}
}
