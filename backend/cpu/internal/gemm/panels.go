package gemm

import (
	"unsafe"

	"samebit/backend/cpu/internal/panel"
)

// Sizes of the loops around the tiles. They decide which operand comes from
// which cache, never a bit of the result.
const (
	// chunkRows bounds the rows of a chunk: their inputs for one slice of 128
	// (at most 168 KiB) and their totals stay in the second-level cache while a
	// group of panels passes. With 224 more slices are expanded again: 1 to 2 % slower
	// on Emerald Rapids (2 MiB); 512 is as fast as 336 there, and too much for others.
	chunkRows = 336

	// Group is how many panels share a pass over the rows of A: calls of Panels over a
	// multiple of that many read A the least. For few rows too, whose inputs stay in the
	// first-level cache then: 2 to 16 of BF16 are 1.03 to 1.15 times as fast as panel by
	// panel on Emerald Rapids. 4 gain less, 16 no more. Not so for the tiles of codecs,
	// which prefetch nothing: panel by panel they are 1.1 to 1.25 times as fast.
	Group = 8

	// maxFused is the most row tiles of a chunk for which each may widen the
	// weights itself.
	maxFused = 8
)

// ScratchSize returns the float32s of scratch memory that Panels needs for one
// thread; it depends on m only up to a bound.
func (ks *Kernels) ScratchSize(m int) int {
	return 16 + width + kb*width + Group*min(m, chunkRows)*width
}

// Panels computes columns [32·p0, min(n, 32·p1)) of C[m, n] = A·Wᵀ, whose rows
// begin ldc apart; it touches nothing else of c. pa is A as packed by PackA of
// the same Kernels for the same m and k, panels the whole of W as packed by cod,
// scratch at least ScratchSize(m) long and the caller's alone. One thread;
// several may share a product by disjoint ranges of panels, best multiples of Group.
//
// Codecs named "bf16" and "f16" must be those of this package.
func (ks *Kernels) Panels(c []float32, ldc, n int, pa []float32, m, k int, cod *panel.Codec, panels []byte, p0, p1 int, scratch []float32) {
	if m == 0 || p0 >= p1 {
		return
	}
	if k == 0 {
		for r := range m {
			clear(c[r*ldc+p0*width : r*ldc+min(n, p1*width)])
		}
		return
	}
	j := job{ks: ks, c: c, ldc: ldc, n: n, pa: pa, k: k, cod: cod, panels: panels, bytes: cod.Bytes(k), p1: p1}
	scratch = scratch[int(-uintptr(unsafe.Pointer(&scratch[0]))/4)&15:] // to a cache line
	j.zero, scratch = scratch[:width], scratch[width:]
	j.slice, j.totals = scratch[:kb*width], scratch[kb*width:]
	clear(j.zero)

	total, most := ks.Tiles(m), chunkRows/ks.mr
	step, chunks := Group, (total+most-1)/most
	if j.whole = total == 1 && 2 <= m && m <= cod.MaxTile; j.whole {
		step = 1
	}
	for p := p0; p < p1; p += step {
		for c := range chunks {
			j.chunk(p, min(p+step, p1), m, total*c/chunks, total*(c+1)/chunks)
		}
	}
}

// job is what stays the same over one call of Panels.
type job struct {
	ks     *Kernels
	c      []float32
	ldc, n int
	pa     []float32
	k      int
	cod    *panel.Codec
	panels []byte
	bytes  int       // of a panel
	p1     int       // the last panel of the call, exclusive
	whole  bool      // the codec does it all
	zero   []float32 // [32]
	slice  []float32 // [128][32], expanded weights
	totals []float32 // [group][rows of a chunk][32]
}

// part is a run of tiles of equal size.
type part struct{ row, rows, tiles int }

// chunk computes panels [p, q) for tiles [t0, t1) of the m rows. For each slice of
// 128 inputs every tile takes one block of its chains, so that a slice is read, and
// expanded, once: the totals of all blocks but the last are kept in scratch memory.
func (j *job) chunk(p, q, m, t0, t1 int) {
	size, big, _ := j.ks.split(m)
	row := t0*size + min(t0, big)
	m = t1*size + min(t1, big) - row
	parts := [2]part{{row, size + 1, max(0, min(t1, big)-t0)}, {0, size, max(0, t1-max(t0, big))}}
	parts[1].row = row + parts[0].rows*parts[0].tiles
	kernels, step, panelStep, expand, least := &j.ks.tile, width/2, width*2, j.cod.Expand != nil, size
	if f := j.fused(t1 - t0); f != nil {
		kernels, step, panelStep, expand, least = &f.tile, f.step, f.panelStep, false, 0
	}
	inputs := 0 // of all tiles
	for _, g := range parts {
		inputs += j.k * g.tiles * j.ks.passes(g.rows)
	}
	ahead := (j.bytes + inputs - 1) / inputs // bytes to prefetch with each
	nextStep, apart, turn := j.ks.fetches(ahead, least)
	if turn == 2 && !expand && !j.whole { // the halves of a slice; in other formats they share pages
		nextStep, apart = ahead, kb/2*j.bytes/j.k
	}
	for k0 := 0; k0 < j.k; k0 += kb {
		n := min(kb, j.k-k0)
		for i := p; i < q; i++ {
			b := unsafe.Pointer(&j.panels[j.at(i, k0)])
			next := j.following(p, q, i, k0)
			if expand && !j.whole {
				j.cod.Expand(j.slice, j.panels[i*j.bytes:(i+1)*j.bytes], j.k, k0, n)
				b = unsafe.Pointer(&j.slice[0])
			}
			t := &j.totals[(i-p)*m*width]
			src, srcStride := t, width*4
			if k0 == 0 {
				src, srcStride = &j.zero[0], 0
			}
			dst, dstStride := t, width*4
			if k0+n == j.k && (i+1)*width <= j.n {
				o := row*j.ldc + i*width
				_ = j.c[o+(m-1)*j.ldc+width-1]
				dst, dstStride = &j.c[o], j.ldc*4
			}
			if j.whole {
				j.cod.Tile(m, dst, dstStride, src, srcStride, &j.pa[row*j.k+k0*m], j.panels[i*j.bytes:(i+1)*j.bytes], k0, n)
				continue
			}
			for _, g := range parts {
				if g.tiles == 0 {
					continue
				}
				r := g.row - row
				for s := range j.ks.passes(g.rows) {
					kernels[g.rows](at(dst, s*step+r*dstStride/4), dstStride, at(src, s*step+r*srcStride/4), srcStride,
						&j.pa[g.row*j.k+k0*g.rows], j.k*g.rows*4, (*float32)(unsafe.Add(b, s*panelStep)), n, g.tiles, next, nextStep, apart)
					next += uintptr(g.tiles * n / turn * nextStep)
				}
			}
		}
	}
	if cols := j.n - (q-1)*width; cols < width {
		t := j.totals[(q-1-p)*m*width:]
		for r := range m {
			o := (row+r)*j.ldc + (q-1)*width
			copy(j.c[o:o+cols], t[r*width:r*width+cols])
		}
	}
}

// fetches says how tiles of float32 weights of at least so many rows, or of others (0),
// prefetch that many bytes with each input: nextStep bytes further for every turn
// inputs (tileFunc).
func (ks *Kernels) fetches(ahead, rows int) (nextStep, apart, turn int) {
	switch {
	case !ks.pairs:
		return ahead, 0, 1
	case ks.many > 0 && rows >= ks.many && 4*ahead <= 64:
		return 4 * ahead, 0, 4
	}
	return 2 * ahead, ahead, 2
}

// at is where the weights of panel i begin from input k0 on; for some block formats it
// is only near.
func (j *job) at(i, k0 int) int { return i*j.bytes + k0*j.bytes/j.k }

// following returns the address of the weights that chunk reads after those of
// panel i from input k0 on.
func (j *job) following(p, q, i, k0 int) uintptr {
	to := j.at(i, k0)
	switch k1 := k0 + kb; {
	case i+1 < q:
		to = j.at(i+1, k0)
	case k1 < j.k:
		to = j.at(p, k1)
	case q < j.p1:
		to = j.at(q, 0)
	}
	return uintptr(unsafe.Pointer(&j.panels[to]))
}

// fused returns the tiles that read the codec's panels as they are, or nil.
func (j *job) fused(tiles int) *fusedTiles {
	if j.cod.Expand == nil || tiles > maxFused {
		return nil
	}
	for i := range j.ks.fused {
		if f := &j.ks.fused[i]; f.name == j.cod.Name {
			return f
		}
	}
	return nil
}
