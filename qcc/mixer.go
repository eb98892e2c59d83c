package qcc

import (
	"fmt"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/nn"
	"samebit/tensor"
)

// Mixer is attention over a window and a memory as a decoder's block has it. Its
// state is a [State], or a stack that holds a state.Window and a state.Archive, with
// MemoryDelta a state.Delta.
type Mixer struct {
	Layer  int // ordinal among the layers with an archive
	Config Config

	Q, K, V, O     backend.Weight // Q has twice the outputs when Gated
	BQ, BK, BV, BO tensor.Tensor  // biases, invalid for none
	QNorm, KNorm   tensor.Tensor  // [Dim], invalid for none
	Eps            float32
	RoPE           *backend.RoPE
	Gated          bool // as nn.Attention's

	Gate, GateBias tensor.Tensor // [Heads, Hidden], [Heads]; invalid with a constant mix
	Archive        backend.ArchiveParams
	Exact          *backend.ExactParams
	Read           AddressMap  // of the memory's queries
	Delta          DeltaParams // of a gated-delta memory

	full *fullAttention // nil: the layer is bounded
}

// AddressMap is a linear map x + (x·V)·U of addresses, per head; the zero value moves
// nothing.
type AddressMap struct{ V, U tensor.Tensor } // [A, Dim, N], [A, N, Dim]

// OpenMixer puts a layer's parameters on a device; layer counts those that share a
// state. It fails with backend.ErrUnsupported if the device has no archive
// attention, with ErrConfig or ErrShape if something does not fit. The rotation is
// the configuration's.
func OpenMixer(dev backend.Device, layer int, c Config, pr *Projections, p *Params) (m *Mixer, close func(), err error) {
	if pr == nil {
		return nil, nil, fmt.Errorf("qcc: a mixer needs projections: %w", ErrShape)
	}
	m, d, err := openMixer(dev, layer, c, pr, p)
	if err != nil {
		return nil, nil, err
	}
	return m, d.close, nil
}

// openMixer is OpenMixer; without projections it only attends.
func openMixer(dev backend.Device, layer int, c Config, pr *Projections, p *Params) (*Mixer, *device, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	if p == nil {
		return nil, nil, fmt.Errorf("qcc: no parameters: %w", ErrShape)
	}
	if err := p.check(c); err != nil {
		return nil, nil, err
	}
	d, err := newDevice(dev)
	if err != nil {
		return nil, nil, err
	}
	m := &Mixer{Layer: layer, Config: c}
	if m.RoPE, err = c.table(); err == nil {
		err = m.bind(d, p)
	}
	if err == nil && pr != nil {
		err = m.project(d, pr)
	}
	if err != nil {
		d.close()
		return nil, nil, err
	}
	return m, d, nil
}

// bind fills in what follows from the configuration and uploads the parameters.
func (m *Mixer) bind(d *device, p *Params) error {
	c := m.Config
	scale := canon.InvSqrt(c.Dim)
	window := backend.WindowParams{Scale: scale, Window: c.Window, Sinks: c.Sinks}
	if c.NoArchive {
		window.Sinks = 0
	}
	m.Archive = backend.ArchiveParams{
		WindowParams: window, Active: c.ActiveCodes, Lazy: c.LazyDecay, PerCode: c.PerCode,
		SparsePerCode: c.SparseRead == SparsePerCode || c.SparseRead == SparseAuto && c.PerCode,
		Features:      c.KernelCompat, Landmarks: landmarkModes[c.Landmarks], LandmarkTemp: float32(c.LandmarkTemp), Lexical: c.Lexical,
		Reuse: c.Reuses(), Stride: max(1, c.ReadStride),
	}
	if c.Threshold != nil {
		m.Archive.Gated, m.Archive.Threshold = true, float32(*c.Threshold)
	}
	if c.ReadCloseness != nil {
		m.Archive.Close, m.Archive.Closeness = true, float32(*c.ReadCloseness)
	}
	for _, r := range c.Decays() {
		f := float32(r)
		m.Archive.Decay = append(m.Archive.Decay, f)
		m.Archive.Gain = append(m.Archive.Gain, float32(canon.Power(float64(f), c.Window)))
	}
	if c.Exact != nil {
		e := c.Exact.resolved()
		m.Exact = &backend.ExactParams{
			WindowParams: window, Sets: e.Sets, Ways: e.Ways, Probe: e.Probe, FIFO: e.FIFO, Soft: e.Soft, Mass: e.MassMerge, QualityFirst: e.QualityFirst,
			Threshold: float32(e.Threshold), Confidence: float32(e.Confidence), ConfidenceTemp: float32(e.ConfidenceTemp),
			Admission: float32(e.AdmissionWeight), Diversity: float32(e.DiversityWeight), Recency: float32(e.RecencyWeight), SoftTemp: float32(e.SoftTemp),
		}
	}
	if c.Memory == MemoryDelta {
		one := make([]float32, c.Heads)
		fill(one, 1)
		var err error
		if m.Delta.one, err = d.upload(one, c.Heads); err != nil {
			return err
		}
	}
	to := m.tensors()
	for _, f := range p.Named(c) {
		t, err := d.upload(*f.Values, f.Dim...)
		if err != nil {
			return err
		}
		*to[f.Name] = t
	}
	return nil
}

// tensors says where each parameter lies, by its name in adapter files.
func (m *Mixer) tensors() map[string]*tensor.Tensor {
	a := &m.Archive
	to := map[string]*tensor.Tensor{
		"codes": &a.Codes, "mix_logits": &a.Mix, "corr_v": &a.CorrV, "corr_u": &a.CorrU,
		"corr_scale": &a.CorrScale, "landmark_mix": &a.LandmarkMix, "gate.weight": &m.Gate, "gate.bias": &m.GateBias,
		"read_v": &m.Read.V, "read_u": &m.Read.U,
	}
	if m.Config.Memory == MemoryDelta {
		x := &m.Delta
		to["write_v"], to["write_u"] = &x.Write.V, &x.Write.U
		to["beta.weight"], to["beta.bias"], to["decay.weight"], to["decay.bias"] = &x.Beta, &x.BetaBias, &x.Decay, &x.DecayBias
	}
	if e := m.Exact; e != nil {
		to["adm_key"], to["adm_value"], to["adm_bias"] = &e.AdmKey, &e.AdmValue, &e.AdmBias
		to["exact_mix"], to["set_codes"] = &e.Mix, &e.SetCodes
	}
	return to
}

// Tensor is where a parameter lies, by its name in files; what the configuration does
// not have is invalid.
func (m *Mixer) Tensor(name string) tensor.Tensor {
	if t := m.tensors()[name]; t != nil {
		return *t
	}
	return tensor.Tensor{}
}

// table is the rotation of a configuration.
func (c Config) table() (*backend.RoPE, error) {
	if c.RoPE == nil {
		return nil, nil
	}
	if c.RoPE.Model {
		return nil, fmt.Errorf("qcc: a rotation that is a model's own: retrofit the model: %w", ErrConfig)
	}
	width := c.RoPE.Dim
	if width == 0 {
		width = c.Dim &^ 1
	}
	r, err := backend.NewRoPE(c.RoPE.Theta, width, backend.Scaling{}, nil)
	if err == nil && c.RoPE.Factor != 0 {
		r.Factor = float32(c.RoPE.Factor)
	}
	return r, err
}

// Mix writes the layer's output dst from x, both [R, Hidden]. With lexical
// addressing the hint is x.
func (m *Mixer) Mix(c *nn.Ctx, dst, x tensor.Tensor) { m.MixHint(c, dst, x, x) }

// MixHint is Mix with the hint of lexical addressing, [R, Hidden].
func (m *Mixer) MixHint(c *nn.Ctx, dst, x, hint tensor.Tensor) {
	s, n, f := c.Stream, x.Dim(0), &m.Config
	kv := f.keyHeads()
	qw := f.Heads * f.Dim
	if m.Gated {
		qw *= 2
	}
	q, k, v := c.Tmp(n, qw), c.Tmp(n, kv*f.Dim), c.Tmp(n, kv*f.Dim)
	c.Linears(x, nn.Product{Dst: q, W: m.Q, B: m.BQ}, nn.Product{Dst: k, W: m.K, B: m.BK}, nn.Product{Dst: v, W: m.V, B: m.BV})
	query := q.Heads(f.Heads, qw/f.Heads)
	gate := query.Cols(qw/f.Heads-f.Dim, qw/f.Heads)

	var in rows
	in.v = v.Heads(kv, f.Dim)
	in.q, in.address = m.rotate(c, query.Cols(0, f.Dim), f.Heads, m.QNorm, f.ActiveQuery)
	in.k, in.raw = m.rotate(c, k.Heads(kv, f.Dim), kv, m.KNorm, false)
	if m.full != nil && f.ActiveQuery { // which moves queries of the layer, not of the model
		in.uncorrected, _ = m.rotate(c, query.Cols(0, f.Dim), f.Heads, m.QNorm, false)
	}
	if !f.PositionInvariant {
		in.address = in.q
	}
	if f.Memory == MemoryDelta {
		in.delta = m.deltaRows(c, x, in)
	}
	if f.Lexical {
		in.address, in.raw = hint.Heads(f.Heads, f.Dim), hint.Heads(f.Heads, f.Dim)
	}
	if !f.addresses() {
		in.raw = tensor.Tensor{}
	}
	if m.Gate.Valid() {
		y := c.Tmp(n, f.Heads)
		in.gate = c.Tmp(n, f.Heads)
		s.Project(y, x, m.Gate)
		s.AddBias(in.gate, y, m.GateBias)
	}
	out := m.attend(c, in)
	if c.Probe != nil {
		c.Probe(c, m.Layer, in.q, m.Archive.Scale)
	}
	if m.Gated {
		g := like(c, out)
		s.SigmoidMul(g, out, gate)
		out = g
	}
	c.Linears(out.Reshape(n, f.Heads*f.Dim), nn.Product{Dst: dst, W: m.O, B: m.BO})
}

// rotate normalises, corrects and rotates heads; plain is what comes before the
// rotation.
func (m *Mixer) rotate(c *nn.Ctx, x tensor.Tensor, heads int, norm tensor.Tensor, correct bool) (y, plain tensor.Tensor) {
	tmp := func() tensor.Tensor { return c.Tmp(x.Dim(0), heads*m.Config.Dim).Heads(heads, m.Config.Dim) }
	plain = x
	if norm.Valid() {
		plain = tmp()
		c.Stream.NormRoPE(plain, x, norm, m.Eps, nil, c.Plan)
	}
	if correct {
		t := tmp()
		if a, ok := c.Stream.(backend.Archive); ok {
			a.QueryCorrection(t, plain, m.Archive.CorrV, m.Archive.CorrU)
		}
		plain = t
	}
	if m.RoPE == nil {
		return plain, plain
	}
	y = tmp()
	c.Stream.NormRoPE(y, plain, tensor.Tensor{}, 0, m.RoPE, c.Plan)
	return y, plain
}

// rows are the projected rows of a pass: queries and gate logits per query head,
// keys, values and addresses per key head.
type rows struct {
	q, k, v      tensor.Tensor // rotated
	address, raw tensor.Tensor // the archive's query and, if it is not the key, its key
	gate         tensor.Tensor // [R, Heads], invalid for none
	delta        deltaRows

	uncorrected tensor.Tensor // rotated queries of full attention, if they are not q
}

// attend writes the rows and reads them, and returns [R, Heads, Dim].
func (m *Mixer) attend(c *nn.Ctx, in rows) tensor.Tensor {
	f := &m.Config
	n := in.q.Dim(0)
	tmp := func() tensor.Tensor { return like(c, in.q) }
	a, ok := c.Stream.(backend.Archive)
	if !ok { // refused when a layer is opened; a stream that lost them fails
		c.Stream.Add(tensor.Tensor{}, tensor.Tensor{}, tensor.Tensor{})
		return tmp()
	}
	w := &m.Archive
	local := tmp()
	a.PutWindow(c.Plan, m.Layer, in.k, in.v, in.raw)
	if f.NoArchive {
		a.WindowAttention(local, tensor.Tensor{}, in.q, c.Plan, m.Layer, w.WindowParams)
		return local
	}
	if m.full != nil {
		q := in.uncorrected
		if !q.Valid() {
			q = in.q
		}
		c.Stream.PutKV(c.Plan, m.full.layer, in.k, in.v)
		c.Stream.Attention(local, q, c.Plan, m.full.layer, w.Scale, 0)
		m.remember(c, a, in)
		if m.Exact != nil {
			a.ExactTier(tmp(), c.Tmp(n, f.Heads), in.q, c.Plan, m.Layer, m.Exact)
		}
		return local
	}
	mass := tensor.Tensor{}
	if m.Exact != nil && m.Exact.Mass {
		mass = c.Tmp(n, f.Heads)
	}
	a.WindowAttention(local, mass, in.q, c.Plan, m.Layer, w.WindowParams)
	remote := m.remember(c, a, in)
	promote := tensor.Tensor{}
	if m.Exact != nil {
		exact, weight := tmp(), c.Tmp(n, f.Heads)
		a.ExactTier(exact, weight, in.q, c.Plan, m.Layer, m.Exact)
		if m.Exact.Mass {
			out := tmp()
			a.MassMerge(out, local, mass, exact, weight)
			return out
		}
		y := tmp()
		a.Blend(y, remote, exact, weight)
		remote = y
		if m.Exact.QualityFirst {
			promote = weight
		}
	}
	g := backend.GateParams{From: f.From(), Norm: f.NormGating}
	gate := in.gate
	switch {
	case f.prefix(): // the prefix is looked up, nothing else
		g.Remote, gate = 1, tensor.Tensor{}
	case f.Remote != nil:
		g.Remote = float32(*f.Remote)
	}
	out := tmp()
	a.GateMix(out, local, remote, gate, promote, c.Plan, g)
	return out
}

// remember writes the rows into the memory and reads it, and returns [R, Heads, Dim].
func (m *Mixer) remember(c *nn.Ctx, a backend.Archive, in rows) tensor.Tensor {
	q := moved(c, a, in.address, m.Read)
	dst := like(c, q)
	if m.Config.Memory == MemoryDelta {
		m.deltaRule(c, a, dst, q, in)
	} else {
		a.ArchiveScan(dst, q, c.Plan, m.Layer, &m.Archive)
	}
	return dst
}

// moved is x under a map.
func moved(c *nn.Ctx, a backend.Archive, x tensor.Tensor, by AddressMap) tensor.Tensor {
	if !by.V.Valid() {
		return x
	}
	y := like(c, x)
	a.QueryCorrection(y, x, by.V, by.U)
	return y
}

// like is scratch for heads as x has them.
func like(c *nn.Ctx, x tensor.Tensor) tensor.Tensor {
	return c.Tmp(x.Dim(0), x.Dim(1)*x.Dim(2)).Heads(x.Dim(1), x.Dim(2))
}
