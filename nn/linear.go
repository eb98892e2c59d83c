package nn

import (
	"samebit/backend"
	"samebit/tensor"
)

// linear is a product with an optional bias.
func (c *Ctx) linear(dst, x tensor.Tensor, w backend.Weight, b tensor.Tensor) {
	if !b.Valid() {
		c.Stream.Linear(dst, x, w)
		return
	}
	y := dst
	if c.Keep {
		y = c.Tmp(dst.Dim(0), dst.Dim(1))
	}
	c.Stream.Linear(y, x, w)
	c.Stream.AddBias(dst, y, b)
}

// product is dst = x·wᵀ + b, without b if that is invalid.
type product struct {
	dst tensor.Tensor
	w   backend.Weight
	b   tensor.Tensor
}

// linears is linear for products of the same rows, which some streams compute
// together.
func (c *Ctx) linears(x tensor.Tensor, l ...product) {
	s, ok := c.Stream.(backend.Products)
	if !ok || c.Keep {
		for i := range l {
			c.linear(l[i].dst, x, l[i].w, l[i].b)
		}
		return
	}
	c.outs, c.weights = c.outs[:0], c.weights[:0]
	for i := range l {
		c.outs, c.weights = append(c.outs, l[i].dst), append(c.weights, l[i].w)
	}
	s.Linears(c.outs, x, c.weights)
	for i := range l {
		if l[i].b.Valid() {
			c.Stream.AddBias(l[i].dst, l[i].dst, l[i].b)
		}
	}
}
