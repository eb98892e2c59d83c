// Package gemm computes matrix products with packed weights on one thread:
// C = A·Wᵀ where every element is the blocked chain DOT of docs/numerics.md 2.
//
// Weights lie in panels of 32 outputs (package panel), so the lanes of a vector
// run over outputs and each keeps its own chain over k. A tile of C stays in
// registers for one block of 128 inputs; then its accumulators are added to the
// running totals, which is what the contract asks for and costs 1 to 2 % of an
// unblocked chain. All instruction sets share the layouts and give the same
// bits, whatever the shapes.
package gemm

import (
	"unsafe"

	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
)

const (
	width = panel.Width
	kb    = panel.KB
)

// maxTiles bounds the row tiles that share one visit of a slice of weights, so
// that their totals (at most 14·32·4·16 = 28 KiB) stay in the first-level cache.
const maxTiles = 16

// Kernels are the matrix kernels of one instruction set. They hold no state and
// may be used by any number of threads.
type Kernels struct {
	mr   int // most rows of a tile
	cols int // columns of a tile, a divisor of 32
	tile [maxRows + 1]tileFunc
	rows pack4Func // nil: plain Go

	fused [2]fusedTiles // formats that the tiles can also read as they are
}

// fusedTiles are tile kernels on the panels of one format of this package: for
// few rows widening weights in registers beats expanding a slice first. Their b
// and next point at weights of that format. Pass i of a panel starts at column
// i·step and at byte i·panelStep of an input's weights.
type fusedTiles struct {
	name            string
	step, panelStep int
	tile            [maxRows + 1]tileFunc
}

// maxFused is the most row tiles for which each may widen the weights itself.
const maxFused = 8

const maxRows = 14 // of a tile, over all instruction sets

// tileFunc adds one block of the chain to tiles of R rows (its own constant) by
// cols columns:
//
//	dst[t·R+r, j] = src[t·R+r, j] + Σ(chain from +0, i < n) a[t][i][r]·b[i][j]
//
// Rows of dst and src are dstStride and srcStride bytes apart (srcStride 0: one
// row for all), tiles of a aStride bytes, rows of b 128 bytes. next is where the
// weights needed after this call begin, of the same size as b's; it is only
// prefetched and may be any address.
type tileFunc func(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next *float32)

// pack4Func writes dst[i·dstStride/4 + r] = src[r·srcStride/4 + i] for r < 4
// and i < n; n is a multiple of 8; strides are in bytes.
type pack4Func func(dst *float32, dstStride int, src *float32, srcStride int, n int)

// For returns the kernels of an available instruction set.
func For(s isa.Set) *Kernels {
	if ks, ok := native(s); ok {
		return ks
	}
	ks := &Kernels{mr: 4, cols: width}
	for r := 1; r <= ks.mr; r++ {
		ks.tile[r] = func(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, _ *float32) {
			genericTile(r, dst, dstStride, src, srcStride, a, aStride, b, n, tiles)
		}
	}
	return ks
}

// split says how m rows are cut: big tiles of size+1 rows, then small ones of
// size rows. Tiles as equal as possible beat full ones and a rest: 32 rows are
// 11+11+10, not 14+14+4.
func (ks *Kernels) split(m int) (size, big, small int) {
	t := (m + ks.mr - 1) / ks.mr
	if t == 0 {
		return 0, 0, 0
	}
	size, big = m/t, m%t
	return size, big, t - big
}

// PackASize returns the float32s that PackA writes.
func (ks *Kernels) PackASize(m, k int) int { return m * k }

// PackA copies A[m, k], whose rows begin lda apart, into the order the tiles
// read: [tile][k][row of the tile].
func (ks *Kernels) PackA(dst, a []float32, lda, m, k int) {
	size, big, small := ks.split(m)
	for t, row := 0, 0; t < big+small; t++ {
		r := size
		if t < big {
			r++
		}
		ks.packTile(dst[row*k:(row+r)*k], a[row*lda:], lda, r, k)
		row += r
	}
}

func (ks *Kernels) packTile(dst, a []float32, lda, rows, k int) {
	r, fast := 0, k&^7
	if ks.rows == nil {
		fast = 0
	}
	for ; r+4 <= rows && fast > 0; r += 4 {
		ks.rows(&dst[r], rows*4, &a[r*lda], lda*4, fast)
		for q := r; q < r+4; q++ {
			packRow(dst[q:], a[q*lda:], rows, fast, k)
		}
	}
	for ; r < rows; r++ {
		packRow(dst[r:], a[r*lda:], rows, 0, k)
	}
}

func packRow(dst, a []float32, rows, from, k int) {
	for i := from; i < k; i++ {
		dst[i*rows] = a[i]
	}
}

// ScratchSize returns the float32s of scratch memory that Panels needs for one
// thread; it depends on m and k only up to a bound.
func (ks *Kernels) ScratchSize(m, k int) int {
	return 16 + width + kb*width + min(m, maxTiles*ks.mr)*width
}

// Panels computes columns [32·p0, min(n, 32·p1)) of C[m, n] = A·Wᵀ, whose rows
// begin ldc apart; it touches nothing else of c. pa is A as packed by PackA of
// the same Kernels for the same m and k, panels the whole of W as packed by cod,
// scratch at least ScratchSize(m, k) long and the caller's alone. One thread;
// several may share a product by disjoint ranges of panels.
func (ks *Kernels) Panels(c []float32, ldc, n int, pa []float32, m, k int, cod *panel.Codec, panels []byte, p0, p1 int, scratch []float32) {
	if m == 0 || p0 >= p1 {
		return
	}
	off := int(-uintptr(unsafe.Pointer(&scratch[0]))/4) & 15
	zero := scratch[off : off+width]
	clear(zero)
	slice := scratch[off+width : off+width+kb*width]
	j := job{ks: ks, pa: pa, k: k, cod: cod, slice: slice, zero: zero, totals: scratch[off+width+kb*width:]}
	size, big, small := ks.split(m)
	if cod.Expand != nil && big+small <= maxFused {
		for i := range ks.fused {
			if ks.fused[i].name == cod.Name {
				j.fused = &ks.fused[i]
			}
		}
	}
	bytes := cod.Bytes(k)
	for p := p0; p < p1; p++ {
		j.panel, j.next = panels[p*bytes:(p+1)*bytes], nil
		if p+1 < p1 && k > 0 {
			j.next = panels[(p+1)*bytes:]
		}
		cols := min(n-p*width, width)
		// Chunks of tiles of equal size: first the big ones, then the small.
		row := 0
		for _, g := range [2]struct{ rows, tiles int }{{size + 1, big}, {size, small}} {
			for t := 0; t < g.tiles; t += maxTiles {
				tiles := min(maxTiles, g.tiles-t)
				j.run(c[row*ldc+p*width:], ldc, cols, row, g.rows, tiles)
				row += g.rows * tiles
			}
		}
	}
}

// job is what stays the same over the tiles of one Panels call.
type job struct {
	ks     *Kernels
	pa     []float32
	k      int
	cod    *panel.Codec
	fused  *fusedTiles // nil: expand
	panel  []byte
	next   []byte    // the panel after it, to prefetch; nil at the end
	slice  []float32 // [128][32], expanded weights
	zero   []float32 // [32]
	totals []float32 // [rows][32]
}

// run computes cols columns of one panel for tiles·rows rows from row on; c
// begins at their first element.
func (j *job) run(c []float32, ldc, cols, row, rows, tiles int) {
	m := rows * tiles
	if j.k == 0 {
		for r := range m {
			clear(c[r*ldc : r*ldc+cols])
		}
		return
	}
	tile, step, input := j.ks.tile[rows], j.ks.cols, width*4
	panelStep := step * 4
	if j.fused != nil {
		tile, step, panelStep = j.fused.tile[rows], j.fused.step, j.fused.panelStep
		input = width * 2
	}
	passes := width / j.ks.cols
	for k0 := 0; k0 < j.k; k0 += kb {
		n := min(kb, j.k-k0)
		var b, next unsafe.Pointer
		if j.cod.Expand != nil && j.fused == nil {
			j.cod.Expand(j.slice, j.panel, j.k, k0, n)
			b = unsafe.Pointer(&j.slice[0])
			next = b
		} else {
			b = unsafe.Pointer(&j.panel[k0*input])
			next = b
			if k0+n < j.k {
				next = unsafe.Pointer(&j.panel[(k0+n)*input])
			} else if j.next != nil {
				next = unsafe.Pointer(&j.next[0])
			}
		}
		src, srcStride := &j.zero[0], 0
		if k0 > 0 {
			src, srcStride = &j.totals[0], width*4
		}
		dst, dstStride := &j.totals[0], width*4
		if k0+n == j.k && cols == width {
			_ = c[(m-1)*ldc+width-1]
			dst, dstStride = &c[0], ldc*4
		}
		a := &j.pa[row*j.k+k0*rows]
		for i := range passes {
			tile(at(dst, i*step), dstStride, at(src, i*step), srcStride, a, j.k*rows*4,
				(*float32)(unsafe.Add(b, i*panelStep)), n, tiles, (*float32)(unsafe.Add(next, i*panelStep)))
		}
	}
	if cols < width {
		for r := range m {
			copy(c[r*ldc:r*ldc+cols], j.totals[r*width:r*width+cols])
		}
	}
}

// at returns the address of the i-th float32 after p.
func at(p *float32, i int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), i*4))
}
