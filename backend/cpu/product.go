package cpu

import (
	"fmt"
	"unsafe"

	"samebit/backend"
	"samebit/backend/cpu/internal/gemm"
	"samebit/backend/cpu/internal/gemm/blas1"
	"samebit/backend/cpu/internal/panel"
	"samebit/tensor"
)

// product is one or several matrix products under way: dst = x·wᵀ of each output.
type product struct {
	x      matrix
	outs   []output
	shares []share // in the order of outs
	tiles  int     // per chunk while packing
}

type output struct {
	dst matrix
	w   *weight
}

// share is panels [p0, p1) of an output.
type share struct{ out, p0, p1 int }

func (s *stream) Linear(dst, x tensor.Tensor, w backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinear(dst, x, w)) {
		return
	}
	if m := s.own(w); m != nil {
		s.linear(s.host(dst), s.host(x), m)
	}
}

// Linears hands all products to the workers at once (backend.Products).
func (s *stream) Linears(dst []tensor.Tensor, x tensor.Tensor, w []backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinears(dst, x, w)) {
		return
	}
	p := &s.prod
	p.outs = p.outs[:0]
	for i := range w {
		m := s.own(w[i])
		if m == nil {
			return
		}
		p.outs = append(p.outs, output{s.host(dst[i]), m})
	}
	if len(w) > 0 {
		s.products(s.host(x))
	}
}

// linear is Linear after its checks.
func (s *stream) linear(dst, x matrix, w *weight) {
	s.prod.outs = append(s.prod.outs[:0], output{dst, w})
	s.products(x)
}

// products computes the outputs that the stream's product has, all of one K.
func (s *stream) products(x matrix) {
	if s.err != nil || x.rows == 0 {
		return
	}
	p := &s.prod
	p.x = x
	if x.rows == 1 {
		p.cut(s.threads(), 1)
		s.run(len(p.shares), gemvBody)
		return
	}
	k, in := s.dev.gemm, p.outs[0].w.k
	if need := k.PackASize(x.rows, in); len(s.packed) < need {
		s.packed = aligned(need)
	}
	tiles := k.Tiles(x.rows)
	p.tiles = max(1, rowWork*tiles/(x.rows*in)) // about rowWork floats
	s.run((tiles+p.tiles-1)/p.tiles, packBody)
	p.cut(s.threads(), x.rows)
	s.run(len(p.shares), panelsBody)
}

// For one row, a worker claims between leastBytes and mostBytes of weights at a time,
// some 5 to 40 µs at memory speed; a new chunk costs up to 0.5 µs of it. For more rows,
// whose products take longer than the reading, its last ones are smaller.
const (
	leastBytes = 128 << 10
	mostBytes  = 1 << 20
)

// cut cuts the panels of all outputs into shares for so many threads: large ones first
// and ever smaller ones, at last as many equal ones for each, so that none waits long
// for another's last.
func (p *product) cut(threads, rows int) {
	p.shares = p.shares[:0]
	left, last, least := 0, 0, leastBytes/min(rows, 8)
	for i := range p.outs {
		left += panel.Count(p.outs[i].w.n) * p.outs[i].w.size
	}
	for i := range p.outs {
		w := p.outs[i].w
		n := panel.Count(w.n)
		for p0 := 0; p0 < n; {
			most := mostBytes
			if rows > 1 { // which are read once per group
				most = max(most, gemm.Group*w.size)
			}
			bytes := min(left/(2*threads), most)
			if last == 0 && bytes < least {
				last = left / (threads * max(1, left/(threads*least)))
			}
			if last > 0 {
				bytes = last
			}
			take := max(1, (bytes+w.size/2)/w.size)
			if take >= gemm.Group {
				take -= take % gemm.Group // some kernels of one row walk four together
			}
			p1 := n
			if threads > 1 {
				p1 = min(p0+take, n)
			}
			p.shares = append(p.shares, share{i, p0, p1})
			left -= (p1 - p0) * w.size
			p0 = p1
		}
	}
}

// cut says into how many chunks n panels are cut of about per panels each: as
// many for every worker, so that none waits for another's last chunk.
func (s *stream) cut(n, per int) int {
	t := s.threads()
	c := (n + per - 1) / per
	return min(n, (c+t-1)/t*t)
}

func gemvBody(s *stream, worker, chunk int) {
	c := &s.prod.shares[chunk]
	w := s.prod.outs[c.out].w
	x, y := s.prod.x.row(0), s.prod.outs[c.out].dst.row(0)
	whole := min(c.p1, w.n/panel.Width)
	if c.p0 < whole {
		w.codec.Gemv(y[c.p0*panel.Width:whole*panel.Width], x, w.panels[c.p0*w.size:whole*w.size], w.k)
	}
	if whole < c.p1 { // the last panel reaches beyond the outputs
		t := s.tmp(worker, panel.Width)
		w.codec.Gemv(t, x, w.panels[whole*w.size:c.p1*w.size], w.k)
		copy(y[whole*panel.Width:], t)
	}
}

func packBody(s *stream, _, chunk int) {
	p := &s.prod
	t0 := chunk * p.tiles
	k := s.dev.gemm
	k.PackTiles(s.packed, p.x.v, p.x.stride, p.x.rows, p.x.cols, t0, min(t0+p.tiles, k.Tiles(p.x.rows)))
}

func panelsBody(s *stream, worker, chunk int) {
	c := &s.prod.shares[chunk]
	o := &s.prod.outs[c.out]
	k, rows, w := s.dev.gemm, s.prod.x.rows, o.w
	k.Panels(o.dst.v, o.dst.stride, w.n, s.packed, rows, w.k, &w.codec, w.panels, c.p0, c.p1, s.tmp(worker, k.ScratchSize(rows)))
}

func (s *stream) LinearRows(dst, x tensor.Tensor, w backend.Weight, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckLinearRows(dst, x, w, rows)) || s.away(dst, x, rows) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	id, _ := rows.I32()
	d, v := s.host(dst), s.host(x)
	t := s.tmp(0, m.k)
	for i, n := range id {
		if n < 0 || int(n) >= m.n {
			s.fails(fmt.Errorf("cpu: LinearRows: output %d is outside a weight of %d", n, m.n))
			return
		}
		m.row(t, int(n))
		for r := range v.rows {
			d.row(r)[i] = blas1.Dot(s.dev.set, v.row(r), t)
		}
	}
}

// Project packs its weight on the way: it is small and changes between calls.
func (s *stream) Project(dst, x, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckProject(dst, x, w)) || s.away(dst, x, w) || w.Dim(0) == 0 {
		return
	}
	t := &s.small
	if t.dev == nil {
		t.dev, t.dt = s.dev, tensor.F32
		t.codec, _ = codec(s.dev.set, tensor.F32)
	}
	t.n, t.k = w.Dim(0), w.Dim(1)
	t.size = t.codec.Bytes(t.k)
	if need := panel.Count(t.n) * t.size; len(s.project) < need {
		v := aligned(need / 4)
		s.project = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), need)
	}
	t.panels = s.project
	src := s.host(w)
	raw := tensor.AsBytes(src.v)
	for p := range panel.Count(t.n) {
		t.codec.Pack(t.panels[p*t.size:(p+1)*t.size], raw[4*p*panel.Width*src.stride:], 4*src.stride, min(panel.Width, t.n-p*panel.Width), t.k)
	}
	s.linear(s.host(dst), s.host(x), t)
}
