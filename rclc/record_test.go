package rclc

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"samebit/token"
)

// The spans of the goldens.
func TestSpansGoldens(t *testing.T) {
	b, err := os.ReadFile("../testdata/rclc/messages.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			ID      string
			Senders []struct {
				IDs    []int32
				Rows   struct{ Shape []int }
				Latent int `json:"latent_steps"`
			}
			Selected [][]int
			Expected struct{ Records [][]Span }
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range file.Cases {
		for i, want := range c.Expected.Records {
			s := c.Senders[i]
			got := spansOf(s.Rows.Shape[0], s.Latent, s.IDs, c.Selected[i], nil)
			if !slices.Equal(got, want) {
				t.Errorf("%s, sender %d: spans %+v, want %+v", c.ID, i, got, want)
			}
			n++
		}
	}
	if n == 0 {
		t.Error("no golden has records")
	}
}

// Spans cover everything once, are as long as they can be, and say in turn what the
// text says.
func TestSpansLaws(t *testing.T) {
	tok, err := token.Open("../testdata/models/tokenizers/bpe-512")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	text := tok.EncodePlain(nil, strings.Repeat(story+" ", 3))
	for range 500 {
		n := 1 + rng.IntN(60)
		latent := rng.IntN(min(n, 4))
		ids := slices.Clone(text[:n])
		for i := range ids {
			if i >= n-latent || rng.IntN(9) == 0 {
				ids[i] = -1
			}
		}
		tokens := ids
		if rng.IntN(5) == 0 {
			ids = nil
		}
		var kept []int
		for p := range n {
			if rng.IntN(3) == 0 {
				kept = append(kept, p)
			}
		}
		var got []int
		at := 0
		for i, s := range spansOf(n, latent, ids, kept, tok) {
			if s.Start != at || s.Stop <= at {
				t.Fatalf("seed 5,6: span %d is [%d, %d) after %d", i, s.Start, s.Stop, at)
			}
			all := spansOf(n, latent, ids, kept, tok)
			if i > 0 && all[i-1].Kept == s.Kept && all[i-1].Kind == s.Kind {
				t.Fatalf("seed 5,6: spans %d and %d are one", i-1, i)
			}
			for ; at < s.Stop; at++ {
				want := KindToken
				switch {
				case at >= n-latent:
					want = KindLatent
				case ids == nil:
					want = KindUnknown
				case ids[at] < 0:
					want = KindContinuous
				}
				if s.Kind != want {
					t.Fatalf("seed 5,6: position %d is %s, want %s", at, s.Kind, want)
				}
				if s.Kept {
					got = append(got, at)
				}
			}
			if (s.Text != "") != (s.Kind == KindToken) {
				t.Fatalf("seed 5,6: a span of kind %s has the text %q", s.Kind, s.Text)
			}
		}
		if at != n || !slices.Equal(got, kept) {
			t.Fatalf("seed 5,6: spans end at %d of %d and keep %v, want %v", at, n, got, kept)
		}
		// Without anything but tokens the texts join to the whole.
		var said strings.Builder
		for _, s := range spansOf(n, 0, text[:n], kept, tok) {
			said.WriteString(s.Text)
		}
		if want := tok.Text(text[:n]); said.String() != want {
			t.Fatalf("seed 5,6: the spans of %v say %q, want %q", tokens, said.String(), want)
		}
	}
}

// joined is a tokenizer that puts a space between tokens and none before the first.
type joined struct{ byteTokens }

func (joined) Text(ids []int32) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = string(rune('a' + id))
	}
	return strings.Join(words, " ")
}

// A span says what its tokens add to the text before it, spaces included.
func TestSpansKeepSpaces(t *testing.T) {
	ids := []int32{0, 1, 2, -1, 3, 4}
	var got []string
	for _, s := range spansOf(len(ids), 0, ids, []int{1, 5}, joined{}) {
		got = append(got, s.Text)
	}
	if want := []string{"a", " b", " c", "", "d", " e"}; !slices.Equal(got, want) {
		t.Errorf("the spans say %q, want %q", got, want)
	}
}
