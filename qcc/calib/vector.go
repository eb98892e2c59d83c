package calib

import "samebit/internal/canon"

// unit divides x by its length.
func unit(x []float32) {
	inv := 1 / max(canon.Sqrt(canon.SumSquares(x)), 1e-12)
	for i := range x {
		x[i] *= inv
	}
}

// Spread returns n whole numbers from first to last, evenly: the nearest to the
// points of a line, the even one of two that are as near.
func Spread(first, last, n int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = first
		if n > 1 {
			q, r := i*(last-first)/(n-1), i*(last-first)%(n-1)
			if 2*r > n-1 || 2*r == n-1 && (first+q)%2 != 0 {
				q++
			}
			at[i] += q
		}
	}
	return at
}

// rows are at most n of rows [first, last], each once.
func rows(first, last, n int) []int32 {
	n = min(n, last-first+1)
	out := make([]int32, n)
	for i, r := range Spread(first, last, n) {
		out[i] = int32(r)
	}
	return out
}

// Windows cuts count sequences of size tokens out of a text, evenly, the first from
// its beginning and the last to its end; a shorter text is one sequence.
func Windows(text []int32, size, count int) [][]int32 {
	if size < 1 || count < 1 || len(text) == 0 {
		return nil
	}
	if len(text) <= size {
		return [][]int32{text}
	}
	var out [][]int32
	for _, at := range Spread(0, len(text)-size, count) {
		out = append(out, text[at:at+size])
	}
	return out
}
