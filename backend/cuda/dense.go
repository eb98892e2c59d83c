package cuda

import (
	"samebit/backend"
	"samebit/tensor"
)

func (s *stream) Embed(dst tensor.Tensor, table backend.Weight, ids tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckEmbed(dst, table, ids)) || s.away(dst, ids) {
		return
	}
	w := s.own(table)
	if w == nil {
		return
	}
	p := w.params(s.view(s.kernel(), dst).Ptr(s.at(ids)))
	s.reports(p, failEmbed)
	s.each("sparse", "embed", (w.k+7)/8, dst.Dim(0))
}

// gemvRows is the largest number of rows whose products are followed one by one;
// more are made in tiles.
const gemvRows = 8

func (s *stream) Linear(dst, x tensor.Tensor, w backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinear(dst, x, w)) || s.away(dst, x) {
		return
	}
	m := s.own(w)
	rows := dst.Dim(0)
	if m == nil || rows == 0 {
		return
	}
	m.params(s.view(s.view(s.kernel(), dst), x))
	if rows > gemvRows {
		if s.dev.fast {
			s.fast(m, rows)
			return
		}
		s.tiled(m, x, rows)
		return
	}
	name, each := m.gemv1, 1
	if rows > 1 {
		name, each = m.gemv4, 4
	}
	warps := max(each, min(16, (m.k+127)/128))
	s.launch(m.gemv, name, [3]uint32{uint32(m.panels()), uint32((rows + each - 1) / each), 1}, [3]uint32{32, uint32(warps), 1}, 4*warps*each*(128+32))
}

// tiled chooses the tiles of a product of many rows: large ones where x can be
// read in 16 bytes and there are enough of them.
func (s *stream) tiled(m *weight, x tensor.Tensor, rows int) {
	grid := func(bn, bm int) [3]uint32 {
		return [3]uint32{uint32((m.n + bn - 1) / bn), uint32((rows + bm - 1) / bm), 1}
	}
	if large := grid(128, 128); rows > 64 && m.n > 64 && int(large[0]*large[1]) >= s.dev.info.Multiprocs/2 && x.Stride(0)%4 == 0 && m.k%4 == 0 && s.at(x)%16 == 0 {
		s.launch(m.gemm, m.large, large, [3]uint32{256, 1, 1}, 0)
		return
	}
	s.launch(m.gemm, m.small, grid(64, 32), [3]uint32{64, 1, 1}, 0)
}

func (s *stream) LinearRows(dst, x tensor.Tensor, w backend.Weight, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckLinearRows(dst, x, w, rows)) || s.away(dst, x, rows) {
		return
	}
	m := s.own(w)
	if m == nil || rows.Len() == 0 {
		return
	}
	p := m.params(s.view(s.view(s.kernel(), dst), x).Ptr(s.at(rows)))
	s.reports(p, failRows)
	// ids are checked also for a pass without rows
	s.launch("sparse", "linearRows", [3]uint32{uint32(rows.Len()), uint32(min(max(x.Dim(0), 1), maxGrid)), 1}, [3]uint32{32, 1, 1}, 0)
}

func (s *stream) Project(dst, x, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckProject(dst, x, w)) || s.away(dst, x, w) {
		return
	}
	rows, n := dst.Dim(0), dst.Dim(1)
	if rows == 0 || n == 0 {
		return
	}
	s.view(s.view(s.view(s.kernel(), dst), x), w).Int32(int32(w.Dim(1)))
	s.launch("project", "project", [3]uint32{uint32((n + 63) / 64), uint32((rows + 31) / 32), 1}, [3]uint32{64, 1, 1}, 0)
}

func (s *stream) AddBias(dst, x, b tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("AddBias", dst, x)) || s.fails(backend.CheckVector("AddBias", "b", b, x.Dim(1))) || s.away(dst, x, b) {
		return
	}
	s.view(s.view(s.kernel(), dst), x).Ptr(s.at(b)).Int32(int32(x.Dim(1)))
	s.each("rows", "addBias", x.Dim(1), x.Dim(0))
}

func (s *stream) Add(dst, a, b tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("Add", dst, a, b)) || s.away(dst, a, b) {
		return
	}
	s.view(s.view(s.view(s.kernel(), dst), a), b).Int32(int32(a.Dim(1)))
	s.each("rows", "addRows", a.Dim(1), a.Dim(0))
}

func (s *stream) RMSNorm(dst, x, w tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckRows("RMSNorm", dst, x)) || s.fails(backend.CheckVector("RMSNorm", "w", w, x.Dim(1))) || s.away(dst, x, w) {
		return
	}
	s.view(s.view(s.kernel(), dst), x).Ptr(s.at(w)).Int32(int32(x.Dim(1))).Float32(eps)
	s.perRow("rows", "rmsNorm", x.Dim(1), x.Dim(0))
}

func (s *stream) LayerNorm(dst, x, w, b tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckRows("LayerNorm", dst, x)) ||
		s.fails(backend.CheckVector("LayerNorm", "w", w, x.Dim(1))) || s.fails(backend.CheckVector("LayerNorm", "b", b, x.Dim(1))) || s.away(dst, x, w, b) {
		return
	}
	s.view(s.view(s.kernel(), dst), x).Ptr(s.at(w)).Ptr(s.at(b)).Int32(int32(x.Dim(1))).Float32(eps)
	s.perRow("rows", "layerNorm", x.Dim(1), x.Dim(0))
}

func (s *stream) SwiGLU(dst, gate, up tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SwiGLU", dst, gate, up)) || s.away(dst, gate, up) {
		return
	}
	s.view(s.view(s.view(s.kernel(), dst), gate), up).Int32(int32(dst.Dim(1)))
	s.each("rows", "swiGLU", dst.Dim(1), dst.Dim(0))
}

func (s *stream) SigmoidMul(dst, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("SigmoidMul", dst, x, gate)) || s.away(dst, x, gate) {
		return
	}
	cols := dst.Dim(dst.Dims() - 1)
	s.view(s.view(s.view(s.kernel(), dst), x), gate).Int32(int32(cols))
	s.each("rows", "sigmoidMul", cols, rowsOf(dst))
}

func (s *stream) Gather(dst, x, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckGather(dst, x, rows)) || s.away(dst, x, rows) {
		return
	}
	p := s.view(s.view(s.kernel(), dst), x).Ptr(s.at(rows)).Int32(int32(x.Dim(1)))
	s.reports(p, failGather)
	s.each("rows", "gather", x.Dim(1), dst.Dim(0))
}

func (s *stream) SumRows(p backend.Plan, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSumRows(p, x)) || s.away(x) || !s.current(p) {
		return
	}
	s.view(s.kernel(), x).Int32(int32(x.Dim(1))).Ptr(s.plan.segAt)
	s.each("delta", "sumRows", x.Dim(1), len(s.plan.segs))
}

func (s *stream) Copy(dst, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckCopy(dst, src)) || s.away(dst, src) {
		return
	}
	n, size := src.Len(), src.DType().Bytes(1)
	if n == 0 {
		return
	}
	if dst.Contiguous() && src.Contiguous() {
		s.do(step{kind: copyWithin, to: s.at(dst), from: s.at(src), n: n * size}, nil)
		return
	}
	var dim [tensor.MaxDims]int
	lead := tensor.MaxDims - src.Dims()
	for i := range dim {
		dim[i] = 1
		if i >= lead {
			dim[i] = src.Dim(i - lead)
		}
	}
	p := s.kernel()
	for _, t := range [2]tensor.Tensor{dst, src} {
		p.Ptr(s.at(t))
		for i := range dim {
			stride := 0
			if i >= lead {
				stride = t.Stride(i - lead)
			}
			p.Uint64(uint64(stride))
		}
	}
	p.Uint32(uint32(dim[1])).Uint32(uint32(dim[2])).Uint32(uint32(dim[3])).Uint32(uint32(n))
	s.flat("rows", map[int]string{1: "copy1", 2: "copy2", 4: "copy4"}[size], n)
}

// flat launches a kernel that walks over n elements.
func (s *stream) flat(module, name string, n int) {
	block := min(256, (n+31)/32*32)
	s.launch(module, name, [3]uint32{uint32(min((n+block-1)/block, maxGrid)), 1, 1}, [3]uint32{uint32(block), 1, 1}, 0)
}

func (s *stream) ArgMax(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckArgMax(dst, x)) || s.away(dst, x) {
		return
	}
	s.view(s.kernel().Ptr(s.at(dst)), x).Int32(int32(x.Dim(1)))
	s.perRow("rows", "argMax", x.Dim(1), x.Dim(0))
}

func (s *stream) Softmax(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("Softmax", dst, x)) || s.away(dst, x) {
		return
	}
	s.view(s.view(s.kernel(), dst), x).Int32(int32(x.Dim(1)))
	s.perRow("rows", "softmax", x.Dim(1), x.Dim(0))
}
