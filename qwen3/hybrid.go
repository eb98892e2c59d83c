package qwen3

import (
	"fmt"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/nn"
)

// channels is the width of the causal convolution: q, k and v of all heads.
func (c *Config) channels() int { return 2*c.KeyHeads*c.KeyHeadDim + c.ValueHeads*c.ValueDim }

// delta loads a Gated DeltaNet layer. ordinal counts these layers.
func (l *loader) delta(layer, ordinal int) nn.Mixer {
	c := l.cfg
	kd, vd := c.KeyHeads*c.KeyHeadDim, c.ValueHeads*c.ValueDim
	g := &nn.GatedDelta{Layer: ordinal, KeyHeads: c.KeyHeads, ValueHeads: c.ValueHeads, DK: c.KeyHeadDim, DV: c.ValueDim,
		Eps: float32(c.Eps), QScale: canon.InvSqrt(c.KeyHeadDim),
		Tiled: l.gguf && c.ModelType == "qwen3_5_text"} // that format tiles the value heads over the key heads
	const use = backend.UseLinear
	if c.PackedProjections {
		r := c.ValueHeads / c.KeyHeads
		dk, dv := c.KeyHeadDim, r*c.ValueDim
		if l.gguf {
			g.QKV, g.Z = l.matrix(l.name(deltaQKV, layer), 2*kd+vd, c.Hidden, use), l.matrix(l.name(deltaZ, layer), vd, c.Hidden, use)
		} else {
			qkvz := l.name(deltaQKVZ, layer) // of each key head q | k | v | z
			g.QKV = l.ordered(qkvz, 2*kd+2*vd, c.Hidden, use, c.grouped(2*dk+2*dv, [2]int{0, dk}, [2]int{dk, dk}, [2]int{2 * dk, dv}))
			g.Z = l.ordered(qkvz, 2*kd+2*vd, c.Hidden, use, c.grouped(2*dk+2*dv, [2]int{2*dk + dv, dv}))
		}
		ba := l.name(deltaBA, layer) // of each key head b | a
		g.B = l.ordered(ba, 2*c.ValueHeads, c.Hidden, use, c.grouped(2*r, [2]int{0, r}))
		g.A = l.ordered(ba, 2*c.ValueHeads, c.Hidden, use, c.grouped(2*r, [2]int{r, r}))
	} else {
		g.QKV = l.matrix(l.name(deltaQKV, layer), 2*kd+vd, c.Hidden, use)
		g.Z = l.matrix(l.name(deltaZ, layer), vd, c.Hidden, use)
		g.B = l.matrix(l.name(deltaB, layer), c.ValueHeads, c.Hidden, use)
		g.A = l.matrix(l.name(deltaA, layer), c.ValueHeads, c.Hidden, use)
	}
	conv := []int{c.channels(), 1, c.ConvKernel}
	if l.gguf {
		conv = []int{c.channels(), c.ConvKernel}
	}
	g.Conv = l.upload(transpose(l.floats(l.name(deltaConv, layer), conv...), c.channels()), c.ConvKernel, c.channels())
	g.DTBias = l.vector(deltaDT, layer, c.ValueHeads)
	a := l.floats(l.name(deltaALog, layer), c.ValueHeads)
	for i := range a {
		if l.gguf {
			a[i] = -a[i] // the file holds -exp(A_log)
		} else {
			a[i] = canon.Exp(a[i])
		}
	}
	g.AExp = l.upload(a, c.ValueHeads)
	g.Norm = l.vector(deltaNorm, layer, c.ValueDim) // not zero-centred
	g.Out = l.matrix(l.name(deltaOut, layer), c.Hidden, vd, use)
	return g
}

// transpose turns [n, m] into [m, n].
func transpose(v []float32, n int) []float32 {
	if v == nil {
		return nil
	}
	m := len(v) / n
	t := make([]float32, len(v))
	for i := range n {
		for j := range m {
			t[j*n+i] = v[i*m+j]
		}
	}
	return t
}

// grouped gives the file rows of parts {offset, rows} of a projection that
// Qwen3-Next groups by key head, size rows each: the first part of all key heads,
// then the next.
func (c *Config) grouped(size int, parts ...[2]int) func() []int {
	return func() (rows []int) {
		for _, p := range parts {
			for h := range c.KeyHeads {
				for i := range p[1] {
					rows = append(rows, h*size+p[0]+i)
				}
			}
		}
		return rows
	}
}

// moe loads a mixture of experts with its shared expert.
func (l *loader) moe(layer int) nn.FFN {
	c := l.cfg
	const use = backend.UseLinear
	f := &nn.MoE{K: c.ExpertsPerToken, Renormalise: c.NormTopK,
		Router:     l.matrix(l.name(router, layer), c.Experts, c.Hidden, use),
		SharedGate: l.sharedGate(layer),
		Shared: &nn.SwiGLU{
			Gate: l.matrix(l.name(sharedGateProj, layer), c.SharedFFN, c.Hidden, use),
			Up:   l.matrix(l.name(sharedUpProj, layer), c.SharedFFN, c.Hidden, use),
			Down: l.matrix(l.name(sharedDownProj, layer), c.Hidden, c.SharedFFN, use),
		}}
	f.Gate = l.experts(layer, "gate", c.ExpertFFN, c.Hidden)
	f.Up = l.experts(layer, "up", c.ExpertFFN, c.Hidden)
	f.Down = l.experts(layer, "down", c.Hidden, c.ExpertFFN)
	return f
}

// sharedGate is a row vector, stored with one or two axes.
func (l *loader) sharedGate(layer int) backend.Weight {
	n := l.name(sharedGate, layer)
	if i, ok := l.set.Info(n); ok && len(i.Shape) == 1 {
		v := l.floats(n, l.cfg.Hidden)
		if v == nil {
			return nil
		}
		return l.packFloats(n, v, 1, l.cfg.Hidden)
	}
	return l.matrix(n, 1, l.cfg.Hidden, backend.UseLinear)
}

// experts loads one matrix of every expert: single tensors, or stacked ones (GGUF,
// and the fused form of newer safetensors files).
func (l *loader) experts(layer int, which string, out, in int) []backend.Weight {
	c := l.cfg
	list := make([]backend.Weight, 0, c.Experts)
	prefix := "model."
	if l.wrapped {
		prefix = wrapped
	}
	stacked, first, rows := fmt.Sprintf("blk.%d.ffn_%s_exps.weight", layer, which), 0, out
	if !l.gguf {
		stacked = fmt.Sprintf("%slayers.%d.mlp.experts.down_proj", prefix, layer)
		if which != "down" {
			stacked, rows = fmt.Sprintf("%slayers.%d.mlp.experts.gate_up_proj", prefix, layer), 2*out
			if which == "up" {
				first = out
			}
		}
	}
	if _, ok := l.set.Info(stacked); ok || l.gguf {
		return l.stacked(list, stacked, rows, first, out, in)
	}
	for e := range c.Experts {
		w := l.matrix(fmt.Sprintf("%slayers.%d.mlp.experts.%d.%s_proj.weight", prefix, layer, e, which), out, in, backend.UseLinear)
		if w == nil {
			return nil
		}
		list = append(list, w)
	}
	return list
}
