package cuda

import (
	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

// loss appends the struct Loss of kernels/gradloss.cu.
func (s *stream) loss(loss, dx, x, weights tensor.Tensor, scale float32) *driver.Params {
	p := s.kernel()
	if dx.Valid() {
		s.view(p, dx)
	} else {
		matrix{}.params(p)
	}
	s.view(p, x).Ptr(s.at(loss))
	if weights.Valid() {
		p.Ptr(s.at(weights))
	} else {
		p.Ptr(0)
	}
	return p.Float32(scale).Int32(int32(x.Dim(1)))
}

func (s *stream) CrossEntropy(loss, dx, x, targets, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckCrossEntropy(loss, dx, x, targets, weights)) || s.away(loss, dx, x, targets, weights) {
		return
	}
	p := s.loss(loss, dx, x, weights, scale).Ptr(s.at(targets))
	s.reports(p, failTarget)
	s.perRow("gradloss", "crossEntropy", x.Dim(1), x.Dim(0))
}

func (s *stream) DistillKL(loss, dx, x, y, weights tensor.Tensor, t, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("DistillKL", loss, dx, x, y, weights)) || s.away(loss, dx, x, y, weights) {
		return
	}
	s.view(s.loss(loss, dx, x, weights, scale), y).Float32(t)
	s.perRow("gradloss", "distillKL", x.Dim(1), x.Dim(0))
}

func (s *stream) SquaredError(loss, dx, x, y, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("SquaredError", loss, dx, x, y, weights)) || s.away(loss, dx, x, y, weights) {
		return
	}
	s.view(s.loss(loss, dx, x, weights, scale), y)
	s.perRow("gradloss", "squaredError", x.Dim(1), x.Dim(0))
}

func (s *stream) CosineError(loss, dx, x, y, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("CosineError", loss, dx, x, y, weights)) || s.away(loss, dx, x, y, weights) {
		return
	}
	s.view(s.loss(loss, dx, x, weights, scale), y)
	s.perRow("gradloss", "cosineError", x.Dim(1), x.Dim(0))
}

func (s *stream) SumSquares(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSumSquares(dst, x)) || s.away(dst, x) {
		return
	}
	blocks := (x.Len() + 1023) / 1024
	part, ok := s.tmp(scratchParts, 4*blocks)
	if !ok {
		return
	}
	if blocks > 0 {
		s.kernel().Ptr(part).Ptr(s.at(x)).Uint64(uint64(x.Len())).Uint32(uint32(blocks))
		s.perHead("gradloss", "squareBlocks", blocks)
	}
	s.kernel().Ptr(s.at(dst)).Ptr(part).Uint32(uint32(blocks))
	s.launch("gradloss", "addBlocks", [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
}

func (s *stream) AdamW(w, m, v, g tensor.Tensor, c backend.AdamWStep) {
	if s.err != nil || s.fails(backend.CheckWhole("AdamW", w, m, v, g)) || s.away(w, m, v, g) || w.Len() == 0 {
		return
	}
	p := s.kernel().Ptr(s.at(w)).Ptr(s.at(m)).Ptr(s.at(v)).Ptr(s.at(g)).Uint64(uint64(w.Len()))
	for _, x := range [9]float32{c.Beta1, c.Rest1, c.Beta2, c.Rest2, c.Scale2, c.Rate, c.Decay, c.Eps, c.Clip} {
		p.Float32(x)
	}
	s.flat("gradloss", "adamW", w.Len())
}
