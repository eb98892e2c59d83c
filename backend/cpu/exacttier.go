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
	s.run(len(s.plan.segs)*o.heads, tableBody)
}

// table is the exact tier of one head of one sequence.
type table struct {
	s                      *stream
	w                      *backend.ExactParams
	h, d                   int
	key, value, score, age []float32
	next, codes            []float32
	k, v, address, unit    []float32
	cand                   []int
	near                   []float32
}

func tableBody(s *stream, worker, chunk int) {
	o := &s.arch
	g, w := &s.plan.segs[chunk/o.heads], o.exact
	in, out := &g.Archive.In, &g.Archive.Out
	t := &table{s: s, w: w, h: chunk % o.heads, d: o.d}
	t.key, t.value = carried(g, in.Key, out.Key, o.layer, t.h, 0), carried(g, in.Value, out.Value, o.layer, t.h, 0)
	t.score, t.age = carried(g, in.Score, out.Score, o.layer, t.h, float32(math.Inf(-1))), carried(g, in.Age, out.Age, o.layer, t.h, 0)
	next, _ := out.Next.Index(o.layer).F32()
	t.next = next[t.h : t.h+1]
	t.next[0] = 0
	if g.Slot > 0 {
		before, _ := in.Next.Index(o.layer).F32()
		t.next[0] = before[t.h]
	}
	if w.SetCodes.Valid() {
		t.codes, _ = w.SetCodes.Index(t.h).F32()
	}
	t.k, t.v, t.address, t.unit = make([]float32, o.d), make([]float32, o.d), make([]float32, o.d), make([]float32, o.d)
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
}

// candidates lists the slots of the sets that are nearest to x, ascending.
func (t *table) candidates(x []float32, sets int) []int {
	w := t.w
	t.cand = t.cand[:0]
	in := make([]bool, w.Sets)
	if w.Probe == w.Sets {
		sets = w.Sets
	} else {
		t.near = t.near[:0]
		for i := range w.Sets {
			t.near = append(t.near, t.s.cosine(x, t.codes[i*t.d:(i+1)*t.d]))
		}
	}
	for n := range sets {
		if w.Probe == w.Sets {
			in[n] = true
			continue
		}
		best := -1
		for i, c := range t.near {
			if !in[i] && (best < 0 || c > t.near[best] || t.near[best] != t.near[best] && c == c) {
				best = i
			}
		}
		in[best] = true
	}
	for i, yes := range in {
		for k := 0; yes && k < w.Ways; k++ {
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
	cand := t.candidates(t.k, 1)
	for _, j := range cand {
		if !t.filled(j) {
			if empty < 0 {
				empty = j
			}
			continue
		}
		near = greater(near, t.s.cosine(t.k, t.keyOf(j)))
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
	var held []int
	var c []float32
	for _, j := range t.candidates(q, t.w.Probe) {
		if !t.filled(j) {
			continue
		}
		x := t.s.cosine(q, t.keyOf(j))
		if best < 0 || x > conf {
			best, conf = j, x
		}
		if t.w.Soft {
			held, c = append(held, j), append(c, float32(t.w.SoftTemp*x))
		}
	}
	switch {
	case best < 0:
		return -1
	case !t.w.Soft:
		copy(dst, t.valueOf(best))
		return conf
	}
	t.s.dev.vec.Softmax(c, c)
	rows := make([]float32, 0, len(held)*t.d)
	for _, j := range held {
		rows = append(rows, t.valueOf(j)...)
	}
	t.s.dev.vec.MixRows(dst, c, rows)
	return conf
}

// attend is softmax attention over the filled slots: as many jobs as there are runs
// of them would not merge, so slots are scored one by one and blocks merged here.
func (t *table) attend(worker int, dst, q []float32) float32 {
	const block = attn.Page
	v := t.s.dev.vec
	inf := float32(math.Inf(-1))
	top, l, seen := inf, float32(0), false
	clear(dst)
	tmp := t.s.tmp(worker, t.d)
	for b := 0; b < len(t.score); b += block {
		var p [block]float32
		mb, any := inf, false
		end := min(b+block, len(t.score))
		for j := b; j < end; j++ {
			if t.filled(j) {
				any = true
				p[j-b] = float32(dot(q, t.keyOf(j)) * t.w.Scale)
				mb = greater(mb, p[j-b])
			}
		}
		if !any {
			continue
		}
		seen = true
		clear(tmp)
		for j := b; j < end; j++ {
			if t.filled(j) {
				p[j-b] = canon.Exp(p[j-b] - mb)
				v.FMAScalar(tmp, p[j-b], t.valueOf(j))
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
