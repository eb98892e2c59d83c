package token_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"samebit/token"
)

var corpus = []string{
	"The quick brown fox jumps over the lazy dog. The dog sleeps.\n\nIt isn't the fox's dog, is it?",
	"low low low lower lowest newer newer wider 1234 1299 12\n",
	"Café naïve façade — “quotes” … 東京 tōkyō, \u200b\x00 \xff\xfe ends",
	"<|im_start|>user\nHello there<|im_end|>\n",
}

func train(t *testing.T, cfg token.TrainConfig, texts ...string) (*token.Tokenizer, []byte) {
	t.Helper()
	data, err := token.Train(slices.Values(texts), cfg)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := token.Parse(data)
	if err != nil {
		t.Fatalf("what was trained cannot be read: %v", err)
	}
	return tok, data
}

// Any text comes back, and the vocabulary has the size that was asked for.
func TestTrainedVocabulary(t *testing.T) {
	special := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
	for _, pre := range []string{"", "qwen2", "qwen35", "llama-bpe"} {
		tok, _ := train(t, token.TrainConfig{Vocab: 280, Special: special, Pre: pre}, corpus...)
		if tok.Size() != 280 {
			t.Errorf("%q: %d ids instead of 280", pre, tok.Size())
		}
		if id := tok.ID("<|im_end|>"); id != 279 {
			t.Errorf("%q: the last control token has id %d", pre, id)
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			b := make([]byte, r.IntN(40))
			for i := range b {
				b[i] = byte(r.UintN(256))
			}
			text := string(b)
			if r.IntN(2) == 0 {
				text = corpus[r.IntN(3)]
			}
			ids := tok.Encode(nil, text)
			if got := string(tok.Decode(nil, ids)); got != text && strings.ToValidUTF8(text, "") == text {
				t.Fatalf("%q: %q comes back as %q", pre, text, got)
			}
		}
	}
}

// The order of texts does not matter; the frequent word is one token.
func TestTrainingIsDeterministic(t *testing.T) {
	cfg := token.TrainConfig{Vocab: 290}
	tok, a := train(t, cfg, corpus...)
	back := slices.Clone(corpus)
	slices.Reverse(back)
	if _, b := train(t, cfg, back...); string(a) != string(b) {
		t.Error("the order of texts changes the vocabulary")
	}
	if ids := tok.Encode(nil, " low"); len(ids) != 1 {
		t.Errorf("\" low\" is %d tokens", len(ids))
	}
}

// What a control token spells is no merge, however often it occurs.
func TestControlTokensAreNoMerges(t *testing.T) {
	special := []string{"lo", "we", "new", strings.Repeat("x", 1024)}
	tok, _ := train(t, token.TrainConfig{Vocab: 290, Special: special}, corpus...)
	for i, s := range special {
		if id := tok.ID(s); id != int32(286+i) {
			t.Errorf("%.10q has id %d, not %d", s, id, 286+i)
		}
	}
}

// Merges are those of a count that starts anew after each of them.
func TestMergesAgainstCountingAnew(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		var words []string
		for range 30 {
			w := make([]byte, 1+r.IntN(7))
			for i := range w {
				w[i] = "abc"[r.IntN(3)]
			}
			words = append(words, string(w))
		}
		_, data := train(t, token.TrainConfig{Vocab: 256 + 12}, strings.Join(words, "\n"))
		var doc struct {
			Model struct{ Merges [][2]string }
		}
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		split := make([][]string, len(words))
		for i, w := range words {
			split[i] = strings.Split(w, "")
		}
		order := map[string]int{}
		rank := func(s string) int {
			if len(s) == 1 {
				return int(s[0])
			}
			return order[s]
		}
		for n, got := range doc.Model.Merges {
			counts := map[[2]string]int{}
			for _, w := range split {
				for i := 1; i < len(w); i++ {
					counts[[2]string{w[i-1], w[i]}]++
				}
			}
			var want [2]string
			for p, c := range counts {
				less := rank(p[0]) < rank(want[0]) || rank(p[0]) == rank(want[0]) && rank(p[1]) < rank(want[1])
				if c > counts[want] || c == counts[want] && less {
					want = p
				}
			}
			if got != want {
				t.Fatalf("merge %d of %q is %q (%d times), not %q (%d times)", n, words, got, counts[got], want, counts[want])
			}
			joined := want[0] + want[1]
			if order[joined] == 0 {
				order[joined] = 256 + len(order)
			}
			for k, w := range split {
				var out []string
				for i := 0; i < len(w); i++ {
					if i+1 < len(w) && w[i] == want[0] && w[i+1] == want[1] {
						out = append(out, joined)
						i++
						continue
					}
					out = append(out, w[i])
				}
				split[k] = out
			}
		}
	}
}

func TestTrainRefuses(t *testing.T) {
	for _, cfg := range []token.TrainConfig{
		{Vocab: 200}, {Vocab: 256, Special: []string{"xx"}}, {Vocab: math.MinInt}, {Vocab: 1<<20 + 1}, {Vocab: math.MaxInt}, {Vocab: 300, Pre: "bert"},
		{Vocab: 300, Special: []string{"aa", "aa"}}, {Vocab: 300, Special: []string{""}}, {Vocab: 300, Special: []string{"x"}},
		{Vocab: 300, Special: []string{"a\xff"}}, {Vocab: 300, Special: []string{strings.Repeat("x", 1025)}},
	} {
		if _, err := token.Train(slices.Values(corpus), cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
