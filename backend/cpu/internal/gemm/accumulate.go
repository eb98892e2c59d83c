package gemm

import "unsafe"

// Sum is a product that is added to what is there: to C[M, N], whose rows begin LDC
// apart, block by block of inputs, the chains of A·Wᵀ (numerics.md 10).
type Sum struct {
	C       []float32
	LDC     int
	M, N, K int
	Tiles   int // of rows, Tiles(M) <= Tiles <= M; 0 means Tiles(M)

	// Input i of row r of A lies at A[r·LDA + i], or at A[i·LDA + r] if Trans.
	A     []float32
	LDA   int
	Trans bool

	Panels []float32 // W in float32 panels [K][32]
	Cuts   []int     // block i of the inputs, at most 128, ends before Cuts[i]; the last is K
	Fresh  bool      // C holds nothing yet: sums begin at +0
}

// pieceTiles bounds the row tiles that are packed at a time: for one block of inputs
// (at most 56 KiB) they stay in the second-level cache while the panels pass.
const pieceTiles = 8

// SumScratch returns the float32s of scratch memory that Accumulate needs.
func (ks *Kernels) SumScratch() int { return pieceTiles*ks.mr*(kb+width) + 16 }

// zeros are the sums of a row before its first block.
var zeros [width]float32

// Accumulate does rows of tiles [t0, t1) (of s.Tiles) and columns [32·p0, min(N,
// 32·p1)) of a sum; it touches nothing else of C. A is packed on the way, once per
// call: calls over all panels read it the least. scratch is at least SumScratch long
// and the caller's alone.
func (ks *Kernels) Accumulate(s *Sum, t0, t1, p0, p1 int, scratch []float32) {
	if s.K == 0 || p0 >= p1 {
		return
	}
	scratch = scratch[int(-uintptr(unsafe.Pointer(&scratch[0]))/4)&15:] // to a cache line
	if s.Tiles == 0 {
		s.Tiles = ks.Tiles(s.M)
	}
	size, big := s.M/s.Tiles, s.M%s.Tiles
	for t0 < t1 {
		row, rows, end := t0*size+min(t0, big), size, t1
		if t0 < big {
			rows, end = size+1, min(t1, big)
		}
		tiles := min(pieceTiles, end-t0)
		ks.accumulate(s, row, rows, tiles, p0, p1, scratch[:tiles*rows*kb], scratch[tiles*rows*kb:])
		t0 += tiles
	}
}

// accumulate does tiles·rows rows from row on: a block of their inputs is packed as
// piece, then meets the panels. Sums lie in C, those of a panel that reaches beyond
// the columns in rest.
func (ks *Kernels) accumulate(s *Sum, row, rows, tiles, p0, p1 int, piece, rest []float32) {
	m, tile := rows*tiles, ks.tile[rows]
	cols := width / ks.passes(rows)
	ahead := (4*cols + tiles - 1) / tiles // bytes to prefetch per input and tile
	nextStep, apart, _ := ks.fetches(ahead, rows)
	part := min(width, s.N-(p1-1)*width) // columns of the last panel
	edge := row*s.LDC + (p1-1)*width
	if part < width {
		rest = rest[:m*width]
		clear(rest)
		for r := 0; r < m && !s.Fresh; r++ {
			copy(rest[r*width:r*width+part], s.C[edge+r*s.LDC:])
		}
	}
	for b, k0 := 0, 0; b < len(s.Cuts); b++ {
		k1 := s.Cuts[b]
		n := k1 - k0
		for t := range tiles {
			to, from := piece[t*rows*n:(t+1)*rows*n], row+t*rows
			if s.Trans {
				ks.packTransTile(to, s.A[k0*s.LDA+from:], s.LDA, rows, n)
			} else {
				ks.Turn(to, rows, s.A[from*s.LDA+k0:], s.LDA, rows, n)
			}
		}
		for p := p0; p < p1; p++ {
			w := &s.Panels[(p*s.K+k0)*width]
			next := w
			switch {
			case p+1 < p1:
				next = &s.Panels[((p+1)*s.K+k0)*width]
			case k1 < s.K:
				next = &s.Panels[(p0*s.K+k1)*width]
			}
			var c *float32
			stride := width * 4
			if p == p1-1 && part < width {
				c = &rest[0]
			} else {
				o := row*s.LDC + p*width
				_ = s.C[o+(m-1)*s.LDC+width-1]
				c, stride = &s.C[o], s.LDC*4
			}
			from, fromStride := c, stride
			if s.Fresh && b == 0 {
				from, fromStride = &zeros[0], 0
			}
			for o := 0; o < width; o += cols {
				src := at(from, o)
				if fromStride == 0 {
					src = from
				}
				tile(at(c, o), stride, src, fromStride, &piece[0], n*rows*4, at(w, o), n, tiles, uintptr(unsafe.Pointer(next))+uintptr(4*o*n), nextStep, apart)
			}
		}
		k0 = k1
	}
	for r := 0; r < m && part < width; r++ {
		copy(s.C[edge+r*s.LDC:][:part], rest[r*width:])
	}
}

// PackInputs packs inputs [i0, i1) of n outputs, which lie side by side in src, into
// float32 panels of k inputs; missing outputs become zeros. An input is read from its
// first output to its last: panels are few streams to write, but many to read.
func (ks *Kernels) PackInputs(dst, src []float32, ld, n, k, i0, i1 int) {
	whole := n / width
	if whole > 0 && i0 < i1 {
		_, _ = dst[((whole-1)*k+i1)*width-1], src[(i1-1)*ld+whole*width-1]
		for i := i0; i < i1; i++ {
			for o := 0; o < width; o += 16 {
				ks.side(&dst[i*width+o], k*width*4, &src[i*ld+o], width*4, 16, whole)
			}
		}
	}
	if whole*width < n {
		packTransPanel(ks.side, dst[(whole*k+i0)*width:], src[i0*ld+whole*width:], ld, n-whole*width, i1-i0)
	}
}
