package ref

import (
	"math"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
)

func (s *stream) NormRoPEGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckNormRoPEGrad(dx, dw, dy, x, w, rope, p)) || s.away(dx, dw, dy, x, w) || !s.current(p) {
		return
	}
	wv, _ := w.F32()
	g := make([]float32, x.Dim(2))
	var cos, sin []float32
	if rope != nil {
		cos, sin = make([]float32, len(rope.Inv)), make([]float32, len(rope.Inv))
	}
	pos := make([]int, 0, x.Dim(0))
	for _, sg := range p.Segs() {
		for i := range sg.Rows {
			pos = append(pos, sg.Pos+i)
		}
	}
	vectorGrad(dw, x.Dim(0), p, func(acc []float32, r int) {
		if rope != nil {
			rope.Angles(cos, sin, pos[r])
			for i := range sin { // the turn back
				sin[i] = -sin[i]
			}
		}
		for h := range x.Dim(1) {
			rotate(g, dy.Vec(r, h), cos, sin)
			if wv != nil {
				rmsGrad(dx.Vec(r, h), acc, g, x.Vec(r, h), wv, eps)
				continue
			}
			d := dx.Vec(r, h)
			for i := range d {
				d[i] += g[i]
			}
		}
	})
}

// tiled is the part of the gradient of attention that belongs to one query head of
// one sequence: weights and slopes of all pairs, +0 where a query does not see a
// key.
type tiled struct {
	rows, window, sinks int
	p, ds               [][]float32 // [query][key]
}

// sees reports whether query row i sees slot j.
func (t *tiled) sees(i, j int) bool {
	return j <= i && (t.window <= 0 || j > i-t.window || j < t.sinks)
}

// pair reports whether a query of block a sees a key of block b.
func (t *tiled) pair(a, b int) bool {
	const n = backend.Page
	last := min((a+1)*n, t.rows) - 1
	return b*n <= last && (t.window <= 0 || (b+1)*n-1 > a*n-t.window || b*n < t.sinks)
}

// weights fills the pairs.
func (t *tiled) weights(q, dy, y, k, v func(i int) []float32, scale float32) {
	t.p, t.ds = make([][]float32, t.rows), make([][]float32, t.rows)
	for i := range t.rows {
		p, ds := make([]float32, t.rows), make([]float32, t.rows)
		t.p[i], t.ds[i] = p, ds
		m, l := float32(math.Inf(-1)), float32(0)
		for b := 0; b*backend.Page <= i; b++ {
			mb, any := float32(math.Inf(-1)), false
			var e [backend.Page]float32
			lo, hi := b*backend.Page, min((b+1)*backend.Page, i+1)
			for j := lo; j < hi; j++ {
				if !t.sees(i, j) {
					continue
				}
				any = true
				p[j] = float32(canon.Dot(q(i), k(j)) * scale)
				if p[j] > mb {
					mb = p[j]
				}
			}
			if !any {
				continue
			}
			for j := lo; j < hi; j++ {
				if t.sees(i, j) {
					e[j-lo] = canon.Exp(p[j] - mb)
				}
			}
			lb := canon.Sum(e[:])
			mm := m
			if mb > mm {
				mm = mb
			}
			l = canon.FMA32(lb, canon.Exp(mb-mm), float32(l*canon.Exp(m-mm)))
			m = mm
		}
		lse := m + canon.Log(l)
		c := canon.Dot(dy(i), y(i))
		for j := range i + 1 {
			if t.sees(i, j) {
				p[j] = canon.Exp(p[j] - lse)
				ds[j] = float32(float32(p[j]*(canon.Dot(dy(i), v(j))-c)) * scale)
			}
		}
	}
}

func (s *stream) AttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, scale float32, window int) {
	if s.err != nil || s.fails(backend.CheckAttentionGrad(dq, dk, dv, dy, y, q, k, v, p)) || s.away(dq, dk, dv, dy, y, q, k, v) || !s.current(p) {
		return
	}
	attentionGrad(dq, dk, dv, dy, y, q, k, v, p, scale, window, 0)
}

func attentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p backend.Plan, scale float32, window, sinks int) {
	group := q.Dim(1) / k.Dim(1)
	for _, g := range p.Segs() {
		blocks := (g.Rows + backend.Page - 1) / backend.Page
		vec := func(t tensor.Tensor, h int) func(i int) []float32 {
			return func(i int) []float32 { return t.Vec(g.Row+i, h) }
		}
		for kh := range k.Dim(1) {
			heads := make([]tiled, group)
			for e := range heads {
				t, h := &heads[e], kh*group+e
				*t = tiled{rows: g.Rows, window: window, sinks: sinks}
				t.weights(vec(q, h), vec(dy, h), vec(y, h), vec(k, kh), vec(v, kh), scale)
				for i := range g.Rows {
					for b := range blocks {
						if t.pair(i/backend.Page, b) {
							chains(dq.Vec(g.Row+i, h), b, g.Rows, func(j int) float32 { return t.ds[i][j] }, vec(k, kh))
						}
					}
				}
			}
			for j := range g.Rows {
				for a := range blocks {
					for e := range heads {
						t, h := &heads[e], kh*group+e
						if t.pair(a, j/backend.Page) {
							chains(dk.Vec(g.Row+j, kh), a, g.Rows, func(i int) float32 { return t.ds[i][j] }, vec(q, h))
							chains(dv.Vec(g.Row+j, kh), a, g.Rows, func(i int) float32 { return t.p[i][j] }, vec(dy, h))
						}
					}
				}
			}
		}
	}
}

// chains adds to each component of dst the chain over the rows i of block b of
// FMA(a(i), x(i)[c], acc).
func chains(dst []float32, b, rows int, a func(i int) float32, x func(i int) []float32) {
	for c := range dst {
		var acc float32
		for i := b * backend.Page; i < min((b+1)*backend.Page, rows); i++ {
			acc = canon.FMA32(a(i), x(i)[c], acc)
		}
		dst[c] += acc
	}
}
