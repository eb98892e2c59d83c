package cpu

import (
	"slices"

	"samebit/backend"
	"samebit/backend/cpu/internal/gemm/blas1"
	"samebit/backend/cpu/internal/panel"
	"samebit/backend/cpu/internal/vec"
	"samebit/tensor"
)

var (
	_ backend.Grad      = (*stream)(nil)
	_ backend.FirstGrad = (*stream)(nil)
)

// gradOp holds the operands of the gradient under way.
type gradOp struct {
	m      [8]matrix
	f      func(s *stream, worker, lo, hi int) // rows [lo, hi) of an op on rows
	per    int                                 // rows per chunk
	rows   int
	blocks []rowBlock
	part   []float32 // by block of rows: chains of a weight's gradient
	width  int       // of a block's part
	vec    [2][]float32
	eps    float32
	scale  float32
	temp   float32
	angles *angles
	ids    []int32
	adam   vec.AdamWStep
	flat   [4][]float32
	repack packing
	first  []*float32 // where gradients begin that hold nothing yet
	fresh  [3]bool    // which operands of the op under way are such

	b     []float32 // the packed operand of a product
	cuts  []int
	prod  gradProduct
	attn  attnGrad
	delta deltaGrad
	scan  scanGrad
}

// rowBlock is a block of rows of numerics.md 10.
type rowBlock struct{ lo, hi int }

// rowBlocks are those of the pass.
func (s *stream) rowBlocks() []rowBlock {
	o := &s.grad
	o.blocks = o.blocks[:0]
	for i := range s.plan.segs {
		g := &s.plan.segs[i]
		for b := 0; b < g.Rows; b += backend.RowBlock {
			o.blocks = append(o.blocks, rowBlock{g.Row + b, g.Row + min(b+backend.RowBlock, g.Rows)})
		}
	}
	return o.blocks
}

// eachRow runs f over all rows, cols values of work each.
func (s *stream) eachRow(rows, cols int, f func(s *stream, worker, lo, hi int)) {
	if s.err != nil || rows == 0 {
		return
	}
	o := &s.grad
	o.f, o.rows, o.per = f, rows, max(1, rowWork/max(cols, 1))
	s.run((rows+o.per-1)/o.per, func(s *stream, worker, chunk int) {
		o := &s.grad
		o.f(s, worker, chunk*o.per, min((chunk+1)*o.per, o.rows))
	})
}

// eachBlock runs f over the blocks of rows; where part goes each has a part of zeros
// to put its chains in, which are added to dw in the order of the blocks.
func (s *stream) eachBlock(dw []float32, f func(s *stream, worker, lo, hi int, part []float32)) {
	if s.err != nil {
		return
	}
	o := &s.grad
	o.width = len(dw)
	blocks := s.rowBlocks()
	o.part = grow(o.part, len(blocks)*len(dw))
	clear(o.part)
	s.run(len(blocks), func(s *stream, worker, chunk int) {
		o := &s.grad
		b := o.blocks[chunk]
		f(s, worker, b.lo, b.hi, o.part[chunk*o.width:(chunk+1)*o.width])
	})
	for i := range blocks {
		s.dev.vec.Add(dw, dw, o.part[i*len(dw):(i+1)*len(dw)])
	}
}

// eachVector is eachBlock if dw is wanted and eachRow with a nil part if not.
func (s *stream) eachVector(dw tensor.Tensor, rows, cols int, f func(s *stream, worker, lo, hi int, part []float32)) {
	if !dw.Valid() {
		s.eachRow(rows, cols, func(s *stream, worker, lo, hi int) { f(s, worker, lo, hi, nil) })
		return
	}
	s.eachBlock(s.vector(dw), f)
}

// eachPair is eachVector for two gradients of n values, whose chains lie side by side
// in a part; either may be left out.
func (s *stream) eachPair(a, b tensor.Tensor, n, rows, cols int, f func(s *stream, worker, lo, hi int, part []float32)) {
	if !a.Valid() && !b.Valid() {
		s.eachVector(tensor.Tensor{}, rows, cols, f)
		return
	}
	both := make([]float32, 2*n)
	for i, t := range []tensor.Tensor{a, b} {
		if t.Valid() {
			copy(both[i*n:], s.vector(t))
		}
	}
	s.eachBlock(both, f)
	for i, t := range []tensor.Tensor{a, b} {
		if t.Valid() {
			copy(s.vector(t), both[i*n:(i+1)*n])
		}
	}
}

// load views operands as o.m.
func (s *stream) load(ts ...tensor.Tensor) {
	for i, t := range ts {
		s.grad.m[i] = matrix{}
		if t.Valid() {
			s.grad.m[i] = s.host(t)
		}
	}
}

const flatPer = 16 << 10 // values per chunk of an op on flat memory

func (s *stream) flat(f func(s *stream, lo, hi int), ts ...tensor.Tensor) {
	for i, t := range ts {
		s.grad.flat[i] = s.vector(t)
	}
	n := len(s.grad.flat[0])
	if s.err != nil || n == 0 {
		return
	}
	s.run((n+flatPer-1)/flatPer, func(s *stream, _, chunk int) {
		f(s, chunk*flatPer, min((chunk+1)*flatPer, len(s.grad.flat[0])))
	})
}

func (s *stream) First(dst tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckWhole("First", dst)) {
		return
	}
	if v := s.vector(dst); len(v) > 0 {
		s.grad.first = append(s.grad.first, &v[0])
	}
}

// firsts notes which of the gradients that an op adds to hold nothing yet.
func (s *stream) firsts(ds ...matrix) {
	o := &s.grad
	o.fresh = [3]bool{}
	for i, d := range ds {
		o.fresh[i] = len(d.v) > 0 && slices.Contains(o.first, &d.v[0])
	}
	o.first = o.first[:0]
}

func (s *stream) Zero(dst tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckWhole("Zero", dst)) {
		return
	}
	s.flat(func(s *stream, lo, hi int) { clear(s.grad.flat[0][lo:hi]) }, dst)
}

func (s *stream) Accumulate(dst, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("Accumulate", dst, src)) {
		return
	}
	s.load(dst, src)
	m := &s.grad.m[0]
	s.firsts(*m)
	s.eachRow(m.rows, m.cols, func(s *stream, _, lo, hi int) {
		for r := lo; r < hi; r++ {
			d := s.grad.m[0].row(r)
			if s.grad.fresh[0] {
				s.dev.vec.AddScalar(d, s.grad.m[1].row(r), 0)
				continue
			}
			s.dev.vec.Add(d, d, s.grad.m[1].row(r))
		}
	})
}

func (s *stream) SumSquares(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSumSquares(dst, x)) {
		return
	}
	d, v := s.vector(dst), s.vector(x)
	if s.err == nil {
		d[0] = blas1.SumSq(s.dev.set, v)
	}
}

func (s *stream) AdamW(w, m, v, g tensor.Tensor, c backend.AdamWStep) {
	if s.err != nil || s.fails(backend.CheckWhole("AdamW", w, m, v, g)) {
		return
	}
	s.grad.adam = vec.AdamWStep(c)
	s.flat(func(s *stream, lo, hi int) {
		f := &s.grad.flat
		s.dev.vec.AdamW(f[0][lo:hi], f[1][lo:hi], f[2][lo:hi], f[3][lo:hi], &s.grad.adam)
	}, w, m, v, g)
}

// Repack lays the values out in the weight's panels. A weight that was narrowed,
// because all its values happened to be bf16, gets panels of float32 first.
func (s *stream) Repack(w backend.Weight, values tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRepack(w, values)) || s.away(values) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	if m.narrowed {
		c, _ := codec(s.dev.set, tensor.F32)
		mem, err := m.dev.slabs.get(panel.Count(m.n) * c.Bytes(m.k))
		if s.fails(err) {
			return
		}
		m.dev.slabs.put(m.mem)
		m.mem, m.panels, m.codec, m.size, m.narrowed = mem, mem.b, c, c.Bytes(m.k), false
	}
	raw, _ := values.Raw()
	s.grad.repack = packing{w: m, src: raw, stride: 4 * m.k}
	s.run(panel.Count(m.n), func(s *stream, worker, chunk int) { s.grad.repack.Do(worker, chunk) })
}
