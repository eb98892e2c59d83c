package ref

import (
	"fmt"
	"math"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

func (s *stream) Embed(dst tensor.Tensor, table backend.Weight, ids tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckEmbed(dst, table, ids)) || s.away(dst, ids) {
		return
	}
	w := s.own(table)
	if w == nil {
		return
	}
	id, _ := ids.I32()
	for r, n := range id {
		if n < 0 || int(n) >= w.n {
			s.fails(fmt.Errorf("ref: Embed: id %d of row %d is outside a table of %d", n, r, w.n))
			return
		}
		copy(dst.Row(r), w.row(int(n)))
	}
}

func (s *stream) Linear(dst, x tensor.Tensor, w backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinear(dst, x, w)) || s.away(dst, x) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	for r := range x.Dim(0) {
		xr, dr := x.Row(r), dst.Row(r)
		for n := range dr {
			dr[n] = canon.Dot(xr, m.row(n))
		}
	}
}

func (s *stream) LinearRows(dst, x tensor.Tensor, w backend.Weight, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckLinearRows(dst, x, w, rows)) || s.away(dst, x, rows) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	id, _ := rows.I32()
	for i, n := range id {
		if n < 0 || int(n) >= m.n {
			s.fails(fmt.Errorf("ref: LinearRows: output %d is outside a weight of %d", n, m.n))
			return
		}
		for r := range x.Dim(0) {
			dst.Row(r)[i] = canon.Dot(x.Row(r), m.row(int(n)))
		}
	}
}

func (s *stream) Project(dst, x, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckProject(dst, x, w)) || s.away(dst, x, w) {
		return
	}
	for r := range x.Dim(0) {
		xr, dr := x.Row(r), dst.Row(r)
		for n := range dr {
			dr[n] = canon.Dot(xr, w.Row(n))
		}
	}
}

func (s *stream) AddBias(dst, x, b tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("AddBias", dst, x)) || s.fails(backend.CheckVector("AddBias", "b", b, x.Dim(1))) || s.away(dst, x, b) {
		return
	}
	bias, _ := b.F32()
	for r := range x.Dim(0) {
		xr, dr := x.Row(r), dst.Row(r)
		for i := range dr {
			dr[i] = xr[i] + bias[i]
		}
	}
}

func (s *stream) Add(dst, a, b tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("Add", dst, a, b)) || s.away(dst, a, b) {
		return
	}
	for r := range a.Dim(0) {
		ar, br, dr := a.Row(r), b.Row(r), dst.Row(r)
		for i := range dr {
			dr[i] = ar[i] + br[i]
		}
	}
}

// rmsNorm normalises one row; w nil leaves the weight out.
func rmsNorm(dst, x, w []float32, eps float32) {
	r := canon.Rsqrt(canon.SumSquares(x)/float32(len(x)) + eps)
	for i := range x {
		dst[i] = x[i] * r
		if w != nil {
			dst[i] *= w[i]
		}
	}
}

func (s *stream) RMSNorm(dst, x, w tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckRows("RMSNorm", dst, x)) || s.fails(backend.CheckVector("RMSNorm", "w", w, x.Dim(1))) || s.away(dst, x, w) {
		return
	}
	wv, _ := w.F32()
	for r := range x.Dim(0) {
		rmsNorm(dst.Row(r), x.Row(r), wv, eps)
	}
}

func (s *stream) LayerNorm(dst, x, w, b tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckRows("LayerNorm", dst, x)) ||
		s.fails(backend.CheckVector("LayerNorm", "w", w, x.Dim(1))) || s.fails(backend.CheckVector("LayerNorm", "b", b, x.Dim(1))) || s.away(dst, x, w, b) {
		return
	}
	wv, _ := w.F32()
	bv, _ := b.F32()
	for r := range x.Dim(0) {
		xr, c := x.Row(r), dst.Row(r)
		k := float32(len(xr))
		mu := canon.Sum(xr) / k
		for i := range xr {
			c[i] = xr[i] - mu
		}
		n := canon.Rsqrt(canon.SumSquares(c)/k + eps)
		for i := range c {
			c[i] = float32(float32(c[i]*n)*wv[i]) + bv[i]
		}
	}
}

func (s *stream) SwiGLU(dst, gate, up tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SwiGLU", dst, gate, up)) || s.away(dst, gate, up) {
		return
	}
	for r := range gate.Dim(0) {
		g, u, d := gate.Row(r), up.Row(r), dst.Row(r)
		for i := range d {
			d[i] = canon.SiLU(g[i]) * u[i]
		}
	}
}

// heads is the length of the middle axis, 1 for two axes.
func heads(t tensor.Tensor) int {
	if t.Dims() == 3 {
		return t.Dim(1)
	}
	return 1
}

func (s *stream) SigmoidMul(dst, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("SigmoidMul", dst, x, gate)) || s.away(dst, x, gate) {
		return
	}
	for r := range x.Dim(0) {
		for h := range heads(x) {
			xv, g, d := x.Vec(r, h), gate.Vec(r, h), dst.Vec(r, h)
			for i := range d {
				d[i] = xv[i] * canon.Sigmoid(g[i])
			}
		}
	}
}

func (s *stream) Gather(dst, x, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckGather(dst, x, rows)) || s.away(dst, x, rows) {
		return
	}
	id, _ := rows.I32()
	for i, n := range id {
		if n < 0 || int(n) >= x.Dim(0) {
			s.fails(fmt.Errorf("ref: Gather: row %d of %d", n, x.Dim(0)))
			return
		}
		copy(dst.Row(i), x.Row(int(n)))
	}
}

func (s *stream) Copy(dst, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckCopy(dst, src)) || s.away(dst, src) {
		return
	}
	tensor.Copy(dst, src)
}

func argMax(x []float32) int32 {
	best := -1
	for i, v := range x {
		if v == v && (best < 0 || v > x[best]) {
			best = i
		}
	}
	return int32(best)
}

func (s *stream) ArgMax(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckArgMax(dst, x)) || s.away(dst, x) {
		return
	}
	d, _ := dst.I32()
	for r := range d {
		d[r] = argMax(x.Row(r))
	}
}

// maximum skips NaN: the sum that follows lets it through (numerics.md 11).
func maximum(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

// softmax is that of a full vector (numerics.md 5).
func softmax(dst, x []float32) {
	m := maximum(x)
	for i := range x {
		dst[i] = canon.Exp(x[i] - m)
	}
	r := 1 / canon.Sum(dst)
	for i := range dst {
		dst[i] *= r
	}
}

func (s *stream) Softmax(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("Softmax", dst, x)) || s.away(dst, x) {
		return
	}
	for r := range x.Dim(0) {
		softmax(dst.Row(r), x.Row(r))
	}
}

func (s *stream) SumRows(p backend.Plan, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSumRows(p, x)) || s.away(x) || !s.current(p) {
		return
	}
	segs := p.Segs()
	for i := range segs {
		g := &segs[i]
		in, _ := g.SumIn.F32()
		out, _ := g.SumOut.F32()
		copy(out, in)
		for r := g.Row; r < g.Row+g.Rows; r++ {
			for j, v := range x.Row(r) {
				out[j] += v
			}
		}
	}
}
