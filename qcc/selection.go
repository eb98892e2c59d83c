package qcc

import (
	"fmt"
	"math"
	"slices"
)

// Observe says how the last queries of a prompt score its keys.
type Observe string

const (
	ObserveLast Observe = "last" // scaled logits of the last query, the largest of a group of heads
	ObserveMean Observe = "mean" // mean weight over queries and heads of a group
	ObserveMax  Observe = "max"  // largest weight over queries and heads of a group
)

// CompileConfig says which rows of a prompt [Compile] keeps, per key head. The zero
// value keeps 4,096 by the last query.
type CompileConfig struct {
	Budget  int     // rows kept; 0: 4096
	LexCap  int     // rows kept besides for anchors; 0: none
	Anchors []int   // rows that are kept first, the same in every head
	Queries int     // last queries that observe; 0: 64
	Observe Observe // "": ObserveLast
	Dilate  int     // width of the maximum over neighbours, odd; 0: 9
	Pool    int     // aligned blocks that share their maximum; 0: 7
	Sinks   int     // first rows that are kept; 0: 4, negative: none
	Recent  float64 // part of the budget for the last rows, at least one; 0: 0.25
}

func (c CompileConfig) resolved() (CompileConfig, error) {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.Budget, 4096)
	set(&c.Queries, 64)
	set(&c.Dilate, 9)
	set(&c.Pool, 7)
	set(&c.Sinks, 4)
	c.Sinks = max(c.Sinks, 0)
	if c.Observe == "" {
		c.Observe = ObserveLast
	}
	if c.Recent == 0 {
		c.Recent = 0.25
	}
	switch {
	case c.Budget < 1 || c.LexCap < 0 || c.Queries < 1 || c.Dilate < 1 || c.Dilate%2 == 0 || c.Pool < 1 || c.Budget > 1<<24 || c.LexCap > 1<<24:
		return c, fmt.Errorf("qcc: a budget of %d rows and %d for anchors, %d queries, maxima over %d neighbours in blocks of %d: want positive numbers, the neighbours odd: %w",
			c.Budget, c.LexCap, c.Queries, c.Dilate, c.Pool, ErrConfig)
	case c.Observe != ObserveLast && c.Observe != ObserveMean && c.Observe != ObserveMax:
		return c, fmt.Errorf("qcc: observation %q: want %q, %q or %q: %w", c.Observe, ObserveLast, ObserveMean, ObserveMax, ErrConfig)
	case !(c.Recent > 0 && c.Recent <= 1):
		return c, fmt.Errorf("qcc: %v of the budget for the last rows: want more than 0 and at most 1: %w", c.Recent, ErrConfig)
	case !slices.IsSorted(c.Anchors):
		return c, fmt.Errorf("qcc: anchors do not rise: %w", ErrConfig)
	}
	return c, nil
}

// Select chooses the rows that one key head keeps by their scores, rising: anchors
// first, then by the score's maximum over neighbours and block, the first and the
// last rows before all others, the lower row of equals. NaN scores come last.
func (c CompileConfig) Select(scores []float32) ([]int, error) {
	c, err := c.resolved()
	if err != nil {
		return nil, err
	}
	n := len(scores)
	keep := min(c.Budget+c.LexCap, n)
	t := c.smooth(scores)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	anchor := make([]bool, n)
	for _, a := range c.Anchors {
		if a < 0 || a >= n {
			return nil, fmt.Errorf("qcc: anchor %d of %d rows: %w", a, n, ErrConfig)
		}
		anchor[a] = true
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := t[a], t[b]
		switch {
		case anchor[a] != anchor[b]:
			if anchor[a] {
				return -1
			}
			return 1
		case x > y, x == x && y != y:
			return -1
		case y > x, y == y && x != x:
			return 1
		}
		return 0
	})
	order = order[:keep]
	slices.Sort(order)
	return order, nil
}

// smooth spreads scores over neighbours and blocks and marks what is kept in any
// case.
func (c CompileConfig) smooth(scores []float32) []float32 {
	n, reach := len(scores), c.Dilate/2
	top := func(v []float32) float32 {
		m := float32(math.Inf(-1))
		for _, x := range v {
			if x > m {
				m = x
			}
		}
		return m
	}
	wide := make([]float32, n)
	for i := range wide {
		wide[i] = top(scores[max(0, i-reach):min(n, i+reach+1)])
	}
	t := make([]float32, n)
	for b := 0; b < n; b += c.Pool {
		end := min(b+c.Pool, n)
		m := top(wide[b:end])
		for i := b; i < end; i++ {
			t[i] = m
		}
	}
	recent := max(1, int(c.Recent*float64(c.Budget)))
	for i := range t {
		if i < c.Sinks || i >= n-recent {
			t[i] = float32(math.Inf(1))
		}
	}
	return t
}

// observation gathers the scores of one layer's keys from rows of queries.
type observation struct {
	mode   Observe
	groups int         // key heads
	scores [][]float32 // by key head
	rows   int
}

// add takes the logits or weights [heads, slots] of one query row.
func (o *observation) add(v []float32, slots, n int) {
	heads := len(v) / slots
	per := heads / o.groups
	for len(o.scores) < o.groups {
		o.scores = append(o.scores, nil)
	}
	for g := range o.groups {
		s := o.scores[g]
		if o.mode == ObserveLast || s == nil {
			s = make([]float32, n)
			if o.mode != ObserveMean {
				for i := range s {
					s[i] = float32(math.Inf(-1))
				}
			}
		}
		for len(s) < n {
			s = append(s, 0)
		}
		for h := g * per; h < (g+1)*per; h++ {
			for i, x := range v[h*slots : h*slots+n] {
				if o.mode == ObserveMean {
					s[i] += x
				} else if x > s[i] {
					s[i] = x
				}
			}
		}
		o.scores[g] = s
	}
	o.rows += per
}

// result are the scores by key head.
func (o *observation) result() [][]float32 {
	if o.mode == ObserveMean {
		for _, s := range o.scores {
			for i := range s {
				s[i] /= float32(o.rows)
			}
		}
	}
	return o.scores
}
