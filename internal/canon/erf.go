package canon

import "math"

// Coefficients of erf (numerics.md 4.5): a polynomial in x² for small arguments,
// the exponent of 1 - erf for large ones.
const (
	ErfSplit = 0x1.dbp-1 // 475/512

	ErfA6 = -0x1.38ep-11
	ErfA5 = 0x1.471a58p-8
	ErfA4 = -0x1.b691b2p-6
	ErfA3 = 0x1.ce1c44p-4
	ErfA2 = -0x1.8127p-2
	ErfA1 = 0x1.06eba8p-3

	ErfB6 = -0x1.22p-16
	ErfB5 = 0x1.91cfb2p-12
	ErfB4 = -0x1.fd1438p-9
	ErfB3 = 0x1.8d6342p-6
	ErfB2 = -0x1.b55cb8p-4
	ErfB1 = -0x1.450aap-1
	ErfB0 = -0x1.079d0cp-3

	InvSqrt2 = 0x1.6a09e6p-1 // 1/√2
)

// Erf returns the error function in the form of numerics.md 4.5.
func Erf(x float32) float32 {
	t, s := math.Float32frombits(math.Float32bits(x)&^(1<<31)), x*x
	if t > ErfSplit {
		r := FMA32(ErfB6, t, ErfB5)
		u := FMA32(ErfB4, t, ErfB3)
		r = FMA32(r, s, u)
		r = FMA32(r, t, ErfB2)
		r = FMA32(r, t, ErfB1)
		r = FMA32(r, t, ErfB0)
		r = FMA32(r, t, -t)
		r = 1 - Exp(r)
		if x < 0 {
			return -r
		}
		return r
	}
	r := FMA32(ErfA6, s, ErfA5)
	r = FMA32(r, s, ErfA4)
	r = FMA32(r, s, ErfA3)
	r = FMA32(r, s, ErfA2)
	r = FMA32(r, s, ErfA1)
	return FMA32(r, x, x)
}

// GELU returns x/2·(1 + erf(x/√2)).
func GELU(x float32) float32 {
	return float32(float32(0.5*x) * (1 + Erf(float32(x*InvSqrt2))))
}

// GELUSlope is the derivative of GELU: (1 + erf(x/√2))/2 + x·exp(-x²/2)/√(2π).
func GELUSlope(x float32) float32 {
	const c = 0x1.988454p-2 // 1/√(2π)
	density := float32(Exp(float32(float32(x*x)*-0.5)) * c)
	return float32(0.5*(1+Erf(float32(x*InvSqrt2)))) + float32(x*density)
}
