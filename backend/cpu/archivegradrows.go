package cpu

import (
	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

func (s *stream) GateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate tensor.Tensor, p backend.Plan, w backend.GateParams) {
	if s.err != nil || s.fails(backend.CheckGateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate, p)) || s.away(gate, dgate) || !s.current(p) {
		return
	}
	s.arch.gateParams = w
	s.load(dlocal, dremote, dgate, dy, local, remote, gate)
	m := &s.grad.m[3]
	s.eachRow(m.rows/m.heads, m.heads*m.cols, func(s *stream, worker, lo, hi int) {
		m := &s.grad.m
		tmp := s.tmp(worker, m[3].cols)
		for r := lo * m[3].heads; r < hi*m[3].heads; r++ {
			s.gateMixGrad(r, tmp)
		}
	})
}

// gateMixGrad is the gradient of one head of a row.
func (s *stream) gateMixGrad(r int, tmp []float32) {
	v, m, w := s.dev.vec, &s.grad.m, &s.arch.gateParams
	row, h := r/m[3].heads, r%m[3].heads
	dlocal, dy := m[0].row(r), m[3].row(r)
	if int(s.plan.slot[row]) < w.From {
		v.Add(dlocal, dlocal, dy)
		return
	}
	dremote, local, remote := m[1].row(r), m[4].row(r), m[5].row(r)
	spread := func(a, b float32) { // to the weights of local and remote
		v.Scale(tmp, dy, a)
		v.Add(dlocal, dlocal, tmp)
		v.Scale(tmp, dy, b)
		v.Add(dremote, dremote, tmp)
	}
	g, constant := w.Remote, m[6].v == nil
	if !constant {
		g = canon.Sigmoid(m[6].row(row)[h])
	}
	switch {
	case constant && !w.Norm:
		spread(1-g, g)
	case !w.Norm:
		spread(g, 1-g)
		v.Sub(tmp, local, remote)
		m[2].row(row)[h] += float32(dot(dy, tmp) * float32(g*(1-g)))
	default:
		if constant {
			g = 1 - g
		}
		d := s.agreeGrad(dlocal, dremote, dy, local, remote, tmp, g, spread)
		if !constant {
			m[2].row(row)[h] += d
		}
	}
}

// agreeGrad is gateMixGrad where the agreement of the lengths has a say; it returns
// the gradient of the gate's logit.
func (s *stream) agreeGrad(dlocal, dremote, dy, local, remote, tmp []float32, g float32, spread func(a, b float32)) float32 {
	v, n := s.dev.vec, float32(len(dy))
	sl, sr := v.SumSquares(local), v.SumSquares(remote)
	l, a := canon.Sqrt(sl/n), canon.Sqrt(sr/n)
	agree := lesser(l/greater(a, 1e-6), a/greater(l, 1e-6))
	shorter := l/greater(a, 1e-6) <= a/greater(l, 1e-6)
	agree = lesser(greater(agree, 0), 1)
	weight := float32((1 - g) * agree)
	spread(1-weight, weight)
	v.Sub(tmp, remote, local)
	dw := dot(dy, tmp)
	c := float32(float32(dw*(1-g)) * agree)
	if !shorter {
		dlocal, dremote, local, remote, sl, sr, a = dremote, dlocal, remote, local, sr, sl, l
	}
	add := func(dx, x []float32, c float32) {
		v.Scale(tmp, x, c)
		v.Add(dx, dx, tmp)
	}
	if sl > 0 {
		add(dlocal, local, c/sl)
	}
	if !(a < 1e-6) {
		add(dremote, remote, -(c / sr))
	}
	return -float32(float32(dw*agree) * float32(g*(1-g)))
}

func (s *stream) QueryCorrectionGrad(dq, dv, du, dy, q, v, u tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckQueryCorrectionGrad(dq, dv, du, dy, q, v, u, p)) || s.away(v, u, dv, du) || !s.current(p) {
		return
	}
	s.load(dq, dy, q)
	o := &s.arch
	o.v, o.u, o.rank, o.heads, o.kv, o.d = s.host(v), s.host(u), v.Dim(2), q.Dim(1), q.Dim(1)/v.Dim(0), q.Dim(2)
	if s.err != nil {
		return
	}
	// The chains of dv, turned, and of du side by side by head.
	n := o.rank * o.d
	both := make([]float32, 2*n*v.Dim(0))
	to := [2][]float32{}
	for i, t := range [2]tensor.Tensor{dv, du} {
		if !t.Valid() {
			continue
		}
		to[i] = s.vector(t)
		for a := range v.Dim(0) {
			if i == 0 {
				turn(both[2*a*n:], to[0][a*n:], o.d, o.rank)
			} else {
				copy(both[(2*a+1)*n:], to[1][a*n:(a+1)*n])
			}
		}
	}
	s.eachBlock(both, correctionGrad)
	for a := range v.Dim(0) {
		if to[0] != nil {
			turn(to[0][a*n:], both[2*a*n:], o.rank, o.d)
		}
		if to[1] != nil {
			copy(to[1][a*n:(a+1)*n], both[(2*a+1)*n:])
		}
	}
}

// correctionGrad does the rows of a block.
func correctionGrad(s *stream, worker, lo, hi int, part []float32) {
	o, m, v := &s.arch, &s.grad.m, s.dev.vec
	n := o.rank * o.d
	tmp := s.tmp(worker, 2*n+2*o.rank+o.d)
	vt, ut := tmp[:n], tmp[n:2*n]
	z, dz, t := tmp[2*n:2*n+o.rank], tmp[2*n+o.rank:2*n+2*o.rank], tmp[2*n+2*o.rank:]
	for a := range o.heads / o.kv {
		turn(vt, o.v.v[a*n:], o.d, o.rank)
		turn(ut, o.u.v[a*n:], o.rank, o.d)
		for r := lo; r < hi; r++ {
			for h := a * o.kv; h < (a+1)*o.kv; h++ {
				dq, dy, q := m[0].row(r*o.heads+h), m[1].row(r*o.heads+h), m[2].row(r*o.heads+h)
				v.MixRows(z, q, o.v.v[a*n:])
				v.MixRows(dz, dy, ut)
				v.MixRows(t, dz, vt)
				v.Add(dq, dq, dy)
				v.Add(dq, dq, t)
				s.dev.deltaGrad.Update(part[2*a*n:(2*a+1)*n], dz, q)
				s.dev.deltaGrad.Update(part[(2*a+1)*n:(2*a+2)*n], z, dy)
			}
		}
	}
}

func (s *stream) GELUGrad(dx, dy, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("GELUGrad", dx, dy, x)) {
		return
	}
	s.load(dx, dy, x)
	m := &s.grad.m[0]
	s.eachRow(m.rows, m.cols, func(s *stream, _, lo, hi int) {
		m := &s.grad.m
		for r := lo; r < hi; r++ {
			d, g := m[0].row(r), m[1].row(r)
			for i, v := range m[2].row(r) {
				d[i] += float32(g[i] * canon.GELUSlope(v))
			}
		}
	})
}
