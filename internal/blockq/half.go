package blockq

import "math"

// F16ToF32 returns the exact float32 value of an IEEE half, subnormals too.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	mag := uint32(h & 0x7fff)
	switch {
	case mag >= 0x7c00: // Inf, NaN with its payload
		return math.Float32frombits(sign | 0x7f800000 | mag&0x3ff<<13)
	case mag < 0x0400: // subnormal: mag · 2⁻²⁴, exact
		return math.Float32frombits(sign | math.Float32bits(float32(mag)*0x1p-24))
	}
	return math.Float32frombits(sign | (mag<<13 + (127-15)<<23))
}

// F32ToF16 rounds to the nearest half, ties to even; too large becomes Inf. A
// NaN keeps the upper ten bits of its payload, and at least one bit.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7c00 | max(uint16(b>>13&0x3ff), 1)
	case b >= 0x47800000: // 2¹⁶ and Inf
		return sign | 0x7c00
	case b < 0x38800000: // below 2⁻¹⁴: the unit of the last place of 0.5 is 2⁻²⁴
		s := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(s)-0x3f000000)
	}
	b += 0xfff + b>>13&1
	return sign | uint16(b>>13-(127-15)<<10)
}

// BF16ToF32 returns the exact float32 value of a bfloat16.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even. A NaN keeps its upper
// half with the quiet bit set.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
