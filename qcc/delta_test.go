package qcc

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"samebit/backend/cpu"
)

// randomDelta draws a configuration with a gated-delta memory.
func randomDelta(r *rand.Rand) Config {
	pick := func(l ...int) int { return l[r.IntN(len(l))] }
	kv := pick(1, 2, 3)
	c := Config{Memory: MemoryDelta, KV: kv, Heads: kv * pick(1, 1, 2), Dim: pick(2, 3, 5, 8, 17), Hidden: pick(4, 7, 16),
		Window: pick(1, 2, 5, 70), MaxPosition: pick(1, 64, 4096), AddressRank: pick(0, 1, 3), PositionInvariant: r.IntN(2) == 0, NormGating: r.IntN(4) == 0}
	if r.IntN(3) == 0 {
		c.Sinks = r.IntN(c.Window + 1)
	}
	if r.IntN(2) == 0 {
		c.RoPE = &RoPE{Theta: 10000, Dim: c.Dim &^ 1}
	}
	if r.IntN(4) == 0 {
		c.Remote = ptr(0.25)
	}
	return c
}

// A gated-delta memory obeys the laws of archives.
func TestDeltaLaws(t *testing.T) {
	fast, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Close()
	for seed := range 30 {
		r := rand.New(rand.NewPCG(uint64(seed), 43))
		c := randomDelta(r)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("%+v", c)
				}
			}()
			lawsOf(t, r, c, fast)
		})
		if !ok {
			break
		}
	}
}
