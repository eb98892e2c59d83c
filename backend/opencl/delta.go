package opencl

import (
	"samebit/backend"
	"samebit/tensor"
)

func (s *stream) Conv(dst, x, w tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckConv(dst, x, w, p, layer)) || s.away(dst, x, w) || !s.current(p) || x.Dim(0) == 0 {
		return
	}
	taps, n := w.Dim(0), x.Dim(1)
	s.begin(deltaOps, "conv").tables(&s.plan).u32(layer).u32(taps).u32(n).view(dst).view(x).view(w)
	s.elements(n, x.Dim(0))
	if taps == 1 || s.err != nil {
		return
	}
	s.begin(deltaOps, "conv_state").tables(&s.plan).u32(layer).u32(taps).u32(n).view(x)
	s.end(int(groupSize), n, taps-1, len(s.plan.segs))
}

func (s *stream) L2Norm(dst, x tensor.Tensor, eps, scale float32) {
	if s.err != nil || s.fails(backend.CheckHeads("L2Norm", dst, x)) || s.away(dst, x) || rowsOf(x) == 0 {
		return
	}
	s.begin(rowOps, "l2_norm").u32(x.Dim(2)).view(dst).view(x).f32(eps).f32(scale)
	s.groups(rowsOf(x))
}

func (s *stream) DeltaGates(g, beta, a, b, aExp, dtBias tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckDeltaGates(g, beta, a, b, aExp, dtBias)) || s.away(g, beta, a, b, aExp, dtBias) || g.Dim(0) == 0 {
		return
	}
	s.begin(deltaOps, "delta_gates").u32(g.Dim(1)).view(g).view(beta).view(a).view(b).view(aExp).view(dtBias)
	s.elements(g.Dim(1), g.Dim(0))
}

func (s *stream) GatedDelta(dst, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckGatedDelta(dst, q, k, v, g, beta, p, layer)) || s.away(dst, q, k, v, g, beta) || !s.current(p) || v.Dim(0) == 0 {
		return
	}
	s.begin(deltaOps, "gated_delta").tables(&s.plan).u32(layer).u32(q.Dim(1)).u32(q.Dim(2)).u32(v.Dim(2)).view(dst).view(q).view(k).view(v).view(g).view(beta)
	s.end(int(groupSize), v.Dim(2), v.Dim(1), len(s.plan.segs))
}

func (s *stream) GatedRMSNorm(dst, x, z, w tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckHeads("GatedRMSNorm", dst, x, z)) || s.fails(backend.CheckVector("GatedRMSNorm", "w", w, x.Dim(2))) || s.away(dst, x, z, w) || rowsOf(x) == 0 {
		return
	}
	s.begin(rowOps, "gated_rms_norm").u32(x.Dim(2)).view(dst).view(x).view(z).view(w).f32(eps)
	s.groups(rowsOf(x))
}
