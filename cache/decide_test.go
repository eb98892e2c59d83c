package cache_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"samebit/cache"
	"samebit/nn"
)

// questions are about random rows behind a prefix of stateLen.
func questions(rng *rand.Rand, stateLen, rows, vocab int) []nn.Question {
	qs := make([]nn.Question, 1+rng.IntN(4))
	for i := range qs {
		qs[i].At = stateLen + rng.IntN(rows-stateLen)
		for range 2 + rng.IntN(15) {
			qs[i].Options = append(qs[i].Options, int32(rng.IntN(vocab)))
		}
	}
	return qs
}

func answersEqual(a, b [][]float32) bool {
	return slices.EqualFunc(a, b, func(x, y []float32) bool { return x != nil && len(x) == len(y) && bitsOf(x) == bitsOf(y) })
}

// Decisions from restored prefixes are those of runs from the first row on.
func TestCachedDecisions(t *testing.T) {
	m := openModel(t, hybrid)
	ctx := context.Background()
	c, err := cache.New(m.pool, cache.Config{Policy: small(16)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	warm, cold := m.seq(t, 13), m.seq(t, 512)
	defer warm.close()
	defer cold.close()
	rng := rand.New(rand.NewPCG(6, 1))
	const stateLen = 48
	for i := range 20 {
		rows := append(tokens(9, stateLen), tokens(100+i, 1+rng.IntN(20))...)
		qs := questions(rng, stateLen, len(rows), m.dec.Vocab)
		a, err := warm.Ask(qs)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := c.Prefill(ctx, cache.Key{Model: m.dec.ID}, a, rows, stateLen)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && rep.Start != stateLen {
			t.Errorf("request %d: %+v", i, rep)
		}
		if err := cold.Reset(); err != nil {
			t.Fatal(err)
		}
		want, err := cold.Decide(ctx, rows, qs)
		if err != nil {
			t.Fatal(err)
		}
		if !answersEqual(a.Answers(), want) {
			t.Errorf("request %d: answers %v, a run without the cache gives %v", i, a.Answers(), want)
		}
	}
}

// The same with specialists.
func TestRoutedDecisions(t *testing.T) {
	m := openRoutes(t, hybrid, 2)
	ctx := context.Background()
	warm, err := cache.New(m.pool, cache.Config{Policy: small(16)})
	if err != nil {
		t.Fatal(err)
	}
	defer warm.Close(ctx)
	none, err := cache.New(m.pool, cache.Config{MemoryBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(6, 2))
	const stateLen = 48
	for i := range 12 {
		rows := append(tokens(9, stateLen), tokens(100+i, 1+rng.IntN(20))...)
		qs := questions(rng, stateLen, len(rows), m.dec.Vocab)
		var got [2][][]float32
		for j, c := range []*cache.Cache{warm, none} {
			r, end := m.seq(t, []int{13, 512}[j])
			askers := make([]*nn.Asker, len(r.Specialists))
			for k := range r.Specialists {
				if askers[k], err = r.Specialists[k].Seq.(*nn.Runner).Ask(qs); err != nil {
					t.Fatal(err)
				}
				r.Specialists[k].Seq = askers[k]
			}
			rep, err := c.RunRouted(ctx, r, rows, stateLen)
			if err != nil {
				t.Fatal(err)
			}
			got[j] = askers[rep.Route].Answers()
			end()
		}
		if !answersEqual(got[0], got[1]) {
			t.Errorf("request %d: answers %v, without the cache %v", i, got[0], got[1])
		}
	}
}
