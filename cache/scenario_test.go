package cache

import (
	"context"
	"slices"
	"testing"

	"samebit/state"

	"github.com/google/go-cmp/cmp"
)

// scenario is a sequence of requests with what the source design does.
type scenario struct {
	Name   string `json:"name"`
	Config struct {
		Budget int64 `json:"budget"`
		Align  *int  `json:"align"`
	} `json:"config"`
	Requests []struct {
		PrefixSegments [][2]int `json:"prefix_segments"`
		Suffix         int      `json:"suffix"`
		Slots          *[]int   `json:"slots"`
		Expect         struct {
			Eligible    bool     `json:"eligible"`
			Aligned     int      `json:"aligned_prefix"`
			Start       int      `json:"start"`
			Kind        string   `json:"kind"`
			Checkpoints []int    `json:"checkpoints"`
			Spans       [][2]int `json:"spans"`
			Evicted     [][2]int `json:"evicted"`
			Bytes       int64    `json:"bytes"`
			Live        int64    `json:"live"`
			Groups      int      `json:"groups"`
		} `json:"expect"`
	} `json:"requests"`
	Stats map[string]int64 `json:"stats"`
}

// segments builds the rows of a prefix by the goldens' formula.
func segments(l [][2]int) (rows []state.Row) {
	for _, s := range l {
		for i := range s[1] {
			rows = append(rows, state.Row{Token: int32((s[0]*1000003 + i*7919) % 50021)})
		}
	}
	return rows
}

// eligible are the limits of the source design's service, which the cache does not
// have.
func eligible(e, n int, slots []int) bool {
	sizes := []int{16, 32, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048}
	i, _ := slices.BinarySearch(sizes, n-e)
	if i == len(sizes) || e+sizes[i] > 8192 || len(slots) < 1 || len(slots) > 4 {
		return false
	}
	return slices.Min(slots) >= e
}

func TestSourceScenarios(t *testing.T) {
	all := readPlans(t).Scenarios
	if len(all) != 9 {
		t.Fatalf("%d scenarios, want 9", len(all))
	}
	for _, sc := range all {
		t.Run(sc.Name, func(t *testing.T) {
			pol := SourcePolicy()
			if sc.Config.Align != nil {
				pol.Align = none(*sc.Config.Align)
			}
			budget := sc.Config.Budget
			if budget == 0 {
				budget = -1
			}
			c, err := New(nil, Config{MemoryBytes: budget, Order: LRU, Policy: pol})
			if err != nil {
				t.Fatal(err)
			}
			w, groups := &world{}, 0
			for i, r := range sc.Requests {
				rows := segments(r.PrefixSegments)
				p := len(rows)
				for j := range r.Suffix {
					rows = append(rows, state.Row{Token: int32(100000 + 5000*i + j)})
				}
				slots := []int{len(rows) - 1}
				if r.Slots != nil {
					slots = *r.Slots
				}
				e := c.pol.down(p)
				if !eligible(e, len(rows), slots) {
					if r.Expect.Eligible {
						t.Fatalf("request %d should be eligible", i)
					}
					continue
				}
				q := &fakeSeq{w: w, group: &fakeGroup{id: groups, bytes: 10 * int64(e)}}
				w.evicted = nil
				rep, err := c.Prefill(context.Background(), Key{}, q, rows, p)
				if err != nil {
					t.Fatal(err)
				}
				x := r.Expect
				if (rep.Outcome != Bypass) != x.Eligible {
					t.Fatalf("request %d: %v, want eligible: %v", i, rep.Outcome, x.Eligible)
				}
				if !x.Eligible {
					continue
				}
				if len(rep.Made) > 0 {
					groups++
				}
				seen := map[*fakeGroup]bool{}
				for k := range c.ledger.pieces {
					if s, ok := k.(*fakeSnap); ok {
						seen[s.group] = true
					}
				}
				type result struct {
					Aligned, Start int
					Kind           Outcome
					Made           []int
					Spans, Evicted [][2]int
					Bytes, Live    int64
					Groups         int
				}
				s := c.Stats()
				got := result{e, rep.Start, rep.Outcome, rep.Made, q.spans, w.evicted, s.Bytes, s.Checkpoints, len(seen)}
				want := result{x.Aligned, x.Start, map[string]Outcome{"cold": Cold, "partial": Partial, "hits": Hit}[x.Kind],
					x.Checkpoints, x.Spans, x.Evicted, x.Bytes, x.Live, x.Groups}
				if d := cmp.Diff(want, got, cmp.Transformer("nonil", func(l []int) []int { return append([]int{}, l...) }),
					cmp.Transformer("nonil2", func(l [][2]int) [][2]int { return append([][2]int{}, l...) })); d != "" {
					t.Errorf("request %d (-want +got):\n%s", i, d)
				}
			}
			s := c.Stats()
			got := map[string]int64{"rows": s.Rows, "hits": s.Hits, "partial": s.Partial, "cold": s.Cold,
				"tokens_reused": s.TokensReused, "tokens_computed": s.TokensComputed, "made": s.Made, "evicted": s.Evicted}
			if d := cmp.Diff(sc.Stats, got); d != "" {
				t.Errorf("stats (-want +got):\n%s", d)
			}
			if err := c.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			if w.live != 0 {
				t.Errorf("%d snapshots are held after Close", w.live)
			}
		})
	}
}
