package opencl

import (
	"bytes"
	"encoding/binary"
	"slices"

	"samebit/backend"
	"samebit/tensor"
)

func (s *stream) Route(experts, weights, logits tensor.Tensor, k int, renorm bool) {
	if s.err != nil || s.fails(backend.CheckRoute(experts, weights, logits, k)) || s.away(experts, weights, logits) || logits.Dim(0) == 0 {
		return
	}
	r, e := logits.Dim(0), logits.Dim(1)
	p := s.space(r * e)
	if p == nil {
		return
	}
	s.begin(rowOps, "softmax").u32(e).flat(p, 0, e).view(logits)
	s.groups(r)
	if s.err != nil {
		return
	}
	s.begin(moeOps, "route").u32(r).at(p, 4).u32(e).u32(k).flag(renorm).view(experts).view(weights)
	s.end(int(groupSize), r, 1, 1)
	if s.err != nil {
		return
	}
	s.begin(moeOps, "route_failed").u32(nanRouter).u32(r)
	s.end(1, 1, 1, 1)
	s.pending = true
}

// expertTable is a layer's list of weights on the device, as experts.cl has it.
type expertTable struct {
	bytes []byte
	mem   *memory
	types []tensor.DType // that occur, ascending
}

const expertBytes = 16 // of an Expert

// table is the list of some weights, uploaded when it is new. It fails the stream if a
// weight is not this device's.
func (s *stream) table(list []backend.Weight) *expertTable {
	first := s.own(list[0])
	if first == nil {
		return nil
	}
	t := s.tables[first]
	if t == nil {
		t = new(expertTable)
		s.tables[first] = t
	}
	b := make([]byte, 0, expertBytes*len(list))
	types := t.types[:0]
	for _, w := range list {
		m := s.own(w)
		if m == nil {
			return nil
		}
		b = binary.LittleEndian.AppendUint64(b, m.mem.ref(0))
		b = binary.LittleEndian.AppendUint64(b, uint64(m.dt))
		if !slices.Contains(types, m.dt) {
			types = append(types, m.dt)
		}
	}
	t.types = types
	if t.mem != nil && bytes.Equal(b, t.bytes) {
		return t
	}
	t.bytes = nil
	if t.mem = s.grown(t.mem, len(b)); t.mem == nil || !s.upload(t.mem, 0, b) {
		return nil
	}
	t.bytes = b
	return t
}

// expertDot writes the products of every pair of a row and an expert to out at float
// off. x has a row for every share pairs.
func (s *stream) expertDot(t *expertTable, n, k int, experts tensor.Tensor, share int, x func(c *call), out *memory, off int64) {
	for _, dt := range t.types {
		if s.err != nil {
			return
		}
		c := s.begin(expertOps(dt), "expert_dot")
		if c.err == nil {
			c.arena()
		}
		c.at(t.mem, expertBytes).u64(uint64(dt.Bytes(k))).view(experts).u32(share)
		x(c)
		c.u32(n).u32(k).floats(out, off)
		s.end(int(groupSize), n, experts.Len(), 1)
	}
}

func (s *stream) Experts(dst, x, experts, weights tensor.Tensor, gate, up, down []backend.Weight) {
	if s.err != nil || s.fails(backend.CheckExperts(dst, x, experts, weights, gate, up, down)) || s.away(dst, x, experts, weights) {
		return
	}
	g, u, d := s.table(gate), s.table(up), s.table(down)
	if g == nil || u == nil || d == nil {
		return
	}
	k, c, f, pairs := experts.Dim(1), x.Dim(1), gate[0].Out(), experts.Len()
	if dst.Dim(0) == 0 {
		return
	}
	s.checkIDs(expertID, experts, 0, len(gate))
	h := s.space(pairs * (2*f + c)) // gate, then the hidden rows; up; down
	if h == nil {
		return
	}
	hidden, upAt, downAt := int64(0), int64(pairs*f), int64(2*pairs*f)
	rows := func(l *call) { l.view(x) }
	if pairs > 0 {
		s.expertDot(g, f, c, experts, k, rows, h, hidden)
		s.expertDot(u, f, c, experts, k, rows, h, upAt)
		if s.err != nil {
			return
		}
		s.begin(rowOps, "swiglu").u32(f).flat(h, hidden, f).flat(h, hidden, f).flat(h, upAt, f)
		s.elements(f, pairs)
		s.expertDot(d, c, f, experts, 1, func(l *call) { l.flat(h, hidden, f) }, h, downAt)
	}
	if s.err != nil {
		return
	}
	s.begin(moeOps, "expert_sum").u32(c).view(dst).view(weights).floats(h, downAt).u32(k)
	s.elements(c, dst.Dim(0))
}

func (s *stream) AddGated(dst, y, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckAddGated(dst, y, x, gate)) || s.away(dst, y, x, gate) || dst.Dim(0) == 0 {
		return
	}
	s.begin(rowOps, "add_gated").u32(dst.Dim(1)).view(dst).view(y).view(x).view(gate)
	s.elements(dst.Dim(1), dst.Dim(0))
}
