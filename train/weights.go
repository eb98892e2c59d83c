package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"samebit/backend"
	"samebit/checkpoint"
	"samebit/grad"
	"samebit/internal/blockq"
	"samebit/internal/canon"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/tensor"
)

// first makes the values that a tensor of a new model begins with, from the seed
// and its name: norms 1, products normal with a standard deviation of 1/√in,
// embeddings 1/√hidden, decays and their biases as Gated DeltaNet's authors draw them.
//
// Attention begins as a look-up of like by like that gives back what it finds, which is
// most of copying: keys are made as queries are, and the output is the transpose of
// the values (Trockman and Kolter, "Mimetic Initialization of Self-Attention Layers").
// What delta layers write begins smaller, by √(2·layers·hidden), than what attention
// has to find beside it.
func first(c *Config, shape *qwen3.Config, p qwen3.Param) []float32 {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	in := p.Shape[len(p.Shape)-1]
	deviation := 1 / math.Sqrt(float64(in))
	written := deviation // of what attention and feed-forward parts write
	if c.Residual != 0 {
		written *= c.Residual
	}
	layer, last := cutLast(p.Name)
	kd := shape.KeyHeads * shape.KeyHeadDim
	switch {
	case last == "A_log":
		r := random(c, p.Name)
		v := make([]float32, n)
		for i := range v {
			v[i] = canon.Log(float32(1 + 15*r.Float64()))
		}
		return v
	case last == "dt_bias":
		r := random(c, p.Name)
		v := make([]float32, n)
		for i := range v {
			dt := canon.Exp(canon.Log(0.001) + float32(float32(r.Float64())*(canon.Log(0.1)-canon.Log(0.001))))
			v[i] = dt + canon.Log(1-canon.Exp(-dt)) // the inverse of softplus
		}
		return v
	case p.Stored == qwen3.LessOne || last == "bias":
		return make([]float32, n)
	case len(p.Shape) == 1:
		return slices.Repeat([]float32{1}, n)
	case last == "embed_tokens.weight":
		deviation = 1 / math.Sqrt(float64(shape.Hidden)) // logits of about one where it is the head, too
	case last == "k_proj.weight":
		each := shape.HeadDim * in // values of a head
		stride := each
		if shape.OutputGate {
			stride *= 2 // a query's rows and those of its gate
		}
		q := normals(c, layer+"q_proj.weight", shape.Heads*stride, deviation)
		v := make([]float32, 0, n)
		for h := range shape.KVHeads {
			at := h * (shape.Heads / shape.KVHeads) * stride
			v = append(v, q[at:at+each]...)
		}
		return v
	case last == "o_proj.weight":
		values := normals(c, layer+"v_proj.weight", shape.KVHeads*shape.HeadDim*shape.Hidden, written)
		v := make([]float32, n)
		for i := range v {
			row, column := i/in, i%in
			kv := column / shape.HeadDim / (shape.Heads / shape.KVHeads)
			v[i] = values[(kv*shape.HeadDim+column%shape.HeadDim)*shape.Hidden+row]
		}
		return v
	case last == "down_proj.weight":
		deviation = written
	case last == "out_proj.weight":
		deviation /= math.Sqrt(2 * float64(shape.Layers) * float64(shape.Hidden))
	}
	v := normals(c, p.Name, n, deviation)
	if last == "in_proj_qkv.weight" || last == "conv1d.weight" {
		copy(v[kd*in:2*kd*in], v[:kd*in])
	}
	return v
}

// cutLast cuts a name before its last part, that of the module with its ".weight".
func cutLast(name string) (rest, last string) {
	at := strings.LastIndexByte(strings.TrimSuffix(name, ".weight"), '.') + 1
	return name[:at], name[at:]
}

// random is the source of a tensor's values.
func random(c *Config, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(c.seed(forWeights), h.Sum64()))
}

// normals draws n values of a tensor.
func normals(c *Config, name string, n int, deviation float64) []float32 {
	r := random(c, name)
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(normal(r) * deviation)
	}
	return v
}

// normal draws from a distribution close to the normal one, by sums alone, so that
// every processor draws the same.
func normal(r *rand.Rand) float64 {
	s := -6.0
	for range 12 {
		s += r.Float64()
	}
	return s
}

// load builds a decoder of given values on a device.
func load(ctx context.Context, dev backend.Device, shape qwen3.Config, values func(qwen3.Param) ([]float32, error), typ checkpoint.Type) (*nn.Decoder, error) {
	file, err := weights(shape, values, typ)
	if err != nil {
		return nil, err
	}
	set, err := checkpoint.Parse("weights", file)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	return qwen3.Load(ctx, dev, shape, set, qwen3.LoadOptions{})
}

// weights writes values as the text of a safetensors file.
func weights(shape qwen3.Config, values func(qwen3.Param) ([]float32, error), typ checkpoint.Type) ([]byte, error) {
	params, err := shape.Params(nil)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	var entries []checkpoint.Entry
	for _, p := range params {
		v, err := values(p)
		if err != nil {
			return nil, err
		}
		e := checkpoint.Entry{Name: p.Name, Type: typ, Shape: p.Shape, Data: tensor.AsBytes(v)}
		if typ == checkpoint.BF16 {
			e.Data = narrow(v)
		}
		entries = append(entries, e)
	}
	var b bytes.Buffer
	if err := checkpoint.Write(&b, entries, map[string]string{"format": "pt"}); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// narrow rounds to bfloat16.
func narrow(v []float32) []byte {
	out := make([]byte, 0, 2*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint16(out, blockq.F32ToBF16(x))
	}
	return out
}

// watch makes the values of a decoder trainable.
func watch(p *grad.Params, shape *qwen3.Config, dec *nn.Decoder, values func(qwen3.Param) []float32) error {
	params, err := shape.Params(dec)
	if err != nil {
		return err
	}
	forms := map[qwen3.Stored]grad.Form{qwen3.LessOne: grad.OnePlus, qwen3.Logarithm: grad.Exp}
	for _, x := range params {
		v := values(x)
		switch {
		case x.Weight != nil:
			_, err = p.AddWeight(x.Name, x.Weight, v)
		case x.Stored == qwen3.Transposed:
			_, err = p.AddTensor(x.Name, x.Tensor, grad.Plain, transpose(v, x.Shape[0]))
		default:
			_, err = p.AddTensor(x.Name, x.Tensor, forms[x.Stored], v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// transpose turns [n, m] into [m, n].
func transpose(v []float32, n int) []float32 {
	m := len(v) / n
	t := make([]float32, len(v))
	for i := range n {
		for j := range m {
			t[j*n+i] = v[i*m+j]
		}
	}
	return t
}
