package grad

import (
	"fmt"
	"iter"
	"math"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

// of is the value that ops read.
func (f Form) of(v float32) float32 {
	switch f {
	case OnePlus:
		return 1 + v
	case Exp:
		return canon.Exp(v)
	}
	return v
}

// AdamWConfig are the constants of AdamW. The zero value takes the usual ones; Clip
// 0 means no clipping.
type AdamWConfig struct {
	Beta1, Beta2 float64 // 0 means 0.9 and 0.999
	Eps          float64 // 0 means 1e-8
	Decay        float64 // weight decay, for parameters that allow it
	Clip         float64 // largest norm of the gradient
}

// AdamW is the optimiser: numerics.md 10.
type AdamW struct {
	Steps int // made so far

	p        *Params
	c        AdamWConfig
	p1, p2   float64 // β^Steps
	sum      tensor.Tensor
	powersOf int
}

// NewAdamW returns an optimiser that has made no steps.
func NewAdamW(p *Params, c AdamWConfig) (*AdamW, error) {
	set := func(v *float64, usual float64) {
		if *v == 0 {
			*v = usual
		}
	}
	set(&c.Beta1, 0.9)
	set(&c.Beta2, 0.999)
	set(&c.Eps, 1e-8)
	if !(c.Beta1 >= 0 && c.Beta1 < 1 && c.Beta2 >= 0 && c.Beta2 < 1 && c.Eps > 0 && c.Decay >= 0 && c.Clip >= 0) {
		return nil, fmt.Errorf("grad: AdamW with %+v: want betas in [0, 1), eps above 0, decay and clip not below", c)
	}
	o := &AdamW{p: p, c: c, p1: 1, p2: 1}
	if err := p.alloc(&o.sum, 1); err != nil {
		return nil, err
	}
	return o, nil
}

// Step finishes the gradients of a batch, makes a step of a learning rate and leaves
// gradients of +0. It returns the norm of the gradient before clipping. A norm that
// is no finite number is an error, and nothing changes but the gradients.
func (o *AdamW) Step(rate float64) (norm float32, err error) {
	if err := o.p.Finish(); err != nil {
		return 0, err
	}
	if norm, err = o.norm(); err != nil {
		return norm, err
	}
	if norm-norm != 0 {
		if err := o.p.Zero(); err != nil {
			return norm, err
		}
		return norm, fmt.Errorf("grad: the gradient of step %d has norm %v: lower the learning rate or look for NaN in the batch", o.Steps+1, norm)
	}
	s := o.scalars(rate, norm)
	for _, x := range o.p.list {
		c := s
		if x.NoDecay {
			c.Decay = 1
		}
		o.p.g.AdamW(x.Value, x.M, x.V, x.Grad, c)
	}
	if err := o.p.Refresh(); err != nil {
		return norm, err
	}
	return norm, o.p.Zero()
}

// norm is the root of the chain of adds, in order of name, of RSUM(g²).
func (o *AdamW) norm() (float32, error) {
	var total float32
	for _, x := range o.p.list {
		o.p.g.SumSquares(o.sum, x.Grad)
		v, err := o.p.read(o.sum)
		if err != nil {
			return 0, err
		}
		total += v[0]
	}
	return canon.Sqrt(total), nil
}

// scalars counts a step and forms its factors.
func (o *AdamW) scalars(rate float64, norm float32) backend.AdamWStep {
	for o.powersOf > o.Steps { // Steps was set back
		o.powersOf, o.p1, o.p2 = 0, 1, 1
	}
	o.Steps++
	for ; o.powersOf < o.Steps; o.powersOf++ {
		o.p1 = float64(o.p1 * o.c.Beta1)
		o.p2 = float64(o.p2 * o.c.Beta2)
	}
	s := backend.AdamWStep{
		Beta1: float32(o.c.Beta1), Rest1: float32(1 - o.c.Beta1),
		Beta2: float32(o.c.Beta2), Rest2: float32(1 - o.c.Beta2),
		Scale2: float32(1 / (1 - o.p2)),
		Rate:   float32(rate / (1 - o.p1)),
		Decay:  float32(1 - float64(rate*o.c.Decay)),
		Eps:    float32(o.c.Eps),
		Clip:   1,
	}
	if limit := float32(o.c.Clip); limit > 0 {
		s.Clip = min(1, limit/(norm+1e-6))
	}
	return s
}

// Tensors are all that a training is made of besides Steps: values and moments by
// name, "x", "x.m" and "x.v" of every parameter x. Write them and Steps, then call
// Params.Refresh, to go on from where they were read, with the same bits.
func (o *AdamW) Tensors() iter.Seq2[string, tensor.Tensor] {
	return func(yield func(string, tensor.Tensor) bool) {
		for _, x := range o.p.list {
			if !yield(x.Name, x.Value) || !yield(x.Name+".m", x.M) || !yield(x.Name+".v", x.V) {
				return
			}
		}
	}
}

// Schedule is a learning rate that rises linearly to Peak over Warmup steps and falls
// along a half cosine to Floor·Peak at step Total.
type Schedule struct {
	Peak          float64
	Warmup, Total int
	Floor         float64 // fraction of Peak
}

// At is the rate of step n, counted from 1: a float32, the same everywhere.
func (s Schedule) At(n int) float64 {
	if n <= s.Warmup {
		return float64(float32(s.Peak * float64(n) / float64(s.Warmup)))
	}
	if n >= s.Total {
		return float64(float32(s.Peak * s.Floor))
	}
	part := float64(n-s.Warmup) / float64(s.Total-s.Warmup)
	_, cos := canon.SinCos(float32(math.Pi * part))
	half := float64(float64(1+cos) / 2)
	return float64(float32(s.Peak * (s.Floor + float64((1-s.Floor)*half))))
}
