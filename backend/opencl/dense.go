package opencl

import (
	"encoding/binary"

	"samebit/backend"
	"samebit/tensor"
)

// elements launches an elementwise kernel over columns and rows.
func (s *stream) elements(n, rows int) { s.end(int(groupSize), n, rows, 1) }

// groups launches a kernel that reduces, a group of lanes per row.
func (s *stream) groups(rows int) { s.end(laneCount, laneCount*rows, 1, 1) }

// rowsOf is the rows of a matrix or of heads, 0 if there is nothing to do.
func rowsOf(t tensor.Tensor) int {
	if t.Dims() == 3 {
		return t.Dim(0) * t.Dim(1)
	}
	return t.Dim(0)
}

// checkIDs lets the stream fail on the device if a number is outside [low, limit).
func (s *stream) checkIDs(op int, ids tensor.Tensor, low, limit int) {
	if n := ids.Len(); n > 0 && s.err == nil {
		s.begin(rowOps, "check_ids").u32(op).view(ids).u32(n).u32(low).u32(limit)
		s.end(int(groupSize), 1, 1, 1)
		s.pending = true
	}
}

func (s *stream) Embed(dst tensor.Tensor, table backend.Weight, ids tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckEmbed(dst, table, ids)) || s.away(dst, ids) {
		return
	}
	w := s.own(table)
	if w == nil || ids.Dim(0) == 0 {
		return
	}
	s.checkIDs(embedID, ids, 0, w.n)
	if s.err != nil {
		return
	}
	s.begin(linearOps(w.dt, 1), "embed").u32(w.k).view(dst).at(w.mem, 1).u64(w.stride()).view(ids)
	s.elements(w.k, ids.Dim(0))
}

// matrix is a weight wherever it lies: its first byte and the bytes of a row.
type matrix struct {
	mem    *memory
	off    int64
	stride uint64
	dt     tensor.DType
}

func (w *weight) matrix() matrix { return matrix{w.mem, 0, w.stride(), w.dt} }

const (
	tileRows  = 8   // of x that share a widened weight
	fewRows   = 4   // up to which each has its tile
	wideGrids = 256 // groups that fill any device
)

// product writes dst = x·wᵀ, of w the outputs in pick if it is valid. How it is cut
// decides no bit: the chains of K blocks are added in order in any case.
func (s *stream) product(dst, x tensor.Tensor, w matrix, pick tensor.Tensor) {
	r, n, k := x.Dim(0), dst.Dim(1), x.Dim(1)
	if r == 0 || n == 0 {
		return
	}
	tile := tileRows
	if r <= fewRows {
		tile = 1
	}
	tiles, blocks := (r+tile-1)/tile, (k+127)/128
	split := blocks > 1 && tiles*((n+63)/64) < wideGrids
	part, z := 1, 1
	if split {
		part, z = blocks*r*n, blocks
	}
	sums := s.space(part)
	if sums == nil {
		return
	}
	c := s.begin(linearOps(w.dt, tile), "linear").view(dst).view(x).from(w.mem, w.mem.off+w.off).u64(w.stride).maybe(s, pick)
	c.u32(r).u32(n).u32(k).flag(split).at(sums, 4)
	s.end(int(groupSize), n, tiles, z)
	if split && s.err == nil {
		s.begin(linearOps(w.dt, tile), "linear_sum").u32(n).view(dst).at(sums, 4).u32(r).u32(blocks)
		s.elements(n, r)
	}
}

func (s *stream) Linear(dst, x tensor.Tensor, w backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinear(dst, x, w)) || s.away(dst, x) {
		return
	}
	if m := s.own(w); m != nil {
		s.product(dst, x, m.matrix(), tensor.Tensor{})
	}
}

func (s *stream) LinearRows(dst, x tensor.Tensor, w backend.Weight, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckLinearRows(dst, x, w, rows)) || s.away(dst, x, rows) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	s.checkIDs(linearID, rows, 0, m.n)
	if s.err == nil {
		s.product(dst, x, m.matrix(), rows)
	}
}

func (s *stream) Project(dst, x, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckProject(dst, x, w)) || s.away(dst, x, w) {
		return
	}
	m, off := s.on(&w)
	s.product(dst, x, matrix{m, off, uint64(4 * w.Stride(0)), tensor.F32}, tensor.Tensor{})
}

func (s *stream) AddBias(dst, x, b tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("AddBias", dst, x)) || s.fails(backend.CheckVector("AddBias", "b", b, x.Dim(1))) || s.away(dst, x, b) || dst.Dim(0) == 0 {
		return
	}
	s.begin(rowOps, "add_bias").u32(dst.Dim(1)).view(dst).view(x).view(b)
	s.elements(dst.Dim(1), dst.Dim(0))
}

func (s *stream) Add(dst, a, b tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("Add", dst, a, b)) || s.away(dst, a, b) || dst.Dim(0) == 0 {
		return
	}
	s.begin(rowOps, "add").u32(dst.Dim(1)).view(dst).view(a).view(b)
	s.elements(dst.Dim(1), dst.Dim(0))
}

func (s *stream) RMSNorm(dst, x, w tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckRows("RMSNorm", dst, x)) || s.fails(backend.CheckVector("RMSNorm", "w", w, x.Dim(1))) || s.away(dst, x, w) || dst.Dim(0) == 0 {
		return
	}
	s.begin(rowOps, "rms_norm").u32(dst.Dim(1)).view(dst).view(x).view(w).f32(eps)
	s.groups(dst.Dim(0))
}

func (s *stream) LayerNorm(dst, x, w, b tensor.Tensor, eps float32) {
	if s.err != nil || s.fails(backend.CheckRows("LayerNorm", dst, x)) ||
		s.fails(backend.CheckVector("LayerNorm", "w", w, x.Dim(1))) || s.fails(backend.CheckVector("LayerNorm", "b", b, x.Dim(1))) || s.away(dst, x, w, b) || dst.Dim(0) == 0 {
		return
	}
	s.begin(rowOps, "layer_norm").u32(dst.Dim(1)).view(dst).view(x).view(w).view(b).f32(eps)
	s.groups(dst.Dim(0))
}

func (s *stream) SwiGLU(dst, gate, up tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SwiGLU", dst, gate, up)) || s.away(dst, gate, up) || dst.Dim(0) == 0 {
		return
	}
	s.begin(rowOps, "swiglu").u32(dst.Dim(1)).view(dst).view(gate).view(up)
	s.elements(dst.Dim(1), dst.Dim(0))
}

func (s *stream) SigmoidMul(dst, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("SigmoidMul", dst, x, gate)) || s.away(dst, x, gate) || rowsOf(dst) == 0 {
		return
	}
	n := dst.Dim(dst.Dims() - 1)
	s.begin(rowOps, "sigmoid_mul").u32(n).view(dst).view(x).view(gate)
	s.elements(n, rowsOf(dst))
}

func (s *stream) Gather(dst, x, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckGather(dst, x, rows)) || s.away(dst, x, rows) || dst.Dim(0) == 0 {
		return
	}
	s.checkIDs(gatherRow, rows, 0, x.Dim(0))
	if s.err != nil {
		return
	}
	s.begin(rowOps, "gather").u32(dst.Dim(1)).view(dst).view(x).view(rows)
	s.elements(dst.Dim(1), dst.Dim(0))
}

func (s *stream) SumRows(p backend.Plan, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSumRows(p, x)) || s.away(x) || !s.current(p) || x.Dim(0) == 0 {
		return
	}
	s.begin(deltaOps, "sum_rows").tables(&s.plan).u32(x.Dim(1)).view(x)
	s.elements(x.Dim(1), len(s.plan.segs))
}

func (s *stream) Copy(dst, src tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckCopy(dst, src)) || s.away(dst, src) {
		return
	}
	s.move(dst, dst, src)
}

// copies are the kernels by the size of an element.
var copies = [5]string{1: "copy1", 2: "copy2", 4: "copy4"}

// move copies the elements of a shape between views of at least that shape.
func (s *stream) move(shape, dst, src tensor.Tensor) {
	n, size := shape.Len(), shape.DType().Bytes(1)
	if n == 0 {
		return
	}
	lead := tensor.MaxDims - shape.Dims() // axes of length 1 in front
	dim := func(i int) uint64 {
		if i < lead {
			return 1
		}
		return uint64(shape.Dim(i - lead))
	}
	c := s.begin(rowOps, copies[size]).u64(uint64(n)).u64(dim(1)).u64(dim(2)).u64(dim(3))
	for _, t := range [2]tensor.Tensor{dst, src} {
		b, off := t.Buffer()
		m := b.(*memory) // away looked
		if c.err != nil {
			break
		}
		c.mem(c.d.slabs[m.slab].mem)
		binary.LittleEndian.PutUint64(c.d.args[:], uint64(m.off+int64(off))/uint64(size))
		for i := range tensor.MaxDims {
			stride := 0
			if i >= lead {
				stride = t.Stride(i - lead)
			}
			binary.LittleEndian.PutUint64(c.d.args[8+8*i:], uint64(stride))
		}
		c.set(8 + 8*tensor.MaxDims)
	}
	s.end(int(groupSize), n, 1, 1)
}

func (s *stream) ArgMax(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckArgMax(dst, x)) || s.away(dst, x) || x.Dim(0) == 0 {
		return
	}
	s.begin(rowOps, "arg_max").u32(x.Dim(1)).view(dst).view(x)
	s.groups(x.Dim(0))
}

func (s *stream) Softmax(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("Softmax", dst, x)) || s.away(dst, x) || dst.Dim(0) == 0 {
		return
	}
	s.begin(rowOps, "softmax").u32(dst.Dim(1)).view(dst).view(x)
	s.groups(dst.Dim(0))
}
