// Package canon holds the scalar functions of the numerics contract
// (docs/numerics.md) and their coefficient tables. Every exact implementation
// in the tree either calls these or must give their bits.
//
// The functions take and return single values; orders of reduction belong to
// the ops (backend/ref) and to the kernels that must agree with them.
package canon

import "math"

// Version numbers the numerics contract. It is part of every model's identity, so
// that states of one contract are never read under another.
const Version = 1

// FMA32 returns a·b + c rounded once to float32 (numerics.md 1).
//
// Going through math.FMA and converting rounds twice and is wrong near ties:
// a = b = 1+2⁻¹², c = 2⁻⁶⁰ gives 0x3f801000 instead of 0x3f801001. The sum is
// therefore taken in float64 and, where its low 28 bits are zero (the only
// sums a second rounding can get wrong), rounded to odd with the help of its
// error term.
func FMA32(a, b, c float32) float32 {
	p, z := float64(float64(a)*float64(b)), float64(c) // p is exact: 24+24 bits fit in 53
	s := p + z
	if math.Float64bits(s)&(1<<28-1) != 0 {
		return float32(s)
	}
	return roundOdd(s, p, z)
}

//go:noinline
func roundOdd(s, p, z float64) float32 {
	t := s - p
	e := (p - (s - t)) + (z - t) // s + e == p + z exactly
	u := math.Float64bits(s)
	if e != 0 && u&1 == 0 && !math.IsInf(s, 0) && !math.IsNaN(s) {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return float32(s)
}

// Constants of exp and log (numerics.md 4.1, 4.3).
const (
	L2E   = 0x1.715476p+0  // 1/ln 2
	Magic = 0x1.8p+23      // adding it rounds a float to an integer in the low bits
	Ln2Hi = 0x1.62e43p-1   // ln 2, upper part
	Ln2Lo = -0x1.05c61p-29 // ln 2, lower part

	ExpC6 = 0x1.6b69f2p-10
	ExpC5 = 0x1.122f2ep-7
	ExpC4 = 0x1.55568cp-5
	ExpC3 = 0x1.5554a4p-3
	ExpC2 = 0x1p-1

	ExpLo = -104 // arguments below and above are clamped to these
	ExpHi = 89

	LogP0 = 0x1.555558p-1
	LogP1 = 0x1.9996d8p-2
	LogP2 = 0x1.25051p-2
	LogP3 = 0x1.b72bb8p-3
	LogP4 = 0x1.f08af8p-3
)

// Exp returns eˣ in the form of numerics.md 4.1: largest error 0.91 ulp.
func Exp(x float32) float32 {
	if x != x {
		return x
	}
	if x < ExpLo {
		x = ExpLo
	}
	if x > ExpHi {
		x = ExpHi
	}
	t := FMA32(x, L2E, Magic)
	n := t - Magic
	ni := int32(math.Float32bits(t)) - 0x4b400000
	r := FMA32(n, -Ln2Hi, x)
	r = FMA32(n, -Ln2Lo, r)
	q := float32(ExpC6)
	q = FMA32(q, r, ExpC5)
	q = FMA32(q, r, ExpC4)
	q = FMA32(q, r, ExpC3)
	q = FMA32(q, r, ExpC2)
	q = FMA32(q, r, 1)
	q = FMA32(q, r, 1)
	n1 := ni >> 1
	n2 := ni - n1
	return float32(float32(q*pow2(n1)) * pow2(n2)) // explicit, so that no caller's add fuses it
}

func pow2(k int32) float32 { return math.Float32frombits(uint32(k+127) << 23) }

// Sigmoid returns 1/(1+e⁻ˣ).
func Sigmoid(x float32) float32 { return 1 / (1 + Exp(-x)) }

// SiLU returns x/(1+e⁻ˣ); SiLU(-Inf) is NaN.
func SiLU(x float32) float32 { return x / (1 + Exp(-x)) }

// tail returns s = f/(2+f) and w = s²·P(s²), the shared part of Log and Log1p.
func tail(f float32) (s, w float32) {
	s = f / (2 + f)
	z := s * s
	p := float32(LogP4)
	p = FMA32(p, z, LogP3)
	p = FMA32(p, z, LogP2)
	p = FMA32(p, z, LogP1)
	p = FMA32(p, z, LogP0)
	return s, float32(z * p) // explicit, so that inlining fuses nothing
}

// Log1p returns ln(1+u) for 0 <= u <= 1; other arguments are outside the contract.
func Log1p(u float32) float32 {
	s, w := tail(u)
	return FMA32(-s, u-w, u)
}

// Softplus returns ln(1+eˣ) as max(x,0) + log1p(e^-|x|).
func Softplus(x float32) float32 {
	if x != x {
		return x
	}
	var m float32
	if x > 0 {
		m = x
	}
	a := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	return m + Log1p(Exp(-a))
}

// Log returns ln x: -Inf at ±0, NaN below zero.
func Log(x float32) float32 {
	switch {
	case x != x || x > math.MaxFloat32:
		return x
	case x == 0:
		return float32(math.Inf(-1))
	case x < 0:
		return float32(math.NaN())
	}
	e := int32(0)
	if math.Float32bits(x) < 0x00800000 {
		x *= 1 << 23
		e = -23
	}
	k := int32(math.Float32bits(x)-0x3f3504f3) >> 23
	e += k
	f := math.Float32frombits(math.Float32bits(x)-uint32(k)<<23) - 1
	s, w := tail(f)
	d := FMA32(-s, f-w, f)
	fe := float32(e)
	return FMA32(fe, Ln2Hi, FMA32(fe, Ln2Lo, d))
}

// Sqrt returns the correctly rounded square root. The float64 root of a float32
// rounds to the float32 root: 53 >= 2·24+2 bits.
func Sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// Rsqrt returns 1/√x as an IEEE root followed by an IEEE division.
func Rsqrt(x float32) float32 { return 1 / Sqrt(x) }

// Power is rⁿ for n ≥ 0: square and multiply in float64 from the lowest bit
// (numerics.md 5). Callers round it once.
func Power(r float64, n int) float64 {
	p := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			p *= r
		}
		r *= r
	}
	return float64(p)
}
