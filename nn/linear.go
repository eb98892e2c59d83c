package nn

import (
	"samebit/backend"
	"samebit/tensor"
)

// Product is Dst = x·Wᵀ + B of some rows x, without B if that is invalid.
type Product struct {
	Dst tensor.Tensor
	W   backend.Weight
	B   tensor.Tensor
}

// Linears computes products of the same rows, together where the stream can. No Dst
// overlaps another.
func (c *Ctx) Linears(x tensor.Tensor, l ...Product) {
	c.outs, c.weights = c.outs[:0], c.weights[:0]
	for i := range l {
		y := l[i].Dst
		if l[i].B.Valid() {
			y = c.over(y)
		}
		c.outs, c.weights = append(c.outs, y), append(c.weights, l[i].W)
	}
	backend.Linears(c.Stream, c.outs, x, c.weights)
	for i := range l {
		if l[i].B.Valid() {
			c.Stream.AddBias(l[i].Dst, c.outs[i], l[i].B)
		}
	}
}
