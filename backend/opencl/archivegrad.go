package opencl

import (
	"samebit/backend"
	"samebit/tensor"
)

var _ backend.ArchiveGrad = (*stream)(nil)

// Programs of the gradients of windows and archives.
var (
	archiveGradOps = program{file: "archivegrad"}
	mixGradOps     = program{file: "mixgrad"}
)

func (s *stream) WindowAttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, w backend.WindowParams) {
	if s.err != nil || s.fails(backend.CheckWindowAttentionGrad(dq, dk, dv, dy, y, q, k, v, p, w)) || s.away(dq, dk, dv, dy, y, q, k, v) || !s.current(p) || q.Len() == 0 {
		return
	}
	s.attentionGrad(dq, dk, dv, dy, y, q, k, v, w.Scale, w.Window, w.Sinks)
}

func (s *stream) GateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate tensor.Tensor, p backend.Plan, w backend.GateParams) {
	if s.err != nil || s.fails(backend.CheckGateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate, p)) || s.away(dlocal, dremote, dgate, dy, local, remote, gate) ||
		!s.current(p) || dy.Len() == 0 {
		return
	}
	c := s.begin(mixGradOps, "gate_mix_grad").tables(&s.plan).u32(dy.Dim(2)).view(dlocal).view(dremote).view(dy).view(local).view(remote).maybe(s, gate)
	c.operand(s, dgate).u32(max(w.From, 0)).f32(w.Remote).flag(w.Norm)
	s.groups(rowsOf(dy))
}

func (s *stream) GELUGrad(dx, dy, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("GELUGrad", dx, dy, x)) || s.away(dx, dy, x) || x.Len() == 0 {
		return
	}
	s.begin(mixGradOps, "gelu_grad").u32(x.Dim(1)).view(dx).view(dy).view(x)
	s.elements(x.Dim(1), x.Dim(0))
}

// pairs is a sum over rows and query heads of products x[i]·y[j], the gradient of a
// parameter [A, nx, ny].
type pairs struct {
	dst    tensor.Tensor
	nx, ny int
	x, y   func(c *call) // rows of query heads; without y the sum is that of x

	// The events that follow the heads of a row, rows of archive heads, and the rows of key
	// heads that are multiplied with them; nil for none.
	event  func(c *call)
	k      tensor.Tensor
	window int
}

// pairSums adds the chains to the gradient, if it is asked for: of a archive heads with
// group query heads each, from a slot on.
func (s *stream) pairSums(o pairs, a, group, from int) {
	if !o.dst.Valid() || o.nx == 0 || o.ny == 0 {
		return
	}
	s.run(mixGradOps, "pair_sums", func(c *call) {
		c.tables(&s.plan).u32(len(s.plan.segs)).u32(o.nx).u32(o.ny).u32(group).u32(from).view(o.dst)
		o.x(c)
		if c.flag(o.y == nil); o.y != nil {
			o.y(c)
		} else {
			c.none(s)
		}
		per := 1
		if c.flag(o.event != nil); o.event != nil {
			o.event(c)
			per = a / o.k.Dim(1)
		} else {
			c.none(s)
		}
		c.operand(s, o.k).u32(o.window).u32(per)
	}, o.nx*o.ny, a, 1)
}

func (s *stream) QueryCorrectionGrad(dq, dv, du, dy, q, v, u tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckQueryCorrectionGrad(dq, dv, du, dy, q, v, u, p)) || s.away(dq, dv, du, dy, q, v, u) || !s.current(p) || q.Len() == 0 {
		return
	}
	d, rank, a, n := q.Dim(2), v.Dim(2), v.Dim(0), rowsOf(q)
	group := q.Dim(1) / a
	m := s.space(2 * n * rank)
	if m == nil {
		return
	}
	s.latent(q, v, 0, q.Dim(0), m, 0)
	dz := uint64(n * rank)
	s.run(mixGradOps, "latent_grad", func(c *call) {
		c.u32(rank).u32(d).u32(group).view(dy).view(u).floats(m, int64(dz))
	}, rank, n, 1)
	s.run(mixGradOps, "correct_grad", func(c *call) {
		c.u32(d).u32(rank).u32(group).view(dq).view(dy).view(v).floats(m, int64(dz))
	}, d, n, 1)
	queries := func(c *call) { c.view(q) }
	s.pairSums(pairs{dst: dv, nx: d, ny: rank, x: queries, y: func(c *call) { c.flat(m, int64(dz), rank) }}, a, group, 0)
	s.pairSums(pairs{dst: du, nx: rank, ny: d, x: func(c *call) { c.flat(m, 0, rank) }, y: func(c *call) { c.view(dy) }}, a, group, 0)
}
