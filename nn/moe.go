package nn

import (
	"samebit/backend"
	"samebit/tensor"
)

// MoE is a sparse mixture of experts with a shared expert: the router's best K
// experts of each row, weighted, plus sigmoid(gate)·shared.
type MoE struct {
	K              int
	Renormalise    bool
	Router         backend.Weight // [E, H]
	Gate, Up, Down []backend.Weight
	Shared         *SwiGLU
	SharedGate     backend.Weight // [1, H]
}

func (f *MoE) Apply(c *Ctx, dst, x tensor.Tensor) {
	s, rows := c.Stream, x.Dim(0)
	logits, weights := c.Tmp(rows, f.Router.Out()), c.Tmp(rows, f.K)
	experts := c.arena.get(tensor.I32, rows, f.K)
	y, shared, gate := c.Tmp(rows, x.Dim(1)), c.Tmp(rows, x.Dim(1)), c.Tmp(rows, 1)
	c.Linears(x, Product{Dst: logits, W: f.Router}, Product{Dst: gate, W: f.SharedGate})
	s.Route(experts, weights, logits, f.K, f.Renormalise)
	s.Experts(y, x, experts, weights, f.Gate, f.Up, f.Down)
	f.Shared.Apply(c, shared, x)
	s.AddGated(dst, y, shared, gate)
}
