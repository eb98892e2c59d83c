package ref

import (
	"fmt"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

var _ backend.Grad = (*stream)(nil)

// rowBlocks calls f with the blocks of rows of a pass: at most 128 rows of one
// segment, counted from its first row (numerics.md 10).
func rowBlocks(p backend.Plan, f func(lo, hi int)) {
	for _, g := range p.Segs() {
		for b := 0; b < g.Rows; b += backend.RowBlock {
			f(g.Row+b, g.Row+min(b+backend.RowBlock, g.Rows))
		}
	}
}

// addDot adds the blocks of DOT(x, y) to total one by one.
func addDot(total float32, n int, x, y func(i int) float32) float32 {
	for b := 0; b < n; b += 128 {
		var acc float32
		for k := b; k < min(b+128, n); k++ {
			acc = canon.FMA32(x(k), y(k), acc)
		}
		total += acc
	}
	return total
}

func (s *stream) Zero(dst tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckWhole("Zero", dst)) || s.away(dst) {
		return
	}
	v, _ := dst.F32()
	clear(v)
}

func (s *stream) Accumulate(dst, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("Accumulate", dst, src)) || s.away(dst, src) {
		return
	}
	for r := range dst.Dim(0) {
		for h := range heads(dst) {
			d, x := dst.Vec(r, h), src.Vec(r, h)
			for i := range d {
				d[i] += x[i]
			}
		}
	}
}

func (s *stream) LinearGrad(dx, dy tensor.Tensor, w backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinearGrad(dx, dy, w)) || s.away(dx, dy) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	for r := range dx.Dim(0) {
		d, y := dx.Row(r), dy.Row(r)
		for k := range d {
			d[k] = addDot(d[k], m.n, func(n int) float32 { return y[n] }, func(n int) float32 { return m.row(n)[k] })
		}
	}
}

func (s *stream) ProjectGrad(dx, dy, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckProjectGrad(dx, dy, w)) || s.away(dx, dy, w) {
		return
	}
	for r := range dx.Dim(0) {
		d, y := dx.Row(r), dy.Row(r)
		for k := range d {
			d[k] = addDot(d[k], w.Dim(0), func(n int) float32 { return y[n] }, func(n int) float32 { return w.Row(n)[k] })
		}
	}
}

func (s *stream) WeightGrad(dw, dy, x tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckWeightGrad(dw, dy, x, p)) || s.away(dw, dy, x) || !s.current(p) {
		return
	}
	rowBlocks(p, func(lo, hi int) {
		for n := range dw.Dim(0) {
			d := dw.Row(n)
			for k := range d {
				var acc float32
				for r := lo; r < hi; r++ {
					acc = canon.FMA32(dy.Row(r)[n], x.Row(r)[k], acc)
				}
				d[k] += acc
			}
		}
	})
}

func (s *stream) BiasGrad(db, dy tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckBiasGrad(db, dy, p)) || s.away(db, dy) || !s.current(p) {
		return
	}
	biasGrad(db, dy, p)
}

func biasGrad(db, dy tensor.Tensor, p backend.Plan) {
	d, _ := db.F32()
	rowBlocks(p, func(lo, hi int) {
		for i := range d {
			var acc float32
			for r := lo; r < hi; r++ {
				acc += dy.Row(r)[i]
			}
			d[i] += acc
		}
	})
}

// scatter adds row i of dy to row to[i] of dx; skip passes negative ones over.
func (s *stream) scatter(op string, dx, dy, to tensor.Tensor, skip bool) {
	if s.away(dx, dy, to) {
		return
	}
	id, _ := to.I32()
	for i, n := range id {
		if n < 0 && skip {
			continue
		}
		if n < 0 || int(n) >= dx.Dim(0) {
			s.fails(fmt.Errorf("ref: %s: row %d of %d", op, n, dx.Dim(0)))
			return
		}
		d := dx.Row(int(n))
		for k, v := range dy.Row(i) {
			d[k] += v
		}
	}
}

func (s *stream) EmbedGrad(dtable, dy, ids tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckEmbedGrad(dtable, dy, ids)) {
		return
	}
	s.scatter("EmbedGrad", dtable, dy, ids, true)
}

func (s *stream) GatherGrad(dx, dy, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckGatherGrad(dx, dy, rows)) {
		return
	}
	s.scatter("GatherGrad", dx, dy, rows, false)
}

// normGrad is the gradient of xh = x·r over one row: dx += FMA(-c, xh, g)·r with
// c the mean of g·xh, or their sum. It writes xh, which the weight's gradient
// needs; g is overwritten.
func normGrad(dx, g, x, xh []float32, r float32, mean bool) {
	t := make([]float32, len(x))
	for i := range x {
		t[i] = g[i] * xh[i]
	}
	c := canon.Sum(t)
	if mean {
		c /= float32(len(x))
	}
	for i := range x {
		dx[i] += float32(canon.FMA32(-c, xh[i], g[i]) * r)
	}
}

// rmsScale is the r of RMSNorm.
func rmsScale(x []float32, eps float32) float32 {
	return canon.Rsqrt(canon.SumSquares(x)/float32(len(x)) + eps)
}

// rmsGrad is the gradient of one row of RMSNorm; acc, if not nil, takes the
// row's step in the chains of the weight's gradient.
func rmsGrad(dx, acc, dy, x, w []float32, eps float32) {
	r := rmsScale(x, eps)
	g, xh := make([]float32, len(x)), make([]float32, len(x))
	for i := range x {
		xh[i] = x[i] * r
		g[i] = dy[i] * w[i]
		if acc != nil {
			acc[i] = canon.FMA32(dy[i], xh[i], acc[i])
		}
	}
	normGrad(dx, g, x, xh, r, true)
}

// vectorGrad runs f over all rows, and where dw is wanted has it add each row's
// step to the chains of its block.
func vectorGrad(dw tensor.Tensor, rows int, p backend.Plan, f func(acc []float32, r int)) {
	if !dw.Valid() {
		for r := range rows {
			f(nil, r)
		}
		return
	}
	d, _ := dw.F32()
	acc := make([]float32, len(d))
	rowBlocks(p, func(lo, hi int) {
		clear(acc)
		for r := lo; r < hi; r++ {
			f(acc, r)
		}
		for i := range d {
			d[i] += acc[i]
		}
	})
}

func (s *stream) RMSNormGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckRMSNormGrad(dx, dw, dy, x, w, p)) || s.away(dx, dw, dy, x, w) || dw.Valid() && !s.current(p) {
		return
	}
	wv, _ := w.F32()
	vectorGrad(dw, x.Dim(0), p, func(acc []float32, r int) { rmsGrad(dx.Row(r), acc, dy.Row(r), x.Row(r), wv, eps) })
}

// layerGrad is rmsGrad for LayerNorm.
func layerGrad(dx, acc, dy, x, w []float32, eps float32) {
	k := float32(len(x))
	mu := canon.Sum(x) / k
	g, xh := make([]float32, len(x)), make([]float32, len(x))
	for i := range x {
		xh[i] = x[i] - mu
		g[i] = float32(dy[i] * w[i])
	}
	r := rmsScale(xh, eps)
	m := canon.Sum(g) / k
	for i := range x {
		xh[i] *= r
		g[i] -= m
		if acc != nil {
			acc[i] = canon.FMA32(dy[i], xh[i], acc[i])
		}
	}
	normGrad(dx, g, x, xh, r, true)
}

func (s *stream) LayerNormGrad(dx, dw, db, dy, x, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckLayerNormGrad(dx, dw, db, dy, x, w, p)) || s.away(dx, dw, db, dy, x, w) || (dw.Valid() || db.Valid()) && !s.current(p) {
		return
	}
	wv, _ := w.F32()
	vectorGrad(dw, x.Dim(0), p, func(acc []float32, r int) { layerGrad(dx.Row(r), acc, dy.Row(r), x.Row(r), wv, eps) })
	if db.Valid() {
		biasGrad(db, dy, p)
	}
}

// siluSlope is the derivative of SiLU at x, whose value there is a.
func siluSlope(x, a float32) float32 {
	sg := canon.Sigmoid(x)
	return canon.FMA32(a, 1-sg, sg)
}

func (s *stream) SwiGLUGrad(dgate, dup, dy, gate, up tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SwiGLUGrad", dgate, dup, dy, gate, up)) || s.away(dgate, dup, dy, gate, up) {
		return
	}
	for r := range dy.Dim(0) {
		dg, du, d, g, u := dgate.Row(r), dup.Row(r), dy.Row(r), gate.Row(r), up.Row(r)
		for i := range d {
			a := canon.SiLU(g[i])
			du[i] += float32(d[i] * a)
			dg[i] += float32(float32(d[i]*u[i]) * siluSlope(g[i], a))
		}
	}
}

func (s *stream) SigmoidMulGrad(dx, dgate, dy, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("SigmoidMulGrad", dx, dgate, dy, x, gate)) || s.away(dx, dgate, dy, x, gate) {
		return
	}
	for r := range x.Dim(0) {
		for h := range heads(x) {
			dxv, dg, d, xv, g := dx.Vec(r, h), dgate.Vec(r, h), dy.Vec(r, h), x.Vec(r, h), gate.Vec(r, h)
			for i := range d {
				sg := canon.Sigmoid(g[i])
				dxv[i] += float32(d[i] * sg)
				dg[i] += float32(float32(d[i]*xv[i]) * float32(sg*(1-sg)))
			}
		}
	}
}

func (s *stream) SoftmaxGrad(dx, dy, y tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SoftmaxGrad", dx, dy, y)) || s.away(dx, dy, y) {
		return
	}
	t := make([]float32, y.Dim(1))
	for r := range y.Dim(0) {
		d, g, p := dx.Row(r), dy.Row(r), y.Row(r)
		for i := range t {
			t[i] = g[i] * p[i]
		}
		c := canon.Sum(t)
		for i := range d {
			d[i] += float32((g[i] - c) * p[i])
		}
	}
}
