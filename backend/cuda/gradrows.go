package cuda

import (
	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

func (s *stream) SwiGLUGrad(dgate, dup, dy, gate, up tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SwiGLUGrad", dgate, dup, dy, gate, up)) || s.away(dgate, dup, dy, gate, up) {
		return
	}
	s.views(dgate, dup, dy, gate, up).Int32(int32(dy.Dim(1)))
	s.each("gradrows", "swiGLUGrad", dy.Dim(1), dy.Dim(0))
}

func (s *stream) SigmoidMulGrad(dx, dgate, dy, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("SigmoidMulGrad", dx, dgate, dy, x, gate)) || s.away(dx, dgate, dy, x, gate) {
		return
	}
	cols := x.Dim(x.Dims() - 1)
	s.views(dx, dgate, dy, x, gate).Int32(int32(cols))
	s.each("gradrows", "sigmoidMulGrad", cols, rowsOf(x))
}

func (s *stream) SoftmaxGrad(dx, dy, y tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SoftmaxGrad", dx, dy, y)) || s.away(dx, dy, y) {
		return
	}
	s.views(dx, dy, y).Int32(int32(y.Dim(1)))
	s.perRow("gradrows", "softmaxGrad", y.Dim(1), y.Dim(0))
}

// views starts a parameter list with tensors of rows.
func (s *stream) views(ts ...tensor.Tensor) *driver.Params {
	p := s.kernel()
	for _, t := range ts {
		s.view(p, t)
	}
	return p
}

// normGrad is the gradient of a norm whose launch gets the place of the factors of
// the rows, before them the means of LayerNorm, 0 if dw is not wanted; parts then follows the chains of dw, one
// parameter list for both: dy appends what the gradient of the norm's result is
// made of.
func (s *stream) normGrad(dw, x tensor.Tensor, grad, parts string, outs []tensor.Tensor, dy func(*driver.Params), w driver.Ptr, eps float32) {
	rows, cols := rowsOf(x), x.Dim(x.Dims()-1)
	if rows == 0 || cols == 0 {
		return
	}
	var scales driver.Ptr
	if dw.Valid() {
		var ok bool
		if scales, ok = s.tmp(scratchScales, 8*rows); !ok {
			return
		}
	}
	p := s.views(outs...)
	dy(p)
	s.view(p, x).Ptr(w).Int32(int32(cols)).Float32(eps).Ptr(scales)
	s.perRow("gradrows", grad, cols, rows)
	if s.err != nil || !dw.Valid() {
		return
	}
	s.addParts(dw, func(t *rowTable, part driver.Ptr) {
		p := s.kernel().Ptr(part)
		dy(p)
		s.view(p, x).Ptr(scales).Ptr(t.blockAt).Int32(int32(t.blocks)).Int32(int32(cols))
		s.each("gradrows", parts, cols, t.blocks)
	})
}

func (s *stream) RMSNormGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckRMSNormGrad(dx, dw, dy, x, w, p)) || s.away(dx, dw, dy, x, w) || dw.Valid() && !s.current(p) {
		return
	}
	s.normGrad(dw, x, "rmsNormGrad", "rmsNormParts", []tensor.Tensor{dx}, func(p *driver.Params) { s.view(p, dy) }, s.at(w), eps)
}

func (s *stream) LayerNormGrad(dx, dw, db, dy, x, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckLayerNormGrad(dx, dw, db, dy, x, w, p)) || s.away(dx, dw, db, dy, x, w) || (dw.Valid() || db.Valid()) && !s.current(p) {
		return
	}
	s.normGrad(dw, x, "layerNormGrad", "layerNormParts", []tensor.Tensor{dx}, func(p *driver.Params) { s.view(p, dy) }, s.at(w), eps)
	if s.err == nil && db.Valid() {
		s.BiasGrad(db, dy, p)
	}
}

func (s *stream) NormRoPEGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckNormRoPEGrad(dx, dw, dy, x, w, rope, p)) || s.away(dx, dw, dy, x, w) || !s.current(p) || x.Dim(0) == 0 {
		return
	}
	table, half, ok := s.turn(rope)
	if !ok {
		return
	}
	turned := func(p *driver.Params) { s.view(p, dy).Ptr(table).Int32(int32(half)).Int32(0) }
	s.normGrad(dw, x, "normRoPEGrad", "normRoPEParts", []tensor.Tensor{dx}, turned, s.maybe(w), eps)
}

func (s *stream) GatedRMSNormGrad(dx, dz, dw, dy, x, z, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckGatedRMSNormGrad(dx, dz, dw, dy, x, z, w, p)) || s.away(dx, dz, dw, dy, x, z, w) || dw.Valid() && !s.current(p) {
		return
	}
	gated := func(p *driver.Params) { s.view(s.view(p, dy), z) }
	s.normGrad(dw, x, "gatedRMSNormGrad", "gatedParts", []tensor.Tensor{dx, dz}, gated, s.at(w), eps)
}

func (s *stream) L2NormGrad(dx, dy, x tensor.Tensor, eps, scale float32) {
	if s.err != nil || s.fails(backend.CheckHeads("L2NormGrad", dx, dy, x)) || s.away(dx, dy, x) {
		return
	}
	s.views(dx, dy, x).Int32(int32(x.Dim(2))).Float32(eps).Float32(scale)
	s.perRow("gradrows", "l2NormGrad", x.Dim(2), rowsOf(x))
}
