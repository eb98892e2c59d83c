package nn

import (
	"samebit/backend"
	"samebit/tensor"
)

// Attention is grouped-query attention over the sequence's keys and values.
type Attention struct {
	Layer          int // ordinal among the attention layers
	Heads, KV, Dim int
	Q, K, V, O     backend.Weight // Q has twice the outputs when Gated
	BQ, BK, BV, BO tensor.Tensor  // biases, invalid for none
	QNorm, KNorm   tensor.Tensor  // [Dim], invalid for none
	Eps            float32
	RoPE           *backend.RoPE
	Scale          float32 // of the scores, 1/√Dim
	Window         int     // positions visible, 0 for all
	Gated          bool    // Q carries query | gate per head; the output is multiplied by sigmoid(gate)
}

func (a *Attention) Mix(c *Ctx, dst, x tensor.Tensor) {
	s, rows := c.Stream, x.Dim(0)
	width := a.Heads * a.Dim
	qw := width
	if a.Gated {
		qw *= 2
	}
	q, k, v := c.Tmp(rows, qw), c.Tmp(rows, a.KV*a.Dim), c.Tmp(rows, a.KV*a.Dim)
	c.Linears(x, Product{q, a.Q, a.BQ}, Product{k, a.K, a.BK}, Product{v, a.V, a.BV})

	query := q.Heads(a.Heads, qw/a.Heads)
	gate := query.Cols(qw/a.Heads-a.Dim, qw/a.Heads)
	query = query.Cols(0, a.Dim)
	rq, rk := c.Tmp(rows, width).Heads(a.Heads, a.Dim), c.Tmp(rows, a.KV*a.Dim).Heads(a.KV, a.Dim)
	s.NormRoPE(rq, query, a.QNorm, a.Eps, a.RoPE, c.Plan)
	s.NormRoPE(rk, k.Heads(a.KV, a.Dim), a.KNorm, a.Eps, a.RoPE, c.Plan)
	s.PutKV(c.Plan, a.Layer, rk, v.Heads(a.KV, a.Dim))

	out := c.Tmp(rows, width)
	if c.Weights == nil || a.Window > 0 {
		s.Attention(out.Heads(a.Heads, a.Dim), rq, c.Plan, a.Layer, a.Scale, a.Window)
	} else {
		a.weights(c, out, rq)
	}
	if c.Probe != nil {
		c.Probe(c, a.Layer, rq, a.Scale)
	}
	if a.Gated {
		g := c.Tmp(rows, width)
		s.SigmoidMul(g.Heads(a.Heads, a.Dim), out.Heads(a.Heads, a.Dim), gate)
		out = g
	}
	c.Linears(out, Product{dst, a.O, a.BO})
}

// Weights are shown in blocks of at most so many bytes, or of so many rows if they
// need more.
const (
	weightBytes = 1 << 20
	weightRows  = 8
)

// weights is attention that also shows the weights.
func (a *Attention) weights(c *Ctx, out, q tensor.Tensor) {
	slots, rows := 0, q.Dim(0)
	for _, g := range c.Plan.Segs() {
		slots = max(slots, g.Slot+g.Rows)
	}
	out = out.Heads(a.Heads, a.Dim)
	block := max(weightRows, weightBytes/(4*a.Heads*slots))
	for at := 0; at < rows; at += block {
		m := c.Mark()
		to := min(at+block, rows)
		w := c.Tmp(to-at, a.Heads*slots).Heads(a.Heads, slots)
		c.Stream.AttentionWeights(out.Rows(at, to), w, q.Rows(at, to), c.Plan, at, a.Layer, a.Scale, 0)
		c.Weights(c, a.Layer, at, w)
		c.Release(m)
	}
}
