package qwen3_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor"
)

// variant writes a changed copy of a golden checkpoint.
func variant(t testing.TB, model string, tensors func(map[string]*checkpoint.Entry), config func(map[string]any)) string {
	t.Helper()
	src := filepath.Join(goldens, "checkpoints", model)
	set, err := checkpoint.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	m := map[string]*checkpoint.Entry{}
	for _, n := range set.Names() {
		e, err := set.Tensor(n)
		if err != nil {
			t.Fatal(err)
		}
		e.Data = bytes.Clone(e.Data)
		m[n] = &e
	}
	if tensors != nil {
		tensors(m)
	}
	var list []checkpoint.Entry
	for _, e := range m {
		list = append(list, *e)
	}
	var cfg map[string]any
	if err := json.Unmarshal(readFile(t, src, "config.json"), &cfg); err != nil {
		t.Fatal(err)
	}
	if config != nil {
		config(cfg)
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var b bytes.Buffer
	if err := checkpoint.Write(&b, list, nil); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"config.json": text, "model.safetensors": b.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// open loads a checkpoint or says why not.
func open(ctx context.Context, dev backend.Device, path string) (*nn.Decoder, error) {
	set, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		return nil, err
	}
	return qwen3.Load(ctx, dev, cfg, set, qwen3.LoadOptions{})
}

const qName = "model.layers.1.self_attn.q_proj.weight"

func TestLoadErrors(t *testing.T) {
	type tensors = map[string]*checkpoint.Entry
	dev := ref.New()
	for _, tt := range []struct {
		why, model string
		tensors    func(tensors)
		config     func(map[string]any)
		want       []string
	}{
		{"a missing tensor", "qwen3-tied-fp32", func(m tensors) { delete(m, qName) }, nil, []string{qName, "missing"}},
		{"an unexpected tensor", "qwen3-tied-fp32", func(m tensors) {
			e := *m[qName]
			e.Name = "model.layers.1.self_attn.q_proj.lora_A"
			m["x"] = &e
		}, nil, []string{"model.layers.1.self_attn.q_proj.lora_A", "not part of a qwen3"}},
		{"a layer too many", "qwen3-tied-fp32", nil, func(c map[string]any) { c["num_hidden_layers"] = 2; delete(c, "layer_types") }, []string{"model.layers.2.", "not part"}},
		{"a layer too few", "qwen3-tied-fp32", nil, func(c map[string]any) { c["num_hidden_layers"] = 4; delete(c, "layer_types") }, []string{"model.layers.3.", "missing"}},
		{"a flat matrix", "qwen3-tied-fp32", func(m tensors) { m[qName].Shape = []int{m[qName].Len()} }, nil, []string{qName, "[8192]", "[128 64]"}},
		{"a transposed matrix", "qwen3-tied-fp32", func(m tensors) { m[qName].Shape = []int{64, 128} }, nil, []string{qName, "[64 128]", "[128 64]"}},
		{"integers for weights", "qwen3-tied-fp32", func(m tensors) { m[qName].Type = checkpoint.I32 }, nil, []string{qName, "I32"}},
		{"integers for a norm", "qwen3-tied-fp32", func(m tensors) { m["model.norm.weight"].Type = checkpoint.I32 }, nil, []string{"model.norm.weight", "I32"}},
		{"more vocabulary than embedding", "qwen3-tied-fp32", nil, func(c map[string]any) { c["vocab_size"] = 513 }, []string{"embed_tokens", "[512 64]", "[513 64]"}},
		{"a vocabulary of 16 million", "qwen3-tied-fp32", nil, func(c map[string]any) { c["vocab_size"] = 1 << 24 }, []string{"embed_tokens", "16777216"}},
		{"an untied head that is missing", "qwen3-tied-fp32", nil, func(c map[string]any) { c["tie_word_embeddings"] = false }, []string{"lm_head.weight", "missing"}},
		{"a bias that the config does not know", "qwen3-swa-bias-fp32", nil, func(c map[string]any) { c["attention_bias"] = false }, []string{"q_proj.bias", "not part"}},
		{"another family", "qwen3-tied-fp32", nil, func(c map[string]any) { c["model_type"] = "llama" }, []string{"q_norm", "not part of a llama"}},
		{"a missing recurrent tensor", "qwen35-8l-bf16", func(m tensors) { delete(m, "model.language_model.layers.2.linear_attn.A_log") }, nil, []string{"layers.2.linear_attn.A_log", "missing"}},
		{"a missing expert", "qwen3next-moe-fp32", func(m tensors) { delete(m, "model.layers.2.mlp.experts.3.up_proj.weight") }, nil, []string{"experts.3.up_proj", "missing"}},
		{"an expert too many", "qwen3next-moe-fp32", nil, func(c map[string]any) { c["num_experts"] = 3 }, []string{"mlp.gate.weight", "[4 48]", "[3 48]"}},
		{"experts by the thousand", "qwen3next-moe-fp32", nil, func(c map[string]any) { c["num_experts"] = 60000 }, []string{"60000"}},
		{"a context of 16 million is only a number", "qwen3-tied-fp32", nil, func(c map[string]any) { c["max_position_embeddings"] = 1 << 24 }, nil},
		{"inverse frequencies of old files", "qwen3-tied-fp32", func(m tensors) {
			e := *m["model.norm.weight"]
			e.Name = "model.layers.0.self_attn.rotary_emb.inv_freq"
			m["x"] = &e
		}, nil, nil},
		{"a tied model with a head", "qwen3-tied-fp32", func(m tensors) {
			e := *m["model.embed_tokens.weight"]
			e.Name = "lm_head.weight"
			m["x"] = &e
		}, nil, nil},
	} {
		t.Run(tt.why, func(t *testing.T) {
			dir := variant(t, tt.model, tt.tensors, tt.config)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d, err := open(context.Background(), dev, dir)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
				t.Errorf("loading allocated %d bytes", n)
			}
			if len(tt.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				d.Close()
				return
			}
			for _, w := range tt.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("error %v, want %q in it", err, w)
				}
			}
		})
	}
}

// logits of a fixed short text.
func logits(t *testing.T, dev backend.Device, d *nn.Decoder) []float32 {
	t.Helper()
	r := runner(t, dev, d, nn.RunnerConfig{})
	if err := r.Append(context.Background(), rows([]int64{5, 99, 3, 200, 17})); err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), r.Logits()...)
}

// TestTiedHead: a tied model reads its embedding even if a head lies beside it.
func TestTiedHead(t *testing.T) {
	dev := ref.New()
	plain := load(t, dev, filepath.Join(goldens, "checkpoints", "qwen3-tied-fp32"))
	noisy := load(t, dev, variant(t, "qwen3-tied-fp32", func(m map[string]*checkpoint.Entry) {
		e := *m["model.embed_tokens.weight"]
		e.Name, e.Data = "lm_head.weight", bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, e.Len())
		m["x"] = &e
	}, nil))
	want, got := logits(t, dev, plain), logits(t, dev, noisy)
	for i := range want {
		if want[i] != got[i] {
			t.Fatalf("logit %d is %v with an ignored head, %v without", i, got[i], want[i])
		}
	}
	if plain.ID != noisy.ID {
		t.Error("a head that is not read changes the model's ID")
	}
}

// TestModelID: equal for every load, device and number of threads; different for
// one bit of a weight and for one value of the config.
func TestModelID(t *testing.T) {
	const model = "qwen3-swa-bias-fp32"
	path := filepath.Join(goldens, "checkpoints", model)
	id := load(t, ref.New(), path).ID
	for _, impl := range cpu.Impls() {
		for _, threads := range []int{1, 2, 5} {
			dev, err := cpu.New(cpu.Config{Threads: threads, Impl: impl})
			if err != nil {
				t.Fatal(err)
			}
			d := load(t, dev, path)
			if d.ID != id {
				t.Errorf("%d threads of %s: ID %v, want %v", threads, impl, d.ID, id)
			}
			d.Close()
			dev.Close()
		}
	}
	if got := load(t, ref.New(), variant(t, model, nil, nil)).ID; got != id {
		t.Errorf("a copy has ID %v, want %v", got, id)
	}
	if got := load(t, ref.New(), variant(t, model, nil, func(c map[string]any) { c["max_position_embeddings"], c["eos_token_id"] = 100, 3 })).ID; got != id {
		t.Errorf("a smaller context and another end token, which change no bit, give ID %v, want %v", got, id)
	}
	seen := map[state.ID]string{id: "the original"}
	differs := func(what, dir string) {
		t.Helper()
		got := load(t, ref.New(), dir).ID
		if old, ok := seen[got]; ok {
			t.Errorf("%s has the ID of %s", what, old)
		}
		seen[got] = what
	}
	for _, name := range []string{"model.embed_tokens.weight", "model.norm.weight", "model.layers.3.self_attn.k_proj.bias", "model.layers.0.mlp.down_proj.weight"} {
		for _, at := range []int{0, 1} {
			differs("one bit of "+name, variant(t, model, func(m map[string]*checkpoint.Entry) {
				e := m[name]
				e.Data[at*(len(e.Data)-4)] ^= 1
			}, nil))
		}
	}
	for key, value := range map[string]any{"rms_norm_eps": 2e-5, "sliding_window": 33} {
		differs("config key "+key, variant(t, model, nil, func(c map[string]any) { c[key] = value }))
	}
	differs("another base", variant(t, model, nil, func(c map[string]any) {
		c["rope_parameters"].(map[string]any)["rope_theta"] = 10001
	}))
	differs("another layer pattern", variant(t, model, nil, func(c map[string]any) {
		c["layer_types"] = []string{"full_attention", "full_attention", "full_attention", "sliding_attention"}
	}))
}

func TestLoadCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	path := filepath.Join(goldens, "checkpoints", "qwen35-8l-bf16")
	dev := &counting{Device: ref.New()}
	set, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	_, err = qwen3.Load(ctx, dev, cfg, set, qwen3.LoadOptions{Progress: func(done, total int64) {
		if calls++; calls == 20 {
			cancel()
		}
		if done > total || done <= 0 {
			t.Errorf("progress: %d of %d bytes", done, total)
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while loading: %v", err)
	}
	if calls > 60 {
		t.Errorf("%d tensors were loaded after the cancellation", calls-20)
	}
	if dev.weights != 0 {
		t.Errorf("%d packed weights are left", dev.weights)
	}
	d, err := qwen3.Load(context.Background(), dev, cfg, set, qwen3.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if dev.weights == 0 {
		t.Error("no weights were packed")
	}
	d.Close()
	d.Close()
	if dev.weights != 0 {
		t.Errorf("%d packed weights are left after Close", dev.weights)
	}
}

// counting counts packed weights.
type counting struct {
	backend.Device
	weights int
}

func (c *counting) Pack(w tensor.Tensor, use backend.Use) (backend.Weight, error) {
	p, err := c.Device.Pack(w, use)
	if err == nil {
		c.weights++
	}
	return p, err
}

func (c *counting) Unpack(w backend.Weight) {
	c.weights--
	c.Device.Unpack(w)
}
