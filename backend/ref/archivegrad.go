package ref

import (
	"samebit/backend"
	"samebit/internal/archive"
	"samebit/internal/canon"
	"samebit/tensor"
)

var _ backend.ArchiveGrad = (*stream)(nil)

func (s *stream) WindowAttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, w backend.WindowParams) {
	if s.err != nil || s.fails(backend.CheckWindowAttentionGrad(dq, dk, dv, dy, y, q, k, v, p, w)) || s.away(dq, dk, dv, dy, y, q, k, v) || !s.current(p) {
		return
	}
	attentionGrad(dq, dk, dv, dy, y, q, k, v, p, w.Scale, w.Window, w.Sinks)
}

func (s *stream) ArchiveScanGrad(d *backend.ArchiveGrads, dy, q, k, v tensor.Tensor, p backend.Plan, w *backend.ArchiveParams) {
	if s.err != nil || s.fails(backend.CheckArchiveScanGrad(d, dy, q, k, v, p, w)) || s.away(d.Q, d.K, d.V, dy, q, k, v, w.Codes, w.Mix, w.CorrV, w.CorrU, w.CorrScale, w.LandmarkMix) ||
		s.away(d.Codes, d.Mix, d.CorrV, d.CorrU, d.CorrScale, d.LandmarkMix) || !s.current(p) {
		return
	}
	o := archiveOptions(w)
	heads, width := w.Codes.Dim(0), w.Codes.Dim(2)
	group, per := q.Dim(1)/heads, heads/k.Dim(1)
	for _, g := range p.Segs() {
		for a := range heads { // ascending: heads that share a key head add in this order
			h := &archive.Head[float32]{
				Options: o, Codes: values(w.Codes, a), Mix: values(w.Mix, a), CorrV: values(w.CorrV, a), CorrU: values(w.CorrU, a), CorrScale: values(w.CorrScale, a),
				Num: make([]float32, o.M*o.S*width), Den: make([]float32, o.M*o.S),
				LandKey: make([]float32, o.M*width), LandValue: make([]float32, o.M*width), LandScore: make([]float32, o.M),
			}
			if w.Landmarks == backend.PersistentLandmarks {
				h.LandMix = values(w.LandmarkMix, a)[0]
			}
			h.Init()
			rows := func(t tensor.Tensor) func(i int) []float32 {
				return func(i int) []float32 { return t.Vec(g.Row+i, a/per) }
			}
			queries := func(t tensor.Tensor) func(i, e int) []float32 {
				return func(i, e int) []float32 { return t.Vec(g.Row+i, a*group+e) }
			}
			b := archive.Sequence[float32]{Head: h, Rows: g.Rows, Window: w.Window, Sinks: w.Sinks, Group: group,
				Query: queries(q), DY: queries(dy), DQuery: queries(d.Q), Address: rows(k), Value: rows(v), DAddress: rows(d.K), DValue: rows(d.V),
				To: archive.Grads[float32]{Codes: values(d.Codes, a), Mix: values(d.Mix, a), CorrV: values(d.CorrV, a), CorrU: values(d.CorrU, a),
					CorrScale: values(d.CorrScale, a), LandMix: values(d.LandmarkMix, a)}}
			b.Backward()
		}
	}
}

func (s *stream) GateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate tensor.Tensor, p backend.Plan, w backend.GateParams) {
	if s.err != nil || s.fails(backend.CheckGateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate, p)) || s.away(dlocal, dremote, dgate, dy, local, remote, gate) || !s.current(p) {
		return
	}
	for _, g := range p.Segs() {
		for r := g.Row; r < g.Row+g.Rows; r++ {
			for h := range dy.Dim(1) {
				if r-g.Row < w.From {
					d := dlocal.Vec(r, h)
					for i, x := range dy.Vec(r, h) {
						d[i] += x
					}
					continue
				}
				weight := w.Remote
				if gate.Valid() {
					weight = canon.Sigmoid(gate.Row(r)[h])
				}
				d := math32.MixBack(dlocal.Vec(r, h), dremote.Vec(r, h), dy.Vec(r, h), local.Vec(r, h), remote.Vec(r, h), weight, !gate.Valid(), w.Norm)
				if gate.Valid() {
					dgate.Row(r)[h] += d
				}
			}
		}
	}
}

func (s *stream) QueryCorrectionGrad(dq, dv, du, dy, q, v, u tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckQueryCorrectionGrad(dq, dv, du, dy, q, v, u, p)) || s.away(dq, dv, du, dy, q, v, u) || !s.current(p) {
		return
	}
	per := q.Dim(1) / v.Dim(0)
	o := &archive.Options[float32]{Math: math32, D: q.Dim(2), R: v.Dim(2)}
	for a := range v.Dim(0) {
		h := &archive.Head[float32]{Options: o, CorrV: values(v, a), CorrU: values(u, a)}
		to := [2][]float32{values(dv, a), values(du, a)}
		rowBlocks(p, func(lo, hi int) {
			acc := [2][]float32{}
			for i := range to {
				if to[i] != nil {
					acc[i] = make([]float32, len(to[i]))
				}
			}
			for r := lo; r < hi; r++ {
				for e := a * per; e < (a+1)*per; e++ {
					h.CorrectBack(dq.Vec(r, e), acc[0], acc[1], dy.Vec(r, e), q.Vec(r, e))
				}
			}
			for i := range to {
				for c := range to[i] {
					to[i][c] += acc[i][c]
				}
			}
		})
	}
}

func (s *stream) GELUGrad(dx, dy, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("GELUGrad", dx, dy, x)) || s.away(dx, dy, x) {
		return
	}
	for r := range x.Dim(0) {
		d, g := dx.Row(r), dy.Row(r)
		for i, v := range x.Row(r) {
			d[i] += float32(g[i] * canon.GELUSlope(v))
		}
	}
}
