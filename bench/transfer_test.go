package bench_test

import (
	"context"
	"slices"
	"testing"

	"samebit/bench"
)

// Transfer measures what it says, and refuses what it cannot measure.
func TestTransfer(t *testing.T) {
	dev, dec := hybrid(t)
	var got []string
	cfg := bench.TransferConfig{Rows: 90, Request: 5, Senders: 3, Repeat: 2}
	err := bench.Transfer(context.Background(), dev, dec, cfg, func(r bench.Result) {
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
