package canon

// Dot is DOT of docs/numerics.md 2: one chain per block of 128, blocks added in
// order. y is at least as long as x.
func Dot(x, y []float32) float32 {
	var total float32
	for b := 0; b < len(x); b += 128 {
		var acc float32
		for k := b; k < min(b+128, len(x)); k++ {
			acc = FMA32(x[k], y[k], acc)
		}
		total += acc
	}
	return total
}

// Sum is RSUM(x) of docs/numerics.md 3: 32 lanes in blocks of 1024.
func Sum(x []float32) float32 {
	var total float32
	for ; len(x) > 0; x = x[min(1024, len(x)):] {
		var lane [32]float32
		for i, v := range x[:min(1024, len(x))] {
			lane[i&31] += v
		}
		total += tree(&lane)
	}
	return total
}

// SumSquares is RSUM(x²), every square fused with its addition.
func SumSquares(x []float32) float32 {
	var total float32
	for ; len(x) > 0; x = x[min(1024, len(x)):] {
		var lane [32]float32
		for i, v := range x[:min(1024, len(x))] {
			lane[i&31] = FMA32(v, v, lane[i&31])
		}
		total += tree(&lane)
	}
	return total
}

// tree adds the lanes, which it overwrites.
func tree(lane *[32]float32) float32 {
	for h := 16; h > 0; h /= 2 {
		for j := range h {
			lane[j] += lane[j+h]
		}
	}
	return lane[0]
}
