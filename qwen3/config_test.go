package qwen3_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"samebit/qwen3"
)

func readFile(t testing.TB, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestConfigGenerations: the fp32 checkpoints have the newer keys, the bf16 ones
// those that are found on hubs. Both say the same.
func TestConfigGenerations(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(goldens, "checkpoints", "*-fp32"))
	if err != nil || len(dirs) != 11 {
		t.Fatalf("%d checkpoints: %v", len(dirs), err)
	}
	for _, dir := range dirs {
		parse := func(dir string) qwen3.Config {
			c, err := qwen3.ParseConfig(readFile(t, dir, "config.json"), readFile(t, dir, "generation_config.json"))
			if err != nil {
				t.Fatalf("%s: %v", dir, err)
			}
			return c
		}
		if d := cmp.Diff(parse(dir), parse(strings.TrimSuffix(dir, "fp32")+"bf16")); d != "" {
			t.Errorf("%s (-newer +older keys):\n%s", filepath.Base(dir), d)
		}
	}
}

// tiny is a valid config of each family with only what has no default.
var tiny = map[string]string{
	"qwen2":      `{"model_type":"qwen2","hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,"intermediate_size":96,"vocab_size":100,"max_position_embeddings":512}`,
	"qwen3":      `{"model_type":"qwen3","hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,"intermediate_size":96,"vocab_size":100,"max_position_embeddings":512}`,
	"llama":      `{"model_type":"llama","hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,"intermediate_size":96,"vocab_size":100,"max_position_embeddings":512}`,
	"qwen3_next": `{"model_type":"qwen3_next","hidden_size":64,"num_hidden_layers":8,"num_attention_heads":4,"intermediate_size":96,"vocab_size":100,"max_position_embeddings":512}`,
	"qwen3_5":    `{"model_type":"qwen3_5","tie_word_embeddings":true,"text_config":{"model_type":"qwen3_5_text","hidden_size":64,"num_hidden_layers":5,"num_attention_heads":4,"intermediate_size":96,"vocab_size":100,"max_position_embeddings":512}}`,
}

// with changes keys of a tiny config; a null value removes the key.
func with(t testing.TB, family, change string) []byte {
	t.Helper()
	var m, c map[string]json.RawMessage
	if err := json.Unmarshal([]byte(tiny[family]), &m); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(change), &c); err != nil {
		t.Fatal(err)
	}
	for k, v := range c {
		m[k] = v
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConfigDefaults(t *testing.T) {
	parse := func(family string) qwen3.Config {
		c, err := qwen3.ParseConfig([]byte(tiny[family]), nil)
		if err != nil {
			t.Fatalf("%s: %v", family, err)
		}
		return c
	}
	for family := range tiny {
		c := parse(family)
		if c.Eps != 1e-6 || c.Theta != 10000 || c.KVHeads != 4 || c.Scaling.Type != "default" || c.OBias || c.MLPBias || c.EOS != nil {
			t.Errorf("%s: defaults %+v", family, c)
		}
		if c.QKVBias != (family == "qwen2") || c.QKNorm != (family != "qwen2" && family != "llama") || c.Tied != (family == "qwen3_5") {
			t.Errorf("%s: biases, norms or tie: %+v", family, c)
		}
		hybrid := strings.Contains(family, "_")
		if c.ZeroCentred != hybrid || c.OutputGate != hybrid || c.PackedProjections != (family == "qwen3_next") {
			t.Errorf("%s: hybrid flags %+v", family, c)
		}
		if hybrid && (c.HeadDim != 256 || c.Rotary != 64 || c.ConvKernel != 4 || c.KeyHeads != 16 || c.ValueHeads != 32 || c.KeyHeadDim != 128 || c.ValueDim != 128) {
			t.Errorf("%s: hybrid sizes %+v", family, c)
		}
		for l, k := range c.LayerType {
			want := qwen3.FullAttention
			if hybrid && (l+1)%4 != 0 {
				want = qwen3.LinearAttention
			}
			if k != want {
				t.Errorf("%s: layer %d is %s, want %s", family, l, k, want)
			}
		}
	}
	if c := parse("qwen3"); c.HeadDim != 128 || c.Rotary != 128 {
		t.Errorf("qwen3: head_dim %d, rotary %d, want 128", c.HeadDim, c.Rotary)
	}
	if c := parse("qwen2"); c.HeadDim != 16 {
		t.Errorf("qwen2: head_dim %d, want 64/4", c.HeadDim)
	}
	if c := parse("qwen3_next"); c.Experts != 512 || c.ExpertsPerToken != 10 || c.SparseStep != 1 || !c.NormTopK {
		t.Errorf("qwen3_next: experts %+v", c)
	}
}

func TestConfigMeaning(t *testing.T) {
	for _, tt := range []struct {
		why, family, change string
		ok                  func(qwen3.Config) bool
	}{
		{"hub files carry a window that is switched off", "qwen2", `{"sliding_window":32,"use_sliding_window":false,"max_window_layers":1}`,
			func(c qwen3.Config) bool { return !slices.Contains(c.LayerType, qwen3.SlidingAttention) }},
		{"a window without the switch is off", "qwen2", `{"sliding_window":32,"max_window_layers":1}`,
			func(c qwen3.Config) bool { return !slices.Contains(c.LayerType, qwen3.SlidingAttention) }},
		{"switched on, layers from max_window_layers slide", "qwen2", `{"sliding_window":32,"use_sliding_window":true,"max_window_layers":1}`,
			func(c qwen3.Config) bool {
				return c.Window == 32 && slices.Equal(c.LayerType, []string{qwen3.FullAttention, qwen3.SlidingAttention, qwen3.SlidingAttention})
			}},
		{"switched on with a null window is off", "qwen2", `{"sliding_window":null,"use_sliding_window":true,"max_window_layers":1}`,
			func(c qwen3.Config) bool { return !slices.Contains(c.LayerType, qwen3.SlidingAttention) }},
		{"layer_types wins over the switch", "qwen3", `{"sliding_window":9,"use_sliding_window":false,"layer_types":["sliding_attention","full_attention","full_attention"]}`,
			func(c qwen3.Config) bool { return c.LayerType[0] == qwen3.SlidingAttention && c.Window == 9 }},
		{"the interval", "qwen3_next", `{"full_attention_interval":2}`, func(c qwen3.Config) bool {
			return c.LayerType[1] == qwen3.FullAttention && c.LayerType[2] == qwen3.LinearAttention
		}},
		{"qwen2 has no bias switch", "qwen2", `{"attention_bias":false}`, func(c qwen3.Config) bool { return c.QKVBias && !c.OBias }},
		{"llama biases", "llama", `{"attention_bias":true,"mlp_bias":true}`, func(c qwen3.Config) bool { return c.QKVBias && c.OBias && c.MLPBias }},
		{"older rope keys", "llama", `{"rope_theta":5e5,"rope_scaling":{"type":"linear","factor":2}}`,
			func(c qwen3.Config) bool {
				return c.Theta == 5e5 && c.Scaling.Type == "linear" && c.Scaling.Factor == 2
			}},
		{"newer rope keys win", "llama", `{"rope_theta":5e5,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"yarn","factor":4,"rope_theta":7,"original_max_position_embeddings":64}}`,
			func(c qwen3.Config) bool {
				return c.Theta == 7 && c.Scaling.Type == "yarn" && c.Scaling.Factor == 4 && c.Scaling.Original == 64
			}},
		{"the original length defaults to the context", "llama", `{"rope_scaling":{"type":"yarn","factor":4}}`, func(c qwen3.Config) bool { return c.Scaling.Original == 512 }},
		{"yarn without rounding", "llama", `{"rope_scaling":{"type":"yarn","factor":4,"truncate":false}}`, func(c qwen3.Config) bool { return c.Scaling.NoTruncate }},
		{"partial rotation at the top level", "llama", `{"partial_rotary_factor":0.5}`, func(c qwen3.Config) bool { return c.Rotary == 8 }},
		{"nulls mean absent", "qwen3", `{"head_dim":null,"num_key_value_heads":null,"rope_scaling":null,"sliding_window":null,"layer_types":null,"eos_token_id":null,"hidden_act":null,"rms_norm_eps":null,"tie_word_embeddings":null}`,
			func(c qwen3.Config) bool { return c.HeadDim == 128 && c.KVHeads == 4 && c.Eps == 1e-6 }},
		{"one end token", "qwen3", `{"eos_token_id":7}`, func(c qwen3.Config) bool { return slices.Equal(c.EOS, []int32{7}) }},
		{"several end tokens", "qwen3", `{"eos_token_id":[7,9]}`, func(c qwen3.Config) bool { return slices.Equal(c.EOS, []int32{7, 9}) }},
		{"dense and sparse layers", "qwen3_next", `{"mlp_only_layers":[1],"decoder_sparse_step":2,"num_experts":4,"num_experts_per_tok":2}`,
			func(c qwen3.Config) bool { return c.SparseStep == 2 && slices.Equal(c.DenseLayers, []int{1}) }},
		{"unknown keys are left alone", "qwen3", `{"quantum":true,"dtype":"bfloat16","torch_dtype":"float16"}`, func(c qwen3.Config) bool { return true }},
	} {
		c, err := qwen3.ParseConfig(with(t, tt.family, tt.change), nil)
		if err != nil || !tt.ok(c) {
			t.Errorf("%s: %+v, %v", tt.why, c, err)
		}
	}
	c, err := qwen3.ParseConfig(with(t, "qwen3", `{"eos_token_id":7}`), []byte(`{"eos_token_id":[1,2]}`))
	if err != nil || !slices.Equal(c.EOS, []int32{1, 2}) {
		t.Errorf("end tokens %v (%v), those of generation_config.json win", c.EOS, err)
	}
	for _, gen := range []string{`{}`, `{"eos_token_id":null}`} {
		if c, err := qwen3.ParseConfig(with(t, "qwen3", `{"eos_token_id":7}`), []byte(gen)); err != nil || !slices.Equal(c.EOS, []int32{7}) {
			t.Errorf("end tokens %v (%v) with generation config %s", c.EOS, err, gen)
		}
	}
	if _, err := qwen3.ParseConfig([]byte(tiny["qwen3"]), []byte(`{`)); err == nil {
		t.Error("a damaged generation_config.json gives no error")
	}
}

func TestConfigRefusals(t *testing.T) {
	for _, tt := range []struct{ family, change, want string }{
		{"qwen3", `{"model_type":"gpt2","architectures":["GPT2LMHeadModel"]}`, "GPT2LMHeadModel"},
		{"qwen3", `{"model_type":"qwen3_moe"}`, `"qwen3_moe"`},
		{"qwen3", `{"model_type":""}`, "not supported"},
		{"qwen3_5", `{"text_config":null}`, "text_config"},
		{"qwen3_5", `{"text_config":[]}`, "text_config"},
		{"qwen3", `{"hidden_act":"gelu"}`, `hidden_act "gelu"`},
		{"qwen3", `{"rope_scaling":{"rope_type":"dynamic","factor":2}}`, `"dynamic"`},
		{"qwen3", `{"rope_scaling":{"type":"longrope","factor":2}}`, `"longrope"`},
		{"qwen3", `{"rope_parameters":{"rope_type":"proportional"}}`, `"proportional"`},
		{"qwen3", `{"layer_types":["full_attention"]}`, "1 entries for 3 layers"},
		{"qwen3", `{"layer_types":[]}`, "0 entries for 3 layers"},
		{"qwen3", `{"layer_types":["full_attention","full_attention","chunked_attention"]}`, "chunked_attention"},
		{"qwen3", `{"layer_types":["full_attention","full_attention","linear_attention"]}`, "linear_attention"},
		{"qwen3", `{"layer_types":["full_attention","full_attention","sliding_attention"]}`, "sliding_attention"},
		{"qwen3_next", `{"full_attention_interval":0}`, "full_attention_interval"},
		{"qwen3", `{"hidden_size":0}`, "hidden_size"},
		{"qwen3", `{"hidden_size":null}`, "hidden_size"},
		{"qwen3", `{"hidden_size":-64}`, "hidden_size"},
		{"qwen3", `{"hidden_size":2000000000}`, "hidden_size"},
		{"qwen3", `{"vocab_size":1000000000}`, "vocab_size"},
		{"qwen3", `{"num_hidden_layers":0}`, "num_hidden_layers"},
		{"qwen3", `{"num_hidden_layers":1000000000}`, "num_hidden_layers"},
		{"qwen3_next", `{"num_hidden_layers":9223372036854775807}`, "num_hidden_layers"},
		{"qwen3", `{"num_attention_heads":0}`, "num_attention_heads"},
		{"qwen3", `{"num_attention_heads":6,"num_key_value_heads":4}`, "6 attention heads"},
		{"qwen3", `{"num_key_value_heads":0}`, "num_key_value_heads"},
		{"qwen3", `{"head_dim":-2}`, "head_dim"},
		{"qwen3", `{"head_dim":9223372036854775807}`, "head_dim"},
		{"qwen3", `{"head_dim":15}`, "rotary width 15"},
		{"qwen3", `{"partial_rotary_factor":0.001}`, "rotary width 0"},
		{"qwen3", `{"partial_rotary_factor":2}`, "rotary width 256"},
		{"qwen3", `{"partial_rotary_factor":1e300}`, "rotary width"},
		{"qwen3", `{"max_position_embeddings":0}`, "max_position_embeddings"},
		{"qwen3", `{"intermediate_size":0}`, "intermediate_size"},
		{"qwen3", `{"rms_norm_eps":-1}`, "rms_norm_eps"},
		{"qwen3", `{"rms_norm_eps":7}`, "rms_norm_eps"},
		{"qwen3", `{"rope_theta":0}`, "rope_theta"},
		{"qwen3", `{"rope_theta":-3}`, "rope_theta"},
		{"qwen3", `{"rope_theta":1e-300}`, "rope_theta"},
		{"qwen3", `{"vocab_size":99999999999999999999}`, "vocab_size"},
		{"qwen3", `{"vocab_size":1.5}`, "vocab_size"},
		{"qwen3", `{"vocab_size":"100"}`, "vocab_size"},
		{"qwen3", `{"eos_token_id":"</s>"}`, "eos_token_id"},
		{"qwen3", `{"eos_token_id":[1,99999999999]}`, "eos_token_id"},
		{"qwen3_next", `{"linear_num_key_heads":3}`, "3 key heads"},
		{"qwen3_next", `{"linear_num_key_heads":0}`, "0 key heads"},
		{"qwen3_next", `{"linear_conv_kernel_dim":1}`, "1 taps"},
		{"qwen3_next", `{"linear_conv_kernel_dim":1000}`, "1000 taps"},
		{"qwen3_next", `{"linear_value_head_dim":1000000000}`, "linear attention"},
		{"qwen3_next", `{"num_experts_per_tok":600}`, "600 of 512 experts"},
		{"qwen3_next", `{"num_experts":1000000}`, "1000000 experts"},
		{"qwen3_next", `{"moe_intermediate_size":-1}`, "width -1"},
	} {
		_, err := qwen3.ParseConfig(with(t, tt.family, tt.change), nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %s: error %v, want %q in it", tt.family, tt.change, err, tt.want)
		}
	}
	for _, text := range []string{"", "null", "[]", "{", `{"model_type":3}`, "\x00"} {
		if _, err := qwen3.ParseConfig([]byte(text), nil); err == nil {
			t.Errorf("config.json %q: no error", text)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range tiny {
		f.Add([]byte(s), []byte(`{"eos_token_id":[1,2]}`))
	}
	for _, dir := range []string{"qwen3-yarn-fp32", "llama3-bf16", "qwen35-8l-bf16", "qwen3next-moe-bf16"} {
		f.Add(readFile(f, goldens, "checkpoints", dir, "config.json"), readFile(f, goldens, "checkpoints", dir, "generation_config.json"))
	}
	f.Fuzz(func(t *testing.T, config, generation []byte) {
		c, err := qwen3.ParseConfig(config, generation)
		if err != nil {
			return
		}
		if len(c.LayerType) != c.Layers || c.Layers < 1 || c.Hidden < 1 || c.Heads < 1 || c.KVHeads < 1 || c.Heads%c.KVHeads != 0 ||
			c.Rotary < 2 || c.Rotary > c.HeadDim || c.Vocab < 1 || c.Vocab > 1<<24 {
			t.Errorf("%q gives %+v", config, c)
		}
	})
}
