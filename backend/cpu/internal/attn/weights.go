package attn

// Scores writes dst[r·dstStride+j] = DOT(q_r, k_j)·Scale for the slots j that
// row r sees; other elements of dst are left as they are.
func (k *Kernels) Scores(dst []float32, dstStride int, j *Job, scratch []float32) {
	for r0 := 0; r0 < j.Rows; r0 += chunkRows {
		n := min(chunkRows, j.Rows-r0)
		w := j.carve(n, scratch)
		w.start(j, r0, n)
		k.scores(dst, dstStride, j, &w, r0, n)
	}
}

func (k *Kernels) scores(dst []float32, dstStride int, j *Job, w *work, r0, n int) {
	d := j.D
	b0, b1 := j.blocks(r0, n)
	for b := b0; b < b1; b++ {
		for t := range maxTiles(n) {
			r, rows := tile(t, maxTiles(n), n)
			any := false
			for i := range rows {
				lo, hi := j.sees(r0+r+i, b)
				any = any || hi > lo
			}
			if !any {
				continue
			}
			k.score[rows](w.s, w.q[r*d:], j.K[b][:d*Page], j.K[b], d)
			for i := range rows {
				lo, hi := j.sees(r0+r+i, b)
				if hi > lo {
					row := dst[(r0+r+i)*dstStride+b*Page:]
					k.scaleTo(row[lo:hi], w.s[i*Page+lo:], j.Scale)
				}
			}
		}
	}
}

// Weights writes dst[r·dstStride+j] = exp(s_j - m)·(1/l) with the row's final m
// and l (numerics.md 7), and +0 for every slot of the row's dstStride elements
// that it does not see. j.V and j.Out are not used and may be nil.
func (k *Kernels) Weights(dst []float32, dstStride int, j *Job, scratch []float32) {
	for r0 := 0; r0 < j.Rows; r0 += chunkRows {
		n := min(chunkRows, j.Rows-r0)
		w := j.carve(n, scratch)
		w.start(j, r0, n)
		b0, b1 := j.blocks(r0, n)
		k.pass(j, &w, r0, n, b0, b1, false)
		k.scores(dst, dstStride, j, &w, r0, n)
		for r := range n {
			m, l := w.state(r, n)
			j.logMass(r0+r, m, l)
			row := dst[(r0+r)*dstStride:]
			row = row[:min(len(row), dstStride)]
			lo, hi := int(j.Lo[r0+r]), int(j.Hi[r0+r])
			if hi <= lo {
				clear(row)
				continue
			}
			clear(row[:lo])
			clear(row[hi:])
			for at := lo; at < hi; at += Page {
				part := row[at:min(at+Page, hi)]
				if len(part) == Page {
					k.weigh(part, m, 1/l)
					continue
				}
				buf := w.s[:Page]
				clear(buf)
				copy(buf, part)
				k.weigh(buf, m, 1/l)
				copy(part, buf)
			}
		}
	}
}
