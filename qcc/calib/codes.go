package calib

import "samebit/internal/canon"

// codes makes the codes of one head from keys and gives them the mean length of the
// codes that are there. keys [T][D] are made unit vectors; without any, codes stay.
func codes(init CodeInit, old, keys [][]float32) {
	if init == Random || len(keys) == 0 || len(old) == 0 {
		return
	}
	for _, k := range keys {
		unit(k)
	}
	var centres [][]float32
	if init == KeySample {
		for _, t := range Spread(0, len(keys)-1, len(old)) {
			centres = append(centres, keys[t])
		}
	} else {
		centres = kMeans(keys, min(len(old), len(keys)))
	}
	sum := float32(0)
	for _, c := range old {
		sum += canon.Sqrt(canon.SumSquares(c))
	}
	mean := sum / float32(len(old))
	for m, c := range old {
		for i, v := range centres[m%len(centres)] {
			c[i] = v * mean
		}
	}
}

// rounds of assignment.
const rounds = 8

// kMeans finds n centres of unit vectors by cosine. The first is the first key, each
// next one the key that is farthest from all so far, the first of equals; then eight
// rounds of assigning keys to the nearest centre, the first of equals, and moving each
// centre to the direction of their mean. Centres without keys stay.
func kMeans(keys [][]float32, n int) [][]float32 {
	centres := make([][]float32, 0, n)
	nearest := make([]float32, len(keys)) // distance to the chosen ones
	for i := range nearest {
		nearest[i] = 3
	}
	next := 0
	for len(centres) < n {
		c := append([]float32(nil), keys[next]...)
		centres = append(centres, c)
		next = 0
		for i, k := range keys {
			nearest[i] = min(nearest[i], 1-canon.Dot(k, c))
			if nearest[i] > nearest[next] {
				next = i
			}
		}
	}
	sums, counts := make([][]float32, n), make([]int, n)
	for m := range sums {
		sums[m] = make([]float32, len(keys[0]))
	}
	for range rounds {
		for m := range sums {
			clear(sums[m])
			counts[m] = 0
		}
		for _, k := range keys {
			best, at := float32(0), 0
			for m, c := range centres {
				if v := canon.Dot(k, c); m == 0 || v > best {
					best, at = v, m
				}
			}
			counts[at]++
			for i, v := range k {
				sums[at][i] += v
			}
		}
		for m, c := range centres {
			if counts[m] == 0 {
				continue
			}
			for i, v := range sums[m] {
				c[i] = v / float32(counts[m])
			}
			unit(c)
		}
	}
	return centres
}
