package opencl

import (
	"samebit/backend"
	"samebit/tensor"
)

// exactTier is a call of ExactTier under way.
type exactTier struct {
	*stream
	w              *backend.ExactParams
	dst, weight, q tensor.Tensor
	layer          int
	hq, d          int
	slots, n       int // slots of a table, and those among which a read looks
	probe          int // sets of a read, 0 for all
	mem            *memory

	// where the arrays of a portion lie: scores of events and of sets, marks, chosen
	// sets, what slots hold, cosines and lists of a read
	scores, sets, marks, chosen, held, near, list uint64
}

// lay gives every array its place for so many rows and returns their floats.
func (o *exactTier) lay(rows int) int {
	var r layout
	heads := rows * o.hq
	o.scores = r.take(heads)
	if o.probe > 0 {
		o.sets, o.marks, o.chosen = r.take(heads*o.w.Sets), r.take(heads*o.w.Sets), r.take(heads*o.probe)
	}
	o.held = r.take(heads * o.slots)
	if !o.w.Mass {
		o.near, o.list = r.take(heads*o.n), r.take(heads*(o.n+1))
	}
	return int(r)
}

func (s *stream) ExactTier(dst, weight, q tensor.Tensor, p backend.Plan, layer int, w *backend.ExactParams) {
	if s.err != nil || s.fails(backend.CheckExactTier(dst, weight, q, p, layer, w)) || s.away(dst, weight, q, w.AdmKey, w.AdmValue, w.AdmBias, w.Mix, w.SetCodes) ||
		!s.current(p) || q.Len() == 0 || !s.archives() {
		return
	}
	o := &exactTier{stream: s, w: w, dst: dst, weight: weight, q: q, layer: layer, hq: q.Dim(1), d: q.Dim(2), slots: w.Sets * w.Ways, n: w.Sets * w.Ways}
	if w.Probe < w.Sets {
		o.probe, o.n = w.Probe, w.Probe*w.Ways
	}
	rows := q.Dim(0)
	most := portion(rows, o.lay(2)-o.lay(1))
	if o.mem = s.space(o.lay(most)); o.mem == nil {
		return
	}
	s.carry(layer, tableParts, readParts-tableParts)
	for r := 0; r < rows && s.err == nil; r += most {
		o.rows(r, min(most, rows-r))
	}
}

// rows takes some rows of the pass, as many as lay had.
func (o *exactTier) rows(row, rows int) {
	s, w := o.stream, o.w
	segs := len(s.plan.segs)
	window := func(c *call) *call { return s.window(c, o.layer, o.d, w.WindowParams) }
	s.run(tableOps, "score_event", func(c *call) {
		window(c).u32(w.Sinks).u64(uint64(row)).u32(o.hq).flag(w.QualityFirst).view(o.q).operand(s, w.AdmKey).operand(s, w.AdmValue).operand(s, w.AdmBias).
			part(o.mem, o.scores)
	}, o.hq, rows, 1)
	// sets lists the best sets for events or queries.
	sets := func(queries bool, k int) {
		s.run(tableOps, "score_sets", func(c *call) {
			window(c).u32(w.Sinks).u64(uint64(row)).u32(w.Sets).view(w.SetCodes).flag(queries).view(o.q).part(o.mem, o.sets)
		}, w.Sets, o.hq, rows)
		s.run(archiveOps, "choose", func(c *call) {
			c.u32(rows*o.hq).u32(w.Sets).u32(k).part(o.mem, o.sets, o.marks, o.chosen)
		}, rows*o.hq, 1, 1)
	}
	if o.probe > 0 && !w.FIFO {
		sets(false, 1)
	}
	s.run(tableOps, "write_table", func(c *call) {
		window(c).u32(w.Sinks).u64(uint64(row)).u32(rows).u32(o.hq).u32(o.slots).u32(w.Ways).flag(w.FIFO).flag(o.probe > 0).
			f32(w.Threshold).f32(w.Admission).f32(w.Diversity).f32(w.Recency).part(o.mem, o.scores, o.chosen, o.held)
	}, o.hq, segs, 1)
	if w.Mass {
		s.run(tableOps, "attend_table", func(c *call) {
			window(c).u64(uint64(row)).u32(o.slots).f32(w.Scale).view(o.q).view(o.dst).view(o.weight).part(o.mem, o.held)
		}, int(groupSize), o.hq, rows)
	} else {
		if o.probe > 0 {
			sets(true, o.probe)
		}
		s.run(tableOps, "near_slots", func(c *call) {
			window(c).u64(uint64(row)).u32(o.n).u32(o.slots).u32(w.Ways).u32(o.probe).view(o.q).part(o.mem, o.chosen, o.held, o.near)
		}, o.n, o.hq, rows)
		s.run(tableOps, "pick_slots", func(c *call) {
			c.u32(o.hq).u32(o.n).u32(o.slots).u32(w.Ways).u32(o.probe).flag(w.Soft).f32(w.SoftTemp).f32(w.ConfidenceTemp).f32(w.Confidence).view(w.Mix).view(o.weight).u64(uint64(row)).
				part(o.mem, o.chosen, o.held, o.near, o.list)
		}, o.hq, rows, 1)
		s.run(tableOps, "read_slots", func(c *call) {
			window(c).u64(uint64(row)).u32(o.n).u32(o.slots).flag(w.Soft).view(o.dst).part(o.mem, o.held, o.near, o.list)
		}, o.d, o.hq, rows)
	}
	s.run(tableOps, "keep_table", func(c *call) {
		window(c).u64(uint64(row)).u32(rows).u32(o.hq).u32(o.slots).part(o.mem, o.held)
	}, o.d, o.hq*o.slots, segs)
}
