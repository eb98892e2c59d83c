package opencl

import (
	"math"

	"samebit/backend"
	"samebit/tensor"
)

var _ backend.Grad = (*stream)(nil)

// Programs of gradients, which only a device that trains compiles.
var (
	gradOps     = program{file: "grad"}
	gradRowOps  = program{file: "gradrows"}
	gradLossOps = program{file: "gradloss"}
)

// gradLinearOps are the products back through a storage type.
func gradLinearOps(dt tensor.DType) program { return program{"gradlinear", dt, tileRows} }

func (s *stream) Zero(dst tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckWhole("Zero", dst)) || s.away(dst) || dst.Len() == 0 {
		return
	}
	s.begin(gradOps, "zero").u32(dst.Len()).view(dst)
	s.elements(dst.Len(), 1)
}

func (s *stream) Accumulate(dst, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("Accumulate", dst, src)) || s.away(dst, src) || rowsOf(dst) == 0 {
		return
	}
	n := dst.Dim(dst.Dims() - 1)
	s.begin(rowOps, "add").u32(n).view(dst).view(dst).view(src)
	s.elements(n, rowsOf(dst))
}

func (s *stream) LinearGrad(dx, dy tensor.Tensor, w backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinearGrad(dx, dy, w)) || s.away(dx, dy) {
		return
	}
	if m := s.own(w); m != nil {
		s.productGrad(dx, dy, m.matrix())
	}
}

func (s *stream) ProjectGrad(dx, dy, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckProjectGrad(dx, dy, w)) || s.away(dx, dy, w) {
		return
	}
	m, off := s.on(&w)
	s.productGrad(dx, dy, matrix{m, off, uint64(4 * w.Stride(0)), tensor.F32})
}

// productGrad adds the blocks of dy·w to dx.
func (s *stream) productGrad(dx, dy tensor.Tensor, w matrix) {
	r, k := dx.Dim(0), dx.Dim(1)
	if r == 0 || k == 0 {
		return
	}
	s.begin(gradLinearOps(w.dt), "linear_grad").u32(r).u32(dy.Dim(1)).u32(k).view(dx).view(dy).from(w.mem, w.mem.off+w.off).u64(w.stride)
	s.elements(k, (r+tileRows-1)/tileRows)
}

// overBlocks begins a launch of a kernel that sums over the row blocks of the plan.
func (s *stream) overBlocks(name string) *call {
	return s.begin(gradRowOps, name).tables(&s.plan).u32(len(s.plan.segs))
}

const weightTile = 8 // TILE of gradrows.cl

func (s *stream) WeightGrad(dw, dy, x tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckWeightGrad(dw, dy, x, p)) || s.away(dw, dy, x) || !s.current(p) || dw.Len() == 0 || x.Dim(0) == 0 {
		return
	}
	n, k := dw.Dim(0), dw.Dim(1)
	s.overBlocks("weight_grad").u32(n).u32(k).view(dw).view(dy).view(x)
	s.elements(k, (n+weightTile-1)/weightTile)
}

func (s *stream) BiasGrad(db, dy tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckBiasGrad(db, dy, p)) || s.away(db, dy) || !s.current(p) || dy.Len() == 0 {
		return
	}
	s.overBlocks("bias_grad").u32(db.Dim(0)).view(db).view(dy)
	s.elements(db.Dim(0), 1)
}

func (s *stream) EmbedGrad(dtable, dy, ids tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckEmbedGrad(dtable, dy, ids)) {
		return
	}
	s.scatter(embedGradID, math.MinInt32, dtable, dy, ids)
}

func (s *stream) GatherGrad(dx, dy, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckGatherGrad(dx, dy, rows)) {
		return
	}
	s.scatter(gatherGradRow, 0, dx, dy, rows)
}

// scatter adds row i of dy to row to[i] of dx, in order; numbers below low make the
// stream fail, other negative ones are passed over.
func (s *stream) scatter(op, low int, dx, dy, to tensor.Tensor) {
	if s.away(dx, dy, to) || dy.Len() == 0 {
		return
	}
	if s.checkIDs(op, to, low, dx.Dim(0)); s.err != nil {
		return
	}
	s.begin(gradRowOps, "scatter").u32(dy.Dim(1)).view(dx).view(dy).view(to).u32(dy.Dim(0))
	s.elements(dy.Dim(1), 1)
}

// kept is scratch memory for the terms of a norm's weight gradient, where dw is asked for.
func (s *stream) kept(dw, x tensor.Tensor) *memory {
	if !dw.Valid() {
		return s.space(1)
	}
	return s.space(2 * rowsOf(x) * x.Dim(x.Dims()-1))
}

// normWeight adds the kept terms to dw, if it is asked for.
func (s *stream) normWeight(dw, x tensor.Tensor, kept *memory) {
	if s.err != nil || !dw.Valid() {
		return
	}
	s.overBlocks("norm_weight_grad").u32(dw.Dim(0)).u32(rowsOf(x)/x.Dim(0)).view(dw).at(kept, 4)
	s.elements(dw.Dim(0), 1)
}

func (s *stream) RMSNormGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckRMSNormGrad(dx, dw, dy, x, w, p)) || s.away(dx, dw, dy, x, w) || dw.Valid() && !s.current(p) || x.Len() == 0 {
		return
	}
	if kept := s.kept(dw, x); kept != nil {
		s.begin(gradOps, "rms_norm_grad").u32(x.Dim(1)).view(dx).view(dy).view(x).view(w).f32(eps).flag(dw.Valid()).at(kept, 4)
		s.groups(x.Dim(0))
		s.normWeight(dw, x, kept)
	}
}

func (s *stream) LayerNormGrad(dx, dw, db, dy, x, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckLayerNormGrad(dx, dw, db, dy, x, w, p)) || s.away(dx, dw, db, dy, x, w) || (dw.Valid() || db.Valid()) && !s.current(p) || x.Len() == 0 {
		return
	}
	if kept := s.kept(dw, x); kept != nil {
		s.begin(gradOps, "layer_norm_grad").u32(x.Dim(1)).view(dx).view(dy).view(x).view(w).f32(eps).flag(dw.Valid()).at(kept, 4)
		s.groups(x.Dim(0))
		s.normWeight(dw, x, kept)
	}
	if s.err == nil && db.Valid() {
		s.BiasGrad(db, dy, p)
	}
}

func (s *stream) GatedRMSNormGrad(dx, dz, dw, dy, x, z, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckGatedRMSNormGrad(dx, dz, dw, dy, x, z, w, p)) || s.away(dx, dz, dw, dy, x, z, w) || dw.Valid() && !s.current(p) || x.Len() == 0 {
		return
	}
	if kept := s.kept(dw, x); kept != nil {
		s.begin(gradOps, "gated_norm_grad").u32(x.Dim(2)).view(dx).view(dz).view(dy).view(x).view(z).view(w).f32(eps).flag(dw.Valid()).at(kept, 4)
		s.groups(rowsOf(x))
		s.normWeight(dw, x, kept)
	}
}

func (s *stream) NormRoPEGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckNormRoPEGrad(dx, dw, dy, x, w, rope, p)) || s.away(dx, dw, dy, x, w) || !s.current(p) || x.Len() == 0 {
		return
	}
	half, angles := s.rotation(rope)
	if angles == nil {
		return
	}
	if kept := s.kept(dw, x); kept != nil {
		s.begin(gradOps, "norm_rope_grad").u32(x.Dim(2)).view(dx).view(dy).view(x).maybe(s, w).f32(eps).at(angles, 4).u32(half).flag(dw.Valid()).at(kept, 4)
		s.groups(rowsOf(x))
		s.normWeight(dw, x, kept)
	}
}

func (s *stream) L2NormGrad(dx, dy, x tensor.Tensor, eps, scale float32) {
	if s.err != nil || s.fails(backend.CheckHeads("L2NormGrad", dx, dy, x)) || s.away(dx, dy, x) || x.Len() == 0 {
		return
	}
	s.begin(gradOps, "l2_norm_grad").u32(x.Dim(2)).view(dx).view(dy).view(x).f32(eps).f32(scale)
	s.groups(rowsOf(x))
}

func (s *stream) SwiGLUGrad(dgate, dup, dy, gate, up tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SwiGLUGrad", dgate, dup, dy, gate, up)) || s.away(dgate, dup, dy, gate, up) || dy.Len() == 0 {
		return
	}
	s.begin(gradOps, "swiglu_grad").u32(dy.Dim(1)).view(dgate).view(dup).view(dy).view(gate).view(up)
	s.elements(dy.Dim(1), dy.Dim(0))
}

func (s *stream) SigmoidMulGrad(dx, dgate, dy, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("SigmoidMulGrad", dx, dgate, dy, x, gate)) || s.away(dx, dgate, dy, x, gate) || x.Len() == 0 {
		return
	}
	n := x.Dim(x.Dims() - 1)
	s.begin(gradOps, "sigmoid_mul_grad").u32(n).view(dx).view(dgate).view(dy).view(x).view(gate)
	s.elements(n, rowsOf(x))
}

func (s *stream) SoftmaxGrad(dx, dy, y tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SoftmaxGrad", dx, dy, y)) || s.away(dx, dy, y) || y.Len() == 0 {
		return
	}
	s.begin(gradOps, "softmax_grad").u32(y.Dim(1)).view(dx).view(dy).view(y)
	s.groups(y.Dim(0))
}

func (s *stream) DeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias tensor.Tensor, p backend.Plan) {
	weights := dAExp.Valid() || dDTBias.Valid()
	if s.err != nil || s.fails(backend.CheckDeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias, p)) ||
		s.away(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias) || weights && !s.current(p) || g.Len() == 0 {
		return
	}
	n := g.Dim(1)
	s.begin(gradOps, "delta_gates_grad").u32(n).view(da).view(db).view(dg).view(dbeta).view(g).view(beta).view(a).view(aExp).view(dtBias)
	if s.elements(n, g.Dim(0)); s.err == nil && weights {
		s.overBlocks("gate_weight_grad").u32(n).maybe(s, dAExp).maybe(s, dDTBias).view(dg).view(g).view(a).view(aExp).view(dtBias)
		s.elements(n, 1)
	}
}

func (s *stream) SumSquares(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSumSquares(dst, x)) || s.away(dst, x) {
		return
	}
	blocks := (x.Len() + 1023) / 1024
	part := s.space(max(blocks, 1))
	if part == nil {
		return
	}
	if blocks > 0 {
		s.begin(gradOps, "squares").u32(x.Len()).view(x).at(part, 4)
		if s.groups(blocks); s.err != nil {
			return
		}
	}
	s.begin(gradOps, "chain").u32(blocks).view(dst).at(part, 4)
	s.elements(1, 1)
}

func (s *stream) AdamW(w, m, v, g tensor.Tensor, c backend.AdamWStep) {
	if s.err != nil || s.fails(backend.CheckWhole("AdamW", w, m, v, g)) || s.away(w, m, v, g) || w.Len() == 0 {
		return
	}
	s.begin(gradOps, "adam_w").u32(w.Len()).view(w).view(m).view(v).view(g).
		f32(c.Beta1).f32(c.Rest1).f32(c.Beta2).f32(c.Rest2).f32(c.Scale2).f32(c.Rate).f32(c.Decay).f32(c.Eps).f32(c.Clip)
	s.elements(w.Len(), 1)
}

// Repack copies on the device, where the values are.
func (s *stream) Repack(w backend.Weight, values tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRepack(w, values)) || s.away(values) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	if dst, err := tensor.New(m.mem, 0, tensor.F32, m.n, m.k); !s.fails(err) {
		s.move(values, dst, values)
	}
}
