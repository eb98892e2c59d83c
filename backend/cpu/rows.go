package cpu

import (
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

// rowsOp is an op that works on each row by itself.
type rowsOp struct {
	f            func(s *stream, dst, a, b, c []float32, row int)
	dst, a, b, c matrix
	w, bias      []float32 // vectors shared by all rows
	eps, scale   float32
	per          int // rows per chunk
	table        *weight
	ids          []int32
}

// rowWork is about how many elements make a chunk worth handing out.
const rowWork = 8 << 10

// each runs f over all rows of dst.
func (s *stream) each(dst, a, b, c matrix, f func(s *stream, dst, a, b, c []float32, row int)) {
	if s.err != nil || dst.rows == 0 {
		return
	}
	o := &s.rows
	o.dst, o.a, o.b, o.c, o.f = dst, a, b, c, f
	o.per = max(1, rowWork/max(dst.cols, 1))
	s.run((dst.rows+o.per-1)/o.per, rowsBody)
}

func rowsBody(s *stream, _, chunk int) {
	o := &s.rows
	for r := chunk * o.per; r < min((chunk+1)*o.per, o.dst.rows); r++ {
		var a, b, c []float32
		if o.a.v != nil {
			a = o.a.row(r)
		}
		if o.b.v != nil {
			b = o.b.row(r)
		}
		if o.c.v != nil {
			c = o.c.row(r)
		}
		o.f(s, o.dst.row(r), a, b, c, r)
	}
}

// vector is the values of a checked one-axis tensor.
func (s *stream) vector(t tensor.Tensor) []float32 {
	v, ok := t.F32()
	if !ok {
		s.fails(fmt.Errorf("cpu: %v is not in this process's memory", t))
	}
	return v
}

func (s *stream) Embed(dst tensor.Tensor, table backend.Weight, ids tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckEmbed(dst, table, ids)) || s.away(dst, ids) {
		return
	}
	w := s.own(table)
	if w == nil {
		return
	}
	id, _ := ids.I32()
	for r, n := range id {
		if n < 0 || int(n) >= w.n {
			s.fails(fmt.Errorf("cpu: Embed: id %d of row %d is outside a table of %d", n, r, w.n))
			return
		}
	}
	s.rows.table, s.rows.ids = w, id
	s.each(s.host(dst), matrix{}, matrix{}, matrix{}, func(s *stream, dst, _, _, _ []float32, r int) {
		s.rows.table.row(dst, int(s.rows.ids[r]))
	})
}

func (s *stream) Gather(dst, x, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckGather(dst, x, rows)) || s.away(dst, x, rows) {
		return
	}
	id, _ := rows.I32()
	for _, n := range id {
		if n < 0 || int(n) >= x.Dim(0) {
			s.fails(fmt.Errorf("cpu: Gather: row %d of %d", n, x.Dim(0)))
			return
		}
	}
	d, v := s.host(dst), s.host(x)
	for i, n := range id {
		copy(d.row(i), v.row(int(n)))
	}
}

func (s *stream) Copy(dst, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckCopy(dst, src)) || s.away(dst, src) {
		return
	}
	tensor.Copy(dst, src)
}

func (s *stream) AddBias(dst, x, b tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("AddBias", dst, x)) || s.fails(backend.CheckVector("AddBias", "b", b, x.Dim(1))) {
		return
	}
	s.rows.bias = s.vector(b)
	s.each(s.host(dst), s.host(x), matrix{}, matrix{}, func(s *stream, dst, x, _, _ []float32, _ int) {
		s.dev.vec.Add(dst, x, s.rows.bias)
	})
}

func (s *stream) Add(dst, a, b tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("Add", dst, a, b)) {
		return
	}
	s.each(s.host(dst), s.host(a), s.host(b), matrix{}, func(s *stream, dst, a, b, _ []float32, _ int) { s.dev.vec.Add(dst, a, b) })
}

func (s *stream) RMSNorm(dst, x, w tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckRows("RMSNorm", dst, x)) || s.fails(backend.CheckVector("RMSNorm", "w", w, x.Dim(1))) {
		return
	}
	s.rows.w, s.rows.eps = s.vector(w), eps
	s.each(s.host(dst), s.host(x), matrix{}, matrix{}, func(s *stream, dst, x, _, _ []float32, _ int) {
		s.dev.vec.RMSNorm(dst, x, s.rows.w, s.rows.eps)
	})
}

func (s *stream) LayerNorm(dst, x, w, b tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckRows("LayerNorm", dst, x)) ||
		s.fails(backend.CheckVector("LayerNorm", "w", w, x.Dim(1))) || s.fails(backend.CheckVector("LayerNorm", "b", b, x.Dim(1))) {
		return
	}
	s.rows.w, s.rows.bias, s.rows.eps = s.vector(w), s.vector(b), eps
	s.each(s.host(dst), s.host(x), matrix{}, matrix{}, func(s *stream, dst, x, _, _ []float32, _ int) {
		s.dev.vec.LayerNorm(dst, x, s.rows.w, s.rows.bias, s.rows.eps)
	})
}

func (s *stream) SwiGLU(dst, gate, up tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SwiGLU", dst, gate, up)) {
		return
	}
	s.each(s.host(dst), s.host(gate), s.host(up), matrix{}, func(s *stream, dst, g, u, _ []float32, _ int) { s.dev.vec.SwiGLU(dst, g, u) })
}

func (s *stream) SigmoidMul(dst, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("SigmoidMul", dst, x, gate)) {
		return
	}
	s.each(s.host(dst), s.host(x), s.host(gate), matrix{}, func(s *stream, dst, x, g, _ []float32, _ int) { s.dev.vec.SigmoidMul(dst, x, g) })
}

func (s *stream) ArgMax(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckArgMax(dst, x)) || s.away(dst, x) {
		return
	}
	d, _ := dst.I32()
	s.rows.ids = d
	v := s.host(x)
	s.each(v, matrix{}, matrix{}, matrix{}, func(s *stream, x, _, _, _ []float32, r int) { s.rows.ids[r] = int32(s.dev.vec.ArgMax(x)) })
}

func (s *stream) Softmax(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("Softmax", dst, x)) {
		return
	}
	s.each(s.host(dst), s.host(x), matrix{}, matrix{}, func(s *stream, dst, x, _, _ []float32, _ int) { s.dev.vec.Softmax(dst, x) })
}

func (s *stream) L2Norm(dst, x tensor.Tensor, eps, scale float32) {
	if s.err != nil || s.fails(backend.CheckHeads("L2Norm", dst, x)) {
		return
	}
	s.rows.eps, s.rows.scale = eps, scale
	s.each(s.host(dst), s.host(x), matrix{}, matrix{}, func(s *stream, dst, x, _, _ []float32, _ int) {
		s.dev.vec.L2Norm(dst, x, s.rows.eps, s.rows.scale)
	})
}

func (s *stream) GatedRMSNorm(dst, x, z, w tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckHeads("GatedRMSNorm", dst, x, z)) || s.fails(backend.CheckVector("GatedRMSNorm", "w", w, x.Dim(2))) {
		return
	}
	s.rows.w, s.rows.eps = s.vector(w), eps
	s.each(s.host(dst), s.host(x), s.host(z), matrix{}, func(s *stream, dst, x, z, _ []float32, _ int) {
		s.dev.vec.GatedRMSNorm(dst, x, z, s.rows.w, s.rows.eps)
	})
}

func (s *stream) AddGated(dst, y, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckAddGated(dst, y, x, gate)) {
		return
	}
	g := s.host(gate)
	if s.err != nil {
		return
	}
	s.moe.shared = grow(s.moe.shared, g.rows)
	for r := range s.moe.shared {
		s.moe.shared[r] = g.row(r)[0]
	}
	s.dev.vec.Sigmoid(s.moe.shared, s.moe.shared)
	s.each(s.host(dst), s.host(y), s.host(x), matrix{}, func(s *stream, dst, y, x, _ []float32, r int) {
		copy(dst, y)
		s.dev.vec.FMAScalar(dst, s.moe.shared[r], x)
	})
}

func (s *stream) SumRows(p backend.Plan, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSumRows(p, x)) || !s.current(p) {
		return
	}
	if s.rows.a = s.host(x); s.err != nil || len(s.plan.segs) == 0 {
		return
	}
	s.run(len(s.plan.segs), func(s *stream, _, chunk int) {
		g, x := &s.plan.segs[chunk], &s.rows.a
		in, _ := g.SumIn.F32()
		out, _ := g.SumOut.F32()
		copy(out, in)
		s.dev.vec.SumRows(out, x.v[g.Row*x.stride:], x.stride, g.Rows)
	})
}
