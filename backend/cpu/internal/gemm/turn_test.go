package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"samebit/backend/cpu/internal/isa"
)

// Rows of any number, length and stride are turned, and what lies between and around the
// inputs that are written stays as it is.
func TestTurn(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	check := func(t *testing.T, ks *Kernels, rows, k, ldd, lds int) {
		t.Helper()
		src := make([]float32, max(0, (rows-1)*lds+k)+1)[1:] // ends with the last row
		for i := range src {
			src[i] = math.Float32frombits(r.Uint32())
		}
		all, dst := guard((k-1)*ldd + rows)
		ks.Turn(dst, ldd, src, lds, rows, k)
		checkGuard(t, all, len(dst))
		for i, v := range dst {
			want := float32(math.NaN())
			if i%ldd < rows {
				want = src[i%ldd*lds+i/ldd]
			}
			if !same(v, want) {
				t.Fatalf("%d rows of %d inputs, strides %d and %d: input %d of row %d is %x, want %x", rows, k, ldd, lds, i/ldd, i%ldd, v, want)
			}
		}
	}
	eachSet(t, func(t *testing.T, s isa.Set) {
		ks := For(s)
		for rows := 1; rows <= 40; rows++ {
			for _, k := range []int{1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 63, 127, 128, 129, 259, 516} {
				check(t, ks, rows, k, rows, k)
				check(t, ks, rows, k, rows+1+r.IntN(64), k+r.IntN(70))
			}
		}
	})
}

// BenchmarkTurn packs prompts, from and to the last cache.
func BenchmarkTurn(b *testing.B) {
	r := rand.New(rand.NewPCG(12, 2))
	const m = 512
	for _, s := range isa.Available()[1:] {
		for _, k := range []int{1024, 3072} {
			b.Run(fmt.Sprintf("%v/%dx%d", s, m, k), func(b *testing.B) {
				ks, a := For(s), fill(r, m*k)
				pa := floats(aligned(4 * ks.PackASize(m, k)))
				b.SetBytes(8 * m * int64(k)) // read once and written once
				for b.Loop() {
					ks.PackA(pa, a, k, m, k)
				}
			})
		}
	}
}
