package cuda

import (
	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

var _ backend.ArchiveGrad = (*stream)(nil)

func (s *stream) WindowAttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, w backend.WindowParams) {
	if s.err != nil || s.fails(backend.CheckWindowAttentionGrad(dq, dk, dv, dy, y, q, k, v, p, w)) || s.away(dq, dk, dv, dy, y, q, k, v) || !s.current(p) || q.Len() == 0 {
		return
	}
	rows, hq, hkv := q.Dim(0), q.Dim(1), k.Dim(1)
	stats, ok := s.tmp(scratchStats, 8*rows*hq)
	if !ok {
		return
	}
	// Each kernel gets the struct Pairs of kernels/archivegradmix.cu.
	run := func(name string, heads int, more ...tensor.Tensor) {
		if s.err != nil {
			return
		}
		a := s.kernel().Ptr(s.plan.segAt).Ptr(s.plan.ofAt)
		for _, x := range [4]tensor.Tensor{q, k, v, dy} {
			s.view(a, x)
		}
		ints(a.Ptr(stats).Float32(w.Scale), min(w.Window, 1<<30), min(w.Sinks, 1<<30), q.Dim(2), hq/hkv, rows)
		for _, x := range more {
			s.view(a, x)
		}
		s.launch("archivegradmix", name, [3]uint32{uint32(heads), uint32(min(rows, maxGrid)), 1}, [3]uint32{32, 2, 1}, 0)
	}
	run("windowStats", hq, y)
	run("windowGradQ", hq, dq)
	run("windowGradKV", hkv, dk, dv)
}

func (s *stream) GateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate tensor.Tensor, p backend.Plan, w backend.GateParams) {
	if s.err != nil || s.fails(backend.CheckGateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate, p)) || s.away(dlocal, dremote, dgate, dy, local, remote, gate) ||
		!s.current(p) || dy.Len() == 0 {
		return
	}
	k := s.kernel().Ptr(s.plan.segAt).Ptr(s.plan.ofAt)
	for _, x := range [5]tensor.Tensor{dlocal, dremote, dy, local, remote} {
		s.view(k, x)
	}
	s.optional(s.optional(k, gate), dgate).Int32(int32(min(max(w.From, 0), 1<<30))).Float32(w.Remote).Int32(flag(w.Norm)).Int32(int32(dy.Dim(2)))
	s.perHead("archivegradmix", "gateMixGrad", rowsOf(dy))
}

func (s *stream) GELUGrad(dx, dy, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("GELUGrad", dx, dy, x)) || s.away(dx, dy, x) || x.Len() == 0 {
		return
	}
	s.views(dx, dy, x).Int32(int32(x.Dim(1)))
	s.each("archivegradmix", "geluGrad", x.Dim(1), x.Dim(0))
}

// flat is a view of rows of scratch memory; the zero value has no memory.
type flat struct {
	at          driver.Ptr
	rows, width int
}

func (s *stream) flatView(p *driver.Params, f flat) *driver.Params {
	return p.Ptr(f.at).Uint64(uint64(f.width)).Uint64(0).Int32(1).Int32(int32(f.rows))
}

// rowsArg is a tensor of heads, or rows of scratch memory.
type rowsArg struct {
	t tensor.Tensor
	f flat
}

func (s *stream) rowsView(p *driver.Params, x rowsArg) *driver.Params {
	if x.t.Valid() {
		return s.view(p, x.t)
	}
	return s.flatView(p, x.f)
}

// pairs is a sum over rows and query heads of products x[i]·y[j], the gradient of a
// parameter [A, nx, ny].
type pairs struct {
	dst    tensor.Tensor
	nx, ny int
	x, y   rowsArg // rows of query heads; without y the sum is that of x

	// The events that follow the heads of a row, rows of archive heads, and the rows of
	// key heads that are multiplied with them, if there are any.
	event  flat
	k      tensor.Tensor
	window int
}

// pairSums adds the chains to the gradient, if it is asked for: of a archive heads with
// group query heads each, from a slot on.
func (s *stream) pairSums(o pairs, a, group, from int) {
	if s.err != nil || !o.dst.Valid() {
		return
	}
	t, ok := s.rowTable()
	if !ok {
		return
	}
	p := s.kernel().Ptr(s.plan.segAt).Ptr(s.plan.ofAt).Ptr(t.blockAt).Ptr(s.at(o.dst))
	s.flatView(s.rowsView(s.rowsView(p, o.x), o.y), o.event)
	per := 1
	if o.event.at != 0 {
		per = a / o.k.Dim(1)
	}
	ints(s.optional(p, o.k), t.blocks, o.nx, o.ny, group, min(from, 1<<30), min(o.window, 1<<30), per, 0)
	s.cells("archivegradmix", "pairSums", o.nx*o.ny, a, 1)
}

func (s *stream) QueryCorrectionGrad(dq, dv, du, dy, q, v, u tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckQueryCorrectionGrad(dq, dv, du, dy, q, v, u, p)) || s.away(dq, dv, du, dy, q, v, u) || !s.current(p) || q.Len() == 0 {
		return
	}
	d, rank, a, n := q.Dim(2), v.Dim(2), v.Dim(0), rowsOf(q)
	group := q.Dim(1) / a
	z, ok := s.tmp(scratchArchive, 8*n*rank)
	if !ok {
		return
	}
	dz := z + driver.Ptr(4*n*rank)
	if s.latent(z, q, v, 0, q.Dim(0)); s.err != nil {
		return
	}
	ints(s.view(s.kernel().Ptr(dz), dy).Ptr(s.maybe(u)), rank, d, group)
	if s.each("archivegradmix", "latentGrad", rank, n); s.err != nil {
		return
	}
	ints(s.views(dq, dy).Ptr(dz).Ptr(s.maybe(v)), rank, d, group)
	s.each("archivegradmix", "correctGrad", d, n)
	s.pairSums(pairs{dst: dv, nx: d, ny: rank, x: rowsArg{t: q}, y: rowsArg{f: flat{dz, n, rank}}}, a, group, 0)
	s.pairSums(pairs{dst: du, nx: rank, ny: d, x: rowsArg{f: flat{z, n, rank}}, y: rowsArg{t: dy}}, a, group, 0)
}
