package cuda

import (
	"samebit/backend"
	"samebit/tensor"
)

func (s *stream) AttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttentionGrad(dq, dk, dv, dy, y, q, k, v, p)) || s.away(dq, dk, dv, dy, y, q, k, v) || !s.current(p) || q.Len() == 0 {
		return
	}
	t, ok := s.rowTable()
	if !ok {
		return
	}
	hq, hkv := q.Dim(1), k.Dim(1)
	stats, ok := s.tmp(scratchStats, 8*q.Dim(0)*hq)
	if !ok {
		return
	}
	// Each kernel gets the struct Pass of kernels/gradattention.cu.
	run := func(name string, heads int, more ...tensor.Tensor) {
		if s.err != nil {
			return
		}
		p := s.views(q, k, v, dy).Ptr(stats).Ptr(t.pageAt).Float32(scale)
		for _, n := range [3]int{min(max(window, 0), 1<<30), q.Dim(2), hq / hkv} {
			p.Int32(int32(n))
		}
		for _, x := range more {
			s.view(p, x)
		}
		s.launch("gradattention", name, [3]uint32{uint32(t.pages), uint32(heads), 1}, [3]uint32{256, 1, 1}, 0)
	}
	run("attnStats", hq, y)
	run("attnGradQ", hq, dq)
	run("attnGradKV", hkv, dk, dv)
}
