package lockstep

import (
	"samebit/backend"
	"samebit/tensor"
)

// gradOps are the gradients of a stream of two devices that both have them.
type gradOps struct{ s *stream }

func (x *side) grad() backend.Grad { return x.Stream.(backend.Grad) }

func (g gradOps) Zero(dst tensor.Tensor) {
	g.s.run("Zero", 1, func(d *side) { d.grad().Zero(d.t[0]) }, dst)
}

// First is Zero on a side that has no First. What it leaves is nothing to compare.
func (g gradOps) First(dst tensor.Tensor) {
	g.s.unseen("First", 1, func(d *side) {
		if f, ok := d.Stream.(backend.FirstGrad); ok {
			f.First(d.t[0])
		} else {
			d.grad().Zero(d.t[0])
		}
	}, dst)
}

func (g gradOps) Accumulate(dst, src tensor.Tensor) {
	g.s.run("Accumulate", 1, func(d *side) { d.grad().Accumulate(d.t[0], d.t[1]) }, dst, src)
}

func (g gradOps) LinearGrad(dx, dy tensor.Tensor, w backend.Weight) {
	g.s.run("LinearGrad", 1, func(d *side) { d.grad().LinearGrad(d.t[0], d.t[1], d.weight(w)) }, dx, dy)
}

func (g gradOps) ProjectGrad(dx, dy, w tensor.Tensor) {
	g.s.run("ProjectGrad", 1, func(d *side) { d.grad().ProjectGrad(d.t[0], d.t[1], d.t[2]) }, dx, dy, w)
}

func (g gradOps) WeightGrad(dw, dy, x tensor.Tensor, p backend.Plan) {
	g.s.run("WeightGrad", 1, func(d *side) { d.grad().WeightGrad(d.t[0], d.t[1], d.t[2], d.plan(g.s, p)) }, dw, dy, x)
}

func (g gradOps) BiasGrad(db, dy tensor.Tensor, p backend.Plan) {
	g.s.run("BiasGrad", 1, func(d *side) { d.grad().BiasGrad(d.t[0], d.t[1], d.plan(g.s, p)) }, db, dy)
}

func (g gradOps) EmbedGrad(dtable, dy, ids tensor.Tensor) {
	g.s.run("EmbedGrad", 1, func(d *side) { d.grad().EmbedGrad(d.t[0], d.t[1], d.t[2]) }, dtable, dy, ids)
}

func (g gradOps) GatherGrad(dx, dy, rows tensor.Tensor) {
	g.s.run("GatherGrad", 1, func(d *side) { d.grad().GatherGrad(d.t[0], d.t[1], d.t[2]) }, dx, dy, rows)
}

func (g gradOps) RMSNormGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, p backend.Plan) {
	g.s.run("RMSNormGrad", 2, func(d *side) {
		d.grad().RMSNormGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], eps, d.plan(g.s, p))
	}, dx, dw, dy, x, w)
}

func (g gradOps) LayerNormGrad(dx, dw, db, dy, x, w tensor.Tensor, eps float32, p backend.Plan) {
	g.s.run("LayerNormGrad", 3, func(d *side) {
		d.grad().LayerNormGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], d.t[5], eps, d.plan(g.s, p))
	}, dx, dw, db, dy, x, w)
}

func (g gradOps) SwiGLUGrad(dgate, dup, dy, gate, up tensor.Tensor) {
	g.s.run("SwiGLUGrad", 2, func(d *side) { d.grad().SwiGLUGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4]) }, dgate, dup, dy, gate, up)
}

func (g gradOps) SigmoidMulGrad(dx, dgate, dy, x, gate tensor.Tensor) {
	g.s.run("SigmoidMulGrad", 2, func(d *side) { d.grad().SigmoidMulGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4]) }, dx, dgate, dy, x, gate)
}

func (g gradOps) SoftmaxGrad(dx, dy, y tensor.Tensor) {
	g.s.run("SoftmaxGrad", 1, func(d *side) { d.grad().SoftmaxGrad(d.t[0], d.t[1], d.t[2]) }, dx, dy, y)
}

func (g gradOps) NormRoPEGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	g.s.run("NormRoPEGrad", 2, func(d *side) {
		d.grad().NormRoPEGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], eps, rope, d.plan(g.s, p))
	}, dx, dw, dy, x, w)
}

func (g gradOps) AttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, scale float32, window int) {
	g.s.run("AttentionGrad", 3, func(d *side) {
		d.grad().AttentionGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], d.t[5], d.t[6], d.t[7], d.plan(g.s, p), scale, window)
	}, dq, dk, dv, dy, y, q, k, v)
}

func (g gradOps) ConvGrad(dx, dw, dy, x, w tensor.Tensor, p backend.Plan, layer int) {
	g.s.run("ConvGrad", 2, func(d *side) {
		d.grad().ConvGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], d.plan(g.s, p), layer)
	}, dx, dw, dy, x, w)
}

func (g gradOps) L2NormGrad(dx, dy, x tensor.Tensor, eps, scale float32) {
	g.s.run("L2NormGrad", 1, func(d *side) { d.grad().L2NormGrad(d.t[0], d.t[1], d.t[2], eps, scale) }, dx, dy, x)
}

func (g gradOps) DeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, gv, beta, a, aExp, dtBias tensor.Tensor, p backend.Plan) {
	g.s.run("DeltaGatesGrad", 4, func(d *side) {
		d.grad().DeltaGatesGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], d.t[5], d.t[6], d.t[7], d.t[8], d.t[9], d.t[10], d.plan(g.s, p))
	}, da, db, dAExp, dDTBias, dg, dbeta, gv, beta, a, aExp, dtBias)
}

func (g gradOps) GatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, gv, beta tensor.Tensor, p backend.Plan, layer int) {
	g.s.run("GatedDeltaGrad", 5, func(d *side) {
		d.grad().GatedDeltaGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], d.t[5], d.t[6], d.t[7], d.t[8], d.t[9], d.t[10], d.plan(g.s, p), layer)
	}, dq, dk, dv, dg, dbeta, dy, q, k, v, gv, beta)
}

func (g gradOps) GatedRMSNormGrad(dx, dz, dw, dy, x, z, w tensor.Tensor, eps float32, p backend.Plan) {
	g.s.run("GatedRMSNormGrad", 3, func(d *side) {
		d.grad().GatedRMSNormGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], d.t[5], d.t[6], eps, d.plan(g.s, p))
	}, dx, dz, dw, dy, x, z, w)
}

func (g gradOps) CrossEntropy(loss, dx, x, targets, weights tensor.Tensor, scale float32) {
	g.s.run("CrossEntropy", 2, func(d *side) { d.grad().CrossEntropy(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], scale) }, loss, dx, x, targets, weights)
}

func (g gradOps) DistillKL(loss, dx, x, y, weights tensor.Tensor, t, scale float32) {
	g.s.run("DistillKL", 2, func(d *side) { d.grad().DistillKL(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], t, scale) }, loss, dx, x, y, weights)
}

func (g gradOps) SquaredError(loss, dx, x, y, weights tensor.Tensor, scale float32) {
	g.s.run("SquaredError", 2, func(d *side) { d.grad().SquaredError(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], scale) }, loss, dx, x, y, weights)
}

func (g gradOps) CosineError(loss, dx, x, y, weights tensor.Tensor, scale float32) {
	g.s.run("CosineError", 2, func(d *side) { d.grad().CosineError(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], scale) }, loss, dx, x, y, weights)
}

func (g gradOps) SumSquares(dst, x tensor.Tensor) {
	g.s.run("SumSquares", 1, func(d *side) { d.grad().SumSquares(d.t[0], d.t[1]) }, dst, x)
}

func (g gradOps) AdamW(w, m, v, grad tensor.Tensor, step backend.AdamWStep) {
	g.s.run("AdamW", 3, func(d *side) { d.grad().AdamW(d.t[0], d.t[1], d.t[2], d.t[3], step) }, w, m, v, grad)
}

func (g gradOps) Repack(w backend.Weight, values tensor.Tensor) {
	g.s.unseen("Repack", 0, func(d *side) { d.grad().Repack(d.weight(w), d.t[0]) }, values)
}

// archiveGradOps are the gradients of archive attention.
type archiveGradOps struct{ s *stream }

func (x *side) archiveGrad() backend.ArchiveGrad { return x.Stream.(backend.ArchiveGrad) }

func (g archiveGradOps) WindowAttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, w backend.WindowParams) {
	g.s.run("WindowAttentionGrad", 3, func(d *side) {
		d.archiveGrad().WindowAttentionGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], d.t[5], d.t[6], d.t[7], d.plan(g.s, p), w)
	}, dq, dk, dv, dy, y, q, k, v)
}

func (g archiveGradOps) ArchiveScanGrad(to *backend.ArchiveGrads, dy, q, k, v tensor.Tensor, p backend.Plan, w *backend.ArchiveParams) {
	if to == nil {
		to = &backend.ArchiveGrads{}
	}
	if w == nil {
		w = &backend.ArchiveParams{}
	}
	g.s.run("ArchiveScanGrad", 9, func(d *side) {
		t, a := d.t, *w
		a.Codes, a.Mix, a.CorrV, a.CorrU, a.CorrScale, a.LandmarkMix = t[13], t[14], t[15], t[16], t[17], t[18]
		d.archiveGrad().ArchiveScanGrad(&backend.ArchiveGrads{Q: t[0], K: t[1], V: t[2], Codes: t[3], Mix: t[4], CorrV: t[5], CorrU: t[6], CorrScale: t[7], LandmarkMix: t[8]},
			t[9], t[10], t[11], t[12], d.plan(g.s, p), &a)
	}, to.Q, to.K, to.V, to.Codes, to.Mix, to.CorrV, to.CorrU, to.CorrScale, to.LandmarkMix, dy, q, k, v, w.Codes, w.Mix, w.CorrV, w.CorrU, w.CorrScale, w.LandmarkMix)
}

func (g archiveGradOps) GateMixGrad(dlocal, dremote, dgate, dy, local, remote, gate tensor.Tensor, p backend.Plan, w backend.GateParams) {
	g.s.run("GateMixGrad", 3, func(d *side) {
		d.archiveGrad().GateMixGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], d.t[5], d.t[6], d.plan(g.s, p), w)
	}, dlocal, dremote, dgate, dy, local, remote, gate)
}

func (g archiveGradOps) QueryCorrectionGrad(dq, dv, du, dy, q, v, u tensor.Tensor, p backend.Plan) {
	g.s.run("QueryCorrectionGrad", 3, func(d *side) {
		d.archiveGrad().QueryCorrectionGrad(d.t[0], d.t[1], d.t[2], d.t[3], d.t[4], d.t[5], d.t[6], d.plan(g.s, p))
	}, dq, dv, du, dy, q, v, u)
}

func (g archiveGradOps) GELUGrad(dx, dy, x tensor.Tensor) {
	g.s.run("GELUGrad", 1, func(d *side) { d.archiveGrad().GELUGrad(d.t[0], d.t[1], d.t[2]) }, dx, dy, x)
}
