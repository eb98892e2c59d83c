package cpu

import (
	"math"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

var _ backend.ArchiveGrad = (*stream)(nil)

// scanGrad holds the operands of the gradient of an archive under way.
type scanGrad struct {
	dq, dk, dv, dy, q, k, v matrix
	kv                      int
	sums                    [6]scanSum
	block                   []int // by segment: its first block of rows
	jobs                    []scanJob
}

// scanSum is the gradient of a parameter: chains by block of rows and archive head,
// of so many values each. Without a gradient there are none.
type scanSum struct {
	to   []float32
	part []float32
	size int
}

const (
	sumCodes = iota
	sumMix
	sumCorrV
	sumCorrU
	sumCorrScale
	sumLandmark
)

// of is where a head's chains of a block go, nil if they are not wanted.
func (t *scanSum) of(block, heads, a int) []float32 {
	if t.to == nil {
		return nil
	}
	return t.part[(block*heads+a)*t.size:][:t.size]
}

func (s *stream) ArchiveScanGrad(d *backend.ArchiveGrads, dy, q, k, v tensor.Tensor, p backend.Plan, w *backend.ArchiveParams) {
	if s.err != nil || s.fails(backend.CheckArchiveScanGrad(d, dy, q, k, v, p, w)) || s.away(w.Codes, w.Mix, w.CorrV, w.CorrU, w.CorrScale, w.LandmarkMix) || !s.current(p) {
		return
	}
	o, a := &s.grad.scan, &s.arch
	o.dq, o.dk, o.dv, o.dy, o.q, o.k, o.v = s.host(d.Q), s.host(d.K), s.host(d.V), s.host(dy), s.host(q), s.host(k), s.host(v)
	a.scan, a.heads, a.d, o.kv = w, w.Codes.Dim(0), q.Dim(2), k.Dim(1)
	o.block = o.block[:0]
	blocks := 0
	for i := range s.plan.segs {
		o.block = append(o.block, blocks)
		blocks += (s.plan.segs[i].Rows + backend.RowBlock - 1) / backend.RowBlock
	}
	for i, t := range [6]tensor.Tensor{d.Codes, d.Mix, d.CorrV, d.CorrU, d.CorrScale, d.LandmarkMix} {
		c := &o.sums[i]
		if c.to = nil; t.Valid() {
			c.to = s.vector(t)
			c.size = len(c.to) / a.heads
			c.part = grow(c.part, blocks*len(c.to))
			clear(c.part)
		}
	}
	if s.err != nil {
		return
	}
	s.needHeads()
	if o.jobs == nil {
		o.jobs = make([]scanJob, s.threads())
	}
	s.run(len(s.plan.segs)*o.kv, scanGradBody)
	for i := range o.sums {
		if c := &o.sums[i]; c.to != nil {
			for b := range blocks {
				s.dev.vec.Add(c.to, c.to, c.part[b*len(c.to):(b+1)*len(c.to)])
			}
		}
	}
}

// scanGradBody does the archive heads of one key head of one segment, whose sums for
// the key head are in their order.
func scanGradBody(s *stream, worker, chunk int) {
	o, a := &s.grad.scan, &s.arch
	seg, kv := chunk/o.kv, chunk%o.kv
	per := a.heads / o.kv
	for head := kv * per; head < (kv+1)*per; head++ {
		j := &o.jobs[worker]
		j.open(s, worker, seg, head, kv)
		j.forward()
		j.backward()
		j.codeSums()
	}
}

// scanJob is one archive head of one sequence. Values by scale and code lie with the
// codes of a scale side by side, [S, M].
type scanJob struct {
	h                *head
	o                *scanGrad
	g                *backend.Seg
	kv, group, block int // key head, query heads, first block of rows
	from, rows, ms   int // first row with an archive, rows with one

	codes                  []float32 // [M, D]
	corrU, corrV, scale    []float32 // turned: [D, R], [R, D], [S, R]
	one, fade              []float32 // decays [S, M], and of every component [D, S, M]
	num, den               []float32 // [D, S, M], [S, M]
	back, turned, backDen  []float32 // gradient of the sums [S, M, D], [D, S, M] and [S, M]
	mix, b, t, w, add, acc []float32 // [S, M]
	f, p, power, dw        []float32 // [M]
	row                    []float32 // [D]
	u, dz, tr              []float32 // [R]
	logit                  []float32 // sums of a block [S, M], [R, D]
	sumV                   []float32

	// By row with an archive.
	weight, slope, hard, event []float32 // [M]
	// And by query head.
	score            []float32 // [M]
	numBack, denBack []float32 // [S, M]
	resp             []float32 // [D], with landmarks
}

func (j *scanJob) open(s *stream, worker, seg, a, kv int) {
	o := &s.grad.scan
	h := s.setUp(worker, a)
	*j = scanJob{h: h, o: o, g: &s.plan.segs[seg], kv: kv, group: o.q.heads / s.arch.heads, block: o.block[seg]}
	m, n, d, r := h.m, h.n, h.d, h.rank
	j.ms = m * n
	j.from = min(h.w.Window+h.w.Sinks, j.g.Rows)
	j.rows = j.g.Rows - j.from
	land := h.w.Landmarks != backend.NoLandmarks
	marks, resp := 0, 0
	if land {
		marks, resp = m, j.rows*j.group*d
	}
	need := m*d + 3*r*d + n*r + 9*j.ms + max(j.ms, d, r) + 4*j.ms*d + 4*m + d + 3*r + marks*(2*d+1) + resp + j.rows*(4*m+j.group*(m+2*j.ms))
	tmp := s.tmp(worker, need+16*40)
	take := func(n int) []float32 {
		v := tmp[:n:n]
		tmp = tmp[(n+15)&^15:]
		return v
	}
	j.codes, j.corrU, j.corrV, j.scale = take(m*d), take(r*d), take(r*d), take(n*r)
	for _, v := range []*[]float32{&j.one, &j.den, &j.backDen, &j.mix, &j.b, &j.t, &j.w, &j.add} {
		*v = take(j.ms)
	}
	j.acc, j.logit = take(max(j.ms, d, r)), take(j.ms)
	j.fade, j.num, j.back, j.turned = take(j.ms*d), take(j.ms*d), take(j.ms*d), take(j.ms*d)
	j.f, j.p, j.power, j.dw = take(m), take(m), take(m), take(m)
	j.row, j.u, j.dz, j.tr, j.sumV = take(d), take(r), take(r), take(r), take(r*d)
	j.weight, j.slope, j.hard, j.event = take(j.rows*m), take(j.rows*m), take(j.rows*m), take(j.rows*m)
	j.score, j.numBack, j.denBack, j.resp = take(j.rows*j.group*m), take(j.rows*j.group*j.ms), take(j.rows*j.group*j.ms), take(resp)
	h.landKey, h.landValue, h.landScore = take(marks*d), take(marks*d), take(marks)
	for _, v := range [][]float32{j.num, j.den, j.back, j.turned, j.backDen, j.logit, j.sumV, h.landKey, h.landValue} {
		clear(v)
	}
	for i := range h.landScore {
		h.landScore[i] = float32(math.Inf(-1))
	}
	for i, r := range h.w.Decay {
		for c := range m {
			j.one[i*m+c] = r
		}
	}
	for i := range d {
		copy(j.fade[i*j.ms:], j.one)
	}
	turn(j.codes, h.codes, d, m) // h.codes is turned already
	turn(j.corrU, h.corrU, r, d)
	turn(j.corrV, h.corrV, d, r)
	turn(j.scale, h.corrScale, r, n)
	turn(j.mix, h.mix, m, n)
}

// turn transposes x of so many rows and columns.
func turn(dst, x []float32, rows, cols int) {
	for r := range rows {
		for c := range cols {
			dst[c*rows+r] = x[r*cols+c]
		}
	}
}

// address, value and so on are rows of a segment's heads.
func (j *scanJob) at(m *matrix, row, head int) []float32 {
	return m.row((j.g.Row+row)*m.heads + head)
}

// query is the q-th query head of the archive head.
func (j *scanJob) query(q int) int { return j.h.a*j.group + q }

// nth is row i of memory by row with an archive.
func nth(v []float32, i, n int) []float32 { return v[i*n:][:n] }

// dots writes dst = DOT over k of (w[k], x[k, ·]).
func (j *scanJob) dots(dst, w, x []float32) {
	const block = 128
	v, n := j.h.s.dev.vec, len(dst)
	if len(w) <= block {
		v.MixRows(dst, w, x)
		return
	}
	clear(dst)
	for b := 0; b < len(w); b += block {
		acc := j.acc[:n]
		v.MixRows(acc, w[b:min(b+block, len(w))], x[b*n:])
		v.Add(dst, dst, acc)
	}
}

// mixed writes dst[m] = DOT over s of (x[s, m], y[s, m]).
func (j *scanJob) mixed(dst, x, y []float32) {
	const block = 128
	v, m := j.h.s.dev.vec, j.h.m
	clear(dst)
	for b := 0; b < j.h.n; b += block {
		acc := j.acc[:m]
		clear(acc)
		for s := b; s < min(b+block, j.h.n); s++ {
			v.FMA(acc, x[s*m:(s+1)*m], y[s*m:])
		}
		v.Add(dst, dst, acc)
	}
}

// forward runs over the rows: it forms the state again and takes the reads back.
func (j *scanJob) forward() {
	h := j.h
	v, m := h.s.dev.vec, h.m
	for i := range j.rows {
		row := j.from + i
		k, value := j.at(&j.o.k, row-h.w.Window, j.kv), j.at(&j.o.v, row-h.w.Window, j.kv)
		h.scores(k)
		j.slopes(i, k)
		if len(h.landScore) > 0 {
			copy(h.k, k)
			copy(h.v, value)
			h.landmark(i)
		}
		j.adds(i)
		v.Mul(j.num, j.num, j.fade)
		h.s.dev.deltaGrad.Update(j.num, value, j.add)
		v.Mul(j.den, j.den, j.one)
		v.Add(j.den, j.den, j.add)
		for q := range j.group {
			j.read(i, q)
		}
		if row%backend.RowBlock == backend.RowBlock-1 || row == j.g.Rows-1 {
			j.flush(j.block+row/backend.RowBlock, m)
		}
	}
}

// adds writes what an event adds to the denominators.
func (j *scanJob) adds(i int) {
	m := j.h.m
	for s, g := range j.h.w.Gain {
		j.h.s.dev.vec.Scale(j.add[s*m:(s+1)*m], nth(j.weight, i, m), g)
	}
}

// inside reports whether the clip leaves x alone.
func inside(x float32) bool { return !(x < -20) && !(x > 10) }

// slopes notes the weights of an event and their derivatives.
func (j *scanJob) slopes(i int, k []float32) {
	h := j.h
	weight, slope, hard := nth(j.weight, i, h.m), nth(j.slope, i, h.m), nth(j.hard, i, h.m)
	h.weights(weight, k)
	clear(hard)
	for c, l := range h.l {
		w, shut := weight[c], h.w.Gated && l < h.w.Threshold
		if shut {
			weight[c] = 0
		} else if inside(h.x[c]) {
			hard[c] = w
		}
		slope[c] = hard[c]
		if h.w.Gated {
			g := canon.Sigmoid((l - h.w.Threshold) * 10)
			slope[c] += float32(float32(w*float32(g*(1-g))) * 10)
		}
	}
}

// read takes a read back as far as the state: it adds the gradient of its query.
func (j *scanJob) read(i, q int) {
	h := j.h
	v, w, m, n := h.s.dev.vec, h.w, h.m, h.n
	row := j.from + i
	x, dq, resp := j.at(&j.o.q, row, j.query(q)), j.at(&j.o.dq, row, j.query(q)), j.at(&j.o.dy, row, j.query(q))
	land, recalled, weight := false, float32(0), float32(0)
	if len(h.landScore) > 0 {
		to := nth(j.resp, i*j.group+q, h.d)
		copy(to, resp)
		resp = to
		land, recalled, weight = j.recall(dq, x, resp)
	}
	if h.rank > 0 {
		v.MixRows(h.z, x, h.corrV)
		v.MixRows(h.delta, h.z, h.corrScale)
		h.mixScales()
		turn(j.mix, h.mix, m, n)
	}
	h.scores(x)
	phi, score := h.phi, nth(j.score, i*j.group+q, m)
	if w.PerCode {
		v.Softmax(phi, h.l)
	} else {
		h.weights(phi, x)
	}
	num, den := nth(j.numBack, i*j.group+q, j.ms), nth(j.denBack, i*j.group+q, j.ms)
	j.dots(j.b, resp, j.num)
	for s := range n {
		v.Mul(j.w[s*m:(s+1)*m], j.mix[s*m:], phi)
	}
	value := float32(0)
	if w.PerCode {
		for c, b := range j.b {
			inv := 1 / greater(j.den[c], 1e-8)
			j.t[c], num[c], den[c] = float32(b*inv), float32(j.w[c]*inv), 0
			if !(j.den[c] < 1e-8) {
				den[c] = -float32(num[c] * j.t[c])
			}
		}
	} else {
		j.mixed(j.f, j.mix, j.den)
		j.mixed(j.p, j.mix, j.b)
		mass, slope := dot(phi, j.f), float32(0)
		inv := 1 / greater(mass, 1e-8)
		value = float32(dot(phi, j.p) * inv)
		if !(mass < 1e-8) {
			slope = -float32(value * inv)
		}
		v.Scale(j.t, j.den, slope)
		v.FMAScalar(j.t, inv, j.b)
		v.Scale(num, j.w, inv)
		v.Scale(den, j.w, slope)
	}
	j.mixed(j.p, j.mix, j.t)
	for s := range n {
		v.Sub(j.t[s*m:(s+1)*m], j.t[s*m:], j.p)
	}
	v.Mul(j.t, j.t, j.w)
	v.Add(j.logit, j.logit, j.t)
	if w.PerCode {
		value = dot(phi, j.p)
	}
	for c, p := range j.p {
		switch {
		case w.PerCode:
			score[c] = float32(float32((p-value)*phi[c]) * w.Scale)
		case inside(h.x[c]):
			score[c] = float32(float32(p*phi[c]) * w.Scale)
		default:
			score[c] = 0
		}
	}
	j.through(dq, x, score, score, w.Features && !w.PerCode)
	if h.rank > 0 {
		value += j.correction(dq, x, resp, row)
	}
	if land {
		if to := j.o.sums[sumLandmark].of(j.block+row/backend.RowBlock, h.s.arch.heads, h.a); to != nil {
			to[0] += float32(float32(float32((1-weight)*recalled)-value) * weight)
		}
	}
}

// through adds to dx the gradient of x through the scores DOT(x, c_m) and, with
// features, through |x|² by the part power of it.
func (j *scanJob) through(dx, x, score, power []float32, features bool) {
	v := j.h.s.dev.vec
	j.dots(j.row, score, j.codes)
	if features {
		v.FMAScalar(j.row, -v.Sum(power), x)
	}
	v.Add(dx, dx, j.row)
}

// correction adds the gradient of a query through its latent values, and to the
// chains of the correction's parameters.
func (j *scanJob) correction(dq, x, resp []float32, row int) float32 {
	h, u := j.h, j.h.s.dev.deltaGrad
	const block = 128
	v, m := h.s.dev.vec, h.m
	for s := range h.delta { // a chain of adds over the codes
		total := float32(0)
		for b := 0; b < m; b += block {
			acc := float32(0)
			for _, t := range j.t[s*m+b : s*m+min(b+block, m)] {
				acc += t
			}
			total += acc
		}
		h.delta[s] = total
	}
	j.dots(j.u, resp, j.corrU)
	j.dots(j.tr, h.delta, j.scale)
	v.Add(j.dz, j.u, j.tr)
	j.dots(j.row, j.dz, j.corrV)
	v.Add(dq, dq, j.row)
	b, heads := j.block+row/backend.RowBlock, h.s.arch.heads
	u.Update(j.sumV, j.dz, x)
	if to := j.o.sums[sumCorrU].of(b, heads, h.a); to != nil {
		u.Update(to, h.z, resp)
	}
	if to := j.o.sums[sumCorrScale].of(b, heads, h.a); to != nil {
		u.Update(to, h.z, h.delta)
	}
	return dot(h.z, j.u)
}

// recall takes a blend with landmarks back: resp, the gradient of the result, becomes
// that of the response. With landmarks whose weight a is a parameter it returns
// DOT(resp, recalled) as y.
func (j *scanJob) recall(dq, q, resp []float32) (land bool, y, a float32) {
	h := j.h
	v, filled := h.s.dev.vec, false
	for c := range h.x {
		h.x[c] = -1e9
		if h.landScore[c] != float32(math.Inf(-1)) {
			filled = true
			h.x[c] = float32(float32(dot(q, h.landKey[c*h.d:(c+1)*h.d])*h.w.Scale) * h.w.LandmarkTemp)
		}
	}
	if !filled {
		return false, 0, 0
	}
	v.Softmax(h.x, h.x)
	if a = 1; h.w.Landmarks == backend.PersistentLandmarks {
		mix, _ := h.w.LandmarkMix.F32()
		a = canon.Sigmoid(mix[h.a])
	}
	j.dots(j.row, h.x, h.landValue)
	y = dot(resp, j.row)
	for c := range j.f {
		j.f[c] = dot(resp, h.landValue[c*h.d:(c+1)*h.d])
	}
	top := dot(h.x, j.f)
	for c, p := range h.x {
		j.f[c] = float32(float32(float32(float32((j.f[c]-top)*p)*a)*h.w.LandmarkTemp) * h.w.Scale)
	}
	j.dots(j.row, j.f, h.landKey)
	v.Add(dq, dq, j.row)
	v.Scale(resp, resp, 1-a)
	return h.w.Landmarks == backend.PersistentLandmarks, y, a
}

// flush ends the chains of a block of rows.
func (j *scanJob) flush(block, m int) {
	h := j.h
	if to := j.o.sums[sumMix].of(block, h.s.arch.heads, h.a); to != nil {
		turn(to, j.logit, h.n, m)
	}
	if to := j.o.sums[sumCorrV].of(block, h.s.arch.heads, h.a); to != nil {
		turn(to, j.sumV, h.rank, h.d)
	}
	clear(j.logit)
	clear(j.sumV)
}

// backward runs back over the rows with the gradient of the sums.
func (j *scanJob) backward() {
	h := j.h
	v, u, m, md := h.s.dev.vec, h.s.dev.deltaGrad, h.m, h.m*h.d
	for i := j.rows - 1; i >= 0; i-- {
		row := j.from + i
		slot := row - h.w.Window
		for s, r := range h.w.Decay {
			v.Scale(j.back[s*md:(s+1)*md], j.back[s*md:], r)
		}
		v.Mul(j.turned, j.turned, j.fade)
		v.Mul(j.backDen, j.backDen, j.one)
		for q := range j.group {
			resp, num := j.at(&j.o.dy, row, j.query(q)), nth(j.numBack, i*j.group+q, j.ms)
			if len(h.landScore) > 0 {
				resp = nth(j.resp, i*j.group+q, h.d)
			}
			u.Update(j.back, num, resp)
			u.Update(j.turned, resp, num)
			v.Add(j.backDen, j.backDen, nth(j.denBack, i*j.group+q, j.ms))
		}
		k, value := j.at(&j.o.k, slot, j.kv), j.at(&j.o.v, slot, j.kv)
		j.adds(i)
		j.dots(j.row, j.add, j.back)
		d := j.at(&j.o.dv, slot, j.kv)
		v.Add(d, d, j.row)
		j.dots(j.t, value, j.turned)
		v.Add(j.t, j.t, j.backDen)
		j.dots(j.dw, h.w.Gain, j.t)
		score := nth(j.event, i, m)
		v.Mul(score, j.dw, nth(j.slope, i, m))
		v.Scale(score, score, h.w.Scale)
		v.Mul(j.power, j.dw, nth(j.hard, i, m))
		v.Scale(j.power, j.power, h.w.Scale)
		j.through(j.at(&j.o.dk, slot, j.kv), k, score, j.power, h.w.Features)
	}
}

// codeSums forms the chains of the codes' gradient: in each row those of the reads,
// then that of the event.
func (j *scanJob) codeSums() {
	h := j.h
	for i := range j.rows {
		row := j.from + i
		to := j.o.sums[sumCodes].of(j.block+row/backend.RowBlock, h.s.arch.heads, h.a)
		if to == nil {
			return
		}
		for q := range j.group {
			h.s.dev.deltaGrad.Update(to, nth(j.score, i*j.group+q, h.m), j.at(&j.o.q, row, j.query(q)))
		}
		h.s.dev.deltaGrad.Update(to, nth(j.event, i, h.m), j.at(&j.o.k, row-h.w.Window, j.kv))
	}
}
