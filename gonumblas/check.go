package gonumblas

import "gonum.org/v1/gonum/blas"

// The messages of gonum's own checks, which it does not export. Programs that
// recover from them compare these texts.
const (
	zeroIncX     = "blas: zero x index increment"
	zeroIncY     = "blas: zero y index increment"
	mLT0         = "blas: m < 0"
	nLT0         = "blas: n < 0"
	kLT0         = "blas: k < 0"
	badUplo      = "blas: illegal triangle"
	badTranspose = "blas: illegal transpose"
	badLdA       = "blas: bad leading dimension of A"
	badLdB       = "blas: bad leading dimension of B"
	badLdC       = "blas: bad leading dimension of C"
	shortX       = "blas: insufficient length of x"
	shortY       = "blas: insufficient length of y"
	shortA       = "blas: insufficient length of a"
	shortB       = "blas: insufficient length of b"
	shortC       = "blas: insufficient length of c"
)

func transposed(t blas.Transpose) bool {
	switch t {
	case blas.NoTrans:
		return false
	case blas.Trans, blas.ConjTrans:
		return true
	}
	panic(badTranspose)
}

func checkM(m int) {
	if m < 0 {
		panic(mLT0)
	}
}

func checkN(n int) {
	if n < 0 {
		panic(nLT0)
	}
}

func checkK(k int) {
	if k < 0 {
		panic(kLT0)
	}
}

func checkLd(ld, cols int, message string) {
	if ld < max(1, cols) {
		panic(message)
	}
}

func checkIncrements(incX, incY int) {
	if incX == 0 {
		panic(zeroIncX)
	}
	if incY == 0 {
		panic(zeroIncY)
	}
}

func checkX(n int, x []float32, inc int) {
	if tooShort(n, x, inc) {
		panic(shortX)
	}
}

func checkY(n int, y []float32, inc int) {
	if tooShort(n, y, inc) {
		panic(shortY)
	}
}

func tooShort(n int, v []float32, inc int) bool {
	if inc < 0 {
		inc = -inc
	}
	return len(v) <= (n-1)*inc
}

// checkMatrix checks the length of a matrix; one without elements may be nil.
func checkMatrix(v []float32, ld, rows, cols int, message string) {
	if len(v) < (rows-1)*ld+cols {
		panic(message)
	}
}
