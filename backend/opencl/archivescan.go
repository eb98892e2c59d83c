package opencl

import (
	"samebit/backend"
	"samebit/internal/archive"
	"samebit/tensor"
)

type powerTable = archive.PowerTable[*memory]

// powers is the table of some decays for at least n powers, as the kernels read it.
func (s *stream) powers(decay, gain []float32, n int) *powerTable {
	return s.pows.Get(decay, gain, n, func(mem **memory, v []float32) bool {
		*mem = s.grown(*mem, 4*len(v))
		return *mem != nil && s.upload(*mem, 0, tensor.AsBytes(v))
	})
}

// archiveScan is a call of ArchiveScan under way.
type archiveScan struct {
	*stream
	w                         *backend.ArchiveParams
	dst, q                    tensor.Tensor
	layer                     int
	a, hq, d, m, n, sc, rank  int // archive heads, query heads, width, codes, codes of a read, scales, rank
	listed, perCode, constant bool
	pows                      *powerTable
	mem                       *memory
	again                     uint64 // where the flags of reads that are used again lie

	// where the arrays of a portion lie: scores and weights of the codes for events
	// and queries, marks and lists of chosen codes, and what scan and landmarks take
	el, ew, ql, qw, marks, list, z, mix, sums, phi, norm, land, landWeights uint64
}

// lay gives every array its place for so many rows and returns their floats.
func (o *archiveScan) lay(rows int) int {
	var r layout
	o.again = r.take(len(o.plan.segs))
	events, queries := rows*o.a, rows*o.hq
	o.el, o.ew = r.take(events*o.m), r.take(events*o.m)
	o.ql, o.qw = r.take(queries*o.m), r.take(queries*o.m)
	o.marks = r.take(max(events, queries) * o.m)
	o.list = r.take(max(events, queries) * o.n)
	o.z = r.take(queries * o.rank)
	if o.mix = r.take(queries * o.n * o.sc); o.constant {
		r = layout(o.mix) + layout(o.hq*o.n*o.sc)
	}
	o.sums = r.take(events * o.m * o.sc * 4)
	o.phi, o.norm = r.take(queries*o.n), r.take(queries)
	if o.w.Landmarks != backend.NoLandmarks {
		o.land, o.landWeights = r.take(events*o.m*3), r.take(queries*o.m)
	}
	return int(r)
}

func (s *stream) ArchiveScan(dst, q tensor.Tensor, p backend.Plan, layer int, w *backend.ArchiveParams) {
	if s.err != nil || s.fails(backend.CheckArchiveScan(dst, q, p, layer, w)) || s.away(dst, q, w.Codes, w.Mix, w.CorrV, w.CorrU, w.CorrScale, w.LandmarkMix) ||
		!s.current(p) || q.Len() == 0 || !s.archives() {
		return
	}
	o := &archiveScan{stream: s, w: w, dst: dst, q: q, layer: layer, a: w.Codes.Dim(0), hq: q.Dim(1), d: q.Dim(2), m: w.Codes.Dim(1), n: w.Codes.Dim(1), sc: len(w.Decay), perCode: w.PerCode}
	if w.Active > 0 && w.Active < o.m {
		o.n, o.listed, o.perCode = w.Active, true, w.SparsePerCode
	}
	if w.CorrV.Valid() {
		o.rank = w.CorrV.Dim(2)
	}
	o.constant = o.rank == 0 && !o.listed
	powers := 2
	if w.Lazy {
		for i := range s.plan.segs {
			g := &s.plan.segs[i]
			powers = max(powers, w.Events(g.Slot+g.Rows)+1)
		}
	}
	if o.pows = s.powers(w.Decay, w.Gain, powers); o.pows == nil {
		return
	}
	s.carry(layer, archiveParts, tableParts-archiveParts)
	rows := q.Dim(0)
	each := o.lay(2) - o.lay(1)
	most := portion(rows, each)
	if o.mem = s.space(o.lay(most)); o.mem == nil {
		return
	}
	if w.Reuse {
		o.reuse()
	}
	for r := 0; r < rows && s.err == nil; r += most {
		o.rows(r, min(most, rows-r))
	}
	if w.Reuse && s.err == nil {
		o.part(s.begin(landmarkOps, "keep_reads").archives(&s.plan).u32(layer).u32(o.d).u32(w.Window).u32(w.Sinks).view(q).view(dst), o.again)
		s.end(int(groupSize), o.d, o.hq, len(s.plan.segs))
	}
}

// reuse decides which sequences need no read of their own.
func (o *archiveScan) reuse() {
	s, w := o.stream, o.w
	if s.carry(o.layer, readParts, bankParts-readParts); s.err != nil {
		return
	}
	o.part(s.begin(landmarkOps, "find_reuse").archives(&s.plan).u32(o.layer).u32(o.d).u32(w.Window).u32(w.Sinks).u32(len(s.plan.segs)).u32(o.hq).u32(w.Stride).
		flag(w.Close).f32(w.Closeness).view(o.q), o.again)
	s.elements(len(s.plan.segs), 1)
}

func (o *archiveScan) part(c *call, at ...uint64) *call { return c.part(o.mem, at...) }

// rows takes some rows of the pass, as many as lay had.
func (o *archiveScan) rows(row, rows int) {
	s, w := o.stream, o.w
	segs := len(s.plan.segs)
	run := s.run
	window := func(c *call) *call { return s.window(c, o.layer, o.d, w.WindowParams).u32(w.Sinks).u64(uint64(row)) }
	for _, queries := range [2]bool{false, true} {
		heads, l, e := o.a, o.el, o.ew
		if queries {
			heads, l, e = o.hq, o.ql, o.qw
		}
		run(archiveOps, "score_codes", func(c *call) {
			window(c).u32(o.a).u32(o.m).view(w.Codes).f32(w.Scale).flag(w.Features).flag(queries).view(o.q)
			o.part(c, l, e)
		}, o.m, heads, rows)
	}
	choose := func(from uint64, lists, k int) {
		run(archiveOps, "choose", func(c *call) {
			c.u32(lists).u32(o.m).u32(k)
			o.part(c, from, o.marks, o.list)
		}, lists, 1, 1)
	}
	if w.Lazy {
		choose(o.el, rows*o.a, w.Active)
	}
	run(archiveOps, "code_sums", func(c *call) {
		c.archives(&s.plan).u32(o.layer).u32(w.Window).u32(w.Sinks).u64(uint64(row)).u32(rows).u32(o.m).u32(o.sc).flag(w.Lazy).flag(w.Gated).f32(w.Threshold).at(o.pows.Mem, 4).u32(o.pows.N)
		o.part(c, o.el, o.ew, o.marks, o.sums)
	}, o.m, o.a, segs)
	if o.listed {
		choose(o.ql, rows*o.hq, o.n)
	}
	if o.rank > 0 {
		s.latent(o.q, w.CorrV, row, rows, o.mem, o.z)
	}
	mixRows := rows
	if o.constant {
		mixRows = 1
	}
	run(archiveOps, "mix_scales", func(c *call) {
		c.u32(o.n).u32(o.m).u32(o.sc).u32(o.a).u32(o.rank).view(w.Mix).operand(s, w.CorrScale).flag(o.listed)
		o.part(c, o.list, o.z, o.mix)
	}, o.n, o.hq, mixRows)
	run(archiveOps, "weigh_codes", func(c *call) {
		c.tables(&s.plan).u32(w.Window).u32(w.Sinks).u64(uint64(row)).u32(rows).u32(o.hq).u32(o.n).u32(o.m).u32(o.sc).u32(o.a).flag(o.listed).flag(o.perCode)
		o.part(c, o.ql, o.qw, o.list, o.mix)
		c.flag(!o.constant).offsets(o.mem, o.sums, o.phi, o.norm)
	}, rows*o.hq, 1, 1)
	if w.Landmarks != backend.NoLandmarks {
		run(landmarkOps, "place_landmarks", func(c *call) {
			c.archives(&s.plan).u32(o.layer).u32(w.Window).u32(w.Sinks).u64(uint64(row)).u32(rows).u32(o.m).u32(int(w.Landmarks)).flag(w.Gated).f32(w.Threshold)
			o.part(c, o.el, o.land)
		}, o.m, o.a, segs)
	}
	run(archiveOps, "scan", func(c *call) {
		window(c).u32(rows).u32(o.hq).u32(o.n).u32(o.m).u32(o.sc).flag(o.listed).flag(o.perCode).flag(w.Lexical).flag(w.Reuse).u32(o.rank).operand(s, w.CorrU).view(o.dst)
		o.part(c, o.list, o.z, o.mix)
		c.flag(!o.constant).offsets(o.mem, o.sums, o.phi, o.norm, o.again)
	}, o.d, o.a, segs)
	if w.Landmarks != backend.NoLandmarks {
		o.recall(row, rows)
	}
}

// recall blends the landmarks into the responses and moves them on.
func (o *archiveScan) recall(row, rows int) {
	s, w := o.stream, o.w
	run := s.run
	window := func(c *call) *call { return s.window(c, o.layer, o.d, w.WindowParams).u32(w.Sinks).u64(uint64(row)) }
	run(landmarkOps, "weigh_landmarks", func(c *call) {
		window(c).u32(rows).u32(o.hq).u32(o.m).u32(o.a).f32(w.Scale).f32(w.LandmarkTemp).view(o.q)
		o.part(c, o.land, o.landWeights)
	}, rows*o.hq, 1, 1)
	mix := tensor.Tensor{}
	if w.Landmarks == backend.PersistentLandmarks {
		mix = w.LandmarkMix
	}
	run(landmarkOps, "recall", func(c *call) {
		window(c).u32(o.hq).u32(o.m).u32(o.a).flag(w.Lexical).flag(w.Reuse).maybe(s, mix).view(o.dst)
		o.part(c, o.land, o.landWeights, o.again)
	}, o.d, rows*o.hq, 1)
	run(landmarkOps, "keep_landmarks", func(c *call) {
		s.window(c, o.layer, o.d, w.WindowParams).u64(uint64(row)).u32(rows).u32(o.m).flag(w.Lexical)
		o.part(c, o.land)
	}, o.d, o.m*o.a, len(s.plan.segs))
}
