package cpu

import (
	"samebit/backend"
	"samebit/backend/cpu/internal/attngrad"
	"samebit/tensor"
)

// attnGrad holds the operands of the gradient of attention under way.
type attnGrad struct {
	dq, dk, dv, dy, y, q, k, v  matrix
	heads, group, window, sinks int
	scale                       float32
	jobs                        []*attngrad.Job // by worker, on cache lines of their own
}

func (s *stream) AttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttentionGrad(dq, dk, dv, dy, y, q, k, v, p)) || !s.current(p) {
		return
	}
	s.attentionGrad(dq, dk, dv, dy, y, q, k, v, scale, window, 0)
}

func (s *stream) WindowAttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, w backend.WindowParams) {
	if s.err != nil || s.fails(backend.CheckWindowAttentionGrad(dq, dk, dv, dy, y, q, k, v, p, w)) || !s.current(p) {
		return
	}
	s.attentionGrad(dq, dk, dv, dy, y, q, k, v, w.Scale, w.Window, w.Sinks)
}

func (s *stream) attentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, scale float32, window, sinks int) {
	a := &s.grad.attn
	a.dq, a.dk, a.dv, a.dy, a.y, a.q, a.k, a.v = s.host(dq), s.host(dk), s.host(dv), s.host(dy), s.host(y), s.host(q), s.host(k), s.host(v)
	if s.err != nil {
		return
	}
	a.heads, a.group, a.scale, a.window, a.sinks = k.Dim(1), q.Dim(1)/k.Dim(1), scale, window, sinks
	s.firsts(a.dq, a.dk, a.dv)
	if a.jobs == nil {
		a.jobs = make([]*attngrad.Job, s.threads())
		for i := range a.jobs {
			a.jobs[i] = new(attngrad.Job)
		}
	}
	s.run(len(s.plan.segs)*a.heads, attnGradBody)
}

// rowsOf are the rows of a head from row on.
func rowsOf(m *matrix, row, head int) attngrad.Rows {
	return attngrad.Rows{V: m.v[row*m.stride+head*m.stride2:], Stride: m.stride}
}

func attnGradBody(s *stream, worker, chunk int) {
	a := &s.grad.attn
	g, h := &s.plan.segs[chunk/a.heads], chunk%a.heads
	j := a.jobs[worker]
	*j = attngrad.Job{T: g.Rows, D: a.k.cols, Window: a.window, Sinks: a.sinks, Scale: a.scale, Fresh: s.grad.fresh,
		K: rowsOf(&a.k, g.Row, h), V: rowsOf(&a.v, g.Row, h), DK: rowsOf(&a.dk, g.Row, h), DV: rowsOf(&a.dv, g.Row, h),
		Q: j.Q[:0], Y: j.Y[:0], DY: j.DY[:0], DQ: j.DQ[:0]}
	for e := range a.group {
		j.Q, j.Y = append(j.Q, rowsOf(&a.q, g.Row, h*a.group+e)), append(j.Y, rowsOf(&a.y, g.Row, h*a.group+e))
		j.DY, j.DQ = append(j.DY, rowsOf(&a.dy, g.Row, h*a.group+e)), append(j.DQ, rowsOf(&a.dq, g.Row, h*a.group+e))
	}
	s.dev.attnGrad.Run(j, s.tmp(worker, s.dev.attnGrad.Scratch(j.T, j.D)))
}
