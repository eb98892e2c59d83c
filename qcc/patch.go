package qcc

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// KVPolicy says what becomes of key heads that serve several query heads.
type KVPolicy string

const (
	KVReject KVPolicy = ""       // such a model is refused
	KVRepeat KVPolicy = "repeat" // an archive per query head, as published
	KVShare  KVPolicy = "share"  // an archive per key head: less state
)

// Retrofit says how a model's attention is replaced. The zero value replaces every
// full attention, with the configuration of [ModelConfig].
type Retrofit struct {
	Layers []int    // blocks, rising; nil for all with full attention
	KV     KVPolicy // of models with grouped queries
	Config Config   // the zero value is ModelConfig's; what follows from the model is filled in

	// ExactPrefill adds a second decoder that runs prompts with full attention and
	// fills window and archive meanwhile: see [Patched.Prefill].
	ExactPrefill bool
}

// replaceable lists the blocks of a decoder that have full attention, and counts
// those that have an archive already.
func replaceable(d *nn.Decoder) (blocks []int, archived int) {
	for i := range d.Blocks {
		switch m := d.Blocks[i].Mix.(type) {
		case *nn.Attention:
			if m.Window == 0 {
				blocks = append(blocks, i)
			}
		case *Mixer:
			archived++
		}
	}
	return blocks, archived
}

// ModelConfig is RetrofitConfig for the full attention of a model. It fails with
// ErrConfig if there is none.
func ModelConfig(d *nn.Decoder) (Config, error) {
	blocks, _ := replaceable(d)
	if len(blocks) == 0 {
		return Config{}, fmt.Errorf("qcc: the model has no full attention to replace: %w", ErrConfig)
	}
	a := d.Blocks[blocks[0]].Mix.(*nn.Attention)
	c := RetrofitConfig(d.Hidden, a.Heads, a.KV, a.Dim, d.Context)
	c.fit(d, a)
	return c, nil
}

// fit fills in what follows from the model.
func (c *Config) fit(d *nn.Decoder, a *nn.Attention) {
	c.Hidden, c.Heads, c.KV, c.Dim = d.Hidden, a.Heads, a.KV, a.Dim
	if c.RoPE = nil; a.RoPE != nil {
		c.RoPE = &RoPE{Model: true, Dim: 2 * len(a.RoPE.Inv)}
	}
}

// plan resolves a retrofit for a model: the configuration and the blocks, none if
// all are replaced already.
func (r Retrofit) plan(d *nn.Decoder) (Config, []int, error) {
	if d == nil {
		return Config{}, nil, fmt.Errorf("qcc: no model to retrofit: %w", ErrConfig)
	}
	if dt := d.Shapes.KV.Stored(); dt != tensor.F32 {
		return Config{}, nil, fmt.Errorf("qcc: the model stores keys and values as %v, windows and archives hold F32: open it with keys and values in F32, or bound it by a sieve: %w", dt, ErrConfig)
	}
	all, archived := replaceable(d)
	want := r.Layers
	if want == nil {
		want = all
	}
	var blocks []int
	for i, b := range want {
		if i > 0 && b <= want[i-1] || b < 0 || b >= len(d.Blocks) {
			return Config{}, nil, fmt.Errorf("qcc: layers %v of a model of %d: want them rising and within: %w", want, len(d.Blocks), ErrConfig)
		}
		if _, ok := d.Blocks[b].Mix.(*Mixer); ok {
			continue
		}
		if !slices.Contains(all, b) {
			return Config{}, nil, fmt.Errorf("qcc: layer %d has no full attention (%T): layers %v have: %w", b, d.Blocks[b].Mix, all, ErrConfig)
		}
		blocks = append(blocks, b)
	}
	switch {
	case len(blocks) == 0 && archived > 0:
		return Config{}, nil, nil
	case len(blocks) == 0:
		return Config{}, nil, fmt.Errorf("qcc: the model has no full attention to replace: %w", ErrConfig)
	case archived > 0:
		return Config{}, nil, fmt.Errorf("qcc: %d layers have an archive already: retrofit all layers of the original model at once: %w", archived, ErrConfig)
	}
	c := r.Config
	if c.Codes == 0 && c.Memory == MemoryArchive {
		c, _ = ModelConfig(d)
	}
	first := d.Blocks[blocks[0]].Mix.(*nn.Attention)
	c.fit(d, first)
	for _, b := range blocks {
		if a := d.Blocks[b].Mix.(*nn.Attention); a.Heads != first.Heads || a.KV != first.KV || a.Dim != first.Dim || (a.RoPE == nil) != (first.RoPE == nil) {
			return c, nil, fmt.Errorf("qcc: layers %d and %d have heads of different shape: retrofit one kind: %w", blocks[0], b, ErrConfig)
		}
	}
	switch {
	case c.KV == c.Heads:
	case r.KV == KVRepeat, r.KV == KVShare:
		c.Share = r.KV == KVShare
	case r.KV == KVReject:
		return c, nil, fmt.Errorf("qcc: the model has %d query heads on %d key heads: choose to %q or %q: %w", c.Heads, c.KV, KVRepeat, KVShare, ErrConfig)
	default:
		return c, nil, fmt.Errorf("qcc: key heads %q: want %q or %q: %w", r.KV, KVRepeat, KVShare, ErrConfig)
	}
	if c.NoArchive && r.ExactPrefill {
		return c, nil, fmt.Errorf("qcc: an exact prompt beyond the window leaves nothing without an archive: %w", ErrConfig)
	}
	if c.Memory == MemoryDelta && d.Shapes.Delta.Layers > 0 {
		return c, nil, fmt.Errorf("qcc: the model has %d recurrent layers, beside which a gated-delta memory has no place: take an archive: %w", d.Shapes.Delta.Layers, ErrConfig)
	}
	return c, blocks, c.Validate()
}

// Patched is a retrofitted model.
type Patched struct {
	// Decoder is the model with archives. It shares the weights of the original,
	// which is untouched and must outlive it, and is closed by Close. Its ID changes
	// with the parameters: states made before are then another model's.
	Decoder *nn.Decoder
	Config  Config
	Layers  []int // blocks with an archive of this retrofit, rising

	base   state.ID
	exact  *nn.Decoder // runs prompts exactly; nil without ExactPrefill
	mixers []*Mixer
	params []*Params // what the device holds, unless somebody trained there
	own    *device
}

// Patch replaces the attention of a model by an adapter's layers. d is the model
// that the adapter was made for, else ErrDigest; dev is where its weights are. A model
// whose layers are all replaced is returned as it is, with no Layers.
func Patch(dev backend.Device, d *nn.Decoder, a *Adapter) (*Patched, error) {
	if d == nil || a == nil {
		return nil, fmt.Errorf("qcc: retrofitting needs a model and an adapter: %w", ErrConfig)
	}
	if len(a.Layers) == 0 {
		if _, archived := replaceable(d); archived > 0 {
			return &Patched{Decoder: d, base: d.ID}, nil
		}
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	if a.Base != d.ID {
		return nil, fmt.Errorf("qcc: the adapter was made for model %v, this is %v: %w", a.Base, d.ID, ErrDigest)
	}
	r := Retrofit{Layers: a.Layers, KV: KVRepeat, Config: a.Config, ExactPrefill: a.ExactPrefill}
	if a.Config.Share {
		r.KV = KVShare
	}
	c, blocks, err := r.plan(d)
	if err != nil {
		return nil, err
	}
	if len(blocks) != len(a.Layers) || c.Digest() != a.Config.Digest() {
		return nil, fmt.Errorf("qcc: the adapter's configuration does not fit the model: %w", ErrConfig)
	}
	own, err := newDevice(dev)
	if err != nil {
		return nil, err
	}
	p := &Patched{Config: a.Config, Layers: slices.Clone(blocks), base: d.ID, own: own}
	if err := p.build(d, a); err != nil {
		own.close()
		return nil, err
	}
	return p, nil
}

// build makes the decoders.
func (p *Patched) build(d *nn.Decoder, a *Adapter) error {
	copyOf := func() *nn.Decoder {
		c := *d
		c.Blocks, c.Closers = slices.Clone(d.Blocks), nil
		return &c
	}
	p.Decoder = copyOf()
	if a.ExactPrefill {
		p.exact = copyOf()
	}
	attention := 0 // ordinal among the layers of the original that have keys and values
	for b := range d.Blocks {
		old, ok := d.Blocks[b].Mix.(*nn.Attention)
		if !ok {
			continue
		}
		i := slices.Index(p.Layers, b)
		if i < 0 {
			kept := *old
			kept.Layer = attention - len(p.mixers)
			p.Decoder.Blocks[b].Mix = &kept
			attention++
			continue
		}
		m := &Mixer{Layer: i, Config: p.Config, Q: old.Q, K: old.K, V: old.V, O: old.O, BQ: old.BQ, BK: old.BK, BV: old.BV, BO: old.BO,
			QNorm: old.QNorm, KNorm: old.KNorm, Eps: old.Eps, RoPE: old.RoPE, Gated: old.Gated}
		if err := m.bind(p.own, a.Params[i]); err != nil {
			return err
		}
		p.mixers, p.params = append(p.mixers, m), append(p.params, a.Params[i].clone(p.Config))
		p.Decoder.Blocks[b].Mix = m
		if p.exact != nil {
			full := *m
			full.full = &fullAttention{layer: old.Layer}
			p.exact.Blocks[b].Mix = &full
		}
		attention++
	}
	if attention != d.Shapes.KV.Layers {
		return fmt.Errorf("qcc: the model has %d attention layers, its shapes say %d: set Decoder.Shapes: %w", attention, d.Shapes.KV.Layers, ErrConfig)
	}
	p.Decoder.Shapes.KV.Layers -= len(p.mixers)
	p.Decoder.NewState = p.newState
	if p.exact != nil {
		p.exact.NewState = p.exactState
	}
	p.identify()
	return nil
}

// identify gives the decoders the identity of what they hold.
func (p *Patched) identify() {
	h := sha256.New()
	h.Write([]byte("samebit.qcc.retrofit/1"))
	h.Write(p.base[:])
	for i, q := range p.params {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(p.Layers[i])))
		d := digest(p.Config, q.Named(p.Config))
		h.Write(d[:])
	}
	if p.exact != nil {
		h.Write([]byte("exact prefill"))
	}
	p.Decoder.ID = state.ID(h.Sum(nil))
	if p.exact != nil {
		p.exact.ID = sha256.Sum256(append([]byte("samebit.qcc.prefill"), p.Decoder.ID[:]...))
	}
}

// newState is the decoder's: the parts that other layers have, then window and
// archive.
func (p *Patched) newState(pool *state.Pool) (state.State, error) {
	return p.state(pool, p.Decoder.Shapes)
}

func (p *Patched) state(pool *state.Pool, rest nn.Shapes) (state.State, error) {
	st := &state.Stack{}
	if rest.KV.Layers > 0 || rest.Delta.Layers > 0 || rest.Sum > 0 {
		other, err := rest.NewState(p.Decoder.ID)(pool)
		if err != nil {
			return nil, err
		}
		if s, ok := other.(*state.Stack); ok {
			st = s
		} else {
			st.Parts = append(st.Parts, other)
		}
	}
	own, err := NewState(pool, p.Decoder.ID, p.Config, len(p.Layers))
	if err != nil {
		return nil, err
	}
	if len(st.Parts) == 0 {
		return own, nil
	}
	st.Parts = append(st.Parts, own)
	return st, nil
}

// Close frees what the retrofit added. The original model stays.
func (p *Patched) Close() {
	if p.own != nil {
		p.own.close()
		p.own = nil
	}
}

// Trained is a parameter on the device: what a tape watches.
type Trained struct {
	Layer  int    // block of the model
	Name   string // as in adapter files
	Tensor tensor.Tensor
}

// Trained lists the parameters of all layers in the order of the file. Who changes
// them calls Pull before the decoder's ID and Adapter are right again.
func (p *Patched) Trained() []Trained {
	var l []Trained
	for i, m := range p.mixers {
		at := m.tensors()
		for _, f := range p.params[i].Named(p.Config) {
			l = append(l, Trained{p.Layers[i], f.Name, *at[f.Name]})
		}
	}
	return l
}

// Pull takes over what the device holds after training. It fails with ErrShape if a
// value is no number, and then leaves the adapter as it was.
func (p *Patched) Pull() error {
	fresh := make([]*Params, len(p.params))
	for i, m := range p.mixers {
		fresh[i] = p.params[i].clone(p.Config)
		at := m.tensors()
		for _, f := range fresh[i].Named(p.Config) {
			p.own.stream.Read(tensor.AsBytes(*f.Values), *at[f.Name])
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if err := p.own.stream.Sync(); err != nil {
		return err
	}
	for _, q := range fresh {
		if err := q.check(p.Config); err != nil {
			return err
		}
	}
	p.params = fresh
	p.identify()
	return nil
}

// Adapter is what the retrofit holds, apart from any device; it shares no memory.
func (p *Patched) Adapter(m Manifest) *Adapter {
	a := &Adapter{Manifest: m, Config: p.Config, Layers: slices.Clone(p.Layers), Base: p.base, ExactPrefill: p.exact != nil}
	for _, q := range p.params {
		a.Params = append(a.Params, q.clone(p.Config))
	}
	return a
}

// Set replaces the parameters by an adapter's, for the same model, layers and
// configuration; an adapter without an exact tier leaves that of the retrofit as it
// is. It fails with ErrDigest, ErrConfig or ErrShape and then changes nothing. States
// made before are another model's.
func (p *Patched) Set(a *Adapter) error {
	if err := a.check(); err != nil {
		return err
	}
	if a.Base != p.base {
		return fmt.Errorf("qcc: the adapter was made for model %v, this is %v: %w", a.Base, p.base, ErrDigest)
	}
	c := p.Config
	if a.Config.Exact == nil {
		c.Exact = nil
	}
	if !slices.Equal(a.Layers, p.Layers) || c.Digest() != a.Config.Digest() {
		return fmt.Errorf("qcc: the adapter is for layers %v and another configuration, the retrofit has layers %v: %w", a.Layers, p.Layers, ErrConfig)
	}
	fresh := make([]*Params, len(p.params))
	for i := range fresh {
		fresh[i] = p.params[i].clone(p.Config)
		to := fresh[i].Named(p.Config)
		for _, f := range a.Params[i].Named(a.Config) {
			at := slices.IndexFunc(to, func(t Named) bool { return t.Name == f.Name })
			copy(*to[at].Values, *f.Values)
		}
	}
	for i, m := range p.mixers {
		at := m.tensors()
		for _, f := range fresh[i].Named(p.Config) {
			p.own.stream.Write(*at[f.Name], tensor.AsBytes(*f.Values))
		}
	}
	if len(fresh) > 0 {
		if err := p.own.stream.Sync(); err != nil {
			return err
		}
	}
	p.params = fresh
	p.identify()
	return nil
}
