package grad

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"samebit/backend"
	"samebit/tensor"
)

// Form says how the values that ops read come from those that are trained.
type Form uint8

const (
	Plain   Form = iota // the same
	OnePlus             // 1 + value: norms whose weight is stored less one
	Exp                 // exp(value): decays of delta nets, stored as A_log
)

// Param is a tensor that is trained. Value, M and V are its float32 values and
// AdamW's running moments, Grad the gradient of the batch under way; all lie on the
// device, contiguous and of one shape.
type Param struct {
	Name    string
	Value   tensor.Tensor
	Grad    tensor.Tensor
	M, V    tensor.Tensor
	NoDecay bool // keep weight decay away; set for everything that is no matrix product

	weight backend.Weight // a packed matrix
	use    tensor.Tensor  // or what ops read
	form   Form
	table  tensor.Tensor // what is added to the gradient of a complete batch: chains over the rows of an embedding, or of another use
}

// Params are the trained values of a model, on one device. They are added once, then
// watched by any number of tapes. It belongs to one goroutine.
type Params struct {
	s   backend.Stream
	g   backend.Grad
	dev backend.Device

	list    []*Param // by name
	weights map[backend.Weight]*Param
	tensors map[place]*Param
	bufs    []tensor.Buffer
	host    []float32
}

// NewParams returns no parameters yet; they are changed on stream s of device dev.
func NewParams(s backend.Stream, dev backend.Device) (*Params, error) {
	g, ok := s.(backend.Grad)
	if !ok {
		return nil, fmt.Errorf("grad: device %s has no gradients: %w", dev.Name(), backend.ErrUnsupported)
	}
	return &Params{s: s, g: g, dev: dev, weights: map[backend.Weight]*Param{}, tensors: map[place]*Param{}}, nil
}

// All are the parameters in order of name.
func (p *Params) All() iter.Seq[*Param] { return slices.Values(p.list) }

// Len is the number of trained values.
func (p *Params) Len() int {
	n := 0
	for _, x := range p.list {
		n += x.Value.Len()
	}
	return n
}

// AddWeight trains a packed float32 matrix w, whose values [Out, In] are given.
// Steps pack anew what changed, in place, so that whoever uses w sees it.
func (p *Params) AddWeight(name string, w backend.Weight, values []float32) (*Param, error) {
	if w == nil || w.DType() != tensor.F32 {
		return nil, fmt.Errorf("grad: parameter %s: want a packed weight of float32 values", name)
	}
	if p.weights[w] != nil {
		return nil, fmt.Errorf("grad: parameter %s: its weight is trained already as %s", name, p.weights[w].Name)
	}
	x := &Param{Name: name, weight: w}
	if err := p.add(x, values, w.Out(), w.In()); err != nil {
		return nil, err
	}
	p.weights[w] = x
	return x, nil
}

// AddTensor trains a vector, an unpacked matrix or one per head that ops read from
// use, from given values in their trained form. Steps write use.
func (p *Params) AddTensor(name string, use tensor.Tensor, form Form, values []float32) (*Param, error) {
	if !use.Valid() || use.DType() != tensor.F32 || !use.Contiguous() || use.Dims() > 3 || form > Exp {
		return nil, fmt.Errorf("grad: parameter %s: %v in form %d: want a contiguous f32 tensor of at most three axes", name, use, form)
	}
	if old := p.tensors[placeOf(use)]; old != nil {
		return nil, fmt.Errorf("grad: parameter %s: its tensor is trained already as %s", name, old.Name)
	}
	x := &Param{Name: name, use: use, form: form, NoDecay: true}
	if err := p.add(x, values, use.Shape()...); err != nil {
		return nil, err
	}
	p.tensors[placeOf(use)] = x
	return x, nil
}

func (p *Params) add(x *Param, values []float32, dim ...int) error {
	n := 1
	for _, d := range dim {
		n *= d
	}
	if len(values) != n {
		return fmt.Errorf("grad: parameter %s has %d values, want %v", x.Name, len(values), dim)
	}
	at, taken := slices.BinarySearchFunc(p.list, x, byName)
	if taken {
		return fmt.Errorf("grad: two parameters are called %s", x.Name)
	}
	for _, t := range []*tensor.Tensor{&x.Value, &x.Grad, &x.M, &x.V} {
		if err := p.alloc(t, dim...); err != nil {
			return fmt.Errorf("grad: parameter %s: %w", x.Name, err)
		}
	}
	p.s.Write(x.Value, tensor.AsBytes(values))
	if err := p.refresh(x); err != nil {
		return err
	}
	p.list = slices.Insert(p.list, at, x)
	return nil
}

func byName(a, b *Param) int { return cmp.Compare(a.Name, b.Name) }

// alloc gives t zeroed memory.
func (p *Params) alloc(t *tensor.Tensor, dim ...int) error {
	n := 4
	for _, d := range dim {
		n *= d
	}
	b, err := p.dev.Alloc(n)
	if err != nil {
		return err
	}
	p.bufs = append(p.bufs, b)
	*t, err = tensor.New(b, 0, tensor.F32, dim...)
	return err
}

// needTable makes room for what is added to the gradient of a complete batch.
func (x *Param) needTable(p *Params) error {
	if x.table.Valid() {
		return nil
	}
	return p.alloc(&x.table, x.Value.Shape()...)
}

// Zero begins a batch: all gradients are +0.
func (p *Params) Zero() error {
	for _, x := range p.list {
		p.g.Zero(x.Grad)
		if x.table.Valid() {
			p.g.Zero(x.table)
		}
	}
	return p.s.Sync()
}

// Refresh brings everything that ops read up to date with Value, as each step does;
// call it after writing values.
func (p *Params) Refresh() error {
	for _, x := range p.list {
		if err := p.refresh(x); err != nil {
			return err
		}
	}
	return p.s.Sync()
}

func (p *Params) refresh(x *Param) error {
	switch {
	case x.weight != nil:
		p.g.Repack(x.weight, x.Value)
	case x.form == Plain:
		p.s.Copy(x.use, x.Value)
	default:
		v, err := p.read(x.Value)
		if err != nil {
			return err
		}
		for i := range v {
			v[i] = x.form.of(v[i])
		}
		p.s.Write(x.use, tensor.AsBytes(v))
	}
	return p.s.Sync()
}

// Finish completes the gradients of a batch: an embedding's chains are added once,
// and derivatives of forms multiplied in. A step does this; call it, instead of a
// step and once, to look at complete gradients.
func (p *Params) Finish() error {
	for _, x := range p.list {
		if x.table.Valid() {
			p.g.Accumulate(x.Grad, x.table)
		}
		if x.form == Exp {
			d, err := p.read(x.Grad)
			if err != nil {
				return err
			}
			d = slices.Clone(d)
			v, err := p.read(x.use)
			if err != nil {
				return err
			}
			for i := range d {
				d[i] *= v[i]
			}
			p.s.Write(x.Grad, tensor.AsBytes(d))
		}
	}
	return p.s.Sync()
}

// read copies a small tensor here; the slice is reused.
func (p *Params) read(t tensor.Tensor) ([]float32, error) {
	if cap(p.host) < t.Len() {
		p.host = make([]float32, t.Len())
	}
	v := p.host[:t.Len()]
	p.s.Read(tensor.AsBytes(v), t)
	return v, p.s.Sync()
}

// Close frees the values, moments and gradients, not what ops read.
func (p *Params) Close() {
	for _, b := range p.bufs {
		p.dev.Free(b)
	}
	p.bufs, p.list = nil, nil
	clear(p.weights)
	clear(p.tensors)
}
