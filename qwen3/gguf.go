package qwen3

import (
	"fmt"

	"samebit/backend"
	"samebit/checkpoint"
)

var ggufModels = map[string]string{
	"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3next": "qwen3_next", "qwen35": "qwen3_5_text",
}

// FromSet reads the config of an opened checkpoint of either format.
func FromSet(set *checkpoint.Set) (Config, error) {
	if set.Format() == checkpoint.GGUF {
		return ggufConfig(set)
	}
	if set.Config() == nil {
		return Config{}, fmt.Errorf("qwen3: %s has no config.json beside it: open the model's directory", set.Path())
	}
	c, err := ParseConfig(set.Config(), set.GenerationConfig())
	if err != nil {
		return c, fmt.Errorf("%w (in %s)", err, set.Path())
	}
	return c, nil
}

// ggufConfig reads the metadata of a GGUF file.
func ggufConfig(set *checkpoint.Set) (Config, error) {
	m := set.Meta
	arch, err := m.String("general.architecture")
	if err != nil {
		return Config{}, err
	}
	model, ok := ggufModels[arch]
	if !ok {
		return Config{}, fmt.Errorf("qwen3: %s: architecture %q is not supported: this program runs llama, qwen2, qwen3, qwen3next and qwen35", set.Path(), arch)
	}
	g := &ggufReader{meta: m, arch: arch}
	has := func(name string) bool { _, ok := set.Info(name); return ok }

	c := Config{ModelType: model}
	c.Hidden = g.need("embedding_length")
	c.Layers = g.need("block_count") - g.int("nextn_predict_layers", 0)
	c.Heads = g.need("attention.head_count")
	c.KVHeads = g.int("attention.head_count_kv", c.Heads)
	c.HeadDim = g.int("attention.key_length", c.Hidden/max(c.Heads, 1))
	if v := g.int("attention.value_length", c.HeadDim); v != c.HeadDim {
		return c, fmt.Errorf("qwen3: %s: values of width %d and keys of width %d: only equal widths are supported", set.Path(), v, c.HeadDim)
	}
	c.Intermediate = g.int("feed_forward_length", 0)
	c.Context = g.need("context_length")
	c.Eps = g.float("attention.layer_norm_rms_epsilon", 1e-6)
	c.Theta = g.float("rope.freq_base", 10000)
	c.Rotary = g.int("rope.dimension_count", c.HeadDim)
	c.Vocab = g.int("vocab_size", 0)
	if i, ok := set.Info("token_embd.weight"); ok && len(i.Shape) == 2 {
		c.Vocab = i.Shape[0] // what the file really holds
	}
	c.Tied = !has("output.weight")
	c.QKVBias, c.OBias, c.MLPBias = has("blk.0.attn_q.bias"), has("blk.0.attn_output.bias"), has("blk.0.ffn_gate.bias")
	c.QKNorm = model != "llama" && model != "qwen2"
	c.Scaling = backend.Scaling{Type: "default", Factor: g.float("rope.scaling.factor", 1), Original: g.float("rope.scaling.original_context_length", float64(c.Context))}
	switch t := g.string("rope.scaling.type", "none"); t {
	case "none", "":
	case "linear", "yarn":
		c.Scaling.Type = t
		c.Scaling.BetaFast, c.Scaling.BetaSlow = g.float("rope.scaling.yarn_beta_fast", 0), g.float("rope.scaling.yarn_beta_slow", 0)
		for _, k := range []struct {
			name  string
			plain float64
		}{{"attn_factor", 1}, {"yarn_attn_factor", 1}, {"yarn_ext_factor", 1}, {"yarn_log_multiplier", 0}} {
			if f := g.float("rope.scaling."+k.name, k.plain); f != k.plain {
				return c, fmt.Errorf("qwen3: %s: rope.scaling.%s %v is not supported, only %v", set.Path(), k.name, f, k.plain)
			}
		}
	default:
		return c, fmt.Errorf("qwen3: %s: rotary scaling %q is not supported (have none, linear, yarn)", set.Path(), t)
	}
	if w := g.int("attention.sliding_window", 0); w > 0 && w < c.Context {
		return c, fmt.Errorf("qwen3: %s: a sliding window of %d: GGUF files do not say which layers slide; use the safetensors form", set.Path(), w)
	}
	if model == "qwen3_next" || model == "qwen3_5_text" {
		g.hybrid(&c)
	}
	c.LayerType, err = g.layerTypes(&c)
	if err != nil {
		return c, err
	}
	if model == "qwen3_next" {
		c.Experts, c.ExpertsPerToken = g.int("expert_count", 0), g.int("expert_used_count", 0)
		c.ExpertFFN, c.SharedFFN = g.int("expert_feed_forward_length", 0), g.int("expert_shared_feed_forward_length", 0)
		c.SparseStep, c.NormTopK = 1, true
		for l := range max(c.Layers, 0) {
			if c.Experts > 0 && l < 4096 && !has(fmt.Sprintf("blk.%d.ffn_gate_inp.weight", l)) {
				c.DenseLayers = append(c.DenseLayers, l)
			}
		}
	}
	for _, k := range []string{"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"} {
		if v, err := m.Int(k); err == nil && v >= 0 && v < c.Vocab {
			c.EOS = append(c.EOS, int32(v))
		}
	}
	if g.err != nil {
		return c, fmt.Errorf("qwen3: %w", g.err)
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("%s: %w", set.Path(), err)
	}
	return c, nil
}

// ggufReader reads keys under the architecture's prefix; the first failure sticks.
type ggufReader struct {
	meta checkpoint.Meta
	arch string
	err  error
}

func (g *ggufReader) key(k string) string { return g.arch + "." + k }

func (g *ggufReader) need(k string) int {
	v, err := g.meta.Int(g.key(k))
	if err != nil && g.err == nil {
		g.err = err
	}
	return v
}

// opt calls f when the key is there.
func (g *ggufReader) opt(k string, f func(key string) error) {
	if !g.meta.Has(g.key(k)) {
		return
	}
	if err := f(g.key(k)); err != nil && g.err == nil {
		g.err = err
	}
}

func (g *ggufReader) int(k string, def int) int {
	g.opt(k, func(key string) (err error) { def, err = g.meta.Int(key); return })
	return def
}

func (g *ggufReader) float(k string, def float64) float64 {
	g.opt(k, func(key string) (err error) { def, err = g.meta.Float(key); return })
	return def
}

func (g *ggufReader) string(k, def string) string {
	g.opt(k, func(key string) (err error) { def, err = g.meta.String(key); return })
	return def
}

func (g *ggufReader) hybrid(c *Config) {
	c.ZeroCentred, c.OutputGate = true, true
	c.ConvKernel = g.need("ssm.conv_kernel")
	c.KeyHeadDim = g.need("ssm.state_size")
	c.KeyHeads = g.need("ssm.group_count")
	c.ValueHeads = g.need("ssm.time_step_rank")
	if inner := g.need("ssm.inner_size"); c.ValueHeads > 0 {
		c.ValueDim = inner / c.ValueHeads
	}
}

// layerTypes is the pattern of layers: a list of recurrent layers wins over the
// interval.
func (g *ggufReader) layerTypes(c *Config) ([]string, error) {
	if c.Layers < 1 || c.Layers > 4096 {
		return nil, fmt.Errorf("qwen3: %d layers: want 1 to 4096", c.Layers)
	}
	types := make([]string, c.Layers)
	interval := g.int("full_attention_interval", 4)
	recurrent, err := g.meta.Bools(g.key("attention.recurrent_layers"))
	listed := err == nil && len(recurrent) >= c.Layers
	for l := range types {
		types[l] = FullAttention
		if c.ConvKernel == 0 {
			continue
		}
		if listed && recurrent[l] || !listed && interval > 0 && (l+1)%interval != 0 {
			types[l] = LinearAttention
		}
	}
	return types, nil
}
