package ref

import (
	"fmt"

	"samebit/backend"
	"samebit/internal/blockq"
	"samebit/internal/canon"
	"samebit/tensor"
)

// logSumExp returns the numerators e of a softmax, 1/RSUM(e) and the logarithm of
// the sum of exponentials of x.
func logSumExp(e, x []float32) (inv, lse float32) {
	m := maximum(x)
	for i := range x {
		e[i] = canon.Exp(x[i] - m)
	}
	n := canon.Sum(e)
	return 1 / n, m + canon.Log(n)
}

// eachLoss calls f for every row with its weight and where its gradient goes, nil
// for nowhere, and stores the loss.
func eachLoss(loss, dx, x, weights tensor.Tensor, f func(r int, d, x []float32, w float32) float32) {
	out, _ := loss.F32()
	wv, _ := weights.F32()
	for r := range out {
		w := float32(1)
		if wv != nil {
			w = wv[r]
		}
		var d []float32
		if dx.Valid() {
			d = dx.Row(r)
		}
		out[r] = f(r, d, x.Row(r), w)
	}
}

func (s *stream) CrossEntropy(loss, dx, x, targets, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckCrossEntropy(loss, dx, x, targets, weights)) || s.away(loss, dx, x, targets, weights) {
		return
	}
	id, _ := targets.I32()
	for r, t := range id {
		if int(t) >= x.Dim(1) {
			s.fails(fmt.Errorf("ref: CrossEntropy: target %d of row %d is outside %d classes", t, r, x.Dim(1)))
			return
		}
	}
	e := make([]float32, x.Dim(1))
	eachLoss(loss, dx, x, weights, func(r int, d, x []float32, w float32) float32 {
		t := int(id[r])
		if t < 0 {
			return 0
		}
		inv, lse := logSumExp(e, x)
		c := w * scale
		for i := range d {
			p := float32(e[i] * inv)
			if i == t {
				p--
			}
			d[i] += float32(p * c)
		}
		return float32((lse - x[t]) * w)
	})
}

func (s *stream) DistillKL(loss, dx, x, y, weights tensor.Tensor, t, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("DistillKL", loss, dx, x, y, weights)) || s.away(loss, dx, x, y, weights) {
		return
	}
	n := x.Dim(1)
	a, b, ea, eb := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	eachLoss(loss, dx, x, weights, func(r int, d, x []float32, w float32) float32 {
		yr := y.Row(r)
		for i := range a {
			a[i], b[i] = yr[i]/t, x[i]/t
		}
		ia, la := logSumExp(ea, a)
		ib, lb := logSumExp(eb, b)
		c := float32(t*w) * scale
		for i := range a {
			p := ea[i] * ia
			if d != nil {
				d[i] += float32((float32(eb[i]*ib) - float32(p)) * c)
			}
			a[i] = p * ((a[i] - la) - (b[i] - lb))
		}
		return float32(float32(canon.Sum(a)*float32(t*t)) * w)
	})
}

func (s *stream) SquaredError(loss, dx, x, y, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("SquaredError", loss, dx, x, y, weights)) || s.away(loss, dx, x, y, weights) {
		return
	}
	e := make([]float32, x.Dim(1))
	n := float32(len(e))
	eachLoss(loss, dx, x, weights, func(r int, d, x []float32, w float32) float32 {
		for i, v := range y.Row(r) {
			e[i] = x[i] - v
		}
		c := float32(2/n*w) * scale
		for i := range d {
			d[i] += float32(e[i] * c)
		}
		return float32(canon.SumSquares(e) / n * w)
	})
}

func (s *stream) CosineError(loss, dx, x, y, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("CosineError", loss, dx, x, y, weights)) || s.away(loss, dx, x, y, weights) {
		return
	}
	eachLoss(loss, dx, x, weights, func(r int, d, x []float32, w float32) float32 {
		yr := y.Row(r)
		xx := canon.SumSquares(x)
		den := canon.Sqrt(xx) * canon.Sqrt(canon.SumSquares(yr))
		fixed := !(den > 1e-12)
		if fixed {
			den = 1e-12
		}
		cos := canon.Dot(x, yr) / den
		a, b := 1/den, float32(0)
		if !fixed {
			b = cos / xx
		}
		c := w * scale
		for i := range d {
			d[i] += float32(canon.FMA32(b, x[i], -float32(yr[i]*a)) * c)
		}
		return float32((1 - cos) * w)
	})
}

func (s *stream) SumSquares(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSumSquares(dst, x)) || s.away(dst, x) {
		return
	}
	d, _ := dst.F32()
	v, _ := x.F32()
	d[0] = canon.SumSquares(v)
}

func (s *stream) AdamW(w, m, v, g tensor.Tensor, c backend.AdamWStep) {
	if s.err != nil || s.fails(backend.CheckWhole("AdamW", w, m, v, g)) || s.away(w, m, v, g) {
		return
	}
	wv, _ := w.F32()
	mv, _ := m.F32()
	vv, _ := v.F32()
	gv, _ := g.F32()
	for i := range wv {
		x := float32(gv[i] * c.Clip)
		mv[i] = float32(mv[i]*c.Beta1) + float32(x*c.Rest1)
		vv[i] = float32(vv[i]*c.Beta2) + float32(float32(x*x)*c.Rest2)
		wv[i] = float32(wv[i]*c.Decay) - float32(mv[i]/(canon.Sqrt(float32(vv[i]*c.Scale2))+c.Eps)*c.Rate)
	}
}

func (s *stream) Repack(w backend.Weight, values tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRepack(w, values)) || s.away(values) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	raw, _ := values.Raw()
	s.fails(blockq.Widen(m.v, raw, tensor.F32))
}
