package opencl_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/grad"
	"samebit/qcc"
	"samebit/qcc/lm"
	"samebit/tensor/tensortest"
	"samebit/train"
)

// few is a training of a hybrid model in few steps.
const few = `{"name": "few", "seed": 5, "vocabulary": {"size": 300, "samples": 20}, "text": 0.2,
	"model": {"model_type": "qwen3_5_text", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
		"num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 1024,
		"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, "linear_num_key_heads": 1,
		"linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
		"layer_types": ["linear_attention", "full_attention"], "attn_output_gate": true},
	"stages": [{"steps": 2, "rows": 300, "least": 40, "most": 200, "answers": 3}],
	"optimiser": {"rate": 0.003, "floor": 0.1, "warmup": 1, "decay": 0.01, "clip": 1}}`

// both opens the processor and the device.
func both(t *testing.T) []backend.Device {
	dev := device(t)
	host, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	return []backend.Device{host, dev}
}

// A training gives the weights of the processor.
func TestTraining(t *testing.T) {
	cfg, err := train.ParseConfig([]byte(few))
	if err != nil {
		t.Fatal(err)
	}
	hash := map[string]bool{}
	for _, dev := range both(t) {
		res, err := train.Run(context.Background(), cfg, t.TempDir(), train.Options{Device: dev})
		if err != nil {
			t.Fatalf("%s: %v", dev.Name(), err)
		}
		hash[res.Hash] = true
		t.Logf("%s: %s", dev.Name(), res.Hash)
	}
	if len(hash) != 1 {
		t.Errorf("the trainings gave %d hashes of weights, want one", len(hash))
	}
}

// A model of attention over windows and archives gives the processor's logits and, after
// a step of training, its weights.
func TestArchiveModel(t *testing.T) {
	c := lm.DefaultConfig(23)
	c.Layer = qcc.DefaultConfig(20, 4)
	c.Layer.Window, c.Layers, c.MaxPosition = 5, 2, 40
	p, err := lm.NewParams(c, 7)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, c.MaxPosition)
	for i := range ids {
		ids[i] = int32(r.IntN(c.Vocab))
	}
	var want []float32
	for _, dev := range both(t) {
		m, err := lm.New(dev, c, p)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(ids)*c.Vocab)
		if err := m.Forward(context.Background(), got, ids); err != nil {
			t.Fatal(err)
		}
		x, err := lm.NewTrainer(dev, c, p, grad.AdamWConfig{Clip: 1})
		if err != nil {
			t.Fatal(err)
		}
		n := len(ids) - 1
		_, err = x.Backward(context.Background(), []lm.Text{{IDs: ids[:n], Targets: ids[1:]}, {IDs: ids[5:n], Targets: ids[6:]}})
		if err == nil {
			err = x.Step(0.01)
		}
		q, e := x.Params()
		if err = errors.Join(err, e, x.Close()); err != nil {
			t.Fatal(err)
		}
		got = append(got, q.Embed...)
		if want == nil {
			want = got
		} else if d := tensortest.DiffBits(want, got); d != "" {
			t.Errorf("(-cpu +%s): %s", dev.Name(), d)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
