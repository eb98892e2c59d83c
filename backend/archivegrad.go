package backend

import (
	"fmt"

	"samebit/tensor"
)

// ArchiveGrad is what a Stream offers besides [Grad] and [Archive] if its device can
// train attention over a window and an archive (numerics.md 16.6); ask for it by a
// type assertion. As in Grad, every op adds to the gradients it is given, and rows
// are those of the plan, whose segments are whole sequences that begin at slot 0.
type ArchiveGrad interface {
	// WindowAttentionGrad is the gradient of WindowAttention without a mass: y is its
	// result, k and v [R, Hkv, D] are what PutWindow stored in this pass.
	WindowAttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p Plan, w WindowParams)

	// ArchiveScanGrad is the gradient of ArchiveScan with eager decay and dense reads:
	// dy and q [R, Hq, D], k and v [R, Hkv, D] the addresses and values of this
	// pass's rows, which may be one tensor. A content gate has the derivative of
	// numerics.md 16.6; landmarks are constants.
	ArchiveScanGrad(d *ArchiveGrads, dy, q, k, v tensor.Tensor, p Plan, w *ArchiveParams)

	// GateMixGrad is the gradient of GateMix without a promotion; dgate is invalid if
	// gate is.
	GateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate tensor.Tensor, p Plan, w GateParams)

	// QueryCorrectionGrad is the gradient of QueryCorrection; dv and du may be invalid.
	QueryCorrectionGrad(dq, dv, du, dy, q, v, u tensor.Tensor, p Plan)

	// GELUGrad is the gradient of GELU.
	GELUGrad(dx, dy, x tensor.Tensor)
}

// ArchiveGrads are where ArchiveScanGrad adds: to queries, addresses and values, one
// tensor if those are, and to parameters, of which invalid ones are left out.
type ArchiveGrads struct {
	Q    tensor.Tensor // [R, Hq, D]
	K, V tensor.Tensor // [R, Hkv, D]

	Codes, Mix, CorrV, CorrU, CorrScale, LandmarkMix tensor.Tensor // as in ArchiveParams
}

// wholeSequences checks that a plan has the rows of a gradient, from slot 0 on.
func wholeSequences(op string, p Plan, rows int) error {
	if err := planned(op, p, rows); err != nil {
		return err
	}
	segs := p.Segs()
	for i := range segs {
		if segs[i].Slot != 0 {
			return fmt.Errorf("backend: %s: segment %d begins at slot %d: want whole sequences, from slot 0 on", op, i, segs[i].Slot)
		}
	}
	return nil
}

// like checks the gradient of a parameter of an archive, which may be left out.
func like(op, name string, d, w tensor.Tensor) error {
	if !d.Valid() {
		return nil
	}
	if !w.Valid() {
		return fmt.Errorf("backend: %s: a gradient of %s, which are not there", op, name)
	}
	return first(want(op, "the gradient of "+name, d, tensor.F32, w.Shape()...), whole(op, "the gradient of "+name, d))
}

// CheckWindowAttentionGrad checks the shapes of WindowAttentionGrad.
func CheckWindowAttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p Plan, w WindowParams) error {
	const op = "WindowAttentionGrad"
	if err := first(CheckHeads(op, dq, dy, y, q), CheckHeads(op, dk, dv, k, v), wholeSequences(op, p, q.Dim(0)), planned(op, p, k.Dim(0)), w.check(op)); err != nil {
		return err
	}
	return first(divides(op, k.Dim(1), q.Dim(1)), want(op, "k", k, tensor.F32, -1, -1, q.Dim(2)))
}

// CheckArchiveScanGrad checks the shapes of ArchiveScanGrad.
func CheckArchiveScanGrad(d *ArchiveGrads, dy, q, k, v tensor.Tensor, p Plan, w *ArchiveParams) error {
	const op = "ArchiveScanGrad"
	if d == nil || w == nil {
		return fmt.Errorf("backend: %s: no parameters or no gradients", op)
	}
	if err := first(CheckHeads(op, d.Q, dy, q), CheckHeads(op, d.K, d.V, k, v), wholeSequences(op, p, q.Dim(0)), planned(op, p, k.Dim(0)), w.check(op),
		w.checkTensors(op, q.Dim(1), k.Dim(1), q.Dim(2))); err != nil {
		return err
	}
	if w.Lazy || w.Active > 0 && w.Active < w.Codes.Dim(1) {
		return fmt.Errorf("backend: %s: lazy decay or sparse reads have no gradient: train with dense ones: %w", op, ErrUnsupported)
	}
	return first(want(op, "k", k, tensor.F32, -1, -1, q.Dim(2)), like(op, "codes", d.Codes, w.Codes), like(op, "mix", d.Mix, w.Mix), like(op, "corrV", d.CorrV, w.CorrV),
		like(op, "corrU", d.CorrU, w.CorrU), like(op, "corrScale", d.CorrScale, w.CorrScale), like(op, "landmarkMix", d.LandmarkMix, w.LandmarkMix))
}

// CheckGateMixGrad checks the shapes of GateMixGrad.
func CheckGateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate tensor.Tensor, p Plan) error {
	const op = "GateMixGrad"
	if err := first(CheckHeads(op, dlocal, dremote, dy, local, remote), wholeSequences(op, p, dy.Dim(0))); err != nil {
		return err
	}
	if !gate.Valid() && !dgate.Valid() {
		return nil
	}
	return first(want(op, "gate", gate, tensor.F32, dy.Dim(0), dy.Dim(1)), want(op, "dgate", dgate, tensor.F32, dy.Dim(0), dy.Dim(1)))
}

// CheckQueryCorrectionGrad checks the shapes of QueryCorrectionGrad.
func CheckQueryCorrectionGrad(dq, dv, du, dy, q, v, u tensor.Tensor, p Plan) error {
	const op = "QueryCorrectionGrad"
	return first(CheckQueryCorrection(dq, q, v, u), CheckHeads(op, dq, dy), planned(op, p, q.Dim(0)), like(op, "v", dv, v), like(op, "u", du, u))
}
