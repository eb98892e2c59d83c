package cache

import (
	"math"
	"slices"

	"samebit/state"
)

// run is a piece of a sequence of rows, kept by the index: 4 bytes for a token, a
// copy of the vector for a continuous row.
type run struct {
	tok []int32     // -1 where vec says what the row is
	vec [][]float32 // as long as tok, or nil when there are only tokens
}

func (r run) len() int { return len(r.tok) }

// cut returns rows [i, j).
func (r run) cut(i, j int) run {
	c := run{tok: r.tok[i:j:j]}
	if r.vec != nil {
		c.vec = r.vec[i:j:j]
	}
	return c
}

// makeRun copies rows.
func makeRun(rows []state.Row) run {
	r := run{tok: make([]int32, len(rows))}
	for i, row := range rows {
		r.tok[i] = row.Token
		if row.Vec != nil {
			if r.vec == nil {
				r.vec = make([][]float32, len(rows))
			}
			r.tok[i], r.vec[i] = -1, slices.Clone(row.Vec)
		}
	}
	return r
}

// join returns r followed by s.
func (r run) join(s run) run {
	j := run{tok: slices.Concat(r.tok, s.tok)}
	if r.vec != nil || s.vec != nil {
		j.vec = make([][]float32, len(j.tok))
		copy(j.vec, r.vec)
		copy(j.vec[r.len():], s.vec)
	}
	return j
}

// common counts the rows at the start of rows that are r's.
func (r run) common(rows []state.Row) int {
	n := min(r.len(), len(rows))
	for i := range n {
		if rows[i].Vec == nil {
			if r.tok[i] != rows[i].Token || r.vec != nil && r.vec[i] != nil {
				return i
			}
		} else if r.vec == nil || !sameBits(r.vec[i], rows[i].Vec) {
			return i
		}
	}
	return n
}

// appendTo appends the rows to dst. Vectors are not copied.
func (r run) appendTo(dst []state.Row) []state.Row {
	for i, t := range r.tok {
		row := state.Row{Token: t}
		if r.vec != nil {
			row.Vec = r.vec[i]
		}
		dst = append(dst, row)
	}
	return dst
}

func (r run) bytes() int64 {
	n := 4 * int64(len(r.tok))
	for _, v := range r.vec {
		n += 24 + 4*int64(len(v))
	}
	return n
}

// commonRows counts the rows that a and b begin with alike.
func commonRows(a, b []state.Row) int {
	n := min(len(a), len(b))
	for i := range n {
		if (a[i].Vec == nil) != (b[i].Vec == nil) || a[i].Vec == nil && a[i].Token != b[i].Token || !sameBits(a[i].Vec, b[i].Vec) {
			return i
		}
	}
	return n
}

// sameBits compares vectors by bits, since -0 and 0 are different inputs and a
// NaN is the same as itself. A missing vector has no twin but another missing one.
func sameBits(a, b []float32) bool {
	if len(a) != len(b) || (a == nil) != (b == nil) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}
