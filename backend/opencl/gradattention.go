package opencl

import (
	"samebit/backend"
	"samebit/tensor"
)

var gradAttnOps = program{file: "gradattention"}

func (s *stream) AttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttentionGrad(dq, dk, dv, dy, y, q, k, v, p)) || s.away(dq, dk, dv, dy, y, q, k, v) || !s.current(p) || q.Len() == 0 {
		return
	}
	s.attentionGrad(dq, dk, dv, dy, y, q, k, v, scale, max(window, 0), 0)
}

// attentionGrad is the gradient of attention over a window, 0 for none, and sinks.
func (s *stream) attentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, scale float32, window, sinks int) {
	rows, hq, hkv, d := q.Dim(0), q.Dim(1), k.Dim(1), q.Dim(2)
	part := s.space(2 * rows * hq)
	if part == nil {
		return
	}
	pairs := func(name string) *call {
		return s.begin(gradAttnOps, name).tables(&s.plan).u32(hkv).u32(d).u32(window).u32(sinks).f32(scale).view(q).view(k).view(v).view(dy).at(part, 4)
	}
	pairs("attention_mass").view(y)
	if s.end(int(groupSize), int(groupSize), hq, rows); s.err != nil {
		return
	}
	pairs("attention_query_grad").view(dq)
	if s.end(int(groupSize), int(groupSize), hq, rows); s.err != nil {
		return
	}
	pairs("attention_key_grad").view(dk).view(dv).u32(hq / hkv)
	s.end(int(groupSize), int(groupSize), hkv, rows)
}
