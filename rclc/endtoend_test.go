package rclc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
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

// loaded is a model on a device, closed with the test.
func loaded(t testing.TB, dev backend.Device, cfg qwen3.Config, set *checkpoint.Set, mc ModelConfig) *Model {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dec, err := qwen3.Load(bg, dev, cfg, set, qwen3.LoadOptions{})
	must(err)
	owner := dec
	if strings.HasSuffix(mc.Checkpoint, bf16KV) {
		dec, err = dec.WithKV(tensor.BF16)
		must(err)
	}
	pool, err := state.NewPool(dev, 0)
	must(err)
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err) // a page was not given back
		}
		owner.Close()
	})
	mc.ModelType = cfg.ModelType
	m, err := NewModel(dec, pool, mc)
	must(err)
	return m
}

// endToEnd is a small model with weights, and what becomes of its documents.
type endToEnd struct {
	Config struct {
		Hidden, Intermediate, Layers, Vocab int
		Heads                               int `json:"q_heads"`
		KV                                  int `json:"kv_heads"`
		D                                   int `json:"head_dim"`
		Eps, Theta                          float64
		Max                                 int `json:"max_positions"`
	}
	Weights   map[string]*array
	Documents [][]int32
	Request   []int32 `json:"request_ids"`
	Prompt    []int32 `json:"receiver_prompt_ids"`
	Steps     int     `json:"latent_steps"`
	Span      int     `json:"span_size"`
	Chunk     int     `json:"chunk_size"`
	Window    int     `json:"window_size"`
	Kernel    int     `json:"kernel_size"`
	Ratio     int
	Cases     []struct {
		Name, Selector string
		Reasoning      *string
		Thoughts       [][]float64
		Senders, Hops  []struct {
			Positions int `json:"sender_positions"`
			Inherited int
			Budget    int `json:"resolved_budget"`
			Selector  int `json:"selector_budget"`
			Scores    []float64
			Selected  []int
		}
		MessagePositions int `json:"message_positions"`
		Receiver         struct {
			Positions int
			Logits    []float64 `json:"last_logits"`
			ArgMax    int       `json:"argmax"`
		}
	}
}

// open builds the model on a device.
func (e *endToEnd) open(t testing.TB, dev backend.Device) *Model {
	t.Helper()
	c := e.Config
	text, err := json.Marshal(map[string]any{
		"model_type": "qwen3", "hidden_size": c.Hidden, "intermediate_size": c.Intermediate, "num_hidden_layers": c.Layers,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KV, "head_dim": c.D, "vocab_size": c.Vocab, "rms_norm_eps": c.Eps,
		"rope_theta": c.Theta, "max_position_embeddings": c.Max, "tie_word_embeddings": true, "hidden_act": "silu",
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := qwen3.ParseConfig(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("final_norm", "model.norm.weight", "embed", "model.embed_tokens.weight",
		".q_norm", ".self_attn.q_norm.weight", ".k_norm", ".self_attn.k_norm.weight",
		".in_norm", ".input_layernorm.weight", ".post_norm", ".post_attention_layernorm.weight",
		".q", ".self_attn.q_proj.weight", ".k", ".self_attn.k_proj.weight", ".v", ".self_attn.v_proj.weight", ".o", ".self_attn.o_proj.weight",
		".gate", ".mlp.gate_proj.weight", ".up", ".mlp.up_proj.weight", ".down", ".mlp.down_proj.weight", "layers.", "model.layers.")
	var list []checkpoint.Entry
	for name, a := range e.Weights {
		list = append(list, checkpoint.Entry{Name: names.Replace(name), Type: checkpoint.F32, Shape: a.Shape, Data: tensor.AsBytes(a.f32(t))})
	}
	var file bytes.Buffer
	if err := checkpoint.Write(&file, list, nil); err != nil {
		t.Fatal(err)
	}
	set, err := checkpoint.Parse("end-to-end.safetensors", file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return loaded(t, dev, cfg, set, ModelConfig{})
}

func (e *endToEnd) selector(name string) Selector {
	switch name {
	case "cacheback":
		return CacheBack{Span: e.Span}
	case "qsnap":
		return QSnap{Span: e.Span}
	}
	return ChunkKV{Chunk: e.Chunk, Window: e.Window, Kernel: e.Kernel}
}

// tokens is a sender of ids, released with the test.
func tokens(t testing.TB, m *Model, ids []int32) *Sender {
	t.Helper()
	s, err := FromTokens(bg, m, ids)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Release)
	return s
}

// receive runs the rows of a delivery and the prompt from nothing.
func receive(t testing.TB, m *Model, d Delivery, prompt []int32) (rows []state.Row, logits []float32) {
	t.Helper()
	rows, _, err := Plan{Prompt: prompt, Allowance: 1, Limit: m.Info.Context}.Assemble(m, d)
	if err != nil {
		t.Fatal(err)
	}
	err = m.scratch(func(r *nn.Runner) error {
		if err := r.Append(bg, rows); err != nil {
			return err
		}
		logits = slices.Clone(r.Logits())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows, logits
}

func TestGoldenEndToEnd(t *testing.T) {
	var e endToEnd
	golden(t, "end-to-end", &e)
	if len(e.Cases) != 8 {
		t.Errorf("%d cases", len(e.Cases))
	}
	fast, err := cpu.New(cpu.Config{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Close()
	for _, dev := range []backend.Device{ref.New(), fast} {
		t.Run(dev.Name(), func(t *testing.T) {
			m := e.open(t, dev)
			for _, c := range e.Cases {
				t.Run(c.Name, func(t *testing.T) {
					if len(c.Hops) > 0 {
						e.chain(t, m)
						return
					}
					for _, form := range []Form{Embeddings, TokenIDs} {
						cfg := Config{Ratio: e.Ratio, Selector: e.selector(c.Selector), Record: true, Form: form}
						docs := e.Documents
						if c.Reasoning != nil {
							docs = docs[:1]
							cfg.Reason, cfg.ReasonBudget = Latent{Steps: e.Steps}, e.Steps
							for k := Full; k <= SelectedWithRequest; k++ {
								if k.String() == *c.Reasoning {
									cfg.ReasonContext = k
								}
							}
						}
						var from []Source
						for _, ids := range docs {
							from = append(from, tokens(t, m, ids))
						}
						var got Delivery
						to := ReceiverFunc(func(_ context.Context, d Delivery) error { got = d; return nil })
						if err := Transfer(bg, from, []Receiver{to}, []Request{{IDs: e.Request}}, cfg); err != nil {
							t.Fatal(err)
						}
						for i, want := range c.Senders {
							sel := got.Messages[i].Selection()
							if sel.Budget != want.Budget || !slices.Equal(sel.Indices, want.Selected) {
								t.Errorf("sender %d: %v of a budget of %d, want %v of %d", i, sel.Indices, sel.Budget, want.Selected, want.Budget)
							}
							if want.Selector > 0 && sel.Budget-sel.Reserve != want.Selector {
								t.Errorf("sender %d: the selector had %d, want %d", i, sel.Budget-sel.Reserve, want.Selector)
							}
							e.scores(t, m, &cfg, from[i].(*Sender), want.Scores)
						}
						if c.MessagePositions > 0 && got.Messages[0].Positions() != c.MessagePositions {
							t.Errorf("%d positions, want %d", got.Messages[0].Positions(), c.MessagePositions)
						}
						rows, logits := receive(t, m, got, e.Prompt)
						if len(rows) != c.Receiver.Positions || peak(logits) != c.Receiver.ArgMax {
							t.Errorf("%d rows and token %d, want %d and %d", len(rows), peak(logits), c.Receiver.Positions, c.Receiver.ArgMax)
						}
						near(t, "logits", logits, c.Receiver.Logits, 1e-4, 2e-5)
						for k, want := range c.Thoughts {
							at := got.Messages[0].Positions() - len(c.Thoughts) + k
							near(t, fmt.Sprintf("thought %d", k), rows[at].Vec, want, 1e-4, 2e-5)
						}
					}
				})
			}
		})
	}
}

// scores compares what the selector scores on the sender as the transfer saw it.
func (e *endToEnd) scores(t *testing.T, m *Model, cfg *Config, s *Sender, want []float64) {
	t.Helper()
	if cfg.Reason != nil && !cfg.ReasonContext.after() {
		l := LatentConfig{Steps: e.Steps}
		if cfg.ReasonContext.sees() {
			l.Request = e.Request
		}
		grown, err := LatentMass(bg, s, l)
		if err != nil {
			t.Fatal(err)
		}
		defer grown.Release()
		s = grown
	}
	got, err := cfg.Selector.(Scorer).Scores(bg, s, e.Request)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "scores", got, want, 2e-5, 1e-7)
}

// chain hands what one hop selects to the next, before its own document.
func (e *endToEnd) chain(t *testing.T, m *Model) {
	c := e.Cases[len(e.Cases)-1]
	third := slices.Clone(e.Documents[0])
	slices.Reverse(third)
	var carried Delivery
	for i, doc := range [][]int32{e.Documents[0], e.Documents[1], third} {
		rows, inherited, err := Plan{Prompt: doc, Limit: m.Info.Context}.Assemble(m, carried)
		if err != nil {
			t.Fatal(err)
		}
		s, err := FromRows(bg, m, rows)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		s.Inherited = inherited
		want := c.Hops[i]
		cfg := Config{Ratio: e.Ratio, Selector: e.selector(c.Selector), Record: true}
		to := ReceiverFunc(func(_ context.Context, d Delivery) error { carried = d; return nil })
		if err := Transfer(bg, []Source{s}, []Receiver{to}, []Request{{IDs: e.Request}}, cfg); err != nil {
			t.Fatal(err)
		}
		sel := carried.Messages[0].Selection()
		if s.Len() != want.Positions || inherited != want.Inherited || sel.Budget != want.Budget || !slices.Equal(sel.Indices, want.Selected) {
			t.Errorf("hop %d: %d positions, %d inherited, budget %d, %v; want %+v", i, s.Len(), inherited, sel.Budget, sel.Indices, want)
		}
		e.scores(t, m, &cfg, s, want.Scores)
	}
	rows, logits := receive(t, m, carried, e.Prompt)
	if len(rows) != c.Receiver.Positions || peak(logits) != c.Receiver.ArgMax {
		t.Errorf("%d rows and token %d, want %d and %d", len(rows), peak(logits), c.Receiver.Positions, c.Receiver.ArgMax)
	}
	near(t, "logits", logits, c.Receiver.Logits, 1e-4, 2e-5)
}
