package cpu

import (
	"math"

	"samebit/backend"
	"samebit/backend/cpu/internal/attn"
	"samebit/internal/canon"
	"samebit/tensor"
)

// archiveOp holds the operands of the op of archive attention under way.
type archiveOp struct {
	window        backend.WindowParams
	mass          matrix // of WindowAttention; no values if it is not wanted
	lse           [][]float32
	q, dst        matrix
	scan          *backend.ArchiveParams
	exact         *backend.ExactParams
	layer         int
	heads, kv     int // archive heads, key heads
	d             int
	weight        matrix
	gate, promote matrix
	gateParams    backend.GateParams
	v, u          matrix // of QueryCorrection, by archive head
	rank          int
	head          [][]float32 // by worker: memory of a head
	open          []head      // by worker
	tables        []table     // by worker
	again         []bool      // by segment: the last read serves
}

// awayBank is away for the tensors of a bank.
func (s *stream) awayBank(b *backend.ArchiveBank) bool {
	for _, t := range b.Tensors() {
		if s.away(*t) {
			return true
		}
	}
	return false
}

// plane returns what a plane of a page holds of a head: of even ones [D][64], of
// odd ones [64][D].
func plane(page tensor.Tensor, index, head int) []float32 {
	k, v := pageHead(page, index/2, head)
	if index%2 == 0 {
		return k
	}
	return v
}

// putPlane stores a row of D values in a slot of a plane.
func putPlane(page tensor.Tensor, index, head, slot int, x []float32) {
	p := plane(page, index, head)
	if index%2 == 1 {
		copy(p[slot*len(x):], x)
		return
	}
	for c, v := range x {
		p[c*backend.Page+slot] = v
	}
}

// getPlane reads a slot of a plane into x.
func getPlane(x []float32, page tensor.Tensor, index, head, slot int) {
	p := plane(page, index, head)
	if index%2 == 1 {
		copy(x, p[slot*len(x):])
		return
	}
	for c := range x {
		x[c] = p[c*backend.Page+slot]
	}
}

func (s *stream) PutWindow(p backend.Plan, layer int, k, v, raw tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPutWindow(p, layer, k, v, raw)) || s.away(k, v, raw) || !s.current(p) {
		return
	}
	for i := range s.plan.segs {
		g := &s.plan.segs[i]
		for r := range g.Rows {
			page, slot := g.Archive.Window[(g.Archive.Slot+r)/backend.Page], (g.Archive.Slot+r)%backend.Page
			for h := range k.Dim(1) {
				putPlane(page, 2*layer, h, slot, k.Vec(g.Row+r, h))
				putPlane(page, 2*layer+1, h, slot, v.Vec(g.Row+r, h))
				if raw.Valid() {
					putPlane(page, g.Archive.Raw+layer, h, slot, raw.Vec(g.Row+r, h))
				}
			}
		}
	}
}

func (s *stream) WindowAttention(dst, mass, q tensor.Tensor, p backend.Plan, layer int, w backend.WindowParams) {
	if s.err != nil || s.fails(backend.CheckWindowAttention(dst, mass, q, p, layer, w)) || s.away(mass) || !s.current(p) {
		return
	}
	o, a := &s.arch, &s.attn
	o.window, o.mass = w, matrix{}
	o.kv = s.plan.segs[0].Archive.Window[0].Dim(1)
	if mass.Valid() {
		o.mass = s.host(mass)
	}
	s.attendHeads(dst, q, o.kv, layer, w.Scale, w.Window)
	if s.err != nil {
		return
	}
	defer a.result()
	if o.lse == nil {
		o.lse = make([][]float32, s.threads())
	}
	a.tasks = a.tasks[:0]
	per := max(1, min(queryRows, max(leastRows, s.plan.rows*a.heads/(4*s.threads())))/a.group)
	for i := range s.plan.segs {
		g := &s.plan.segs[i]
		for n := 0; n < g.Rows; n += per {
			for h := range o.kv {
				a.tasks = append(a.tasks, task{seg: i, head: h, row: n, rows: min(per, g.Rows-n)})
			}
		}
	}
	s.run(len(a.tasks), windowBody)
}

func windowBody(s *stream, worker, chunk int) {
	a, o, w := &s.attn, &s.arch, &s.attn.work[worker]
	t := &a.tasks[chunk]
	g := &s.plan.segs[t.seg]
	w.k, w.v, w.lo, w.hi = w.k[:0], w.v[:0], w.lo[:0], w.hi[:0]
	last := g.Archive.Slot + t.row + t.rows
	for b := range (last + backend.Page - 1) / backend.Page {
		k, v := pageHead(g.Archive.Window[b], a.layer, t.head)
		w.k, w.v = append(w.k, k), append(w.v, v)
	}
	for i := range t.rows {
		own := g.Archive.Slot + t.row + i
		for range a.group {
			w.lo, w.hi = append(w.lo, int32(max(0, own-o.window.Window+1))), append(w.hi, int32(own+1))
		}
	}
	first := (g.Row+t.row)*a.q.stride + t.head*a.group*a.q.stride2
	j := &w.job
	*j = attn.Job{
		Q: a.q.v[first:], QStride: a.q.stride, Group: a.group, Rows: t.rows * a.group, D: a.d,
		Lo: w.lo, Hi: w.hi, K: w.k, V: w.v, Scale: a.scale, Sinks: o.window.Sinks,
		Out: a.out.v[(g.Row+t.row)*a.out.stride+t.head*a.group*a.out.stride2:], OutStride: a.out.stride,
	}
	if o.mass.v != nil {
		o.lse[worker] = grow(o.lse[worker], j.Rows)
		j.LSE = o.lse[worker][:j.Rows]
	}
	s.dev.attn.Attend(j, s.tmp(worker, attn.ScratchSize(j.Rows, j.D)))
	for r, x := range j.LSE {
		o.mass.row(g.Row + t.row + r/a.group)[t.head*a.group+r%a.group] = x
	}
}

// blend writes (1-a)·x + a·y; dst may be x.
func (s *stream) blend(dst []float32, a float32, y, x []float32) {
	s.dev.vec.Scale(dst, x, 1-a)
	s.dev.vec.FMAScalar(dst, a, y)
}

func (s *stream) GateMix(dst, local, remote, gate, promote tensor.Tensor, p backend.Plan, w backend.GateParams) {
	if s.err != nil || s.fails(backend.CheckGateMix(dst, local, remote, gate, promote, p, w)) || s.away(gate, promote) || !s.current(p) {
		return
	}
	o := &s.arch
	o.gateParams, o.heads, o.gate, o.promote = w, dst.Dim(1), matrix{}, matrix{}
	if gate.Valid() {
		o.gate = s.host(gate)
	}
	if promote.Valid() {
		o.promote = s.host(promote)
	}
	s.each(s.host(dst), s.host(local), s.host(remote), matrix{}, gateRow)
}

func gateRow(s *stream, dst, local, remote, _ []float32, r int) {
	o := &s.arch
	row, h, w := r/o.heads, r%o.heads, &o.gateParams
	if int(s.plan.slot[row]) < w.From {
		copy(dst, local)
		return
	}
	g, up, constant := w.Remote, float32(0), o.gate.v == nil
	if !constant {
		g = canon.Sigmoid(o.gate.row(row)[h])
	}
	if o.promote.v != nil {
		up = o.promote.row(row)[h]
	}
	if constant && up == 0 && !w.Norm {
		s.blend(dst, g, remote, local)
		return
	}
	if constant {
		g = 1 - g
	}
	g = float32(g * (1 - up))
	if !w.Norm {
		s.blend(dst, g, local, remote)
		return
	}
	n := float32(len(dst))
	l, a := canon.Sqrt(s.dev.vec.SumSquares(local)/n), canon.Sqrt(s.dev.vec.SumSquares(remote)/n)
	agree := lesser(l/greater(a, 1e-6), a/greater(l, 1e-6))
	s.blend(dst, float32((1-g)*lesser(greater(agree, 0), 1)), remote, local)
}

// greater and lesser let NaN of x through.
func greater(x, y float32) float32 {
	if x < y {
		return y
	}
	return x
}

func lesser(x, y float32) float32 {
	if x > y {
		return y
	}
	return x
}

func (s *stream) Blend(dst, x, y, a tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckBlend(dst, x, y, a)) || s.away(a) {
		return
	}
	s.arch.gate, s.arch.heads = s.host(a), dst.Dim(1)
	s.each(s.host(dst), s.host(x), s.host(y), matrix{}, func(s *stream, dst, x, y, _ []float32, r int) {
		s.blend(dst, s.arch.gate.row(r / s.arch.heads)[r%s.arch.heads], y, x)
	})
}

func (s *stream) MassMerge(dst, local, massLocal, exact, massExact tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckMassMerge(dst, local, massLocal, exact, massExact)) || s.away(massLocal, massExact) {
		return
	}
	o := &s.arch
	o.gate, o.promote, o.heads = s.host(massLocal), s.host(massExact), dst.Dim(1)
	s.each(s.host(dst), s.host(local), s.host(exact), matrix{}, func(s *stream, dst, local, exact, _ []float32, r int) {
		o, w := &s.arch, float32(0)
		if e := o.promote.row(r / o.heads)[r%o.heads]; e != float32(math.Inf(-1)) {
			w = canon.Sigmoid(e - o.gate.row(r / o.heads)[r%o.heads])
		}
		s.blend(dst, w, exact, local)
	})
}

func (s *stream) QueryCorrection(dst, q, v, u tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckQueryCorrection(dst, q, v, u)) || s.away(v, u) {
		return
	}
	o := &s.arch
	o.v, o.u, o.rank, o.heads, o.kv, o.d = s.host(v), s.host(u), v.Dim(2), q.Dim(1), q.Dim(1)/v.Dim(0), q.Dim(2)
	s.each(s.host(dst), s.host(q), matrix{}, matrix{}, func(s *stream, dst, q, _, _ []float32, r int) {
		o := &s.arch
		a := r % o.heads / o.kv
		var few [64]float32
		z := few[:0:len(few)]
		if o.rank > len(few) {
			z = make([]float32, 0, o.rank)
		}
		z = z[:o.rank]
		s.dev.vec.MixRows(z, q, o.v.v[a*o.d*o.rank:])
		s.dev.vec.MixRows(dst, z, o.u.v[a*o.d*o.rank:])
		s.dev.vec.Add(dst, q, dst)
	})
}

func (s *stream) GELU(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("GELU", dst, x)) {
		return
	}
	s.each(s.host(dst), s.host(x), matrix{}, matrix{}, func(_ *stream, dst, x, _, _ []float32, _ int) {
		for i, v := range x {
			dst[i] = canon.GELU(v)
		}
	})
}
