package cache

import "slices"

// Policy says at which rows of a prefix checkpoints are made. In every field 0
// means the default and a negative number means none.
type Policy struct {
	Stride    int // rows between checkpoints, for prefixes that change in the middle; default 2048
	Tail      int // also checkpoint this many rows before the end, for a last item that differs; default 16
	Align     int // checkpoints lie at multiples of this; default 1, which is none as well
	MinPrefix int // shorter prefixes are neither looked up nor kept; default 256
	MaxChunk  int // the longest piece between two checkpoints; default 2048
	Junction  int // rows that must diverge at one place before it is made a checkpoint; default 2
}

// SourcePolicy is the policy of the design that this cache generalises: rows in
// groups of 64, no junctions.
func SourcePolicy() Policy {
	return Policy{Align: 64, Junction: -1}
}

// resolved replaces defaults by their values and none by 0 (Align: 1).
func (p Policy) resolved() Policy {
	for _, f := range []struct {
		v   *int
		def int
	}{{&p.Stride, 2048}, {&p.Tail, 16}, {&p.Align, 1}, {&p.MinPrefix, 256}, {&p.MaxChunk, 2048}, {&p.Junction, 2}} {
		switch {
		case *f.v == 0:
			*f.v = f.def
		case *f.v < 0:
			*f.v = 0
		}
	}
	p.Align = max(p.Align, 1)
	return p
}

// Checkpoints returns the rows, rising, at which checkpoints are made when a
// prefix of end rows is computed from row from on. With e = end rounded down to
// Align: every multiple of Stride strictly between from and e, end - Tail rounded
// down, e itself, and wherever two of them (or from and the first) are more than
// MaxChunk apart, a place every MaxChunk rows. None if e <= from.
func (p Policy) Checkpoints(from, end int) []int {
	return p.resolved().checkpoints(from, end)
}

// checkpoints is Checkpoints of a resolved policy, with some places of the
// caller's choice besides.
func (p Policy) checkpoints(from, end int, also ...int) []int {
	from = max(from, 0)
	e := p.down(end)
	if e <= from {
		return nil
	}
	var at []int
	if p.Stride > 0 {
		for x := from/p.Stride*p.Stride + p.Stride; x < e; x += p.Stride {
			at = append(at, x)
		}
	}
	if p.Tail > 0 && end > p.Tail {
		also = append(also, p.down(end-p.Tail))
	}
	for _, x := range append(also, e) {
		if x > from && x <= e {
			at = append(at, x)
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	if p.MaxChunk <= 0 {
		return at
	}
	var full []int
	for _, x := range at {
		for ; x-from > p.MaxChunk; from += p.MaxChunk {
			full = append(full, from+p.MaxChunk)
		}
		full, from = append(full, x), x
	}
	return full
}

// down rounds to a multiple of Align.
func (p Policy) down(x int) int { return x - x%p.Align }
