package qcc

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/state"
)

func ptr(v float64) *float64 { return &v }

func TestValidate(t *testing.T) {
	if err := DefaultConfig(256, 8).Validate(); err != nil {
		t.Error(err)
	}
	if err := RetrofitConfig(1024, 16, 8, 128, 0).Validate(); err != nil {
		t.Error(err)
	}
	if err := RegistryConfig(4, 8).Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		why string
		f   func(c *Config)
	}{
		{"zero value", func(c *Config) { *c = Config{} }},
		{"heads that do not divide", func(c *Config) { c.KV = 3 }},
		{"no window", func(c *Config) { c.Window = 0 }},
		{"no codes", func(c *Config) { c.Codes = 0 }},
		{"no scales", func(c *Config) { c.Scales = 0 }},
		{"no longest half-life", func(c *Config) { c.MaxPosition = 0 }},
		{"a stride below 1", func(c *Config) { c.ReadStride = -1 }},
		{"decay of 1", func(c *Config) { c.Decay = []float64{0.5, 0.5, 0.5, 1} }},
		{"decay of 0", func(c *Config) { c.Decay = []float64{0, 0.5, 0.5, 0.5} }},
		{"decay that rounds to 1", func(c *Config) { c.Decay = []float64{0.5, 0.5, 0.5, 1 - 1e-12} }},
		{"decay that is no number", func(c *Config) { c.Decay = []float64{0.5, 0.5, 0.5, math.NaN()} }},
		{"three decays for four scales", func(c *Config) { c.Decay = []float64{0.5, 0.5, 0.5} }},
		{"more active codes than there are", func(c *Config) { c.ActiveCodes = c.Codes + 1 }},
		{"negative active codes", func(c *Config) { c.ActiveCodes = -1 }},
		{"lazy decay without active codes", func(c *Config) { c.LazyDecay = true }},
		{"lazy decay with kernel features", func(c *Config) { c.LazyDecay, c.ActiveCodes, c.KernelCompat = true, 2, true }},
		{"an unknown sparse read", func(c *Config) { c.SparseRead = "some" }},
		{"unknown landmarks", func(c *Config) { c.Landmarks = "pair" }},
		{"a threshold that is no number", func(c *Config) { c.Threshold = ptr(math.NaN()) }},
		{"an infinite threshold", func(c *Config) { c.Threshold = ptr(math.Inf(-1)) }},
		{"an infinite gate bias", func(c *Config) { c.GateBias = math.Inf(1) }},
		{"a landmark temperature of 0", func(c *Config) { c.LandmarkTemp = 0 }},
		{"an infinite landmark temperature", func(c *Config) { c.LandmarkTemp = math.Inf(1) }},
		{"a negative rank", func(c *Config) { c.Rank = -1 }},
		{"a live correction without rank", func(c *Config) { c.Rank, c.ActiveQuery = 0, true }},
		{"an odd rotary width", func(c *Config) { c.RoPE = &RoPE{Theta: 1e4, Dim: 3} }},
		{"a rotary width above the head's", func(c *Config) { c.RoPE = &RoPE{Theta: 1e4, Dim: c.Dim + 2} }},
		{"no rotary base", func(c *Config) { c.RoPE = &RoPE{} }},
		{"more sinks than the window", func(c *Config) { c.Sinks = c.Window + 1 }},
		{"negative sinks", func(c *Config) { c.Sinks = -1 }},
		{"a mix above 1", func(c *Config) { c.Remote = ptr(1.5) }},
		{"a cosine above 1", func(c *Config) { c.ReadCloseness = ptr(1.1) }},
		{"lexical addresses of shared keys", func(c *Config) { c.Lexical, c.KV = true, 1 }},
		{"an exact tier with active codes", func(c *Config) { c.Exact, c.ActiveCodes = DefaultExact(), 2 }},
		{"an exact tier with lazy decay", func(c *Config) { c.Exact, c.ActiveCodes, c.LazyDecay = DefaultExact(), 2, true }},
		{"an exact tier with lexical addresses", func(c *Config) { c.Exact, c.Lexical = DefaultExact(), true }},
		{"an exact tier of a shared archive", func(c *Config) { c.Exact, c.Share, c.KV = DefaultExact(), true, 1 }},
		{"an exact tier without an archive", func(c *Config) { c.Exact, c.NoArchive = DefaultExact(), true }},
		{"negative sets", func(c *Config) { c.Exact = &Exact{Sets: -1} }},
		{"more probes than sets", func(c *Config) { c.Exact = &Exact{Sets: 2, Probe: 3} }},
		{"quality first in order of arrival", func(c *Config) { c.Exact = &Exact{QualityFirst: true, FIFO: true} }},
		{"a confidence that is no number", func(c *Config) { c.Exact = &Exact{Confidence: math.NaN()} }},
		{"sizes beyond all memory", func(c *Config) { c.Window = 1 << 40 }},
		{"an unknown memory", func(c *Config) { c.Memory = "tape" }},
		{"a gated-delta memory with codes", func(c *Config) { c.Memory = MemoryDelta }},
		{"a gated-delta memory with an exact tier", func(c *Config) { *c = deltaSmall(); c.Exact = DefaultExact() }},
		{"a shared gated-delta memory", func(c *Config) { *c = deltaSmall(); c.Share = true }},
		{"a gated-delta memory with a correction", func(c *Config) { *c = deltaSmall(); c.Rank = 2 }},
		{"a map of negative rank", func(c *Config) { c.AddressRank = -1 }},
		{"a map of addresses without an archive", func(c *Config) { c.NoArchive, c.AddressRank = true, 2 }},
		{"a map of addresses beside landmarks", func(c *Config) { c.Landmarks, c.AddressRank = LandmarksPersistent, 2 }},
	} {
		f := DefaultConfig(32, 4)
		c.f(&f)
		if err := f.Validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", c.why, err)
		}
		if _, err := NewParams(f, 1); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: parameters: %v, want ErrConfig", c.why, err)
		}
	}
}

// The published sizes and schedules.
func TestAccountingTrace(t *testing.T) {
	tr := readTraces(t, "acc")[0]
	var want struct {
		State []struct {
			Label string
			Args  struct {
				Layers, Heads, Window, Codes, Scales int
				HeadDim                              int `json:"head_dim"`
				Lexical, Lazy, Landmark              bool
			}
			Elements int64
			Length   int64
			Full     int64 `json:"full_kv_elements"`
			Percent  float64
		}
		Adapters []struct {
			Args struct {
				Layers, Heads, Codes, Rank int
				HeadDim                    int `json:"head_dim"`
				DModel                     int `json:"d_model"`
			}
			Parameters int
		}
		Schedules []struct {
			Window, Scales int
			MaxPosition    int `json:"max_position"`
			Decay          []float64
		} `json:"decay_schedules"`
	}
	tr.decode(t, tr.Expected, &want)
	for _, w := range want.State {
		c := DefaultConfig(w.Args.Heads*w.Args.HeadDim, w.Args.Heads)
		c.Window, c.Codes, c.Lexical, c.LazyDecay = w.Args.Window, w.Args.Codes, w.Args.Lexical, w.Args.Lazy
		if w.Args.Scales > 0 {
			c.Scales = w.Args.Scales
		}
		if w.Args.Landmark {
			c.Landmarks = LandmarksPersistent
		}
		n := c.Elements(w.Args.Layers)
		if n != w.Elements {
			t.Errorf("%s: %d elements, want %d", w.Label, n, w.Elements)
		}
		if full := 2 * int64(w.Args.Layers*w.Args.Heads*w.Args.HeadDim) * w.Length; w.Full > 0 && (full != w.Full || math.Abs(100*float64(n)/float64(full)-w.Percent) > 1e-9) {
			t.Errorf("%s: %d of %d, want %v %% of %d", w.Label, n, full, w.Percent, w.Full)
		}
	}
	for _, w := range want.Adapters {
		c := DefaultConfig(w.Args.DModel, w.Args.Heads)
		c.Dim, c.Codes, c.Rank = w.Args.HeadDim, w.Args.Codes, w.Args.Rank
		if n := w.Args.Layers * c.Count(); n != w.Parameters {
			t.Errorf("%d parameters, want %d", n, w.Parameters)
		}
	}
	for _, w := range want.Schedules {
		c := DefaultConfig(8, 1)
		c.Window, c.Scales, c.MaxPosition = w.Window, w.Scales, w.MaxPosition
		near(t, "decay", c.Decays(), w.Decay, 1e-15)
		for i, h := range c.HalfLives() {
			if d := math.Pow(c.Decays()[i], h); math.Abs(d-0.5) > 1e-9 {
				t.Errorf("after %v tokens %v is left", h, d)
			}
		}
	}
}

// What a state really takes is what its pool has given, and what each part says.
func TestAccount(t *testing.T) {
	c := DefaultConfig(24, 3)
	c.Window, c.Sinks, c.RoPE, c.PositionInvariant, c.Landmarks, c.Exact = 70, 3, &RoPE{Theta: 1e4}, true, LandmarksPersistent, &Exact{Sets: 3, Ways: 2, MassMerge: true}
	pr, p := layerOf(t, c)
	l, err := New(ref.New(), c, pr, p)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	st, err := l.NewState()
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 40*c.Hidden)
	sizes := map[int64]bool{}
	for range 20 {
		if err := l.Chunk(t.Context(), x, st, Block{Hidden: x}); err != nil {
			t.Fatal(err)
		}
		a := st.Account()
		if a.Window+a.Archive != st.Bytes() || st.Bytes() != l.pool.Bytes() {
			t.Errorf("%d + %d bytes, the state says %d, its pool %d", a.Window, a.Archive, st.Bytes(), l.pool.Bytes())
		}
		if st.Len() > 200 {
			sizes[a.Window+a.Archive] = true
		}
		if st.Len() >= c.Window {
			want := int64(4 * c.Window * 24)
			if a.Parts["local_keys"] != want || a.Parts["local_values"] != want || a.Parts["addresses"] != want || a.Parts["sink_keys"] != 4*3*24 {
				t.Errorf("parts %v", a.Parts)
			}
			if a.Parts["numerator"] != 4*3*16*4*8 || a.Parts["denominator"] != 4*3*16*4 || a.Parts["bank_key"] != 4*3*6*8 || a.Parts["landmark_score"] != 4*3*16 {
				t.Errorf("parts %v", a.Parts)
			}
			if a.Published != int64(3*16*4*9+3*16*17+2*3*70*8) || a.FullKV != int64(2*24*st.Len()) {
				t.Errorf("published %d, full %d", a.Published, a.FullKV)
			}
		}
	}
	if len(sizes) > 3 { // pages come and go as their boundaries pass
		t.Errorf("a full window takes %v bytes", sizes)
	}
	st.Release()
	if n := l.pool.Bytes(); n != 0 {
		t.Errorf("%d bytes after the release", n)
	}
}

// layerOf draws the parameters of a layer.
func layerOf(t *testing.T, c Config) (*Projections, *Params) {
	t.Helper()
	p, err := NewParams(c, 3)
	if err != nil {
		t.Fatal(err)
	}
	pr := &Projections{}
	for _, f := range pr.named(c)[:4] {
		*f.Values = make([]float32, f.Size())
		Uniform(*f.Values, 4, f.Name, 0.3)
	}
	return pr, p
}

// poor is a device without archive attention.
type poor struct{ backend.Device }

func (d poor) NewStream() (backend.Stream, error) {
	s, err := d.Device.NewStream()
	return struct{ backend.Stream }{s}, err
}

func TestOpenErrors(t *testing.T) {
	c := DefaultConfig(12, 2)
	pr, p := layerOf(t, c)
	if _, err := New(poor{ref.New()}, c, pr, p); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("a device without the ops: %v", err)
	}
	if _, err := New(nil, c, pr, p); !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	if _, err := New(ref.New(), c, nil, p); !errors.Is(err, ErrShape) {
		t.Errorf("no projections: %v", err)
	}
	if _, err := New(ref.New(), c, pr, nil); !errors.Is(err, ErrShape) {
		t.Errorf("no parameters: %v", err)
	}
	q := *p
	q.Codes = q.Codes[1:]
	if _, err := New(ref.New(), c, pr, &q); !errors.Is(err, ErrShape) {
		t.Errorf("short codes: %v", err)
	}
	q = *p
	q.Mix = append([]float32(nil), p.Mix...)
	q.Mix[3] = float32(math.NaN())
	if _, err := New(ref.New(), c, pr, &q); !errors.Is(err, ErrShape) {
		t.Errorf("parameters that are no numbers: %v", err)
	}
	if _, err := NewState(nil, state.ID{}, c, 1); !errors.Is(err, ErrConfig) {
		t.Errorf("no pool: %v", err)
	}
}

// A digest follows what decides bits and nothing else.
func TestDigest(t *testing.T) {
	a := DefaultConfig(32, 4)
	b := a
	b.KV, b.ReadStride, b.Decay = 4, 0, a.Decays()
	if a.Digest() != b.Digest() {
		t.Error("what is written out has another digest than what is left out")
	}
	b = a
	b.Window++
	c := a
	c.Remote = ptr(0.5)
	if a.Digest() == b.Digest() || a.Digest() == c.Digest() {
		t.Error("other configurations have the same digest")
	}
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var d Config
	if err := json.Unmarshal(raw, &d); err != nil || d.Digest() != a.Digest() {
		t.Errorf("read back: %v", err)
	}
}
