package agenttrace_test

import (
	"fmt"
	"slices"
	"testing"

	"samebit/cache"
	"samebit/cache/agenttrace"
	"samebit/state"
)

// At least 98 % of the rows in common prefixes are reused within a tenth of what
// checkpoints at every 16 rows would take.
func TestReuse(t *testing.T) {
	cfg, shapes := agenttrace.Config{}, agenttrace.Shapes()[:2]
	if testing.Short() {
		cfg, shapes = agenttrace.Config{Conversations: 12}, shapes[1:]
	}
	trace := agenttrace.Generate(cfg)
	for _, shape := range shapes {
		dense, err := agenttrace.Dense(shape, trace)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []cache.Order{cache.Cost, cache.LRU} {
			f, err := agenttrace.Replay(cache.Config{MemoryBytes: dense / 10, Order: o}, shape, trace)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %v: %d requests of %d rows, %d in common prefixes, %.2f %% reused within %d MiB of %d, %d evicted",
				shape.Name, o, f.Requests, f.Tokens, f.Common, 100*f.Share(), f.Peak>>20, dense>>20, f.Stats.Evicted)
			if f.Share() < 0.98 || f.Reused > f.Common || f.Peak > dense/10 {
				t.Errorf("%s %v: %.2f %% of %d rows reused with %d bytes of %d", shape.Name, o, 100*f.Share(), f.Common, f.Peak, dense/10)
			}
		}
	}
}

func TestTraceIsWhatItSays(t *testing.T) {
	trace := agenttrace.Generate(agenttrace.Config{Seed: 3})
	again := agenttrace.Generate(agenttrace.Config{Seed: 3})
	longest, kinds := map[int]int{}, map[string]int{}
	for i, r := range trace {
		if !slices.EqualFunc(r.Rows, again[i].Rows, func(a, b state.Row) bool { return a.Token == b.Token }) {
			t.Fatal("a seed gives two traces")
		}
		longest[r.Conversation] = max(longest[r.Conversation], len(r.Rows))
		kinds[r.What]++
	}
	if len(longest) != 30 {
		t.Errorf("%d conversations", len(longest))
	}
	for c, n := range longest {
		if n > 8000 || n < 400 { // the last message is not sent
			t.Errorf("conversation %d has %d rows", c, n)
		}
	}
	for _, k := range []string{"call", "edit", "shorten", "again"} {
		if kinds[k] == 0 {
			t.Errorf("no %q", k)
		}
	}
}

// BenchmarkReuse gives the figures of every shape and order for smaller budgets.
func BenchmarkReuse(b *testing.B) {
	trace := agenttrace.Generate(agenttrace.Config{})
	for _, shape := range agenttrace.Shapes() {
		dense, err := agenttrace.Dense(shape, trace)
		if err != nil {
			b.Fatal(err)
		}
		for _, o := range []cache.Order{cache.Cost, cache.LRU} {
			for _, part := range []int64{10, 20, 40} {
				b.Run(fmt.Sprintf("%s/%v/budget=dense÷%d", shape.Name, o, part), func(b *testing.B) {
					var f agenttrace.Figures
					for b.Loop() {
						if f, err = agenttrace.Replay(cache.Config{MemoryBytes: dense / part, Order: o}, shape, trace); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(100*f.Share(), "%reused")
					b.ReportMetric(float64(f.Peak)/(1<<20), "MiB")
				})
			}
		}
	}
}
