package cpu

import (
	"math"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

func (s *stream) ArchiveScan(dst, q tensor.Tensor, p backend.Plan, layer int, w *backend.ArchiveParams) {
	if s.err != nil || s.fails(backend.CheckArchiveScan(dst, q, p, layer, w)) || s.away(w.Codes, w.Mix, w.CorrV, w.CorrU, w.CorrScale, w.LandmarkMix) || !s.current(p) {
		return
	}
	o := &s.arch
	o.q, o.dst, o.scan, o.layer = s.host(q), s.host(dst), w, layer
	if s.err != nil {
		return
	}
	o.heads, o.d = w.Codes.Dim(0), q.Dim(2)
	s.needHeads()
	o.again = o.again[:0]
	for i := range s.plan.segs { // whether to read is decided for all heads of a row together
		o.again = append(o.again, w.Reuse && s.reuse(&s.plan.segs[i]))
	}
	s.run(len(s.plan.segs)*o.heads, scanBody)
	for i := range s.plan.segs {
		if w.Reuse && !o.again[i] {
			s.keep(&s.plan.segs[i])
		}
	}
}

// head is an archive head of one sequence and what a worker needs for it.
type head struct {
	s *stream
	w *backend.ArchiveParams
	g *backend.Seg

	a, m, n, d, rank int       // head, codes, scales, width
	codes            []float32 // [D, M]: lanes run over codes
	corrV, corrU     []float32
	corrScale        []float32
	logits           []float32 // [M, S]

	num, den, last                []float32
	landKey, landValue, landScore []float32

	k, v      []float32 // event
	l, x, phi []float32 // [M]
	mix       []float32 // [M, S]
	z, delta  []float32 // [R], [S]
	u, row    []float32 // [D], [M·D]
	f, sum    []float32 // [M]
	in        []bool    // [M]

	decay, gain, add, values []float32 // [S, D]: what the scales of one code are updated by
}

// layerOf returns a layer's values of one head of a bank's tensor, nil if there are
// none.
func layerOf(t tensor.Tensor, layer, head int) []float32 {
	if !t.Valid() {
		return nil
	}
	v, _ := t.Index(layer).Index(head).F32()
	return v
}

// carried is layerOf after copying the state that the pass begins with; before the
// first row that is fill.
func carried(g *backend.Seg, in, out tensor.Tensor, layer, head int, fill float32) []float32 {
	o := layerOf(out, layer, head)
	if g.Slot > 0 {
		copy(o, layerOf(in, layer, head))
		return o
	}
	for i := range o {
		o[i] = fill
	}
	return o
}

// needHeads makes room for every worker's head.
func (s *stream) needHeads() {
	if o := &s.arch; o.head == nil {
		o.head, o.open = make([][]float32, s.threads()), make([]head, s.threads())
	}
}

// openHead sets up a head with the state of a segment.
func (s *stream) openHead(worker int, g *backend.Seg, a int) *head {
	h := s.setUp(worker, a)
	h.g = g
	o, in, out := &s.arch, &g.Archive.In, &g.Archive.Out
	h.num, h.den = carried(g, in.Num, out.Num, o.layer, a, 0), carried(g, in.Den, out.Den, o.layer, a, 0)
	h.last = carried(g, in.Last, out.Last, o.layer, a, 0)
	h.landKey, h.landValue = carried(g, in.LandKey, out.LandKey, o.layer, a, 0), carried(g, in.LandValue, out.LandValue, o.layer, a, 0)
	h.landScore = carried(g, in.LandScore, out.LandScore, o.layer, a, float32(math.Inf(-1)))
	return h
}

// setUp makes a head without a state; the worker's memory holds its scratch.
func (s *stream) setUp(worker, a int) *head {
	o := &s.arch
	w, h := o.scan, &o.open[worker]
	*h = head{s: s, w: w, a: a, m: w.Codes.Dim(1), n: len(w.Decay), d: o.d, in: h.in[:0]}
	values := func(t tensor.Tensor) []float32 {
		if !t.Valid() {
			return nil
		}
		v, _ := t.Index(a).F32()
		return v
	}
	h.corrV, h.corrU, h.corrScale, h.logits = values(w.CorrV), values(w.CorrU), values(w.CorrScale), values(w.Mix)
	if h.corrV != nil {
		h.rank = w.CorrV.Dim(2)
	}
	need := h.m*h.d*2 + 3*h.d + 5*h.m + h.m*h.n + h.rank + h.n + 4*h.n*h.d
	o.head[worker] = grow(o.head[worker], need)
	tmp := o.head[worker]
	take := func(n int) []float32 {
		v := tmp[:n:n]
		tmp = tmp[n:]
		return v
	}
	h.codes, h.row = take(h.m*h.d), take(h.m*h.d)
	h.k, h.v, h.u = take(h.d), take(h.d), take(h.d)
	h.l, h.x, h.phi, h.f, h.sum = take(h.m), take(h.m), take(h.m), take(h.m), take(h.m)
	h.mix, h.z, h.delta = take(h.m*h.n), take(h.rank), take(h.n)
	h.decay, h.gain, h.add, h.values = take(h.n*h.d), take(h.n*h.d), take(h.n*h.d), take(h.n*h.d)
	for i, r := range w.Decay {
		for d := range h.d {
			h.decay[i*h.d+d], h.gain[i*h.d+d] = r, w.Gain[i]
		}
	}
	c := values(w.Codes)
	for m := range h.m {
		for d := range h.d {
			h.codes[d*h.m+m] = c[m*h.d+d]
		}
	}
	if h.rank == 0 {
		h.mixScales()
	}
	return h
}

func scanBody(s *stream, worker, chunk int) {
	o := &s.arch
	g := &s.plan.segs[chunk/o.heads]
	h := s.openHead(worker, g, chunk%o.heads)
	group := o.q.heads / o.heads
	again := o.again[chunk/o.heads]
	for i := range g.Rows {
		events := o.scan.Events(g.Slot + i + 1)
		if events > 0 {
			h.event(i)
			h.write(events - 1)
		}
		for j := h.a * group; j < (h.a+1)*group; j++ {
			r := (g.Row+i)*o.q.heads + j
			switch {
			case events == 0:
				clear(o.dst.row(r))
			case again:
				copy(o.dst.row(r), layerOf(g.Archive.Out.ReadValue, o.layer, j))
			default:
				h.read(o.dst.row(r), o.q.row(r), events)
			}
		}
	}
}

// reuse carries the last read of a sequence over and reports whether it serves the
// pass's only row (numerics.md 16.5).
func (s *stream) reuse(g *backend.Seg) bool {
	o := &s.arch
	w, in, out := o.scan, &g.Archive.In, &g.Archive.Out
	for h := range o.q.heads {
		carried(g, in.ReadQuery, out.ReadQuery, o.layer, h, 0)
		carried(g, in.ReadValue, out.ReadValue, o.layer, h, 0)
	}
	mark := s.mark(g, out)
	clear(mark)
	if g.Slot > 0 {
		copy(mark, s.mark(g, in))
	}
	if g.Rows > 1 || mark[0] == 0 || w.Events(g.Slot+1) == 0 {
		return false
	}
	if w.Stride != 1 && g.Slot%w.Stride != 0 {
		return true
	}
	close := w.Close
	for h := 0; h < o.q.heads && close; h++ {
		close = !(s.cosine(o.q.row(g.Row*o.q.heads+h), layerOf(out.ReadQuery, o.layer, h)) < w.Closeness)
	}
	return close
}

func (s *stream) mark(g *backend.Seg, b *backend.ArchiveBank) []float32 {
	v, _ := b.ReadMark.Index(s.arch.layer).F32()
	return v
}

// keep notes the reads of a pass: one row's is kept, those of more rows are not.
func (s *stream) keep(g *backend.Seg) {
	o, out := &s.arch, &g.Archive.Out
	mark := s.mark(g, out)
	reads := o.scan.Events(g.Slot+g.Rows) - o.scan.Events(g.Slot)
	mark[1] += float32(reads)
	if g.Rows == 1 && reads == 0 {
		return
	}
	mark[0] = 0
	if g.Rows == 1 {
		mark[0] = 1
	}
	for h := range o.q.heads {
		q, v := layerOf(out.ReadQuery, o.layer, h), layerOf(out.ReadValue, o.layer, h)
		if g.Rows > 1 {
			clear(q)
			clear(v)
			continue
		}
		copy(q, o.q.row(g.Row*o.q.heads+h))
		copy(v, o.dst.row(g.Row*o.q.heads+h))
	}
}

// dot is DOT of two vectors: one chain, so lanes do not help.
func dot(x, y []float32) float32 {
	const block = 128
	total := float32(0)
	for b := 0; b < len(x); b += block {
		acc := float32(0)
		for k := b; k < min(b+block, len(x)); k++ {
			acc = canon.FMA32(x[k], y[k], acc)
		}
		total += acc
	}
	return total
}

func (s *stream) length(x []float32) float32 { return canon.Sqrt(s.dev.vec.SumSquares(x)) }

func (s *stream) cosine(x, y []float32) float32 {
	return dot(x, y) / greater(s.length(x)*s.length(y), 1e-12)
}

// event gathers the address and the value that leave the window at a row.
func (h *head) event(row int) {
	a := h.g.Archive
	j := a.Slot + row - h.w.Window
	page, slot := a.Window[j/backend.Page], j%backend.Page
	kv, layer := h.a/(h.s.arch.heads/page.Dim(1)), h.s.arch.layer
	if a.Raw > 0 {
		getPlane(h.k, page, a.Raw+layer, kv, slot)
	} else {
		getPlane(h.k, page, 2*layer, kv, slot)
	}
	if h.w.Lexical {
		copy(h.v, h.k)
	} else {
		getPlane(h.v, page, 2*layer+1, kv, slot)
	}
}

// scores writes l = DOT(x, c_m)·scale.
func (h *head) scores(x []float32) {
	h.s.dev.vec.MixRows(h.l, x, h.codes)
	h.s.dev.vec.Scale(h.l, h.l, h.w.Scale)
}

// exponents writes the scores to h.x, in features less a term of |x|².
func (h *head) exponents(x []float32) {
	copy(h.x, h.l)
	if h.w.Features {
		n := float32(h.s.dev.vec.SumSquares(x) * (h.w.Scale / 2))
		for m := range h.x {
			h.x[m] -= n
		}
	}
}

// weights writes exp(clip(·)) of the exponents of x.
func (h *head) weights(dst, x []float32) {
	h.exponents(x)
	for m, l := range h.x {
		dst[m] = lesser(greater(l, -20), 10)
	}
	h.s.dev.vec.Exp(dst[:h.m], dst)
}

// choose marks the n largest scores; the lower index wins ties, NaN comes last.
func (h *head) choose(n int) {
	if cap(h.in) < h.m {
		h.in = make([]bool, h.m)
	}
	h.in = h.in[:h.m]
	clear(h.in)
	for range n {
		best := -1
		for m, l := range h.l {
			if h.in[m] {
				continue
			}
			if best < 0 || l > h.l[best] || (h.l[best] != h.l[best] && l == l) {
				best = m
			}
		}
		h.in[best] = true
	}
}

// write adds the event number e.
func (h *head) write(e int) {
	h.scores(h.k)
	h.landmark(e)
	h.weights(h.phi, h.k)
	w, v := h.w, h.s.dev.vec
	if w.Lazy {
		h.choose(w.Active)
	} else {
		for s := range h.n {
			copy(h.values[s*h.d:], h.v)
		}
	}
	for m, weight := range h.phi {
		shut := w.Gated && h.l[m] < w.Threshold
		if w.Lazy && (shut || !h.in[m]) {
			continue
		}
		if shut {
			weight = 0
		}
		if !w.Lazy { // all scales of the code side by side
			num := h.num[m*h.n*h.d : (m+1)*h.n*h.d]
			v.Scale(h.add, h.gain, weight)
			v.Mul(num, num, h.decay)
			v.FMA(num, h.add, h.values)
			for s, r := range w.Decay {
				i := m*h.n + s
				h.den[i] = float32(h.den[i]*r) + h.add[s*h.d]
			}
			continue
		}
		for s, r := range w.Decay {
			r = float32(canon.Power(float64(r), e+1-int(h.last[m])))
			i := m*h.n + s
			add := float32(weight * w.Gain[s])
			h.den[i] = float32(h.den[i]*r) + add
			num := h.num[i*h.d : (i+1)*h.d]
			v.Scale(num, num, r)
			v.FMAScalar(num, add, h.v)
		}
		h.last[m] = float32(e + 1)
	}
}

func (h *head) landmark(e int) {
	put := func(m int, score float32) {
		copy(h.landKey[m*h.d:(m+1)*h.d], h.k)
		copy(h.landValue[m*h.d:(m+1)*h.d], h.v)
		h.landScore[m] = score
	}
	switch h.w.Landmarks {
	case backend.PersistentLandmarks:
		for m, l := range h.l {
			if l > h.landScore[m] && !(h.w.Gated && l < h.w.Threshold) {
				put(m, l)
			}
		}
	case backend.PrefixLandmarks, backend.PairLandmarks:
		if e >= h.m {
			return
		}
		top := float32(math.Inf(-1))
		for _, l := range h.l {
			top = greater(top, l)
		}
		put(e, top)
		if h.w.Landmarks == backend.PairLandmarks && e > 0 {
			copy(h.landValue[(e-1)*h.d:e*h.d], h.v)
		}
	}
}

// mixScales writes the softmax over scales of every code, with the query's
// correction if there is one.
func (h *head) mixScales() {
	if h.n > 32 {
		for m := range h.m {
			h.s.dev.vec.Softmax(h.mix[m*h.n:(m+1)*h.n], h.shifted(m))
		}
		return
	}
	for m := range h.m { // one call for the exponentials of all codes
		mix, top := h.shifted(m), float32(math.Inf(-1))
		for _, x := range mix {
			top = greater(top, x)
		}
		for s := range mix {
			mix[s] -= top
		}
	}
	h.s.dev.vec.Exp(h.mix, h.mix)
	for m := range h.m {
		mix := h.mix[m*h.n : (m+1)*h.n]
		r := 1 / fold(mix)
		for s := range mix {
			mix[s] *= r
		}
	}
}

// shifted writes the logits of a code's scales.
func (h *head) shifted(m int) []float32 {
	mix := h.mix[m*h.n : (m+1)*h.n]
	copy(mix, h.logits[m*h.n:(m+1)*h.n])
	if h.rank > 0 {
		for s := range mix {
			mix[s] += h.delta[s]
		}
	}
	return mix
}

// fold is RSUM of at most 32 values: one in each lane.
func fold(x []float32) float32 {
	if len(x) == 4 {
		return 0 + ((x[0] + x[2]) + (x[1] + x[3]))
	}
	var lane [32]float32
	copy(lane[:], x)
	for h := 16; h > 0; h /= 2 {
		for j := range h {
			lane[j] += lane[j+h]
		}
	}
	return 0 + lane[0]
}

// read writes the response to q after so many events.
func (h *head) read(dst, q []float32, events int) {
	v := h.s.dev.vec
	if h.rank > 0 {
		h.s.dev.vec.MixRows(h.z, q, h.corrV)
		h.s.dev.vec.MixRows(h.delta, h.z, h.corrScale)
		h.mixScales()
	}
	h.scores(q)
	perCode, phi, n := h.w.PerCode, h.phi, h.m
	sparse := h.w.Active > 0 && h.w.Active < h.m
	if sparse {
		perCode = h.w.SparsePerCode
		h.choose(h.w.Active)
	}
	if !perCode {
		h.weights(phi, q)
	} else {
		copy(phi, h.l)
	}
	if sparse { // the chosen codes side by side
		n = 0
		for m, in := range h.in {
			if in {
				phi[n] = phi[m]
				h.code(h.row[n*h.d:(n+1)*h.d], &h.f[n], m, events, perCode)
				n++
			}
		}
	} else {
		for m := range h.m {
			h.code(h.row[m*h.d:(m+1)*h.d], &h.f[m], m, events, perCode)
		}
		if !perCode && !h.w.Lazy {
			h.denominators()
		}
	}
	if perCode {
		v.Softmax(phi[:n], phi[:n])
	}
	h.s.dev.vec.MixRows(dst, phi[:n], h.row)
	if !perCode {
		v.Scale(dst, dst, 1/greater(dot(phi[:n], h.f[:n]), 1e-8))
	}
	if h.rank > 0 {
		h.s.dev.vec.MixRows(h.u, h.z, h.corrU)
		v.Add(dst, dst, h.u)
	}
	h.recall(dst, q)
}

// code mixes the scales of one code.
func (h *head) code(u []float32, f *float32, m, events int, perCode bool) {
	mix := h.mix[m*h.n : (m+1)*h.n]
	num, den := h.num[m*h.n*h.d:(m+1)*h.n*h.d], h.den[m*h.n:(m+1)*h.n]
	if !h.w.Lazy && !perCode {
		h.s.dev.vec.MixRows(u, mix, num)
		if h.w.Active > 0 && h.w.Active < h.m { // else all at once
			*f = dot(mix, den)
		}
		return
	}
	n, d := append([]float32(nil), num...), append([]float32(nil), den...)
	for s, r := range h.w.Decay {
		row := n[s*h.d : (s+1)*h.d]
		if h.w.Lazy {
			r = float32(canon.Power(float64(r), events-int(h.last[m])))
			d[s] *= r
			h.s.dev.vec.Scale(row, row, r)
		}
		if perCode {
			h.s.dev.vec.Scale(row, row, 1/greater(d[s], 1e-8))
		}
	}
	h.s.dev.vec.MixRows(u, mix, n)
	*f = dot(mix, d)
}

// denominators mixes the scales of all codes' denominators: lanes run over codes. It
// uses the scores' memory.
func (h *head) denominators() {
	const block = 128
	v := h.s.dev.vec
	clear(h.f)
	for b := 0; b < h.n; b += block {
		clear(h.sum)
		for s := b; s < min(b+block, h.n); s++ {
			for m := range h.m {
				h.l[m], h.x[m] = h.mix[m*h.n+s], h.den[m*h.n+s]
			}
			v.FMA(h.sum, h.l, h.x)
		}
		v.Add(h.f, h.f, h.sum)
	}
}

// recall blends the landmarks into a response.
func (h *head) recall(dst, q []float32) {
	if h.w.Landmarks == backend.NoLandmarks {
		return
	}
	filled := false
	for m := range h.x {
		h.x[m] = -1e9
		if h.landScore[m] != float32(math.Inf(-1)) {
			filled = true
			h.x[m] = float32(float32(dot(q, h.landKey[m*h.d:(m+1)*h.d])*h.w.Scale) * h.w.LandmarkTemp)
		}
	}
	if !filled {
		return
	}
	h.s.dev.vec.Softmax(h.x, h.x)
	h.s.dev.vec.MixRows(h.u, h.x, h.landValue)
	a := float32(1)
	if h.w.Landmarks == backend.PersistentLandmarks {
		mix, _ := h.w.LandmarkMix.F32()
		a = canon.Sigmoid(mix[h.a])
	}
	h.s.blend(dst, a, h.u, dst)
}
