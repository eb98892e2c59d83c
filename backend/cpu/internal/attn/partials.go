package attn

import "math"

// Partials writes the contract's triples (m_b, l_b, o_b) of one block for each
// row: m and l are [Rows], o is [Rows][D]. A row that sees nothing of the block
// gets m = -Inf, l = +0, o = +0. If l is NaN so is m; a maximum of zero is +0.
// Triples of different blocks are independent and are joined by [Kernels.Merge].
func (k *Kernels) Partials(j *Job, block int, m, l, o []float32, scratch []float32) {
	d, dp := j.D, padded(j.D)
	for r0 := 0; r0 < j.Rows; r0 += chunkRows {
		n := min(chunkRows, j.Rows-r0)
		w := j.carve(n, scratch)
		k.start(&w, j, r0, n)
		// From (-Inf, +0, +0) one merge gives the triple itself: al = +0,
		// be = 1, and o_b, l_b are never -0.
		k.pass(j, &w, r0, n, block, block+1, true)
		for r := range n {
			mb, lb := w.state(r, n)
			if lb != lb {
				mb = float32(math.NaN())
			}
			m[r0+r], l[r0+r] = mb+0, lb
			copy(o[(r0+r)*d:(r0+r+1)*d], w.o[r*dp:])
		}
	}
}

// Reset gives m, l [rows] and o [rows][d] the state before the first block.
func Reset(m, l, o []float32) {
	for i := range m {
		m[i] = negInf
	}
	clear(l)
	clear(o)
}

// Merge folds the triples of one block into the running state m, l [rows] and
// o [rows][d]; blocks come in ascending order, each once, after [Reset]. The
// bits are those of [Kernels.Attend]. Rows with lb = 0 (nothing visible) stay
// as they are.
func (k *Kernels) Merge(m, l, o []float32, mb, lb, ob []float32, d int, scratch []float32) {
	for r0 := 0; r0 < len(m); r0 += lanes {
		n := min(lanes, len(m)-r0)
		st := scratch[:stSize]
		clear(st)
		copy(st[stM:], m[r0:r0+n])
		copy(st[stL:], l[r0:r0+n])
		copy(st[stMB:], mb[r0:r0+n])
		copy(st[stLB:], lb[r0:r0+n])
		k.fold(st, n)
		for i := range n {
			r := r0 + i
			if lb[r] == 0 {
				continue
			}
			m[r], l[r] = st[stM+i], st[stL+i]
			k.merge(o[r*d:(r+1)*d], ob[r*d:(r+1)*d], st[stAl+i], st[stBe+i])
		}
	}
}

// Finish writes out[r·outStride+c] = o[r][c]·(1/l[r]) for the merged state of
// len(l) rows; a row with l = 0 gets +0.
func (k *Kernels) Finish(out []float32, outStride int, l, o []float32, d int) {
	for r := range l {
		k.finishRow(out[r*outStride:][:d], o[r*d:], l[r])
	}
}
