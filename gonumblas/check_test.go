package gonumblas

import (
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// message is what f panics with, or nil.
func message(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// Random arguments, many of them wrong in one or more ways: the same panic as
// gonum's, or none.
func TestPanicsAreGonums(t *testing.T) {
	const seed = 31
	r := rand.New(rand.NewPCG(seed, 1))
	size := func() int { return r.IntN(6) - 1 }
	inc := func() int { return r.IntN(5) - 2 }
	ld := func() int { return r.IntN(6) }
	data := func() []float32 { return make([]float32, r.IntN(22)) }
	trans := func() blas.Transpose {
		return []blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans, 'x'}[r.IntN(4)]
	}
	uplo := func() blas.Uplo { return []blas.Uplo{blas.Upper, blas.Lower, 'x'}[r.IntN(3)] }
	ours, theirs := fastest().b, gonum.Implementation{}
	failed := map[string]int{}
	for range 20000 {
		m, n, k := size(), size(), size()
		x, y, a, b, c := data(), data(), data(), data(), data()
		incX, incY, lda, ldb, ldc := inc(), inc(), ld(), ld(), ld()
		tA, tB, ul := trans(), trans(), uplo()
		alpha, beta := scalars[r.IntN(4)], scalars[r.IntN(4)]
		for name, f := range map[string]func(i blas.Float32){
			"Sdot":  func(i blas.Float32) { i.Sdot(n, x, incX, y, incY) },
			"Saxpy": func(i blas.Float32) { i.Saxpy(n, alpha, x, incX, y, incY) },
			"Sscal": func(i blas.Float32) { i.Sscal(n, alpha, x, incX) },
			"Snrm2": func(i blas.Float32) { i.Snrm2(n, x, incX) },
			"Sger":  func(i blas.Float32) { i.Sger(m, n, alpha, x, incX, y, incY, a, lda) },
			"Sgemv": func(i blas.Float32) { i.Sgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY) },
			"Sgemm": func(i blas.Float32) { i.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) },
			"Ssyrk": func(i blas.Float32) { i.Ssyrk(ul, tA, n, k, alpha, a, lda, beta, c, ldc) },
		} {
			want := message(func() { f(theirs) })
			if got := message(func() { f(ours) }); got != want {
				t.Fatalf("seed %d: %s panics with %v, gonum with %v (m=%d n=%d k=%d inc %d,%d ld %d,%d,%d lengths %d,%d,%d,%d,%d)",
					seed, name, got, want, m, n, k, incX, incY, lda, ldb, ldc, len(x), len(y), len(a), len(b), len(c))
			}
			if want != nil {
				failed[name]++
			}
		}
	}
	for name, count := range failed {
		if count < 100 || count > 19990 {
			t.Errorf("%s: %d of 20000 calls panicked: the arguments test little", name, count)
		}
	}
}
