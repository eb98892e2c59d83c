package token

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// reference encodes as the package comment says, step by step, from
// tokenizer.json as encoding/json reads it.
type reference struct {
	split       func(string) []string
	nfc, whole  bool
	vocab       map[string]int32
	rank        map[[2]string]int
	added       map[string]int32
	byteLetters [256]string
}

func newReference(t testing.TB, name string) *reference {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldenDir, name, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Added []struct {
			ID      int32
			Content string
		} `json:"added_tokens"`
		Normalizer *struct{}
		Model      struct {
			Whole  bool `json:"ignore_merges"`
			Vocab  map[string]int32
			Merges [][2]string
		}
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	pre := map[string]string{"bpe-qwen35-1k": "qwen35", "bpe-llama3-1k": "llama-bpe", "bpe-smollm-1k": "smollm"}[name]
	if pre == "" {
		pre = "qwen2"
	}
	r := &reference{split: slowSplit(pre), nfc: f.Normalizer != nil, whole: f.Model.Whole, vocab: f.Model.Vocab, rank: map[[2]string]int{}, added: map[string]int32{}}
	for i, m := range f.Model.Merges {
		r.rank[m] = i
	}
	for _, a := range f.Added {
		r.added[a.Content] = a.ID
	}
	next := rune(256)
	for b := range 256 {
		c := rune(b)
		if !(b >= 33 && b <= 126 || b >= 161 && b <= 172 || b >= 174) {
			c = next
			next++
		}
		r.byteLetters[b] = string(c)
	}
	return r
}

func (r *reference) encode(text string) (ids []int32) {
	start := 0
	for i := 0; i < len(text); {
		best := ""
		for a := range r.added {
			if strings.HasPrefix(text[i:], a) && len(a) > len(best) {
				best = a
			}
		}
		if best == "" {
			i++
			continue
		}
		ids = append(ids, r.part(text[start:i])...)
		ids = append(ids, r.added[best])
		i += len(best)
		start = i
	}
	return append(ids, r.part(text[start:])...)
}

func (r *reference) part(text string) (ids []int32) {
	if r.nfc {
		text = norm.NFC.String(text)
	}
	for _, piece := range r.split(text) {
		var syms []string
		for i := range len(piece) {
			syms = append(syms, r.byteLetters[piece[i]])
		}
		if r.whole {
			if _, ok := r.vocab[strings.Join(syms, "")]; ok {
				syms = []string{strings.Join(syms, "")}
			}
		}
		for {
			at, best := -1, 0
			for i := range len(syms) - 1 {
				if rank, ok := r.rank[[2]string{syms[i], syms[i+1]}]; ok && (at < 0 || rank < best) {
					at, best = i, rank
				}
			}
			if at < 0 {
				break
			}
			syms = slices.Replace(syms, at, at+2, syms[at]+syms[at+1])
		}
		for _, s := range syms {
			ids = append(ids, r.vocab[s])
		}
	}
	return ids
}

// snippets are what the patterns turn on.
var snippets = []string{
	"'", "'s", "'S", "'ſ", "'t", "'re", "'RE", "'rE", "'ll", "'LL", "'l", "'ve", "'V", "'m", "'d", "'D", "’s", "ſ", "K",
	" ", " ", " ", "  ", "\t", "\n", "\n", "\r", "\r\n", "\v", "\f", "\u0085", "\u00a0", "\u3000", "\u2028", "\u200b", "\ufeff", "\u180e", "\x1c", "\x1f", "\x00",
	"0", "1", "23", "4567", "½", "Ⅷ", "①", "٣", "𝟘", "a", "the", "Hello", "é", "ß", "漢字", "かな", "한", "ǅ", "ʰ", "𝔘", "ﬁ",
	"\u0301", "\u0338", "\u0903", "\u20dd", "\U0001d165", "e\u0301", "o\u0323\u0302", "ṩ", "각",
	"!", ">", "->", "(x):", "…", "$", "+", "_", "😀", "👩‍👧", "🇩🇪", "\U0001fae0", "\ue000", "\u0378", "\xff", "\xe4\xbd", "\x80",
	"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<think>", "</think>", "<tool_call>", "<|im_", "</t", strings.Repeat("ab", 30), strings.Repeat("-", 50), strings.Repeat(" ", 45),
}

func randomText(rng *rand.Rand) string {
	var b strings.Builder
	for range rng.IntN(12) {
		switch rng.IntN(12) {
		case 0:
			b.WriteRune(rng.Int32N(unicode.MaxRune + 1))
		case 1:
			b.WriteRune(rng.Int32N(0x3000))
		default:
			b.WriteString(snippets[rng.IntN(len(snippets))])
		}
	}
	return b.String()
}

func TestSplitterEqualsRegex(t *testing.T) {
	texts := 30000
	if testing.Short() {
		texts = 2000
	}
	for _, pre := range []string{"qwen2", "qwen35", "llama-bpe", "smollm"} {
		slow := slowSplit(pre)
		fast, _ := newSplitter(pre)
		rng := rand.New(rand.NewPCG(3, 4))
		for i := range texts {
			text := randomText(rng)
			var got []string
			for rest := text; rest != ""; {
				n := fast.next(rest)
				got = append(got, rest[:n])
				rest = rest[n:]
			}
			if want := slow(text); !slices.Equal(got, want) {
				t.Fatalf("%s, text %d of seed 3, 4: %q\n got %q\nwant %q", pre, i, text, got, want)
			}
		}
	}
}

func TestClassOfEveryCharacter(t *testing.T) {
	table := classes()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		var want class
		for c, in := range map[class]bool{
			isLetter: unicode.Is(unicode.L, r), isMark: unicode.Is(unicode.M, r), isNumber: unicode.Is(unicode.N, r),
			isSpace: unicode.IsSpace(r), isBreak: r == '\r' || r == '\n',
		} {
			if in {
				want |= c
			}
		}
		s := string(r)
		if got, size := table.at("a"+s, 1); got != want || size != len(s) {
			t.Fatalf("%U has class %b and length %d, want %b and %d", r, got, size, want, len(s))
		}
		if testing.Short() {
			r += 12
		}
	}
}

func TestEncodeEqualsReference(t *testing.T) {
	texts := 3000
	if testing.Short() {
		texts = 200
	}
	for _, name := range smallNames {
		tok, ref := small(t, name), newReference(t, name)
		rng := rand.New(rand.NewPCG(5, 6))
		for i := range texts {
			text := randomText(rng)
			if got, want := tok.Encode(nil, text), ref.encode(text); !slices.Equal(got, want) {
				t.Fatalf("%s, text %d of seed 5, 6: %q\n got %v\nwant %v", name, i, text, got, want)
			}
		}
	}
}

// Both ways of merging give the same ids.
func TestMergeLongEqualsShort(t *testing.T) {
	for _, name := range smallNames {
		tok := small(t, name)
		rng := rand.New(rand.NewPCG(7, 8))
		for range 3000 {
			b := make([]byte, rng.IntN(shortPiece+1))
			for i := range b {
				b[i] = "aehinorst \n<\xe4\xbd\xa0"[rng.IntN(15)]
			}
			short := tok.mergeShort(nil, string(b))
			if long := tok.mergeLong(nil, string(b), new(scratch)); !slices.Equal(short, long) {
				t.Fatalf("%s: %q: short %v, long %v", name, b, short, long)
			}
		}
	}
}
