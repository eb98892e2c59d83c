// Package qwen3 builds decoders of the Qwen3 family and its relatives from
// checkpoints: Qwen3, Qwen2 and 2.5, Llama-architecture models such as SmolLM2,
// and the hybrids Qwen3-Next and Qwen3.5 (text).
package qwen3

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"samebit/backend"
)

// Layer kinds of Config.LayerTypes, as the files name them.
const (
	FullAttention    = "full_attention"
	SlidingAttention = "sliding_attention"
	LinearAttention  = "linear_attention"
)

// Config is a model's shape. Its fields mirror config.json, both generations of
// the keys and the defaults filled in.
type Config struct {
	ModelType    string // qwen2, qwen3, llama, qwen3_next, qwen3_5_text
	Hidden       int
	Layers       int
	Heads        int
	KVHeads      int
	HeadDim      int
	Intermediate int
	Vocab        int
	Context      int // max_position_embeddings
	Eps          float64
	Tied         bool

	Theta     float64
	Rotary    int // rotary width, at most HeadDim
	Scaling   backend.Scaling
	Window    int // positions a sliding layer sees
	LayerType []string

	QKVBias, OBias, MLPBias bool
	QKNorm                  bool
	ZeroCentred             bool // norm weights mean 1 + w
	OutputGate              bool

	// Gated DeltaNet layers
	ConvKernel           int
	KeyHeads, ValueHeads int
	KeyHeadDim, ValueDim int
	PackedProjections    bool // Qwen3-Next: q, k, v, z grouped by key head

	// Mixture of experts; Experts 0 means none
	Experts, ExpertsPerToken int
	ExpertFFN, SharedFFN     int
	SparseStep               int
	DenseLayers              []int // mlp_only_layers
	NormTopK                 bool

	EOS []int32
}

// rawConfig is the union of the keys that matter, as they stand in the file.
type rawConfig struct {
	ModelType     string   `json:"model_type"`
	Architectures []string `json:"architectures"`
	HiddenAct     *string  `json:"hidden_act"`

	Hidden       int     `json:"hidden_size"`
	Intermediate int     `json:"intermediate_size"`
	Layers       int     `json:"num_hidden_layers"`
	Heads        int     `json:"num_attention_heads"`
	KVHeads      *int    `json:"num_key_value_heads"`
	HeadDim      *int    `json:"head_dim"`
	Vocab        int     `json:"vocab_size"`
	Context      int     `json:"max_position_embeddings"`
	Eps          float64 `json:"rms_norm_eps"`
	Tied         *bool   `json:"tie_word_embeddings"`
	AttnBias     bool    `json:"attention_bias"`
	MLPBias      bool    `json:"mlp_bias"`

	Rope        *rawRope `json:"rope_parameters"`
	RopeScaling *rawRope `json:"rope_scaling"`
	Theta       *float64 `json:"rope_theta"`
	Partial     *float64 `json:"partial_rotary_factor"`

	UseWindow    *bool    `json:"use_sliding_window"`
	Window       *int     `json:"sliding_window"`
	WindowLayers *int     `json:"max_window_layers"`
	LayerTypes   []string `json:"layer_types"`
	Interval     *int     `json:"full_attention_interval"`

	ConvKernel *int `json:"linear_conv_kernel_dim"`
	KeyHeads   *int `json:"linear_num_key_heads"`
	ValueHeads *int `json:"linear_num_value_heads"`
	KeyDim     *int `json:"linear_key_head_dim"`
	ValueDim   *int `json:"linear_value_head_dim"`

	Experts     *int  `json:"num_experts"`
	PerToken    *int  `json:"num_experts_per_tok"`
	ExpertFFN   *int  `json:"moe_intermediate_size"`
	SharedFFN   *int  `json:"shared_expert_intermediate_size"`
	SparseStep  *int  `json:"decoder_sparse_step"`
	DenseLayers []int `json:"mlp_only_layers"`
	NormTopK    *bool `json:"norm_topk_prob"`

	EOS  json.RawMessage `json:"eos_token_id"`
	Text json.RawMessage `json:"text_config"`
}

type rawRope struct {
	RopeType     string   `json:"rope_type"`
	Type         string   `json:"type"`
	Theta        *float64 `json:"rope_theta"`
	Partial      *float64 `json:"partial_rotary_factor"`
	Factor       float64  `json:"factor"`
	Low          float64  `json:"low_freq_factor"`
	High         float64  `json:"high_freq_factor"`
	Original     float64  `json:"original_max_position_embeddings"`
	BetaFast     float64  `json:"beta_fast"`
	BetaSlow     float64  `json:"beta_slow"`
	Truncate     *bool    `json:"truncate"`
	Attention    float64  `json:"attention_factor"`
	MScale       float64  `json:"mscale"`
	MScaleAllDim float64  `json:"mscale_all_dim"`
}

func or[T any](p *T, def T) T {
	if p != nil {
		return *p
	}
	return def
}

// ParseConfig reads config.json and checks it. generation, which may be nil, is
// generation_config.json, whose stop tokens win.
func ParseConfig(config, generation []byte) (Config, error) {
	var raw rawConfig
	if err := json.Unmarshal(config, &raw); err != nil {
		return Config{}, fmt.Errorf("qwen3: config.json: %w", err)
	}
	outer := raw
	if raw.ModelType == "qwen3_5" {
		if raw.Text == nil || string(raw.Text) == "null" {
			return Config{}, fmt.Errorf("qwen3: config.json of model_type qwen3_5 has no text_config")
		}
		raw = rawConfig{}
		if err := json.Unmarshal(outer.Text, &raw); err != nil {
			return Config{}, fmt.Errorf("qwen3: text_config: %w", err)
		}
		if raw.Tied == nil {
			raw.Tied = outer.Tied
		}
		if raw.EOS == nil {
			raw.EOS = outer.EOS
		}
	}
	c, err := raw.resolve()
	if err != nil {
		return c, err
	}
	var gen rawConfig
	if generation != nil {
		if err := json.Unmarshal(generation, &gen); err != nil {
			return c, fmt.Errorf("qwen3: generation_config.json: %w", err)
		}
	}
	for _, e := range []json.RawMessage{gen.EOS, raw.EOS} {
		if c.EOS, err = tokenList(e); err != nil {
			return c, err
		}
		if c.EOS != nil {
			break
		}
	}
	return c, c.check()
}

// tokenList reads an id or a list of ids.
func tokenList(raw json.RawMessage) ([]int32, error) {
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	var one int32
	if json.Unmarshal(raw, &one) == nil {
		return []int32{one}, nil
	}
	var list []int32
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("qwen3: eos_token_id is neither a number nor a list of numbers: %w", err)
	}
	return list, nil
}

func (r *rawConfig) resolve() (Config, error) {
	c := Config{
		ModelType: r.ModelType, Hidden: r.Hidden, Layers: r.Layers, Heads: r.Heads, Intermediate: r.Intermediate, Vocab: r.Vocab,
		Context: r.Context, Eps: r.Eps, Tied: or(r.Tied, false), MLPBias: r.MLPBias, QKVBias: r.AttnBias, OBias: r.AttnBias,
	}
	if act := or(r.HiddenAct, "silu"); act != "silu" {
		return c, fmt.Errorf("qwen3: hidden_act %q is not supported, only silu", act)
	}
	if c.Eps == 0 {
		c.Eps = 1e-6
	}
	c.KVHeads = or(r.KVHeads, c.Heads)
	headDim, partial := 0, 1.0
	if c.Heads > 0 {
		headDim = c.Hidden / c.Heads
	}
	switch c.ModelType {
	case "qwen2":
		c.QKVBias, c.OBias, c.MLPBias = true, false, false
	case "qwen3":
		headDim, c.QKNorm, c.MLPBias = 128, true, false
	case "llama":
	case "qwen3_next", "qwen3_5_text":
		headDim, partial = 256, 0.25
		c.QKNorm, c.ZeroCentred, c.OutputGate, c.MLPBias = true, true, true, false
		c.PackedProjections = c.ModelType == "qwen3_next"
		c.ConvKernel = or(r.ConvKernel, 4)
		c.KeyHeads, c.ValueHeads = or(r.KeyHeads, 16), or(r.ValueHeads, 32)
		c.KeyHeadDim, c.ValueDim = or(r.KeyDim, 128), or(r.ValueDim, 128)
	default:
		arch := "none"
		if len(r.Architectures) > 0 {
			arch = r.Architectures[0]
		}
		return c, fmt.Errorf("qwen3: model_type %q (architecture %s) is not supported: this program runs qwen2, qwen3, llama, qwen3_next and qwen3_5", c.ModelType, arch)
	}
	if c.ModelType == "qwen3_next" {
		c.Experts, c.ExpertsPerToken = or(r.Experts, 512), or(r.PerToken, 10)
		c.ExpertFFN, c.SharedFFN = or(r.ExpertFFN, 512), or(r.SharedFFN, 512)
		c.SparseStep, c.DenseLayers, c.NormTopK = or(r.SparseStep, 1), r.DenseLayers, or(r.NormTopK, true)
	}
	c.HeadDim = or(r.HeadDim, headDim)

	rope := r.Rope
	if rope == nil {
		rope = r.RopeScaling
	}
	if rope == nil {
		rope = &rawRope{}
	}
	c.Theta = or(rope.Theta, or(r.Theta, 10000))
	c.Rotary = int(float64(c.HeadDim) * or(rope.Partial, or(r.Partial, partial)))
	typ := rope.RopeType
	if typ == "" {
		typ = rope.Type
	}
	if typ == "" {
		typ = "default"
	}
	c.Scaling = backend.Scaling{Type: typ, Factor: rope.Factor, LowFreqFactor: rope.Low, HighFreqFactor: rope.High, Original: rope.Original,
		BetaFast: rope.BetaFast, BetaSlow: rope.BetaSlow, NoTruncate: !or(rope.Truncate, true), AttentionFactor: rope.Attention,
		MScale: rope.MScale, MScaleAllDim: rope.MScaleAllDim}
	if c.Scaling.Original == 0 {
		c.Scaling.Original = float64(c.Context)
	}
	err := r.layers(&c)
	if !slices.Contains(c.LayerType, SlidingAttention) {
		c.Window = 0 // files carry one that is switched off
	}
	return c, err
}

// layers decides the kind of each layer (models.md 1.3, 2.1 of the product's
// model notes: an explicit list wins over the implied pattern).
func (r *rawConfig) layers(c *Config) error {
	if c.Layers < 1 || c.Layers > mostLayers {
		return fmt.Errorf("qwen3: num_hidden_layers is %d: want 1 to %d", c.Layers, mostLayers)
	}
	c.Window = or(r.Window, 0)
	hybrid := c.ConvKernel > 0
	if r.LayerTypes != nil {
		c.LayerType = r.LayerTypes
		if len(c.LayerType) != c.Layers {
			return fmt.Errorf("qwen3: layer_types has %d entries for %d layers", len(c.LayerType), c.Layers)
		}
		for i, t := range c.LayerType {
			if t != FullAttention && !(t == SlidingAttention && !hybrid && c.Window > 0) && !(t == LinearAttention && hybrid) {
				return fmt.Errorf("qwen3: layer %d is of type %q, which %s with a sliding window of %d does not have", i, t, c.ModelType, c.Window)
			}
		}
		return nil
	}
	slides := !hybrid && or(r.UseWindow, false) && c.Window > 0
	from := or(r.WindowLayers, 28)
	interval := or(r.Interval, 4)
	if interval < 1 {
		return fmt.Errorf("qwen3: full_attention_interval is %d", interval)
	}
	c.LayerType = make([]string, c.Layers)
	for l := range c.LayerType {
		switch {
		case hybrid && (l+1)%interval != 0:
			c.LayerType[l] = LinearAttention
		case slides && l >= from:
			c.LayerType[l] = SlidingAttention
		default:
			c.LayerType[l] = FullAttention
		}
	}
	return nil
}

const mostLayers = 4096

// check refuses shapes that no model has, so that nothing is allocated because a
// file said so.
func (c *Config) check() error {
	for _, f := range []struct {
		key  string
		v    int
		most int
	}{
		{"num_hidden_layers", c.Layers, mostLayers}, {"hidden_size", c.Hidden, 1 << 17}, {"num_attention_heads", c.Heads, 1 << 12}, {"num_key_value_heads", c.KVHeads, 1 << 12},
		{"head_dim", c.HeadDim, 1 << 12}, {"vocab_size", c.Vocab, 1 << 24}, {"max_position_embeddings", c.Context, 1 << 24},
	} {
		if f.v < 1 || f.v > f.most {
			return fmt.Errorf("qwen3: %s is %d: want 1 to %d", f.key, f.v, f.most)
		}
	}
	if len(c.LayerType) != c.Layers {
		return fmt.Errorf("qwen3: %d layer types for %d layers", len(c.LayerType), c.Layers)
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("qwen3: %d attention heads do not divide among %d key/value heads", c.Heads, c.KVHeads)
	}
	if !(c.Eps > 0) || c.Eps > 1 {
		return fmt.Errorf("qwen3: rms_norm_eps is %v", c.Eps)
	}
	if c.Rotary < 2 || c.Rotary%2 != 0 || c.Rotary > c.HeadDim {
		return fmt.Errorf("qwen3: rotary width %d of head_dim %d: want an even number", c.Rotary, c.HeadDim)
	}
	if c.hasLinear() {
		if c.KeyHeads < 1 || c.ValueHeads < 1 || c.ValueHeads%c.KeyHeads != 0 || c.KeyHeadDim < 1 || c.ValueDim < 1 || c.ConvKernel < 2 ||
			c.ValueHeads > 1<<12 || c.KeyHeadDim > 1<<12 || c.ValueDim > 1<<12 || c.ConvKernel > 64 {
			return fmt.Errorf("qwen3: linear attention with %d key heads of %d, %d value heads of %d and %d taps", c.KeyHeads, c.KeyHeadDim, c.ValueHeads, c.ValueDim, c.ConvKernel)
		}
	}
	for l := range c.Layers {
		if c.moe(l) {
			if c.ExpertFFN < 1 || c.SharedFFN < 1 || c.ExpertsPerToken < 1 || c.ExpertsPerToken > c.Experts || c.Experts > 1<<16 {
				return fmt.Errorf("qwen3: %d of %d experts of width %d, shared expert of width %d", c.ExpertsPerToken, c.Experts, c.ExpertFFN, c.SharedFFN)
			}
		} else if c.Intermediate < 1 || c.Intermediate > 1<<20 {
			return fmt.Errorf("qwen3: intermediate_size is %d", c.Intermediate)
		}
	}
	switch c.Scaling.Type {
	case "default", "linear", "llama3", "yarn":
	default:
		return fmt.Errorf("qwen3: rotary scaling %q is not supported (have default, linear, llama3, yarn)", c.Scaling.Type)
	}
	if float32(c.Theta) <= 0 || math.IsInf(c.Theta, 0) || c.Theta != c.Theta {
		return fmt.Errorf("qwen3: rope_theta is %v", c.Theta)
	}
	return nil
}

func (c *Config) hasLinear() bool { return slices.Contains(c.LayerType, LinearAttention) }

// moe reports whether layer l is a mixture of experts.
func (c *Config) moe(l int) bool {
	return c.Experts > 0 && c.SparseStep > 0 && (l+1)%c.SparseStep == 0 && !slices.Contains(c.DenseLayers, l)
}
