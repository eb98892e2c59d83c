package opencl

import (
	"samebit/backend"
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
	mem         *memory

	// where arrays lie: by row and archive head
	el, ex, weight, slope, hard, marks, den, g, dv, event, through uint64
	// by row and query head
	ql, qx, z, dz, mix, b, phi, p, numBack, denBack, logit, score, scales uint64
	landWeights, landScores, resp, landed, lands                          uint64
	num                                                                   uint64 // by segment and archive head
}

// lay gives every array its place and returns their floats.
func (o *archiveGrad) lay() int {
	var r layout
	events, queries, n := o.rows*o.a, o.rows*o.hq, o.m*o.sc
	for _, at := range []*uint64{&o.el, &o.ex, &o.weight, &o.slope, &o.hard, &o.event, &o.through} {
		*at = r.take(events * o.m)
	}
	for _, at := range []*uint64{&o.den, &o.g} {
		*at = r.take(events * n)
	}
	o.dv = r.take(events * o.d)
	for _, at := range []*uint64{&o.ql, &o.qx, &o.phi, &o.p, &o.score} {
		*at = r.take(queries * o.m)
	}
	for _, at := range []*uint64{&o.mix, &o.b, &o.numBack, &o.denBack, &o.logit} {
		*at = r.take(queries * n)
	}
	o.z, o.dz, o.scales = r.take(queries*o.rank), r.take(queries*o.rank), r.take(queries*o.sc)
	if o.land {
		o.marks = r.take(events * o.m * 3)
		o.landWeights, o.landScores = r.take(queries*o.m), r.take(queries*o.m)
		o.resp, o.landed = r.take(queries*o.d), r.take(queries*2)
	}
	o.lands = r.take(queries)
	o.num = r.take(len(o.plan.segs) * o.a * n * o.d)
	return int(r)
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
	if o.mem = s.space(o.lay()); o.mem == nil {
		return
	}
	o.forward()
	o.reads(d)
	o.events(d)
	o.parameters(d)
}

// sequence passes what all kernels of archivegrad.cl take.
func (o *archiveGrad) sequence(c *call) *call {
	return c.tables(&o.plan).u32(o.k.Dim(1)).u32(o.d).u32(o.w.Window).u32(o.w.Sinks).u32(o.m).u32(o.sc).u32(o.a)
}

// launch runs a kernel of archivegrad.cl.
func (o *archiveGrad) launch(name string, n0, n1, n2 int, set func(c *call)) {
	o.run(archiveGradOps, name, func(c *call) { set(o.sequence(c)) }, n0, n1, n2)
}

// powers passes the decays and gains.
func (o *archiveGrad) powers(c *call) *call { return c.at(o.pows.Mem, 4).u32(o.pows.N) }

// response passes the gradients of the responses before landmarks are blended in.
func (o *archiveGrad) response(c *call) *call {
	if o.land {
		return c.flat(o.mem, int64(o.resp), o.d)
	}
	return c.view(o.dy)
}

func (o *archiveGrad) landMix() tensor.Tensor {
	if o.mixed {
		return o.w.LandmarkMix
	}
	return tensor.Tensor{}
}

// forward scores all rows, takes landmarks back, and forms the sums.
func (o *archiveGrad) forward() {
	s, w := o.stream, o.w
	segs := len(s.plan.segs)
	for _, queries := range [2]bool{false, true} {
		heads, x, l, e := o.a, o.k, o.el, o.ex
		if queries {
			heads, x, l, e = o.hq, o.q, o.ql, o.qx
		}
		o.launch("score_back", o.m, heads, o.rows, func(c *call) {
			c.view(w.Codes).f32(w.Scale).flag(w.Features).flag(w.Gated).f32(w.Threshold).flag(queries).view(x).part(o.mem, l, e, o.weight, o.slope, o.hard)
		})
	}
	if o.land {
		o.launch("mark_back", o.m, o.a, segs, func(c *call) {
			c.u32(int(w.Landmarks)).flag(w.Gated).f32(w.Threshold).part(o.mem, o.el, o.marks)
		})
		o.launch("recall_back", o.rows*o.hq, 1, 1, func(c *call) {
			c.u32(o.rows).u32(o.hq).f32(w.Scale).f32(w.LandmarkTemp).maybe(s, o.landMix()).view(o.q).view(o.dy).view(o.k).view(o.v).
				part(o.mem, o.marks, o.landWeights, o.landScores, o.resp, o.landed)
		})
	}
	o.launch("sums_forward", o.m*o.sc, o.a, segs, func(c *call) {
		o.powers(o.response(c.u32(o.hq).view(o.v))).part(o.mem, o.weight, o.num, o.den, o.b)
	})
}

// reads takes the reads back.
func (o *archiveGrad) reads(d *backend.ArchiveGrads) {
	s, w := o.stream, o.w
	if o.rank > 0 {
		s.latent(o.q, w.CorrV, 0, o.rows, o.mem, o.z)
	}
	mixRows := o.rows
	if o.rank == 0 {
		mixRows = 1
	}
	s.run(archiveOps, "mix_scales", func(c *call) {
		c.u32(o.m).u32(o.m).u32(o.sc).u32(o.a).u32(o.rank).view(w.Mix).operand(s, w.CorrScale).flag(false).part(o.mem, 0, o.z, o.mix)
	}, o.m, o.hq, mixRows)
	o.launch("read_back", o.rows*o.hq, 1, 1, func(c *call) {
		o.response(c.u32(o.rows).u32(o.hq).u32(o.rank).flag(w.PerCode).f32(w.Scale)).operand(s, w.CorrU).operand(s, w.CorrScale).flag(o.land).maybe(s, o.landMix()).
			part(o.mem, o.ql, o.qx, o.z, o.mix).flag(o.rank > 0).
			offsets(o.mem, o.den, o.b, o.phi, o.p, o.numBack, o.denBack, o.logit, o.score, o.scales, o.dz, o.landed, o.lands)
	})
	o.launch("query_back", o.d, o.rows*o.hq, 1, func(c *call) {
		c.u32(o.hq).u32(o.rank).flag(w.Features && !w.PerCode).view(d.Q).view(o.q).view(w.Codes).operand(s, w.CorrV).view(o.k).flag(o.land).
			part(o.mem, o.score, o.dz, o.marks, o.landed, o.landScores)
	})
}

// events takes the events back.
func (o *archiveGrad) events(d *backend.ArchiveGrads) {
	w, segs := o.w, len(o.plan.segs)
	o.launch("sums_back", o.m*o.sc, o.a, segs, func(c *call) {
		o.powers(o.response(c.u32(o.hq).view(o.v))).part(o.mem, o.num, o.numBack, o.denBack, o.g)
	})
	o.launch("value_back", o.d, o.a, segs, func(c *call) {
		o.powers(o.response(c.u32(o.hq))).part(o.mem, o.weight, o.num, o.numBack, o.dv)
	})
	o.launch("weight_back", o.m, o.a, o.rows, func(c *call) {
		o.powers(c.f32(w.Scale)).part(o.mem, o.slope, o.hard, o.g, o.event, o.through)
	})
	o.launch("event_back", o.d, o.k.Dim(1), o.rows, func(c *call) {
		c.flag(w.Features).view(d.K).view(d.V).view(o.k).view(w.Codes).part(o.mem, o.dv, o.event, o.through)
	})
}

// parameters adds the sums over rows.
func (o *archiveGrad) parameters(d *backend.ArchiveGrads) {
	group, from := o.hq/o.a, o.w.Window+o.w.Sinks
	rows := func(at uint64, width int) func(c *call) {
		return func(c *call) { c.flat(o.mem, int64(at), width) }
	}
	queries := func(c *call) { c.view(o.q) }
	n := o.m * o.sc
	for _, x := range []pairs{
		{dst: d.Codes, nx: o.m, ny: o.d, x: rows(o.score, o.m), y: queries, event: rows(o.event, o.m), k: o.k, window: o.w.Window},
		{dst: d.Mix, nx: n, ny: 1, x: rows(o.logit, n)},
		{dst: d.CorrV, nx: o.d, ny: o.rank, x: queries, y: rows(o.dz, o.rank)},
		{dst: d.CorrU, nx: o.rank, ny: o.d, x: rows(o.z, o.rank), y: func(c *call) { o.response(c) }},
		{dst: d.CorrScale, nx: o.rank, ny: o.sc, x: rows(o.z, o.rank), y: rows(o.scales, o.sc)},
	} {
		o.pairSums(x, o.a, group, from)
	}
	if s, n := o.stream, o.rows*o.hq; s.err == nil && d.LandmarkMix.Valid() && !o.mixed { // an add of +0
		s.begin(gradOps, "zero").u32(n).flat(o.mem, int64(o.lands), n)
		s.elements(n, 1)
	}
	o.pairSums(pairs{dst: d.LandmarkMix, nx: 1, ny: 1, x: rows(o.lands, 1)}, o.a, group, from)
}
