package gonumblas

import "gonum.org/v1/gonum/blas"

// Sger sets A[i,j] = FMA(RN(alpha·x[i]), y[j], A[i,j]).
func (b Implementation) Sger(m, n int, alpha float32, x []float32, incX int, y []float32, incY int, a []float32, lda int) {
	checkM(m)
	checkN(n)
	checkLd(lda, n, badLdA)
	checkIncrements(incX, incY)
	if m == 0 || n == 0 {
		return
	}
	checkX(m, x, incX)
	checkY(n, y, incY)
	checkMatrix(a, lda, m, n, shortA)
	b.blas().Ger(m, n, alpha, x, incX, y, incY, a, lda)
}

// Sgemv computes y = beta·y + alpha·A·x, or with Aᵀ; A is m×n either way. The
// numbers are those of Sgemm with x as a matrix of one column.
func (b Implementation) Sgemv(tA blas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int) {
	trans := transposed(tA)
	checkM(m)
	checkN(n)
	checkLd(lda, n, badLdA)
	checkIncrements(incX, incY)
	if m == 0 || n == 0 {
		return
	}
	lenX, lenY := n, m
	if trans {
		lenX, lenY = m, n
	}
	checkX(lenX, x, incX)
	checkY(lenY, y, incY)
	checkMatrix(a, lda, m, n, shortA)
	b.blas().Gemv(trans, m, n, alpha, a, lda, x, incX, beta, y, incY)
}

// Sgemm computes C = beta·C + alpha·A·B with either factor transposed or not;
// C is m×n, and the inner dimension is k.
func (b Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, bm []float32, ldb int, beta float32, c []float32, ldc int) {
	transA, transB := transposed(tA), transposed(tB)
	checkM(m)
	checkN(n)
	checkK(k)
	rowsA, colsA, rowsB, colsB := m, k, k, n
	if transA {
		rowsA, colsA = k, m
	}
	if transB {
		rowsB, colsB = n, k
	}
	checkLd(lda, colsA, badLdA)
	checkLd(ldb, colsB, badLdB)
	checkLd(ldc, n, badLdC)
	if m == 0 || n == 0 {
		return
	}
	checkMatrix(a, lda, rowsA, colsA, shortA)
	checkMatrix(bm, ldb, rowsB, colsB, shortB)
	checkMatrix(c, ldc, m, n, shortC)
	b.blas().Gemm(transA, transB, m, n, k, alpha, a, lda, bm, ldb, beta, c, ldc)
}

// Ssyrk computes one triangle of C = beta·C + alpha·A·Aᵀ, or of alpha·Aᵀ·A; C is
// n×n and the inner dimension is k. The numbers are those of Sgemm.
func (b Implementation) Ssyrk(ul blas.Uplo, tA blas.Transpose, n, k int, alpha float32, a []float32, lda int, beta float32, c []float32, ldc int) {
	if ul != blas.Lower && ul != blas.Upper {
		panic(badUplo)
	}
	trans := transposed(tA)
	checkN(n)
	checkK(k)
	rows, cols := n, k
	if trans {
		rows, cols = k, n
	}
	checkLd(lda, cols, badLdA)
	checkLd(ldc, n, badLdC)
	if n == 0 {
		return
	}
	checkMatrix(a, lda, rows, cols, shortA)
	checkMatrix(c, ldc, n, n, shortC)
	b.blas().Syrk(ul == blas.Upper, trans, n, k, alpha, a, lda, beta, c, ldc)
}
