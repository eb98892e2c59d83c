package cpu

import (
	"fmt"
	"slices"

	"samebit/backend"
	"samebit/tensor"
)

// experts is the memory of a mixture of experts.
type experts struct {
	p           []float32
	rows        []int32 // rows of the expert under way
	weight      []float32
	x, gate, up []float32
	down        []float32
	shared      []float32 // by row, the gate of the shared expert
}

func (s *stream) Route(experts, weights, logits tensor.Tensor, k int, renorm bool) {
	if s.err != nil || s.fails(backend.CheckRoute(experts, weights, logits, k)) || s.away(experts, weights, logits) {
		return
	}
	ids, _ := experts.I32()
	w, l := s.host(weights), s.host(logits)
	s.moe.p = grow(s.moe.p, l.cols)
	p := s.moe.p
	for r := range l.rows {
		s.dev.vec.Softmax(p, l.row(r))
		chosen := ids[r*k : (r+1)*k]
		for i := range chosen {
			best := int32(-1)
			for e, v := range p {
				if v == v && (best < 0 || v > p[best]) && !slices.Contains(chosen[:i], int32(e)) {
					best = int32(e)
				}
			}
			if best < 0 {
				s.fails(fmt.Errorf("cpu: Route: the router's logits of row %d are NaN", r))
				return
			}
			chosen[i] = best
		}
		slices.Sort(chosen)
		row := w.row(r)
		for i, e := range chosen {
			row[i] = p[e]
		}
		if renorm {
			s.dev.vec.Scale(row, row, 1/s.dev.vec.Sum(row))
		}
	}
}

// Experts goes through the experts in order and gives each the rows that chose
// it, so that a weight is read once and every row adds in ascending order.
func (s *stream) Experts(dst, x, experts, weights tensor.Tensor, gate, up, down []backend.Weight) {
	if s.err != nil || s.fails(backend.CheckExperts(dst, x, experts, weights, gate, up, down)) || s.away(dst, x, experts, weights) {
		return
	}
	ids, _ := experts.I32()
	k := experts.Dim(1)
	for i, e := range ids {
		if e < 0 || int(e) >= len(gate) {
			s.fails(fmt.Errorf("cpu: Experts: row %d asks for expert %d of %d", i/k, e, len(gate)))
			return
		}
	}
	d, in, w := s.host(dst), s.host(x), s.host(weights)
	for r := range d.rows {
		clear(d.row(r))
	}
	m := &s.moe
	for e := range gate {
		g, u, o := s.own(gate[e]), s.own(up[e]), s.own(down[e])
		if g == nil || u == nil || o == nil {
			return
		}
		m.rows, m.weight = m.rows[:0], m.weight[:0]
		for i, id := range ids {
			if int(id) == e {
				m.rows, m.weight = append(m.rows, int32(i/k)), append(m.weight, w.row(i / k)[i%k])
			}
		}
		n := len(m.rows)
		if n == 0 {
			continue
		}
		m.x, m.gate, m.up, m.down = grow(m.x, n*in.cols), grow(m.gate, n*g.n), grow(m.up, n*g.n), grow(m.down, n*d.cols)
		xs, gs, us, ds := dense(m.x, n), dense(m.gate, n), dense(m.up, n), dense(m.down, n)
		for i, r := range m.rows {
			copy(xs.row(i), in.row(int(r)))
		}
		s.prod.outs = append(s.prod.outs[:0], output{gs, g}, output{us, u})
		s.products(xs)
		s.dev.vec.SwiGLU(m.gate, m.gate, m.up)
		s.linear(ds, gs, o)
		for i, r := range m.rows {
			s.dev.vec.FMAScalar(d.row(int(r)), m.weight[i], ds.row(i))
		}
	}
}

// dense views v as rows without gaps.
func dense(v []float32, rows int) matrix {
	c := len(v) / rows
	return matrix{v: v, rows: rows, cols: c, heads: 1, stride: c}
}

func grow(v []float32, n int) []float32 {
	if cap(v) < n {
		return make([]float32, n)
	}
	return v[:n]
}
