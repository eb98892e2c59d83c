package cuda

import (
	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

// exactTier is a call of ExactTier under way.
type exactTier struct {
	*stream
	past
	w              *backend.ExactParams
	dst, weight, q tensor.Tensor
	slots, n       int // slots of a table, and those among which a read looks
	probe          int // sets of a read, 0 for all

	// scratch memory of a portion of the rows: scores of events and of sets, marks,
	// chosen sets, what slots hold, cosines and lists of a read
	scores, sets, marks, chosen, held, near, list driver.Ptr
}

// lay gives every array its place for so many rows and returns their words.
func (o *exactTier) lay(at driver.Ptr, rows int) int {
	r := layout{at: at}
	heads := rows * o.hq
	o.scores = r.take(heads)
	if o.probe > 0 {
		o.sets, o.marks, o.chosen = r.take(heads*o.w.Sets), r.take(heads*o.w.Sets), r.take(heads*o.probe)
	}
	o.held = r.take(heads * o.slots)
	if !o.w.Mass {
		o.near, o.list = r.take(heads*o.n), r.take(heads*(o.n+1))
	}
	return r.next
}

func (s *stream) ExactTier(dst, weight, q tensor.Tensor, p backend.Plan, layer int, w *backend.ExactParams) {
	if s.err != nil || s.fails(backend.CheckExactTier(dst, weight, q, p, layer, w)) || s.away(dst, weight, q, w.AdmKey, w.AdmValue, w.AdmBias, w.Mix, w.SetCodes) ||
		!s.current(p) || q.Len() == 0 || !s.archives() {
		return
	}
	o := &s.exact
	*o = exactTier{stream: s, past: past{layer: layer, d: q.Dim(2), hq: q.Dim(1), WindowParams: w.WindowParams}, w: w, dst: dst, weight: weight, q: q,
		slots: w.Sets * w.Ways, n: w.Sets * w.Ways}
	if w.Probe < w.Sets {
		o.probe, o.n = w.Probe, w.Probe*w.Ways
	}
	rows := q.Dim(0)
	most := s.portion(rows, o.lay(0, 2)-o.lay(0, 1))
	at, ok := s.tmp(scratchArchive, 4*o.lay(0, most))
	if !ok {
		return
	}
	bytes := 4 * o.lay(at, most)
	s.carry(o.past, tableParts, readParts-tableParts)
	for r := 0; r < rows && s.err == nil; r += most {
		o.first, o.rows = r, min(most, rows-r)
		s.forget(at, bytes)
		o.part()
	}
}

// best lists the k best sets for events or queries.
func (o *exactTier) best(queries bool, k int) {
	s := o.stream
	o.start(s).Ptr(s.at(o.w.SetCodes)).Int32(int32(o.w.Sets)).Int32(flag(queries))
	s.view(&s.params, o.q).Ptr(o.sets)
	s.cells("archivetable", "scoreSets", o.w.Sets, o.hq, o.rows)
	ints(o.start(s).Ptr(o.sets).Ptr(o.marks).Ptr(o.chosen), o.hq, o.w.Sets, k).Int32(flag(queries))
	s.warps("archive", "choose", o.rows*o.hq)
}

// looks starts a parameter list with the structs Past and Look of
// kernels/archivetable.cu.
func (o *exactTier) looks() *driver.Params {
	return ints(o.start(o.stream).Ptr(o.chosen).Ptr(o.held), o.n, o.slots, o.w.Ways, o.probe)
}

// part takes some rows of the pass, as many as lay had.
func (o *exactTier) part() {
	s, w, segs := o.stream, o.w, len(o.plan.segs)
	var bias, chosen driver.Ptr
	k := s.view(o.start(s), o.q)
	if w.QualityFirst {
		k.Ptr(0).Ptr(0)
	} else {
		bias = s.at(w.AdmBias)
		k.Ptr(s.at(w.AdmKey)).Ptr(s.at(w.AdmValue))
	}
	k.Ptr(bias).Ptr(o.scores)
	s.cells("archivetable", "scoreEvent", o.hq, o.rows, 1)
	if o.probe > 0 && !w.FIFO {
		o.best(false, 1)
		chosen = o.chosen
	}
	ints(o.start(s).Ptr(o.scores).Ptr(chosen).Ptr(o.held), o.slots, w.Ways).Int32(flag(w.FIFO)).
		Float32(w.Threshold).Float32(w.Admission).Float32(w.Diversity).Float32(w.Recency).Int32(0)
	if s.err == nil {
		s.launch("archivetable", "writeTable", [3]uint32{uint32(o.hq), uint32(segs), 1}, [3]uint32{32, 1, 1}, 0)
	}
	if w.Mass {
		s.view(s.view(s.view(o.looks().Float32(w.Scale), o.q), o.dst), o.weight)
		if s.err == nil {
			s.launch("archivetable", "attendTable", [3]uint32{uint32(o.hq), uint32(min(o.rows, maxGrid)), 1}, [3]uint32{32, 2, 1}, 0)
		}
	} else {
		o.read()
	}
	o.start(s).Int32(int32(o.slots)).Ptr(o.held)
	s.cells("archivetable", "keepTable", o.d, o.hq*o.slots, segs)
}

// read looks for the nearest slots.
func (o *exactTier) read() {
	s, w := o.stream, o.w
	if o.probe > 0 {
		o.best(true, o.probe)
	}
	s.view(o.looks(), o.q).Ptr(o.near)
	s.cells("archivetable", "nearSlots", o.n, o.hq, o.rows)
	o.looks().Int32(flag(w.Soft)).Float32(w.SoftTemp).Float32(w.ConfidenceTemp).Float32(w.Confidence).Ptr(s.at(w.Mix))
	s.view(&s.params, o.weight).Ptr(o.near).Ptr(o.list)
	s.warps("archivetable", "pickSlots", o.rows*o.hq)
	s.view(o.looks().Int32(flag(w.Soft)), o.dst).Ptr(o.near).Ptr(o.list)
	s.cells("archivetable", "readSlots", o.d, o.hq, o.rows)
}
