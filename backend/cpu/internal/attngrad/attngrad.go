// Package attngrad computes the gradient of attention over one whole sequence, for
// one KV head at a time (docs/numerics.md 10), from the matrix kernels: blocks of
// 64 queries meet blocks of 64 keys. Every instruction set gives the same bits.
package attngrad

import (
	"math"
	"unsafe"

	"samebit/backend/cpu/internal/gemm"
	"samebit/backend/cpu/internal/gemm/blas1"
	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
	"samebit/backend/cpu/internal/vec"
	"samebit/internal/canon"
)

const (
	page  = 64
	width = panel.Width
)

// Kernels are those of one instruction set.
type Kernels struct {
	set    isa.Set
	gemm   *gemm.Kernels
	vec    *vec.Kernels
	packer gemm.Packer
	codec  panel.Codec
}

// For returns the kernels of an available set.
func For(s isa.Set) *Kernels {
	return &Kernels{set: s, gemm: gemm.For(s), vec: vec.For(s), packer: gemm.PackerFor(s), codec: gemm.Codec(s, gemm.F32)}
}

// Rows are the rows of one head: row i lies at V[i·Stride:].
type Rows struct {
	V      []float32
	Stride int
}

// Job is one KV head of a sequence of T rows with heads of D components. Q, Y, DY
// and DQ have the group's query heads.
type Job struct {
	T, D          int
	Window        int // positions visible, 0 for all
	Sinks         int // first positions that are visible besides
	Scale         float32
	K, V, DK, DV  Rows
	Q, Y, DY, DQ  []Rows  // by head of the group
	Fresh         [3]bool // DQ, DK, DV hold nothing yet
	blocks, dp    int     // of keys; components in whole panels
	kp, vp, kt    []float32
	qa, ya        []float32
	qt, yt        []float32
	p, ds         []float32 // [blocks][64][64] and [64][64]
	lse, c        []float32
	m, l, mb, lb  []float32
	al, be, top   []float32
	scratch, line []float32
	sum           gemm.Sum
	cut           [1]int
}

// Scratch is the number of floats that Run needs for a sequence of t rows.
func (k *Kernels) Scratch(t, d int) int {
	blocks, dp := (t+page-1)/page, (d+width-1)/width*width
	n := blocks * page * (2*d + dp)                                 // kp, vp, kt
	n += 2*page*d + 2*page*dp + (blocks+1)*page*page                // qa, ya, qt, yt, p, ds
	n += 9*page + page                                              // statistics, line
	n += max(k.gemm.ScratchSize(page), k.gemm.SumScratch()) + 16*16 // alignment of the pieces
	return n
}

// carve cuts the scratch memory up.
func (j *Job) carve(tmp []float32) {
	cut := func(n int) []float32 {
		v := tmp[:n:n]
		tmp = tmp[(n+15)&^15:]
		return v
	}
	j.blocks, j.dp = (j.T+page-1)/page, (j.D+width-1)/width*width
	j.kp, j.vp, j.kt = cut(j.blocks*page*j.D), cut(j.blocks*page*j.D), cut(j.blocks*page*j.dp)
	j.qa, j.ya = cut(page*j.D), cut(page*j.D)
	j.qt, j.yt = cut(page*j.dp), cut(page*j.dp)
	j.p, j.ds = cut(j.blocks*page*page), cut(page*page)
	for _, v := range []*[]float32{&j.lse, &j.c, &j.m, &j.l, &j.mb, &j.lb, &j.al, &j.be, &j.top, &j.line} {
		*v = cut(page)
	}
	j.scratch = tmp
}

// rows is the number of rows of a block.
func (j *Job) rows(b int) int { return min(page, j.T-b*page) }

// sees is what row i sees of block b: slots [0, s) and [lo, hi), s <= lo <= hi <= 64.
func (j *Job) sees(i, b int) (s, lo, hi int) {
	hi = max(0, min(i+1-b*page, page))
	if j.Window > 0 {
		lo = min(max(0, i-j.Window+1-b*page), hi)
	}
	if s = max(0, min(j.Sinks-b*page, hi)); s >= lo {
		return 0, 0, hi
	}
	return s, lo, hi
}

// meets reports whether a row of block a sees a slot of block b.
func (j *Job) meets(a, b int) bool {
	return j.Window <= 0 || (b+1)*page-1 > a*page-j.Window || b*page < j.Sinks
}

// outputs packs n <= 64 rows as outputs of k inputs: two panels.
func (k *Kernels) outputs(dst []float32, r Rows, first, n, d int) {
	for o := 0; o < page; o += width {
		if o >= n {
			clear(dst[o*d : page*d])
			return
		}
		k.packer.Pack(dst[o*d:(o+width)*d], r.V[(first+o)*r.Stride:], r.Stride, min(width, n-o), d)
	}
}

// inputs packs n rows of d components as inputs of d outputs.
func (k *Kernels) inputs(dst []float32, r Rows, first, n, d int) {
	k.gemm.PackInputs(dst, r.V[first*r.Stride:], r.Stride, d, n, 0, n)
}

// Run adds the gradients of the job to DQ, DK and DV. tmp has Scratch(T, D) floats.
func (k *Kernels) Run(j *Job, tmp []float32) {
	j.carve(tmp)
	for b := range j.blocks {
		n := j.rows(b)
		k.outputs(j.kp[b*page*j.D:], j.K, b*page, n, j.D)
		k.outputs(j.vp[b*page*j.D:], j.V, b*page, n, j.D)
		k.inputs(j.kt[b*page*j.dp:], j.K, b*page, n, j.D)
	}
	for a := range j.blocks {
		for h := range j.Q {
			k.queries(j, a, h)
		}
	}
}

// queries does one block of queries of one head against all keys that it sees.
func (k *Kernels) queries(j *Job, a, h int) {
	n, d, at := j.rows(a), j.D, a*page
	q, y, dy := j.Q[h], j.Y[h], j.DY[h]
	k.gemm.PackA(j.qa, q.V[at*q.Stride:], q.Stride, n, d)
	k.gemm.PackA(j.ya, dy.V[at*dy.Stride:], dy.Stride, n, d)
	k.inputs(j.qt, q, at, n, d)
	k.inputs(j.yt, dy, at, n, d)
	k.scores(j, a, n)
	for i := range n {
		j.lse[i] = j.m[i] + canon.Log(j.l[i])
	}
	blas1.Dots(k.set, j.c[:n], dy.V[at*dy.Stride:], dy.Stride, y.V[at*y.Stride:], y.Stride, d)
	fresh := j.Fresh[0]
	for b := range a + 1 {
		if j.meets(a, b) {
			k.pairs(j, a, b, h, n, fresh)
			fresh = false
		}
	}
}

// product writes dst[n][64] = A·Wᵀ for packed rows and a block of two panels.
func (k *Kernels) product(j *Job, dst, a, w []float32, n int) {
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 4*page*j.D)
	k.gemm.Panels(dst, page, page, a, n, j.D, &k.codec, bytes, 0, page/width, j.scratch)
}

// scores forms the scaled scores of a block of queries and their m and l.
func (k *Kernels) scores(j *Job, a, n int) {
	v := k.vec
	for i := range j.m {
		j.m[i], j.l[i] = float32(math.Inf(-1)), 0
	}
	for b := range a + 1 {
		if !j.meets(a, b) {
			continue
		}
		s := j.p[b*page*page:][:page*page]
		k.product(j, s, j.qa, j.kp[b*page*j.D:], n)
		v.Scale(s[:n*page], s[:n*page], j.Scale)
		copy(j.mb, j.m)
		for i := range n {
			sink, lo, hi := j.sees(a*page+i, b)
			j.lb[i] = 0
			if sink == 0 && lo >= hi {
				continue
			}
			row := s[i*page:][:page]
			j.mb[i] = v.Max(row[lo:hi])
			if lo == 0 { // lanes count slots from the first of the block
				j.lb[i] = v.ExpSum(row[:hi], j.mb[i], j.line)
				continue
			}
			clear(j.line)
			if sink > 0 {
				if m := v.Max(row[:sink]); m > j.mb[i] {
					j.mb[i] = m
				}
				v.ExpSub(j.line[:sink], row[:sink], j.mb[i])
			}
			v.ExpSub(j.line[lo:hi], row[lo:hi], j.mb[i])
			j.lb[i] = v.Sum(j.line)
		}
		for i := range n {
			if j.top[i] = j.m[i]; j.mb[i] > j.top[i] {
				j.top[i] = j.mb[i]
			}
		}
		v.Sub(j.al[:n], j.m[:n], j.top[:n])
		v.Exp(j.al[:n], j.al[:n])
		v.Sub(j.be[:n], j.mb[:n], j.top[:n])
		v.Exp(j.be[:n], j.be[:n])
		v.Mul(j.al[:n], j.al[:n], j.l[:n])
		v.FMA(j.al[:n], j.lb[:n], j.be[:n])
		for i := range n {
			if sink, lo, hi := j.sees(a*page+i, b); sink > 0 || lo < hi {
				j.m[i], j.l[i] = j.top[i], j.al[i]
			}
		}
	}
}

// pairs does the queries of block a and the keys of block b; fresh says that they are
// the first that the queries meet. Keys meet the queries of their own block first.
func (k *Kernels) pairs(j *Job, a, b, h, n int, fresh bool) {
	v, keys := k.vec, j.rows(b)
	p, ds := j.p[b*page*page:][:page*page], j.ds
	k.product(j, ds, j.ya, j.vp[b*page*j.D:], n)
	for i := range n {
		row, dr := p[i*page:][:page], ds[i*page:][:page]
		sink, lo, hi := j.sees(a*page+i, b)
		clear(row[sink:lo])
		clear(row[hi:])
		clear(dr[sink:lo])
		clear(dr[hi:])
		if sink > 0 {
			v.SoftmaxGrad(row[:sink], dr[:sink], j.lse[i], j.c[i], j.Scale)
		}
		if lo < hi {
			v.SoftmaxGrad(row[lo:hi], dr[lo:hi], j.lse[i], j.c[i], j.Scale)
		}
	}
	own := a == b && h == 0
	j.add(k, j.DQ[h], a, n, Rows{ds, page}, false, j.kt[b*page*j.dp:], keys, fresh)
	j.add(k, j.DK, b, keys, Rows{ds, page}, true, j.qt, n, own && j.Fresh[1])
	j.add(k, j.DV, b, keys, Rows{p, page}, true, j.yt, n, own && j.Fresh[2])
}

// add adds to the m rows of a block of c the chains of a, or a turned, with inputs
// that are packed as w.
func (j *Job) add(k *Kernels, c Rows, block, m int, a Rows, trans bool, w []float32, inputs int, fresh bool) {
	j.cut[0] = inputs
	j.sum = gemm.Sum{C: c.V[block*page*c.Stride:], LDC: c.Stride, M: m, N: j.D, K: inputs,
		A: a.V, LDA: a.Stride, Trans: trans, Panels: w, Cuts: j.cut[:], Fresh: fresh}
	k.gemm.Accumulate(&j.sum, 0, k.gemm.Tiles(m), 0, j.dp/width, j.scratch)
}
