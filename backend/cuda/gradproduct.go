package cuda

import (
	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

// matrix is an operand of a product of gradients.
type matrix struct {
	ptr          driver.Ptr
	stride, rows int
}

func (s *stream) matrix(t tensor.Tensor) matrix { return matrix{s.at(t), t.Stride(0), t.Dim(0)} }

func (m matrix) params(p *driver.Params) *driver.Params {
	return p.Ptr(m.ptr).Uint64(uint64(m.stride)).Uint64(0).Int32(1).Int32(int32(m.rows))
}

// aligned reports whether rows of so many values can be read 16 bytes at a time.
func (m matrix) aligned(cols int) bool { return m.ptr%16 == 0 && m.stride%4 == 0 && cols%4 == 0 }

// addProduct adds to c [m, n] the product of a and b, of whose rows wide values can
// be read; inner is what rows of a count. runs appends the runs of the reduction.
func (s *stream) addProduct(name string, c, a, b matrix, n, wide, inner int, runs func(*driver.Params)) {
	if c.rows == 0 || n == 0 {
		return
	}
	runs(b.params(a.params(c.params(s.kernel()))).Int32(int32(n)).Int32(int32(wide)))
	grid := func(bn, bm int) [3]uint32 {
		return [3]uint32{uint32((n + bn - 1) / bn), uint32((c.rows + bm - 1) / bm), 1}
	}
	if g := grid(128, 128); c.rows > 64 && n > 64 && int(g[0]*g[1]) >= s.dev.info.Multiprocs/2 && a.aligned(inner) && b.aligned(wide) {
		s.launch("gradproduct", name+"Large", g, [3]uint32{256, 1, 1}, 0)
		return
	}
	s.launch("gradproduct", name+"Small", grid(64, 32), [3]uint32{64, 1, 1}, 0)
}

// rowsGrad adds dy·w to dx, w having as many rows as dy has columns.
func (s *stream) rowsGrad(dx, dy, w matrix, outputs, n, wide int) {
	if outputs == 0 {
		return
	}
	s.addProduct("rowsGrad", dx, dy, w, n, wide, outputs, func(p *driver.Params) { p.Int32(int32(outputs)) })
}

// LinearGrad unpacks outputs, as many blocks of 128 as there is memory for, and adds
// their part: a product reads each weight many times, so that unpacking once is
// cheap, and the blocks come one after the other anyway.
func (s *stream) LinearGrad(dx, dy tensor.Tensor, w backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinearGrad(dx, dy, w)) || s.away(dx, dy) {
		return
	}
	m := s.own(w)
	if m == nil || dx.Dim(0) == 0 {
		return
	}
	stride := (m.k + 7) / 8 * 8
	per := max(s.dev.scratch/(4*stride)/backend.RowBlock, 1) * backend.RowBlock
	mem, ok := s.tmp(scratchExpanded, 4*stride*min(per, m.n))
	if !ok {
		return
	}
	for first := 0; first < m.n; first += per {
		n := min(per, m.n-first)
		s.forget(mem, 4*stride*n)
		m.params(s.kernel().Ptr(mem).Int32(int32(stride)).Int32(int32(n))).Int32(int32(first))
		s.launch("gradproduct", "expand", [3]uint32{uint32((stride + 63) / 64), uint32((n + 31) / 32), 1}, [3]uint32{32, 8, 1}, 0)
		if s.err != nil {
			return
		}
		s.rowsGrad(s.matrix(dx), s.matrix(dy.Cols(first, first+n)), matrix{mem, stride, n}, n, m.k, stride)
	}
}

func (s *stream) ProjectGrad(dx, dy, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckProjectGrad(dx, dy, w)) || s.away(dx, dy, w) {
		return
	}
	s.rowsGrad(s.matrix(dx), s.matrix(dy), s.matrix(w), w.Dim(0), w.Dim(1), w.Dim(1))
}

func (s *stream) WeightGrad(dw, dy, x tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckWeightGrad(dw, dy, x, p)) || s.away(dw, dy, x) || !s.current(p) {
		return
	}
	t, ok := s.rowTable()
	if !ok || t.blocks == 0 {
		return
	}
	s.addProduct("weightGrad", s.matrix(dw), s.matrix(dy), s.matrix(x), x.Dim(1), x.Dim(1), dy.Dim(1), func(p *driver.Params) {
		p.Ptr(t.blockAt).Int32(int32(t.blocks)).Int32(0)
	})
}

func (s *stream) Repack(w backend.Weight, values tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRepack(w, values)) || s.away(values) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	m.params(s.kernel()).Ptr(s.at(values))
	s.launch("gradproduct", "repack", [3]uint32{uint32((m.k + 31) / 32), uint32(m.panels()), 1}, [3]uint32{32, 8, 1}, 0)
}
