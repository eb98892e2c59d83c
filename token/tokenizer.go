// Package token turns text into the integer ids that a language model reads,
// and ids back into text, by byte-level byte pair encoding.
//
// A [Tokenizer] comes from a Hugging Face tokenizer.json ([Open], [Parse]) or
// from the metadata of a GGUF file ([FromVocab]). Encoding takes these steps:
//
//  1. the raw text is cut at added tokens, the longest at each place;
//  2. each part between them is brought to Unicode NFC, if the model asks;
//  3. a part is split into pieces by the model's pre-tokenizer pattern;
//  4. in each piece the adjacent pair of lowest merge rank is joined, the
//     leftmost first, until no pair has a rank.
//
// Pipelines other than these are refused with [ErrUnsupported]: a tokenizer
// that is nearly right gives a model text it was never trained on.
package token

import (
	"errors"
	"slices"
)

// ErrUnsupported is wrapped by every error that means "a well-formed tokenizer
// that needs something this package does not do".
var ErrUnsupported = errors.New("unsupported tokenizer")

// NoToken stands where a tokenizer has no such token.
const NoToken int32 = -1

// A Tokenizer is immutable once loaded; its methods may be called from many
// goroutines at once. The exported fields describe it and should not be
// changed while it is in use.
type Tokenizer struct {
	BOS, EOS, Pad int32   // [NoToken] where there is none
	Stops         []int32 // ids that end a reply, in rising order: EOS, and whatever else the files name
	Prefix        []int32 // what [Tokenizer.EncodeSpecial] puts before the text
	Suffix        []int32 // what it puts after
	ChatTemplate  string  // Jinja text, empty where there is none
	Pre           string  // pre-tokenizer: "qwen2", "qwen35", "llama-bpe" or "smollm"
	NFC           bool    // parts are normalised before they are split

	words       vocabulary
	merges      mergeTable
	byteID      [256]int32 // id of each single byte, NoToken where the vocabulary lacks it
	split       splitter
	anyAdded    trie // all added tokens
	plainAdded  trie // those that are not special
	wholePieces bool // a piece that is itself a token is not taken apart (ignore_merges)
}

// Size returns the number of ids: one more than the highest. Ids below it may
// be holes. A model's embedding often has more rows.
func (t *Tokenizer) Size() int { return len(t.words.kind) }

// ID returns the id of the token whose bytes are text, added tokens first, or
// [NoToken].
func (t *Tokenizer) ID(text string) int32 {
	if id, n := t.anyAdded.longest(text); n > 0 && n == len(text) {
		return id
	}
	return t.words.lookup(text)
}

// IsSpecial reports whether id is a control token such as <|im_end|>, which
// readers of the text should not see. Added tokens like <think> are not.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return t.words.has(id) && t.words.kind[id]&kindSpecial != 0
}

// IsStop reports whether id ends a reply.
func (t *Tokenizer) IsStop(id int32) bool { return slices.Contains(t.Stops, id) }

// TokenBytes returns a copy of the bytes of one token, which need not be whole
// runes, or nil if there is no such token.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	if !t.words.has(id) {
		return nil
	}
	return []byte(t.words.at(id))
}

// AddStops adds ids to Stops, in order and once each, leaving out NoToken and
// ids that do not exist.
func (t *Tokenizer) AddStops(ids ...int32) {
	for _, id := range ids {
		if t.words.has(id) {
			t.Stops = append(t.Stops, id)
		}
	}
	slices.Sort(t.Stops)
	t.Stops = slices.Compact(t.Stops)
}
