package blas1

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"samebit/backend/cpu/internal/gemm/internal/golden"
	"samebit/backend/cpu/internal/isa"
	"samebit/internal/canon"
)

const numerics = "../../../../../testdata/numerics"

func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || (a != a && b != b)
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
		switch r.IntN(30) {
		case 0:
			x[i] = math.Float32frombits(r.Uint32() & 0x80ffffff)
		case 1:
			x[i] = float32(math.Copysign(0, -1))
		}
	}
	return x
}

func TestGoldenDot(t *testing.T) {
	for _, c := range golden.Cases(t, numerics, "dot") {
		x, y, want := c.Floats(t, "x"), c.Floats(t, "y"), c.Floats(t, "r")[0]
		for _, s := range isa.Available() {
			if got := Dot(s, x, y); !same(got, want) {
				t.Errorf("%v k=%d: %08x, want %08x", s, len(x), math.Float32bits(got), math.Float32bits(want))
			}
		}
	}
}

var lengths = []int{0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 383, 385, 640, 897, 1000, 1023, 1024, 1025, 1155, 2100, 3073}

func TestAgainstGeneric(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range lengths {
		for off := range 3 {
			x, y := random(r, n+off)[off:], random(r, n+off)[off:]
			a := float32(r.NormFloat64())
			for _, s := range isa.Available()[1:] {
				if g, w := Dot(s, x, y), Dot(isa.Generic, x, y); !same(g, w) {
					t.Errorf("%v Dot n=%d: %x, want %x", s, n, g, w)
				}
				if g, w := SumSq(s, x), SumSq(isa.Generic, x); !same(g, w) {
					t.Errorf("%v SumSq n=%d: %x, want %x", s, n, g, w)
				}
				want, got := guarded(y), guarded(y)
				Axpy(isa.Generic, a, x, want[1:n+1])
				Axpy(s, a, x, got[1:n+1])
				equal(t, fmt.Sprintf("%v Axpy n=%d", s, n), got, want)
				want, got = guarded(x), guarded(x)
				Scal(isa.Generic, a, want[1:n+1])
				Scal(s, a, got[1:n+1])
				equal(t, fmt.Sprintf("%v Scal n=%d", s, n), got, want)
			}
		}
	}
}

// Dots are Dot of each row, whatever lies between the rows.
func TestDots(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 4, 7, 60, 64, 126, 128, 132, 256, 300} {
		for _, count := range []int{0, 1, 7, 8, 9, 23, 64} {
			ldx, ldy := n+r.IntN(5), n+r.IntN(5)
			x, y := random(r, count*ldx+n), random(r, count*ldy+n)
			for _, s := range isa.Available() {
				got := guarded(make([]float32, count))
				want := guarded(make([]float32, count))
				for i := range count {
					want[1+i] = Dot(isa.Generic, x[i*ldx:][:n], y[i*ldy:][:n])
				}
				Dots(s, got[1:1+count], x[:max(0, (count-1)*ldx+n)], ldx, y[:max(0, (count-1)*ldy+n)], ldy, n)
				equal(t, fmt.Sprintf("%v Dots of %d rows, n=%d", s, count, n), got, want)
			}
		}
	}
}

func guarded(x []float32) []float32 {
	nan := float32(math.NaN())
	return append(append([]float32{nan}, x...), nan)
}

func equal(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("%s: [%d] = %x, want %x", what, i-1, got[i], want[i])
		}
	}
}

// RSUM of squares as docs/numerics.md 3 writes it.
func TestSumSqOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	for _, n := range lengths {
		x := random(r, n)
		var total float32
		for b := 0; b < n; b += 1024 {
			var lane [32]float32
			for i := b; i < min(b+1024, n); i++ {
				lane[i%32] = canon.FMA32(x[i], x[i], lane[i%32])
			}
			for _, h := range []int{16, 8, 4, 2, 1} {
				for j := range h {
					lane[j] += lane[j+h]
				}
			}
			total += lane[0]
		}
		for _, s := range isa.Available() {
			if got := SumSq(s, x); !same(got, total) {
				t.Errorf("%v n=%d: %x, want %x", s, n, got, total)
			}
		}
	}
}

func TestAllocateNothing(t *testing.T) {
	x, y := make([]float32, 1000), make([]float32, 1000)
	for _, s := range isa.Available() {
		if n := testing.AllocsPerRun(5, func() {
			Axpy(s, Dot(s, x, y), x, y)
			Scal(s, SumSq(s, x), y)
		}); n != 0 {
			t.Errorf("%v: %v allocations", s, n)
		}
	}
}

func BenchmarkVectors(b *testing.B) {
	for _, n := range []int{100, 1000, 1024, 16384} {
		x, y := make([]float32, n), make([]float32, n)
		for _, s := range isa.Available() {
			for name, f := range map[string]func(){
				"Dot":   func() { Dot(s, x, y) },
				"Axpy":  func() { Axpy(s, 0.5, x, y) },
				"SumSq": func() { SumSq(s, x) },
			} {
				b.Run(fmt.Sprintf("%s/%v/%d", name, s, n), func(b *testing.B) {
					best := time.Hour
					for b.Loop() {
						t := time.Now()
						for range 16 {
							f()
						}
						best = min(best, time.Since(t))
					}
					b.ReportMetric(float64(best)/16/float64(n), "best-ns/elem")
				})
			}
		}
	}
}
