package cpu

import (
	"samebit/backend"
	"samebit/backend/cpu/internal/delta"
	"samebit/tensor"
)

// deltaOp holds the operands of the delta-net op under way.
type deltaOp struct {
	dst, q, k, v, g, beta matrix
	aExp, dtBias          []float32
	layer, per            int
	heads, dk, dv         int
	conv                  delta.Conv
	jobs                  []delta.Head // by worker
}

func (s *stream) Conv(dst, x, w tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckConv(dst, x, w, p, layer)) || !s.current(p) {
		return
	}
	o := &s.delta
	o.dst, o.v, o.layer = s.host(dst), s.host(x), layer
	wm := s.host(w)
	o.conv = delta.Conv{Channels: x.Dim(1), Taps: w.Dim(0), W: wm.v}
	if s.err != nil {
		return
	}
	s.run(len(s.plan.segs), convBody)
}

func convBody(s *stream, _, chunk int) {
	o, g := &s.delta, &s.plan.segs[chunk]
	c := o.conv
	c.T, c.DstStride, c.XStride = g.Rows, o.dst.stride, o.v.stride
	c.Dst, c.X = o.dst.v[g.Row*o.dst.stride:], o.v.v[g.Row*o.v.stride:]
	c.In, _ = g.ConvIn.Index(o.layer).F32()
	c.Out, _ = g.ConvOut.Index(o.layer).F32()
	s.dev.delta.Conv(&c)
}

func (s *stream) DeltaGates(g, beta, a, b, aExp, dtBias tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckDeltaGates(g, beta, a, b, aExp, dtBias)) {
		return
	}
	o := &s.delta
	o.aExp, o.dtBias = s.vector(aExp), s.vector(dtBias)
	s.each(s.host(g), s.host(beta), s.host(a), s.host(b), func(s *stream, g, beta, a, b []float32, _ int) {
		s.dev.delta.Gates(g, beta, a, b, s.delta.aExp, s.delta.dtBias)
	})
}

func (s *stream) GatedDelta(dst, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckGatedDelta(dst, q, k, v, g, beta, p, layer)) || !s.current(p) {
		return
	}
	o := &s.delta
	o.dst, o.q, o.k, o.v, o.g, o.beta = s.host(dst), s.host(q), s.host(k), s.host(v), s.host(g), s.host(beta)
	o.layer, o.heads, o.per, o.dk, o.dv = layer, v.Dim(1), v.Dim(1)/q.Dim(1), q.Dim(2), v.Dim(2)
	if s.err != nil {
		return
	}
	if o.jobs == nil {
		o.jobs = make([]delta.Head, s.threads())
	}
	s.run(len(s.plan.segs)*o.heads, deltaBody)
}

func deltaBody(s *stream, worker, chunk int) {
	o := &s.delta
	g, h := &s.plan.segs[chunk/o.heads], chunk%o.heads
	// A head view of one head has no stride between heads; index 0 needs none.
	at := func(m *matrix, h int) []float32 { return m.v[g.Row*m.stride+h*m.stride2:] }
	job := &o.jobs[worker]
	*job = delta.Head{
		T: g.Rows, Dk: o.dk, Dv: o.dv,
		Out: at(&o.dst, h), Q: at(&o.q, h/o.per), K: at(&o.k, h/o.per), V: at(&o.v, h),
		G: o.g.v[g.Row*o.g.stride+h:], Beta: o.beta.v[g.Row*o.beta.stride+h:],
		OutStride: o.dst.stride, QStride: o.q.stride, KStride: o.k.stride, VStride: o.v.stride, GStride: o.g.stride, BetaStride: o.beta.stride,
	}
	job.Src, _ = g.DeltaIn.Index(o.layer).Index(h).F32()
	job.Dst, _ = g.DeltaOut.Index(o.layer).Index(h).F32()
	tmp := s.tmp(worker, delta.Scratch(o.dk, o.dv))
	// In blocks of rows, which the kernel goes over once per strip of the state: the
	// rows of one head lie so far apart that few fit a cache side by side.
	for rows := job.T; rows > 0; rows -= job.T {
		job.T = min(rows, deltaRows)
		s.dev.delta.Run(job, tmp)
		if rows > job.T {
			t := job.T
			job.Src = job.Dst
			job.Out, job.V = job.Out[t*job.OutStride:], job.V[t*job.VStride:]
			job.Q, job.K = job.Q[t*job.QStride:], job.K[t*job.KStride:]
			job.G, job.Beta = job.G[t*job.GStride:], job.Beta[t*job.BetaStride:]
		}
	}
}

const deltaRows = 128
