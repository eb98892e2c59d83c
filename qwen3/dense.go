package qwen3

import (
	"samebit/backend"
	"samebit/internal/canon"
	"samebit/nn"
	"samebit/tensor"
)

// attention loads a full or sliding attention layer. ordinal counts the
// attention layers.
func (l *loader) attention(layer, ordinal int, rope *backend.RoPE) nn.Mixer {
	c := l.cfg
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	a := &nn.Attention{Layer: ordinal, Heads: c.Heads, KV: c.KVHeads, Dim: c.HeadDim, Eps: float32(c.Eps), RoPE: rope,
		Scale: canon.InvSqrt(c.HeadDim), Gated: c.OutputGate}
	if c.LayerType[layer] == SlidingAttention {
		a.Window = c.Window
	}
	if c.OutputGate {
		q *= 2
	}
	a.Q = l.rotary(qProj, layer, q, c.Heads)
	a.K = l.rotary(kProj, layer, kv, c.KVHeads)
	a.V = l.matrix(l.name(vProj, layer), kv, c.Hidden, backend.UseLinear)
	a.O = l.matrix(l.name(oProj, layer), c.Hidden, c.Heads*c.HeadDim, backend.UseLinear)
	if c.QKVBias {
		a.BQ, a.BK, a.BV = l.rotaryBias(qBias, layer, q, c.Heads), l.rotaryBias(kBias, layer, kv, c.KVHeads), l.vector(vBias, layer, kv)
	}
	if c.OBias {
		a.BO = l.vector(oBias, layer, c.Hidden)
	}
	if c.QKNorm {
		a.QNorm, a.KNorm = l.norm(qNorm, layer, c.HeadDim), l.norm(kNorm, layer, c.HeadDim)
	}
	return a
}

// ffn loads a SwiGLU.
func (l *loader) ffn(layer int) nn.FFN {
	c := l.cfg
	f := &nn.SwiGLU{
		Gate: l.matrix(l.name(gateProj, layer), c.Intermediate, c.Hidden, backend.UseLinear),
		Up:   l.matrix(l.name(upProj, layer), c.Intermediate, c.Hidden, backend.UseLinear),
		Down: l.matrix(l.name(downProj, layer), c.Hidden, c.Intermediate, backend.UseLinear),
	}
	if c.MLPBias {
		f.BGate, f.BUp, f.BDown = l.vector(gateBias, layer, c.Intermediate), l.vector(upBias, layer, c.Intermediate), l.vector(downBias, layer, c.Hidden)
	}
	return f
}

// rotary loads a query or key projection. Llama files in GGUF interleave the
// two halves of each head's rotation; they are put back in half-split order.
func (l *loader) rotary(p part, layer, out, heads int) backend.Weight {
	return l.ordered(l.name(p, layer), out, l.cfg.Hidden, backend.UseLinear, l.interleaved(out, heads))
}

func (l *loader) rotaryBias(p part, layer, n, heads int) tensor.Tensor {
	v := l.floats(l.name(p, layer), n)
	if order := l.interleaved(n, heads); order != nil && v != nil {
		u := make([]float32, n)
		for i, r := range order() {
			u[i] = v[r]
		}
		v = u
	}
	return l.upload(v, n)
}

// interleaved gives the file row of each row, nil if they are in order.
func (l *loader) interleaved(out, heads int) func() []int {
	if !l.gguf || l.cfg.ModelType != "llama" {
		return nil
	}
	return func() []int {
		rows := make([]int, out)
		d := out / heads
		for i := range rows {
			h, j := i/d, i%d
			rows[i] = h*d + 2*(j%(d/2)) + j/(d/2)
		}
		return rows
	}
}
