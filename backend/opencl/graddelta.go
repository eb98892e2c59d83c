package opencl

import (
	"samebit/backend"
	"samebit/tensor"
)

var gradDeltaOps = program{file: "graddelta"}

func (s *stream) ConvGrad(dx, dw, dy, x, w tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckConvGrad(dx, dw, dy, x, w, p, layer)) || s.away(dx, dw, dy, x, w) || !s.current(p) || x.Len() == 0 {
		return
	}
	taps, n, rows := w.Dim(0), x.Dim(1), x.Dim(0)
	u := s.space(rows * n)
	if u == nil {
		return
	}
	s.begin(gradDeltaOps, "conv_slope").tables(&s.plan).u32(layer).u32(taps).u32(n).at(u, 4).view(dy).view(x).view(w)
	if s.elements(n, rows); s.err != nil {
		return
	}
	s.begin(gradDeltaOps, "conv_grad").tables(&s.plan).u32(taps).u32(n).view(dx).at(u, 4).view(w)
	if s.elements(n, rows); s.err != nil || !dw.Valid() {
		return
	}
	s.begin(gradDeltaOps, "conv_weight_grad").tables(&s.plan).u32(len(s.plan.segs)).u32(layer).u32(taps).u32(n).view(dw).at(u, 4).view(x)
	s.elements(n, taps)
}

// deltaChunk is the number of rows whose states are kept at once; of the others only
// those between chunks are.
const deltaChunk = 32

func (s *stream) GatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckGatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta, p, layer)) ||
		s.away(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta) || !s.current(p) || v.Len() == 0 || q.Len() == 0 {
		return
	}
	longest := 0
	for i := range s.plan.segs {
		longest = max(longest, s.plan.segs[i].Rows)
	}
	hk, hv, nk, nv := q.Dim(1), v.Dim(1), q.Dim(2), v.Dim(2)
	chunks := (longest + deltaChunk - 1) / deltaChunk
	// scratch memory: D, the states, what rows wrote, the terms of keys, and work
	slots, state := 1+chunks+deltaChunk, hv*nk*nv
	statesAt := state
	wroteAt := statesAt + slots*state
	keysAt := wroteAt + deltaChunk*hv*2*nv
	workAt := keysAt + v.Dim(0)*hv*2*nk
	m := s.space(workAt + hv*(2*nv+nk))
	if m == nil {
		return
	}
	states := func(c *call) *call { return c.floats(m, int64(statesAt)).u32(slots).floats(m, int64(wroteAt)) }
	walk := func(row, rows, from, to, every int) {
		if s.err == nil {
			states(s.begin(gradDeltaOps, "delta_walk").u32(row).u32(rows).u32(from).u32(to).u32(every)).u32(hk).u32(nk).u32(nv).view(k).view(v).view(g).view(beta)
			s.end(int(groupSize), nv, hv, 1)
		}
	}
	for i := range s.plan.segs {
		sg := &s.plan.segs[i]
		if sg.Rows == 0 || s.err != nil {
			continue
		}
		s.begin(gradOps, "zero").u32(state).flat(m, 0, state)
		if s.elements(state, 1); s.err != nil {
			return
		}
		states(s.begin(gradDeltaOps, "delta_begin").tables(&s.plan).u32(i).u32(layer).u32(nk * nv))
		s.elements(nk*nv, hv)
		walk(sg.Row, sg.Rows, 0, 1, deltaChunk)
		for c := (sg.Rows - 1) / deltaChunk; c >= 0; c-- {
			row, rows := sg.Row+c*deltaChunk, min(deltaChunk, sg.Rows-c*deltaChunk)
			walk(row, rows, c, 1+chunks, 1)
			if s.err != nil {
				return
			}
			states(s.begin(gradDeltaOps, "delta_back").u32(row).u32(rows).u32(c).u32(1+chunks)).u32(hk).u32(nk).u32(nv).view(q).view(k).view(g).view(beta).view(dy).
				view(dv).view(dg).view(dbeta).floats(m, int64(keysAt)).at(m, 4).floats(m, int64(workAt))
			s.groups(hv)
		}
	}
	if s.err != nil {
		return
	}
	s.begin(gradDeltaOps, "delta_keys").u32(nk).u32(hv/hk).view(dq).view(dk).floats(m, int64(keysAt))
	s.elements(nk, v.Dim(0)*hk)
}
