package qwen3

import (
	"fmt"

	"samebit/backend"
	"samebit/nn"
	"samebit/tensor"
)

// Param is a tensor of a checkpoint that can be trained, and where a decoder loaded
// from it reads its values. Of Weight and Tensor one is set.
type Param struct {
	Name  string // as in a safetensors file
	Shape []int  // there

	Weight backend.Weight // values [Shape...]
	Tensor tensor.Tensor  // values as Stored says

	Stored Stored
}

// Stored says how a Tensor's values come from those of the file.
type Stored uint8

const (
	AsIs       Stored = iota
	LessOne           // the tensor is 1 + what the file has
	Logarithm         // the tensor is exp of what the file has
	Transposed        // [C, 1, taps] in the file, [taps, C] in the tensor
)

// Params lists the tensors of a checkpoint in the order of the model. With a decoder
// that Load made of it the places of the values are filled in; nil gives names and
// shapes for a new model. It fails for mixtures of experts and grouped projections.
func (c *Config) Params(d *nn.Decoder) ([]Param, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.PackedProjections {
		return nil, fmt.Errorf("qwen3: parameters of a model with grouped projections: use the form of %q", "qwen3_5_text")
	}
	if d != nil && len(d.Blocks) != c.Layers {
		return nil, fmt.Errorf("qwen3: a decoder of %d blocks, the config has %d layers", len(d.Blocks), c.Layers)
	}
	if d == nil {
		d = &nn.Decoder{Blocks: make([]nn.Block, c.Layers)}
	}
	p := &params{c: c}
	p.weight(embedTokens, d.Embed, c.Vocab, c.Hidden)
	for i := range c.Layers {
		if c.moe(i) {
			return nil, fmt.Errorf("qwen3: parameters of layer %d: mixtures of experts cannot be trained", i)
		}
		p.layer = i
		b := d.Blocks[i]
		p.norm(norm1, b.Norm1, c.Hidden)
		if c.LayerType[i] == LinearAttention {
			m, _ := b.Mix.(*nn.GatedDelta)
			p.delta(m)
		} else {
			m, _ := b.Mix.(*nn.Attention)
			p.attention(m)
		}
		p.norm(norm2, b.Norm2, c.Hidden)
		f, _ := b.FFN.(*nn.SwiGLU)
		p.ffn(f)
	}
	p.norm(finalNorm, d.Norm, c.Hidden)
	if !c.Tied {
		p.weight(lmHead, d.Head, c.Vocab, c.Hidden)
	}
	return p.list, nil
}

type params struct {
	c     *Config
	layer int
	list  []Param
}

func (p *params) add(at part, x Param) {
	x.Name = names[at].hf
	if at > lmHead {
		x.Name = fmt.Sprintf(x.Name, p.layer)
	}
	p.list = append(p.list, x)
}

func (p *params) weight(at part, w backend.Weight, out, in int) {
	p.add(at, Param{Shape: []int{out, in}, Weight: w})
}

func (p *params) vector(at part, t tensor.Tensor, n int) {
	p.add(at, Param{Shape: []int{n}, Tensor: t})
}

func (p *params) norm(at part, t tensor.Tensor, n int) {
	x := Param{Shape: []int{n}, Tensor: t}
	if p.c.ZeroCentred {
		x.Stored = LessOne
	}
	p.add(at, x)
}

func (p *params) attention(a *nn.Attention) {
	if a == nil {
		a = &nn.Attention{}
	}
	c := p.c
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	out := q
	if c.OutputGate {
		q *= 2
	}
	p.weight(qProj, a.Q, q, c.Hidden)
	p.weight(kProj, a.K, kv, c.Hidden)
	p.weight(vProj, a.V, kv, c.Hidden)
	p.weight(oProj, a.O, c.Hidden, out)
	if c.QKVBias {
		p.vector(qBias, a.BQ, q)
		p.vector(kBias, a.BK, kv)
		p.vector(vBias, a.BV, kv)
	}
	if c.OBias {
		p.vector(oBias, a.BO, c.Hidden)
	}
	if c.QKNorm {
		p.norm(qNorm, a.QNorm, c.HeadDim)
		p.norm(kNorm, a.KNorm, c.HeadDim)
	}
}

func (p *params) ffn(f *nn.SwiGLU) {
	if f == nil {
		f = &nn.SwiGLU{}
	}
	c := p.c
	p.weight(gateProj, f.Gate, c.Intermediate, c.Hidden)
	p.weight(upProj, f.Up, c.Intermediate, c.Hidden)
	p.weight(downProj, f.Down, c.Hidden, c.Intermediate)
	if c.MLPBias {
		p.vector(gateBias, f.BGate, c.Intermediate)
		p.vector(upBias, f.BUp, c.Intermediate)
		p.vector(downBias, f.BDown, c.Hidden)
	}
}

func (p *params) delta(g *nn.GatedDelta) {
	if g == nil {
		g = &nn.GatedDelta{}
	}
	c := p.c
	vd := c.ValueHeads * c.ValueDim
	p.weight(deltaQKV, g.QKV, c.channels(), c.Hidden)
	p.weight(deltaZ, g.Z, vd, c.Hidden)
	p.weight(deltaB, g.B, c.ValueHeads, c.Hidden)
	p.weight(deltaA, g.A, c.ValueHeads, c.Hidden)
	p.add(deltaConv, Param{Shape: []int{c.channels(), 1, c.ConvKernel}, Tensor: g.Conv, Stored: Transposed})
	p.vector(deltaDT, g.DTBias, c.ValueHeads)
	p.add(deltaALog, Param{Shape: []int{c.ValueHeads}, Tensor: g.AExp, Stored: Logarithm})
	p.vector(deltaNorm, g.Norm, c.ValueDim)
	p.weight(deltaOut, g.Out, c.Hidden, vd)
}
