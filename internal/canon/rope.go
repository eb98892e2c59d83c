package canon

import (
	"math"
	"math/big"
)

// InvFreq returns the rotary frequency of pair i of a rotary width d:
// 1 / RN32(theta^(2i/d)), the exponent one float32 division (numerics.md 6).
func InvFreq(theta float64, i, d int) float32 {
	e := float32(2*i) / float32(d)
	return 1 / Round32(BigPow(Big(theta), Big(float64(e))))
}

// π/2 in three parts; the first two have 33 bits, so that their products with a
// quadrant number below 2^20 are exact.
const (
	pio2a = 0x1.921fb544p+0
	pio2b = 0x1.0b4611a6p-34
	pio2c = 0x1.3198a2e037073p-69
)

// SinCos returns the correctly rounded sine and cosine of a finite rotary angle.
// The float64 evaluation decides unless it lies too near the middle of two
// float32 values, or the angle is too large for it; then 256-bit arithmetic does.
func SinCos(angle float32) (sin, cos float32) {
	x := float64(angle)
	if x >= 1<<20 || x <= -(1<<20) {
		return sinCosBig(angle)
	}
	k := math.RoundToEven(x * (2 / math.Pi))
	r1 := math.FMA(-k, pio2a, x) // exact
	w := float64(k * pio2b)      // exact
	r := r1 - w
	lo := math.FMA(-k, pio2c, (r1-r)-w)

	z := float64(r * r)
	// Taylor: sin r = r + r³·S(z), cos r = 1 - z/2 + z²·C(z), terms to r^17 and r^18.
	s := math.FMA(z, 1.0/355687428096000, -1.0/1307674368000)
	s = math.FMA(z, s, 1.0/6227020800)
	s = math.FMA(z, s, -1.0/39916800)
	s = math.FMA(z, s, 1.0/362880)
	s = math.FMA(z, s, -1.0/5040)
	s = math.FMA(z, s, 1.0/120)
	s = math.FMA(z, s, -1.0/6)
	sn := r + math.FMA(float64(r*z), s, math.FMA(float64(lo*z), -0.5, lo))

	c := math.FMA(z, -1.0/6402373705728000, 1.0/20922789888000)
	c = math.FMA(z, c, -1.0/87178291200)
	c = math.FMA(z, c, 1.0/479001600)
	c = math.FMA(z, c, -1.0/3628800)
	c = math.FMA(z, c, 1.0/40320)
	c = math.FMA(z, c, -1.0/720)
	c = math.FMA(z, c, 1.0/24)
	h := float64(0.5 * z)
	hl := math.FMA(0.5*r, r, -h) // r² = 2(h + hl) exactly
	cw := 1 - h
	cs := cw + (((1 - cw) - h) - hl + math.FMA(float64(z*z), c, -float64(r*lo)))

	if nearMiddle(sn) || nearMiddle(cs) {
		return sinCosBig(angle)
	}
	return quadrant(int64(k), float32(sn), float32(cs))
}

func quadrant(k int64, s, c float32) (sin, cos float32) {
	switch k & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	}
	return -c, s
}

// nearMiddle reports whether v lies within 2^-46 (relative) of a number half
// way between two float32 values.
func nearMiddle(v float64) bool {
	d := int64(math.Float64bits(v)&(1<<29-1)) - 1<<28
	return -128 < d && d < 128
}

func sinCosBig(angle float32) (sin, cos float32) {
	x := Big(float64(angle))
	half := new(big.Float).SetPrec(bigPrec).Quo(BigPi(), Big(2))
	q, _ := new(big.Float).SetPrec(bigPrec).Quo(x, half).Float64()
	k := math.RoundToEven(q)
	s, c := bigSinCos(new(big.Float).SetPrec(bigPrec).Sub(x, new(big.Float).SetPrec(bigPrec).Mul(half, Big(k))))
	return quadrant(int64(k), Round32(s), Round32(c))
}

// InvSqrt returns 1/√n rounded once: the scale of scores and queries.
func InvSqrt(n int) float32 { return float32(1 / math.Sqrt(float64(n))) }
