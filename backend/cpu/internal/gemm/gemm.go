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

// Kernels are the matrix kernels of one instruction set. They hold no state and
// may be used by any number of threads.
type Kernels struct {
	mr    int // most rows of a tile
	wide  int // most rows of a tile of 32 columns; tiles of more rows have 16
	tile  [maxRows + 1]tileFunc
	turn  []turnFunc // by rows; nil: plain Go
	pairs bool       // tiles prefetch in two streams; see tileFunc
	many  int        // least rows of a tile that may prefetch for four inputs at a time; 0: none
	side  packRowsFunc

	fused [2]fusedTiles // formats that the tiles can also read as they are
}

// fusedTiles are tile kernels on the panels of one format of this package: for
// few rows widening weights in registers beats expanding a slice first. Their b
// points at weights of that format. Of tiles of 16 columns, the second half of a
// panel starts at column step and at byte panelStep of an input's weights.
type fusedTiles struct {
	name            string
	step, panelStep int
	tile            [maxRows + 1]tileFunc
}

const maxRows = 14 // of a tile, over all instruction sets

// tileFunc adds one block of the chain to tiles of R rows (its own constant) by
// cols columns:
//
//	dst[t·R+r, j] = src[t·R+r, j] + Σ(chain from +0, i < n) a[t][i][r]·b[i][j]
//
// Rows of dst and src are dstStride and srcStride bytes apart (srcStride 0: one
// row for all), tiles of a aStride bytes, rows of b 128 bytes. From next on is what
// the calls to come read: it is only prefetched, nextStep bytes further with every
// input of every tile, and may be any address. Tiles of Kernels with pairs prefetch at
// next for even inputs and apart bytes behind it for odd ones, nextStep bytes further
// with every two inputs. Of those, tiles of float32 weights with many rows prefetch one
// line for four inputs, nextStep bytes further with every four, if apart is 0, and the
// inputs of the next tile.
type tileFunc func(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)

// turnFunc writes dst[i·dstStride/4 + r] = src[r·srcStride/4 + i] for r < rows and i < n;
// n is a positive multiple of 4; strides are in bytes.
type turnFunc func(dst *float32, dstStride int, src *float32, srcStride int, rows, n int)

// packRowsFunc writes dst[i·dstStride/4 + r] = src[i·srcStride/4 + r] for r < width,
// 1 to 16, and i < n, n > 0, in order; up to i = n-1 it may write 16 floats for a row.
// Strides are in bytes.
type packRowsFunc func(dst *float32, dstStride int, src *float32, srcStride int, width, n int)

// For returns the kernels of an available instruction set.
func For(s isa.Set) *Kernels {
	if ks, ok := native(s); ok {
		return ks
	}
	ks := &Kernels{mr: 4, wide: 4, side: packRows}
	for r := 1; r <= ks.mr; r++ {
		ks.tile[r] = func(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, _ uintptr, _, _ int) {
			genericTile(r, dst, dstStride, src, srcStride, a, aStride, b, n, tiles)
		}
	}
	return ks
}

// passes is how many tiles of so many rows side by side cover a panel.
func (ks *Kernels) passes(rows int) int {
	if rows <= ks.wide {
		return 1
	}
	return 2
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
	ks.PackTiles(dst, a, lda, m, k, 0, ks.Tiles(m))
}

// at returns the address of the i-th float32 after p.
func at(p *float32, i int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), i*4))
}
