package qcc

import (
	"math"

	"samebit/internal/archive"
)

// grads64 are the gradients of a layer in float64, by the names of the traces.
type grads64 struct {
	params       map[string][]float64
	hidden, hint []float64
}

// matrix64 are rows of heads.
type heads64 [][][]float64

func newHeads64(rows, heads, dim int) heads64 {
	h := make(heads64, rows)
	for i := range h {
		for range heads {
			h[i] = append(h[i], make([]float64, dim))
		}
	}
	return h
}

func (h heads64) row(i int) []float64 {
	var r []float64
	for _, v := range h[i] {
		r = append(r, v...)
	}
	return r
}

func addTo(dst, x []float64) {
	for i := range dst {
		dst[i] += x[i]
	}
}

// back64 is the gradient of sum(outputs · cotangents) of a layer over one text of
// rows x, of which hint are the hints. There is no exact tier.
func back64(c *traceConfig, p fields, x, hint, dy []float64) *grads64 {
	l := newLayer64(c, p)
	t, n := len(x)/c.DModel, c.NumHeads
	g := &grads64{params: map[string][]float64{}, hidden: make([]float64, len(x)), hint: make([]float64, len(x))}
	for name, a := range p {
		g.params[name] = make([]float64, len(a.f64()))
	}
	// What a token computes on its way to attention.
	rows := func(w, b string) heads64 {
		var h heads64
		for i := range t {
			h = append(h, l.split(l.linear(cut(x, i, c.DModel), w, b)))
		}
		return h
	}
	plain, k, v := rows("wq", "bq"), rows("wk", "bk"), rows("wv", "bv")
	q := newHeads64(t, n, c.HeadDim)
	var rq, rk heads64
	gate := make([][]float64, t)
	for i := range t {
		for h := range n {
			copy(q[i][h], plain[i][h])
			if c.ActiveQuery {
				l.heads[h].Correct(q[i][h], plain[i][h])
			}
		}
		rq, rk = append(rq, l.rotate(q[i], i)), append(rk, l.rotate(k[i], i))
		if p["wg"] != nil {
			gate[i] = l.linear(cut(x, i, c.DModel), "wg", "bg")
		}
	}
	aq, address, value := rq, rk, v
	if c.Invariant {
		aq, address = q, k
	}
	if c.Lexical {
		aq = nil
		for i := range t {
			aq = append(aq, l.split(cut(hint, i, c.DModel)))
		}
		address, value = aq, aq
	}
	// Attention once more, keeping both responses.
	local, remote := newHeads64(t, n, c.HeadDim), newHeads64(t, n, c.HeadDim)
	from := c.Window + c.Sinks
	for i := range t {
		for h, a := range l.heads {
			wide.Attend(local[i][h], rq[i][h], 1/math.Sqrt(float64(c.HeadDim)), i+1, func(j int) bool { return j > i-c.Window || j < c.Sinks },
				func(j int) []float64 { return rk[j][h] }, func(j int) []float64 { return v[j][h] })
			if i >= from {
				a.Write(i-from, address[i-c.Window][h], value[i-c.Window][h])
				a.Read(remote[i][h], aq[i][h], i-from+1)
			}
		}
	}
	l.backAll(g, &pass64{t: t, x: x, hint: hint, dy: dy, plain: plain, q: q, rq: rq, rk: rk, k: k, v: v, aq: aq, address: address, value: value, local: local, remote: remote, gate: gate})
	return g
}

type pass64 struct {
	t                                                         int
	x, hint, dy                                               []float64
	plain, q, rq, rk, k, v, aq, address, value, local, remote heads64
	gate                                                      [][]float64
}

// linearBack adds the gradients of y = W·x + b.
func (l *layer64) linearBack(g *grads64, dx, x, dy []float64, w, b string) {
	m, dw := l.p[w].f64(), g.params[w]
	for i, d := range dy {
		for j := range x {
			dx[j] += d * m[i*len(x)+j]
			dw[i*len(x)+j] += d * x[j]
		}
		if g.params[b] != nil {
			g.params[b][i] += d
		}
	}
}

func (l *layer64) backAll(g *grads64, s *pass64) {
	c, n, t, from := l.c, l.c.NumHeads, s.t, l.c.Window+l.c.Sinks
	zero := func() heads64 { return newHeads64(t, n, c.HeadDim) }
	dlocal, dremote := zero(), zero()
	drq, drk, dv, dq, dk := zero(), zero(), zero(), zero(), zero()
	for i := range t {
		out := make([]float64, 0, n*c.HeadDim)
		for h := range n {
			y := append([]float64(nil), s.local[i][h]...)
			if i >= from {
				gate, constant := l.weight(s.gate[i], h)
				wide.Mix(y, s.local[i][h], s.remote[i][h], gate, 0, constant, c.NormGating)
			}
			out = append(out, y...)
		}
		dout := make([]float64, len(out))
		l.linearBack(g, dout, out, cut(s.dy, i, c.DModel), "wo", "bo")
		dgate := make([]float64, n)
		for h, d := range l.split(dout) {
			if i < from {
				addTo(dlocal[i][h], d)
				continue
			}
			gate, constant := l.weight(s.gate[i], h)
			dgate[h] = wide.MixBack(dlocal[i][h], dremote[i][h], d, s.local[i][h], s.remote[i][h], gate, constant, c.NormGating)
		}
		if s.gate[i] != nil && !c.Prefix {
			l.linearBack(g, cut(g.hidden, i, c.DModel), cut(s.x, i, c.DModel), dgate, "wg", "bg")
		}
	}
	daq, daddress, dvalue := drq, drk, dv
	if c.Invariant {
		daq, daddress = dq, dk
	}
	dhint := zero()
	if c.Lexical {
		daq, daddress, dvalue = dhint, dhint, dhint
	}
	for h := range n {
		l.scanBack(g, s, h, daq, daddress, dvalue, dremote)
		l.windowBack(s, h, drq, drk, dv, dlocal)
	}
	for i := range t {
		addTo(cut(g.hint, i, c.DModel), dhint.row(i))
		l.turnBack(dq[i], drq[i], i)
		l.turnBack(dk[i], drk[i], i)
		dplain := dq[i]
		if c.ActiveQuery {
			dplain = newHeads64(1, n, c.HeadDim)[0]
			for h, a := range l.heads {
				size := c.HeadDim * c.Rank
				a.CorrectBack(dplain[h], cut(g.params["corr_v"], h, size), cut(g.params["corr_u"], h, size), dq[i][h], s.plain[i][h])
			}
		}
		dx, x := cut(g.hidden, i, c.DModel), cut(s.x, i, c.DModel)
		l.linearBack(g, dx, x, heads64{dplain}.row(0), "wq", "bq")
		l.linearBack(g, dx, x, dk.row(i), "wk", "bk")
		l.linearBack(g, dx, x, dv.row(i), "wv", "bv")
	}
}

// weight is that of a row's local response, or the constant one of the remote.
func (l *layer64) weight(gate []float64, h int) (float64, bool) {
	switch {
	case l.c.Prefix:
		return 1, true
	case l.c.ArchiveMix != nil:
		return *l.c.ArchiveMix, true
	}
	return wide.Sigmoid(gate[h]), false
}

// turnBack adds the gradient of what was rotated to position pos.
func (l *layer64) turnBack(dx, dy [][]float64, pos int) {
	if l.c.RopeTheta == nil {
		for h := range dx {
			addTo(dx[h], dy[h])
		}
		return
	}
	// The rotation is linear: its transpose, column by column.
	for h := range dx {
		for i := range dx[h] {
			e := newHeads64(1, 1, l.c.HeadDim)
			e[0][0][i] = 1
			dx[h][i] += wide.Dot(l.rotate(e[0], pos)[0], dy[h])
		}
	}
}

func (l *layer64) windowBack(s *pass64, h int, dq, dk, dv, dy heads64) {
	c, scale := l.c, 1/math.Sqrt(float64(l.c.HeadDim))
	for i := range s.t {
		var seen []int
		var p []float64
		for j := range i + 1 {
			if j > i-c.Window || j < c.Sinks {
				seen, p = append(seen, j), append(p, wide.Dot(s.rq[i][h], s.rk[j][h])*scale)
			}
		}
		wide.Softmax(p, p)
		mean := wide.Dot(dy[i][h], s.local[i][h])
		for e, j := range seen {
			slope := p[e] * (wide.Dot(dy[i][h], s.v[j][h]) - mean) * scale
			for d := range c.HeadDim {
				dq[i][h][d] += slope * s.rk[j][h][d]
				dk[j][h][d] += slope * s.rq[i][h][d]
				dv[j][h][d] += p[e] * dy[i][h][d]
			}
		}
	}
}

// scanBack is the text that gives the contract its bits, in float64.
func (l *layer64) scanBack(g *grads64, s *pass64, h int, dq, daddress, dvalue, dy heads64) {
	c := l.c
	fresh := newLayer64(c, l.p).heads[h]
	of := func(m heads64) func(i int) []float64 { return func(i int) []float64 { return m[i][h] } }
	head := func(m heads64) func(i, e int) []float64 { return func(i, _ int) []float64 { return m[i][h] } }
	b := archive.Sequence[float64]{Head: fresh, Rows: s.t, Window: c.Window, Sinks: c.Sinks, Group: 1,
		Query: head(s.aq), DY: head(dy), DQuery: head(dq), Address: of(s.address), Value: of(s.value), DAddress: of(daddress), DValue: of(dvalue),
		To: archive.Grads[float64]{Codes: cut(g.params["codes"], h, c.Codes*c.HeadDim), Mix: cut(g.params["mix_logits"], h, c.Codes*c.Scales),
			CorrV: cut(g.params["corr_v"], h, c.HeadDim*c.Rank), CorrU: cut(g.params["corr_u"], h, c.HeadDim*c.Rank), CorrScale: cut(g.params["corr_scale"], h, c.Rank*c.Scales),
			LandMix: cut(g.params["landmark_mix"], h, 1)}}
	b.Backward()
}
