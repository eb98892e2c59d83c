package qwen3_test

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"

	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/qwen3"
)

// A tensor that holds several weights is counted once.
func TestProgressEndsAtTheTotal(t *testing.T) {
	for _, model := range []string{"qwen3next-moe-bf16", "qwen3next-dense-fp32", "qwen35-bf16", "llama3-bf16"} {
		set, err := checkpoint.Open(filepath.Join(goldens, "checkpoints", model))
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		cfg, err := qwen3.FromSet(set)
		if err != nil {
			t.Fatal(err)
		}
		var last, want int64
		d, err := qwen3.Load(context.Background(), ref.New(), cfg, set, qwen3.LoadOptions{Progress: func(done, total int64) {
			if done <= last || done > total {
				t.Errorf("%s: progress goes from %d to %d of %d bytes", model, last, done, total)
			}
			last, want = done, total
		}})
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		if last != want {
			t.Errorf("%s: progress ends at %d of %d bytes", model, last, want)
		}
	}
}

// Sizes that only config.json claims cost nothing: the file has no such tensors.
func TestClaimedSizesAllocateNothing(t *testing.T) {
	dir := variant(t, "qwen3next-dense-fp32", nil, func(c map[string]any) {
		for _, k := range []string{"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"} {
			c[k] = 2048
		}
	})
	set, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := qwen3.Load(context.Background(), ref.New(), cfg, set, qwen3.LoadOptions{}); err == nil {
		t.Fatal("a file of other sizes was loaded")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
		t.Errorf("refusing the file allocated %d MiB", n>>20)
	}
}
