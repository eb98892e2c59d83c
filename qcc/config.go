// Package qcc is attention of constant memory: an exact window of the last tokens
// and an archive of fixed size for those that have left it.
//
// A token enters the archive at the moment it leaves the window. The archive keeps,
// per head, code and time scale, a decayed sum of values and of weights; a read
// weighs them with the query's own scores against the same codes. It approximates
// softmax attention over the past and does not compute it: an archive whose codes
// were not trained returns little more than a decayed mean of the old values.
//
// Instead of an archive a layer may have a matrix per head that the gated delta rule
// writes ([MemoryDelta]).
//
// A [Layer] is one attention layer by itself, a [Registry] serves one layer's
// archive to many requests, a [Mixer] puts the layer into a decoder. All give the
// same bits however a text is cut into steps and chunks (docs/numerics.md 16).
// [Compile] is another way to fixed memory: it keeps chosen rows of an exact cache.
package qcc

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"samebit/backend"
)

var (
	// ErrConfig is the cause when a configuration breaks a rule.
	ErrConfig = errors.New("invalid configuration")
	// ErrShape is the cause when rows or parameters do not fit the configuration.
	ErrShape = errors.New("shapes do not fit")
	// ErrDigest is the cause when a state or an adapter belongs to another layer or model.
	ErrDigest = errors.New("made for another layer or model")
	// ErrContextLimit is the cause when a text is longer than a layer can take.
	ErrContextLimit = errors.New("context limit reached")
	// ErrUnknownRequest is the cause when a request id is not registered.
	ErrUnknownRequest = errors.New("unknown request")
	// ErrDuplicateRequest is the cause when one call names a request twice.
	ErrDuplicateRequest = errors.New("request named twice in one call")
)

// SparseRead says how a read of fewer codes than there are divides.
type SparseRead string

const (
	SparseAuto    SparseRead = ""         // as dense reads
	SparseGlobal  SparseRead = "global"   // once, over codes and scales
	SparsePerCode SparseRead = "per_code" // per code and scale
)

// Landmarks says which events are kept as they are, one per code.
type Landmarks string

const (
	LandmarksNone       Landmarks = ""
	LandmarksPersistent Landmarks = "persistent"  // the one with the largest score
	LandmarksPrefix     Landmarks = "prefix"      // the first ones
	LandmarksPrefixPair Landmarks = "prefix_pair" // the same, with the value of the next
)

var landmarkModes = map[Landmarks]backend.LandmarkMode{
	LandmarksNone: backend.NoLandmarks, LandmarksPersistent: backend.PersistentLandmarks,
	LandmarksPrefix: backend.PrefixLandmarks, LandmarksPrefixPair: backend.PairLandmarks,
}

// Memory says what a layer has besides its window.
type Memory string

const (
	MemoryArchive Memory = ""      // sums per code and scale, of the rows that have left the window
	MemoryDelta   Memory = "delta" // a matrix per head, written by the gated delta rule: begin with [DeltaConfig]
)

// RoPE is the rotation of queries and keys.
type RoPE struct {
	Theta  float64 `json:"theta"`
	Dim    int     `json:"dim"`    // rotary width, even; 0: the largest in a head
	Factor float64 `json:"factor"` // on cosines and sines; 0: 1

	Model bool `json:"model,omitempty"` // the table is that of the model that is retrofitted
}

// Exact is a table of original keys and values besides the sums.
type Exact struct {
	Sets  int `json:"sets"`  // 0: 128
	Ways  int `json:"ways"`  // 0: 4
	Probe int `json:"probe"` // sets looked at; 0: all

	FIFO         bool `json:"fifo"`          // the oldest slot is overwritten, whatever the score
	Soft         bool `json:"soft"`          // a mean by nearness instead of the nearest
	MassMerge    bool `json:"mass_merge"`    // softmax over window and table; the sums are not read
	QualityFirst bool `json:"quality_first"` // admits everything and scores it by the query of the moment

	Threshold       float64 `json:"threshold"`        // of admission
	Confidence      float64 `json:"confidence"`       // cosine at which a hit counts half
	ConfidenceTemp  float64 `json:"confidence_temp"`  // steepness around it
	AdmissionWeight float64 `json:"admission_weight"` // of the score
	DiversityWeight float64 `json:"diversity_weight"` // of being unlike what is kept
	RecencyWeight   float64 `json:"recency_weight"`   // of being recent
	SoftTemp        float64 `json:"soft_temp"`
}

// DefaultExact is the exact tier as published.
func DefaultExact() *Exact {
	return &Exact{Sets: 128, Ways: 4, Confidence: 0.6, ConfidenceTemp: 20, AdmissionWeight: 1, DiversityWeight: 0.1, SoftTemp: 8}
}

// Config describes a layer. The zero value is invalid: begin with [DefaultConfig] or
// [RetrofitConfig].
type Config struct {
	Hidden int  `json:"hidden"` // width of a row
	Heads  int  `json:"heads"`
	KV     int  `json:"kv"`    // key heads; 0: Heads
	Dim    int  `json:"dim"`   // head width
	Share  bool `json:"share"` // one archive per key head instead of one per query head

	Window      int       `json:"window"` // exact rows, the own one included
	Sinks       int       `json:"sinks"`  // first rows that stay exact for good
	Codes       int       `json:"codes"`
	Scales      int       `json:"scales"`
	MaxPosition int       `json:"max_position"` // longest half-life
	Decay       []float64 `json:"decay"`        // factors per token; nil: from Window and MaxPosition
	NoArchive   bool      `json:"no_archive"`   // plain attention, an error beyond Window rows

	RoPE              *RoPE `json:"rope"` // nil: none
	PositionInvariant bool  `json:"position_invariant"`
	Lexical           bool  `json:"lexical"` // the archive is addressed by, and gives back, hints

	PerCode       bool       `json:"per_code"`     // a division per code and scale
	ActiveCodes   int        `json:"active_codes"` // of a sparse read; 0: all
	SparseRead    SparseRead `json:"sparse_read"`
	LazyDecay     bool       `json:"lazy_decay"`
	Threshold     *float64   `json:"threshold"` // scores below it are not written
	KernelCompat  bool       `json:"kernel_features"`
	Rank          int        `json:"rank"`         // of the query's correction; 0: none
	ActiveQuery   bool       `json:"active_query"` // the correction also moves the live query
	Landmarks     Landmarks  `json:"landmarks"`
	LandmarkTemp  float64    `json:"landmark_temp"`
	GateBias      float64    `json:"gate_bias"` // first logit of the local weight
	Remote        *float64   `json:"remote"`    // constant weight of the archive instead of a gate
	NormGating    bool       `json:"norm_gating"`
	ReadStride    int        `json:"read_stride"` // 0: 1
	StaleReads    bool       `json:"stale_reads"`
	ReadCloseness *float64   `json:"read_closeness"` // cosine from which the last read is used again
	Exact         *Exact     `json:"exact"`

	Memory Memory `json:"memory,omitempty"`
	// AddressRank is that of a trained linear map of addresses, 0 for none: of the
	// queries that read an archive; of queries and keys of a gated-delta memory.
	AddressRank int `json:"address_rank,omitempty"`
}

// DefaultConfig is a layer as published: d rows wide, of so many heads.
func DefaultConfig(hidden, heads int) Config {
	c := Config{Hidden: hidden, Heads: heads, Window: 128, Codes: 16, Scales: 4, MaxPosition: 4096, Rank: 8, LandmarkTemp: 1, ReadStride: 1}
	if heads > 0 {
		c.Dim = hidden / heads
	}
	return c
}

// RetrofitConfig is what replaces the attention of a model.
func RetrofitConfig(hidden, heads, kv, dim, context int) Config {
	c := DefaultConfig(hidden, heads)
	c.KV, c.Dim, c.PositionInvariant, c.GateBias = kv, dim, true, 2
	if c.MaxPosition = context; context == 0 {
		c.MaxPosition = 131072
	}
	return c
}

// RegistryConfig is what a [Registry] serves.
func RegistryConfig(heads, dim int) Config {
	remote := 0.125
	c := DefaultConfig(heads*dim, heads)
	c.MaxPosition, c.Rank, c.Remote = 131072, 0, &remote
	return c
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Validate reports the first rule that the configuration breaks, with ErrConfig.
func (c Config) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("qcc: "+format+": %w", append(args, ErrConfig)...)
	}
	kv := c.keyHeads()
	switch {
	case c.Hidden < 1 || c.Heads < 1 || c.Dim < 1 || kv < 1:
		return bad("rows of %d values, %d heads of %d, %d key heads: want positive numbers", c.Hidden, c.Heads, c.Dim, kv)
	case c.Heads%kv != 0:
		return bad("%d query heads do not divide among %d key heads", c.Heads, kv)
	case c.Memory != MemoryArchive && c.Memory != MemoryDelta:
		return bad("memory %q: want %q or %q", c.Memory, MemoryArchive, MemoryDelta)
	case c.Window < 1 || c.Memory == MemoryArchive && (c.Codes < 1 || c.Scales < 1):
		return bad("window %d, %d codes, %d scales: want at least 1 of each", c.Window, c.Codes, c.Scales)
	case max(c.Hidden, c.Heads, c.Dim, c.Window, c.Codes, c.Scales, c.Rank, c.AddressRank) > 1<<24:
		return bad("a size exceeds 2^24")
	case c.MaxPosition < 1 && c.Decay == nil:
		return bad("longest half-life %d: want at least 1 token", c.MaxPosition)
	case c.Sinks < 0 || c.Sinks > c.Window:
		return bad("%d sinks in a window of %d: want 0 to the window", c.Sinks, c.Window)
	case c.Decay != nil && len(c.Decay) != c.Scales:
		return bad("%d decay factors for %d scales", len(c.Decay), c.Scales)
	case c.ActiveCodes < 0 || c.ActiveCodes > c.Codes:
		return bad("%d active of %d codes: want 1 to all, or 0 for all", c.ActiveCodes, c.Codes)
	case c.LazyDecay && c.ActiveCodes == 0:
		return bad("lazy decay needs a number of active codes")
	case c.LazyDecay && c.KernelCompat:
		return bad("lazy decay and kernel features do not go together")
	case c.SparseRead != SparseAuto && c.SparseRead != SparseGlobal && c.SparseRead != SparsePerCode:
		return bad("sparse read %q: want %q or %q", c.SparseRead, SparseGlobal, SparsePerCode)
	case c.Threshold != nil && !finite(*c.Threshold):
		return bad("content threshold %v is not finite", *c.Threshold)
	case c.Rank < 0:
		return bad("correction of rank %d: want at least 0", c.Rank)
	case c.ActiveQuery && c.Rank == 0:
		return bad("a correction of the live query needs a rank")
	case !finite(c.GateBias):
		return bad("gate bias %v is not finite", c.GateBias)
	case c.Remote != nil && !(*c.Remote >= 0 && *c.Remote <= 1):
		return bad("remote weight %v: want 0 to 1", *c.Remote)
	case c.AddressRank < 0:
		return bad("a map of addresses of rank %d: want at least 0", c.AddressRank)
	case c.AddressRank > 0 && (c.NoArchive || c.Landmarks != LandmarksNone):
		return bad("a map of addresses needs an archive, and none with landmarks, whose keys it would miss")
	case c.Memory == MemoryArchive && !(c.LandmarkTemp > 0) || !finite(c.LandmarkTemp):
		return bad("landmark temperature %v: want a positive number", c.LandmarkTemp)
	case c.ReadStride < 0:
		return bad("read stride %d: want at least 1", c.ReadStride)
	case c.ReadCloseness != nil && !(*c.ReadCloseness >= -1 && *c.ReadCloseness <= 1):
		return bad("read closeness %v: want a cosine", *c.ReadCloseness)
	case c.Lexical && (c.Heads*c.Dim != c.Hidden || kv != c.Heads):
		return bad("lexical addresses need %d heads of %d to make up a row of %d, and a key head each", c.Heads, c.Dim, c.Hidden)
	}
	if _, ok := landmarkModes[c.Landmarks]; !ok {
		return bad("landmarks %q: want %q, %q or %q", c.Landmarks, LandmarksPersistent, LandmarksPrefix, LandmarksPrefixPair)
	}
	for i, r := range c.Decay {
		if !(r > 0 && r < 1) || float32(r) == 1 {
			return bad("decay factor %d is %v: want it between 0 and 1, also in float32", i, r)
		}
	}
	if r := c.RoPE; r != nil {
		if r.Dim < 0 || r.Dim%2 != 0 || r.Dim > c.Dim || c.Dim < 2 {
			return bad("rotary width %d of heads of %d: want an even number within", r.Dim, c.Dim)
		}
		if r.Model && (r.Theta != 0 || r.Factor != 0) {
			return bad("a rotation that is the model's with a base %v and a factor %v", r.Theta, r.Factor)
		}
		if !r.Model && !(r.Theta > 0) || !finite(r.Theta) || r.Factor < 0 || !finite(r.Factor) {
			return bad("rotary base %v with factor %v: want positive numbers", r.Theta, r.Factor)
		}
	}
	if c.Memory == MemoryDelta {
		return c.checkDelta(bad)
	}
	return c.checkExact(bad)
}

func (c Config) checkExact(bad func(string, ...any) error) error {
	e := c.Exact
	if e == nil {
		return nil
	}
	x := e.resolved()
	switch {
	case c.ActiveCodes > 0 || c.LazyDecay:
		return bad("an exact tier does not go with active codes or lazy decay")
	case c.Lexical:
		return bad("an exact tier does not go with lexical addresses")
	case c.Share && c.keyHeads() != c.Heads:
		return bad("an exact tier does not go with a shared archive")
	case c.NoArchive:
		return bad("an exact tier needs an archive")
	case x.Sets < 1 || x.Ways < 1 || x.Sets > 1<<20 || x.Ways > 1<<20 || x.Sets*x.Ways > 1<<24:
		return bad("exact tier of %d sets of %d: want positive numbers and at most 2^24 slots", e.Sets, e.Ways)
	case e.Probe < 0 || e.Probe > x.Sets:
		return bad("%d of %d sets probed", e.Probe, x.Sets)
	case e.QualityFirst && (e.FIFO || x.Probe < x.Sets):
		return bad("quality first needs the score policy and one pool")
	}
	for _, v := range []float64{x.Threshold, x.Confidence, x.ConfidenceTemp, x.AdmissionWeight, x.DiversityWeight, x.RecencyWeight, x.SoftTemp} {
		if !finite(v) {
			return bad("the exact tier has a parameter %v", v)
		}
	}
	return nil
}

// resolved fills in what 0 stands for.
func (e Exact) resolved() Exact {
	if e.Sets == 0 {
		e.Sets = 128
	}
	if e.Ways == 0 {
		e.Ways = 4
	}
	if e.Probe == 0 {
		e.Probe = e.Sets
	}
	if e.QualityFirst {
		e.Threshold = -1e9
	}
	return e
}

func (c Config) keyHeads() int {
	if c.KV == 0 {
		return c.Heads
	}
	return c.KV
}

// archiveHeads is the number of heads that have codes of their own.
func (c Config) archiveHeads() int {
	if c.Share {
		return c.keyHeads()
	}
	return c.Heads
}

// addresses reports whether the archive is addressed by something else than the
// window's keys.
func (c Config) addresses() bool {
	return c.Memory == MemoryArchive && !c.NoArchive && (c.Lexical || c.PositionInvariant && c.RoPE != nil)
}

// prefix reports whether landmarks replace the local response.
func (c Config) prefix() bool {
	return c.Landmarks == LandmarksPrefix || c.Landmarks == LandmarksPrefixPair
}

// Reuses reports whether a step may use the last step's read, so that steps and
// chunks differ by design.
func (c Config) Reuses() bool {
	return c.ReadCloseness != nil || c.ReadStride > 1 && c.StaleReads
}

// From is the first row of a text that has an archive.
func (c Config) From() int { return c.Window + c.Sinks }

// HalfLives are the tokens after which each scale has forgotten half: log-spaced
// from the window to MaxPosition, or what explicit factors amount to.
func (c Config) HalfLives() []float64 {
	h, _ := c.schedule()
	return h
}

// Decays are the factors per token in float64.
func (c Config) Decays() []float64 {
	_, r := c.schedule()
	return r
}

// Digest is a hash of everything in the configuration that decides bits.
func (c Config) Digest() [32]byte {
	c.KV, c.ReadStride = c.keyHeads(), max(c.ReadStride, 1)
	if c.Exact != nil {
		e := c.Exact.resolved()
		c.Exact = &e
	}
	c.Decay = c.Decays()
	b, err := json.Marshal(struct {
		Config
		HalfLives []float64
	}{c, c.HalfLives()})
	if err != nil { // of an invalid configuration: numbers that are none
		return [32]byte{}
	}
	return sha256.Sum256(b)
}
