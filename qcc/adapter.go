package qcc

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"samebit/checkpoint"
	"samebit/nn"
	"samebit/state"
)

// Adapter is what a retrofit adds to a model, apart from any device: configuration
// and parameters. It never contains the model's weights.
type Adapter struct {
	Manifest Manifest
	Config   Config
	Layers   []int     // blocks of the model, rising
	Params   []*Params // of each
	Base     state.ID  // the model

	ExactPrefill bool // see [Retrofit.ExactPrefill]; a choice of whoever serves, not in files
}

// Manifest is what an adapter's file says about itself. Adapter.WriteTo fills in what
// follows from the adapter.
type Manifest struct {
	Format    string `json:"format"`
	BaseModel string `json:"base_model"`
	ModelID   string `json:"model_id,omitempty"`
	Revision  string `json:"revision,omitempty"`
	RunID     string `json:"run_id,omitempty"`

	ParameterCount    int64   `json:"parameter_count,omitempty"` // of the model, adapter included; 0: not known
	TrainableCount    int64   `json:"trainable_parameter_count"`
	TrainableFraction float64 `json:"trainable_parameter_fraction,omitempty"`

	Retrofit RetrofitManifest `json:"retrofit"`
	Digest   string           `json:"base_digest"` // of the model, hexadecimal
	Config   *Config          `json:"config"`
}

// RetrofitManifest has the published names of options and of how they were trained.
type RetrofitManifest struct {
	Window            int       `json:"window_size"`
	Codes             int       `json:"num_codes"`
	PositionInvariant bool      `json:"archive_position_invariant"`
	GlobalNorm        bool      `json:"archive_global_normalization"`
	Rank              int       `json:"archive_query_correction_rank"`
	KernelFeatures    bool      `json:"archive_kernel_features"`
	KV                KVPolicy  `json:"kv_head_policy"`
	GateBias          float64   `json:"gate_bias_init"`
	Layers            []int     `json:"patched_layers"`
	DecayRates        []float64 `json:"decay_rates"`

	Calibrated      []int              `json:"calibrated_layers,omitempty"`
	TrainChunks     int                `json:"num_train_chunks,omitempty"`
	HeldOutChunks   int                `json:"num_held_out_chunks,omitempty"`
	CodeInit        string             `json:"code_init,omitempty"`
	CodeInitTokens  int                `json:"code_init_tokens,omitempty"`
	AttentionWeight float64            `json:"attention_loss_weight,omitempty"`
	LongRangeOnly   bool               `json:"distill_long_range_only,omitempty"`
	Validation      map[string]float64 `json:"validation,omitempty"` // metrics of the step that was kept
}

// The formats of adapter files.
const (
	adapterFormat = "qcc-adapter/1"       // with archives
	deltaFormat   = "qcc-delta-adapter/1" // with gated-delta memories
)

// format is that of a configuration's adapter files.
func (c Config) format() string {
	if c.Memory == MemoryDelta {
		return deltaFormat
	}
	return adapterFormat
}

// NewAdapter draws the parameters that a retrofit of d begins with. A model whose
// layers are all replaced already gives an adapter without layers. It fails with
// ErrConfig.
func NewAdapter(d *nn.Decoder, r Retrofit, seed uint64) (*Adapter, error) {
	c, blocks, err := r.plan(d)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Config: c, Layers: blocks, Base: d.ID, ExactPrefill: r.ExactPrefill}
	for i := range blocks {
		p, err := NewParams(c, seed+uint64(i)*0x9e3779b97f4a7c15)
		if err != nil {
			return nil, err
		}
		a.Params = append(a.Params, p)
	}
	return a, nil
}

// check refuses an adapter that is not complete.
func (a *Adapter) check() error {
	if a == nil || len(a.Layers) == 0 || len(a.Params) != len(a.Layers) {
		return fmt.Errorf("qcc: an adapter without layers, or not with parameters for each: %w", ErrConfig)
	}
	if err := a.Config.Validate(); err != nil {
		return err
	}
	for i, p := range a.Params {
		if p == nil || i > 0 && a.Layers[i] <= a.Layers[i-1] || a.Layers[i] < 0 {
			return fmt.Errorf("qcc: layers %v of an adapter: want them rising, with parameters: %w", a.Layers, ErrConfig)
		}
		if err := p.check(a.Config); err != nil {
			return fmt.Errorf("layer %d: %w", a.Layers[i], err)
		}
	}
	return nil
}

// clone copies the parameters that a configuration has.
func (p *Params) clone(c Config) *Params {
	q := &Params{}
	to := q.Named(c)
	for i, f := range p.Named(c) {
		*to[i].Values = slices.Clone(*f.Values)
	}
	return q
}

// count is the number of all parameters.
func (a *Adapter) count() int64 { return int64(len(a.Layers)) * int64(a.Config.Count()) }

// WriteTo writes the adapter as a safetensors file: tensors layers.<block>.<name>,
// and the manifest as JSON under the key qcc of the header.
func (a *Adapter) WriteTo(w io.Writer) (int64, error) {
	if err := a.check(); err != nil {
		return 0, err
	}
	m, c := a.Manifest, a.Config
	m.Format, m.Digest, m.Config, m.TrainableCount = c.format(), hex.EncodeToString(a.Base[:]), &c, a.count()
	if m.ParameterCount > 0 {
		m.TrainableFraction = float64(m.TrainableCount) / float64(m.ParameterCount)
	}
	r := &m.Retrofit
	r.Window, r.Codes, r.PositionInvariant, r.GlobalNorm, r.Rank, r.KernelFeatures = c.Window, c.Codes, c.PositionInvariant, !c.PerCode, c.Rank, c.KernelCompat
	r.GateBias, r.Layers, r.DecayRates = c.GateBias, a.Layers, c.Decays()
	switch r.KV = KVReject; {
	case c.keyHeads() == c.Heads:
	case c.Share:
		r.KV = KVShare
	default:
		r.KV = KVRepeat
	}
	text, err := json.Marshal(m)
	if err != nil {
		return 0, fmt.Errorf("qcc: an adapter's manifest: %w", err)
	}
	var list []checkpoint.Entry
	for i, p := range a.Params {
		for _, f := range p.Named(c) {
			list = append(list, checkpoint.Entry{Name: tensorName(a.Layers[i], f.Name), Type: checkpoint.F32, Shape: f.Dim, Data: checkpoint.LittleEndian(*f.Values)})
		}
	}
	n := &counter{w: w}
	err = checkpoint.Write(n, list, map[string]string{"format": m.Format, "qcc": string(text)})
	return n.n, err
}

func tensorName(layer int, name string) string { return fmt.Sprintf("layers.%d.%s", layer, name) }

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// ReadAdapter reads what WriteTo wrote. Damaged and foreign files fail with
// checkpoint.ErrCorrupt, shapes that do not fit the configuration with ErrShape, an
// invalid configuration with ErrConfig. Tensors that may be missing get what
// NewAdapter would give them: the correction, maps, the exact tier, landmark_mix.
func ReadAdapter(r io.Reader) (*Adapter, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("qcc: reading an adapter: %w", err)
	}
	set, err := checkpoint.Parse("adapter", data)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	corrupt := func(format string, args ...any) error {
		return fmt.Errorf("qcc: adapter: "+format+": %w", append(args, checkpoint.ErrCorrupt)...)
	}
	head := set.Metadata()
	format := head["format"]
	if format != adapterFormat && format != deltaFormat {
		return nil, corrupt("format %q, want %q or %q", format, adapterFormat, deltaFormat)
	}
	a := &Adapter{}
	m := &a.Manifest
	dec := json.NewDecoder(bytes.NewReader([]byte(head["qcc"])))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, corrupt("manifest: %v", err)
	}
	base, err := hex.DecodeString(m.Digest)
	switch {
	case err != nil || len(base) != len(a.Base):
		return nil, corrupt("the digest %q of its model is not one", m.Digest)
	case m.Format != format || m.Config == nil || m.Config.format() != format:
		return nil, corrupt("its manifest is of format %q in a file of format %q, or has no such configuration", m.Format, format)
	}
	copy(a.Base[:], base)
	a.Config, a.Layers = *m.Config, m.Retrofit.Layers
	c := &a.Config
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if r := m.Retrofit.DecayRates; len(r) == c.Scales && !slices.Equal(r, c.Decays()) { // the file's own factors win
		c.Decay = r
		if err := c.Validate(); err != nil {
			return nil, err
		}
	} else if r != nil && len(r) != c.Scales {
		return nil, corrupt("%d decay rates for %d scales", len(r), c.Scales)
	}
	for i, l := range a.Layers {
		if l < 0 || i > 0 && l <= a.Layers[i-1] {
			return nil, corrupt("layers %v: want them rising", a.Layers)
		}
	}
	used, room := 0, max(mostDefaults, len(data))
	for _, l := range a.Layers {
		p := &Params{}
		for _, f := range p.Named(*c) {
			n, err := a.fill(set, l, f, &room)
			if err != nil {
				return nil, err
			}
			used += n
		}
		a.Params = append(a.Params, p)
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	if n := len(set.Names()); n != used {
		return nil, corrupt("%d tensors, of which its configuration has %d", n, used)
	}
	if n := a.count(); m.TrainableCount != n {
		return nil, corrupt("it says it has %d parameters and has %d", m.TrainableCount, n)
	}
	return a, nil
}

// mostDefaults is how many values a file may leave out in all its layers, if it does not
// have more bytes: nothing large is made because a header says so.
const mostDefaults = 1 << 22

// fill reads a parameter, or gives it what it begins with if there is room for so many
// values, and returns how many tensors it used.
func (a *Adapter) fill(set *checkpoint.Set, layer int, f Named, room *int) (int, error) {
	name := tensorName(layer, f.Name)
	info, ok := set.Info(name)
	if !ok {
		switch f.Name {
		case "codes", "mix_logits", "gate.weight", "gate.bias", "beta.weight", "beta.bias", "decay.weight", "decay.bias":
			return 0, fmt.Errorf("qcc: adapter: no tensor %s: %w", name, checkpoint.ErrCorrupt)
		}
		n := 1
		for _, d := range f.Dim {
			if n *= d; n > *room {
				return 0, fmt.Errorf("qcc: adapter: no tensor %s, and %v values are too many to begin with: a file of its size may leave out %d more: %w", name, f.Dim, *room, checkpoint.ErrCorrupt)
			}
		}
		*room -= n
		*f.Values = f.first(a.Config, uint64(layer))
		return 0, nil
	}
	if info.Type != checkpoint.F32 || !slices.Equal(info.Shape, f.Dim) {
		return 0, fmt.Errorf("qcc: adapter: tensor %s is %v%v, the configuration wants F32%v: %w", name, info.Type, info.Shape, f.Dim, ErrShape)
	}
	e, err := set.Tensor(name)
	if err == nil {
		*f.Values, err = e.Float32s()
	}
	return 1, err
}

// SaveAdapter writes the retrofit's adapter.
func (p *Patched) SaveAdapter(w io.Writer, m Manifest) error {
	_, err := p.Adapter(m).WriteTo(w)
	return err
}

// LoadAdapter is [ReadAdapter] and [Patched.Set]. After an error nothing has changed.
func (p *Patched) LoadAdapter(r io.Reader) (Manifest, error) {
	a, err := ReadAdapter(r)
	if err != nil {
		return Manifest{}, err
	}
	return a.Manifest, p.Set(a)
}
