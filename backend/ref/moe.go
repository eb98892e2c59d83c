package ref

import (
	"fmt"
	"slices"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

func (s *stream) Route(experts, weights, logits tensor.Tensor, k int, renorm bool) {
	if s.err != nil || s.fails(backend.CheckRoute(experts, weights, logits, k)) || s.away(experts, weights, logits) {
		return
	}
	ids, _ := experts.I32()
	p := make([]float32, logits.Dim(1))
	for r := range logits.Dim(0) {
		softmax(p, logits.Row(r))
		chosen := ids[r*k : (r+1)*k]
		for i := range chosen {
			best := int32(-1)
			for e, v := range p {
				if v == v && !slices.Contains(chosen[:i], int32(e)) && (best < 0 || v > p[best]) {
					best = int32(e)
				}
			}
			if best < 0 {
				s.fails(fmt.Errorf("ref: Route: the router's logits of row %d are NaN", r))
				return
			}
			chosen[i] = best
		}
		slices.Sort(chosen)
		w := weights.Row(r)
		for i, e := range chosen {
			w[i] = p[e]
		}
		if renorm {
			n := 1 / canon.Sum(w)
			for i := range w {
				w[i] *= n
			}
		}
	}
}

func (s *stream) Experts(dst, x, experts, weights tensor.Tensor, gate, up, down []backend.Weight) {
	if s.err != nil || s.fails(backend.CheckExperts(dst, x, experts, weights, gate, up, down)) || s.away(dst, x, experts, weights) {
		return
	}
	ids, _ := experts.I32()
	k := experts.Dim(1)
	h := make([]float32, gate[0].Out())
	for r := range x.Dim(0) {
		xr, y := x.Row(r), dst.Row(r)
		clear(y)
		for i, e := range ids[r*k : (r+1)*k] {
			if e < 0 || int(e) >= len(gate) {
				s.fails(fmt.Errorf("ref: Experts: row %d asks for expert %d of %d", r, e, len(gate)))
				return
			}
			g, u, d := s.own(gate[e]), s.own(up[e]), s.own(down[e])
			if g == nil || u == nil || d == nil {
				return
			}
			for n := range h {
				h[n] = canon.SiLU(canon.Dot(xr, g.row(n))) * canon.Dot(xr, u.row(n))
			}
			for n := range y {
				y[n] = canon.FMA32(weights.Row(r)[i], canon.Dot(h, d.row(n)), y[n])
			}
		}
	}
}

func (s *stream) AddGated(dst, y, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckAddGated(dst, y, x, gate)) || s.away(dst, y, x, gate) {
		return
	}
	for r := range x.Dim(0) {
		a := canon.Sigmoid(gate.Row(r)[0])
		d, yr, xr := dst.Row(r), y.Row(r), x.Row(r)
		for i := range d {
			d[i] = canon.FMA32(a, xr[i], yr[i])
		}
	}
}
