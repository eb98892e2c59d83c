package qcc

import (
	"fmt"
	"math"
)

// OracleSalience scores the keys [T, dim] of one head by queries [T, dim] that come
// later: for every key the largest cosine to a query at its own place or behind it,
// of at most samples queries, taken evenly from all, the first and the last included.
// A key behind all of them gets -1.
//
// It looks at what is not there yet when a key has to be kept, so it belongs into
// calibration and diagnosis alone, and a report that used it says so
// (oracle_admission: true). Layers admit without it.
func OracleSalience(queries, keys []float32, dim, samples int) ([]float64, error) {
	if dim < 1 || samples < 1 || len(keys) == 0 || len(keys)%dim != 0 || len(queries) != len(keys) {
		return nil, fmt.Errorf("qcc: salience of %d values of keys by %d of queries, %d wide, %d samples: want whole rows, as many of each, and a sample: %w", len(keys), len(queries), dim, samples, ErrShape)
	}
	n := len(keys) / dim
	score := make([]float64, n)
	for i := range score {
		score[i] = -1
	}
	samples = min(samples, n)
	for s := range samples {
		j := n - 1
		if samples > 1 {
			j = int(math.RoundToEven(float64(s) * float64(n-1) / float64(samples-1)))
		}
		q := queries[j*dim : (j+1)*dim]
		for i := range j + 1 {
			score[i] = max(score[i], cosine(q, keys[i*dim:(i+1)*dim]))
		}
	}
	return score, nil
}

// cosine is that of two vectors in float64; 0 if one of them vanishes.
func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+float64(x*y), aa+float64(x*x), bb+float64(y*y)
	}
	return ab / max(math.Sqrt(aa)*math.Sqrt(bb), 1e-12)
}
