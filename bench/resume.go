package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"samebit/backend"
	"samebit/cache"
	"samebit/nn"
	"samebit/state"
)

// ResumeConfig says how prompts share a beginning.
type ResumeConfig struct {
	Name   string
	Rows   int // of a prompt
	Shared int // rows that the second prompt has in common with the first
	First  int // rows of the first, cached prompt; 0 means Rows
	Stride int // between checkpoints; 0 means the cache's default
	Repeat int
}

// Resume measures a prompt that parts from a cached one: its cold time (test
// "cold") and its time with the cache ("resume"). The logits must have the same
// bits.
func Resume(ctx context.Context, dev backend.Device, dec *nn.Decoder, cfg ResumeConfig, emit func(Result)) error {
	if cfg.First == 0 {
		cfg.First = cfg.Rows
	}
	if cfg.Rows < 2 || cfg.First <= cfg.Shared || cfg.Shared < 0 || cfg.Shared >= cfg.Rows || cfg.Repeat < 1 {
		return fmt.Errorf("bench: resume of %d rows that share %d with the %d before, %d times: want fewer shared than rows of either prompt, and at least one repetition", cfg.Rows, cfg.Shared, cfg.First, cfg.Repeat)
	}
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		return err
	}
	s, err := dev.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	m := &measure{ctx: ctx, cfg: ModelConfig{Name: cfg.Name}, dev: dev, dec: dec, pool: pool, stream: s, emit: emit}
	cold, warm := m.result("cold"), m.result("resume")
	cold.N, warm.N, cold.Depth, warm.Depth = cfg.Rows, cfg.Rows, cfg.Shared, cfg.Shared
	before, err := dec.NewRunner(s, pool, nn.RunnerConfig{})
	if err != nil {
		return err
	}
	err = before.Append(ctx, m.rows(min(cfg.Rows, warmRows), 99))
	before.Close()
	if err != nil {
		return err
	}
	for i := range cfg.Repeat {
		if err := m.resume(cfg, i, &cold, &warm); err != nil {
			return err
		}
	}
	for _, r := range []*Result{&cold, &warm} {
		r.finish(float64(cfg.Rows))
		emit(*r)
	}
	return pool.Close()
}

// resume runs one pair of prompts without and with a fresh cache.
func (m *measure) resume(cfg ResumeConfig, i int, cold, warm *Result) error {
	first := m.rows(cfg.First, 100+2*i)
	second := append(append([]state.Row(nil), first[:cfg.Shared]...), m.rows(cfg.Rows-cfg.Shared, 101+2*i)...)
	run, err := m.dec.NewRunner(m.stream, m.pool, nn.RunnerConfig{})
	if err != nil {
		return err
	}
	defer run.Close()
	c, err := cache.New(m.pool, cache.Config{MemoryBytes: 16 << 30, Policy: cache.Policy{Stride: cfg.Stride}, Clock: time.Now})
	if err != nil {
		return err
	}
	defer c.Close(m.ctx)
	if err := cold.timed(func() error { return run.Append(m.ctx, second) }); err != nil {
		return err
	}
	want := append([]float32(nil), run.Logits()...)
	key := cache.Key{Model: m.dec.ID}
	if _, err := c.Prefill(m.ctx, key, run, first, len(first)-1); err != nil {
		return err
	}
	if err := warm.timed(func() error {
		_, err := c.Prefill(m.ctx, key, run, second, len(second)-1)
		return err
	}); err != nil {
		return err
	}
	for v, x := range run.Logits() {
		if math.Float32bits(x) != math.Float32bits(want[v]) {
			return fmt.Errorf("bench: resume: logit %d is %08x, cold %08x", v, math.Float32bits(x), math.Float32bits(want[v]))
		}
	}
	return nil
}
