package cuda

import (
	"encoding/binary"

	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

var _ backend.Grad = (*stream)(nil)

// rowTable are the rows of a plan as gradients divide them, on the device: the
// blocks of numerics.md 10 (struct Block of kernels/grad.cuh), and the query and
// key blocks of 64 rows of whole sequences (struct Part of
// kernels/gradattention.cu). It is made when the first op of a pass asks for it.
type rowTable struct {
	serial uint64 // of the plan
	host   []byte
	mem    area

	blocks, pages   int
	blockAt, pageAt driver.Ptr
}

// rowTable gives the table of the current plan.
func (s *stream) rowTable() (*rowTable, bool) {
	t := &s.table
	if t.serial == s.plan.serial {
		return t, true
	}
	le := binary.LittleEndian
	b := t.host[:0]
	t.blocks, t.pages = 0, 0
	for i := range s.plan.segs {
		g := &s.plan.segs[i]
		for r := 0; r < g.Rows; r += backend.RowBlock {
			b = le.AppendUint32(b, uint32(g.Row+r))
			b = le.AppendUint32(b, uint32(g.Row+min(r+backend.RowBlock, g.Rows)))
			t.blocks++
		}
	}
	b = append(b, make([]byte, -len(b)&15)...)
	pageAt := len(b)
	for i := range s.plan.segs {
		g := &s.plan.segs[i]
		for r := 0; r < g.Rows; r += backend.Page {
			for _, v := range [4]int{g.Row, g.Rows, r / backend.Page, 0} {
				b = le.AppendUint32(b, uint32(v))
			}
			t.pages++
		}
	}
	t.host = b
	if !s.room(&t.mem, len(b)) || !s.send(t.mem.ptr, b) {
		return nil, false
	}
	t.blockAt, t.pageAt = t.mem.ptr, t.mem.ptr+driver.Ptr(pageAt)
	t.serial = s.plan.serial
	return t, true
}

// addParts adds to d, a vector or a matrix, the chains of the blocks of rows that
// launch writes, [blocks] of the shape of d.
func (s *stream) addParts(d tensor.Tensor, launch func(t *rowTable, part driver.Ptr)) {
	n := d.Len()
	t, ok := s.rowTable()
	if !ok || t.blocks == 0 || n == 0 {
		return
	}
	part, ok := s.tmp(scratchParts, 4*n*t.blocks)
	if !ok {
		return
	}
	if launch(t, part); s.err != nil {
		return
	}
	m := matrix{s.at(d), n, 1}
	if d.Dims() == 2 {
		m = s.matrix(d)
	}
	cols := n / m.rows
	m.params(s.kernel()).Ptr(part).Int32(int32(t.blocks)).Int32(int32(cols))
	s.each("gradrows", "addParts", cols, m.rows)
}

func (s *stream) Zero(dst tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckWhole("Zero", dst)) || s.away(dst) || dst.Len() == 0 {
		return
	}
	s.do(step{kind: fillZero, to: s.at(dst), n: 4 * dst.Len()}, nil)
}

func (s *stream) Accumulate(dst, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("Accumulate", dst, src)) || s.away(dst, src) {
		return
	}
	cols := dst.Dim(dst.Dims() - 1)
	s.view(s.view(s.kernel(), dst), src).Int32(int32(cols))
	s.each("gradrows", "accumulate", cols, rowsOf(dst))
}

func (s *stream) BiasGrad(db, dy tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckBiasGrad(db, dy, p)) || s.away(db, dy) || !s.current(p) {
		return
	}
	s.addParts(db, func(t *rowTable, part driver.Ptr) {
		s.view(s.kernel().Ptr(part), dy).Ptr(t.blockAt).Int32(int32(t.blocks)).Int32(int32(db.Len()))
		s.each("gradrows", "biasParts", db.Len(), t.blocks)
	})
}

func (s *stream) EmbedGrad(dtable, dy, ids tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckEmbedGrad(dtable, dy, ids)) || s.away(dtable, dy, ids) {
		return
	}
	s.scatter(dtable, dy, ids, 1, failEmbedGrad)
}

func (s *stream) GatherGrad(dx, dy, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckGatherGrad(dx, dy, rows)) || s.away(dx, dy, rows) {
		return
	}
	s.scatter(dx, dy, rows, 0, failGatherGrad)
}

// scatter adds rows of dy to rows of dst; with skip 1 negative ids are passed over.
func (s *stream) scatter(dst, dy, ids tensor.Tensor, skip int32, op uint32) {
	rows, cols := dy.Dim(0), dy.Dim(1)
	p := s.view(s.view(s.kernel(), dst), dy).Ptr(s.at(ids)).Int32(int32(rows)).Int32(int32(cols)).Int32(skip)
	s.reports(p, op)
	s.perRow("gradrows", "scatterRows", cols, rows)
}
