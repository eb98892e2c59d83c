package calib

import "samebit/internal/canon"

// dot is DOT of docs/numerics.md 2.
func dot(x, y []float32) float32 {
	total := float32(0)
	for b := 0; b < len(x); b += 128 {
		acc := float32(0)
		for k := b; k < min(b+128, len(x)); k++ {
			acc = canon.FMA32(x[k], y[k], acc)
		}
		total += acc
	}
	return total
}

// length is the root of RSUM(x²), numerics.md 3.
func length(x []float32) float32 {
	total := float32(0)
	for b := 0; b < len(x); b += 1024 {
		var lane [32]float32
		for i := b; i < min(b+1024, len(x)); i++ {
			lane[i%32] = canon.FMA32(x[i], x[i], lane[i%32])
		}
		total += fold(&lane)
	}
	return canon.Sqrt(total)
}

// sum is RSUM(x).
func sum(x []float32) float32 {
	total := float32(0)
	for b := 0; b < len(x); b += 1024 {
		var lane [32]float32
		for i := b; i < min(b+1024, len(x)); i++ {
			lane[i%32] += x[i]
		}
		total += fold(&lane)
	}
	return total
}

// fold adds lanes as a tree.
func fold(lane *[32]float32) float32 {
	for h := 16; h > 0; h /= 2 {
		for j := range h {
			lane[j] += lane[j+h]
		}
	}
	return lane[0]
}

// unit divides x by its length.
func unit(x []float32) {
	inv := 1 / max(length(x), 1e-12)
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
