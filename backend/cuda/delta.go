package cuda

import (
	"samebit/backend"
	"samebit/tensor"
)

func (s *stream) Conv(dst, x, w tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckConv(dst, x, w, p, layer)) || s.away(dst, x, w) || !s.current(p) {
		return
	}
	s.view(s.view(s.kernel(), dst), x).Ptr(s.at(w)).Int32(int32(w.Dim(0))).Int32(int32(x.Dim(1))).Ptr(s.plan.segAt).Ptr(s.plan.ofAt).Int32(int32(layer))
	s.each("delta", "conv", x.Dim(1), x.Dim(0))
}

func (s *stream) L2Norm(dst, x tensor.Tensor, eps, scale float32) {
	if s.err != nil || s.fails(backend.CheckHeads("L2Norm", dst, x)) || s.away(dst, x) {
		return
	}
	s.view(s.view(s.kernel(), dst), x).Int32(int32(x.Dim(2))).Float32(eps).Float32(scale)
	s.perHead("rows", "l2Norm", rowsOf(x))
}

func (s *stream) DeltaGates(g, beta, a, b, aExp, dtBias tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckDeltaGates(g, beta, a, b, aExp, dtBias)) || s.away(g, beta, a, b, aExp, dtBias) {
		return
	}
	p := s.kernel()
	for _, t := range [4]tensor.Tensor{g, beta, a, b} {
		s.view(p, t)
	}
	p.Ptr(s.at(aExp)).Ptr(s.at(dtBias)).Int32(int32(g.Dim(1)))
	s.each("delta", "deltaGates", g.Dim(1), g.Dim(0))
}

func (s *stream) GatedDelta(dst, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckGatedDelta(dst, q, k, v, g, beta, p, layer)) || s.away(dst, q, k, v, g, beta) || !s.current(p) || v.Dim(0) == 0 {
		return
	}
	hv, dk, dv := v.Dim(1), q.Dim(2), v.Dim(2)
	a := s.kernel()
	for _, t := range [6]tensor.Tensor{dst, q, k, v, g, beta} {
		s.view(a, t)
	}
	a.Ptr(s.plan.segAt)
	for _, n := range [6]int{layer, hv, hv / q.Dim(1), dk, dv, 0} {
		a.Int32(int32(n))
	}
	name, block := "gatedDelta", 32
	if dv%32 == 0 { // columns in registers
		switch dk {
		case 32:
			name = "gatedDelta32"
		case 64:
			name = "gatedDelta64"
		case 128:
			name = "gatedDelta128"
		}
	}
	s.launch("delta", name, [3]uint32{uint32((dv + block - 1) / block), uint32(hv), uint32(len(s.plan.segs))}, [3]uint32{uint32(block), 1, 1}, 0)
}

func (s *stream) GatedRMSNorm(dst, x, z, w tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckHeads("GatedRMSNorm", dst, x, z)) || s.fails(backend.CheckVector("GatedRMSNorm", "w", w, x.Dim(2))) || s.away(dst, x, z, w) {
		return
	}
	s.view(s.view(s.view(s.kernel(), dst), x), z).Ptr(s.at(w)).Int32(int32(x.Dim(2))).Float32(eps)
	s.perHead("rows", "gatedRMSNorm", rowsOf(x))
}
