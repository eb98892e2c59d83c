package cpu

import (
	"fmt"
	"math"
	"slices"

	"samebit/backend"
	"samebit/backend/cpu/internal/attn"
	"samebit/internal/blockq"
	"samebit/tensor"
)

// plan is the pass under way. Cosines and sines are formed once per pass and
// rotary table, on the workers.
type plan struct {
	segs   []backend.Seg
	rows   int
	pos    []int32 // by row
	slot   []int32 // by row
	angles []angles
}

type angles struct {
	rope     *backend.RoPE
	cos, sin []float32 // [rows, pairs]
	ready    bool
}

func (p *plan) Segs() []backend.Seg { return p.segs }
func (p *plan) Rows() int           { return p.rows }

func (s *stream) Plan(segs []backend.Seg) backend.Plan {
	p := &s.plan
	p.segs, p.pos, p.slot, p.rows = p.segs[:0], p.pos[:0], p.slot[:0], 0
	for i := range p.angles {
		p.angles[i].ready = false
	}
	if s.fails(backend.CheckPlan(segs)) {
		return p
	}
	for i := range segs {
		g := &segs[i]
		if s.away(g.KV...) || s.away(g.DeltaIn, g.DeltaOut, g.ConvIn, g.ConvOut, g.SumIn, g.SumOut) {
			return p
		}
		if a := g.Archive; a != nil && (s.away(a.Window...) || s.awayBank(&a.In) || s.awayBank(&a.Out)) {
			return p
		}
	}
	p.segs = append(p.segs, segs...)
	for i := range segs {
		for r := range segs[i].Rows {
			p.pos, p.slot = append(p.pos, int32(segs[i].Pos+r)), append(p.slot, int32(segs[i].Slot+r))
		}
	}
	p.rows = len(p.pos)
	return p
}

// turn returns the angles of a table for this pass.
func (s *stream) turn(rope *backend.RoPE) *angles {
	p := &s.plan
	var a *angles
	for i := range p.angles {
		if p.angles[i].rope == rope {
			a = &p.angles[i]
		}
	}
	if a == nil {
		p.angles = append(p.angles, angles{rope: rope})
		a = &p.angles[len(p.angles)-1]
	}
	if a.ready {
		return a
	}
	if n := p.rows * len(rope.Inv); cap(a.cos) < n {
		a.cos, a.sin = make([]float32, n), make([]float32, n)
	} else {
		a.cos, a.sin = a.cos[:n], a.sin[:n]
	}
	s.attn.angles = a
	s.run((p.rows+anglesPer-1)/anglesPer, anglesBody)
	a.ready = true
	return a
}

const anglesPer = 4 // rows per chunk; a row takes some 5 µs

func anglesBody(s *stream, _, chunk int) {
	a, p := s.attn.angles, &s.plan
	h := len(a.rope.Inv)
	for r := chunk * anglesPer; r < min((chunk+1)*anglesPer, p.rows); r++ {
		a.rope.Angles(a.cos[r*h:(r+1)*h], a.sin[r*h:(r+1)*h], int(p.pos[r]))
	}
}

// attention holds the operands of the attention op under way.
type attention struct {
	angles        *angles
	heads         int
	from          int // row of the pass that q begins at
	q, out, k, v  matrix
	dst           matrix    // where out belongs, if out is a copy without gaps
	qTmp, outTmp  []float32 // such copies
	w, wDst       matrix    // weights, and where they belong if w is a copy
	wTmp          []float32 // such a copy
	sum, square   matrix    // of Moments; square without values if it is not wanted
	layer, window int
	scale         float32
	group, d      int
	perRow        int // values per row of the output of scores
	tasks         []task
	work          []attnWork // by worker

	// Heads that are split over key blocks, and of each the triples of every block, merged
	// in order afterwards.
	split   []task
	m, l, o []float32
	blocks  int
}

// task is a piece of one KV head's attention: rows [row, row+rows) of a segment, and
// for part of a head that is split, number part of those, key blocks [b0, b1).
type task struct {
	seg, head, row, rows int
	part, b0, b1         int
}

// attnWork is a worker's memory.
type attnWork struct {
	job      attn.Job
	k, v     [][]float32
	k16, v16 [][]uint16 // instead, of pages in bf16
	lo, hi   []int32
}

func (s *stream) NormRoPE(dst, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckNormRoPE(dst, x, w, rope, p)) || !s.current(p) {
		return
	}
	s.rows.w, s.rows.eps, s.attn.angles, s.attn.heads = nil, eps, nil, x.Dim(1)
	if w.Valid() {
		s.rows.w = s.vector(w)
	}
	if rope != nil {
		s.attn.angles = s.turn(rope)
	}
	s.each(s.host(dst), s.host(x), matrix{}, matrix{}, func(s *stream, dst, x, _, _ []float32, r int) {
		if s.rows.w != nil {
			s.dev.vec.RMSNorm(dst, x, s.rows.w, s.rows.eps)
			x = dst
		}
		a := s.attn.angles
		if a == nil {
			if s.rows.w == nil {
				copy(dst, x)
			}
			return
		}
		h := len(a.rope.Inv)
		r /= s.attn.heads
		s.dev.vec.Rotate(dst, x, a.cos[r*h:(r+1)*h], a.sin[r*h:(r+1)*h])
	})
}

// current reports whether p is this stream's plan.
func (s *stream) current(p backend.Plan) bool {
	if q, ok := p.(*plan); !ok || q != &s.plan {
		s.fails(fmt.Errorf("cpu: the plan belongs to another stream"))
		return false
	}
	return true
}

// pageHead returns the keys [D][64] and values [64][D] of one layer and head in
// a page. They lie one after the other, so that a worker, which has one head,
// reads one stream. The shape was checked by Plan and the op.
func pageHead(page tensor.Tensor, layer, head int) (k, v []float32) {
	f, _ := page.F32()
	n := backend.Page * page.Dim(3)
	i := (layer*page.Dim(1) + head) * 2 * n
	return f[i : i+n], f[i+n : i+2*n]
}

// pageHead16 is pageHead of a page in bf16, whose values lie where attn.At16 says.
func pageHead16(page tensor.Tensor, layer, head int) (k, v []uint16) {
	f, _ := page.Halves()
	n := backend.Page * page.Dim(3)
	i := (layer*page.Dim(1) + head) * 2 * n
	return f[i : i+n], f[i+n : i+2*n]
}

// putSlot16 rounds a row's key and value to bf16 and stores them in a slot.
func putSlot16(pk, pv []uint16, slot int, k, v []float32) {
	at := attn.At16(slot)
	for c, x := range k {
		pk[c*backend.Page+at] = blockq.F32ToBF16(x)
	}
	for c, x := range v {
		pv[attn.At16(slot*len(v)+c)] = blockq.F32ToBF16(x)
	}
}

// getSlot16 is the reverse.
func getSlot16(k, v []float32, pk, pv []uint16, slot int) {
	at := attn.At16(slot)
	for c := range k {
		k[c] = blockq.BF16ToF32(pk[c*backend.Page+at])
	}
	for c := range v {
		v[c] = blockq.BF16ToF32(pv[attn.At16(slot*len(v)+c)])
	}
}

func (s *stream) PutKV(p backend.Plan, layer int, k, v tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPutKV(p, layer, k, v)) || !s.current(p) {
		return
	}
	a := &s.attn
	a.k, a.v, a.layer, a.heads, a.d = s.host(k), s.host(v), layer, k.Dim(1), k.Dim(2)
	a.tasks = a.tasks[:0]
	for i := range s.plan.segs {
		g := &s.plan.segs[i]
		for r := 0; r < g.Rows; {
			n := min(g.Rows-r, backend.Page-(g.Slot+r)%backend.Page) // within one page
			a.tasks = append(a.tasks, task{seg: i, row: r, rows: n})
			r += n
		}
	}
	if s.err != nil {
		return
	}
	if k.Dim(0) == 1 {
		putBody(s, 0, 0)
		return
	}
	s.run(len(a.tasks), putBody)
}

func putBody(s *stream, _, chunk int) {
	a := &s.attn
	t := &a.tasks[chunk]
	g := &s.plan.segs[t.seg]
	slot := (g.Slot + t.row) % backend.Page
	page := g.KV[(g.Slot+t.row)/backend.Page]
	first := g.Row + t.row
	for h := range a.heads {
		if page.DType() == tensor.BF16 {
			pk, pv := pageHead16(page, a.layer, h)
			for i := range t.rows {
				r := (first+i)*a.heads + h
				putSlot16(pk, pv, slot+i, a.k.row(r), a.v.row(r))
			}
			continue
		}
		pk, pv := pageHead(page, a.layer, h)
		s.dev.gemm.Turn(pk[slot:], backend.Page, a.k.v[first*a.k.stride+h*a.k.stride2:], a.k.stride, t.rows, a.d)
		for i := range t.rows {
			copy(pv[(slot+i)*a.d:], a.v.row((first+i)*a.heads+h))
		}
	}
}

// queryRows is about how many rows of a job share a pass over keys and values; where
// that gives the workers too few jobs, fewer rows do, but not less than leastRows.
const (
	queryRows = 96
	leastRows = 24
)

func (s *stream) Attention(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttention(dst, q, p, layer)) || !s.current(p) {
		return
	}
	s.attend(dst, q, layer, scale, window)
	if s.err != nil {
		return
	}
	a := &s.attn
	defer a.result()
	if s.split() {
		s.run(len(a.tasks), splitBody)
		s.run(len(a.split), mergeBody)
		return
	}
	s.cutRows(0, s.plan.rows)
	s.run(len(a.tasks), attendBody)
}

// cutRows cuts rows [from, to) of the pass into blocks of one KV head's work.
func (s *stream) cutRows(from, to int) {
	a := &s.attn
	a.tasks = a.tasks[:0]
	per := queryRows
	if t := s.threads(); t > 1 {
		per = min(per, max(leastRows, (to-from)*a.heads/(4*t)))
	}
	per = max(1, per/a.group)
	for i := range s.plan.segs {
		g := &s.plan.segs[i]
		lo, hi := max(from-g.Row, 0), min(to-g.Row, g.Rows)
		for n := (hi - lo - 1) / per * per; n >= 0 && lo < hi; n -= per { // the longest first
			for h := range s.kvHeads() {
				a.tasks = append(a.tasks, task{seg: i, head: h, row: lo + n, rows: min(per, hi-lo-n)})
			}
		}
	}
}

func (s *stream) kvHeads() int { return s.plan.segs[0].KV[0].Dim(1) }

// attend notes the operands shared by attention, scores and weights.
func (s *stream) attend(dst, q tensor.Tensor, layer int, scale float32, window int) {
	s.attendHeads(dst, q, s.kvHeads(), layer, scale, window)
}

// attendHeads is attend with the number of key heads.
func (s *stream) attendHeads(dst, q tensor.Tensor, kv, layer int, scale float32, window int) {
	a := &s.attn
	a.q, a.out = s.host(q), s.host(dst)
	if s.err != nil {
		return
	}
	a.dst.v = nil
	if a.q.gaps() { // the kernels want the heads of a row side by side
		a.qTmp = grow(a.qTmp, a.q.rows*a.q.cols)
		m := a.q.dense(a.qTmp)
		copyRows(&m, &a.q)
		a.q = m
	}
	if a.out.gaps() {
		a.outTmp = grow(a.outTmp, a.out.rows*a.out.cols)
		a.dst, a.out = a.out, a.out.dense(a.outTmp)
	}
	a.layer, a.scale, a.window, a.d = layer, scale, window, q.Dim(2)
	a.group = q.Dim(1) / kv
	a.heads, a.from = q.Dim(1), 0
}

// result moves the output to its place if that has gaps between heads.
func (a *attention) result() {
	if a.dst.v != nil {
		copyRows(&a.dst, &a.out)
	}
}

// gaps reports whether the heads of a row do not lie side by side.
func (m *matrix) gaps() bool { return m.rows > 0 && m.stride2 != m.cols }

// dense is the shape of m over v, without gaps.
func (m *matrix) dense(v []float32) matrix {
	return matrix{v: v, rows: m.rows, cols: m.cols, heads: m.heads, stride: m.heads * m.cols, stride2: m.cols}
}

func copyRows(dst, src *matrix) {
	for r := range dst.rows {
		copy(dst.row(r), src.row(r))
	}
}

// job sets up a worker's job for rows of one KV head.
func (s *stream) job(worker int, t *task) *attn.Job {
	a, w := &s.attn, &s.attn.work[worker]
	g := &s.plan.segs[t.seg]
	w.k, w.v, w.k16, w.v16, w.lo, w.hi = w.k[:0], w.v[:0], w.k16[:0], w.v16[:0], w.lo[:0], w.hi[:0]
	last := g.Slot + t.row + t.rows // slots that the last row sees
	half := g.KV[0].DType() == tensor.BF16
	pages := (last + backend.Page - 1) / backend.Page
	if half {
		w.k16, w.v16 = slices.Grow(w.k16, pages), slices.Grow(w.v16, pages)
	} else {
		w.k, w.v = slices.Grow(w.k, pages), slices.Grow(w.v, pages)
	}
	for b := range pages {
		if half {
			k, v := pageHead16(g.KV[b], a.layer, t.head)
			w.k16, w.v16 = append(w.k16, k), append(w.v16, v)
			continue
		}
		k, v := pageHead(g.KV[b], a.layer, t.head)
		w.k, w.v = append(w.k, k), append(w.v, v)
	}
	for i := range t.rows {
		own := g.Slot + t.row + i
		lo := 0
		if a.window > 0 {
			lo = max(0, own-a.window+1)
		}
		for range a.group {
			w.lo, w.hi = append(w.lo, int32(lo)), append(w.hi, int32(own+1))
		}
	}
	first := (g.Row+t.row-a.from)*a.q.stride + t.head*a.group*a.q.stride2
	w.job = attn.Job{
		Q: a.q.v[first:], QStride: a.q.stride, Group: a.group, Rows: t.rows * a.group, D: a.d,
		Lo: w.lo, Hi: w.hi, Scale: a.scale,
	}
	if half {
		w.job.K16, w.job.V16 = w.k16, w.v16
	} else {
		w.job.K, w.job.V = w.k, w.v
	}
	return &w.job
}

func attendBody(s *stream, worker, chunk int) {
	a := &s.attn
	t := &a.tasks[chunk]
	j := s.job(worker, t)
	g := &s.plan.segs[t.seg]
	j.Out = a.out.v[(g.Row+t.row-a.from)*a.out.stride+t.head*a.group*a.out.stride2:]
	j.OutStride = a.out.stride
	s.weightsOf(j, t)
	s.dev.attn.Attend(j, s.tmp(worker, attn.ScratchSize(j.Rows, j.D)))
}

// In a decode pass with a long past and few heads for each worker the last of them are
// split over key blocks, so that none waits long for another's head. Triples cost time:
// splitting the last of three heads on two cores takes 0.70 to 0.86 times as long as
// splitting all, and from headsPer for each worker on no splitting is as fast: those that
// read get the share of the memory of one that waits.
const (
	headsPer    = 4 // a worker's, from which on none is split
	splitBlocks = 4 // fewest blocks per task
	splitRows   = 8 // most rows of a job
)

// split cuts the work of a decode pass so and reports whether it did.
func (s *stream) split() bool {
	a, p, threads := &s.attn, &s.plan, s.threads()
	if threads == 1 || a.window > 0 {
		return false
	}
	heads, blocks, left := s.kvHeads(), 0, 0
	for i := range p.segs {
		g := &p.segs[i]
		if g.Rows*a.group > splitRows {
			return false
		}
		n := keyBlocks(g)
		blocks, left = max(blocks, n), left+n*heads
	}
	if len(p.segs)*heads >= headsPer*threads || blocks < 2*splitBlocks {
		return false
	}
	a.tasks, a.split = a.tasks[:0], a.split[:0]
	a.blocks = (blocks + 63) &^ 63 // few growths of what they need
	for i := range p.segs {
		g := &p.segs[i]
		n := keyBlocks(g)
		for h := range heads {
			t := task{seg: i, head: h, rows: g.Rows, b1: n, part: len(a.split)}
			if left >= threads*blocks || left/(2*threads) >= n/2 || n < 2*splitBlocks {
				a.tasks = append(a.tasks, t) // while it runs there is work for the others
				left -= n
				continue
			}
			a.split = append(a.split, t)
			for t.b1 = 0; t.b1 < n; {
				t.b0 = t.b1
				t.b1 += max(splitBlocks, left/(2*threads))
				if n-t.b1 < splitBlocks/2 {
					t.b1 = n
				}
				a.tasks = append(a.tasks, t)
				left -= t.b1 - t.b0
			}
		}
	}
	n := len(a.split) * a.blocks * splitRows
	if len(a.m) < n {
		a.m, a.l = aligned(n), aligned(n)
	}
	if len(a.o) < n*a.d {
		a.o = aligned(n * a.d)
	}
	return true
}

// keyBlocks is how many key blocks the rows of a segment see.
func keyBlocks(g *backend.Seg) int { return (g.Slot + g.Rows + backend.Page - 1) / backend.Page }

// triples returns where the partials of one block of a split head go.
func (a *attention) triples(part, block, rows int) (m, l, o []float32) {
	i := (part*a.blocks + block) * splitRows
	return a.m[i : i+rows], a.l[i : i+rows], a.o[i*a.d : (i+rows)*a.d]
}

func splitBody(s *stream, worker, chunk int) {
	a := &s.attn
	t := &a.tasks[chunk]
	if t.b0 == 0 && t.b1 == keyBlocks(&s.plan.segs[t.seg]) {
		attendBody(s, worker, chunk)
		return
	}
	j := s.job(worker, t)
	j.K, j.K16 = j.K[:min(t.b1, len(j.K))], j.K16[:min(t.b1, len(j.K16))] // the next page is another task's
	tmp := s.tmp(worker, attn.ScratchSize(j.Rows, j.D))
	s.dev.attn.Fetch(j, t.b0)
	for b := t.b0; b < t.b1; b++ {
		m, l, o := a.triples(t.part, b, j.Rows)
		s.dev.attn.Partials(j, b, m, l, o, tmp)
	}
}

func mergeBody(s *stream, worker, chunk int) {
	a := &s.attn
	t := &a.split[chunk]
	g := &s.plan.segs[t.seg]
	rows := g.Rows * a.group
	tmp := s.tmp(worker, attn.ScratchSize(rows, a.d)+(a.d+2)*splitRows)
	m, l := tmp[:rows], tmp[splitRows:splitRows+rows]
	o := tmp[2*splitRows : 2*splitRows+rows*a.d]
	rest := tmp[(2+a.d)*splitRows:]
	attn.Reset(m, l, o)
	for b := range keyBlocks(g) {
		mb, lb, ob := a.triples(chunk, b, rows)
		s.dev.attn.Merge(m, l, o, mb, lb, ob, a.d, rest)
	}
	for i := range g.Rows {
		out := a.out.v[(g.Row+i)*a.out.stride+t.head*a.group*a.out.stride2:]
		s.dev.attn.Finish(out, a.out.stride2, l[i*a.group:(i+1)*a.group], o[i*a.group*a.d:], a.d)
	}
}

func (s *stream) AttnWeights(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttnWeights("AttnWeights", dst, q, p, layer)) || !s.current(p) {
		return
	}
	a := &s.attn
	s.attend(q, q, layer, scale, window)
	if s.weights(dst); s.err == nil {
		a.dst.v = nil
		s.cutRows(0, s.plan.rows)
		s.run(len(a.tasks), weightsBody)
	}
	a.weighed()
}

func (s *stream) AttentionWeights(dst, w, q tensor.Tensor, p backend.Plan, first, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttentionWeights(dst, w, q, p, first, layer)) || !s.current(p) {
		return
	}
	a := &s.attn
	s.attend(dst, q, layer, scale, window)
	a.from = first
	if s.weights(w); s.err == nil && q.Dim(0) > 0 {
		s.cutRows(first, first+q.Dim(0))
		s.run(len(a.tasks), attendBody)
		a.result()
	}
	a.weighed()
}

// weights notes where the weights of the op under way go.
func (s *stream) weights(w tensor.Tensor) {
	a := &s.attn
	if a.w = s.host(w); s.err != nil {
		return
	}
	if a.w.gaps() {
		a.wTmp = grow(a.wTmp, a.w.rows*a.w.cols)
		a.wDst, a.w = a.w, a.w.dense(a.wTmp)
	}
}

// weighed moves the weights to their place and forgets them.
func (a *attention) weighed() {
	if a.wDst.v != nil {
		copyRows(&a.wDst, &a.w)
	}
	a.w, a.wDst = matrix{}, matrix{}
}

// weightsOf tells a job where its weights go, if they are wanted.
func (s *stream) weightsOf(j *attn.Job, t *task) {
	a := &s.attn
	if a.w.v == nil {
		return
	}
	j.W = a.w.v[(s.plan.segs[t.seg].Row+t.row-a.from)*a.w.stride+t.head*a.group*a.w.cols:]
	j.WStride, j.WSlots = a.w.stride, a.w.cols
}

func weightsBody(s *stream, worker, chunk int) {
	t := &s.attn.tasks[chunk]
	j := s.job(worker, t)
	s.weightsOf(j, t)
	s.dev.attn.Weights(j, s.tmp(worker, attn.ScratchSize(j.Rows, j.D)))
}

func (s *stream) AttnScores(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttnWeights("AttnScores", dst, q, p, layer)) || !s.current(p) {
		return
	}
	s.attend(dst, q, layer, scale, window)
	if s.err != nil {
		return
	}
	a := &s.attn
	a.perRow = dst.Dim(2)
	a.tasks = a.tasks[:0]
	for i := range s.plan.segs {
		for r := range s.plan.segs[i].Rows {
			for h := range s.kvHeads() {
				a.tasks = append(a.tasks, task{seg: i, head: h, row: r, rows: 1})
			}
		}
	}
	s.run(len(a.tasks), scoresBody)
	a.result()
}

func scoresBody(s *stream, worker, chunk int) {
	a := &s.attn
	t := &a.tasks[chunk]
	j := s.job(worker, t)
	g := &s.plan.segs[t.seg]
	first := (g.Row+t.row)*a.out.stride + t.head*a.group*a.out.stride2
	stride := a.out.stride2
	s.dev.attn.Scores(a.out.v[first:], stride, j, s.tmp(worker, attn.ScratchSize(j.Rows, j.D)))
	for i := range a.group {
		row := a.out.v[first+i*stride : first+i*stride+a.perRow]
		for k := range row {
			if k < int(j.Lo[i]) || k >= int(j.Hi[i]) {
				row[k] = float32(math.Inf(-1))
			}
		}
	}
}

func (s *stream) GetPage(dst, page tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPage("GetPage", dst, page)) || s.away(dst, page) {
		return
	}
	if page.DType() == tensor.BF16 {
		pageRows(dst, func(layer, head, slot int, rk, rv []float32) {
			k, v := pageHead16(page, layer, head)
			getSlot16(rk, rv, k, v, slot)
		})
		return
	}
	pageRows(dst, func(layer, head, slot int, rk, rv []float32) {
		k, v := pageHead(page, layer, head)
		for c := range rk {
			rk[c] = k[c*backend.Page+slot]
		}
		copy(rv, v[slot*len(rv):])
	})
}

func (s *stream) PutPage(page, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPage("PutPage", src, page)) || s.away(page, src) {
		return
	}
	if page.DType() == tensor.BF16 {
		pageRows(src, func(layer, head, slot int, rk, rv []float32) {
			k, v := pageHead16(page, layer, head)
			putSlot16(k, v, slot, rk, rv)
		})
		return
	}
	pageRows(src, func(layer, head, slot int, rk, rv []float32) {
		k, v := pageHead(page, layer, head)
		for c := range rk {
			k[c*backend.Page+slot] = rk[c]
		}
		copy(v[slot*len(rv):], rv)
	})
}

// pageRows calls f with the key and the value [D] that stand outside for each slot of
// each layer and head of a page.
func pageRows(rows tensor.Tensor, f func(layer, head, slot int, k, v []float32)) {
	for l := range rows.Dim(0) / 2 {
		for h := range rows.Dim(1) {
			ks, vs := rows.Index(2*l).Index(h), rows.Index(2*l+1).Index(h)
			for slot := range rows.Dim(2) {
				f(l, h, slot, ks.Row(slot), vs.Row(slot))
			}
		}
	}
}
