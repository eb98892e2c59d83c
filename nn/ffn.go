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
	linear(s, g, x, f.Gate, f.BGate)
	linear(s, u, x, f.Up, f.BUp)
	s.SwiGLU(g, g, u)
	linear(s, dst, g, f.Down, f.BDown)
}
