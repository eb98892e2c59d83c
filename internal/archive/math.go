// Package archive is the meaning of the archive ops (docs/numerics.md 16) in
// either float type: float32 is the contract, float64 judges how far rounding
// takes it from the formulas.
package archive

import "samebit/internal/canon"

// Float is float32 or float64.
type Float interface{ float32 | float64 }

// Math are the elementary functions of a float type.
type Math[F Float] struct {
	FMA                           func(a, b, c F) F
	Exp, Log, Sqrt, Sigmoid, GELU func(x F) F
}

// Canon is the arithmetic of the contract.
var Canon = Math[float32]{FMA: canon.FMA32, Exp: canon.Exp, Log: canon.Log, Sqrt: canon.Sqrt, Sigmoid: canon.Sigmoid, GELU: canon.GELU}

const (
	dotBlock = 128
	sumBlock = 1024
	page     = 64
)

// Dot is numerics.md 2.
func (m *Math[F]) Dot(x, y []F) F {
	var total F
	for b := 0; b < len(x); b += dotBlock {
		var acc F
		for k := b; k < min(b+dotBlock, len(x)); k++ {
			acc = m.FMA(x[k], y[k], acc)
		}
		total += acc
	}
	return total
}

// dotRows writes dst[i] = DOT over k of (w[k], x[k·stride + i]).
func (m *Math[F]) dotRows(dst, w, x []F, stride int) {
	for i := range dst {
		var total F
		for b := 0; b < len(w); b += dotBlock {
			var acc F
			for k := b; k < min(b+dotBlock, len(w)); k++ {
				acc = m.FMA(w[k], x[k*stride+i], acc)
			}
			total += acc
		}
		dst[i] = total
	}
}

func (m *Math[F]) reduce(x []F, step func(lane, x F) F) F {
	var total F
	for b := 0; b < len(x); b += sumBlock {
		var lane [32]F
		for i := b; i < min(b+sumBlock, len(x)); i++ {
			lane[i%32] = step(lane[i%32], x[i])
		}
		for h := 16; h > 0; h /= 2 {
			for j := range h {
				lane[j] += lane[j+h]
			}
		}
		total += lane[0]
	}
	return total
}

// Sum and SumSquares are numerics.md 3.
func (m *Math[F]) Sum(x []F) F { return m.reduce(x, func(l, x F) F { return l + x }) }

func (m *Math[F]) SumSquares(x []F) F {
	return m.reduce(x, func(l, x F) F { return m.FMA(x, x, l) })
}

// Norm is the length of x.
func (m *Math[F]) Norm(x []F) F { return m.Sqrt(m.SumSquares(x)) }

// Cosine is numerics.md 5.
func (m *Math[F]) Cosine(x, y []F) F {
	return m.Dot(x, y) / greater(m.Norm(x)*m.Norm(y), 1e-12)
}

// greater is x where x > y, else y; NaN stays.
func greater[F Float](x, y F) F {
	if x < y {
		return y
	}
	return x
}

func less[F Float](x, y F) F {
	if x > y {
		return y
	}
	return x
}

// Softmax is numerics.md 5; dst may be x.
func (m *Math[F]) Softmax(dst, x []F) {
	top := negInf[F]()
	for _, v := range x {
		top = greater(top, v)
	}
	for i, v := range x {
		dst[i] = m.Exp(v - top)
	}
	r := 1 / m.Sum(dst[:len(x)])
	for i := range x {
		dst[i] *= r
	}
}

func negInf[F Float]() F {
	zero := F(0)
	return -1 / zero
}

// Blend writes dst = (1-a)·x + a·y (numerics.md 5). dst may be x or y.
func (m *Math[F]) Blend(dst []F, a F, y, x []F) {
	rest := 1 - a
	for i := range dst {
		dst[i] = m.FMA(a, y[i], F(rest*x[i]))
	}
}

// Rotate turns half-split pairs (numerics.md 6).
func (m *Math[F]) Rotate(dst, x, cos, sin []F) {
	h := len(cos)
	for i := range h {
		a, b := x[i], x[i+h]
		dst[i] = m.FMA(a, cos[i], -F(b*sin[i]))
		dst[i+h] = m.FMA(b, cos[i], F(a*sin[i]))
	}
	copy(dst[2*h:], x[2*h:])
}

// Attend is numerics.md 7 for one query over the slots below n that are visible.
// It returns the log mass.
func (m *Math[F]) Attend(out, q []F, scale F, n int, visible func(j int) bool, key, value func(j int) []F) F {
	top, l, seen := negInf[F](), F(0), false
	clear(out)
	o := make([]F, len(q))
	for b := 0; b < n; b += page {
		var p [page]F
		var slots []int
		mb := negInf[F]()
		for j := b; j < min(b+page, n); j++ {
			if visible(j) {
				slots = append(slots, j)
				p[j-b] = F(m.Dot(q, key(j)) * scale)
				mb = greater(mb, p[j-b])
			}
		}
		if len(slots) == 0 {
			continue
		}
		seen = true
		clear(o)
		for _, j := range slots {
			p[j-b] = m.Exp(p[j-b] - mb)
			v := value(j)
			for c := range o {
				o[c] = m.FMA(p[j-b], v[c], o[c])
			}
		}
		lb := m.Sum(p[:])
		mm := greater(top, mb)
		al, be := m.Exp(top-mm), m.Exp(mb-mm)
		l = m.FMA(lb, be, F(l*al))
		for c := range out {
			ob := 0 + o[c] // a chain may end at -0; the add of +0 makes it +0
			out[c] = m.FMA(ob, be, F(out[c]*al))
		}
		top = mm
	}
	if !seen {
		return top
	}
	r := 1 / l
	for c := range out {
		out[c] *= r
	}
	return top + m.Log(l)
}

// Power is rⁿ: square and multiply in float64 from the lowest bit, rounded once
// (numerics.md 5).
func Power[F Float](r F, n int) F {
	return F(canon.Power(float64(r), n))
}
