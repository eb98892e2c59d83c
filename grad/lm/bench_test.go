package lm_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"samebit/backend/cpu"
	"samebit/grad/lm"
)

var (
	micro      = flag.Int("micro", 0, "rows of a micro-batch in benchmarks")
	configFile = flag.String("config", "../../models/tiny/config.json", "config.json of a model in benchmarks")
	seqs       = flag.Int("seqs", 8, "texts of a batch in benchmarks")
	rowsEach   = flag.Int("rows", 512, "rows of a text in benchmarks")
)

// BenchmarkStep measures a training step of small models, by default 8 texts of 512
// rows. The products count 6 operations per weight and row; attention, norms and the
// optimiser are in the time and not in the count.
func BenchmarkStep(b *testing.B) {
	var named map[string]any
	text, err := os.ReadFile(*configFile)
	if err == nil {
		err = json.Unmarshal(text, &named)
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, bench := range []struct {
		name   string
		config map[string]any
	}{
		{"config", named},
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
			rows := *seqs * *rowsEach
			batch := toy(1, *seqs, *rowsEach, *rowsEach)
			m.step(batch, 1e-3)
			for b.Loop() {
				m.step(batch, 1e-3)
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(6*float64(rows*m.p.Len())*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			if _, err := m.t.Losses(context.Background(), batch); err != nil {
				b.Fatal(err)
			}
		})
	}
}
