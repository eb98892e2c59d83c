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
// inputs, b packed in panels of n outputs.
type gradProduct struct {
	sum           gemm.Sum
	b             matrix  // as it lies in memory, inputs as rows
	w             *weight // or this, turned
	per, groups   int     // while packing: inputs per chunk, or panels of w, and groups of those
	rows, columns int     // chunks of the rows' tiles and of panels
	packer        gemm.Packer
}

// addProduct packs b and runs the product.
func (s *stream) addProduct() {
	o := &s.grad
	p := &o.prod
	m, n, k := p.sum.M, p.sum.N, p.sum.K
	if s.err != nil || m == 0 || n == 0 || k == 0 {
		return
	}
	count := panel.Count(n)
	if len(o.b) < count*panel.Width*k {
		o.b = aligned(count * panel.Width * k)
	}
	p.sum.Panels, p.sum.Cuts = o.b, o.cuts
	if p.w != nil {
		p.per = max(1, rowWork/(panel.Width*min(n, panel.KB)))
		p.groups = (panel.Count(k) + p.per - 1) / p.per
		s.run((n+panel.KB-1)/panel.KB*p.groups, turnBody)
	} else {
		p.per = max(1, rowWork/n)
		s.run((k+p.per-1)/p.per, func(s *stream, _, chunk int) {
			p := &s.grad.prod
			s.dev.gemm.PackInputs(p.sum.Panels, p.b.v, p.b.stride, p.sum.N, p.sum.K, chunk*p.per, min((chunk+1)*p.per, p.sum.K))
		})
	}
	// Every chunk of rows packs them once and reads all of b; where there are too few
	// chunks for the workers the panels are cut, too.
	t := s.threads()
	p.sum.Tiles = s.dev.gemm.Tiles(m)
	if p.sum.Tiles > t {
		p.sum.Tiles = min(m, (p.sum.Tiles+t-1)/t*t) // as many for every worker
	}
	tiles := p.sum.Tiles
	p.rows, p.columns = s.cut(tiles, min(8, max(1, tiles/(2*t)))), 1
	if p.rows < 2*t {
		p.columns = min(count, (2*t+p.rows-1)/p.rows)
	}
	s.run(p.rows*p.columns, func(s *stream, worker, chunk int) {
		p, ks := &s.grad.prod, s.dev.gemm
		count := panel.Count(p.sum.N)
		c := chunk % p.columns
		t0, t1 := s.tileShare(chunk/p.columns, p.rows, p.sum.Tiles)
		ks.Accumulate(&p.sum, t0, t1, c*count/p.columns, (c+1)*count/p.columns, s.tmp(worker, ks.SumScratch()))
	})
}

// tileShare is chunk's part of n tiles: workers take chunks in turn, and what a worker
// takes is as much as the others' in all.
func (s *stream) tileShare(chunk, chunks, n int) (from, to int) {
	t := s.threads()
	if chunks%t != 0 {
		return chunk * n / chunks, (chunk + 1) * n / chunks
	}
	w, i, each := chunk%t, chunk/t, chunks/t
	lo, hi := w*n/t, (w+1)*n/t
	return lo + i*(hi-lo)/each, lo + (i+1)*(hi-lo)/each
}

// sum is a product without its panels and cuts.
func sum(c, a matrix, m, n, k int, trans bool) gemm.Sum {
	return gemm.Sum{C: c.v, LDC: c.stride, M: m, N: n, K: k, A: a.v, LDA: a.stride, Trans: trans}
}

// dotCuts are the blocks of a DOT of n terms.
func (s *stream) dotCuts(n int) {
	s.grad.cuts = s.grad.cuts[:0]
	for b := panel.KB; b < n; b += panel.KB {
		s.grad.cuts = append(s.grad.cuts, b)
	}
	s.grad.cuts = append(s.grad.cuts, n)
}

// firstProduct is addProduct to what may hold nothing yet.
func (s *stream) firstProduct() {
	p := &s.grad.prod.sum
	s.firsts(matrix{v: p.C})
	p.Fresh = s.grad.fresh[0]
	s.addProduct()
}

func (s *stream) LinearGrad(dx, dy tensor.Tensor, w backend.Weight) {
	if s.err != nil || s.fails(backend.CheckLinearGrad(dx, dy, w)) {
		return
	}
	m := s.own(w)
	if m == nil {
		return
	}
	s.grad.prod = gradProduct{sum: sum(s.host(dx), s.host(dy), dx.Dim(0), m.k, m.n, false), w: m, packer: gemm.PackerFor(s.dev.set)}
	s.dotCuts(m.n)
	s.firstProduct()
}

// turnBody packs 128 inputs of some panels of the weight as outputs.
func turnBody(s *stream, worker, chunk int) {
	o, p, w := &s.grad, &s.grad.prod, s.grad.prod.w
	k0 := chunk / p.groups * panel.KB
	cols := min(panel.KB, w.k-k0)
	tmp := s.tmp(worker, panel.KB*panel.Width)
	from := chunk % p.groups * p.per
	for i := from; i < min(from+p.per, panel.Count(w.n)); i++ {
		src := w.panels[i*w.size : (i+1)*w.size]
		in := tmp
		if w.codec.Expand != nil {
			w.codec.Expand(tmp, src, w.k, k0, cols)
		} else {
			in = floats(src)[k0*panel.Width:]
		}
		rows := min(panel.Width, w.n-i*panel.Width)
		for c := 0; c < cols; c += panel.Width {
			dst := o.b[(k0+c)*w.n+i*panel.Width*panel.Width:]
			p.packer.Pack(dst, in[c*panel.Width:], panel.Width, min(panel.Width, cols-c), rows)
		}
	}
}

func (s *stream) ProjectGrad(dx, dy, w tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckProjectGrad(dx, dy, w)) {
		return
	}
	s.grad.prod = gradProduct{sum: sum(s.host(dx), s.host(dy), dx.Dim(0), w.Dim(1), w.Dim(0), false), b: s.host(w)}
	s.dotCuts(w.Dim(0))
	s.firstProduct()
}

func (s *stream) WeightGrad(dw, dy, x tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckWeightGrad(dw, dy, x, p)) || !s.current(p) {
		return
	}
	s.grad.prod = gradProduct{sum: sum(s.host(dw), s.host(dy), dy.Dim(1), x.Dim(1), x.Dim(0), true), b: s.host(x)}
	s.grad.cuts = s.grad.cuts[:0]
	for _, b := range s.rowBlocks() {
		s.grad.cuts = append(s.grad.cuts, b.hi)
	}
	s.addProduct()
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
