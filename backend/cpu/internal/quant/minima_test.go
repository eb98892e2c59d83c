package quant

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"testing"

	"samebit/internal/blockq"
)

// Exponents of scales and minima a given distance apart, and one row in which it is one more
// or less: kernels form weights in another way where a sum of both is exact. The largest
// mantissas and scales are among them.
func TestMinima(t *testing.T) {
	for _, ty := range []blockq.Type{blockq.Q4_1, blockq.Q5_1, blockq.Q2_K, blockq.Q4_K, blockq.Q5_K} {
		at := 0 // of d and the minimum
		if ty == blockq.Q2_K {
			at = 80
		}
		for apart := -30; apart <= 30; apart++ {
			for _, odd := range []int{0, 1, -1} {
				const rows, k = 32, 512
				rng := rand.New(rand.NewSource(int64(apart)))
				src := randomRows(rng, ty, rows, k)
				stride, n := ty.RowBytes(k), ty.BlockBytes()
				one := rng.Intn(rows)
				for r := range rows {
					for b := r * stride; b < (r+1)*stride; b += n {
						g := apart
						if r == one {
							g += odd
						}
						d := max(0, -g) + rng.Intn(max(1, 31-max(g, -g)))
						for i, e := range []int{d, min(d+g, 30)} {
							h := uint16(max(0, min(30, e)))<<10 | uint16(rng.Intn(1<<10))
							if rng.Intn(4) == 0 {
								h |= 0x3ff
							}
							if rng.Intn(8) == 0 {
								h |= 0x8000
							}
							binary.LittleEndian.PutUint16(src[b+at+2*i:], h)
						}
						if rng.Intn(4) == 0 && ty != blockq.Q2_K {
							for i := range 12 {
								src[b+4+i] = 0xff
							}
						}
					}
				}
				w := make([]float32, rows*k)
				blockq.Dequant(w, src, ty)
				x, y := make([]float32, k), make([]float32, rows)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
				}
				for _, s := range impls()[1:] {
					c := s.codec(ty)
					packed := make([]byte, c.Bytes(k))
					c.Pack(packed, src, stride, rows, k)
					c.Gemv(y, x, packed, k)
					for r := range y {
						if want := dot(x, w[r*k:][:k]); bits(y[r]) != bits(want) {
							t.Fatalf("%v %v, %d+%d apart: Gemv[%d] = %x, want %x", s, ty, apart, odd, r, y[r], want)
						}
					}
					weights := make([]float32, 128*rows)
					for k0 := 0; k0 < k; k0 += 128 {
						c.Expand(weights, packed, k, k0, 128)
						for i, v := range weights {
							if want := w[i%rows*k+k0+i/rows]; v != want {
								t.Fatalf("%v %v, %d+%d apart: Expand of input %d row %d = %x, want %x", s, ty, apart, odd, k0+i/rows, i%rows, v, want)
							}
						}
					}
					where := fmt.Sprintf("%v %v, %d+%d apart", s, ty, apart, odd)
					for m := 2; m <= c.MaxTile; m++ {
						checkTile(t, where, &c, packed, w, m, rng)
					}
				}
			}
		}
	}
}
