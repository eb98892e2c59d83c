package cache_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"samebit/cache"
	"samebit/cache/agenttrace"
)

// A short agent trace on a real hybrid model: equal bits, and reuse within a
// budget.
func TestAgentTraceOnAModel(t *testing.T) {
	m := openModel(t, hybrid)
	cfg := agenttrace.Config{Seed: 1, Conversations: 8, AtOnce: 3, MinTokens: 60, MaxTokens: 440, Vocab: 290}
	if testing.Short() {
		cfg.Conversations = 3
	}
	trace := agenttrace.Generate(cfg)
	common := agenttrace.Common(trace)
	r := newRig(t, m, cache.Config{MemoryBytes: 3 << 20, Policy: cache.Policy{MinPrefix: -1, Stride: 64, Tail: 4}})
	sum, reused := 0, 0
	for i, q := range trace {
		rep := r.run(q.Rows, len(q.Rows)-1)
		sum += min(common[i], len(q.Rows)-1)
		reused += rep.Start
	}
	t.Logf("%d requests, %d of %d common rows reused, %+v", len(trace), reused, sum, r.c.Stats())
	if reused*10 < sum*9 {
		t.Errorf("%d of %d common rows reused", reused, sum)
	}
}

// ttft measures a cold request of n rows and one that hits all but the last.
func ttft(t testing.TB, m *model, n int) (cold, hit time.Duration) {
	t.Helper()
	c, err := cache.New(m.pool, cache.Config{MemoryBytes: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	q := m.seq(t, 512)
	defer func() {
		q.close()
		s.Close()
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	rows := tokens(1, n)
	k := cache.Key{Model: m.dec.ID}
	run := func(want cache.Outcome) time.Duration {
		start := time.Now()
		rep, err := c.Prefill(context.Background(), k, q.Runner, rows, n-1)
		d := time.Since(start)
		if err != nil || rep.Outcome != want || q.Logits() == nil {
			t.Fatalf("%+v, %v", rep, err)
		}
		return d
	}
	cold = run(cache.Cold)
	first := slices.Clone(q.Logits())
	hit = time.Hour
	for range 5 {
		hit = min(hit, run(cache.Hit))
	}
	if bitsOf(first) != bitsOf(q.Logits()) {
		t.Error("the hit has other bits")
	}
	return cold, hit
}

// A hit at 8,192 rows costs at most 2 % of a cold run until the first token.
func TestHitIsQuick(t *testing.T) {
	n := 8192
	if testing.Short() {
		n = 2048
	}
	m := openModel(t, hybrid)
	m.dec.Context = 0
	cold, hit := ttft(t, m, n)
	t.Logf("%d rows: cold %v, hit %v, %.2f %%", n, cold, hit, 100*hit.Seconds()/cold.Seconds())
	if hit*50 > cold {
		t.Errorf("a hit at %d rows takes %v, cold %v", n, hit, cold)
	}
}

func BenchmarkTTFT(b *testing.B) {
	for _, name := range []string{"qwen3-tied-fp32", "qwen35-8l-bf16", hybrid} {
		b.Run(fmt.Sprintf("%s/rows=8192", name), func(b *testing.B) {
			m := openModel(b, name)
			m.dec.Context = 0
			var cold, hit time.Duration
			for b.Loop() {
				cold, hit = ttft(b, m, 8192)
			}
			b.ReportMetric(cold.Seconds()*1e3, "cold-ms")
			b.ReportMetric(hit.Seconds()*1e3, "hit-ms")
			b.ReportMetric(100*hit.Seconds()/cold.Seconds(), "%hit/cold")
		})
	}
}

// BenchmarkLookup finds 64 rows among many checkpoints that begin like them.
func BenchmarkLookup(b *testing.B) {
	m := openModel(b, hybrid)
	for _, n := range []int{10, 1000, 100000} {
		b.Run(fmt.Sprintf("checkpoints=%d", n), func(b *testing.B) {
			c, err := cache.New(m.pool, cache.Config{MemoryBytes: 1 << 50})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close(context.Background())
			k := cache.Key{Model: m.dec.ID}
			rows := tokens(1, 128)
			q := m.seq(b, 512)
			defer q.close()
			m.dec.Context = 0
			if err := q.Runner.Append(context.Background(), rows[:64]); err != nil {
				b.Fatal(err)
			}
			snap, err := q.Snapshot()
			if err != nil {
				b.Fatal(err)
			}
			defer snap.Release()
			for i := range n { // in sequences of 64 rows, the first of them like ours
				l := slices.Clone(rows[:64])
				l[i%63+1].Token += int32(i)
				if err := c.Insert(k, l, snap); err != nil {
					b.Fatal(err)
				}
			}
			if s := c.Stats(); s.Checkpoints < int64(n)*9/10 {
				b.Fatalf("%d checkpoints", s.Checkpoints)
			}
			if err := c.Insert(k, rows[:64], snap); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				s, _ := c.Lookup(k, rows)
				s.Release()
			}
		})
	}
}
