package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"samebit/backend/cpu"
)

func TestLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	ctx := context.Background()
	if r, err := ReadRate(ctx, 2, time.Millisecond); err != nil || r < 1e6 {
		t.Errorf("ReadRate = %g, %v: want more than a megabyte per second", r, err)
	}
	dev, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if r, err := ProductRate(ctx, dev, time.Millisecond); err != nil || r < 1e6 {
		t.Errorf("ProductRate = %g, %v: want more than a megaflop per second", r, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := ReadRate(ctx, 1, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("ReadRate of an ended context: %v", err)
	}
	if _, err := ProductRate(ctx, dev, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("ProductRate of an ended context: %v", err)
	}
}

func TestSum(t *testing.T) {
	v := make([]uint64, 64)
	for i := range v {
		v[i] = uint64(i)
	}
	if got := sum(v); got != 63*64/2 {
		t.Errorf("sum = %d, want %d", got, 63*64/2)
	}
}
