package lm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"samebit/checkpoint"
	"samebit/qcc"
)

// format is the version of model files.
const format = "qcc-lm/1"

// fields lists the parameters that a configuration has, in the order of files. It gives
// p its layers if it has none.
func (p *Params) fields(c Config) []qcc.Named {
	if p.Layers == nil {
		p.Layers = make([]LayerParams, c.Layers)
	}
	f, w := c.Layer, c.Layer.Hidden
	var l []qcc.Named
	add := func(name string, v *[]float32, dim ...int) {
		l = append(l, qcc.Named{Name: name, Values: v, Dim: dim})
	}
	add("embed", &p.Embed, c.Vocab, w)
	if c.Position == Learned {
		add("pos_embed", &p.Positions, c.MaxPosition, w)
	}
	add("lnf_w", &p.NormW, w)
	add("lnf_b", &p.NormB, w)
	h, k := f.Heads*f.Dim, cmp.Or(f.KV, f.Heads)*f.Dim
	for i := range p.Layers {
		x := &p.Layers[i]
		if x.Params == nil {
			x.Params = &qcc.Params{}
		}
		at := fmt.Sprintf("layers.%d.", i)
		add(at+"ln1_w", &x.Norm1W, w)
		add(at+"ln1_b", &x.Norm1B, w)
		add(at+"ln2_w", &x.Norm2W, w)
		add(at+"ln2_b", &x.Norm2B, w)
		add(at+"w1", &x.W1, 4*w, w)
		add(at+"b1", &x.B1, 4*w)
		add(at+"w2", &x.W2, w, 4*w)
		add(at+"b2", &x.B2, w)
		at += "attn."
		add(at+"q", &x.Q, h, w)
		add(at+"k", &x.K, k, w)
		add(at+"v", &x.V, k, w)
		add(at+"o", &x.O, w, h)
		add(at+"bq", &x.BQ, h)
		add(at+"bk", &x.BK, k)
		add(at+"bv", &x.BV, k)
		add(at+"bo", &x.BO, w)
		for _, y := range x.Params.Named(f) {
			add(at+y.Name, y.Values, y.Dim...)
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
		if len(*f.Values) != f.Size() {
			return nil, fmt.Errorf("lm: %s has %d values, want %v: %w", f.Name, len(*f.Values), f.Dim, qcc.ErrShape)
		}
		l = append(l, checkpoint.Entry{Name: f.Name, Type: checkpoint.F32, Shape: f.Dim, Data: checkpoint.LittleEndian(*f.Values)})
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
		info, ok := set.Info(f.Name)
		if !ok {
			return c, nil, nil, fmt.Errorf("lm: no tensor %s: %w", f.Name, checkpoint.ErrCorrupt)
		}
		if info.Type != checkpoint.F32 || !slices.Equal(info.Shape, f.Dim) {
			return c, nil, nil, fmt.Errorf("lm: tensor %s is %v%v, the configuration wants F32%v: %w", f.Name, info.Type, info.Shape, f.Dim, qcc.ErrShape)
		}
		e, err := set.Tensor(f.Name)
		if err == nil {
			*f.Values, err = e.Float32s()
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
