package gemm

// Tiles returns the number of row tiles that PackA cuts m rows into.
func (ks *Kernels) Tiles(m int) int {
	_, big, small := ks.split(m)
	return big + small
}

// PackTiles does the part of PackA that tiles [t0, t1) are, so that threads may
// share it.
func (ks *Kernels) PackTiles(dst, a []float32, lda, m, k, t0, t1 int) {
	size, big, _ := ks.split(m)
	for t := t0; t < t1; t++ {
		row, r := t*size+min(t, big), size
		if t < big {
			r++
		}
		ks.Turn(dst[row*k:(row+r)*k], r, a[row*lda:], lda, r, k)
	}
}
