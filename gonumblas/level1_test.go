package gonumblas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"samebit/internal/canon"
)

var increments = []int{1, 1, 2, 3, -1, -4}

func lengths() []int {
	if testing.Short() {
		return []int{0, 1, 2, 33, 129}
	}
	return []int{0, 1, 2, 5, 31, 32, 33, 127, 128, 129, 1000, 1025, 1537, 3001, 70001}
}

func TestLevel1Bits(t *testing.T) {
	const seed = 21
	r := rand.New(rand.NewPCG(seed, 1))
	for _, n := range lengths() {
		for range 4 {
			incX, incY := increments[r.IntN(6)], increments[r.IntN(6)]
			alpha := scalars[r.IntN(4)]
			what := fmt.Sprintf("seed %d n=%d alpha=%g inc %d,%d", seed, n, alpha, incX, incY)
			x, y := newVector(r, n, incX), newVector(r, n, incY)
			at := func(i int) float32 { return x[element(i, n, incX)] }
			inner := dot(n, at, func(i int) float32 { return y[element(i, n, incY)] })
			axpy, scal := append([]float32(nil), y...), append([]float32(nil), x...)
			for i := range n {
				if o := element(i, n, incY); alpha != 0 {
					axpy[o] = canon.FMA32(alpha, at(i), y[o])
				}
				if o := element(i, n, incX); incX > 0 {
					scal[o] = alpha * x[o]
					if alpha == 0 {
						scal[o] = 0
					}
				}
			}
			for _, v := range variants {
				if n > 10000 && v.name[0] == 'g' {
					continue
				}
				what := v.name + " " + what
				if got := v.b.Sdot(n, x, incX, y, incY); !same(got, inner) {
					t.Fatalf("%s: Sdot is %x, want %x", what, got, inner)
				}
				got := append([]float32(nil), y...)
				v.b.Saxpy(n, alpha, x, incX, got, incY)
				sameAll(t, "Saxpy "+what, got, axpy)
				got = append([]float32(nil), x...)
				v.b.Sscal(n, alpha, got, incX)
				sameAll(t, "Sscal "+what, got, scal)
			}
		}
	}
}

func TestSgerBits(t *testing.T) {
	const seed = 22
	r := rand.New(rand.NewPCG(seed, 1))
	list := []shape{{0, 4, 0}, {4, 0, 0}, {1, 1, 0}, {3, 70, 0}, {70, 3, 0}, {33, 65, 0}}
	if !testing.Short() {
		list = append(list, shape{40, 2100, 0}, shape{2100, 40, 0})
	}
	for _, s := range list {
		for _, alpha := range scalars {
			incX, incY := increments[r.IntN(6)], increments[r.IntN(6)]
			x, y, a := newVector(r, s.m, incX), newVector(r, s.n, incY), newMatrix(r, s.m, s.n)
			want := a.clone()
			for i := range s.m {
				p := alpha * x[element(i, s.m, incX)]
				for j := range s.n {
					if alpha != 0 {
						want.row(i)[j] = canon.FMA32(p, y[element(j, s.n, incY)], a.row(i)[j])
					}
				}
			}
			for _, v := range variants {
				got := a.clone()
				v.b.Sger(s.m, s.n, alpha, x, incX, y, incY, got.data(), got.ld)
				sameAll(t, fmt.Sprintf("%s seed %d %dx%d alpha=%g inc %d,%d", v.name, seed, s.m, s.n, alpha, incX, incY), got.all, want.all)
			}
		}
	}
}

// RSUM passes an element through at most 32 FMAs of its lane in a block, 5 folds
// and ⌈n/1024⌉ adds, all of one sign; the root halves a relative error and adds
// half a unit.
func TestSnrm2(t *testing.T) {
	const seed = 23
	r := rand.New(rand.NewPCG(seed, 1))
	for _, n := range []int{0, 1, 2, 33, 1000, 3001} {
		for _, inc := range []int{1, 3} {
			for _, scale := range []float64{1, 0x1p100, 0x1p-70, 0x1p-126} {
				x := make([]float32, n*inc+1)
				var sum float64
				for i := range x {
					x[i] = float32(r.NormFloat64() * scale)
					if i%inc == 0 && i/inc < n {
						sum += float64(x[i]) * float64(x[i])
					}
				}
				want := math.Sqrt(sum)
				bound := want * (float64(37+(n+1023)/1024)/2 + 2) * eps
				if scale < 0x1p-100 {
					bound += 0x1p-149 // of the result, which may be subnormal
				}
				var first float32
				for i, v := range variants {
					got := v.b.Snrm2(n, x, inc)
					if d := math.Abs(float64(got) - want); !(d <= bound) {
						t.Errorf("%s seed %d n=%d inc=%d scale=%g: %g, float64 gives %g", v.name, seed, n, inc, scale, got, want)
					}
					if i == 0 {
						first = got
					} else if !same(got, first) {
						t.Errorf("%s n=%d inc=%d scale=%g: %x, first variant %x", v.name, n, inc, scale, got, first)
					}
				}
			}
		}
	}
	b, inf := fastest().b, float32(math.Inf(-1))
	for _, c := range []struct {
		x    []float32
		want float32
	}{{[]float32{-3, 4}, 5}, {[]float32{-0x1p-149}, 0x1p-149}, {[]float32{math.MaxFloat32}, math.MaxFloat32}, {[]float32{1, inf}, -inf}, {[]float32{1, nan, inf}, nan}, {[]float32{0, 0}, 0}} {
		if got := b.Snrm2(len(c.x), c.x, 1); !same(got, c.want) {
			t.Errorf("Snrm2(%v) = %g, want %g", c.x, got, c.want)
		}
	}
}

// The address of the operands is nothing that a result depends on.
func TestAlignment(t *testing.T) {
	const seed, n = 24, 1000
	r := rand.New(rand.NewPCG(seed, 1))
	x, y := random(r, n), random(r, n)
	b := fastest().b
	want := b.Sdot(n, x, 1, y, 1)
	for off := range 17 {
		u, v := make([]float32, n+17), make([]float32, n+17)
		copy(u[off:], x)
		copy(v[16-off:], y)
		if got := b.Sdot(n, u[off:], 1, v[16-off:], 1); !same(got, want) {
			t.Errorf("seed %d: Sdot at offset %d is %x, want %x", seed, off, got, want)
		}
	}
}
