package cuda

import (
	"bytes"
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

func (s *stream) Route(experts, weights, logits tensor.Tensor, k int, renorm bool) {
	if s.err != nil || s.fails(backend.CheckRoute(experts, weights, logits, k)) || s.away(experts, weights, logits) || logits.Dim(0) == 0 {
		return
	}
	rows, n := logits.Dim(0), logits.Dim(1)
	prob, ok := s.tmp(scratchProb, 4*rows*n)
	if !ok {
		return
	}
	pick, ok := s.tmp(scratchPick, 4*rows*k)
	if !ok {
		return
	}
	var flag int32
	if renorm {
		flag = 1
	}
	p := s.view(s.view(s.kernel().Ptr(s.at(experts)), weights), logits).Ptr(prob).Ptr(pick).Int32(int32(n)).Int32(int32(k)).Int32(flag)
	s.reports(p, failRoute)
	s.perRow("rows", "route", n, rows)
}

// expertTable lists the weights of a layer's experts on the device.
type expertTable struct {
	mem  area
	host []byte
}

// tablesKept is how many layers of experts a stream remembers.
const tablesKept = 512

// expertTable gives the table of these weights, which a stream uploads once.
func (s *stream) expertTable(gate, up, down []backend.Weight) (*expertTable, bool) {
	first := s.own(gate[0])
	if first == nil {
		return nil, false
	}
	t := s.tables[first]
	if t == nil {
		if len(s.tables) >= tablesKept {
			s.fails(fmt.Errorf("cuda: Experts: more than %d layers of experts on one stream: %w", tablesKept, backend.ErrUnsupported))
			return nil, false
		}
		t = new(expertTable)
		s.tables[first] = t
	}
	b := s.plan.spare[:0]
	for e := range gate {
		for _, w := range [3]backend.Weight{gate[e], up[e], down[e]} {
			m := s.own(w)
			if m == nil {
				return nil, false
			}
			b = m.table(b)
		}
	}
	s.plan.spare = b
	if bytes.Equal(b, t.host) {
		return t, true
	}
	t.host = t.host[:0]
	if !s.room(&t.mem, len(b)) || !s.send(t.mem.ptr, b) {
		return nil, false
	}
	t.host = append(t.host, b...)
	return t, true
}

func (s *stream) Experts(dst, x, experts, weights tensor.Tensor, gate, up, down []backend.Weight) {
	if s.err != nil || s.fails(backend.CheckExperts(dst, x, experts, weights, gate, up, down)) || s.away(dst, x, experts, weights) {
		return
	}
	t, ok := s.expertTable(gate, up, down)
	rows, k, f, cols := x.Dim(0), experts.Dim(1), gate[0].Out(), x.Dim(1)
	if !ok || rows == 0 {
		return
	}
	h, ok := s.tmp(scratchHidden, 4*rows*max(k, 1)*f)
	if !ok {
		return
	}
	ids := s.at(experts)
	if k > 0 {
		p := s.view(s.kernel().Ptr(h), x).Ptr(ids).Ptr(t.mem.ptr).Int32(int32(len(gate))).Int32(int32(k)).Int32(int32(f))
		s.reports(p, failExperts)
		s.launch("sparse", "expertsUp", [3]uint32{uint32((f + 31) / 32), uint32(min(rows*k, maxGrid)), 1}, [3]uint32{32, uint32(min(16, (cols+127)/128)), 1}, 0)
	}
	p := s.view(s.kernel(), dst).Ptr(h).Ptr(ids)
	s.view(p, weights).Ptr(t.mem.ptr).Int32(int32(len(gate))).Int32(int32(k)).Int32(int32(f)).Int32(int32(cols))
	s.launch("sparse", "expertsDown", [3]uint32{uint32((cols + 31) / 32), uint32(min(rows, maxGrid)), 1}, [3]uint32{32, uint32(min(16, (f+127)/128)), 1}, 0)
}

func (s *stream) AddGated(dst, y, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckAddGated(dst, y, x, gate)) || s.away(dst, y, x, gate) {
		return
	}
	p := s.kernel()
	for _, t := range [4]tensor.Tensor{dst, y, x, gate} {
		s.view(p, t)
	}
	p.Int32(int32(dst.Dim(1)))
	s.each("rows", "addGated", dst.Dim(1), dst.Dim(0))
}
