package cache_test

import (
	"context"
	"fmt"
	"log"

	"samebit/backend/cpu"
	"samebit/cache"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
)

func ExampleCache_Prefill() {
	dev, err := cpu.New(cpu.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	set, err := checkpoint.Open("../testdata/models/checkpoints/qwen35-8l-bf16")
	if err != nil {
		log.Fatal(err)
	}
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	dec, err := qwen3.Load(ctx, dev, cfg, set, qwen3.LoadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer dec.Close()
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	stream, err := dev.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	seq, err := dec.NewRunner(stream, pool, nn.RunnerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer seq.Close()

	c, err := cache.New(pool, cache.Config{MemoryBytes: 64 << 20, Policy: cache.Policy{MinPrefix: 32}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	chat := make([]state.Row, 300)
	for i := range chat {
		chat[i].Token = int32(3 + i%250)
	}
	key := cache.Key{Model: dec.ID}
	for _, n := range []int{200, 300, 300} { // a chat that grows, and its last request again
		rep, err := c.Prefill(ctx, key, seq, chat[:n], n-1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v: %d rows reused, %d run, checkpoints at %v\n", rep.Outcome, rep.Start, rep.Computed, rep.Made)
	}
	// Output:
	// cold: 0 rows reused, 200 run, checkpoints at [183 199]
	// partial: 199 rows reused, 101 run, checkpoints at [283 299]
	// hit: 299 rows reused, 1 run, checkpoints at []
}
