package cpu

import (
	"fmt"
	"unsafe"

	"samebit/backend"
	"samebit/backend/cpu/internal/gemm"
	"samebit/backend/cpu/internal/panel"
	"samebit/tensor"
)

// gradProduct is a product under way that adds to what is there: c += a·bᵀ over k
// inputs. a lies packed in tiles of m rows, b in panels of n outputs.
type gradProduct struct {
	c       matrix
	a, b    matrix // as they lie in memory
	w       *weight
	m, n, k int
	per     int // tiles or inputs per chunk while packing
	chunks  int // of panels
	packer  gemm.Packer
}

// packs is the number of chunks in which rows of n values, one per input, are packed.
func (p *gradProduct) packs(n int) int {
	p.per = max(1, rowWork/n)
	return (p.k + p.per - 1) / p.per
}

// addProduct packs the operands, of which a lies transposed or not and b either is
// w, turned, or has the inputs as rows, and runs the product.
func (s *stream) addProduct(trans bool) {
	o := &s.grad
	p := &o.prod
	if s.err != nil || p.m == 0 || p.n == 0 || p.k == 0 {
		return
	}
	ks := s.dev.gemm
	count := panel.Count(p.n)
	if len(o.a) < p.m*p.k {
		o.a = aligned(p.m * p.k)
	}
	if len(o.b) < count*panel.Width*p.k {
		o.b = aligned(count * panel.Width * p.k)
	}
	if trans {
		s.run(p.packs(p.m), func(s *stream, _, chunk int) {
			p := &s.grad.prod
			s.dev.gemm.PackTransInputs(s.grad.a, p.a.v, p.a.stride, p.m, p.k, chunk*p.per, min((chunk+1)*p.per, p.k))
		})
	} else {
		tiles := ks.Tiles(p.m)
		p.per = max(1, rowWork*tiles/(p.m*p.k))
		s.run((tiles+p.per-1)/p.per, func(s *stream, _, chunk int) {
			p, ks := &s.grad.prod, s.dev.gemm
			t0 := chunk * p.per
			ks.PackTiles(s.grad.a, p.a.v, p.a.stride, p.m, p.k, t0, min(t0+p.per, ks.Tiles(p.m)))
		})
	}
	if p.w != nil {
		s.run((p.n+panel.KB-1)/panel.KB, turnBody)
	} else {
		s.run(p.packs(p.n), func(s *stream, _, chunk int) {
			p := &s.grad.prod
			gemm.PackInputs(s.grad.b, p.b.v, p.b.stride, p.n, p.k, chunk*p.per, min((chunk+1)*p.per, p.k))
		})
	}
	p.chunks = s.cut(count, max(1, min(ks.Group(p.m, p.k), count/(4*s.threads()))))
	s.run(p.chunks, func(s *stream, worker, chunk int) {
		o, p, ks := &s.grad, &s.grad.prod, s.dev.gemm
		n := panel.Count(p.n)
		ks.Accumulate(p.c.v, p.c.stride, p.n, o.a, p.m, p.k, o.b, o.cuts, chunk*n/p.chunks, (chunk+1)*n/p.chunks, s.tmp(worker, ks.ScratchSize(p.m, p.k)))
	})
}

// dotCuts are the blocks of a DOT of n terms.
func (s *stream) dotCuts(n int) {
	s.grad.cuts = s.grad.cuts[:0]
	for b := panel.KB; b < n; b += panel.KB {
		s.grad.cuts = append(s.grad.cuts, b)
	}
	s.grad.cuts = append(s.grad.cuts, n)
}

func (s *stream) LinearGrad(dx, dy tensor.Tensor, w backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinearGrad(dx, dy, w)) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	s.grad.prod = gradProduct{c: s.host(dx), a: s.host(dy), w: m, m: dx.Dim(0), n: m.k, k: m.n, packer: gemm.PackerFor(s.dev.set)}
	s.dotCuts(m.n)
	s.addProduct(false)
}

// turnBody packs 128 inputs of the weight, over all its outputs, as outputs.
func turnBody(s *stream, worker, chunk int) {
	o, p, w := &s.grad, &s.grad.prod, s.grad.prod.w
	k0 := chunk * panel.KB
	cols := min(panel.KB, w.k-k0)
	tmp := s.tmp(worker, panel.KB*panel.Width)
	for i := range panel.Count(w.n) {
		src := w.panels[i*w.size : (i+1)*w.size]
		from := tmp
		if w.codec.Expand != nil {
			w.codec.Expand(tmp, src, w.k, k0, cols)
		} else {
			from = floats(src)[k0*panel.Width:]
		}
		rows := min(panel.Width, w.n-i*panel.Width)
		for c := 0; c < cols; c += panel.Width {
			dst := o.b[(k0+c)*w.n+i*panel.Width*panel.Width:]
			p.packer.Pack(dst, from[c*panel.Width:], panel.Width, min(panel.Width, cols-c), rows)
		}
	}
}

func (s *stream) ProjectGrad(dx, dy, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckProjectGrad(dx, dy, w)) {
		return
	}
	s.grad.prod = gradProduct{c: s.host(dx), a: s.host(dy), b: s.host(w), m: dx.Dim(0), n: w.Dim(1), k: w.Dim(0)}
	s.dotCuts(w.Dim(0))
	s.addProduct(false)
}

func (s *stream) WeightGrad(dw, dy, x tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckWeightGrad(dw, dy, x, p)) || !s.current(p) {
		return
	}
	s.grad.prod = gradProduct{c: s.host(dw), a: s.host(dy), b: s.host(x), m: dy.Dim(1), n: x.Dim(1), k: x.Dim(0)}
	s.grad.cuts = s.grad.cuts[:0]
	for _, b := range s.rowBlocks() {
		s.grad.cuts = append(s.grad.cuts, b.hi)
	}
	s.addProduct(true)
}

func (s *stream) BiasGrad(db, dy tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckBiasGrad(db, dy, p)) || !s.current(p) {
		return
	}
	s.load(dy)
	s.eachBlock(s.vector(db), func(s *stream, _, lo, hi int, part []float32) {
		m := &s.grad.m[0]
		s.dev.vec.SumRows(part, m.v[lo*m.stride:], m.stride, hi-lo)
	})
}

func (s *stream) EmbedGrad(dtable, dy, ids tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckEmbedGrad(dtable, dy, ids)) {
		return
	}
	s.scatter("EmbedGrad", dtable, dy, ids, true)
}

func (s *stream) GatherGrad(dx, dy, rows tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckGatherGrad(dx, dy, rows)) {
		return
	}
	s.scatter("GatherGrad", dx, dy, rows, false)
}

const scatterCols = 64 // columns that one worker takes, rows in order

// scatter adds rows of dy to rows of dst; skip passes negative ids over.
func (s *stream) scatter(op string, dst, dy, ids tensor.Tensor, skip bool) {
	if s.away(dst, dy, ids) {
		return
	}
	id, _ := ids.I32()
	for r, n := range id {
		if (n < 0 && !skip) || int(n) >= dst.Dim(0) {
			s.fails(fmt.Errorf("cpu: %s: row %d goes to row %d of %d", op, r, n, dst.Dim(0)))
			return
		}
	}
	s.load(dst, dy)
	s.grad.ids = id
	s.run((dy.Dim(1)+scatterCols-1)/scatterCols, func(s *stream, _, chunk int) {
		o := &s.grad
		lo, hi := chunk*scatterCols, min((chunk+1)*scatterCols, o.m[1].cols)
		for r, n := range o.ids {
			if n >= 0 {
				d := o.m[0].row(int(n))[lo:hi]
				s.dev.vec.Add(d, d, o.m[1].row(r)[lo:hi])
			}
		}
	})
}

// floats views float32 panels.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
