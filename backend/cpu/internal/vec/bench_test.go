package vec

import (
	"fmt"
	"testing"
	"time"

	"samebit/backend/cpu/internal/isa"
	"samebit/internal/canon/canontest"
)

// BenchmarkRows reports the best time of a call besides the mean: on a shared
// machine only the best is a property of the kernel.
func BenchmarkRows(b *testing.B) {
	const n = 1024
	for _, name := range []string{"Add", "Scale", "FMAScalar", "RMSNorm", "GatedRMSNorm", "LayerNorm", "Softmax", "Exp", "Sigmoid", "SwiGLU", "Softplus", "Rotate"} {
		for _, s := range isa.Available() {
			b.Run(fmt.Sprintf("%s/%v/n=%d", name, s, n), func(b *testing.B) {
				var in [4][]float32
				for i := range in {
					in[i] = make([]float32, n)
					for j := range in[i] {
						in[i][j] = canontest.Gen(i, j)
					}
				}
				dst := make([]float32, n)
				bench(b, n, func() { ops[name](For(s), dst, in[0], in[1], in[2], in[3], 0.5) })
			})
		}
	}
}

func BenchmarkReductions(b *testing.B) {
	const n = 4096
	x := make([]float32, n)
	for i := range x {
		x[i] = canontest.Gen(3, i)
	}
	for _, s := range isa.Available() {
		k := For(s)
		for name, f := range map[string]func(){
			"Sum": func() { k.Sum(x) }, "SumSquares": func() { k.SumSquares(x) }, "Max": func() { k.Max(x) }, "ArgMax": func() { k.ArgMax(x) },
		} {
			b.Run(fmt.Sprintf("%s/%v/n=%d", name, s, n), func(b *testing.B) { bench(b, n, f) })
		}
	}
}

// bench times batches of calls, for the clock is too coarse for one.
func bench(b *testing.B, n int, f func()) {
	const batch = 8
	best := time.Duration(1 << 62)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		for range batch {
			f()
		}
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(best)/batch, "best-ns")
	b.ReportMetric(float64(best)/batch/float64(n), "best-ns/value")
	b.ReportMetric(0, "ns/op")
}
