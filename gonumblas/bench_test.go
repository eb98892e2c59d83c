package gonumblas

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"samebit/backend/cpu"
)

// best reports the rate of the fastest of many short runs, which a busy machine
// disturbs least, by the clock and by the processor time of this thread (which
// says nothing about code that uses others). work is in billions per call.
func best(b *testing.B, unit string, work float64, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wall, own := time.Hour, time.Hour
	f()
	for b.Loop() {
		calls := 0
		start, cpu := time.Now(), now()
		for calls == 0 || time.Since(start) < 200*time.Microsecond {
			f()
			calls++
		}
		wall = min(wall, time.Since(start)/time.Duration(calls))
		own = min(own, (now()-cpu)/time.Duration(calls))
	}
	b.ReportMetric(work/wall.Seconds(), unit)
	b.ReportMetric(work/own.Seconds(), "cpu-"+unit)
}

// peers are this package on one thread and on all, and gonum's own kernels.
func peers(b *testing.B, f func(b *testing.B, impl blas.Float32)) {
	for _, threads := range []int{1, 0} {
		dev, err := cpu.New(cpu.Config{Threads: threads})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("samebit/%dthreads", dev.Info().Threads), func(b *testing.B) { f(b, New(dev)) })
		dev.Close()
	}
	b.Run("gonum", func(b *testing.B) { f(b, gonum.Implementation{}) })
}

func BenchmarkSgemm(b *testing.B) {
	for _, s := range []shape{{8, 8, 8}, {64, 64, 64}, {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {32, 3072, 1024}, {3072, 32, 1024}, {3072, 64, 512}, {4, 3072, 1024}, {10, 3072, 1024}} {
		for _, trans := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dx%dx%d/transB=%v", s.m, s.n, s.k, trans), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				x, y, c := random(r, s.m*s.k), random(r, s.n*s.k), make([]float32, s.m*s.n)
				ldb := s.n
				if trans {
					ldb = s.k
				}
				peers(b, func(b *testing.B, impl blas.Float32) {
					best(b, "GFLOP/s", 2e-9*float64(s.m)*float64(s.n)*float64(s.k), func() {
						impl.Sgemm(blas.NoTrans, flag(trans), s.m, s.n, s.k, 1, x, s.k, y, ldb, 0, c, s.n)
					})
				})
			})
		}
	}
}

func BenchmarkSgemv(b *testing.B) {
	for _, s := range []shape{{m: 3072, n: 1024}, {m: 11008, n: 2048}, {m: 1024, n: 16384}, {m: 256, n: 256}, {m: 512, n: 100}} {
		for _, trans := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dx%d/trans=%v", s.m, s.n, trans), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				a, x, y := random(r, s.m*s.n), random(r, max(s.m, s.n)), make([]float32, max(s.m, s.n))
				peers(b, func(b *testing.B, impl blas.Float32) {
					best(b, "GB/s", 4e-9*float64(s.m)*float64(s.n), func() {
						impl.Sgemv(flag(trans), s.m, s.n, 1, a, s.n, x, 1, 0, y, 1)
					})
				})
			})
		}
	}
}

func BenchmarkSdot(b *testing.B) {
	for _, n := range []int{100, 1000, 100000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			x, y := random(r, n), random(r, n)
			var sink float32
			peers(b, func(b *testing.B, impl blas.Float32) {
				best(b, "GFLOP/s", 2e-9*float64(n), func() { sink += impl.Sdot(n, x, 1, y, 1) })
			})
		})
	}
}
