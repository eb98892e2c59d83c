package checkpoint

import (
	"fmt"
	"math/bits"
)

// Type is the storage type of a tensor's elements.
type Type uint8

// The order of the safetensors types is that of the reference implementation,
// which sorts a file by it; see Write.
const (
	Invalid Type = iota
	BOOL
	F4
	F6_E2M3
	F6_E3M2
	U8
	I8
	F8_E5M2
	F8_E4M3
	F8_E8M0
	I16
	U16
	F16
	BF16
	I32
	U32
	F32
	C64
	F64
	I64
	U64

	// Blocks of GGUF. A row holds whole blocks.
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	IQ2_XXS
	IQ2_XS
	IQ3_XXS
	IQ1_S
	IQ4_NL
	IQ3_S
	IQ2_S
	IQ4_XS
	IQ1_M
	TQ1_0
	TQ2_0
	MXFP4
	NVFP4
	Q1_0
	typeCount
)

// where a type may occur
const (
	inST   = 1 << iota // safetensors
	inGGUF             // GGUF, under id
	opens              // Tensor returns it; without, it is only listed
)

// types is models.md 5.4 and the type lists of both formats.
var types = [typeCount]struct {
	name          string
	values, bytes int
	id            uint32 // in GGUF
	flags         uint8
}{
	Invalid: {"invalid", 1, 0, 0, 0},
	BOOL:    {"BOOL", 1, 1, 0, inST | opens},
	F4:      {"F4", 2, 1, 0, inST},
	F6_E2M3: {"F6_E2M3", 4, 3, 0, inST},
	F6_E3M2: {"F6_E3M2", 4, 3, 0, inST},
	U8:      {"U8", 1, 1, 0, inST | opens},
	I8:      {"I8", 1, 1, 24, inST | inGGUF | opens},
	F8_E5M2: {"F8_E5M2", 1, 1, 0, inST},
	F8_E4M3: {"F8_E4M3", 1, 1, 0, inST},
	F8_E8M0: {"F8_E8M0", 1, 1, 0, inST},
	I16:     {"I16", 1, 2, 25, inST | inGGUF | opens},
	U16:     {"U16", 1, 2, 0, inST | opens},
	F16:     {"F16", 1, 2, 1, inST | inGGUF | opens},
	BF16:    {"BF16", 1, 2, 30, inST | inGGUF | opens},
	I32:     {"I32", 1, 4, 26, inST | inGGUF | opens},
	U32:     {"U32", 1, 4, 0, inST | opens},
	F32:     {"F32", 1, 4, 0, inST | inGGUF | opens},
	C64:     {"C64", 1, 8, 0, inST},
	F64:     {"F64", 1, 8, 28, inST | inGGUF | opens},
	I64:     {"I64", 1, 8, 27, inST | inGGUF | opens},
	U64:     {"U64", 1, 8, 0, inST | opens},
	Q4_0:    {"Q4_0", 32, 18, 2, inGGUF | opens},
	Q4_1:    {"Q4_1", 32, 20, 3, inGGUF | opens},
	Q5_0:    {"Q5_0", 32, 22, 6, inGGUF | opens},
	Q5_1:    {"Q5_1", 32, 24, 7, inGGUF | opens},
	Q8_0:    {"Q8_0", 32, 34, 8, inGGUF | opens},
	Q2_K:    {"Q2_K", 256, 84, 10, inGGUF | opens},
	Q3_K:    {"Q3_K", 256, 110, 11, inGGUF | opens},
	Q4_K:    {"Q4_K", 256, 144, 12, inGGUF | opens},
	Q5_K:    {"Q5_K", 256, 176, 13, inGGUF | opens},
	Q6_K:    {"Q6_K", 256, 210, 14, inGGUF | opens},
	IQ2_XXS: {"IQ2_XXS", 256, 66, 16, inGGUF},
	IQ2_XS:  {"IQ2_XS", 256, 74, 17, inGGUF},
	IQ3_XXS: {"IQ3_XXS", 256, 98, 18, inGGUF},
	IQ1_S:   {"IQ1_S", 256, 50, 19, inGGUF},
	IQ4_NL:  {"IQ4_NL", 32, 18, 20, inGGUF},
	IQ3_S:   {"IQ3_S", 256, 110, 21, inGGUF},
	IQ2_S:   {"IQ2_S", 256, 82, 22, inGGUF},
	IQ4_XS:  {"IQ4_XS", 256, 136, 23, inGGUF},
	IQ1_M:   {"IQ1_M", 256, 56, 29, inGGUF},
	TQ1_0:   {"TQ1_0", 256, 54, 34, inGGUF},
	TQ2_0:   {"TQ2_0", 256, 66, 35, inGGUF},
	MXFP4:   {"MXFP4", 32, 17, 39, inGGUF},
	NVFP4:   {"NVFP4", 64, 36, 40, inGGUF},
	Q1_0:    {"Q1_0", 128, 18, 41, inGGUF},
}

// String returns the name that the formats use, such as "BF16" or "Q4_K".
func (t Type) String() string {
	if t < typeCount {
		return types[t].name
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Block returns how many values are stored together (1 for plain types) and in
// how many bytes. An invalid type gives 1, 0.
func (t Type) Block() (values, bytes int) {
	if t >= typeCount {
		return 1, 0
	}
	return types[t].values, types[t].bytes
}

// Opens reports whether Set.Tensor hands out tensors of this type; the others
// are listed only.
func (t Type) Opens() bool { return t.is(opens) }

func (t Type) is(flag uint8) bool { return t < typeCount && types[t].flags&flag != 0 }

// align is the alignment that a view of the elements needs: their size for
// plain types, 1 for blocks, which mix fields of several sizes.
func (t Type) align() int {
	if values, bytes := t.Block(); values == 1 && bytes > 0 {
		return bytes
	}
	return 1
}

// byName returns the safetensors type with this name.
func byName(name string) Type {
	for t := range typeCount {
		if t.is(inST) && types[t].name == name {
			return t
		}
	}
	return Invalid
}

// byID returns the GGUF type with this number.
func byID(id uint32) Type {
	for t := range typeCount {
		if t.is(inGGUF) && types[t].id == id {
			return t
		}
	}
	return Invalid
}

// size returns the bytes of n elements; false when n is no multiple of the
// block or the size does not fit.
func (t Type) size(n uint64) (uint64, bool) {
	values, bytes := t.Block()
	if bytes == 0 || n%uint64(values) != 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(n/uint64(values), uint64(bytes))
	return lo, hi == 0
}

// mulDims multiplies the dimensions, false when the product overflows. Zeros
// count at the end, so that they hide no overflow.
func mulDims[T int | uint64](dims []T) (uint64, bool) {
	n, zero := uint64(1), false
	for _, d := range dims {
		if d == 0 {
			zero = true
			continue
		}
		if d < 0 {
			return 0, false
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 {
			return 0, false
		}
		n = lo
	}
	if zero {
		return 0, true
	}
	return n, true
}
