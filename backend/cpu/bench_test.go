package cpu_test

import (
	"fmt"
	"testing"
	"time"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/tensor"
)

// BenchmarkLinears multiplies a few rows by q, k and v of Qwen3-0.6B's shape, with
// weights from memory; it reports 10⁹ weights/s of the fastest call, by the clock.
func BenchmarkLinears(b *testing.B) {
	const k, ring = 1024, 12
	for _, threads := range []int{1, 2} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.Q4_0} {
			for _, rows := range []int{1, 4, 16} {
				b.Run(fmt.Sprintf("threads=%d/%v/rows=%d", threads, dt, rows), func(b *testing.B) {
					dev := open(b, cpu.Config{Threads: threads})
					s, err := dev.NewStream()
					if err != nil {
						b.Fatal(err)
					}
					defer s.Close()
					outs := []int{2048, 1024, 1024}
					var w [ring][]backend.Weight
					weights := 0
					for i := range w {
						weights = 0
						for _, n := range outs {
							raw := make([]byte, n*dt.Bytes(k))
							for j := range raw {
								raw[j] = byte(j*7)&0x3b | byte(j&1) // small numbers in every type
							}
							t, err := tensor.New(tensor.Bytes(raw), 0, dt, n, k)
							if err != nil {
								b.Fatal(err)
							}
							p, err := dev.Pack(t, backend.UseLinear)
							if err != nil {
								b.Fatal(err)
							}
							defer dev.Unpack(p)
							w[i] = append(w[i], p)
							weights += n * k
						}
					}
					matrix := func(n int) tensor.Tensor {
						t, err := tensor.New(tensor.Bytes(make([]byte, 4*rows*n)), 0, tensor.F32, rows, n)
						if err != nil {
							b.Fatal(err)
						}
						return t
					}
					x := matrix(k)
					var dst []tensor.Tensor
					for _, n := range outs {
						dst = append(dst, matrix(n))
					}
					best := time.Hour
					for i := 0; b.Loop(); i++ {
						start := time.Now()
						backend.Linears(s, dst, x, w[i%ring])
						best = min(best, time.Since(start))
					}
					if err := s.Sync(); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(weights)/float64(best.Nanoseconds()), "bestGw/s")
				})
			}
		}
	}
}
