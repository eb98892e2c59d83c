package ref

import (
	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

func (s *stream) Conv(dst, x, w tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckConv(dst, x, w, p, layer)) || s.away(dst, x, w) || !s.current(p) {
		return
	}
	taps := w.Dim(0)
	u, wc := make([]float32, taps), make([]float32, taps)
	segs := p.Segs()
	for gi := range segs {
		g := &segs[gi]
		in, out := g.ConvIn.Index(layer), g.ConvOut.Index(layer)
		// input at row t of the segment; t < 0 is history
		at := func(t, c int) float32 {
			if t < 0 {
				return in.Row(taps - 1 + t)[c]
			}
			return x.Row(g.Row + t)[c]
		}
		for t := range g.Rows {
			d := dst.Row(g.Row + t)
			for c := range d {
				for j := range u {
					u[j], wc[j] = at(t-taps+1+j, c), w.Row(j)[c]
				}
				d[c] = canon.SiLU(canon.Dot(u, wc))
			}
		}
		for j := range taps - 1 {
			o := out.Row(j)
			for c := range o {
				o[c] = at(g.Rows-taps+1+j, c)
			}
		}
	}
}

func l2Norm(dst, x []float32, eps, scale float32) {
	r := canon.Rsqrt(canon.SumSquares(x) + eps)
	for i := range x {
		dst[i] = x[i] * r
		if scale != 1 {
			dst[i] *= scale
		}
	}
}

func (s *stream) L2Norm(dst, x tensor.Tensor, eps, scale float32) {
	if s.err != nil || s.fails(backend.CheckHeads("L2Norm", dst, x)) || s.away(dst, x) {
		return
	}
	for r := range x.Dim(0) {
		for h := range x.Dim(1) {
			l2Norm(dst.Vec(r, h), x.Vec(r, h), eps, scale)
		}
	}
}

func (s *stream) DeltaGates(g, beta, a, b, aExp, dtBias tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckDeltaGates(g, beta, a, b, aExp, dtBias)) || s.away(g, beta, a, b, aExp, dtBias) {
		return
	}
	ae, _ := aExp.F32()
	dt, _ := dtBias.F32()
	for r := range g.Dim(0) {
		av, bv, gv, be := a.Row(r), b.Row(r), g.Row(r), beta.Row(r)
		for h := range gv {
			gv[h] = canon.Exp(-float32(ae[h] * canon.Softplus(av[h]+dt[h])))
			be[h] = canon.Sigmoid(bv[h])
		}
	}
}

func (s *stream) GatedDelta(dst, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckGatedDelta(dst, q, k, v, g, beta, p, layer)) || s.away(dst, q, k, v, g, beta) || !s.current(p) {
		return
	}
	dk, dv := q.Dim(2), v.Dim(2)
	per := v.Dim(1) / q.Dim(1)
	col := make([]float32, dk)
	segs := p.Segs()
	for gi := range segs {
		sg := &segs[gi]
		for h := range v.Dim(1) {
			st := sg.DeltaOut.Index(layer).Index(h)
			tensor.Copy(st, sg.DeltaIn.Index(layer).Index(h))
			S, _ := st.F32()
			for t := sg.Row; t < sg.Row+sg.Rows; t++ {
				kt, qt, vt, out := k.Vec(t, h/per), q.Vec(t, h/per), v.Vec(t, h), dst.Vec(t, h)
				gt, bt := g.Row(t)[h], beta.Row(t)[h]
				for j := range dv {
					for i := range dk {
						col[i] = S[i*dv+j] * gt
					}
					d := float32(vt[j]-canon.Dot(col, kt)) * bt
					for i := range dk {
						col[i] = canon.FMA32(kt[i], d, col[i])
						S[i*dv+j] = col[i]
					}
					out[j] = canon.Dot(col, qt)
				}
			}
		}
	}
}

func (s *stream) GatedRMSNorm(dst, x, z, w tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckHeads("GatedRMSNorm", dst, x, z)) || s.fails(backend.CheckVector("GatedRMSNorm", "w", w, x.Dim(2))) || s.away(dst, x, z, w) {
		return
	}
	wv, _ := w.F32()
	for r := range x.Dim(0) {
		for h := range x.Dim(1) {
			d, zv := dst.Vec(r, h), z.Vec(r, h)
			rmsNorm(d, x.Vec(r, h), wv, eps)
			for i := range d {
				d[i] *= canon.SiLU(zv[i])
			}
		}
	}
}
