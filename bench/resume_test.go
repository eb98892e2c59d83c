package bench_test

import (
	"context"
	"testing"

	"samebit/backend/cpu"
	"samebit/bench"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
)

// hybrid is a small hybrid model on a processor with two workers.
func hybrid(t *testing.T) (*cpu.Device, *nn.Decoder) {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	set, err := checkpoint.Open("../testdata/models/checkpoints/qwen35-bf16")
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	shape, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := qwen3.Load(context.Background(), dev, shape, set, qwen3.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dec.Close)
	return dev, dec
}

// Resume checks the bits of what it times, and refuses what it cannot measure.
func TestResume(t *testing.T) {
	dev, dec := hybrid(t)
	var got []string
	cfg := bench.ResumeConfig{Rows: 400, Shared: 333, Stride: 64, Repeat: 2}
	if err := bench.Resume(context.Background(), dev, dec, cfg, func(r bench.Result) { got = append(got, r.Test) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0] != "cold" || got[1] != "resume" {
		t.Errorf("measured %v", got)
	}
	cfg.First, cfg.Repeat = 500, 1 // a longer one before
	if err := bench.Resume(context.Background(), dev, dec, cfg, func(bench.Result) {}); err != nil {
		t.Error(err)
	}
	for _, bad := range []bench.ResumeConfig{{}, {Rows: 10, Shared: 10, Repeat: 1}, {Rows: 10, Shared: -1, Repeat: 1}, {Rows: 10, Shared: 1}, {Rows: 10, Shared: 5, First: 5, Repeat: 1}} {
		if err := bench.Resume(context.Background(), dev, dec, bad, nil); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
