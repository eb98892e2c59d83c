package nn

import (
	"samebit/backend"
	"samebit/tensor"
)

// SwiGLU is down(silu(gate x)·up x), with optional biases.
type SwiGLU struct {
	Gate, Up, Down    backend.Weight
	BGate, BUp, BDown tensor.Tensor
}

func (f *SwiGLU) Apply(c *Ctx, dst, x tensor.Tensor) {
	s, rows := c.Stream, x.Dim(0)
	g, u := c.Tmp(rows, f.Gate.Out()), c.Tmp(rows, f.Up.Out())
	c.Linears(x, Product{g, f.Gate, f.BGate}, Product{u, f.Up, f.BUp})
	h := c.over(g)
	s.SwiGLU(h, g, u)
	c.Linears(h, Product{dst, f.Down, f.BDown})
}
