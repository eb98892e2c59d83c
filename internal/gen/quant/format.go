package main

// format describes how a block format lies in a panel of 32 rows; the layout
// is documented (and repeated) in backend/cpu/internal/quant/layout.go.
type format struct {
	name  string
	width int     // bits per weight in the main plane: 2, 4 or 8
	hi    int     // bits per weight in the second plane: 0, 1 or 2
	scale scale   // where the scale comes from
	min   bool    // a stored minimum, else the offset off
	off   float32 // w = D·(q - off)
}

type scale int

const (
	plain   scale = iota // half d (and m) per 32 weights
	sub32                // half d, dmin per 128; unsigned byte scale and minimum per 32
	sub16                // half d per 128; signed byte scale per 16
	nibbles              // half d, dmin per 128; nibble scale and minimum per 16
)

var formats = []format{
	{"Q8_0", 8, 0, plain, false, 128},
	{"Q4_0", 4, 0, plain, false, 8},
	{"Q4_1", 4, 0, plain, true, 0},
	{"Q5_0", 4, 1, plain, false, 16},
	{"Q5_1", 4, 1, plain, true, 0},
	{"Q2_K", 2, 0, nibbles, true, 0},
	{"Q3_K", 2, 1, sub16, false, 4},
	{"Q4_K", 4, 0, sub32, true, 0},
	{"Q5_K", 4, 1, sub32, true, 0},
	{"Q6_K", 4, 2, sub16, false, 32},
}

// head is the size of what stands once before every 128 inputs.
func (f format) head() int {
	switch {
	case f.scale == plain:
		return 0
	case f.min:
		return 128
	}
	return 64
}

// bitPlane is the offset of the one-bit plane after the scales of a chunk.
func (f format) bitPlane() int {
	if f.scale == plain && f.min {
		return 128
	}
	return 64
}

// chunkHead is the size of what stands before the two halves of 32 inputs.
func (f format) chunkHead() int {
	if f.hi == 1 {
		return f.bitPlane() + 128
	}
	return f.bitPlane()
}

// half is the size of the planes of 16 inputs.
func (f format) half() int {
	if f.hi == 2 {
		return 64*f.width + 128
	}
	return 64 * f.width
}

// block is the size of 128 inputs.
func (f format) block() int { return f.head() + 4*(f.chunkHead()+2*f.half()) }
