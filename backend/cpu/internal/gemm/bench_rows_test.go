package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
	"samebit/backend/cpu/internal/quant"
	"samebit/internal/blockq"
)

// BenchmarkRows computes a few rows with weights beyond the last cache, one thread:
// each weight should be read once, at the speed of Gemv, until the products count. It
// reports the fastest of many calls: weights and products a second, and how many times
// the rows of one row's product are done (xone), measured in turns.
func BenchmarkRows(b *testing.B) {
	r := rand.New(rand.NewPCG(10, 10))
	for _, s := range isa.Available()[1:] {
		ks := For(s)
		cods := map[string]panel.Codec{}
		names := []string{}
		for _, dt := range dtypes[:2] {
			names = append(names, dt.String())
			cods[dt.String()] = Codec(s, dt)
		}
		for _, t := range []blockq.Type{blockq.Q8_0, blockq.Q4_0, blockq.Q4_K, blockq.Q6_K} {
			names = append(names, t.String())
			cods[t.String()] = quant.Codec(s, t)
		}
		for _, name := range names {
			cod := cods[name]
			for _, shape := range [][2]int{{3072, 1024}, {1024, 3072}} {
				n, k := shape[0], shape[1]
				one := panel.Count(n) * cod.Bytes(k)
				ring := (96 << 20) / one
				w := aligned(ring * one)
				for i := range w {
					w[i] = byte(i*7) & 0x3b // small numbers in every type
				}
				for _, m := range []int{2, 3, 4, 6, 8, 12, 16, 32, 128} {
					b.Run(fmt.Sprintf("%v/%s/%dx%dx%d", s, name, m, n, k), func(b *testing.B) {
						a, c := fill(r, m*k), make([]float32, m*n)
						pa, scratch := make([]float32, ks.PackASize(m, k)), make([]float32, ks.ScratchSize(m))
						i := 0
						next := func() []byte {
							i = (i + 1) % ring
							return w[i*one : (i+1)*one]
						}
						for b.Loop() {
							gemv, rows := time.Hour, time.Hour
							for start := time.Now(); time.Since(start) < 200*time.Millisecond; {
								gemv = min(gemv, best(0, func() { cod.Gemv(c[:n], a[:k], next(), k) }))
								rows = min(rows, best(0, func() {
									ks.PackA(pa, a, k, m, k)
									ks.Panels(c, n, n, pa, m, k, &cod, next(), 0, panel.Count(n), scratch)
								}))
							}
							b.ReportMetric(float64(n*k)/float64(rows), "Gweights/s")
							b.ReportMetric(2*float64(m*n*k)/float64(rows), "GFLOP/s")
							b.ReportMetric(float64(m)*float64(gemv)/float64(rows), "xone")
						}
					})
				}
			}
		}
	}
}
