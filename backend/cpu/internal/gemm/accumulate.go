package gemm

import (
	"unsafe"
)

// Accumulate adds to columns [32·p0, min(n, 32·p1)) of C[m, n], block by block of
// inputs, the chains of A·Wᵀ: the sums of a gradient (numerics.md 10). Block i of the
// k inputs ends before cuts[i]; the last cut is k. pa is A as PackA or PackTrans
// packs it, panels the whole of W in float32 panels [k][32], scratch at least
// ScratchSize(m, k) long and the caller's alone.
func (ks *Kernels) Accumulate(c []float32, ldc, n int, pa []float32, m, k int, panels []float32, cuts []int, p0, p1 int, scratch []float32) {
	if m == 0 || k == 0 || p0 >= p1 {
		return
	}
	totals := scratch[int(-uintptr(unsafe.Pointer(&scratch[0]))/4)&15:] // to a cache line
	size, big, small := ks.split(m)
	step, most := ks.Group(m, k), chunkRows/ks.mr
	for p := p0; p < p1; p += step {
		row := 0
		for _, g := range [2]struct{ rows, tiles int }{{size + 1, big}, {size, small}} {
			for t := 0; t < g.tiles; t += most {
				tiles := min(most, g.tiles-t)
				ks.accumulate(c, ldc, n, pa, k, panels, cuts, p, min(p+step, p1), row, g.rows, tiles, totals)
				row += g.rows * tiles
			}
		}
	}
}

// accumulate does panels [p, q) for tiles·rows rows from row on. Sums begin in C and
// end there; between blocks they lie in totals [panel][row][32], as do those of a
// panel that reaches beyond the columns.
func (ks *Kernels) accumulate(c []float32, ldc, n int, pa []float32, k int, panels []float32, cuts []int, p, q, row, rows, tiles int, totals []float32) {
	m, tile, step := rows*tiles, ks.tile[rows], ks.cols
	cols := min(width, n-(q-1)*width) // of the last panel
	if cols < width {
		t := totals[(q-1-p)*m*width:]
		for r := range m {
			o := (row+r)*ldc + (q-1)*width
			copy(t[r*width:r*width+cols], c[o:o+cols])
			clear(t[r*width+cols : (r+1)*width])
		}
	}
	for b, k0 := 0, 0; b < len(cuts); b++ {
		k1 := cuts[b]
		a := &pa[row*k+k0*rows]
		for i := p; i < q; i++ {
			t := &totals[(i-p)*m*width]
			src, dst, srcStride, dstStride := t, t, width*4, width*4
			if i < q-1 || cols == width {
				o := row*ldc + i*width
				_ = c[o+(m-1)*ldc+width-1]
				if b == 0 {
					src, srcStride = &c[o], ldc*4
				}
				if b == len(cuts)-1 {
					dst, dstStride = &c[o], ldc*4
				}
			}
			w := &panels[(i*k+k0)*width]
			next := w
			switch {
			case i+1 < q:
				next = &panels[((i+1)*k+k0)*width]
			case b+1 < len(cuts):
				next = &panels[(p*k+k1)*width]
			}
			for s := 0; s < width; s += step {
				tile(at(dst, s), dstStride, at(src, s), srcStride, a, k*rows*4, at(w, s), k1-k0, tiles, at(next, s))
			}
		}
		k0 = k1
	}
	if cols < width {
		t := totals[(q-1-p)*m*width:]
		for r := range m {
			o := (row+r)*ldc + (q-1)*width
			copy(c[o:o+cols], t[r*width:r*width+cols])
		}
	}
}

// PackTransInputs does the part of PackTrans that inputs [i0, i1) are: rows of the
// matrix as it lies are read in one piece.
func (ks *Kernels) PackTransInputs(dst, a []float32, lda, m, k, i0, i1 int) {
	size, big, small := ks.split(m)
	for i := i0; i < i1; i++ {
		src, row := a[i*lda:i*lda+m], 0
		for _, g := range [2]struct{ rows, tiles int }{{size + 1, big}, {size, small}} {
			for range g.tiles {
				d := dst[row*k+i*g.rows:]
				if s := src[row:]; g.rows == 14 { // a copy of constant length
					*(*[14]float32)(d) = *(*[14]float32)(s)
				} else {
					copy(d[:g.rows], s)
				}
				row += g.rows
			}
		}
	}
}

// PackInputs packs inputs [i0, i1) of n outputs, which lie side by side in src, into
// float32 panels of k inputs; missing outputs become zeros.
func PackInputs(dst, src []float32, ld, n, k, i0, i1 int) {
	for i := i0; i < i1; i++ {
		row := src[i*ld : i*ld+n]
		d := i * width
		for ; len(row) >= width; row, d = row[width:], d+k*width {
			*(*[width]float32)(dst[d:]) = *(*[width]float32)(row)
		}
		if len(row) > 0 {
			clear(dst[d+copy(dst[d:], row) : d+width])
		}
	}
}
