package lm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"samebit/checkpoint"
	"samebit/qcc"
)

// format is the version of model files.
const format = "qcc-lm/1"

// field is a parameter by its name in files.
type field struct {
	name string
	v    *[]float32
	dim  []int
}

func (f field) size() int {
	n := 1
	for _, d := range f.dim {
		n *= d
	}
	return n
}

// fields lists the parameters that a configuration has, in the order of files. It gives
// p its layers if it has none.
func (p *Params) fields(c Config) []field {
	if p.Layers == nil {
		p.Layers = make([]LayerParams, c.Layers)
	}
	f, w := c.Layer, c.Layer.Hidden
	l := []field{{"embed", &p.Embed, []int{c.Vocab, w}}}
	if c.Position == Learned {
		l = append(l, field{"pos_embed", &p.Positions, []int{c.MaxPosition, w}})
	}
	l = append(l, field{"lnf_w", &p.NormW, []int{w}}, field{"lnf_b", &p.NormB, []int{w}})
	kv := f.KV
	if kv == 0 {
		kv = f.Heads
	}
	h, k := f.Heads*f.Dim, kv*f.Dim
	for i := range p.Layers {
		x := &p.Layers[i]
		if x.Params == nil {
			x.Params = &qcc.Params{}
		}
		at := fmt.Sprintf("layers.%d.", i)
		for _, f := range []field{
			{"ln1_w", &x.Norm1W, []int{w}}, {"ln1_b", &x.Norm1B, []int{w}}, {"ln2_w", &x.Norm2W, []int{w}}, {"ln2_b", &x.Norm2B, []int{w}},
			{"w1", &x.W1, []int{4 * w, w}}, {"b1", &x.B1, []int{4 * w}}, {"w2", &x.W2, []int{w, 4 * w}}, {"b2", &x.B2, []int{w}},
			{"attn.q", &x.Q, []int{h, w}}, {"attn.k", &x.K, []int{k, w}}, {"attn.v", &x.V, []int{k, w}}, {"attn.o", &x.O, []int{w, h}},
			{"attn.bq", &x.BQ, []int{h}}, {"attn.bk", &x.BK, []int{k}}, {"attn.bv", &x.BV, []int{k}}, {"attn.bo", &x.BO, []int{w}},
		} {
			l = append(l, field{at + f.name, f.v, f.dim})
		}
		for _, f := range x.Params.Named(f) {
			l = append(l, field{at + "attn." + f.Name, f.Values, f.Dim})
		}
	}
	return l
}

// entries are the parameters as a file has them.
func (p *Params) entries(c Config) ([]checkpoint.Entry, error) {
	if len(p.Layers) != c.Layers {
		return nil, fmt.Errorf("lm: parameters of %d layers, the model has %d: %w", len(p.Layers), c.Layers, qcc.ErrShape)
	}
	var l []checkpoint.Entry
	for _, f := range p.fields(c) {
		if len(*f.v) != f.size() {
			return nil, fmt.Errorf("lm: %s has %d values, want %v: %w", f.name, len(*f.v), f.dim, qcc.ErrShape)
		}
		data := make([]byte, 0, 4*len(*f.v))
		for _, x := range *f.v {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		l = append(l, checkpoint.Entry{Name: f.name, Type: checkpoint.F32, Shape: f.dim, Data: data})
	}
	return l, nil
}

// Hash is the SHA-256 of all values, in the order of files, in hexadecimal. It fails
// with qcc.ErrShape.
func (p *Params) Hash(c Config) (string, error) {
	l, err := p.entries(c)
	h := sha256.New()
	for _, e := range l {
		h.Write(e.Data)
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// Write writes a model as a safetensors file. What is about it, JSON or nothing, is kept
// in the header.
func Write(w io.Writer, c Config, p *Params, about json.RawMessage) error {
	if err := c.Validate(); err != nil {
		return err
	}
	l, err := p.entries(c)
	if err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("lm: a model's configuration: %w", err)
	}
	head := map[string]string{"format": format, "config": string(text)}
	if about != nil {
		head["about"] = string(about)
	}
	return checkpoint.Write(w, l, head)
}

// Read reads what Write wrote. Damaged and foreign files fail with
// checkpoint.ErrCorrupt, an invalid configuration with qcc.ErrConfig, tensors that do not
// fit it with qcc.ErrShape.
func Read(r io.Reader) (c Config, p *Params, about json.RawMessage, err error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return c, nil, nil, fmt.Errorf("lm: reading a model: %w", err)
	}
	set, err := checkpoint.Parse("model", data)
	if err != nil {
		return c, nil, nil, err
	}
	defer set.Close()
	head := set.Metadata()
	if head["format"] != format {
		return c, nil, nil, fmt.Errorf("lm: a file of format %q, want %q, as trainings of the small model write it: %w", head["format"], format, checkpoint.ErrCorrupt)
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(head["config"])))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return c, nil, nil, fmt.Errorf("lm: the configuration of a model: %v: %w", err, checkpoint.ErrCorrupt)
	}
	if err := c.Validate(); err != nil {
		return c, nil, nil, err
	}
	if n := len(set.Names()); c.Layers > n {
		return c, nil, nil, fmt.Errorf("lm: %d tensors for %d layers: %w", n, c.Layers, checkpoint.ErrCorrupt)
	}
	p = &Params{}
	list := p.fields(c)
	for _, f := range list {
		info, ok := set.Info(f.name)
		if !ok {
			return c, nil, nil, fmt.Errorf("lm: no tensor %s: %w", f.name, checkpoint.ErrCorrupt)
		}
		if info.Type != checkpoint.F32 || !slices.Equal(info.Shape, f.dim) {
			return c, nil, nil, fmt.Errorf("lm: tensor %s is %v%v, the configuration wants F32%v: %w", f.name, info.Type, info.Shape, f.dim, qcc.ErrShape)
		}
		e, err := set.Tensor(f.name)
		if err == nil {
			*f.v, err = e.Float32s()
		}
		if err != nil {
			return c, nil, nil, err
		}
	}
	if n := len(set.Names()); n != len(list) {
		return c, nil, nil, fmt.Errorf("lm: %d tensors, of which the configuration has %d: %w", n, len(list), checkpoint.ErrCorrupt)
	}
	if text := head["about"]; text != "" {
		about = json.RawMessage(text)
	}
	return c, p, about, nil
}
