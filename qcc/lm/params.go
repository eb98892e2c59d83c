package lm

import (
	"fmt"

	"samebit/internal/canon"
	"samebit/qcc"
)

// NewParams draws the parameters that a model begins with: embeddings from a normal
// distribution, linear maps and biases evenly within 1/√inputs, norms of ones. The
// same seed gives the same bits everywhere.
func NewParams(c Config, seed uint64) (*Params, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	f, w := c.Layer, c.Layer.Hidden
	p := &Params{Embed: make([]float32, c.Vocab*w), NormW: ones(w), NormB: make([]float32, w)}
	qcc.Normal(p.Embed, seed, "embed", 1)
	if c.Position == Learned {
		p.Positions = make([]float32, c.MaxPosition*w)
		qcc.Normal(p.Positions, seed, "positions", 1)
	}
	kv := f.KV
	if kv == 0 {
		kv = f.Heads
	}
	for i := range c.Layers {
		even := func(name string, n, in int) []float32 {
			v := make([]float32, n)
			qcc.Uniform(v, seed, fmt.Sprintf("layer %d %s", i, name), canon.InvSqrt(in))
			return v
		}
		q, err := qcc.NewParams(f, seed+uint64(i)*0x9e3779b97f4a7c15)
		if err != nil {
			return nil, err
		}
		h, k := f.Heads*f.Dim, kv*f.Dim
		p.Layers = append(p.Layers, LayerParams{
			Projections: qcc.Projections{
				Q: even("q", h*w, w), BQ: even("bq", h, w), K: even("k", k*w, w), BK: even("bk", k, w),
				V: even("v", k*w, w), BV: even("bv", k, w), O: even("o", w*h, h), BO: even("bo", w, h),
			},
			Params: q,
			Norm1W: ones(w), Norm1B: make([]float32, w), Norm2W: ones(w), Norm2B: make([]float32, w),
			W1: even("w1", 4*w*w, w), B1: even("b1", 4*w, w), W2: even("w2", 4*w*w, 4*w), B2: even("b2", w, 4*w),
		})
	}
	return p, nil
}

func ones(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = 1
	}
	return v
}
