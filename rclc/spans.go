package rclc

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
)

// SelectSpans chooses exactly budget positions by their scores, or all if there are
// no more. Protected positions are kept and count. Then whole spans [i·span,
// (i+1)·span) are taken in falling order of their mean score, lower spans first
// where means are equal, protected positions included in the mean; of the first span
// that does not fit, as many positions as there is room for are taken around its
// highest score. Means are sums in float64.
func SelectSpans(scores []float32, budget int, protected []int, span int) ([]int, error) {
	t := len(scores)
	if span < 1 {
		return nil, fail(ErrOption, "bad_span_size", "spans of %d positions: want at least 1", span)
	}
	if budget < 1 {
		return nil, fail(ErrOption, "bad_budget", "a budget of %d positions: want at least 1", budget)
	}
	for i, x := range scores {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return nil, fail(ErrSelection, "nonfinite_scores", "the score of position %d is %v: the model's attention has overflowed", i, x)
		}
	}
	kept := make([]bool, t)
	span = min(span, max(t, 1)) // so that sums of places do not overflow
	n := 0
	keep := func(p int) {
		if !kept[p] {
			kept[p] = true
			n++
		}
	}
	for _, p := range protected {
		if p < 0 || p >= t {
			return nil, fail(ErrOption, "protected_range", "position %d is protected, of %d: want 0 to %d", p, t, t-1)
		}
		keep(p)
	}
	if n > budget {
		return nil, fail(ErrBudget, "protected_exceeds_budget", "%d positions are protected, the budget is %d: raise it, or lower the ratio", n, budget)
	}
	if budget >= t {
		for p := range kept {
			keep(p)
		}
		return positions(kept), nil
	}
	for _, first := range ranked(scores, span) {
		room := budget - n
		if room == 0 {
			break
		}
		last := min(first+span, t)
		var free []int
		for p := first; p < last; p++ {
			if !kept[p] {
				free = append(free, p)
			}
		}
		if len(free) > room {
			free = around(free, room, peak(scores[first:last])+first)
		}
		for _, p := range free {
			keep(p)
		}
	}
	return positions(kept), nil
}

// ranked returns where spans begin, by falling mean, then rising place.
func ranked(scores []float32, span int) []int {
	t := len(scores)
	var first []int
	var mean []float64
	for p := 0; p < t; p += span {
		first = append(first, p)
		mean = append(mean, meanOf(scores[p:min(p+span, t)]))
	}
	slices.SortStableFunc(first, func(a, b int) int { return cmp.Compare(mean[b/span], mean[a/span]) })
	return first
}

// meanOf is the mean of values, summed in their order.
func meanOf(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v)
	}
	return sum / float64(len(x))
}

// peak is the place of the first maximum.
func peak(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}

// around returns the run of room consecutive entries of free whose middle is nearest
// to peak; then the shortest, then the first.
func around(free []int, room, peak int) []int {
	best, distance := 0, math.MaxInt
	for i := range len(free) - room + 1 {
		a, b := free[i], free[i+room-1]
		d := a + b - 2*peak
		if d = max(d, -d); d < distance || d == distance && b-a < free[best+room-1]-free[best] {
			best, distance = i, d
		}
	}
	return free[best : best+room]
}

// positions lists where kept is set.
func positions(kept []bool) []int {
	var l []int
	for p, k := range kept {
		if k {
			l = append(l, p)
		}
	}
	return l
}

// checkPositions returns what a selector returned in rising order, or what is wrong
// with it.
func checkPositions(picked []int, t, budget int) ([]int, error) {
	switch {
	case len(picked) == 0:
		return nil, fail(ErrSelection, "selection_empty", "the selector returned no positions: want at least one")
	case len(picked) > budget:
		return nil, fail(ErrSelection, "selection_over_budget", "the selector returned %d positions, its budget is %d: want at most that", len(picked), budget)
	}
	for _, p := range picked {
		if p < 0 || p >= t {
			return nil, fail(ErrSelection, "selection_out_of_range", "the selector returned position %d of %d: want 0 to %d", p, t, t-1)
		}
	}
	l := slices.Sorted(slices.Values(picked))
	for i := 1; i < len(l); i++ {
		if l[i] == l[i-1] {
			return nil, fail(ErrSelection, "selection_duplicate", "the selector returned position %d twice: want each once", l[i])
		}
	}
	return l, nil
}

// ParsePositions reads positions from a value of another program: a list of whole
// numbers, as encoding/json gives it, or a slice of int, int32 or int64. Fractions,
// booleans and texts are no positions.
func ParsePositions(v any) ([]int, error) {
	var l []any
	switch v := v.(type) {
	case []int:
		return slices.Clone(v), nil
	case []int32:
		return widen(v), nil
	case []int64:
		return widen(v), nil
	case []any:
		l = v
	default:
		return nil, fail(ErrSelection, "selection_type", "the selector returned a %T: want a list of positions", v)
	}
	out := make([]int, 0, len(l))
	for i, x := range l {
		n, ok := whole(x)
		if !ok {
			return nil, fail(ErrSelection, "selection_non_integer", "entry %d of the selection is %v (%T): want a whole number", i, x, x)
		}
		out = append(out, n)
	}
	return out, nil
}

func widen[E int32 | int64](v []E) []int {
	l := make([]int, len(v))
	for i, x := range v {
		l[i] = int(x)
	}
	return l
}

// whole is the integer that a decoded value stands for.
func whole(x any) (int, bool) {
	switch x := x.(type) {
	case int:
		return x, true
	case int32:
		return int(x), true
	case int64:
		return int(x), true
	case float64: // JSON knows no other number
		return int(x), x == math.Trunc(x) && math.Abs(x) < 1<<53
	case json.Number:
		n, err := x.Int64()
		return int(n), err == nil
	}
	return 0, false
}
