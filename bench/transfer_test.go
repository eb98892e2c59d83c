package bench_test

import (
	"context"
	"slices"
	"testing"

	"samebit/backend/cpu"
	"samebit/bench"
	"samebit/checkpoint"
	"samebit/qwen3"
)

// Transfer measures what it says, and refuses what it cannot measure.
func TestTransfer(t *testing.T) {
	dev, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
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
	defer dec.Close()
	var got []string
	cfg := bench.TransferConfig{Rows: 90, Request: 5, Senders: 3, Repeat: 2}
	err = bench.Transfer(context.Background(), dev, dec, cfg, func(r bench.Result) {
		if got = append(got, r.Test); len(r.Wall) != 2 || !(r.Best >= r.Median && r.Median > 0) {
			t.Errorf("%+v", r)
		}
	})
	if err != nil || !slices.Equal(got, []string{"request", "select", "transfer"}) {
		t.Errorf("measured %v, %v", got, err)
	}
	for _, bad := range []bench.TransferConfig{{}, {Rows: 7, Request: 1, Senders: 1, Repeat: 1}, {Rows: 8, Senders: 1, Repeat: 1}, {Rows: 8, Request: 1, Repeat: 1}, {Rows: 8, Request: 1, Senders: 1}} {
		if err := bench.Transfer(context.Background(), dev, dec, bad, nil); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
