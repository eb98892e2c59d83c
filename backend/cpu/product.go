package cpu

import (
	"fmt"
	"unsafe"

	"samebit/backend"
	"samebit/backend/cpu/internal/gemm/blas1"
	"samebit/backend/cpu/internal/panel"
	"samebit/tensor"
)

// product is a matrix product under way: dst = x·wᵀ.
type product struct {
	dst, x matrix
	w      *weight
	chunks int // of its panels
	tiles  int // per chunk while packing
}

func (s *stream) Linear(dst, x tensor.Tensor, w backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinear(dst, x, w)) {
		return
	}
	if m := s.own(w); m != nil {
		s.linear(s.host(dst), s.host(x), m)
	}
}

// chunkBytes is about how much weight a worker claims at a time: some 10 µs at
// memory speed.
const chunkBytes = 256 << 10

// cut says into how many chunks n panels are cut of about per panels each: as
// many for every worker, so that none waits for another's last chunk.
func (s *stream) cut(n, per int) int {
	t := s.threads()
	c := (n + per - 1) / per
	return min(n, (c+t-1)/t*t)
}

// share is chunk's part of the product's panels.
func (p *product) share(chunk int) (p0, p1 int) {
	n := panel.Count(p.w.n)
	return chunk * n / p.chunks, (chunk + 1) * n / p.chunks
}

// linear is Linear after its checks.
func (s *stream) linear(dst, x matrix, w *weight) {
	if s.err != nil || x.rows == 0 {
		return
	}
	p := &s.prod
	p.dst, p.x, p.w = dst, x, w
	n := panel.Count(w.n)
	if x.rows == 1 {
		// At least two panels: the kernels hide latency with several chains.
		p.chunks = s.cut(n, max(2, chunkBytes/w.size))
		s.run(p.chunks, gemvBody)
		return
	}
	k := s.dev.gemm
	if need := k.PackASize(x.rows, w.k); len(s.packed) < need {
		s.packed = aligned(need)
	}
	tiles := k.Tiles(x.rows)
	p.tiles = max(1, rowWork*tiles/(x.rows*w.k)) // about rowWork floats
	s.run((tiles+p.tiles-1)/p.tiles, packBody)
	// A large product reads its activations once per group of panels.
	p.chunks = s.cut(n, max(1, min(k.Group(x.rows, w.k), n/(4*s.threads()))))
	s.run(p.chunks, gemmBody)
}

func gemvBody(s *stream, worker, chunk int) {
	p, w := &s.prod, s.prod.w
	p0, p1 := p.share(chunk)
	x, y := p.x.row(0), p.dst.row(0)
	whole := min(p1, w.n/panel.Width)
	if p0 < whole {
		w.codec.Gemv(y[p0*panel.Width:whole*panel.Width], x, w.panels[p0*w.size:whole*w.size], w.k)
	}
	if whole < p1 { // the last panel reaches beyond the outputs
		t := s.tmp(worker, panel.Width)
		w.codec.Gemv(t, x, w.panels[whole*w.size:p1*w.size], w.k)
		copy(y[whole*panel.Width:], t)
	}
}

func packBody(s *stream, _, chunk int) {
	p := &s.prod
	t0 := chunk * p.tiles
	k := s.dev.gemm
	k.PackTiles(s.packed, p.x.v, p.x.stride, p.x.rows, p.w.k, t0, min(t0+p.tiles, k.Tiles(p.x.rows)))
}

func gemmBody(s *stream, worker, chunk int) {
	p, k := &s.prod, s.dev.gemm
	p0, p1 := p.share(chunk)
	k.Panels(p.dst.v, p.dst.stride, p.w.n, s.packed, p.x.rows, p.w.k, &p.w.codec, p.w.panels, p0, p1,
		s.tmp(worker, k.ScratchSize(p.x.rows, p.w.k)))
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
