package grad

import (
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

// vector is the gradient of a watched tensor, invalid if w is not watched.
func (t *Tape) vector(op string, w tensor.Tensor, rows int) tensor.Tensor {
	if !w.Valid() {
		return tensor.Tensor{}
	}
	p := t.params.tensors[placeOf(w)]
	if p == nil {
		return tensor.Tensor{}
	}
	t.whole(op, p, rows)
	return p.Grad
}

// whole fails if the rows of an op with a watched parameter are not those of the
// plan, of which its gradient is a sum.
func (t *Tape) whole(op string, p *Param, rows int) {
	if t.plan == nil || t.plan.Rows() != rows {
		t.fail(fmt.Errorf("grad: %s of %d rows with parameter %s: its gradient is a sum over the rows of the plan, want all of them", op, rows, p.Name))
	}
}

func (t *Tape) Embed(dst tensor.Tensor, table backend.Weight, ids tensor.Tensor) {
	if !t.writes("Embed", dst) {
		return
	}
	t.inner.Embed(dst, table, ids)
	p := t.params.weights[table]
	if p == nil {
		return
	}
	t.embeds = append(t.embeds, embed{dst, ids})
	if t.fail(p.needTable(t.params)) {
		return
	}
	t.record(func() { t.g.EmbedGrad(p.table, t.grad(dst), ids) })
}

func (t *Tape) Linear(dst, x tensor.Tensor, w backend.Weight) {
	if !t.writes("Linear", dst) {
		return
	}
	t.inner.Linear(dst, x, w)
	p := t.params.weights[w]
	if p != nil {
		t.whole("Linear", p, x.Dim(0))
	}
	plan := t.plan
	t.record(func() {
		dy := t.grad(dst)
		if p != nil {
			t.g.WeightGrad(p.Grad, dy, x, plan)
		}
		t.g.LinearGrad(t.into(x), dy, w)
	})
}

func (t *Tape) Project(dst, x, w tensor.Tensor) {
	if !t.writes("Project", dst) {
		return
	}
	t.inner.Project(dst, x, w)
	dw, plan := t.vector("Project", w, x.Dim(0)), t.plan
	t.record(func() {
		dy := t.grad(dst)
		if dw.Valid() {
			t.g.WeightGrad(dw, dy, x, plan)
		}
		t.g.ProjectGrad(t.into(x), dy, w)
	})
}

func (t *Tape) AddBias(dst, x, b tensor.Tensor) {
	if !t.writes("AddBias", dst) {
		return
	}
	t.inner.AddBias(dst, x, b)
	db, plan := t.vector("AddBias", b, x.Dim(0)), t.plan
	t.record(func() {
		dy := t.grad(dst)
		if db.Valid() {
			t.g.BiasGrad(db, dy, plan)
		}
		t.g.Accumulate(t.into(x), dy)
	})
}

func (t *Tape) Add(dst, a, b tensor.Tensor) {
	if !t.writes("Add", dst) {
		return
	}
	t.inner.Add(dst, a, b)
	t.record(func() {
		dy := t.grad(dst)
		t.g.Accumulate(t.into(a), dy)
		t.g.Accumulate(t.into(b), dy)
	})
}

func (t *Tape) RMSNorm(dst, x, w tensor.Tensor, eps float32) {
	if !t.writes("RMSNorm", dst) {
		return
	}
	t.inner.RMSNorm(dst, x, w, eps)
	dw, plan := t.vector("RMSNorm", w, x.Dim(0)), t.plan
	t.record(func() {
		dy := t.grad(dst)
		t.g.RMSNormGrad(t.into(x), dw, dy, x, w, eps, plan)
	})
}

func (t *Tape) LayerNorm(dst, x, w, b tensor.Tensor, eps float32) {
	if !t.writes("LayerNorm", dst) {
		return
	}
	t.inner.LayerNorm(dst, x, w, b, eps)
	dw, db, plan := t.vector("LayerNorm", w, x.Dim(0)), t.vector("LayerNorm", b, x.Dim(0)), t.plan
	t.record(func() {
		dy := t.grad(dst)
		t.g.LayerNormGrad(t.into(x), dw, db, dy, x, w, eps, plan)
	})
}

func (t *Tape) SwiGLU(dst, gate, up tensor.Tensor) {
	if !t.writes("SwiGLU", dst) {
		return
	}
	t.inner.SwiGLU(dst, gate, up)
	t.record(func() {
		dy := t.grad(dst)
		t.g.SwiGLUGrad(t.into(gate, up), t.into(up, gate), dy, gate, up)
	})
}

func (t *Tape) SigmoidMul(dst, x, gate tensor.Tensor) {
	if !t.writes("SigmoidMul", dst) {
		return
	}
	t.inner.SigmoidMul(dst, x, gate)
	t.record(func() { t.g.SigmoidMulGrad(t.grad(x), t.grad(gate), t.grad(dst), x, gate) })
}

func (t *Tape) Gather(dst, x, rows tensor.Tensor) {
	if !t.writes("Gather", dst) {
		return
	}
	t.inner.Gather(dst, x, rows)
	t.record(func() { t.g.GatherGrad(t.grad(x), t.grad(dst), rows) })
}

func (t *Tape) Copy(dst, src tensor.Tensor) {
	if dst.DType() != tensor.F32 {
		if t.Err() == nil {
			t.inner.Copy(dst, src)
		}
		return
	}
	if !t.writes("Copy", dst) {
		return
	}
	t.inner.Copy(dst, src)
	t.record(func() { t.g.Accumulate(t.grad(src), t.grad(dst)) })
}

func (t *Tape) Softmax(dst, x tensor.Tensor) {
	if !t.writes("Softmax", dst) {
		return
	}
	t.inner.Softmax(dst, x)
	t.record(func() { t.g.SoftmaxGrad(t.grad(x), t.grad(dst), dst) })
}

func (t *Tape) NormRoPE(dst, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	if !t.writes("NormRoPE", dst) {
		return
	}
	t.inner.NormRoPE(dst, x, w, eps, rope, p)
	dw := t.vector("NormRoPE", w, x.Dim(0))
	t.record(func() {
		dy := t.grad(dst)
		t.g.NormRoPEGrad(t.into(x), dw, dy, x, w, eps, rope, p)
	})
}

func (t *Tape) PutKV(p backend.Plan, layer int, k, v tensor.Tensor) {
	if t.Err() != nil {
		return
	}
	t.begin()
	if p != nil {
		for _, g := range p.Segs() {
			if len(g.KV) > 0 && g.KV[0].DType() != tensor.F32 {
				t.refuse("PutKV into pages of "+g.KV[0].DType().String(), "train with keys and values in F32")
				return
			}
		}
	}
	if _, twice := t.kv[layer]; twice {
		t.fail(fmt.Errorf("grad: keys and values of layer %d are stored twice in a pass", layer))
		return
	}
	t.inner.PutKV(p, layer, k, v)
	t.kv[layer] = [2]tensor.Tensor{k, v}
}

func (t *Tape) Attention(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if !t.writes("Attention", dst) {
		return
	}
	t.inner.Attention(dst, q, p, layer, scale, window)
	kv, ok := t.kv[layer]
	if !ok {
		t.fail(fmt.Errorf("grad: attention of layer %d without its PutKV in this pass", layer))
		return
	}
	k, v := kv[0], kv[1]
	t.record(func() {
		dy := t.grad(dst)
		t.g.AttentionGrad(t.into(q, k, v), t.into(k, q, v), t.into(v, q, k), dy, dst, q, k, v, p, scale, window)
	})
}

func (t *Tape) AttnWeights(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if t.Err() == nil {
		t.inner.AttnWeights(dst, q, p, layer, scale, window)
	}
}

func (t *Tape) AttnScores(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if t.Err() == nil {
		t.inner.AttnScores(dst, q, p, layer, scale, window)
	}
}

func (t *Tape) Moments(sum, square, w tensor.Tensor) {
	if t.Err() == nil {
		t.inner.Moments(sum, square, w)
	}
}

func (t *Tape) GetPage(dst, page tensor.Tensor) {
	if t.Err() == nil {
		t.inner.GetPage(dst, page)
	}
}

func (t *Tape) ArgMax(dst, x tensor.Tensor) {
	if t.Err() == nil {
		t.inner.ArgMax(dst, x)
	}
}

func (t *Tape) Conv(dst, x, w tensor.Tensor, p backend.Plan, layer int) {
	if !t.writes("Conv", dst) {
		return
	}
	t.inner.Conv(dst, x, w, p, layer)
	dw := t.vector("Conv", w, x.Dim(0))
	t.record(func() { t.g.ConvGrad(t.grad(x), dw, t.grad(dst), x, w, p, layer) })
}

func (t *Tape) L2Norm(dst, x tensor.Tensor, eps, scale float32) {
	if !t.writes("L2Norm", dst) {
		return
	}
	t.inner.L2Norm(dst, x, eps, scale)
	t.record(func() { t.g.L2NormGrad(t.grad(x), t.grad(dst), x, eps, scale) })
}

func (t *Tape) DeltaGates(g, beta, a, b, aExp, dtBias tensor.Tensor) {
	if !t.writes("DeltaGates", g) || !t.writes("DeltaGates", beta) {
		return
	}
	t.inner.DeltaGates(g, beta, a, b, aExp, dtBias)
	dA, dT, plan := t.vector("DeltaGates", aExp, a.Dim(0)), t.vector("DeltaGates", dtBias, a.Dim(0)), t.plan
	t.record(func() {
		t.g.DeltaGatesGrad(t.grad(a), t.grad(b), dA, dT, t.grad(g), t.grad(beta), g, beta, a, aExp, dtBias, plan)
	})
}

func (t *Tape) GatedDelta(dst, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if !t.writes("GatedDelta", dst) {
		return
	}
	t.inner.GatedDelta(dst, q, k, v, g, beta, p, layer)
	t.record(func() {
		t.g.GatedDeltaGrad(t.grad(q), t.grad(k), t.grad(v), t.grad(g), t.grad(beta), t.grad(dst), q, k, v, g, beta, p, layer)
	})
}

func (t *Tape) GatedRMSNorm(dst, x, z, w tensor.Tensor, eps float32) {
	if !t.writes("GatedRMSNorm", dst) {
		return
	}
	t.inner.GatedRMSNorm(dst, x, z, w, eps)
	dw, plan := t.vector("GatedRMSNorm", w, x.Dim(0)), t.plan
	t.record(func() { t.g.GatedRMSNormGrad(t.grad(x), t.grad(z), dw, t.grad(dst), x, z, w, eps, plan) })
}

func (t *Tape) AttentionWeights(_, _, _ tensor.Tensor, _ backend.Plan, _, _ int, _ float32, _ int) {
	t.refuse("AttentionWeights", "use Attention over all rows")
}

func (t *Tape) LinearRows(_, _ tensor.Tensor, _ backend.Weight, _ tensor.Tensor) {
	t.refuse("LinearRows", "use Linear")
}

func (t *Tape) SumRows(backend.Plan, tensor.Tensor) {
	t.refuse("SumRows", "train a decoder without a tap")
}

func (t *Tape) PutPage(_, _ tensor.Tensor) {
	t.refuse("PutPage", "run whole sequences instead of restoring them")
}

func (t *Tape) Route(_, _, _ tensor.Tensor, _ int, _ bool) {
	t.refuse("Route", "train a model without experts")
}

func (t *Tape) Experts(_, _, _, _ tensor.Tensor, _, _, _ []backend.Weight) {
	t.refuse("Experts", "train a model without experts")
}

func (t *Tape) AddGated(_, _, _, _ tensor.Tensor) {
	t.refuse("AddGated", "train a model without experts")
}
