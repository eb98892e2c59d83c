package qwen3_test

import (
	"bytes"
	"slices"
	"testing"

	"samebit/checkpoint"
	"samebit/qwen3"
)

// Parameters of yarn that a GGUF file names are used or refused, never passed over.
func TestGGUFYarn(t *testing.T) {
	parse := func(more ...checkpoint.KV) (qwen3.Config, error) {
		t.Helper()
		meta := slices.Concat([]checkpoint.KV{
			{Key: "general.architecture", Value: "llama"}, {Key: "llama.embedding_length", Value: uint32(64)}, {Key: "llama.block_count", Value: uint32(1)},
			{Key: "llama.attention.head_count", Value: uint32(4)}, {Key: "llama.feed_forward_length", Value: uint32(96)},
			{Key: "llama.context_length", Value: uint32(512)}, {Key: "llama.vocab_size", Value: uint32(100)},
			{Key: "llama.rope.scaling.type", Value: "yarn"}, {Key: "llama.rope.scaling.factor", Value: float32(4)},
		}, more)
		var b bytes.Buffer
		if err := checkpoint.WriteGGUF(&b, nil, meta); err != nil {
			t.Fatal(err)
		}
		set, err := checkpoint.Parse("yarn", b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		return qwen3.FromSet(set)
	}
	kv := func(name string, v float32) checkpoint.KV {
		return checkpoint.KV{Key: "llama.rope.scaling." + name, Value: v}
	}
	c, err := parse(kv("yarn_beta_fast", 24), kv("yarn_beta_slow", 2), kv("yarn_ext_factor", 1))
	if err != nil || c.Scaling.Type != "yarn" || c.Scaling.BetaFast != 24 || c.Scaling.BetaSlow != 2 {
		t.Errorf("scaling %+v, error %v", c.Scaling, err)
	}
	for _, k := range []checkpoint.KV{kv("attn_factor", 2), kv("yarn_attn_factor", 0.5), kv("yarn_ext_factor", 0), kv("yarn_log_multiplier", 0.1)} {
		if _, err := parse(k); err == nil {
			t.Errorf("%s = %v is passed over", k.Key, k.Value)
		}
	}
}
