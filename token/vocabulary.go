package token

import (
	"fmt"
	"hash/maphash"
	"math/bits"
)

const (
	freeSlot  = ^uint64(0)
	maxIDs    = 1 << 20   // ids lie below; a pair of them is a 40-bit key of mergeTable
	maxMerges = 1<<24 - 1 // ranks lie below
	maxAdded  = 1 << 10   // bytes of an added token, which bound the work at each place of a text
	noRank    = uint32(maxMerges)
)

// Kinds of token, combined by or. Zero is a hole.
const (
	kindBase    = 1 << iota // in the model's own vocabulary: reached by merges
	kindAdded               // cut out of the text before anything else
	kindSpecial             // and left out of text for readers
	kindOdd                 // has an id but cannot come from text
)

// vocabulary holds the bytes of every token in one string and finds base
// tokens by their bytes: about 17 bytes per token beside the text, where a Go
// map of strings takes 50 to 100.
type vocabulary struct {
	text  string
	span  []span
	kind  []uint8
	index []int32 // open addressing by hash of the bytes, −1 is free
	seed  maphash.Seed

	build []byte // becomes text
}

type span struct{ off, len uint32 }

func (v *vocabulary) has(id int32) bool {
	return id >= 0 && int(id) < len(v.kind) && v.kind[id] != 0
}

func (v *vocabulary) at(id int32) string {
	s := v.span[id]
	return v.text[s.off : s.off+s.len]
}

// building is at before seal.
func (v *vocabulary) building(id int32) []byte {
	s := v.span[id]
	return v.build[s.off : s.off+s.len]
}

// put gives id the bytes b.
func (v *vocabulary) put(id int64, b []byte, kind uint8) error {
	if id < 0 || id >= maxIDs {
		return fmt.Errorf("token %.40q has id %d, outside 0..%d", b, id, maxIDs-1)
	}
	if v.has(int32(id)) {
		return fmt.Errorf("id %d is both %.40q and %.40q", id, v.building(int32(id)), b)
	}
	if len(v.build)+len(b) > maxFileBytes { // spans hold 32 bits
		return fmt.Errorf("the tokens have more than %d bytes", maxFileBytes)
	}
	for int(id) >= len(v.kind) {
		v.kind = append(v.kind, 0)
		v.span = append(v.span, span{})
	}
	v.span[id] = span{uint32(len(v.build)), uint32(len(b))}
	v.kind[id] = kind
	v.build = append(v.build, b...)
	return nil
}

// seal freezes the tokens and makes base tokens findable. Two base tokens with
// the same bytes are an error: one of them could never be meant.
func (v *vocabulary) seal() error {
	v.text, v.build = string(v.build), nil
	v.seed = maphash.MakeSeed()
	base := 0
	for _, kind := range v.kind {
		base += int(kind & kindBase)
	}
	v.index = make([]int32, tableSize(base))
	for i := range v.index {
		v.index[i] = -1
	}
	for id, kind := range v.kind {
		if kind&kindBase == 0 {
			continue
		}
		slot, other := v.find(v.at(int32(id)))
		if other >= 0 {
			return fmt.Errorf("ids %d and %d are both the token %.40q", other, id, v.at(other))
		}
		v.index[slot] = int32(id)
	}
	return nil
}

// lookup returns the id of the base token with these bytes, or NoToken.
func (v *vocabulary) lookup(s string) int32 {
	if len(v.index) == 0 {
		return NoToken
	}
	_, id := v.find(s)
	return id
}

// find returns the slot where s is or would be, and the id there.
func (v *vocabulary) find(s string) (slot int, id int32) {
	mask := len(v.index) - 1
	for i := int(maphash.String(v.seed, s)) & mask; ; i = (i + 1) & mask {
		if id := v.index[i]; id < 0 || v.at(id) == s {
			return i, id
		}
	}
}

// tableSize returns a power of two that n entries fill to at most two thirds.
func tableSize(n int) int { return 1 << bits.Len(uint(n+n/2)) }

// appendBytes appends what a vocabulary key stands for: byte-level
// vocabularies write bytes 33–126, 161–172, 174–255 as the code points of the
// same number and the other 68, in rising order, as U+0100, U+0101, ...
// A key with any other code point stands for itself, and ok is false: no text
// can produce it.
func appendBytes(dst, key []byte) (b []byte, ok bool) {
	n := len(dst)
	for _, r := range string(key) {
		switch {
		case r >= 33 && r <= 126, r >= 161 && r <= 172, r >= 174 && r <= 255:
			dst = append(dst, byte(r))
		case r >= 0x100 && r <= 0x120:
			dst = append(dst, byte(r-0x100))
		case r >= 0x121 && r <= 0x142:
			dst = append(dst, byte(r-0x121+127))
		case r == 0x143:
			dst = append(dst, 173)
		default:
			return append(dst[:n], key...), false
		}
	}
	return dst, true
}
