package gemm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
)

// TestNarrower: float32 rows of bf16 values give the panels that the bf16 codec makes
// of these; one value with a bit below them, anywhere, is told of.
func TestNarrower(t *testing.T) {
	eachSet(t, func(t *testing.T, s isa.Set) {
		r := rand.New(rand.NewPCG(3, 1))
		narrow, cod := Narrower(s), Codec(s, BF16)
		for _, k := range []int{1, 15, 16, 17, 64, 129, 256, 300} {
			for _, rows := range []int{1, 31, 32, 65} {
				m := randomMatrix(r, BF16, rows, k, true)
				want, size, stride := m.pack(&cod), cod.Bytes(k), 4*k+4
				src := make([]byte, rows*stride)
				for i := range rows * k {
					copy(src[i/k*stride+i%k*4+2:], m.raw[i/k*m.stride+i%k*2:][:2])
				}
				pack := func(got []byte) bool {
					ok := true
					for p := range panel.Count(rows) {
						n := min(width, rows-p*width)
						ok = narrow(got[p*size:(p+1)*size], src[p*width*stride:][:(n-1)*stride+4*k], stride, n, k) && ok
					}
					return ok
				}
				got := aligned(len(want))
				for i := range got {
					got[i] = 0xa5
				}
				if !pack(got) {
					t.Fatalf("%dx%d of bf16 values is refused", rows, k)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%dx%d: panels differ from the codec's", rows, k)
				}
				for range 20 {
					row, i, bit := r.IntN(rows), r.IntN(k), r.IntN(16)
					b := &src[row*stride+4*i+bit/8]
					*b = 1 << (bit % 8)
					if pack(got) {
						t.Fatalf("%dx%d: bit %d of weight [%d, %d] is lost", rows, k, bit, row, i)
					}
					*b = 0
				}
			}
		}
	})
}
