package canon

import (
	"math/big"
	"sync"
)

// bigPrec is the precision in bits of every host-side evaluation that is
// rounded once to float32 (numerics.md 6 asks for 128).
const bigPrec = 256

// Big returns x as a big float of the working precision.
func Big(x float64) *big.Float { return new(big.Float).SetPrec(bigPrec).SetFloat64(x) }

func bigNew() *big.Float { return new(big.Float).SetPrec(bigPrec) }

// atanhInv returns atanh(y) for |y| <= 1/2 by its series.
func atanhSeries(y *big.Float) *big.Float {
	y2 := bigNew().Mul(y, y)
	term, sum := bigNew().Set(y), bigNew()
	for n := int64(1); ; n += 2 {
		t := bigNew().Quo(term, bigNew().SetInt64(n))
		if t.Sign() == 0 || t.MantExp(nil) < sum.MantExp(nil)-bigPrec-8 {
			return sum
		}
		sum.Add(sum, t)
		term.Mul(term, y2)
	}
}

func atanSeries(inv int64) *big.Float { // atan(1/inv)
	y := bigNew().Quo(Big(1), bigNew().SetInt64(inv))
	y2 := bigNew().Mul(y, y)
	y2.Neg(y2)
	term, sum := bigNew().Set(y), bigNew()
	for n := int64(1); ; n += 2 {
		t := bigNew().Quo(term, bigNew().SetInt64(n))
		if t.MantExp(nil) < -bigPrec-8 {
			return sum
		}
		sum.Add(sum, t)
		term.Mul(term, y2)
	}
}

// BigPi returns π.
func BigPi() *big.Float {
	a := bigNew().Mul(Big(16), atanSeries(5))
	return a.Sub(a, bigNew().Mul(Big(4), atanSeries(239)))
}

var bigLn2 = sync.OnceValue(func() *big.Float {
	t := atanhSeries(bigNew().Quo(Big(1), Big(3)))
	return t.Mul(t, Big(2))
})

// BigLog returns ln x for x > 0.
func BigLog(x *big.Float) *big.Float {
	m := bigNew()
	e := x.MantExp(m) // x = m·2^e, m in [1/2, 1)
	y := bigNew().Quo(bigNew().Sub(m, Big(1)), bigNew().Add(m, Big(1)))
	l := atanhSeries(y)
	l.Mul(l, Big(2))
	return l.Add(l, bigNew().Mul(bigLn2(), Big(float64(e))))
}

// BigExp returns eˣ for |x| below about 2^20.
func BigExp(x *big.Float) *big.Float {
	ln2 := bigLn2()
	q, _ := bigNew().Quo(x, ln2).Float64()
	k := int(q)
	r := bigNew().Sub(x, bigNew().Mul(ln2, Big(float64(k))))
	const halvings = 8
	r.SetMantExp(r, -halvings)
	sum, term := Big(1), Big(1)
	for n := 1; n < 200; n++ {
		term.Mul(term, r)
		term.Quo(term, Big(float64(n)))
		if term.Sign() == 0 || term.MantExp(nil) < -bigPrec-8 {
			break
		}
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum.SetMantExp(sum, k)
}

// BigPow returns b^e for b > 0.
func BigPow(b, e *big.Float) *big.Float {
	return BigExp(bigNew().Mul(e, BigLog(b)))
}

// Round32 rounds once to float32.
func Round32(x *big.Float) float32 {
	f, _ := x.Float32()
	return f
}

// bigSinCos returns sin and cos of x in [-π, π] by Taylor series.
func bigSinCos(x *big.Float) (sin, cos *big.Float) {
	sin, cos = bigNew(), Big(1)
	term := Big(1)
	for n := 1; n < 400; n++ {
		term.Mul(term, x)
		term.Quo(term, Big(float64(n)))
		if term.Sign() == 0 || term.MantExp(nil) < -bigPrec-40 {
			break
		}
		switch n % 4 {
		case 0:
			cos.Add(cos, term)
		case 1:
			sin.Add(sin, term)
		case 2:
			cos.Sub(cos, term)
		case 3:
			sin.Sub(sin, term)
		}
	}
	return sin, cos
}
