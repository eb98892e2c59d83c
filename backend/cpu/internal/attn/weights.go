package attn

// Scores writes dst[r·dstStride+j] = DOT(q_r, k_j)·Scale for the slots j that
// row r sees; other elements of dst are left as they are.
func (k *Kernels) Scores(dst []float32, dstStride int, j *Job, scratch []float32) {
	for r0 := 0; r0 < j.Rows; r0 += chunkRows {
		n := min(chunkRows, j.Rows-r0)
		w := j.carve(n, scratch)
		k.start(&w, j, r0, n)
		k.scores(dst, dstStride, j, &w, r0, n)
	}
}

func (k *Kernels) scores(dst []float32, dstStride int, j *Job, w *work, r0, n int) {
	b0, b1 := j.blocks(r0, n)
	sinks := (j.Sinks + Page - 1) / Page
	for b := range max(b1, sinks) {
		if b >= sinks && b < b0 {
			continue
		}
		for t := range maxTiles(n) {
			r, rows := tile(t, maxTiles(n), n)
			none := true
			for i := range rows {
				none = none && j.sees(r0+r+i, b).none()
			}
			if none {
				continue
			}
			k.scorePage(j, w, r, rows, b, false, false)
			for i := range rows {
				if s := j.sees(r0+r+i, b); !s.none() {
					k.keepScores(dst[(r0+r+i)*dstStride+b*Page:], w.s[i*Page:], s, j.Scale)
				}
			}
		}
	}
}

// keepScores writes the scaled scores of the slots of a page that a row sees.
func (k *Kernels) keepScores(row, x []float32, s seen, scale float32) {
	if s.end > 0 {
		k.scaleTo(row[s.lo:s.gap], x[s.lo:], scale)
		s.lo = s.end
	}
	k.scaleTo(row[s.lo:s.hi], x[s.lo:], scale)
}

// Weights writes exp(s_j - m)·(1/l) with each row's final m and l (numerics.md 7)
// to j.W, and +0 for every slot that the row does not see. j.V and j.Out are not
// used and may be nil.
func (k *Kernels) Weights(j *Job, scratch []float32) {
	for r0 := 0; r0 < j.Rows; r0 += chunkRows {
		n := min(chunkRows, j.Rows-r0)
		w := j.carve(n, scratch)
		k.start(&w, j, r0, n)
		k.all(j, &w, r0, n, false)
		for r := range n {
			m, l := w.state(r, n)
			j.logMass(r0+r, m, l)
			k.finishWeights(j, &w, r0+r, m, l)
		}
	}
}

// finishWeights turns the scores of row r, kept in W, into weights.
func (k *Kernels) finishWeights(j *Job, w *work, r int, m, l float32) {
	if j.W == nil {
		return
	}
	row := j.weights(r)
	sinks, lo, hi := j.ranges(r)
	k.weighRow(row[:sinks], w.s, m, 1/l)
	clear(row[sinks:lo])
	k.weighRow(row[lo:hi], w.s, m, 1/l)
	clear(row[hi:])
}

// weighRow turns scores into weights; buf is scratch for a part of a page.
func (k *Kernels) weighRow(row, buf []float32, m, inv float32) {
	n := len(row) / Page * Page
	k.weigh(row[:n], m, inv)
	if row = row[n:]; len(row) > 0 {
		buf = buf[:Page]
		clear(buf)
		copy(buf, row)
		k.weigh(buf, m, inv)
		copy(row, buf)
	}
}
