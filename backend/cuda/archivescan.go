package cuda

import (
	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/internal/archive"
	"samebit/tensor"
)

type powerTable = archive.PowerTable[area]

// powers is the table of some decays for at least n powers, as the kernels read it.
func (s *stream) powers(decay, gain []float32, n int) *powerTable {
	return s.decays.Get(decay, gain, n, func(mem *area, v []float32) bool {
		return s.room(mem, 4*len(v)) && s.send(mem.ptr, tensor.AsBytes(v))
	})
}

// archiveScan is a call of ArchiveScan under way.
type archiveScan struct {
	*stream
	past
	w                         *backend.ArchiveParams
	dst, q                    tensor.Tensor
	a, m, n, sc, rank         int // archive heads, codes, codes of a read, scales, rank
	listed, perCode, constant bool
	pows                      *powerTable

	// scratch memory: flags of reads that are used again, and of a portion of the rows
	// scores and weights of the codes for events and queries, marks and lists of chosen
	// codes, and what scan and landmarks take
	again, el, ew, ql, qw, marks, list, z, mix, terms, phi, norm, land, landWeights driver.Ptr
}

// lay gives every array its place for so many rows and returns their words.
func (o *archiveScan) lay(at driver.Ptr, rows int) int {
	r := layout{at: at}
	o.again = r.take(len(o.plan.segs))
	events, queries, mixed := rows*o.a, rows*o.hq, rows*o.hq
	if o.constant {
		mixed = o.hq
	}
	o.el, o.ew = r.take(events*o.m), r.take(events*o.m)
	o.ql, o.qw = r.take(queries*o.m), r.take(queries*o.m)
	o.marks, o.list = r.take(max(events, queries)*o.m), r.take(max(events, queries)*o.n)
	o.z, o.mix = r.take(queries*o.rank), r.take(mixed*o.n*o.sc)
	o.terms = r.take(events * o.m * o.sc * 4)
	o.phi, o.norm = r.take(queries*o.n), r.take(queries)
	if o.w.Landmarks != backend.NoLandmarks {
		o.land, o.landWeights = r.take(events*o.m*3), r.take(queries*o.m)
	}
	return r.next
}

func (s *stream) ArchiveScan(dst, q tensor.Tensor, p backend.Plan, layer int, w *backend.ArchiveParams) {
	if s.err != nil || s.fails(backend.CheckArchiveScan(dst, q, p, layer, w)) || s.away(dst, q, w.Codes, w.Mix, w.CorrV, w.CorrU, w.CorrScale, w.LandmarkMix) ||
		!s.current(p) || q.Len() == 0 || !s.archives() {
		return
	}
	m := w.Codes.Dim(1)
	o := &s.scan
	*o = archiveScan{stream: s, past: past{layer: layer, d: q.Dim(2), hq: q.Dim(1), WindowParams: w.WindowParams}, w: w, dst: dst, q: q,
		a: w.Codes.Dim(0), m: m, n: m, sc: len(w.Decay), perCode: w.PerCode}
	if w.Active > 0 && w.Active < m {
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
	s.carry(o.past, archiveParts, tableParts-archiveParts)
	rows := q.Dim(0)
	most := s.portion(rows, o.lay(0, 2)-o.lay(0, 1))
	at, ok := s.tmp(scratchArchive, 4*o.lay(0, most))
	if !ok {
		return
	}
	end := at + driver.Ptr(4*o.lay(at, most))
	o.rows = rows
	if w.Reuse {
		s.carry(o.past, readParts, bankParts-readParts)
		s.view(o.start(s).Int32(int32(w.Stride)).Int32(flag(w.Close)).Float32(w.Closeness), q).Ptr(o.again)
		if s.err == nil {
			s.launch("archivemarks", "findReuse", [3]uint32{uint32(len(s.plan.segs)), 1, 1}, [3]uint32{32, 1, 1}, 0)
		}
	}
	for r := 0; r < rows && s.err == nil; r += most {
		o.first, o.rows = r, min(most, rows-r)
		s.forget(o.el, int(end-o.el))
		o.part()
	}
	if w.Reuse {
		s.view(s.view(o.start(s), q), dst).Ptr(o.again)
		s.cells("archivemarks", "keepReads", o.d, o.hq, len(s.plan.segs))
	}
}

// ints appends numbers.
func ints(p *driver.Params, ns ...int) *driver.Params {
	for _, n := range ns {
		p.Int32(int32(n))
	}
	return p
}

// chooses launches choose over the scores of the codes by so many heads.
func (o *archiveScan) chooses(from driver.Ptr, heads, k int) {
	ints(o.start(o.stream).Ptr(from).Ptr(o.marks).Ptr(o.list), heads, o.m, k, 0)
	o.warps("archive", "choose", o.rows*heads)
}

// codes is the list of codes of a read, 0 for all.
func (o *archiveScan) codes() driver.Ptr {
	if o.listed {
		return o.list
	}
	return 0
}

// reads starts a parameter list with the structs Past and Read of kernels/archive.cu.
func (o *archiveScan) reads() *driver.Params {
	p := o.start(o.stream).Ptr(o.codes()).Ptr(o.mix).Ptr(o.terms).Ptr(o.phi).Ptr(o.norm)
	return ints(p, o.n, o.m, o.sc, o.a).Int32(flag(o.perCode)).Int32(flag(!o.constant))
}

// used is where the flags of reads that are used again lie, 0 for none.
func (o *archiveScan) used() driver.Ptr {
	if o.w.Reuse {
		return o.again
	}
	return 0
}

// part takes some rows of the pass, as many as lay had.
func (o *archiveScan) part() {
	s, w, rows, segs := o.stream, o.w, o.rows, len(o.plan.segs)
	for _, queries := range [2]bool{false, true} {
		heads, l, e := o.a, o.el, o.ew
		if queries {
			heads, l, e = o.hq, o.ql, o.qw
		}
		ints(o.start(s).Ptr(s.at(w.Codes)), o.a, o.m).Float32(w.Scale).Int32(flag(w.Features)).Int32(flag(queries))
		s.view(&s.params, o.q).Ptr(l).Ptr(e)
		warps := min(4, (o.m+31)/32)
		if s.err == nil && heads > 0 && o.m > 0 {
			s.launch("archive", "scoreCodes", [3]uint32{uint32((o.m + 32*warps - 1) / (32 * warps)), uint32(heads), uint32(min(rows, maxGrid))}, [3]uint32{32, uint32(warps), 1}, 0)
		}
	}
	if w.Lazy {
		o.chooses(o.el, o.a, w.Active)
	}
	ints(o.start(s), o.m, o.sc).Int32(flag(w.Lazy)).Int32(flag(w.Gated)).Float32(w.Threshold).Ptr(o.pows.Mem.ptr).Int32(int32(o.pows.N)).
		Ptr(o.el).Ptr(o.ew).Ptr(o.marks).Ptr(o.terms)
	s.cells("archive", "codeSums", o.m, o.a, segs)
	if o.listed {
		o.chooses(o.ql, o.hq, o.n)
	}
	if o.rank > 0 {
		s.latent(o.z, o.q, w.CorrV, o.first, rows)
	}
	mixed := rows
	if o.constant {
		mixed = 1
	}
	ints(s.kernel().Ptr(o.mix).Ptr(s.at(w.Mix)).Ptr(o.codes()).Ptr(o.z).Ptr(s.maybe(w.CorrScale)), mixed, o.n, o.m, o.sc, o.a, o.rank)
	s.cells("archive", "mixScales", o.n, o.hq, mixed)
	o.reads().Ptr(o.ql).Ptr(o.qw)
	s.warps("archive", "weighCodes", rows*o.hq)
	if w.Landmarks != backend.NoLandmarks {
		ints(o.start(s), o.m, int(w.Landmarks)).Int32(flag(w.Gated)).Float32(w.Threshold).Ptr(o.el).Ptr(o.land)
		s.cells("archivemarks", "placeLandmarks", o.m, o.a, segs)
	}
	s.view(o.reads(), o.dst).Int32(flag(w.Lexical)).Ptr(o.used()).Ptr(o.z).Ptr(s.maybe(w.CorrU)).Int32(int32(o.rank))
	s.cells("archive", "archiveScan", o.d, o.a, segs)
	if w.Landmarks != backend.NoLandmarks {
		o.recall()
	}
}

// recall blends the landmarks into the responses and moves them on.
func (o *archiveScan) recall() {
	s, w := o.stream, o.w
	ints(o.start(s), o.m, o.a).Float32(w.Scale).Float32(w.LandmarkTemp)
	s.view(&s.params, o.q).Ptr(o.land).Ptr(o.landWeights)
	s.warps("archivemarks", "weighLandmarks", o.rows*o.hq)
	var mix driver.Ptr
	if w.Landmarks == backend.PersistentLandmarks {
		mix = s.at(w.LandmarkMix)
	}
	ints(o.start(s), o.m, o.a).Int32(flag(w.Lexical)).Ptr(o.used()).Ptr(mix)
	s.view(&s.params, o.dst).Ptr(o.land).Ptr(o.landWeights)
	s.cells("archivemarks", "recall", o.d, o.rows*o.hq, 1)
	ints(o.start(s), o.m, o.a).Int32(flag(w.Lexical)).Ptr(o.land)
	s.cells("archivemarks", "keepLandmarks", o.d, o.m*o.a, len(s.plan.segs))
}
