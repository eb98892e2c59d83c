package token

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"unicode/utf8"
)

// TrainConfig says what vocabulary is trained.
type TrainConfig struct {
	Vocab   int      // ids, the 256 bytes and the control tokens included; at most 2²⁰
	Special []string // control tokens of 2 to 1,024 bytes; they get the highest ids, in this order
	Pre     string   // how text is cut into pieces, "qwen2" (which "" means), "qwen35" or "llama-bpe"
}

// pair are two neighbours that a merge makes one.
type pair struct{ a, b int32 }

// word is a piece of the text with the number of times it occurs.
type word struct {
	symbols []int32
	count   int64
}

// Train makes a byte-level BPE vocabulary from texts, and returns it as the text of
// a Hugging Face tokenizer.json, which Parse reads. Merge after merge joins the two
// neighbours that occur together most often, counted within the pieces that the
// pre-tokenizer cuts; of equally frequent ones those with the lowest ids. No merge
// spells a control token. It makes fewer ids than asked for when no pair occurs twice
// any more. The same texts in any order give the same vocabulary.
func Train(texts iter.Seq[string], cfg TrainConfig) ([]byte, error) {
	pre := cmp.Or(cfg.Pre, "qwen2")
	regex, known := splitRegex()[pre]
	s, ok := newSplitter(pre)
	if !known || !ok {
		return nil, fmt.Errorf("token: no pre-tokenizer %q to train for: use qwen2, qwen35 or llama-bpe", pre)
	}
	switch {
	case cfg.Vocab < 256+len(cfg.Special):
		return nil, fmt.Errorf("token: a vocabulary of %d ids has no room for 256 bytes and %d control tokens", cfg.Vocab, len(cfg.Special))
	case cfg.Vocab > maxIDs:
		return nil, fmt.Errorf("token: a vocabulary of %d ids is more than the limit of %d", cfg.Vocab, maxIDs)
	}
	for i, t := range cfg.Special {
		switch {
		case t == "" || slices.Contains(cfg.Special[:i], t):
			return nil, fmt.Errorf("token: control token %d, %q, is empty or given twice", i, t)
		case len(t) > maxAdded:
			return nil, fmt.Errorf("token: control token %d, %.40q…, has %d bytes, more than the limit of %d", i, t, len(t), maxAdded)
		case !utf8.ValidString(t):
			return nil, fmt.Errorf("token: control token %d, %q, is not UTF-8", i, t)
		case len(t) == 1:
			return nil, fmt.Errorf("token: control token %d, %q, is one of the 256 bytes, which have ids: name it with two characters or more", i, t)
		}
	}
	most := cfg.Vocab - len(cfg.Special)
	tokens := make([][]byte, 256)
	for b := range tokens {
		tokens[b] = []byte{byte(b)}
	}
	ids := map[string]int32{}
	for b, t := range tokens {
		ids[string(t)] = int32(b)
	}
	var merges []pair
	t := newTally(pieces(texts, &s))
	for len(tokens) < most {
		p, n := t.best()
		if n < 2 {
			break
		}
		joined := append(slices.Clone(tokens[p.a]), tokens[p.b]...)
		if slices.Contains(cfg.Special, string(joined)) {
			t.never[p] = true
			continue
		}
		id, known := ids[string(joined)] // two merges may lead to one token
		if !known {
			id = int32(len(tokens))
			ids[string(joined)] = id
			tokens = append(tokens, joined)
		}
		t.merge(p, id)
		merges = append(merges, p)
	}
	text, err := writeTokenizer(tokens, merges, cfg.Special, regex)
	if err == nil && len(text) > maxFileBytes {
		return nil, fmt.Errorf("token: the vocabulary takes %d bytes, more than the limit of %d: ask for fewer ids, or give texts whose repetitions are shorter", len(text), maxFileBytes)
	}
	return text, err
}

// pieces counts the pieces of texts, in an order of their own.
func pieces(texts iter.Seq[string], s *splitter) []word {
	counts := map[string]int64{}
	for text := range texts {
		text = nfc(text)
		for len(text) > 0 {
			n := s.next(text)
			counts[text[:n]]++
			text = text[n:]
		}
	}
	keys := make([]string, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	words := make([]word, len(keys))
	for i, k := range keys {
		w := word{make([]int32, len(k)), counts[k]}
		for j := range len(k) {
			w.symbols[j] = int32(k[j])
		}
		words[i] = w
	}
	return words
}

// tally knows how often each pair occurs, and in which words.
type tally struct {
	words []word
	count map[pair]int64
	where map[pair]map[int]struct{}
	never map[pair]bool // not to be merged
}

func newTally(words []word) *tally {
	t := &tally{words, map[pair]int64{}, map[pair]map[int]struct{}{}, map[pair]bool{}}
	for i := range words {
		t.add(i, 1)
	}
	return t
}

// add counts the pairs of a word sign times more.
func (t *tally) add(i int, sign int64) {
	w := &t.words[i]
	for j := 1; j < len(w.symbols); j++ {
		p := pair{w.symbols[j-1], w.symbols[j]}
		t.count[p] += sign * w.count
		if t.count[p] == 0 {
			t.drop(p)
			continue
		}
		if sign > 0 {
			if t.where[p] == nil {
				t.where[p] = map[int]struct{}{}
			}
			t.where[p][i] = struct{}{}
		}
	}
}

func (t *tally) drop(p pair) {
	delete(t.count, p)
	delete(t.where, p)
}

// best is the most frequent pair that may be merged, the lowest of equals.
func (t *tally) best() (best pair, n int64) {
	for p, c := range t.count {
		if (c > n || c == n && (p.a < best.a || p.a == best.a && p.b < best.b)) && !t.never[p] {
			best, n = p, c
		}
	}
	return best, n
}

// merge makes the pair one symbol wherever it stands.
func (t *tally) merge(p pair, id int32) {
	in := make([]int, 0, len(t.where[p]))
	for i := range t.where[p] {
		in = append(in, i)
	}
	slices.Sort(in)
	for _, i := range in {
		t.add(i, -1)
		w := &t.words[i]
		out := w.symbols[:0]
		for j := 0; j < len(w.symbols); j++ {
			if j+1 < len(w.symbols) && w.symbols[j] == p.a && w.symbols[j+1] == p.b {
				out = append(out, id)
				j++
				continue
			}
			out = append(out, w.symbols[j])
		}
		w.symbols = out
		t.add(i, 1)
	}
	t.drop(p)
}

// spell writes bytes in the alphabet of tokenizer.json, where each byte is a
// character that can be seen.
func spell(b []byte) string {
	var out []rune
	for _, c := range b {
		out = append(out, letterOf(c))
	}
	return string(out)
}

// letterOf is the character of a byte: itself if it can be seen, otherwise the next
// free one from U+0100 on.
func letterOf(c byte) rune {
	visible := func(c int) bool { return c >= '!' && c <= '~' || c >= 0xA1 && c <= 0xAC || c >= 0xAE }
	if visible(int(c)) {
		return rune(c)
	}
	n := rune(0x100)
	for i := range int(c) {
		if !visible(i) {
			n++
		}
	}
	return n
}

// writeTokenizer writes tokenizer.json with ids in the order of tokens.
func writeTokenizer(tokens [][]byte, merges []pair, special []string, regex string) ([]byte, error) {
	var vocab bytes.Buffer
	vocab.WriteByte('{')
	for i, t := range tokens {
		key, err := json.Marshal(spell(t))
		if err != nil {
			return nil, err
		}
		if i > 0 {
			vocab.WriteByte(',')
		}
		fmt.Fprintf(&vocab, "%s:%d", key, i)
	}
	vocab.WriteByte('}')
	lines := make([][2]string, len(merges))
	for i, p := range merges {
		lines[i] = [2]string{spell(tokens[p.a]), spell(tokens[p.b])}
	}
	type object = map[string]any
	added := make([]object, len(special))
	for i, s := range special {
		added[i] = object{"id": len(tokens) + i, "content": s, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}
	}
	byteLevel := func(regex bool) object {
		return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": regex}
	}
	return json.Marshal(object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer": object{"type": "NFC"},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": regex}, "behavior": "Isolated", "invert": false}, byteLevel(false)}},
		"post_processor": nil, "decoder": byteLevel(true),
		"model": object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": json.RawMessage(vocab.Bytes()), "merges": lines},
	})
}
