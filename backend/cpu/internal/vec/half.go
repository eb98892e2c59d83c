package vec

import "math"

// bf16 rounds x to bfloat16.
func bf16(x float32) uint16 {
	u := math.Float32bits(x)
	if x != x {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// f16 rounds x to IEEE half precision.
func f16(x float32) uint16 {
	u := math.Float32bits(x)
	sign := uint16(u >> 16 & 0x8000)
	a := u &^ (1 << 31)
	switch {
	case a > 0x7f800000: // NaN: quiet, upper payload kept
		return sign | 0x7e00 | uint16(a>>13&0x3ff)
	case a >= 0x477ff000: // rounds to 2¹⁶ or more
		return sign | 0x7c00
	case a < 0x38800000: // below 2⁻¹⁴: count in steps of 2⁻²⁴
		// Adding 2⁻¹ puts one step into the last bit of the sum.
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((a-0x38000000+0xfff+a>>13&1)>>13)
}

// f16to32 returns the value of a half precision number; NaNs come out quiet.
func f16to32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	e, m := uint32(h>>10&31), uint32(h&0x3ff)
	switch {
	case e == 31 && m != 0:
		return math.Float32frombits(sign | 0x7fc00000 | m<<13)
	case e == 31:
		return math.Float32frombits(sign | 0x7f800000)
	case e == 0:
		return math.Float32frombits(sign | math.Float32bits(float32(m)*0x1p-24))
	}
	return math.Float32frombits(sign | (e+112)<<23 | m<<13)
}
