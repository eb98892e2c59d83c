package cuda_test

import (
	"context"
	"fmt"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/cuda/emu"
	"samebit/train"
)

// Some steps of training give the weights of the processor.
func TestTraining(t *testing.T) {
	const dense = `{"model_type": "qwen3", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2,
		"num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 1024, "rope_theta": 10000.0}`
	const hybrid = `{"model_type": "qwen3_5_text", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
		"num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 1024,
		"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, "linear_num_key_heads": 1,
		"linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4,
		"layer_types": ["linear_attention", "full_attention"], "attn_output_gate": true}`
	for name, model := range map[string]string{"dense": dense, "hybrid": hybrid} {
		t.Run(name, func(t *testing.T) {
			cfg, err := train.ParseConfig(fmt.Appendf(nil, `{"name": "small", "seed": 5, "vocabulary": {"size": 280, "samples": 10}, "model": %s,
				"stages": [{"steps": 3, "rows": 150, "least": 40, "most": 90, "answers": 2}],
				"optimiser": {"rate": 0.003, "floor": 0.1, "warmup": 2, "decay": 0.01, "clip": 1}, "text": 0.2, "save": 3}`, model))
			if err != nil {
				t.Fatal(err)
			}
			run := func(dev backend.Device, opt train.Options) string {
				t.Helper()
				opt.Device = dev
				res, err := train.Run(context.Background(), cfg, t.TempDir(), opt)
				if err != nil {
					t.Fatal(err)
				}
				return res.Hash
			}
			host, err := cpu.New(cpu.Config{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			want := run(host, train.Options{})
			if got := run(open(t, emu.Config{}), train.Options{MicroRows: 100}); got != want {
				t.Errorf("weights %s, those of the processor are %s", got, want)
			}
		})
	}
}
