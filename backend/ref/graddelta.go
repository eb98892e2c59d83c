package ref

import (
	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

func (s *stream) ConvGrad(dx, dw, dy, x, w tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckConvGrad(dx, dw, dy, x, w, p, layer)) || s.away(dx, dw, dy, x, w) || !s.current(p) {
		return
	}
	taps := w.Dim(0)
	u, wc := make([]float32, taps), make([]float32, taps)
	for _, g := range p.Segs() {
		in := g.ConvIn.Index(layer)
		at := func(t, c int) float32 {
			if t < 0 {
				return in.Row(taps - 1 + t)[c]
			}
			return x.Row(g.Row + t)[c]
		}
		// du[t][c] is the gradient before SiLU.
		du := make([][]float32, g.Rows)
		for t := range du {
			du[t] = make([]float32, x.Dim(1))
			for c := range du[t] {
				for j := range u {
					u[j], wc[j] = at(t-taps+1+j, c), w.Row(j)[c]
				}
				z := canon.Dot(u, wc)
				du[t][c] = dy.Row(g.Row + t)[c] * siluSlope(z, canon.SiLU(z))
			}
		}
		for t := range g.Rows {
			d := dx.Row(g.Row + t)
			for c := range d {
				var acc float32
				for i := t; i < min(t+taps, g.Rows); i++ {
					acc = canon.FMA32(du[i][c], w.Row(taps - 1 - (i - t))[c], acc)
				}
				d[c] += acc
			}
		}
		if !dw.Valid() {
			continue
		}
		for b := 0; b < g.Rows; b += backend.RowBlock {
			for j := range taps {
				d := dw.Row(j)
				for c := range d {
					var acc float32
					for t := b; t < min(b+backend.RowBlock, g.Rows); t++ {
						acc = canon.FMA32(du[t][c], at(t-taps+1+j, c), acc)
					}
					d[c] += acc
				}
			}
		}
	}
}

func (s *stream) L2NormGrad(dx, dy, x tensor.Tensor, eps, scale float32) {
	if s.err != nil || s.fails(backend.CheckHeads("L2NormGrad", dx, dy, x)) || s.away(dx, dy, x) {
		return
	}
	g, xh := make([]float32, x.Dim(2)), make([]float32, x.Dim(2))
	for r := range x.Dim(0) {
		for h := range x.Dim(1) {
			xv, d := x.Vec(r, h), dy.Vec(r, h)
			n := canon.Rsqrt(canon.SumSquares(xv) + eps)
			for i := range g {
				xh[i], g[i] = xv[i]*n, d[i]
				if scale != 1 {
					g[i] *= scale
				}
			}
			normGrad(dx.Vec(r, h), g, xv, xh, n, false)
		}
	}
}

func (s *stream) DeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckDeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias, p)) ||
		s.away(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias) || (dAExp.Valid() || dDTBias.Valid()) && !s.current(p) {
		return
	}
	ae, _ := aExp.F32()
	dt, _ := dtBias.F32()
	n := g.Dim(1)
	row := func(accA, accT []float32, r int) {
		for h := range n {
			x := a.Row(r)[h] + dt[h]
			e := -float32(dg.Row(r)[h] * g.Row(r)[h]) // of the exponent
			pre := float32(float32(e*ae[h]) * canon.Sigmoid(x))
			if accA != nil {
				accA[h] = canon.FMA32(e, canon.Softplus(x), accA[h])
			}
			if accT != nil {
				accT[h] += pre
				continue // the gradients of rows are added once
			}
			da.Row(r)[h] += pre
			be := beta.Row(r)[h]
			db.Row(r)[h] += float32(dbeta.Row(r)[h] * float32(be*(1-be)))
		}
	}
	vectorGrad(dAExp, g.Dim(0), p, func(acc []float32, r int) { row(acc, nil, r) })
	if dDTBias.Valid() {
		vectorGrad(dDTBias, g.Dim(0), p, func(acc []float32, r int) { row(nil, acc, r) })
	}
}

func (s *stream) GatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckGatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta, p, layer)) ||
		s.away(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta) || !s.current(p) {
		return
	}
	per := v.Dim(1) / q.Dim(1)
	for _, sg := range p.Segs() {
		for h := range v.Dim(1) { // ascending: value heads that share a key head add in this order
			o := deltaHead{dk: q.Dim(2), dv: v.Dim(2)}
			state, _ := sg.DeltaIn.Index(layer).Index(h).F32()
			for t := sg.Row; t < sg.Row+sg.Rows; t++ {
				state = o.forward(state, k.Vec(t, h/per), v.Vec(t, h), g.Row(t)[h], beta.Row(t)[h])
			}
			ds := make([]float32, o.dk*o.dv)
			for t := sg.Row + sg.Rows - 1; t >= sg.Row; t-- {
				gt, bt := g.Row(t)[h], beta.Row(t)[h]
				dgt, dbt := o.backward(ds, t-sg.Row, dq.Vec(t, h/per), dk.Vec(t, h/per), dv.Vec(t, h), dy.Vec(t, h), q.Vec(t, h/per), k.Vec(t, h/per), gt, bt)
				dg.Row(t)[h] += dgt
				dbeta.Row(t)[h] += dbt
			}
		}
	}
}

// deltaHead remembers one head's states over a sequence.
type deltaHead struct {
	dk, dv int
	states [][]float32 // before each row and after the last, [dk][dv]
	d      [][]float32 // what each row wrote, [dv]
	off    [][]float32 // v - kv of each row, [dv]
}

// forward makes the state after a row and remembers what the gradient needs.
func (o *deltaHead) forward(past, k, v []float32, g, beta float32) []float32 {
	next, d, off, col := make([]float32, len(past)), make([]float32, o.dv), make([]float32, o.dv), make([]float32, o.dk)
	for j := range o.dv {
		for i := range o.dk {
			col[i] = past[i*o.dv+j] * g
		}
		off[j] = v[j] - canon.Dot(col, k)
		d[j] = off[j] * beta
		for i := range o.dk {
			next[i*o.dv+j] = canon.FMA32(k[i], d[j], col[i])
		}
	}
	if len(o.states) == 0 {
		o.states = append(o.states, past)
	}
	o.states, o.d, o.off = append(o.states, next), append(o.d, d), append(o.off, off)
	return next
}

// backward takes ds, the gradient of the state after row t that later rows left,
// to that of the state before it, and adds the row's gradients.
func (o *deltaHead) backward(ds []float32, t int, dq, dk, dv, dy, q, k []float32, g, beta float32) (dg, dbeta float32) {
	past, next, d, off := o.states[t], o.states[t+1], o.d[t], o.off[t]
	row := func(m []float32, i int) []float32 { return m[i*o.dv : (i+1)*o.dv] }
	for i := range o.dk {
		dq[i] += canon.Dot(row(next, i), dy)
		for j := range o.dv {
			ds[i*o.dv+j] = canon.FMA32(q[i], dy[j], ds[i*o.dv+j])
		}
	}
	// dd is the gradient of d, u = dd·beta that of v.
	dd, u, col := make([]float32, o.dv), make([]float32, o.dv), make([]float32, o.dk)
	for j := range dd {
		for i := range col {
			col[i] = ds[i*o.dv+j]
		}
		dd[j] = canon.Dot(col, k)
		u[j] = dd[j] * beta
		dv[j] += float32(u[j])
	}
	dbeta = canon.Dot(dd, off)
	kept, slope := make([]float32, o.dv), make([]float32, o.dk)
	for i := range o.dk {
		e, m := row(ds, i), row(past, i)
		for j := range kept {
			kept[j] = m[j] * g
		}
		dk[i] += canon.Dot(e, d) - canon.Dot(kept, u)
		for j := range e {
			e[j] = canon.FMA32(-k[i], u[j], e[j]) // of the decayed state
		}
		slope[i] = canon.Dot(e, m)
		for j := range e {
			e[j] *= g
		}
	}
	return canon.Sum(slope), dbeta
}

func (s *stream) GatedRMSNormGrad(dx, dz, dw, dy, x, z, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckGatedRMSNormGrad(dx, dz, dw, dy, x, z, w, p)) || s.away(dx, dz, dw, dy, x, z, w) || dw.Valid() && !s.current(p) {
		return
	}
	wv, _ := w.F32()
	y, dn := make([]float32, x.Dim(2)), make([]float32, x.Dim(2))
	vectorGrad(dw, x.Dim(0), p, func(acc []float32, r int) {
		for h := range x.Dim(1) {
			d, zv, g := dz.Vec(r, h), z.Vec(r, h), dy.Vec(r, h)
			rmsNorm(y, x.Vec(r, h), wv, eps)
			for i := range y {
				a := canon.SiLU(zv[i])
				dn[i] = g[i] * a
				d[i] += float32(float32(g[i]*y[i]) * siluSlope(zv[i], a))
			}
			rmsGrad(dx.Vec(r, h), acc, dn, x.Vec(r, h), wv, eps)
		}
	})
}
