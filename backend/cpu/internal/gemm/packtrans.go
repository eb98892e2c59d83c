package gemm

import "unsafe"

// PackTrans is PackTiles for a matrix that lies transposed in memory: row r of
// A has its inputs at a[i·lda + r].
func (ks *Kernels) PackTrans(dst, a []float32, lda, m, k, t0, t1 int) {
	size, big, _ := ks.split(m)
	for t := t0; t < t1; t++ {
		row, r := t*size+min(t, big), size
		if t < big {
			r++
		}
		ks.packTransTile(dst[row*k:], a[row:], lda, r, k)
	}
}

// packTransTile packs one tile of rows, whose k inputs lie lda apart in a.
func (ks *Kernels) packTransTile(dst, a []float32, lda, rows, k int) {
	if k == 0 {
		return
	}
	_, _ = dst[rows*k-1], a[(k-1)*lda+rows-1]
	side := ks.side
	if rows < 8 {
		side = packRows // the 16 floats of the last row but one would reach beyond the tile
	}
	side(&dst[0], rows*4, &a[0], lda*4, rows, k)
}

// Turn writes dst[i·ldd + r] = src[r·lds + i] for r < rows and i < k.
func (ks *Kernels) Turn(dst []float32, ldd int, src []float32, lds, rows, k int) {
	most, least := len(ks.turn)-1, 1
	for least <= most && ks.turn[least] == nil {
		least++
	}
	if rows < least || least > most || k < 4 {
		for r := range rows {
			for i := range k {
				dst[i*ldd+r] = src[r*lds+i]
			}
		}
		return
	}
	_, _ = dst[(k-1)*ldd+rows-1], src[(rows-1)*lds+k-1]
	block := k
	if rows > most { // calls for other rows write the same lines
		block = kb
	}
	for k0 := 0; k0 < k; {
		n := min(block, k-k0) &^ 3
		if n == 0 {
			k0, n = k-4, 4 // the last four inputs, some of them again
		}
		for r := 0; r < rows; {
			m := min(most, rows-r)
			if m < least {
				r, m = rows-least, least // likewise rows
			}
			ks.turn[m](&dst[k0*ldd+r], ldd*4, &src[r*lds+k0], lds*4, m, n)
			r += m
		}
		k0 += n
	}
}

// packTransPanel is PackPanel for outputs that lie side by side.
func packTransPanel(side packRowsFunc, dst, src []float32, ld, rows, k int) {
	if k == 0 {
		return
	}
	if rows == width {
		_, _ = dst[k*width-1], src[(k-1)*ld+width-1]
		for o := 0; o < width; o += 16 {
			side(&dst[o], width*4, &src[o], ld*4, 16, k)
		}
		return
	}
	for i := range k {
		d := dst[i*width : (i+1)*width]
		clear(d[copy(d, src[i*ld:i*ld+rows]):])
	}
}

// packRows is a packRowsFunc. Moves of a constant length, which may overlap, beat a
// call of memmove for so few bytes. No pointer is formed behind the last row.
func packRows(dst *float32, dstStride int, src *float32, srcStride int, width, n int) {
	last := 4 * width
	for i := range n {
		d, s := unsafe.Add(unsafe.Pointer(dst), i*dstStride), unsafe.Add(unsafe.Pointer(src), i*srcStride)
		switch {
		case width >= 8:
			move8(d, s)
			move8(unsafe.Add(d, last-32), unsafe.Add(s, last-32))
		case width >= 4:
			move4(d, s)
			move4(unsafe.Add(d, last-16), unsafe.Add(s, last-16))
		default:
			copy(unsafe.Slice((*float32)(d), width), unsafe.Slice((*float32)(s), width))
		}
	}
}

// move8 moves 8 floats that do not overlap, in registers: for an array of this size
// the compiler would call memmove.
func move8(dst, src unsafe.Pointer) {
	d, s := (*[4]uint64)(dst), (*[4]uint64)(src)
	d[0], d[1], d[2], d[3] = s[0], s[1], s[2], s[3]
}

// move4 is move8 for 4 floats.
func move4(dst, src unsafe.Pointer) {
	d, s := (*[2]uint64)(dst), (*[2]uint64)(src)
	d[0], d[1] = s[0], s[1]
}
