package cache

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// plans is testdata/models/cache/plans.json.
type plans struct {
	Plans []struct {
		From        int   `json:"from"`
		StateLen    int   `json:"state_len"`
		Align       int   `json:"align"`
		Stride      int   `json:"stride"`
		Tail        int   `json:"tail"`
		Checkpoints []int `json:"checkpoints"`
	} `json:"plans"`
	Scenarios []scenario `json:"scenarios"`
}

func readPlans(t *testing.T) plans {
	t.Helper()
	b, err := os.ReadFile("../testdata/models/cache/plans.json")
	if err != nil {
		t.Fatal(err)
	}
	var p plans
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// none turns the goldens' 0 into a Policy's.
func none(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

func TestCheckpointsGoldens(t *testing.T) {
	sets := map[[3]int]bool{}
	for _, g := range readPlans(t).Plans {
		p := Policy{Stride: none(g.Stride), Tail: none(g.Tail), Align: none(g.Align)}
		if got := p.Checkpoints(g.From, g.StateLen); !slices.Equal(got, g.Checkpoints) {
			t.Errorf("%+v from %d to %d: %v, want %v", p, g.From, g.StateLen, got, g.Checkpoints)
		}
		sets[[3]int{g.Align, g.Stride, g.Tail}] = true
	}
	if len(sets) != 6 {
		t.Errorf("%d parameter sets, want 6", len(sets))
	}
}

// A slow statement of the rule, one row at a time.
func TestCheckpointsRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	for i := range 500 {
		p := Policy{Stride: rng.IntN(80), Tail: rng.IntN(40), Align: 1 + rng.IntN(20), MaxChunk: 20 + rng.IntN(90)}
		r := p.resolved()
		from, end := rng.IntN(200), rng.IntN(400)
		e := end / r.Align * r.Align
		var want []int
		last := from
		for x := from + 1; x <= e; x++ {
			if x%r.Stride == 0 || x == (end-r.Tail)/r.Align*r.Align && end > r.Tail || x == e {
				want = append(want, x)
				last = x
				continue
			}
			// the place is only needed if nothing else comes within reach
			if x-last == r.MaxChunk {
				want = append(want, x)
				last = x
			}
		}
		if got := p.Checkpoints(from, end); !slices.Equal(got, want) {
			t.Fatalf("plan %d: %+v from %d to %d: %v, want %v", i, p, from, end, got, want)
		}
	}
}
