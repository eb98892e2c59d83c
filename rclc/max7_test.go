package rclc

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The maxima of every length are those of seven neighbours looked at one by one.
func TestMax7(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := 1; n < 40; n++ {
		x, got, want := make([]float32, n), make([]float32, n), make([]float32, n)
		for p := range x {
			x[p] = float32(r.IntN(20)) / 7
		}
		for p := range want {
			want[p] = slices.Max(x[max(0, p-3):min(n, p+4)])
		}
		if max7(got, x); !sameBits(got, want) {
			t.Errorf("of %v: %v, want %v", x, got, want)
		}
	}
}
