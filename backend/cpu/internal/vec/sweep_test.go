package vec

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"samebit/backend/cpu/internal/isa"
	"samebit/internal/canon"
	"samebit/internal/canon/canontest"
)

var exhaustive = flag.Bool("exhaustive", false, "compare exp on every float32 (minutes)")

// sweep compares a kernel of every set with the scalar function on a stride
// through all bit patterns.
func sweep(t *testing.T, name string, stride uint64, scalar func(float32) float32, kernel func(k *Kernels) func(dst, x []float32)) {
	t.Helper()
	x, y, want := make([]float32, 4096), make([]float32, 4096), make([]float32, 4096)
	for u := uint64(0); u < 1<<32; {
		n := 0
		for ; n < len(x) && u < 1<<32; n++ {
			x[n] = math.Float32frombits(uint32(u))
			want[n] = scalar(x[n])
			u += stride
		}
		for _, s := range isa.Available() {
			if s == isa.Generic {
				continue
			}
			kernel(For(s))(y[:n], x[:n])
			for i := range n {
				if !canontest.Same(y[i], want[i]) {
					t.Fatalf("%v: %s(%08x) = %08x, want %08x", s, name, math.Float32bits(x[i]), math.Float32bits(y[i]), math.Float32bits(want[i]))
				}
			}
		}
	}
}

func TestSweeps(t *testing.T) {
	few, many := uint64(20011), uint64(1009)
	if testing.Short() {
		few, many = 4000037, 400009
	}
	if *exhaustive {
		many = 1
	}
	sweep(t, "exp", many, canon.Exp, func(k *Kernels) func(dst, x []float32) { return k.Exp })
	sweep(t, "sigmoid", few, canon.Sigmoid, func(k *Kernels) func(dst, x []float32) { return k.Sigmoid })
	sweep(t, "silu", few, canon.SiLU, func(k *Kernels) func(dst, x []float32) { return k.SiLU })
	sweep(t, "softplus", few, canon.Softplus, func(k *Kernels) func(dst, x []float32) { return k.Softplus })
}

// canon.FMA32 against the instruction, where there is one, on random operands
// and on sums near a tie.
func TestFMA32Hardware(t *testing.T) {
	best := isa.Best()
	if best == isa.Generic {
		t.Skip("no FMA instruction in this build")
	}
	k := For(best)
	rounds := 500 // of 4096: 2 million cases
	if testing.Short() {
		rounds = 20
	}
	const seed = 17
	r := rand.New(rand.NewPCG(seed, 2))
	a, b, c := make([]float32, 4096), make([]float32, 4096), make([]float32, 4096)
	y := make([]float32, 4096)
	for range rounds {
		for i := range a {
			a[i], b[i], c[i] = math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32())
			switch i % 4 {
			case 1: // product near half a step of c
				e := r.Uint32N(200) + 27
				c[i] = math.Float32frombits(e<<23 | r.Uint32()&0x7fffff)
				a[i] = math.Float32frombits((e-24)<<23 | r.Uint32()&0xff<<r.IntN(16)&0x7fffff | r.Uint32()&1<<31)
				b[i] = math.Float32frombits(0x3f800000 - r.Uint32N(64) + r.Uint32N(64))
			case 2: // near cancellation
				a[i] = math.Float32frombits(0x3f800000 | r.Uint32()&0xfff)
				b[i] = math.Float32frombits(0x3f800000 | r.Uint32()&0xfff)
				c[i] = -float32(a[i] * b[i])
			case 3: // subnormal results
				a[i] = math.Float32frombits(r.Uint32() & 0x80ffffff)
				b[i] = math.Float32frombits(0x3e000000 | r.Uint32()&0x1ffffff)
				c[i] = math.Float32frombits(r.Uint32() & 0x80ffffff >> r.IntN(8))
			}
		}
		copy(y, c)
		k.FMA(y, a, b)
		for i := range y {
			if want := canon.FMA32(a[i], b[i], c[i]); !canontest.Same(y[i], want) {
				t.Fatalf("seed %d: FMA(%08x, %08x, %08x): instruction %08x, FMA32 %08x", seed, math.Float32bits(a[i]),
					math.Float32bits(b[i]), math.Float32bits(c[i]), math.Float32bits(y[i]), math.Float32bits(want))
			}
		}
	}
}
