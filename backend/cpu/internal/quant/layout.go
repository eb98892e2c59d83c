package quant

import "samebit/internal/blockq"

// layout says how a format lies in a panel of 32 rows. Inputs go in blocks of
// 128 (the last may be shorter), and these in chunks of 32:
//
//	block: [head] chunk chunk chunk chunk
//	head:  d [32]f16, dmin [32]f16 where the format has a minimum (K formats only)
//	chunk: scales, [one-bit plane], half, half
//	half:  main plane, [two-bit plane]                                (16 inputs)
//
// Scales of a chunk, for the 32 rows each:
//
//	plain:   d f16, and m f16 with a minimum
//	sub32:   sc uint8, mn uint8
//	sub16:   sc int8 of the first half, of the second half
//	nibbles: sc | mn<<4 of the first half, of the second half
//
// Planes are [..][32 rows] little-endian dwords. Inputs are taken in fours
// ("quads"): input 4f+b of a half belongs to byte b of a dword, so that one
// shift and one mask lay four codes into four bytes. Quad f lies
//
//	8 bits: in dword f
//	4 bits: in dword f/2, nibble f%2 of each byte
//	2 bits: in the dword, bits 2f and 2f+1 of each byte
//	1 bit:  in the chunk's dword, bit 4·half+f of each byte
//
// The weight is D·q - M with D = d or d·sc, M = off·D or dmin·mn (or + m). The
// description is repeated in internal/gen/quant.
type layout struct {
	t     blockq.Type
	width int // bits of the main plane: 2, 4, 8
	hi    int // bits of the second plane: 0, 1, 2
	scale scale
	min   bool
	off   int32

	head, chunk       int // bytes of a block's head and of a whole chunk
	bits, halves      int // offsets in a chunk: one-bit plane, first half
	half              int // bytes of a half
	blockLen, fileLen int // bytes of 128 inputs here; bytes of a file block
}

type scale int

const (
	plain   scale = iota // scales of 32 inputs as halves
	sub32                // byte scales per 32 under a half
	sub16                // signed byte scales per 16 under a half
	nibbles              // nibble scales per 16 under a half
)

func layoutOf(t blockq.Type) *layout {
	l := &layout{t: t, width: 4, fileLen: t.BlockBytes()}
	switch t {
	case blockq.Q8_0:
		l.width, l.off = 8, 128
	case blockq.Q4_0:
		l.off = 8
	case blockq.Q4_1:
		l.min = true
	case blockq.Q5_0:
		l.hi, l.off = 1, 16
	case blockq.Q5_1:
		l.hi, l.min = 1, true
	case blockq.Q2_K:
		l.width, l.scale, l.min = 2, nibbles, true
	case blockq.Q3_K:
		l.width, l.hi, l.scale, l.off = 2, 1, sub16, 4
	case blockq.Q4_K:
		l.scale, l.min = sub32, true
	case blockq.Q5_K:
		l.hi, l.scale, l.min = 1, sub32, true
	case blockq.Q6_K:
		l.hi, l.scale, l.off = 2, sub16, 32
	}
	l.bits = 64
	switch {
	case l.scale == plain && l.min:
		l.bits = 128
	case l.scale != plain && l.min:
		l.head = 128
	case l.scale != plain:
		l.head = 64
	}
	l.halves = l.bits
	if l.hi == 1 {
		l.halves += 128
	}
	l.half = 64 * l.width
	if l.hi == 2 {
		l.half += 128
	}
	l.chunk = l.halves + 2*l.half
	l.blockLen = l.head + 4*l.chunk
	return l
}

// bytes is the size of a panel of k inputs, a multiple of 32 (of 256 for the K
// formats).
func (l *layout) bytes(k int) int { return (k+127)/128*l.head + k/32*l.chunk }

// block is the offset of the block of inputs that begins at k0, a multiple of 128.
func (l *layout) block(k0 int) int { return k0 / 128 * l.blockLen }
