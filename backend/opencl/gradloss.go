package opencl

import (
	"math"

	"samebit/backend"
	"samebit/tensor"
)

// loss begins a launch of a kernel of losses, with what all of them take.
func (s *stream) loss(name string, loss, dx, x, weights tensor.Tensor, scale float32) *call {
	return s.begin(gradLossOps, name).u32(x.Dim(1)).view(loss).maybe(s, dx).view(x).maybe(s, weights).f32(scale)
}

func (s *stream) CrossEntropy(loss, dx, x, targets, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckCrossEntropy(loss, dx, x, targets, weights)) || s.away(loss, dx, x, targets, weights) || x.Len() == 0 {
		return
	}
	if s.checkIDs(lossTarget, targets, math.MinInt32, x.Dim(1)); s.err != nil {
		return
	}
	s.loss("cross_entropy", loss, dx, x, weights, scale).view(targets)
	s.groups(x.Dim(0))
}

func (s *stream) DistillKL(loss, dx, x, y, weights tensor.Tensor, t, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("DistillKL", loss, dx, x, y, weights)) || s.away(loss, dx, x, y, weights) || x.Len() == 0 {
		return
	}
	s.loss("distill_kl", loss, dx, x, weights, scale).view(y).f32(t)
	s.groups(x.Dim(0))
}

func (s *stream) SquaredError(loss, dx, x, y, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("SquaredError", loss, dx, x, y, weights)) || s.away(loss, dx, x, y, weights) || x.Len() == 0 {
		return
	}
	s.loss("squared_error", loss, dx, x, weights, scale).view(y)
	s.groups(x.Dim(0))
}

func (s *stream) CosineError(loss, dx, x, y, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("CosineError", loss, dx, x, y, weights)) || s.away(loss, dx, x, y, weights) || x.Len() == 0 {
		return
	}
	s.loss("cosine_error", loss, dx, x, weights, scale).view(y)
	s.groups(x.Dim(0))
}
