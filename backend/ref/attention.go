package ref

import (
	"math"

	"samebit/backend"
	"samebit/internal/blockq"
	"samebit/internal/canon"
	"samebit/tensor"
)

// rotate turns the first 2·len(cos) components in half-split pairs
// (numerics.md 6) and copies the rest.
func rotate(dst, x, cos, sin []float32) {
	h := len(cos)
	for i := range h {
		a, b := x[i], x[i+h]
		dst[i] = canon.FMA32(a, cos[i], -float32(b*sin[i]))
		dst[i+h] = canon.FMA32(b, cos[i], float32(a*sin[i]))
	}
	copy(dst[2*h:], x[2*h:])
}

func (s *stream) NormRoPE(dst, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckNormRoPE(dst, x, w, rope, p)) || s.away(dst, x, w) || !s.current(p) {
		return
	}
	wv, _ := w.F32()
	y := make([]float32, x.Dim(2))
	var cos, sin []float32
	if rope != nil {
		cos, sin = make([]float32, len(rope.Inv)), make([]float32, len(rope.Inv))
	}
	for _, g := range p.Segs() {
		for i := range g.Rows {
			if rope != nil {
				rope.Angles(cos, sin, g.Pos+i)
			}
			for h := range x.Dim(1) {
				v := x.Vec(g.Row+i, h)
				if wv != nil {
					rmsNorm(y, v, wv, eps)
					v = y
				}
				rotate(dst.Vec(g.Row+i, h), v, cos, sin)
			}
		}
	}
}

// slot returns the key (part 0) or value (part 1) of a slot.
func slot(g *backend.Seg, layer, part, head, j int) []float32 {
	return load(g.KV[j/backend.Page], 2*layer+part, head, j%backend.Page)
}

// load returns a row of a page, widened if the page is BF16; pages of this device lie
// as their logical shape says.
func load(page tensor.Tensor, plane, head, slot int) []float32 {
	d := page.Dim(3)
	o := ((plane*page.Dim(1)+head)*backend.Page + slot) * d
	if h, ok := page.Halves(); ok {
		row := make([]float32, d)
		for c := range row {
			row[c] = blockq.BF16ToF32(h[o+c])
		}
		return row
	}
	v, _ := page.F32()
	return v[o : o+d]
}

// store puts a row into a page, rounded to its type (numerics.md 9).
func store(page tensor.Tensor, plane, head, slot int, row []float32) {
	d := page.Dim(3)
	o := ((plane*page.Dim(1)+head)*backend.Page + slot) * d
	if h, ok := page.Halves(); ok {
		for c, x := range row {
			h[o+c] = blockq.F32ToBF16(x)
		}
		return
	}
	v, _ := page.F32()
	copy(v[o:o+d], row)
}

func (s *stream) PutKV(p backend.Plan, layer int, k, v tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPutKV(p, layer, k, v)) || s.away(k, v) || !s.current(p) {
		return
	}
	segs := p.Segs()
	for gi := range segs {
		g := &segs[gi]
		for i := range g.Rows {
			for h := range k.Dim(1) {
				at := g.Slot + i
				store(g.KV[at/backend.Page], 2*layer, h, at%backend.Page, k.Vec(g.Row+i, h))
				store(g.KV[at/backend.Page], 2*layer+1, h, at%backend.Page, v.Vec(g.Row+i, h))
			}
		}
	}
}

// span is the range of slots [lo, own] that row i of a segment sees. A window
// reaches by position; slots and positions of a segment differ by a constant.
func span(g *backend.Seg, i, window int) (lo, own int) {
	own = g.Slot + i
	if window > 0 {
		lo = max(0, own-window+1)
	}
	return lo, own
}

// attend is numerics.md 7 for one query over slots [lo, own]; it returns the
// final maximum and sum.
func attend(out, q []float32, g *backend.Seg, layer, head int, scale float32, lo, own int) (m, l float32) {
	m = float32(math.Inf(-1))
	clear(out)
	d := len(q)
	o := make([]float32, d)
	var p [backend.Page]float32
	for b := lo / backend.Page; b*backend.Page <= own; b++ {
		first, last := max(lo, b*backend.Page), min(own, (b+1)*backend.Page-1)
		mb := float32(math.Inf(-1))
		clear(p[:])
		for j := first; j <= last; j++ {
			sj := canon.Dot(q, slot(g, layer, 0, head, j)) * scale
			p[j%backend.Page] = sj
			if sj > mb {
				mb = sj
			}
		}
		for j := first; j <= last; j++ {
			p[j%backend.Page] = canon.Exp(p[j%backend.Page] - mb)
		}
		lb := canon.Sum(p[:])
		clear(o)
		for j := first; j <= last; j++ {
			v := slot(g, layer, 1, head, j)
			for c := range o {
				o[c] = canon.FMA32(p[j%backend.Page], v[c], o[c])
			}
		}
		mm := m
		if mb > mm {
			mm = mb
		}
		al, be := canon.Exp(m-mm), canon.Exp(mb-mm)
		l = canon.FMA32(lb, be, float32(l*al))
		for c := range out {
			ob := 0 + o[c] // a chain may end at -0; the add of +0 makes it +0
			out[c] = canon.FMA32(ob, be, float32(out[c]*al))
		}
		m = mm
	}
	r := 1 / l
	for c := range out {
		out[c] *= r
	}
	return m, l
}

func (s *stream) Attention(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttention(dst, q, p, layer)) || s.away(dst, q) || !s.current(p) {
		return
	}
	segs := p.Segs()
	for gi := range segs {
		g := &segs[gi]
		group := q.Dim(1) / g.KV[0].Dim(1)
		for i := range g.Rows {
			lo, own := span(g, i, window)
			for h := range q.Dim(1) {
				attend(dst.Vec(g.Row+i, h), q.Vec(g.Row+i, h), g, layer, h/group, scale, lo, own)
			}
		}
	}
}

func (s *stream) AttnScores(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttnWeights("AttnScores", dst, q, p, layer)) || s.away(dst, q) || !s.current(p) {
		return
	}
	eachQuery(dst, q, p, window, func(g *backend.Seg, q, d []float32, head, lo, own int) {
		for j := range d {
			if d[j] = float32(math.Inf(-1)); j >= lo && j <= own {
				d[j] = canon.Dot(q, slot(g, layer, 0, head, j)) * scale
			}
		}
	})
}

func (s *stream) AttnWeights(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttnWeights("AttnWeights", dst, q, p, layer)) || s.away(dst, q) || !s.current(p) {
		return
	}
	out := make([]float32, q.Dim(2))
	eachQuery(dst, q, p, window, func(g *backend.Seg, q, d []float32, head, lo, own int) {
		m, l := attend(out, q, g, layer, head, scale, lo, own)
		weigh(d, q, g, layer, head, scale, lo, own, m, l)
	})
}

// eachQuery calls f with every (row, head) and the slots that it sees.
func eachQuery(dst, q tensor.Tensor, p backend.Plan, window int, f func(g *backend.Seg, q, dst []float32, head, lo, own int)) {
	segs := p.Segs()
	for gi := range segs {
		g := &segs[gi]
		group := q.Dim(1) / g.KV[0].Dim(1)
		for i := range g.Rows {
			lo, own := span(g, i, window)
			for h := range q.Dim(1) {
				f(g, q.Vec(g.Row+i, h), dst.Vec(g.Row+i, h), h/group, lo, own)
			}
		}
	}
}

func (s *stream) AttentionWeights(dst, w, q tensor.Tensor, p backend.Plan, first, layer int, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttentionWeights(dst, w, q, p, first, layer)) || s.away(dst, w, q) || !s.current(p) {
		return
	}
	segs := p.Segs()
	for gi := range segs {
		g := &segs[gi]
		group := q.Dim(1) / g.KV[0].Dim(1)
		for i := range g.Rows {
			r := g.Row + i - first
			if r < 0 || r >= q.Dim(0) {
				continue
			}
			lo, own := span(g, i, window)
			for h := range q.Dim(1) {
				m, l := attend(dst.Vec(r, h), q.Vec(r, h), g, layer, h/group, scale, lo, own)
				weigh(w.Vec(r, h), q.Vec(r, h), g, layer, h/group, scale, lo, own, m, l)
			}
		}
	}
}

// weigh writes the weights of one query, given the final maximum and sum.
func weigh(w, q []float32, g *backend.Seg, layer, head int, scale float32, lo, own int, m, l float32) {
	clear(w)
	r := 1 / l
	for j := lo; j <= own; j++ {
		w[j] = canon.Exp(float32(canon.Dot(q, slot(g, layer, 0, head, j))*scale)-m) * r
	}
}

func (s *stream) Moments(sum, square, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckMoments(sum, square, w)) || s.away(sum, square, w) {
		return
	}
	slots, heads := w.Dim(2), w.Dim(1)/sum.Dim(0)
	m := make([]float32, slots)
	for r := range w.Dim(0) {
		for g := range sum.Dim(0) {
			copy(m, w.Vec(r, g*heads))
			for h := g*heads + 1; h < (g+1)*heads; h++ {
				for p, x := range w.Vec(r, h) {
					m[p] += x
				}
			}
			to := sum.Row(g)
			for p := range m {
				m[p] /= float32(heads)
				to[p] += m[p]
			}
			if square.Valid() {
				addSquares(square.Row(g), m)
			}
		}
	}
}

// addSquares adds the squares of the scaled maxima around each position.
func addSquares(to, m []float32) {
	const reach = backend.MomentWidth / 2
	for p := range m {
		top := float32(math.Inf(-1))
		for _, x := range m[max(0, p-reach):min(len(m), p+reach+1)] {
			if x > top {
				top = x
			}
		}
		t := backend.MomentScale * top
		to[p] += float32(t * t)
	}
}

func (s *stream) GetPage(dst, page tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPage("GetPage", dst, page)) || s.away(dst, page) {
		return
	}
	pageRows(dst, func(row []float32, plane, head, slot int) { copy(row, load(page, plane, head, slot)) })
}

func (s *stream) PutPage(page, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPage("PutPage", src, page)) || s.away(page, src) {
		return
	}
	pageRows(src, func(row []float32, plane, head, slot int) { store(page, plane, head, slot, row) })
}

func pageRows(rows tensor.Tensor, f func(row []float32, plane, head, slot int)) {
	for a := range rows.Dim(0) {
		for h := range rows.Dim(1) {
			r := rows.Index(a).Index(h)
			for j := range rows.Dim(2) {
				f(r.Row(j), a, h, j)
			}
		}
	}
}
