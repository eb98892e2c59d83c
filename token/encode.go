package token

import (
	"slices"
	"strings"
)

// Encode appends the ids of text to dst. Added tokens in the text, such as
// <|im_start|>, become their ids: that is what a rendered chat template needs.
// For text of unknown origin see [Tokenizer.EncodePlain]. Bytes that are not
// UTF-8 are encoded as they are.
func (t *Tokenizer) Encode(dst []int32, text string) []int32 {
	return t.encode(dst, text, &t.anyAdded)
}

// EncodeSpecial is Encode between Prefix and Suffix, for example after a
// begin-of-text token. Chat templates write that token themselves.
func (t *Tokenizer) EncodeSpecial(dst []int32, text string) []int32 {
	dst = append(dst, t.Prefix...)
	dst = t.Encode(dst, text)
	return append(dst, t.Suffix...)
}

// EncodePlain is Encode without special tokens: <|im_end|> in the text is
// encoded as those ten characters, so that text from outside cannot end its
// turn and begin another. Added tokens that are not special, such as <think>,
// are still recognised.
func (t *Tokenizer) EncodePlain(dst []int32, text string) []int32 {
	return t.encode(dst, text, &t.plainAdded)
}

// EncodeGuarded is Encode of a text made from a trusted frame and parts from
// elsewhere, such as a rendered chat template: a control token that contains the
// guard, a string that occurs in no token, is encoded as ordinary characters, and
// guards leave no other trace. [Tokenizer.Guard] puts them there.
func (t *Tokenizer) EncodeGuarded(dst []int32, text, guard string) []int32 {
	var s scratch
	for len(text) > 0 {
		start, end, id := t.anyAdded.find(text)
		dst = t.appendPart(dst, strings.ReplaceAll(text[:start], guard, ""), &s)
		if id >= 0 {
			dst = append(dst, id)
		}
		text = text[end:]
	}
	return dst
}

// Guard puts a guard behind the first byte of every control token that text
// spells, for EncodeGuarded.
func (t *Tokenizer) Guard(text, guard string) string {
	var b strings.Builder
	for len(text) > 0 {
		start, end, id := t.anyAdded.find(text)
		if id < 0 {
			break
		}
		if !t.IsSpecial(id) {
			b.WriteString(text[:end])
		} else {
			b.WriteString(text[:start+1])
			b.WriteString(guard)
			b.WriteString(text[start+1 : end])
		}
		text = text[end:]
	}
	b.WriteString(text)
	return b.String()
}

const maxPiece = 1 << 30 // places in mergeLong hold 31 bits

func (t *Tokenizer) encode(dst []int32, text string, added *trie) []int32 {
	dst = slices.Grow(dst, len(text)/4)
	var s scratch
	for len(text) > 0 {
		start, end, id := added.find(text)
		dst = t.appendPart(dst, text[:start], &s)
		if id >= 0 {
			dst = append(dst, id)
		}
		text = text[end:]
	}
	return dst
}

// appendPart encodes text between added tokens.
func (t *Tokenizer) appendPart(dst []int32, part string, s *scratch) []int32 {
	if t.split.classes == nil { // a Tokenizer that nobody opened knows no token
		return dst
	}
	if t.NFC {
		part = nfc(part)
	}
	for len(part) > 0 {
		n := min(t.split.next(part), maxPiece)
		dst = t.appendPiece(dst, part[:n], s)
		part = part[n:]
	}
	return dst
}
