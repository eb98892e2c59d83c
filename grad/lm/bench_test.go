package lm_test

import (
	"context"
	"flag"
	"testing"

	"samebit/backend/cpu"
	"samebit/grad/lm"
)

var micro = flag.Int("micro", 0, "rows of a micro-batch in benchmarks")

// BenchmarkStep measures a training step of a small dense model: 8 texts of 512
// rows. The products count 6 operations per weight and row; attention, norms and the
// optimiser are in the time and not in the count.
func BenchmarkStep(b *testing.B) {
	for _, bench := range []struct {
		name   string
		config map[string]any
	}{
		{"dense", map[string]any{
			"model_type": "qwen3", "vocab_size": 2048, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 4,
			"num_key_value_heads": 2, "head_dim": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 8192, "rope_theta": 10000.0,
		}},
		{"hybrid", map[string]any{
			"model_type": "qwen3_5_text", "vocab_size": 2048, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 4,
			"num_key_value_heads": 2, "head_dim": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 8192,
			"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}, "linear_num_key_heads": 4,
			"linear_num_value_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4,
			"full_attention_interval": 3, "attn_output_gate": true,
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			dev, err := cpu.New(cpu.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer dev.Close()
			m := open(b, dev, bench.config, lm.Config{MicroRows: *micro})
			const rows = 8 * 512
			batch := toy(1, 8, 512, 512)
			m.step(batch, 1e-3)
			for b.Loop() {
				m.step(batch, 1e-3)
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(6*rows*float64(m.p.Len())*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			if _, err := m.t.Losses(context.Background(), batch); err != nil {
				b.Fatal(err)
			}
		})
	}
}
