package qcc

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// trace is one file of testdata/qcc; its README says what the fields mean.
type trace struct {
	ID, Kind  string
	Tags      []string
	Tolerance struct{ Float64, Float32 float64 }
	Config    json.RawMessage
	Params    json.RawMessage
	Inputs    json.RawMessage
	Expected  json.RawMessage
}

// array is a tensor of a trace; null stands for -Inf.
type array struct {
	Shape []int
	Data  []*float64
}

func (a *array) f64() []float64 {
	if a == nil {
		return nil
	}
	v := make([]float64, len(a.Data))
	for i, x := range a.Data {
		if v[i] = math.Inf(-1); x != nil {
			v[i] = *x
		}
	}
	return v
}

func (a *array) f32() []float32 {
	if a == nil {
		return nil
	}
	v := make([]float32, len(a.Data))
	for i, x := range a.f64() {
		v[i] = float32(x)
	}
	return v
}

type fields map[string]*array

func readTraces(t *testing.T, prefix string) []*trace {
	t.Helper()
	names, err := filepath.Glob("../testdata/qcc/" + prefix + "*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("no traces %s: %v", prefix, err)
	}
	var l []*trace
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		tr := &trace{}
		if err := json.Unmarshal(b, tr); err != nil {
			t.Fatalf("%s: %v", n, err)
		}
		l = append(l, tr)
	}
	return l
}

func (tr *trace) decode(t *testing.T, raw json.RawMessage, to any) {
	t.Helper()
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatalf("%s: %v", tr.ID, err)
	}
}

// traceConfig are the keys of a trace's config.
type traceConfig struct {
	DModel      int       `json:"d_model"`
	NumHeads    int       `json:"num_heads"`
	HeadDim     int       `json:"head_dim"`
	Window      int       `json:"window_size"`
	Codes       int       `json:"num_codes"`
	Scales      int       `json:"num_scales"`
	MaxPosition int       `json:"max_position"`
	Decay       []float64 `json:"decay"`
	Explicit    bool      `json:"decay_explicit"`
	UseArchive  bool      `json:"use_archive"`
	RopeTheta   *float64  `json:"rope_theta"`
	RotaryDim   *int      `json:"rotary_dim"`
	RopeScaling float64   `json:"rope_scaling"`
	Invariant   bool      `json:"position_invariant"`
	Lexical     bool      `json:"lexical"`
	Active      *int      `json:"active_codes"`
	Lazy        bool      `json:"lazy_decay"`
	Threshold   *float64  `json:"content_threshold"`
	Kernel      bool      `json:"kernel_features"`
	Sinks       int       `json:"sink_size"`
	Global      bool      `json:"global_norm"`
	Sparse      string    `json:"sparse_read"`
	Rank        int       `json:"correction_rank"`
	ActiveQuery bool      `json:"active_query_correction"`
	Stride      int       `json:"read_stride"`
	Stale       bool      `json:"stale_reads"`
	Cosine      *float64  `json:"read_cosine"`
	NormGating  bool      `json:"norm_gating"`
	ArchiveMix  *float64  `json:"archive_mix"`
	Persistent  bool      `json:"persistent_landmark"`
	Prefix      bool      `json:"prefix_landmark"`
	Pair        bool      `json:"prefix_pair_landmark"`
	LandTemp    float64   `json:"landmark_temperature"`
	Exact       *struct {
		Sets, Ways   int
		Probe        *int
		Policy       string
		Threshold    float64
		Confidence   float64
		Temp         float64 `json:"confidence_temperature"`
		QualityFirst bool    `json:"quality_first"`
		MassMerge    bool    `json:"mass_merge"`
		Hard         bool
		Diversity    float64 `json:"diversity_weight"`
	}
	Vocab, Layers int
	Position      string
}

func (c *traceConfig) config() Config {
	f := DefaultConfig(c.DModel, c.NumHeads)
	f.Dim, f.Window, f.Codes, f.Scales, f.MaxPosition, f.NoArchive = c.HeadDim, c.Window, c.Codes, c.Scales, c.MaxPosition, !c.UseArchive
	if c.Explicit {
		f.Decay = c.Decay
	}
	if c.RopeTheta != nil {
		f.RoPE = &RoPE{Theta: *c.RopeTheta, Factor: c.RopeScaling}
		if c.RotaryDim != nil {
			f.RoPE.Dim = *c.RotaryDim
		}
	}
	f.PositionInvariant, f.Lexical, f.LazyDecay, f.Threshold, f.KernelCompat = c.Invariant, c.Lexical, c.Lazy, c.Threshold, c.Kernel
	if c.Active != nil {
		f.ActiveCodes = *c.Active
	}
	f.Sinks, f.PerCode, f.SparseRead, f.Rank, f.ActiveQuery = c.Sinks, !c.Global, SparseRead(c.Sparse), c.Rank, c.ActiveQuery
	f.ReadStride, f.StaleReads, f.ReadCloseness, f.NormGating, f.Remote, f.LandmarkTemp = c.Stride, c.Stale, c.Cosine, c.NormGating, c.ArchiveMix, c.LandTemp
	switch {
	case c.Pair:
		f.Landmarks = LandmarksPrefixPair
	case c.Prefix:
		f.Landmarks = LandmarksPrefix
	case c.Persistent:
		f.Landmarks = LandmarksPersistent
	}
	if e := c.Exact; e != nil {
		x := DefaultExact()
		x.Sets, x.Ways, x.FIFO, x.Soft, x.MassMerge, x.QualityFirst = e.Sets, e.Ways, e.Policy == "fifo", !e.Hard, e.MassMerge, e.QualityFirst
		if e.Probe != nil {
			x.Probe = *e.Probe
		}
		x.Threshold, x.Confidence, x.ConfidenceTemp, x.DiversityWeight = e.Threshold, e.Confidence, e.Temp, e.Diversity
		f.Exact = x
	}
	return f
}

func traceParams(p fields) (*Projections, *Params) {
	return &Projections{Q: p["wq"].f32(), K: p["wk"].f32(), V: p["wv"].f32(), O: p["wo"].f32(), BQ: p["bq"].f32(), BK: p["bk"].f32(), BV: p["bv"].f32(), BO: p["bo"].f32()},
		&Params{Gate: p["wg"].f32(), GateBias: p["bg"].f32(), Codes: p["codes"].f32(), Mix: p["mix_logits"].f32(),
			CorrV: p["corr_v"].f32(), CorrU: p["corr_u"].f32(), CorrScale: p["corr_scale"].f32(), LandmarkMix: p["landmark_mix"].f32(),
			AdmKey: p["adm_key"].f32(), AdmValue: p["adm_value"].f32(), AdmBias: p["adm_bias"].f32(), ExactMix: p["exact_mix"].f32(), SetCodes: p["set_codes"].f32()}
}

// near compares by the rule of the traces: |got - want| <= tol·(1 + |want|).
func near[F float32 | float64](t *testing.T, what string, got []F, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	worst, at := 0.0, -1
	for i, w := range want {
		g := float64(got[i])
		if math.IsInf(w, -1) {
			if g != w {
				t.Errorf("%s: index %d is %v, want -Inf", what, i, g)
				return
			}
			continue
		}
		if e := math.Abs(g-w) / (1 + math.Abs(w)); !(e <= worst) {
			worst, at = e, i
		}
	}
	if !(worst <= tol) {
		t.Errorf("%s: index %d is %v, want %v: off by %.3g, allowed %.3g", what, at, got[at], want[at], worst, tol)
	}
}
