package cuda

import (
	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

// archiveGrad is a call of ArchiveScanGrad under way.
type archiveGrad struct {
	*stream
	w           *backend.ArchiveParams
	q, k, v, dy tensor.Tensor
	rows, a, hq int // of the pass, archive heads, query heads
	d, m, sc    int // width, codes, scales
	rank        int
	land, mixed bool // whether there are landmarks, and with a weight of their own
	pows        *powerTable

	// scratch memory: by row and archive head
	el, ex, weight, slope, hard, marks, den, g, dv, event, through driver.Ptr
	// by row and query head
	ql, qx, z, dz, mix, b, phi, p, numBack, denBack, logit, score, scales driver.Ptr
	landWeights, landScores, resp, landed, lands                          driver.Ptr
	num                                                                   driver.Ptr // by segment and archive head
}

// lay gives every array its place and returns their words.
func (o *archiveGrad) lay(at driver.Ptr) int {
	r := layout{at: at}
	events, queries, n := o.rows*o.a, o.rows*o.hq, o.m*o.sc
	for _, x := range []*driver.Ptr{&o.el, &o.ex, &o.weight, &o.slope, &o.hard, &o.event, &o.through} {
		*x = r.take(events * o.m)
	}
	for _, x := range []*driver.Ptr{&o.den, &o.g} {
		*x = r.take(events * n)
	}
	o.dv = r.take(events * o.d)
	for _, x := range []*driver.Ptr{&o.ql, &o.qx, &o.phi, &o.p, &o.score} {
		*x = r.take(queries * o.m)
	}
	for _, x := range []*driver.Ptr{&o.mix, &o.b, &o.numBack, &o.denBack, &o.logit} {
		*x = r.take(queries * n)
	}
	o.z, o.dz, o.scales = r.take(queries*o.rank), r.take(queries*o.rank), r.take(queries*o.sc)
	if o.land {
		o.marks = r.take(events * o.m * 3)
		o.landWeights, o.landScores = r.take(queries*o.m), r.take(queries*o.m)
		o.resp, o.landed = r.take(queries*o.d), r.take(queries*2)
	}
	o.lands = r.take(queries)
	o.num = r.take(len(o.plan.segs) * o.a * n * o.d)
	return r.next
}

func (s *stream) ArchiveScanGrad(d *backend.ArchiveGrads, dy, q, k, v tensor.Tensor, p backend.Plan, w *backend.ArchiveParams) {
	if s.err != nil || s.fails(backend.CheckArchiveScanGrad(d, dy, q, k, v, p, w)) || s.away(d.Q, d.K, d.V, dy, q, k, v, w.Codes, w.Mix, w.CorrV, w.CorrU, w.CorrScale, w.LandmarkMix) ||
		s.away(d.Codes, d.Mix, d.CorrV, d.CorrU, d.CorrScale, d.LandmarkMix) || !s.current(p) || q.Len() == 0 {
		return
	}
	o := &archiveGrad{stream: s, w: w, q: q, k: k, v: v, dy: dy, rows: q.Dim(0), a: w.Codes.Dim(0), hq: q.Dim(1), d: q.Dim(2), m: w.Codes.Dim(1), sc: len(w.Decay),
		land: w.Landmarks != backend.NoLandmarks, mixed: w.Landmarks == backend.PersistentLandmarks}
	if w.CorrV.Valid() {
		o.rank = w.CorrV.Dim(2)
	}
	if o.pows = s.powers(w.Decay, w.Gain, 2); o.pows == nil {
		return
	}
	at, ok := s.tmp(scratchArchive, 4*o.lay(0))
	if !ok {
		return
	}
	o.lay(at)
	o.forward()
	o.reads(d)
	o.events(d)
	o.parameters(d)
}

// start starts a parameter list with the struct Sequences of kernels/archivegrad.cu.
func (o *archiveGrad) start() *driver.Params {
	p := o.kernel().Ptr(o.plan.segAt).Ptr(o.plan.ofAt)
	return ints(p, o.k.Dim(1), o.d, min(o.w.Window, 1<<30), min(o.w.Sinks, 1<<30), o.m, o.sc, o.a, o.hq)
}

// powers appends the struct Powers.
func (o *archiveGrad) powers(p *driver.Params) *driver.Params {
	return p.Ptr(o.pows.Mem.ptr).Int32(int32(o.pows.N)).Int32(0)
}

// response are the gradients of the responses before landmarks are blended in.
func (o *archiveGrad) response() rowsArg {
	if o.land {
		return rowsArg{f: flat{o.resp, o.rows * o.hq, o.d}}
	}
	return rowsArg{t: o.dy}
}

// blend is the weight of landmarks, 0 if it is no parameter.
func (o *archiveGrad) blend() driver.Ptr {
	if o.mixed {
		return o.at(o.w.LandmarkMix)
	}
	return 0
}

const archiveGradOps = "archivegrad"

// strips launches a kernel with a warp per 32 of n0, up to so many to a CTA.
func (o *archiveGrad) strips(name string, n0, n1, n2, most int) {
	if o.err != nil || n0 == 0 || n1 == 0 || n2 == 0 {
		return
	}
	warps := min(most, (n0+31)/32)
	o.launch(archiveGradOps, name, [3]uint32{uint32((n0 + 32*warps - 1) / (32 * warps)), uint32(min(n1, maxGrid)), uint32(min(n2, maxGrid))}, [3]uint32{32, uint32(warps), 1}, 0)
}

// forward scores all rows, takes landmarks back, and forms the sums.
func (o *archiveGrad) forward() {
	s, w, segs := o.stream, o.w, len(o.plan.segs)
	for _, queries := range [2]bool{false, true} {
		heads, x, l, e := o.a, o.k, o.el, o.ex
		if queries {
			heads, x, l, e = o.hq, o.q, o.ql, o.qx
		}
		p := o.start().Ptr(s.at(w.Codes)).Float32(w.Scale).Int32(flag(w.Features)).Int32(flag(w.Gated)).Float32(w.Threshold).Int32(flag(queries)).Int32(int32(o.rows))
		s.view(p, x).Ptr(l).Ptr(e).Ptr(o.weight).Ptr(o.slope).Ptr(o.hard)
		o.strips("scoreBack", o.m, heads, o.rows, 4)
	}
	if o.land {
		ints(o.start(), int(w.Landmarks)).Int32(flag(w.Gated)).Float32(w.Threshold).Ptr(o.el).Ptr(o.marks)
		s.cells(archiveGradOps, "markBack", o.m, o.a, segs)
		p := o.start().Int32(int32(o.rows)).Float32(w.Scale).Float32(w.LandmarkTemp).Ptr(o.blend())
		for _, x := range [4]tensor.Tensor{o.q, o.dy, o.k, o.v} {
			s.view(p, x)
		}
		p.Ptr(o.marks).Ptr(o.landWeights).Ptr(o.landScores).Ptr(o.resp).Ptr(o.landed)
		s.warps(archiveGradOps, "recallBack", o.rows*o.hq)
	}
	o.powers(s.rowsView(s.view(o.start(), o.v), o.response())).Ptr(o.weight).Ptr(o.num).Ptr(o.den).Ptr(o.b)
	s.cells(archiveGradOps, "sumsForward", o.m*o.sc, o.a, segs)
}

// reads takes the reads back.
func (o *archiveGrad) reads(d *backend.ArchiveGrads) {
	s, w := o.stream, o.w
	mixed := 1
	if o.rank > 0 {
		mixed = o.rows
		s.latent(o.z, o.q, w.CorrV, 0, o.rows)
	}
	ints(s.kernel().Ptr(o.mix).Ptr(s.at(w.Mix)).Ptr(0).Ptr(o.z).Ptr(s.maybe(w.CorrScale)), mixed, o.m, o.m, o.sc, o.a, o.rank)
	s.cells("archive", "mixScales", o.m, o.hq, mixed)
	p := s.rowsView(o.start(), o.response()).Ptr(s.maybe(w.CorrU)).Ptr(s.maybe(w.CorrScale)).Ptr(o.blend())
	for _, x := range [16]driver.Ptr{o.ql, o.qx, o.z, o.mix, o.den, o.landed, o.b, o.phi, o.p, o.numBack, o.denBack, o.logit, o.score, o.scales, o.dz, o.lands} {
		p.Ptr(x)
	}
	ints(p.Float32(w.Scale), o.rows, o.rank).Int32(flag(w.PerCode)).Int32(flag(o.rank > 0)).Int32(0)
	s.warps(archiveGradOps, "readBack", o.rows*o.hq)
	p = ints(o.start(), o.rows, o.rank).Int32(flag(w.Features && !w.PerCode))
	s.view(s.view(p, d.Q), o.q).Ptr(s.at(w.Codes)).Ptr(s.maybe(w.CorrV))
	s.view(p, o.k).Ptr(o.score).Ptr(o.dz).Ptr(o.marks).Ptr(o.landed).Ptr(o.landScores)
	o.strips("queryBack", o.d, o.rows*o.hq, 1, 1)
}

// events takes the events back.
func (o *archiveGrad) events(d *backend.ArchiveGrads) {
	s, w, segs := o.stream, o.w, len(o.plan.segs)
	o.powers(s.rowsView(s.view(o.start(), o.v), o.response())).Ptr(o.num).Ptr(o.numBack).Ptr(o.denBack).Ptr(o.g)
	s.cells(archiveGradOps, "sumsBack", o.m*o.sc, o.a, segs)
	o.powers(s.rowsView(o.start(), o.response())).Ptr(o.weight).Ptr(o.num).Ptr(o.numBack).Ptr(o.dv)
	s.cells(archiveGradOps, "valueBack", o.d, o.a, segs)
	o.powers(o.start().Int32(int32(o.rows)).Float32(w.Scale)).Ptr(o.slope).Ptr(o.hard).Ptr(o.g).Ptr(o.event).Ptr(o.through)
	s.cells(archiveGradOps, "weightBack", o.m, o.a, o.rows)
	p := ints(o.start(), o.rows).Int32(flag(w.Features))
	s.view(s.view(s.view(p, d.K), d.V), o.k).Ptr(s.at(w.Codes)).Ptr(o.dv).Ptr(o.event).Ptr(o.through)
	o.strips("eventBack", o.d, o.k.Dim(1), o.rows, 1)
}

// parameters adds the sums over rows.
func (o *archiveGrad) parameters(d *backend.ArchiveGrads) {
	s, group, from := o.stream, o.hq/o.a, o.w.Window+o.w.Sinks
	n, queries := o.m*o.sc, o.rows*o.hq
	rows := func(at driver.Ptr, width int) rowsArg { return rowsArg{f: flat{at, queries, width}} }
	for _, x := range [5]pairs{
		{dst: d.Codes, nx: o.m, ny: o.d, x: rows(o.score, o.m), y: rowsArg{t: o.q}, event: flat{o.event, o.rows * o.a, o.m}, k: o.k, window: o.w.Window},
		{dst: d.Mix, nx: n, ny: 1, x: rows(o.logit, n)},
		{dst: d.CorrV, nx: o.d, ny: o.rank, x: rowsArg{t: o.q}, y: rows(o.dz, o.rank)},
		{dst: d.CorrU, nx: o.rank, ny: o.d, x: rows(o.z, o.rank), y: o.response()},
		{dst: d.CorrScale, nx: o.rank, ny: o.sc, x: rows(o.z, o.rank), y: rows(o.scales, o.sc)},
	} {
		s.pairSums(x, o.a, group, from)
	}
	if s.err == nil && d.LandmarkMix.Valid() && !o.mixed { // an add of +0
		s.do(step{kind: fillZero, to: o.lands, n: 4 * queries}, nil)
	}
	s.pairSums(pairs{dst: d.LandmarkMix, nx: 1, ny: 1, x: rows(o.lands, 1)}, o.a, group, from)
}
