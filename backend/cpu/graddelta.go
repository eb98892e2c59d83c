package cpu

import (
	"samebit/backend"
	"samebit/backend/cpu/internal/deltagrad"
	"samebit/tensor"
)

// deltaGrad holds the operands of the delta-net gradient under way.
type deltaGrad struct {
	dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta matrix
	layer, heads, per                           int
	jobs                                        []deltagrad.Head // by worker
}

// convCols are the channels that one worker takes, through all rows.
const convCols = 64

func (s *stream) ConvGrad(dx, dw, dy, x, w tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckConvGrad(dx, dw, dy, x, w, p, layer)) || !s.current(p) {
		return
	}
	s.load(dx, dw, dy, x, w)
	if s.err != nil {
		return
	}
	s.grad.delta.layer = layer
	s.run((x.Dim(1)+convCols-1)/convCols, convGradBody)
}

func convGradBody(s *stream, worker, chunk int) {
	o := &s.grad
	c0 := chunk * convCols
	c1 := min(c0+convCols, o.m[3].cols)
	for i := range s.plan.segs {
		s.convGrad(worker, &s.plan.segs[i], c0, c1)
	}
}

// convGrad does channels [c0, c1) of a segment.
func (s *stream) convGrad(worker int, g *backend.Seg, c0, c1 int) {
	v, m := s.dev.vec, &s.grad.m
	n, taps, rows := c1-c0, m[4].rows, g.Rows
	tmp := s.tmp(worker, (rows+3)*n)
	sg, a, t, du := tmp[:n], tmp[n:2*n], tmp[2*n:3*n], tmp[3*n:]
	in, _ := g.ConvIn.Index(s.grad.delta.layer).F32()
	w := func(j int) []float32 { return m[4].row(j)[c0:c1] }
	at := func(r int) []float32 {
		if r < 0 {
			return in[(taps-1+r)*m[3].cols:][c0:c1]
		}
		return m[3].row(g.Row + r)[c0:c1]
	}
	for r := range rows {
		d := du[r*n : (r+1)*n]
		clear(d)
		for j := range taps {
			v.FMA(d, at(r-taps+1+j), w(j))
		}
		v.AddScalar(d, d, 0)
		v.Sigmoid(sg, d)
		v.SiLU(a, d)
		v.SiLUSlope(sg, a, t)
		v.Mul(d, m[2].row(g.Row + r)[c0:c1], sg)
	}
	for r := range rows {
		clear(t)
		for i := r; i < min(r+taps, rows); i++ {
			v.FMA(t, du[i*n:(i+1)*n], w(taps-1-(i-r)))
		}
		d := m[0].row(g.Row + r)[c0:c1]
		v.Add(d, d, t)
	}
	if m[1].v == nil {
		return
	}
	for b := 0; b < rows; b += backend.RowBlock {
		for j := range taps {
			clear(t)
			for r := b; r < min(b+backend.RowBlock, rows); r++ {
				v.FMA(t, du[r*n:(r+1)*n], at(r-taps+1+j))
			}
			d := m[1].row(j)[c0:c1]
			v.Add(d, d, t)
		}
	}
}

func (s *stream) DeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckDeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias, p)) ||
		(dAExp.Valid() || dDTBias.Valid()) && !s.current(p) {
		return
	}
	s.load(da, db, dg, dbeta, g, beta, a)
	o := &s.grad
	o.vec[0], o.vec[1] = s.vector(aExp), s.vector(dtBias)
	if s.err != nil {
		return
	}
	// One pass forms both sums: the chains of dAExp and of dDTBias side by side.
	h := g.Dim(1)
	rows := func(s *stream, worker, lo, hi int, part []float32) {
		v, o := s.dev.vec, &s.grad
		m := &o.m
		n := len(o.vec[0])
		tmp := s.tmp(worker, 3*n)
		x, e, t := tmp[:n], tmp[n:2*n], tmp[2*n:]
		for r := lo; r < hi; r++ {
			v.Add(x, m[6].row(r), o.vec[1])
			v.Mul(e, m[2].row(r), m[4].row(r))
			v.Scale(e, e, -1)
			if part != nil {
				v.Softplus(t, x)
				v.FMA(part[:n], e, t)
			}
			v.Mul(e, e, o.vec[0])
			v.Sigmoid(x, x)
			v.Mul(e, e, x)
			if part != nil {
				v.Add(part[n:], part[n:], e)
			}
			d := m[0].row(r)
			v.Add(d, d, e)
			v.Scale(t, m[5].row(r), -1)
			v.AddScalar(t, t, 1)
			v.Mul(t, m[5].row(r), t)
			v.Mul(t, m[3].row(r), t)
			d = m[1].row(r)
			v.Add(d, d, t)
		}
	}
	s.eachPair(dAExp, dDTBias, h, g.Dim(0), 8*h, rows)
}

func (s *stream) GatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckGatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta, p, layer)) || !s.current(p) {
		return
	}
	o := &s.grad.delta
	o.dq, o.dk, o.dv, o.dg, o.dbeta, o.dy = s.host(dq), s.host(dk), s.host(dv), s.host(dg), s.host(dbeta), s.host(dy)
	o.q, o.k, o.v, o.g, o.beta = s.host(q), s.host(k), s.host(v), s.host(g), s.host(beta)
	if s.err != nil {
		return
	}
	o.layer, o.heads, o.per = layer, q.Dim(1), v.Dim(1)/q.Dim(1)
	if o.jobs == nil {
		o.jobs = make([]deltagrad.Head, s.threads())
	}
	s.run(len(s.plan.segs)*o.heads, deltaGradBody)
}

// deltaGradBody does the value heads of one key head of one segment, whose sums for
// the key head are in their order.
func deltaGradBody(s *stream, worker, chunk int) {
	o := &s.grad.delta
	g, kh := &s.plan.segs[chunk/o.heads], chunk%o.heads
	at := func(m *matrix, h int) deltagrad.Rows {
		return deltagrad.Rows{V: m.v[g.Row*m.stride+h*m.stride2:], Stride: m.stride}
	}
	one := func(m *matrix, h int) deltagrad.Rows {
		return deltagrad.Rows{V: m.v[g.Row*m.stride+h:], Stride: m.stride}
	}
	j := &o.jobs[worker]
	for h := kh * o.per; h < (kh+1)*o.per; h++ {
		*j = deltagrad.Head{T: g.Rows, Dk: o.q.cols, Dv: o.v.cols,
			Q: at(&o.q, kh), K: at(&o.k, kh), V: at(&o.v, h), DY: at(&o.dy, h), G: one(&o.g, h), Beta: one(&o.beta, h),
			DQ: at(&o.dq, kh), DK: at(&o.dk, kh), DV: at(&o.dv, h), DG: one(&o.dg, h), DBeta: one(&o.dbeta, h)}
		j.Start, _ = g.DeltaIn.Index(o.layer).Index(h).F32()
		s.dev.deltaGrad.Run(j, s.tmp(worker, deltagrad.Scratch(j.T, j.Dk, j.Dv)))
	}
}
