package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"samebit/backend/cpu/internal/isa"
)

// BenchmarkBlocks compares the contract's blocks of 128 with one unblocked chain
// over k in the same kernels, calls taking turns: xchain is the share of the
// unblocked speed that remains.
func BenchmarkBlocks(b *testing.B) {
	const panels, k = 8, 1024
	r := rand.New(rand.NewPCG(11, 11))
	for _, s := range isa.Available()[1:] {
		for _, m := range []int{32, 84, 512} {
			b.Run(fmt.Sprintf("%v/%d", s, m), func(b *testing.B) {
				ks := For(s)
				cod, w := packed(s, F32, panels*width, k)
				a, c := fill(r, m*k), make([]float32, m*panels*width)
				pa, scratch := make([]float32, ks.PackASize(m, k)), make([]float32, ks.ScratchSize(m))
				ks.PackA(pa, a, k, m, k)
				size, big, small := ks.split(m)
				ldc := panels * width
				var zero [width]float32
				z := &append([]float32(nil), zero[:]...)[0]
				chain := func() {
					for p := range panels {
						wp := (*float32)(floatsAt(w, p*cod.Bytes(k)))
						row := 0
						for _, g := range [2]struct{ rows, tiles int }{{size + 1, big}, {size, small}} {
							if g.tiles == 0 {
								continue
							}
							for s := 0; s < width; s += width / ks.passes(g.rows) {
								ks.tile[g.rows](&c[row*ldc+p*width+s], ldc*4, z, 0, &pa[row*k], k*g.rows*4, at(wp, s), k, g.tiles, uintptr(unsafe.Pointer(wp)), 0, 0)
							}
							row += g.rows * g.tiles
						}
					}
				}
				blocks := func() {
					ks.Panels(c, ldc, ldc, pa, m, k, &cod, w, 0, panels, scratch)
				}
				for b.Loop() {
					tc, tb := time.Hour, time.Hour
					for start := time.Now(); time.Since(start) < 500*time.Millisecond; {
						tc = min(tc, best(0, chain))
						tb = min(tb, best(0, blocks))
					}
					b.ReportMetric(float64(tc)/float64(tb), "xchain")
					b.ReportMetric(2*float64(m*panels*width*k)/float64(tb), "GFLOP/s")
				}
			})
		}
	}
}
