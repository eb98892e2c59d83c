package nn

import (
	"samebit/backend"
	"samebit/tensor"
)

// GatedDelta is a Gated DeltaNet layer: a causal convolution, the gated delta
// rule on a state per value head, a gated norm.
type GatedDelta struct {
	Layer                int // ordinal among the delta layers
	KeyHeads, ValueHeads int
	DK, DV               int
	QKV, Z, B, A, Out    backend.Weight // QKV gives q | k | v
	Conv                 tensor.Tensor  // [taps, 2·KeyHeads·DK + ValueHeads·DV]
	AExp, DTBias         tensor.Tensor  // [ValueHeads], AExp = exp(A_log)
	Norm                 tensor.Tensor  // [DV]
	Eps                  float32        // of the norm
	QScale               float32        // 1/√DK
	Tiled                bool           // value head i uses key head i mod KeyHeads instead of i/(ValueHeads/KeyHeads)
}

// l2Eps is the model family's constant under the root of the q and k norms.
const l2Eps = 1e-6

func (g *GatedDelta) Mix(c *Ctx, dst, x tensor.Tensor) {
	s, rows := c.Stream, x.Dim(0)
	kd, vd := g.KeyHeads*g.DK, g.ValueHeads*g.DV
	u, qkv, z := c.Tmp(rows, 2*kd+vd), c.Tmp(rows, 2*kd+vd), c.Tmp(rows, vd)
	b, a := c.Tmp(rows, g.ValueHeads), c.Tmp(rows, g.ValueHeads)
	c.Linears(x, Product{Dst: u, W: g.QKV}, Product{Dst: z, W: g.Z}, Product{Dst: b, W: g.B}, Product{Dst: a, W: g.A})
	s.Conv(qkv, u, g.Conv, c.Plan, g.Layer)

	q, k := c.Tmp(rows, kd), c.Tmp(rows, kd)
	s.L2Norm(q.Heads(g.KeyHeads, g.DK), qkv.Cols(0, kd).Heads(g.KeyHeads, g.DK), l2Eps, g.QScale)
	s.L2Norm(k.Heads(g.KeyHeads, g.DK), qkv.Cols(kd, 2*kd).Heads(g.KeyHeads, g.DK), l2Eps, 1)
	heads := g.KeyHeads
	if g.Tiled && heads != g.ValueHeads {
		q, k = g.tile(c, q), g.tile(c, k)
		heads = g.ValueHeads
	}
	decay, beta := c.Tmp(rows, g.ValueHeads), c.Tmp(rows, g.ValueHeads)
	s.DeltaGates(decay, beta, a, b, g.AExp, g.DTBias)

	o, n := c.Tmp(rows, vd), c.Tmp(rows, vd)
	s.GatedDelta(o.Heads(g.ValueHeads, g.DV), q.Heads(heads, g.DK), k.Heads(heads, g.DK), qkv.Cols(2*kd, 2*kd+vd).Heads(g.ValueHeads, g.DV),
		decay, beta, c.Plan, g.Layer)
	s.GatedRMSNorm(n.Heads(g.ValueHeads, g.DV), o.Heads(g.ValueHeads, g.DV), z.Heads(g.ValueHeads, g.DV), g.Norm, g.Eps)
	s.Linear(dst, n, g.Out)
}

// tile repeats all key heads until every value head has its own.
func (g *GatedDelta) tile(c *Ctx, x tensor.Tensor) tensor.Tensor {
	w := x.Dim(1)
	t := c.Tmp(x.Dim(0), g.ValueHeads*g.DK)
	for i := 0; i < t.Dim(1); i += w {
		c.Stream.Copy(t.Cols(i, i+w), x)
	}
	return t
}
