package cpu

import (
	"math"

	"samebit/backend"
	"samebit/backend/cpu/internal/attn"
	"samebit/internal/canon"
	"samebit/tensor"
)

func (s *stream) ExactTier(dst, weight, q tensor.Tensor, p backend.Plan, layer int, w *backend.ExactParams) {
	if s.err != nil || s.fails(backend.CheckExactTier(dst, weight, q, p, layer, w)) || s.away(w.AdmKey, w.AdmValue, w.AdmBias, w.Mix, w.SetCodes) || !s.current(p) {
		return
	}
	o := &s.arch
	o.q, o.dst, o.weight, o.exact, o.layer, o.heads, o.d = s.host(q), s.host(dst), s.host(weight), w, layer, q.Dim(1), q.Dim(2)
	if s.err != nil {
		return
	}
	if o.tables == nil {
		o.tables = make([]table, s.threads())
	}
	s.run(len(s.plan.segs)*o.heads, tableBody)
}

// table is the exact tier of one head of one sequence. Keys lie a second time with
// lanes over slots, so that a row meets all of them at once; every slot's chain is that
// of its DOT. Memory is a worker's and serves again.
type table struct {
	s                      *stream
	w                      *backend.ExactParams
	h, d, n                int // head, width, slots
	key, value, score, age []float32
	next                   []float32
	k, v, address, unit    []float32

	turned, length []float32 // keys [D, slots]; their lengths
	like           []float32 // products of a row with all keys
	sets, setLen   []float32 // set codes [D, sets]; their lengths
	near           []float32 // cosines of a row with all set codes
	in             []bool    // sets
	cand, held     []int     // slots
	soft, rows     []float32

	floats []float32 // what the slices above are cut from
}

// open sets the table up for a head of a sequence.
func (t *table) open(s *stream, g *backend.Seg, head int) {
	o := &s.arch
	in, out := &g.Archive.In, &g.Archive.Out
	t.s, t.w, t.h, t.d = s, o.exact, head, o.d
	t.key, t.value = carried(g, in.Key, out.Key, o.layer, head, 0), carried(g, in.Value, out.Value, o.layer, head, 0)
	t.score, t.age = carried(g, in.Score, out.Score, o.layer, head, float32(math.Inf(-1))), carried(g, in.Age, out.Age, o.layer, head, 0)
	next, _ := out.Next.Index(o.layer).F32()
	t.next = next[head : head+1]
	t.next[0] = 0
	if g.Slot > 0 {
		before, _ := in.Next.Index(o.layer).F32()
		t.next[0] = before[head]
	}
	t.n = len(t.score)
	sets := 0
	if t.w.Probe < t.w.Sets { // or all are probed
		sets = t.w.Sets
	}
	t.floats = grow(t.floats, 4*t.d+t.n*(2*t.d+3)+sets*(t.d+2))
	tmp := t.floats
	take := func(n int) []float32 {
		v := tmp[:n:n]
		tmp = tmp[n:]
		return v
	}
	t.k, t.v, t.address, t.unit = take(t.d), take(t.d), take(t.d), take(t.d)
	t.turned, t.rows, t.length, t.like, t.soft = take(t.n*t.d), take(t.n*t.d), take(t.n), take(t.n), take(t.n)
	t.sets, t.setLen, t.near = take(sets*t.d), take(sets), take(sets)
	for j := range t.n {
		t.turn(j)
	}
	if sets > 0 {
		codes, _ := t.w.SetCodes.Index(head).F32()
		for i := range sets {
			c := codes[i*t.d : (i+1)*t.d]
			for d, x := range c {
				t.sets[d*sets+i] = x
			}
			t.setLen[i] = s.length(c)
		}
	}
	if cap(t.in) < t.w.Sets {
		t.in = make([]bool, t.w.Sets)
	}
	t.in = t.in[:t.w.Sets]
}

// turn takes a slot's key over into what lies by lanes.
func (t *table) turn(j int) {
	k := t.keyOf(j)
	if !t.filled(j) { // nobody reads its products
		for d := range k {
			t.turned[d*t.n+j] = 0
		}
		t.length[j] = 0
		return
	}
	for d, x := range k {
		t.turned[d*t.n+j] = x
	}
	t.length[j] = t.s.length(k)
}

func tableBody(s *stream, worker, chunk int) {
	o := &s.arch
	g, w := &s.plan.segs[chunk/o.heads], o.exact
	t := &o.tables[worker]
	t.open(s, g, chunk%o.heads)
	for i := range g.Rows {
		r := (g.Row+i)*o.heads + t.h
		query, to := o.q.row(r), o.dst.row(r)
		if n := w.Events(g.Slot + i + 1); n > 0 {
			if x, ok := t.event(g, i, query); ok {
				t.write(x, float32(n))
			}
		}
		weight := &o.weight.row(g.Row + i)[t.h]
		if w.Mass {
			*weight = t.attend(worker, to, query)
			continue
		}
		mix, _ := w.Mix.F32()
		if *weight = t.read(to, query); *weight <= -0.5 {
			*weight = 0
		} else {
			*weight = canon.Sigmoid(mix[t.h] + float32(w.ConfidenceTemp*(*weight-w.Confidence)))
		}
	}
}

// event gathers what leaves the window at a row and scores it; false if it is not
// admitted.
func (t *table) event(g *backend.Seg, row int, query []float32) (float32, bool) {
	a, layer := g.Archive, t.s.arch.layer
	j := a.Slot + row - t.w.Window
	page, slot := a.Window[j/backend.Page], j%backend.Page
	kv := t.h / (t.s.arch.heads / page.Dim(1))
	getPlane(t.k, page, 2*layer, kv, slot)
	getPlane(t.v, page, 2*layer+1, kv, slot)
	var x float32
	if t.w.QualityFirst {
		x = t.s.cosine(t.k, query)
	} else {
		copy(t.address, t.k)
		if a.Raw > 0 {
			getPlane(t.address, page, a.Raw+layer, kv, slot)
		}
		part := func(v []float32, p tensor.Tensor) float32 {
			t.s.dev.vec.Scale(t.unit, v, 1/greater(t.s.length(v), 1e-12))
			return dot(t.unit, p.Row(t.h))
		}
		bias, _ := t.w.AdmBias.F32()
		x = part(t.address, t.w.AdmKey) + part(t.v, t.w.AdmValue) + bias[t.h]
	}
	return x, x >= t.w.Threshold
}

func (t *table) filled(j int) bool       { return t.score[j] != float32(math.Inf(-1)) }
func (t *table) keyOf(j int) []float32   { return t.key[j*t.d : (j+1)*t.d] }
func (t *table) valueOf(j int) []float32 { return t.value[j*t.d : (j+1)*t.d] }

func (t *table) put(j int, score, n float32) {
	copy(t.keyOf(j), t.k)
	copy(t.valueOf(j), t.v)
	t.score[j], t.age[j] = score, n
	t.turn(j)
}

// products writes DOT(x, key) of all slots.
func (t *table) products(x []float32) { t.s.dev.vec.MixRows(t.like, x, t.turned) }

// cosine is that of a row of some length with a filled slot, after products.
func (t *table) cosine(length float32, j int) float32 {
	return t.like[j] / greater(length*t.length[j], 1e-12)
}

// candidates lists the slots of the sets that are nearest to x, ascending.
func (t *table) candidates(x []float32, length float32, sets int) []int {
	w := t.w
	t.cand = t.cand[:0]
	all := w.Probe == w.Sets
	if !all {
		t.s.dev.vec.MixRows(t.near, x, t.sets)
		for i := range t.near {
			t.near[i] /= greater(length*t.setLen[i], 1e-12)
		}
		clear(t.in)
		for range sets {
			best := -1
			for i, c := range t.near {
				if !t.in[i] && (best < 0 || c > t.near[best] || t.near[best] != t.near[best] && c == c) {
					best = i
				}
			}
			t.in[best] = true
		}
	}
	for i := range w.Sets {
		for k := 0; (all || t.in[i]) && k < w.Ways; k++ {
			t.cand = append(t.cand, i*w.Ways+k)
		}
	}
	return t.cand
}

// write offers an admitted event, the n-th of the sequence.
func (t *table) write(score, n float32) {
	w := t.w
	if w.FIFO {
		j := int(t.next[0])
		t.put(j, score, n)
		t.next[0] = float32((j + 1) % (w.Sets * w.Ways))
		return
	}
	inf := float32(math.Inf(-1))
	near, empty := inf, -1
	length := t.s.length(t.k)
	cand := t.candidates(t.k, length, 1)
	t.products(t.k)
	for _, j := range cand {
		if !t.filled(j) {
			if empty < 0 {
				empty = j
			}
			continue
		}
		near = greater(near, t.cosine(length, j))
	}
	unlike := float32(2)
	if near != inf {
		unlike = 1 - near
	}
	x := float32(w.Admission*score) + float32(w.Diversity*unlike)
	if empty >= 0 {
		t.put(empty, x, n)
		return
	}
	weakest, low := -1, float32(0)
	for _, j := range cand {
		if y := t.score[j] - w.Recency/(1+(n-t.age[j])); weakest < 0 || y < low {
			weakest, low = j, y
		}
	}
	if x > low {
		t.put(weakest, x, n)
	}
}

// read writes the nearest value, or the mean by nearness, and returns the largest
// cosine, -1 if there is nothing.
func (t *table) read(dst, q []float32) float32 {
	clear(dst)
	best, conf := -1, float32(0)
	length := t.s.length(q)
	t.held = t.held[:0]
	t.products(q)
	for _, j := range t.candidates(q, length, t.w.Probe) {
		if !t.filled(j) {
			continue
		}
		x := t.cosine(length, j)
		if best < 0 || x > conf {
			best, conf = j, x
		}
		if t.w.Soft {
			t.soft[len(t.held)] = float32(t.w.SoftTemp * x)
			t.held = append(t.held, j)
		}
	}
	switch {
	case best < 0:
		return -1
	case !t.w.Soft:
		copy(dst, t.valueOf(best))
		return conf
	}
	c := t.soft[:len(t.held)]
	t.s.dev.vec.Softmax(c, c)
	for i, j := range t.held {
		copy(t.rows[i*t.d:(i+1)*t.d], t.valueOf(j))
	}
	t.s.dev.vec.MixRows(dst, c, t.rows[:len(c)*t.d])
	return conf
}

// attend is softmax attention over the filled slots: as many jobs as there are runs
// of them would not merge, so blocks are merged here.
func (t *table) attend(worker int, dst, q []float32) float32 {
	const block = attn.Page
	v := t.s.dev.vec
	inf := float32(math.Inf(-1))
	top, l, seen := inf, float32(0), false
	clear(dst)
	tmp := t.s.tmp(worker, t.d)
	t.products(q)
	for b := 0; b < len(t.score); b += block {
		var p [block]float32
		mb, filled := inf, 0
		end := min(b+block, len(t.score))
		for j := b; j < end; j++ {
			if t.filled(j) {
				filled++
				p[j-b] = float32(t.like[j] * t.w.Scale)
				mb = greater(mb, p[j-b])
			}
		}
		if filled == 0 {
			continue
		}
		seen = true
		if filled == end-b {
			w := p[:filled]
			for i := range w {
				w[i] -= mb
			}
			v.Exp(w, w)
			v.MixRows(tmp, w, t.value[b*t.d:end*t.d])
		} else {
			clear(tmp)
			for j := b; j < end; j++ {
				if t.filled(j) {
					p[j-b] = canon.Exp(p[j-b] - mb)
					v.FMAScalar(tmp, p[j-b], t.valueOf(j))
				}
			}
		}
		v.AddScalar(tmp, tmp, 0) // a chain may end at -0
		m := greater(top, mb)
		al, be := canon.Exp(top-m), canon.Exp(mb-m)
		l = canon.FMA32(v.Sum(p[:]), be, float32(l*al))
		v.Scale(dst, dst, al)
		v.FMAScalar(dst, be, tmp)
		top = m
	}
	if !seen {
		return inf
	}
	v.Scale(dst, dst, 1/l)
	return top + canon.Log(l)
}
