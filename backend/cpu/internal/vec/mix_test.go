package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"samebit/internal/canon"
	"samebit/internal/canon/canontest"
)

// Weighted sums of rows are a chain per element, whatever the lanes.
func TestMixRows(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(4, 5))
		for n := range 150 {
			for _, rows := range []int{0, 1, 2, 4, 7, 128, 129, 300} {
				if rows > 7 && n%7 != 3 || testing.Short() && n > 40 && n%9 != 0 {
					continue
				}
				w, x := fenced(t, rows), fenced(t, rows*n)
				for i := range w {
					w[i] = float32(r.NormFloat64())
				}
				for i := range x {
					x[i] = float32(r.NormFloat64())
				}
				if n == 5 && rows > 1 { // chains that end at -0
					for i := range x {
						x[i], w[i/n] = float32(math.Copysign(0x1p-80, -1)), 0x1p-80
					}
				}
				want := make([]float32, n)
				for i := range want {
					for b := 0; b < rows; b += 128 {
						acc := float32(0)
						for j := b; j < min(b+128, rows); j++ {
							acc = canon.FMA32(w[j], x[j*n+i], acc)
						}
						want[i] += acc
					}
				}
				got, intact := canontest.Guarded(n)
				fill(r, got)
				k.MixRows(got, w, x)
				if d := canontest.Diff(got, want); d != "" || !intact() {
					t.Fatalf("%d rows of %d, guards intact %v:\n%s", rows, n, intact(), d)
				}
			}
		}
	})
}
