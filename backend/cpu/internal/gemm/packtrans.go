package gemm

// PackTrans is PackTiles for a matrix that lies transposed in memory: row r of
// A has its inputs at a[i·lda + r].
func (ks *Kernels) PackTrans(dst, a []float32, lda, m, k, t0, t1 int) {
	size, big, _ := ks.split(m)
	for t := t0; t < t1; t++ {
		row, r := t*size+min(t, big), size
		if t < big {
			r++
		}
		d := dst[row*k : (row+r)*k]
		for i := range k {
			copy(d[i*r:(i+1)*r], a[i*lda+row:i*lda+row+r])
		}
	}
}
