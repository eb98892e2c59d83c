package backend

import (
	"fmt"

	"samebit/tensor"
)

// planned checks that rows of a gradient are those of the plan.
func planned(op string, p Plan, rows int) error {
	if p == nil || p.Rows() != rows {
		return fmt.Errorf("backend: %s: %d rows, the plan has others", op, rows)
	}
	return nil
}

// summed is planned where the gradient of a weight is asked for.
func summed(op string, dw tensor.Tensor, p Plan, rows int) error {
	if !dw.Valid() {
		return nil
	}
	return planned(op, p, rows)
}

// optional checks the gradient of a vector, which may be left out.
func optional(op, name string, v tensor.Tensor, n int) error {
	if !v.Valid() {
		return nil
	}
	return want(op, name, v, tensor.F32, n)
}

// CheckWhole checks that the tensors are contiguous, F32 and of one shape.
func CheckWhole(op string, t tensor.Tensor, more ...tensor.Tensor) error {
	for i := -1; i < len(more); i++ {
		x := t
		if i >= 0 {
			x = more[i]
		}
		if !x.Valid() || x.DType() != tensor.F32 || !x.Contiguous() || x.Dims() != t.Dims() {
			return fmt.Errorf("backend: %s: %v: want it f32, contiguous and of the shape of %v", op, x, t)
		}
		for d := range t.Dims() {
			if x.Dim(d) != t.Dim(d) {
				return fmt.Errorf("backend: %s: %v: want it of the shape of %v", op, x, t)
			}
		}
	}
	return nil
}

// CheckLinearGrad checks the shapes of LinearGrad.
func CheckLinearGrad(dx, dy tensor.Tensor, w Weight) error {
	if err := weight("LinearGrad", "w", w); err != nil {
		return err
	}
	return first(want("LinearGrad", "dy", dy, tensor.F32, -1, w.Out()), want("LinearGrad", "dx", dx, tensor.F32, dy.Dim(0), w.In()))
}

// CheckProjectGrad checks the shapes of ProjectGrad.
func CheckProjectGrad(dx, dy, w tensor.Tensor) error {
	return first(want("ProjectGrad", "w", w, tensor.F32, -1, -1), want("ProjectGrad", "dy", dy, tensor.F32, -1, w.Dim(0)),
		wantRows("ProjectGrad", "dx", dx, 2), want("ProjectGrad", "dx", dx, tensor.F32, dy.Dim(0), w.Dim(1)))
}

// CheckWeightGrad checks the shapes of WeightGrad.
func CheckWeightGrad(dw, dy, x tensor.Tensor, p Plan) error {
	return first(wantRows("WeightGrad", "dy", dy, 2), wantRows("WeightGrad", "x", x, 2), want("WeightGrad", "x", x, tensor.F32, dy.Dim(0), -1),
		want("WeightGrad", "dw", dw, tensor.F32, dy.Dim(1), x.Dim(1)), planned("WeightGrad", p, dy.Dim(0)))
}

// CheckBiasGrad checks the shapes of BiasGrad.
func CheckBiasGrad(db, dy tensor.Tensor, p Plan) error {
	return first(wantRows("BiasGrad", "dy", dy, 2), want("BiasGrad", "db", db, tensor.F32, dy.Dim(1)), planned("BiasGrad", p, dy.Dim(0)))
}

// CheckEmbedGrad checks the shapes of EmbedGrad.
func CheckEmbedGrad(dtable, dy, ids tensor.Tensor) error {
	return first(wantRows("EmbedGrad", "dy", dy, 2), want("EmbedGrad", "ids", ids, tensor.I32, dy.Dim(0)),
		want("EmbedGrad", "dtable", dtable, tensor.F32, -1, dy.Dim(1)))
}

// CheckGatherGrad checks the shapes of GatherGrad.
func CheckGatherGrad(dx, dy, rows tensor.Tensor) error {
	return first(wantRows("GatherGrad", "dy", dy, 2), want("GatherGrad", "rows", rows, tensor.I32, dy.Dim(0)),
		want("GatherGrad", "dx", dx, tensor.F32, -1, dy.Dim(1)))
}

// CheckRMSNormGrad checks the shapes of RMSNormGrad.
func CheckRMSNormGrad(dx, dw, dy, x, w tensor.Tensor, p Plan) error {
	return first(CheckRows("RMSNormGrad", dx, dy, x), CheckVector("RMSNormGrad", "w", w, x.Dim(1)), optional("RMSNormGrad", "dw", dw, x.Dim(1)),
		summed("RMSNormGrad", dw, p, x.Dim(0)))
}

// CheckLayerNormGrad checks the shapes of LayerNormGrad.
func CheckLayerNormGrad(dx, dw, db, dy, x, w tensor.Tensor, p Plan) error {
	const op = "LayerNormGrad"
	return first(CheckRows(op, dx, dy, x), CheckVector(op, "w", w, x.Dim(1)), optional(op, "dw", dw, x.Dim(1)), optional(op, "db", db, x.Dim(1)),
		summed(op, dw, p, x.Dim(0)), summed(op, db, p, x.Dim(0)))
}

// CheckNormRoPEGrad checks the shapes of NormRoPEGrad.
func CheckNormRoPEGrad(dx, dw, dy, x, w tensor.Tensor, rope *RoPE, p Plan) error {
	if dw.Valid() && !w.Valid() {
		return fmt.Errorf("backend: NormRoPEGrad: a gradient for a weight that is not there")
	}
	return first(CheckNormRoPE(dx, x, w, rope, p), CheckHeads("NormRoPEGrad", dx, dy), optional("NormRoPEGrad", "dw", dw, x.Dim(2)))
}

// CheckAttentionGrad checks the shapes of AttentionGrad.
func CheckAttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p Plan) error {
	const op = "AttentionGrad"
	if err := first(CheckHeads(op, dq, dy, y, q), CheckHeads(op, dk, dv, k, v), planned(op, p, q.Dim(0)), planned(op, p, k.Dim(0))); err != nil {
		return err
	}
	if q.Dim(1)%k.Dim(1) != 0 || q.Dim(2) != k.Dim(2) {
		return fmt.Errorf("backend: %s: the heads of q, %v, do not divide among those of k, %v", op, q, k)
	}
	for i, s := range p.Segs() {
		if s.Slot != 0 {
			return fmt.Errorf("backend: %s: segment %d begins at slot %d: want whole sequences, from slot 0 on", op, i, s.Slot)
		}
	}
	return nil
}

// CheckConvGrad checks the shapes of ConvGrad.
func CheckConvGrad(dx, dw, dy, x, w tensor.Tensor, p Plan, layer int) error {
	if err := first(CheckConv(dx, x, w, p, layer), CheckRows("ConvGrad", dx, dy)); err != nil {
		return err
	}
	if dw.Valid() {
		return want("ConvGrad", "dw", dw, tensor.F32, w.Dim(0), w.Dim(1))
	}
	return nil
}

// CheckDeltaGatesGrad checks the shapes of DeltaGatesGrad.
func CheckDeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias tensor.Tensor, p Plan) error {
	const op = "DeltaGatesGrad"
	return first(CheckRows(op, da, db, dg, dbeta, g, beta, a), CheckVector(op, "aExp", aExp, g.Dim(1)), CheckVector(op, "dtBias", dtBias, g.Dim(1)),
		optional(op, "dAExp", dAExp, g.Dim(1)), optional(op, "dDTBias", dDTBias, g.Dim(1)), summed(op, dAExp, p, g.Dim(0)), summed(op, dDTBias, p, g.Dim(0)))
}

// CheckGatedDeltaGrad checks the shapes of GatedDeltaGrad.
func CheckGatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta tensor.Tensor, p Plan, layer int) error {
	const op = "GatedDeltaGrad"
	return first(CheckGatedDelta(dv, q, k, v, g, beta, p, layer), CheckHeads(op, dq, q), CheckHeads(op, dk, q), CheckHeads(op, dy, v), CheckRows(op, dg, g, dbeta))
}

// CheckGatedRMSNormGrad checks the shapes of GatedRMSNormGrad.
func CheckGatedRMSNormGrad(dx, dz, dw, dy, x, z, w tensor.Tensor, p Plan) error {
	const op = "GatedRMSNormGrad"
	return first(CheckHeads(op, dx, dz, dy, x, z), CheckVector(op, "w", w, x.Dim(2)), optional(op, "dw", dw, x.Dim(2)), summed(op, dw, p, x.Dim(0)))
}

// CheckCrossEntropy checks the shapes of CrossEntropy.
func CheckCrossEntropy(loss, dx, x, targets, weights tensor.Tensor) error {
	return first(checkLoss("CrossEntropy", loss, dx, x, weights), want("CrossEntropy", "targets", targets, tensor.I32, x.Dim(0)))
}

// CheckDistance checks the shapes of the losses that compare two tensors.
func CheckDistance(op string, loss, dx, x, y, weights tensor.Tensor) error {
	return first(checkLoss(op, loss, dx, x, weights), CheckRows(op, x, y))
}

func checkLoss(op string, loss, dx, x, weights tensor.Tensor) error {
	if err := first(wantRows(op, "x", x, 2), want(op, "loss", loss, tensor.F32, x.Dim(0)), optional(op, "weights", weights, x.Dim(0))); err != nil {
		return err
	}
	if dx.Valid() {
		return want(op, "dx", dx, tensor.F32, x.Dim(0), x.Dim(1))
	}
	return nil
}

// CheckSumSquares checks the shapes of SumSquares.
func CheckSumSquares(dst, x tensor.Tensor) error {
	return first(want("SumSquares", "dst", dst, tensor.F32, 1), CheckWhole("SumSquares", x))
}

// CheckRepack checks the shapes of Repack.
func CheckRepack(w Weight, values tensor.Tensor) error {
	if err := weight("Repack", "w", w); err != nil {
		return err
	}
	if w.DType() != tensor.F32 || w.Aliases() {
		return fmt.Errorf("backend: Repack: a weight of %v[%d, %d]: want one of its own float32 values", w.DType(), w.Out(), w.In())
	}
	return first(want("Repack", "values", values, tensor.F32, w.Out(), w.In()), whole("Repack", "values", values))
}
