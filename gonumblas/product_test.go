package gonumblas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"samebit/internal/canon"
)

// dot is DOT as docs/numerics.md 2 writes it.
func dot(k int, x, y func(i int) float32) float32 {
	var total float32
	for b := 0; b < k; b += 128 {
		var acc float32
		for i := b; i < min(b+128, k); i++ {
			acc = canon.FMA32(x(i), y(i), acc)
		}
		total += acc
	}
	return total
}

// update is what the package promises for one element.
func update(alpha, beta, c float32, k int, x, y func(i int) float32) float32 {
	switch {
	case alpha == 0 || k == 0:
		if beta == 0 {
			return 0
		}
		return beta * c
	case beta == 0:
		return alpha * dot(k, x, y)
	}
	return canon.FMA32(beta, c, alpha*dot(k, x, y))
}

func oriented(r *rand.Rand, rows, cols int, trans bool) *matrix {
	if trans {
		return newMatrix(r, cols, rows)
	}
	return newMatrix(r, rows, cols)
}

type shape struct{ m, n, k int }

func shapes(r *rand.Rand) []shape {
	s := []shape{{0, 3, 5}, {3, 0, 5}, {3, 5, 0}, {1, 1, 1}, {1, 70, 300}, {70, 1, 300}, {2, 131, 129}, {131, 2, 129}, {1, 1, 1500}, {5, 3, 1100}, {225, 33, 257}, {33, 290, 64}}
	if testing.Short() {
		s = s[:8]
	}
	for range len(s) * 3 {
		s = append(s, shape{r.IntN(71), r.IntN(71), r.IntN(71)})
	}
	return s
}

// Every implementation and number of threads gives the written definition, bit
// by bit, for every layout, and touches nothing else.
func TestSgemmBits(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 1))
	for i, s := range shapes(r) {
		transA, transB := i&1 != 0, i&2 != 0
		alpha, beta := scalars[r.IntN(4)], scalars[r.IntN(4)]
		what := fmt.Sprintf("seed %d %+v transA=%v transB=%v alpha=%g beta=%g", seed, s, transA, transB, alpha, beta)
		a, b := oriented(r, s.m, s.k, transA), oriented(r, s.k, s.n, transB)
		c := newMatrix(r, s.m, s.n)
		if beta == 0 {
			for i := range c.all {
				c.all[i] = nan // must not be read
			}
		}
		want := c.clone()
		for i := range s.m {
			for j := range s.n {
				want.row(i)[j] = update(alpha, beta, c.row(i)[j], s.k, func(q int) float32 { return a.at(i, q, transA) }, func(q int) float32 { return b.at(q, j, transB) })
			}
		}
		for _, v := range variants {
			got := c.clone()
			v.b.Sgemm(flag(transA), flag(transB), s.m, s.n, s.k, alpha, a.data(), a.ld, b.data(), b.ld, beta, got.data(), got.ld)
			sameAll(t, v.name+" "+what, got.all, want.all)
		}
	}
}

// A part of a larger product, the transposed storage of a factor and the
// transposed product have the same bits. These shapes take every path: one row,
// few rows, few columns, several blocks of rows, several passes.
func TestSgemmLaws(t *testing.T) {
	const seed = 12
	list := []shape{{300, 280, 300}, {460, 70, 1030}, {40, 1300, 200}, {3, 1100, 2100}, {470, 70, 9000}, {2, 33, 5000}}
	if testing.Short() || raceEnabled {
		list = []shape{{60, 70, 140}}
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for _, s := range list {
		a, b := newMatrix(r, s.m, s.k), newMatrix(r, s.k, s.n)
		at, bt := a.transpose(r), b.transpose(r)
		full := newMatrix(r, s.m, s.n)
		fastest().b.Sgemm(blas.NoTrans, blas.NoTrans, s.m, s.n, s.k, 1, a.data(), a.ld, b.data(), b.ld, 0, full.data(), full.ld)
		for _, v := range variants {
			if v.name[0] == 'g' {
				continue // generic code takes its time; TestSgemmBits has it
			}
			what := fmt.Sprintf("%s seed %d %+v", v.name, seed, s)
			for _, l := range []struct{ ta, tb bool }{{false, true}, {true, false}, {true, true}} {
				x, y := a, b
				if l.ta {
					x = at
				}
				if l.tb {
					y = bt
				}
				c := newMatrix(r, s.m, s.n)
				v.b.Sgemm(flag(l.ta), flag(l.tb), s.m, s.n, s.k, 1, x.data(), x.ld, y.data(), y.ld, 0, c.data(), c.ld)
				compare(t, fmt.Sprintf("%s %+v", what, l), c, full, 0, 0)
			}
			// Cᵀ = Bᵀ·Aᵀ
			c := newMatrix(r, s.n, s.m)
			v.b.Sgemm(blas.Trans, blas.Trans, s.n, s.m, s.k, 1, b.data(), b.ld, a.data(), a.ld, 0, c.data(), c.ld)
			for i := range s.n {
				for j := range s.m {
					if !same(c.row(i)[j], full.row(j)[i]) {
						t.Fatalf("%s: transposed product differs at %d,%d", what, j, i)
					}
				}
			}
			for range 4 {
				i0, j0 := r.IntN(s.m), r.IntN(s.n)
				m, n := 1+r.IntN(s.m-i0), 1+r.IntN(s.n-j0)
				c := newMatrix(r, m, n)
				v.b.Sgemm(blas.NoTrans, blas.NoTrans, m, n, s.k, 1, a.data()[i0*a.ld:], a.ld, b.data()[j0:], b.ld, 0, c.data(), c.ld)
				compare(t, fmt.Sprintf("%s part %d+%d,%d+%d", what, i0, m, j0, n), c, full, i0, j0)
			}
			// A row by Sgemv, with A as Bᵀ.
			i, y := r.IntN(s.m), newVector(r, s.n, -3)
			v.b.Sgemv(blas.Trans, s.k, s.n, 1, b.data(), b.ld, a.row(i), 1, 0, y, -3)
			z := newVector(r, s.n, 1)
			v.b.Sgemv(blas.NoTrans, s.n, s.k, 1, bt.data(), bt.ld, a.row(i), 1, 0, z, 1)
			for j := range s.n {
				if !same(y[element(j, s.n, -3)], full.row(i)[j]) || !same(z[j], full.row(i)[j]) {
					t.Fatalf("%s: Sgemv of row %d differs at %d", what, i, j)
				}
			}
		}
	}
}

// compare says that c is the part of full from (i0, j0) on.
func compare(t *testing.T, what string, c, full *matrix, i0, j0 int) {
	t.Helper()
	c.guards(t, what)
	for i := range c.rows {
		sameAll(t, fmt.Sprintf("%s row %d", what, i), c.row(i), full.row(i0 + i)[j0:j0+c.cols])
	}
}

func TestSgemvBits(t *testing.T) {
	const seed = 13
	r := rand.New(rand.NewPCG(seed, 1))
	incs := []int{1, 1, 2, 3, -1, -2}
	for i, s := range append(shapes(r), shape{3, 1400, 1}, shape{1400, 3, 1}) {
		m, n, trans := s.m, max(s.n, s.k), i&1 != 0
		alpha, beta := scalars[r.IntN(4)], scalars[r.IntN(4)]
		incX, incY := incs[r.IntN(len(incs))], incs[r.IntN(len(incs))]
		a := newMatrix(r, m, n)
		lenX, lenY := n, m
		if trans {
			lenX, lenY = m, n
		}
		x, y := newVector(r, lenX, incX), newVector(r, lenY, incY)
		what := fmt.Sprintf("seed %d %dx%d trans=%v alpha=%g beta=%g inc %d,%d", seed, m, n, trans, alpha, beta, incX, incY)
		want := append([]float32(nil), y...)
		for j := range lenY {
			if m == 0 || n == 0 {
				break // as gonum: y stays as it is
			}
			o := element(j, lenY, incY)
			want[o] = update(alpha, beta, y[o], lenX, func(q int) float32 { return a.at(j, q, trans) }, func(q int) float32 { return x[element(q, lenX, incX)] })
		}
		for _, v := range variants {
			got := append([]float32(nil), y...)
			v.b.Sgemv(flag(trans), m, n, alpha, a.data(), a.ld, x, incX, beta, got, incY)
			sameAll(t, v.name+" "+what, got, want)
		}
	}
}

func TestSsyrkBits(t *testing.T) {
	const seed = 14
	r := rand.New(rand.NewPCG(seed, 1))
	for i, s := range append(shapes(r), shape{0, 0, 0}, shape{1, 1, 40}) {
		n, k, trans, ul := s.m, s.k, i&1 != 0, blas.Upper
		if i&2 != 0 {
			ul = blas.Lower
		}
		alpha, beta := scalars[r.IntN(4)], scalars[r.IntN(4)]
		what := fmt.Sprintf("seed %d n=%d k=%d %c trans=%v alpha=%g beta=%g", seed, n, k, ul, trans, alpha, beta)
		a, c := oriented(r, n, k, trans), newMatrix(r, n, n)
		want := c.clone()
		for i := range n {
			for j := range n {
				if ul == blas.Upper && j >= i || ul == blas.Lower && j <= i {
					want.row(i)[j] = update(alpha, beta, c.row(i)[j], k, func(q int) float32 { return a.at(i, q, trans) }, func(q int) float32 { return a.at(j, q, trans) })
				}
			}
		}
		for _, v := range variants {
			got := c.clone()
			v.b.Ssyrk(ul, flag(trans), n, k, alpha, a.data(), a.ld, beta, got.data(), got.ld)
			sameAll(t, v.name+" "+what, got.all, want.all)
		}
	}
}

// Against gonum's float64 product, within the bound of dotBound.
func TestSgemmAgainstFloat64(t *testing.T) {
	const seed = 15
	r := rand.New(rand.NewPCG(seed, 1))
	list := shapes(r)
	if !testing.Short() {
		list = append(list, shape{150, 200, 700}, shape{250, 40, 1500})
	}
	wide := func(m *matrix, abs bool) blas64.General {
		g := blas64.General{Rows: m.rows, Cols: m.cols, Stride: max(1, m.cols), Data: make([]float64, m.rows*max(1, m.cols))}
		for i := range m.rows {
			for j, v := range m.row(i) {
				g.Data[i*m.cols+j] = float64(v)
				if abs {
					g.Data[i*m.cols+j] = math.Abs(float64(v))
				}
			}
		}
		return g
	}
	for i, s := range list {
		transA, transB := i&1 != 0, i&2 != 0
		tA, tB := flag(transA), flag(transB)
		alpha, beta := scalars[r.IntN(4)], scalars[r.IntN(4)]
		what := fmt.Sprintf("seed %d %+v transA=%v transB=%v alpha=%g beta=%g", seed, s, transA, transB, alpha, beta)
		a, b, c := oriented(r, s.m, s.k, transA), oriented(r, s.k, s.n, transB), newMatrix(r, s.m, s.n)
		want, size := wide(c, false), wide(c, false)
		blas64.Gemm(tA, tB, float64(alpha), wide(a, false), wide(b, false), float64(beta), want)
		blas64.Gemm(tA, tB, 1, wide(a, true), wide(b, true), 0, size)
		got := c.clone()
		fastest().b.Sgemm(tA, tB, s.m, s.n, s.k, alpha, a.data(), a.ld, b.data(), b.ld, beta, got.data(), got.ld)
		for i := range s.m {
			for j := range s.n {
				o := i*want.Stride + j
				bound := scaledBound(dotBound(s.k, size.Data[o]), float64(alpha), size.Data[o], float64(beta), float64(c.row(i)[j]))
				if d := math.Abs(float64(got.row(i)[j]) - want.Data[o]); !(d <= bound) {
					t.Fatalf("%s: element %d,%d is %g, float64 gives %g: off by %g, more than %g", what, i, j, got.row(i)[j], want.Data[o], d, bound)
				}
			}
		}
	}
}

// NaN and infinities of a factor reach the result, also beside zeros.
func TestSgemmSeesNaN(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, v := range variants {
		a, b, c := []float32{0, 1}, []float32{nan, inf, 1, 2}, []float32{5, 5}
		v.b.Sgemm(blas.NoTrans, blas.NoTrans, 1, 2, 2, 1, a, 2, b, 2, 0, c, 2)
		if c[0] == c[0] || c[1] == c[1] {
			t.Errorf("%s: 0·NaN and 0·Inf gave %v", v.name, c)
		}
		v.b.Sgemm(blas.NoTrans, blas.NoTrans, 1, 2, 2, 0, a, 2, b, 2, 0, c, 2)
		if c[0] != 0 || c[1] != 0 {
			t.Errorf("%s: alpha = 0 gave %v", v.name, c)
		}
	}
}
