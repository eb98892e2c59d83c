package attn

import (
	"math"
	"slices"

	"samebit/internal/canon"
)

// padded is the distance of rows of o in scratch: kernels store whole vectors.
func padded(d int) int { return (d + 15) &^ 15 }

// ScratchSize returns the number of float32 that a Job with that many rows of
// d components needs as scratch, for every method. It does not grow beyond 96
// rows: larger jobs work in chunks.
func ScratchSize(rows, d int) int {
	n := min(max(rows, 1), chunkRows)
	return n*(d+padded(d)) + tileRows*Page + maxTiles(n)*stSize + lanes + 3*Page*d
}

// maxTiles returns into how many register tiles n rows are cut. Few rows (a
// decode step) use tiles of at most 4: those kernels also prefetch.
func maxTiles(n int) int {
	if n <= 8 {
		return (n + 3) / 4
	}
	return (n + tileRows - 1) / tileRows
}

// tile returns the rows of tile t of n: sizes differ by at most one.
func tile(t, tiles, n int) (r, rows int) {
	r = t * n / tiles
	return r, (t+1)*n/tiles - r
}

// work is a chunk's part of scratch.
type work struct {
	q  []float32 // [rows][d]
	o  []float32 // [rows][padded d]
	st []float32 // [tiles][stSize], and room for a shifted view of the last
	s  []float32 // [tileRows][64] scores, then weights
	v  []float32 // [64][d] values of a page without its gap

	next      []float32    // what the tile prefetches where many rows share a page
	direct    bool         // kernels read pages of bf16 as they are
	wide      [2][]float32 // a page of bf16 widened: keys [d][64], values [64][d]
	wideBlock [2]int       // which page that is
}

func (j *Job) carve(rows int, scratch []float32) work {
	var w work
	cut := func(n int) []float32 {
		p := scratch[:n:n]
		scratch = scratch[n:]
		return p
	}
	w.s = cut(tileRows * Page)
	w.q = cut(rows * j.D)
	w.o = cut(rows * padded(j.D))
	w.st = cut(maxTiles(rows)*stSize + lanes)
	w.v = cut(Page * j.D)
	w.wide = [2][]float32{cut(Page * j.D), cut(Page * j.D)}
	w.wideBlock = [2]int{-1, -1}
	return w
}

// widened is part 0 (keys) or 1 (values) of a page of bf16 as float32.
func (k *Kernels) widened(w *work, part, block int, page []uint16) []float32 {
	to := w.wide[part]
	if w.wideBlock[part] != block {
		k.widen(to, page[:len(to)])
		w.wideBlock[part] = block
	}
	return to
}

// start copies the queries of rows [r0, r0+n) and clears their state.
func (k *Kernels) start(w *work, j *Job, r0, n int) {
	for r := range n {
		copy(w.q[r*j.D:(r+1)*j.D], j.Q[j.place(r0+r, j.QStride):])
	}
	w.direct = k.score16[1] != nil && n <= directMax && j.D%16 == 0
	clear(w.o)
	clear(w.st)
	for t := range maxTiles(n) {
		m := w.st[t*stSize+stM:][:lanes]
		for i := range m {
			m[i] = negInf
		}
	}
}

// state returns m and l of row r of a chunk of n rows.
func (w *work) state(r, n int) (m, l float32) {
	tiles := maxTiles(n)
	t := ((r+1)*tiles - 1) / n // the last tile that begins at or before r
	first, _ := tile(t, tiles, n)
	st := w.st[t*stSize:]
	return st[stM+r-first], st[stL+r-first]
}

// Attend writes, for each row, its attention over the slots it sees (numerics.md
// 7) to j.Out. A row that sees nothing gets +0, a row with a NaN score gets NaN.
// scratch holds at least ScratchSize(j.Rows, j.D) elements.
func (k *Kernels) Attend(j *Job, scratch []float32) {
	for r0 := 0; r0 < j.Rows; r0 += chunkRows {
		n := min(chunkRows, j.Rows-r0)
		w := j.carve(n, scratch)
		k.start(&w, j, r0, n)
		k.all(j, &w, r0, n, true)
		dp := padded(j.D)
		for r := range n {
			out := j.Out[j.place(r0+r, j.OutStride):][:j.D]
			m, l := w.state(r, n)
			k.finishRow(out, w.o[r*dp:], l)
			j.logMass(r0+r, m, l)
			k.finishWeights(j, &w, r0+r, m, l)
		}
	}
}

// finishRow writes out = o·(1/l), or +0 where l is +0: no visible slot.
func (k *Kernels) finishRow(out, o []float32, l float32) {
	if l == 0 {
		clear(out)
		return
	}
	k.scaleTo(out, o, 1/l)
}

func (j *Job) logMass(r int, m, l float32) {
	if j.LSE == nil {
		return
	}
	if l == 0 {
		j.LSE[r] = negInf
		return
	}
	j.LSE[r] = m + canon.Log(l)
	if l != l {
		j.LSE[r] = float32(math.NaN())
	}
}

// all merges every page that rows [r0, r0+n) see; without values it leaves o alone.
func (k *Kernels) all(j *Job, w *work, r0, n int, values bool) {
	b0, b1 := j.blocks(r0, n)
	sinks := (j.Sinks + Page - 1) / Page
	if values && b0 < b1 {
		k.Fetch(j, b0)
	}
	k.pass(j, w, r0, n, 0, min(sinks, b0), values)
	k.pass(j, w, r0, n, b0, max(b1, sinks), values)
}

// pass merges pages [b0, b1) into the state of rows [r0, r0+n), in ascending order.
func (k *Kernels) pass(j *Job, w *work, r0, n, b0, b1 int, values bool) {
	tiles := maxTiles(n)
	lo, hi := j.common(r0, n)
	for b := b0; b < b1; b++ {
		all := b*Page >= lo && (b+1)*Page <= hi
		more := b+1 < max(len(j.K), len(j.K16))
		var next []float32
		if n > directMax && b < len(j.K) { // sinks may end behind the last page
			next = after(j, j.K, b, values, more)
		}
		for t := range tiles {
			r, rows := tile(t, tiles, n)
			w.next = share(next, t, tiles)
			k.tile(j, w, r0, r, rows, b, w.st[t*stSize:], values, t == 0 && more, all)
		}
	}
}

// tile merges page b into rows [r, r+rows) of the chunk that begins at r0; all says
// that each row of the chunk sees the whole page.
func (k *Kernels) tile(j *Job, w *work, r0, r, rows, b int, st []float32, values, ahead, all bool) {
	var see [tileRows]seen
	none := !all
	for i := range rows {
		if all {
			see[i] = seen{hi: Page}
			continue
		}
		see[i] = j.sees(r0+r+i, b)
		none = none && see[i].none()
	}
	if none {
		return
	}
	d, dp := j.D, padded(j.D)
	k.scorePage(j, w, r, rows, b, values, ahead)
	if j.W != nil {
		for i := range rows {
			if !see[i].none() {
				k.keepScores(j.weights(r0 + r + i)[b*Page:], w.s[i*Page:], see[i], j.Scale)
			}
		}
	}

	// Rows that see the same slots go together. A slot that one row sees and
	// another does not may hold values that are not finite: each row runs over
	// its own slots only.
	for i := 0; i < rows; {
		s, n := see[i], 1
		if all {
			n = rows
		}
		for i+n < rows && see[i+n] == s {
			n++
		}
		p, st := w.s[i*Page:], st[i:]
		switch {
		case s.none():
			i += n
			continue
		case s.end > 0:
			var val []float32
			if values {
				val = k.values(j, w, b)
			}
			k.closeGap(w, p, val, st, n, d, s, j.Scale)
		default:
			k.softmax(p, st, n, s.lo, s.hi, j.Scale)
		}
		if values {
			step := n
			if k.pairs && n == 4 && d > Page && d <= 2*Page {
				step = 2
			}
			for e := 0; e < n; e += step {
				k.mergePage(j, w, w.o[(r+i+e)*dp:], p[e*Page:], step, b, s, st[e+stAl:], ahead && i+e == 0)
			}
		}
		i += n
	}
}

// scorePage writes the raw scores of rows [r, r+rows) of the chunk over page b to w.s.
func (k *Kernels) scorePage(j *Job, w *work, r, rows, b int, values, ahead bool) {
	q, d := w.q[r*j.D:], j.D
	switch {
	case j.K16 == nil:
		key := j.K[b][:d*Page]
		next := after(j, j.K, b, values, ahead)
		k.score[rows](w.s, q, key, next, d)
	case w.direct:
		key := j.K16[b][:d*Page]
		next := after(j, j.K16, b, values, ahead)
		k.score16[rows](w.s, q, key, next, d)
	default:
		key := k.widened(w, 0, b, j.K16[b])
		k.score[rows](w.s, q, key, key, d)
	}
}

// whole is a page whose values follow its keys in memory, or the keys alone.
func whole[E any](keys []E, d int) []E {
	if cap(keys) >= 2*d*Page {
		return keys[:2*d*Page]
	}
	return keys[:d*Page]
}

// read is what a decode step reads of a page: its keys, and the values of slots that a
// row may see, if they follow in memory.
func read[E any](j *Job, page []E, b int) []E {
	page = whole(page, j.D)
	if j.Rows > directMax {
		return page
	}
	slots := int(slices.Max(j.Hi[:j.Rows])) - b*Page
	return page[:min(len(page), j.D*(Page+max(slots, 0)))]
}

// share is the part of a page that tile t of many prefetches.
func share(page []float32, t, tiles int) []float32 {
	const line = 16
	at, n := tile(t, tiles, len(page)/line)
	return page[at*line:][:n*line]
}

// Fetch prefetches page b, the first of those that a decode step reads; what reads a
// page prefetches the next of the job.
func (k *Kernels) Fetch(j *Job, b int) {
	switch {
	case k.fetch == nil || j.Rows > directMax:
	case j.K16 == nil:
		k.fetch(read(j, j.K[b], b))
	default:
		k.fetch16(read(j, j.K16[b], b))
	}
}

// after is what is prefetched while page b is read: what is read of the next, without
// values its keys.
func after[E any](j *Job, pages [][]E, b int, values, ahead bool) []E {
	switch {
	case !ahead || len(pages[b+1]) < j.D*Page:
		return pages[b] // which costs least
	case values:
		return read(j, pages[b+1], b+1)
	}
	return pages[b+1][:j.D*Page]
}

// values is the V part of page b as float32.
func (k *Kernels) values(j *Job, w *work, b int) []float32 {
	if j.K16 == nil {
		return j.V[b][:j.D*Page]
	}
	return k.widened(w, 1, b, j.V16[b])
}

// mergePage merges the values of what n rows see of page b, without a gap.
func (k *Kernels) mergePage(j *Job, w *work, o, p []float32, n, b int, s seen, fac []float32, ahead bool) {
	lo, hi, d := s.lo, s.hi, j.D
	switch {
	case s.end > 0:
		k.pv[n](o, p, w.v, w.v, d, 0, hi-(s.end-s.gap), fac)
	case j.K16 == nil && n > tileRows16:
		k.pv[n](o, p, j.V[b][:d*Page], w.next, d, lo, hi, fac)
	case j.K16 == nil:
		k.pv[n](o, p, j.V[b][:d*Page], after(j, j.K, b, true, ahead), d, lo, hi, fac)
	case w.direct:
		k.pv16[n](o, p, j.V16[b][:d*Page], after(j, j.K16, b, true, ahead), d, lo, hi, fac)
	default:
		v := k.values(j, w, b)
		k.pv[n](o, p, v, v, d, lo, hi, fac)
	}
}

// closeGap is softmax for rows that see a page with a gap. It moves weights and
// values together, so that they have none for pv: sums of weights go by slot
// and are taken before, the chain over values, which lie in w.v then, goes by order.
func (k *Kernels) closeGap(w *work, p, v, st []float32, rows, d int, s seen, scale float32) {
	for r := range rows {
		x := p[r*Page:][:Page]
		for i := range x {
			if i >= s.hi || i >= s.gap && i < s.end {
				x[i] = negInf
			} else {
				x[i] = float32(x[i] * scale)
			}
		}
	}
	k.softmax(p, st, rows, 0, Page, 1)
	for r := range rows {
		copy(p[r*Page+s.gap:], p[r*Page+s.end:r*Page+s.hi])
	}
	if v != nil {
		n := copy(w.v, v[:s.gap*d])
		copy(w.v[n:], v[s.end*d:s.hi*d])
	}
}
