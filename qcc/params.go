package qcc

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

// Params are the archive's parameters of one layer, row-major. A is the number of
// archive heads, H of query heads, D the head width, M codes, S scales, R rank.
type Params struct {
	Gate, GateBias            []float32 // [H, hidden], [H]: logits of the local weight
	Codes                     []float32 // [A, M, D]
	Mix                       []float32 // [A, M, S]: logits of the scales
	CorrV, CorrU, CorrScale   []float32 // [A, D, R], [A, R, D], [A, R, S]
	LandmarkMix               []float32 // [A]
	AdmKey, AdmValue, AdmBias []float32 // [H, D], [H, D], [H]: the admission predictor
	ExactMix                  []float32 // [H]
	SetCodes                  []float32 // [H, sets, D]
	ReadV, ReadU              []float32 // [A, D, N], [A, N, D]: the map of queries, N its rank

	// Of a gated-delta memory, K key heads.
	WriteV, WriteU   []float32 // [K, D, N], [K, N, D]: the map of keys
	Beta, BetaBias   []float32 // [H, hidden], [H]: logits of how much a row writes
	Decay, DecayBias []float32 // [H, hidden], [H]: of how much a row forgets
}

// Projections are the linear maps of a layer by itself, [out, in] row-major, each
// with a bias that may be nil.
type Projections struct {
	Q, K, V, O     []float32
	BQ, BK, BV, BO []float32
}

// Named is a parameter by its name in files.
type Named struct {
	Name   string
	Values *[]float32
	Dim    []int
}

// Size is the number of values.
func (f Named) Size() int {
	n := 1
	for _, d := range f.Dim {
		n *= d
	}
	return n
}

// Named lists the parameters that a configuration has, in the order of files.
func (p *Params) Named(c Config) []Named {
	a, h, d, m, s, r := c.archiveHeads(), c.Heads, c.Dim, c.Codes, c.Scales, c.Rank
	var l []Named
	add := func(want bool, name string, v *[]float32, dim ...int) {
		if want {
			l = append(l, Named{name, v, dim})
		}
	}
	archive, delta := c.Memory == MemoryArchive && !c.NoArchive, c.Memory == MemoryDelta
	add(archive, "codes", &p.Codes, a, m, d)
	add(archive, "mix_logits", &p.Mix, a, m, s)
	add(archive && r > 0, "corr_v", &p.CorrV, a, d, r)
	add(archive && r > 0, "corr_u", &p.CorrU, a, r, d)
	add(archive && r > 0, "corr_scale", &p.CorrScale, a, r, s)
	add(archive && c.Landmarks == LandmarksPersistent, "landmark_mix", &p.LandmarkMix, a)
	n, k := c.AddressRank, c.keyHeads()
	add(n > 0, "read_v", &p.ReadV, a, d, n)
	add(n > 0, "read_u", &p.ReadU, a, n, d)
	add(delta && n > 0, "write_v", &p.WriteV, k, d, n)
	add(delta && n > 0, "write_u", &p.WriteU, k, n, d)
	add(delta, "beta.weight", &p.Beta, h, c.Hidden)
	add(delta, "beta.bias", &p.BetaBias, h)
	add(delta, "decay.weight", &p.Decay, h, c.Hidden)
	add(delta, "decay.bias", &p.DecayBias, h)
	gate := (archive || delta) && c.Remote == nil
	add(gate, "gate.weight", &p.Gate, h, c.Hidden)
	add(gate, "gate.bias", &p.GateBias, h)
	if c.Exact != nil {
		e := c.Exact.resolved()
		add(!e.QualityFirst, "adm_key", &p.AdmKey, h, d)
		add(!e.QualityFirst, "adm_value", &p.AdmValue, h, d)
		add(!e.QualityFirst, "adm_bias", &p.AdmBias, h)
		add(!e.MassMerge, "exact_mix", &p.ExactMix, h)
		add(e.Probe < e.Sets, "set_codes", &p.SetCodes, h, e.Sets, d)
	}
	return l
}

// Count is the number of parameters of one layer that are trained (docs/qcc.md).
func (c Config) Count() int {
	n := 0
	for _, f := range new(Params).Named(c) {
		n += f.Size()
	}
	return n
}

// NewParams draws the parameters that a layer begins with: codes and the inner
// factors of the correction and of maps from a normal distribution of variance 1/Dim
// (codes of variance 1 with kernel features), a constant gate, the forgetting of a
// gated-delta memory's heads with half-lives spaced as scales are, everything else
// zero. The same seed gives the same bits everywhere.
func NewParams(c Config, seed uint64) (*Params, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p := &Params{}
	for _, f := range p.Named(c) {
		*f.Values = f.first(c, seed)
	}
	return p, nil
}

// first is what NewParams gives a parameter.
func (f Named) first(c Config, seed uint64) []float32 {
	v := make([]float32, f.Size())
	switch f.Name {
	case "codes", "corr_v", "set_codes", "read_v", "write_v":
		scale := canon.InvSqrt(c.Dim)
		if f.Name == "codes" && c.KernelCompat {
			scale = 1
		}
		Normal(v, seed, f.Name, scale)
	case "decay.bias":
		for i, h := range c.spaced(c.Heads) {
			v[i] = forgetting(h)
		}
	case "gate.bias":
		fill(v, float32(c.GateBias))
	case "adm_bias", "exact_mix":
		fill(v, -4)
	}
	return v
}

func fill(v []float32, x float32) {
	for i := range v {
		v[i] = x
	}
}

// draws are numbers in (0, 1) that follow from a seed and a name.
func draws(seed uint64, name string) func() float32 {
	h := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(name), seed))
	x := binary.LittleEndian.Uint64(h[:])
	return func() float32 {
		x += 0x9e3779b97f4a7c15
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		return (float32(z>>41) + 0.5) * 0x1p-23
	}
}

// Normal fills v with normally distributed numbers times scale, which follow from
// the seed and the name: Box and Muller in the contract's own functions.
func Normal(v []float32, seed uint64, name string, scale float32) {
	const tau = 0x1.921fb6p+2
	next := draws(seed, name)
	for i := range v {
		r := canon.Sqrt(-2 * canon.Log(next()))
		sin, _ := canon.SinCos(float32(next() * tau))
		v[i] = float32(float32(r*sin) * scale)
	}
}

// Uniform fills v with numbers between -limit and limit.
func Uniform(v []float32, seed uint64, name string, limit float32) {
	next := draws(seed, name)
	for i := range v {
		v[i] = float32(float32(2*next()-1) * limit)
	}
}

// check reports the first parameter that does not fit, or is not a number.
func (p *Params) check(c Config) error {
	for _, f := range p.Named(c) {
		if len(*f.Values) != f.Size() {
			return fmt.Errorf("qcc: parameter %s has %d values, the configuration wants %v: %w", f.Name, len(*f.Values), f.Dim, ErrShape)
		}
		for i, x := range *f.Values {
			if x-x != 0 {
				return fmt.Errorf("qcc: parameter %s has %v at index %d: %w", f.Name, x, i, ErrShape)
			}
		}
	}
	return nil
}

// named lists the maps that a configuration has; biases that are nil are left out.
func (p *Projections) named(c Config) []Named {
	q, kv := c.Heads*c.Dim, c.keyHeads()*c.Dim
	l := []Named{{"q", &p.Q, []int{q, c.Hidden}}, {"k", &p.K, []int{kv, c.Hidden}}, {"v", &p.V, []int{kv, c.Hidden}}, {"o", &p.O, []int{c.Hidden, q}}}
	for _, b := range []Named{{"bq", &p.BQ, []int{q}}, {"bk", &p.BK, []int{kv}}, {"bv", &p.BV, []int{kv}}, {"bo", &p.BO, []int{c.Hidden}}} {
		if *b.Values != nil {
			l = append(l, b)
		}
	}
	return l
}

// device holds tensors of one device.
type device struct {
	dev     backend.Device
	stream  backend.Stream
	bufs    []tensor.Buffer
	weights []backend.Weight
}

// newDevice fails with backend.ErrUnsupported if the device has no archive ops.
func newDevice(dev backend.Device) (*device, error) {
	if dev == nil {
		return nil, fmt.Errorf("qcc: no device: %w", backend.ErrNoDevice)
	}
	s, err := dev.NewStream()
	if err != nil {
		return nil, fmt.Errorf("qcc: %w", err)
	}
	if _, ok := s.(backend.Archive); !ok {
		s.Close()
		return nil, fmt.Errorf("qcc: device %s has no archive attention: %w", dev.Name(), backend.ErrUnsupported)
	}
	return &device{dev: dev, stream: s}, nil
}

// upload puts values on the device; nil gives an invalid tensor.
func (d *device) upload(v []float32, dim ...int) (tensor.Tensor, error) {
	if v == nil {
		return tensor.Tensor{}, nil
	}
	b, err := d.dev.Alloc(4 * len(v))
	if err != nil {
		return tensor.Tensor{}, err
	}
	d.bufs = append(d.bufs, b)
	t, err := tensor.New(b, 0, tensor.F32, dim...)
	if err != nil {
		return t, err
	}
	d.stream.Write(t, tensor.AsBytes(v))
	return t, d.stream.Sync()
}

func (d *device) pack(v []float32, out, in int) (backend.Weight, error) {
	t, err := tensor.FromF32(v, out, in)
	if err != nil {
		return nil, err
	}
	w, err := d.dev.Pack(t, backend.UseLinear)
	if err == nil {
		d.weights = append(d.weights, w)
	}
	return w, err
}

func (d *device) close() {
	for _, b := range d.bufs {
		d.dev.Free(b)
	}
	for _, w := range d.weights {
		d.dev.Unpack(w)
	}
	d.bufs, d.weights = nil, nil
	d.stream.Close()
}

// digest hashes a configuration and parameters.
func digest(c Config, parts ...[]Named) [32]byte {
	h := sha256.New()
	d := c.Digest()
	h.Write(d[:])
	for _, l := range parts {
		for _, f := range l {
			fmt.Fprintf(h, "%s %v ", f.Name, f.Dim)
			b := make([]byte, 0, 4*len(*f.Values))
			for _, x := range *f.Values {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			h.Write(b)
		}
	}
	return [32]byte(h.Sum(nil))
}
