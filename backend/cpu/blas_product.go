package cpu

import (
	"samebit/backend/cpu/internal/gemm"
	"samebit/backend/cpu/internal/gemm/blas1"
	"samebit/backend/cpu/internal/panel"
	"samebit/tensor"
)

// operand is one factor of a product seen as rows of k inputs: input i of row r
// lies at v[r·ld + i], or at v[i·ld + r] if trans.
type operand struct {
	v     []float32
	ld    int
	trans bool
}

// matrixOperand checks the length of a matrix of rows·inputs elements.
func matrixOperand(v []float32, ld int, trans bool, rows, inputs int) operand {
	if trans {
		rows, inputs = inputs, rows
	}
	_ = v[(rows-1)*ld+inputs-1]
	return operand{v, ld, trans}
}

// from is the operand from a row on.
func (o operand) from(row int) []float32 {
	if o.trans {
		return o.v[row:]
	}
	return o.v[row*o.ld:]
}

// row returns row r as a vector.
func (o operand) row(r, k int) strided {
	if o.trans {
		return strided{v: o.v, off: r, inc: o.ld, n: k}
	}
	return strided{v: o.v, off: r * o.ld, inc: 1, n: k}
}

// part says which elements of C take part.
type part uint8

const (
	whole part = iota
	upper      // column >= row
	lower      // column <= row
)

// blasProduct is C[i,j] = FMA(beta, C[i,j], alpha·DOT(a row i, w row j)).
// Element (i, j) of C lies at c[off + i·rowStep + j·colStep].
type blasProduct struct {
	m, n, k          int
	a, w             operand
	c                []float32
	off              int
	rowStep, colStep int
	part             part

	// The plan: blocks of rows as packed, and the cut into chunks.
	row0, mb int // rows of this pass: [row0, row0+mb)
	block    int // rows of a block, at most blockRows
	panels   int // of a chunk
	columns  int // chunks along the columns
	perSplit int // blocks of a chunk along the rows
	cols     int // columns of a chunk with one row
	direct   bool
	serial   bool

	rowVectors []float32 // [m][k], if there are few rows
}

const (
	// blockRows are the rows whose results a worker holds back before merging;
	// as many as gemm.Panels takes at a time.
	blockRows = 224

	// packBytes bounds the panels that a worker packs before it uses them, so
	// that they are still in its second-level cache (or its share of the third).
	packBytes = 1 << 20

	// passFloats bounds the rows that are packed at a time, 16 MiB.
	passFloats = 4 << 20

	// serialWork is the number of multiplications below which one thread does
	// everything.
	serialWork = 1 << 17
)

// Gemm computes C[m, n] from A[m, k] and B[k, n], or from A[k, m] and B[n, k]
// where they are to be transposed.
func (b *BLAS) Gemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, bm []float32, ldb int, beta float32, c []float32, ldc int) {
	if m == 0 || n == 0 {
		return
	}
	_ = c[(m-1)*ldc+n-1]
	p := blasProduct{m: m, n: n, k: k, c: c, rowStep: ldc, colStep: 1}
	if k > 0 {
		p.a = matrixOperand(a, lda, transA, m, k)
		p.w = matrixOperand(bm, ldb, !transB, n, k)
	}
	b.product(p, alpha, beta)
}

// Syrk is Gemm with B = Aᵀ (A[n, k]; A[k, n] with trans: C = Aᵀ·A), restricted to
// the upper or lower triangle of C[n, n]; the rest is neither read nor written.
func (b *BLAS) Syrk(upperTriangle, trans bool, n, k int, alpha float32, a []float32, lda int, beta float32, c []float32, ldc int) {
	if n == 0 {
		return
	}
	_ = c[(n-1)*ldc+n-1]
	p := blasProduct{m: n, n: n, k: k, c: c, rowStep: ldc, colStep: 1, part: lower}
	if upperTriangle {
		p.part = upper
	}
	if k > 0 {
		p.a = matrixOperand(a, lda, trans, n, k)
		p.w = p.a
	}
	b.product(p, alpha, beta)
}

// Gemv computes y = beta·y + alpha·A·x for A[m, n], or with Aᵀ if trans: the
// numbers of Gemm with x as a matrix of one column.
func (b *BLAS) Gemv(trans bool, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int) {
	if m == 0 || n == 0 {
		return
	}
	if trans {
		m, n = n, m
	}
	vx, vy := vector(n, x, incX), vector(m, y, incY)
	p := blasProduct{m: 1, n: m, k: n, c: y, off: vy.off, colStep: incY}
	p.w = matrixOperand(a, lda, trans, m, n)
	j := b.jobs.Get().(*blasJob)
	j.prod = p
	j.prod.rowVectors = vx.contiguous(&j.x)
	j.product(alpha, beta)
}

func (b *BLAS) product(p blasProduct, alpha, beta float32) {
	j := b.jobs.Get().(*blasJob)
	j.prod = p
	j.product(alpha, beta)
}

// product computes j.prod and gives the job back.
func (j *blasJob) product(alpha, beta float32) {
	p := &j.prod
	j.alpha, j.beta = alpha, beta
	defer j.done()
	if alpha == 0 || p.k == 0 {
		if beta != 1 {
			j.scaleC()
		}
		return
	}
	p.serial = int64(p.m)*int64(p.n)*int64(p.k) <= serialWork
	if p.turns() {
		p.m, p.n = p.n, p.m
		p.a, p.w = p.w, p.a
		p.rowStep, p.colStep = p.colStep, p.rowStep
	}
	if p.part == whole && (p.m == 1 || p.m <= fewRows && p.w.trans) {
		j.fewRows()
		return
	}
	j.manyRows()
}

// turns says whether to compute Cᵀ = W·Aᵀ instead, for the same bits: FMA does
// not care which factor comes first. Outputs with few columns fill the vectors
// better that way, or spare a pass over the long factor to pack it.
func (p *blasProduct) turns() bool {
	if p.part != whole || p.m == 1 {
		return false
	}
	filled := func(m, n int) int { return m * panel.Count(n) }
	return filled(p.m, p.n) > 2*filled(p.n, p.m) || p.n <= 2*panel.Width && p.m >= 8*p.n
}

// span returns the columns of row i that take part, cut to [j0, j1).
func (p *blasProduct) span(i, j0, j1 int) (int, int) {
	switch p.part {
	case upper:
		j0 = max(j0, i)
	case lower:
		j1 = min(j1, i+1)
	}
	return j0, max(j0, j1)
}

// rowC is row i of C from column j0 on.
func (p *blasProduct) rowC(i, j0, n int) strided {
	return strided{v: p.c, off: p.off + i*p.rowStep + j0*p.colStep, inc: p.colStep, n: n}
}

// scaleC sets C = beta·C.
func (j *blasJob) scaleC() {
	p := &j.prod
	for i := range p.m {
		j0, j1 := p.span(i, 0, p.n)
		c := p.rowC(i, j0, j1-j0)
		if v, ok := c.unit(0, c.n); ok {
			j.blas.scal(j.beta, v)
			continue
		}
		for e, o := 0, c.off; e < c.n; e++ {
			if j.beta == 0 {
				c.v[o] = 0
			} else {
				c.v[o] *= j.beta
			}
			o += c.inc
		}
	}
}

// merge sets c = FMA(beta, c, alpha·t); t is overwritten.
func (j *blasJob) merge(worker int, c strided, t []float32) {
	if j.alpha != 1 {
		blas1.Scal(j.blas.dev.set, j.alpha, t)
	}
	if j.beta != 0 {
		if v, ok := c.unit(0, len(t)); ok {
			blas1.Axpy(j.blas.dev.set, j.beta, v, t)
		} else {
			buf := reserve(&j.work[worker].buf, 2*gatherStep)
			for i := 0; i < len(t); i += len(buf) {
				v := buf[:min(len(buf), len(t)-i)]
				c.gather(v, i)
				blas1.Axpy(j.blas.dev.set, j.beta, v, t[i:])
			}
		}
	}
	c.scatter(t, 0)
}

// fewRows computes a row or two, for which packing w would only cost time.
func (j *blasJob) fewRows() {
	p := &j.prod
	if p.rowVectors == nil {
		p.rowVectors = reserve(&j.x, p.m*p.k)
		for r := range p.m {
			p.a.row(r, p.k).gather(p.rowVectors[r*p.k:(r+1)*p.k], 0)
		}
	}
	p.direct = j.alpha == 1 && j.beta == 0 && p.colStep == 1
	if p.w.trans {
		p.cols = wideColumns
		for p.cols > 256 && (p.n < 2*p.cols*len(j.work) || p.cols*p.m > wideColumns) {
			p.cols /= 2
		}
		j.run((p.n+p.cols-1)/p.cols, p.serial, wideChunk)
		return
	}
	p.cols = max(1, chunkBytes/(4*min(p.k, maxSlice)*panel.Width)) * panel.Width
	j.run((p.n+p.cols-1)/p.cols, p.serial, tallChunk)
}

const (
	// chunkBytes is about how much of w a worker claims at a time: some 10 µs at memory
	// speed.
	chunkBytes = 256 << 10

	// wideColumns are the columns whose chains run side by side in the first
	// cache when w lies transposed.
	wideColumns = 1024

	// maxSlice is the length of rows up to which a panel is packed whole: 512 KiB.
	// Panels of longer rows are packed, and used, one block at a time.
	maxSlice = 4096

	// fewRows is the number of rows up to which w is read as it lies.
	fewRows = 6

	// fewColumns are too few to fill a panel: each is a DOT of its own.
	fewColumns = 6
)

// wideChunk takes columns whose inputs lie side by side: every input is one step
// of all their chains.
func wideChunk(j *blasJob, worker, chunk int) {
	p := &j.prod
	j0 := chunk * p.cols
	n := min(p.cols, p.n-j0)
	buf := reserve(&j.work[worker].out, 2*fewRows*wideColumns)
	var acc, total [fewRows][]float32
	for r := range p.m {
		acc[r], total[r] = buf[2*r*p.cols:][:n], buf[(2*r+1)*p.cols:][:n]
		if p.direct {
			total[r], _ = p.rowC(r, j0, n).unit(0, n)
		}
		clear(total[r])
	}
	set := j.blas.dev.set
	for k0 := 0; k0 < p.k; k0 += panel.KB {
		for r := range p.m {
			clear(acc[r])
		}
		for k := k0; k < min(k0+panel.KB, p.k); k++ {
			o := k*p.w.ld + j0
			for r := range p.m {
				blas1.Axpy(set, p.rowVectors[r*p.k+k], p.w.v[o:o+n], acc[r])
			}
		}
		for r := range p.m {
			blas1.Axpy(set, 1, acc[r], total[r]) // FMA(1, acc, total) is the plain add
		}
	}
	if !p.direct {
		for r := range p.m {
			j.merge(worker, p.rowC(r, j0, n), total[r])
		}
	}
}

// tallChunk takes columns of the only row, the inputs of each side by side.
func tallChunk(j *blasJob, worker, chunk int) {
	p := &j.prod
	j0 := chunk * p.cols
	n := min(p.cols, p.n-j0)
	c := p.rowC(0, j0, n)
	full := panel.Count(n) * panel.Width
	t := reserve(&j.work[worker].out, full)[:full]
	switch {
	case n < fewColumns:
		for i := range n {
			t[i] = blas1.Dot(j.blas.dev.set, p.rowVectors, p.w.v[(j0+i)*p.w.ld:])
		}
	case p.k <= maxSlice:
		pack := reserve(&j.work[worker].pack, panel.Width*p.k)
		for i := 0; i < n; i += panel.Width {
			j.pack(pack, j0+i, min(panel.Width, n-i), 0, p.k)
			j.blas.codec.Gemv(t[i:i+panel.Width], p.rowVectors, tensor.AsBytes(pack), p.k)
		}
	default:
		j.blocks(worker, t, j0, n)
	}
	j.merge(worker, c, t[:n])
}

// blocks sets t to the DOT of columns [j0, j0+n), block after block of inputs: a
// Gemv of one block is that block's chain, so their sum is the DOT.
func (j *blasJob) blocks(worker int, t []float32, j0, n int) {
	p := &j.prod
	pack := reserve(&j.work[worker].pack, len(t)*panel.KB)
	one := reserve(&j.work[worker].buf, max(len(t), 2*gatherStep))[:len(t)]
	clear(t)
	for k0 := 0; k0 < p.k; k0 += panel.KB {
		kn := min(panel.KB, p.k-k0)
		j.pack(pack, j0, n, k0, kn)
		j.blas.codec.Gemv(one, p.rowVectors[k0:k0+kn], tensor.AsBytes(pack[:len(t)*kn]), kn)
		blas1.Axpy(j.blas.dev.set, 1, one, t)
	}
}

// pack packs inputs [k0, k0+k) of columns [j0, j0+n) of the product into panels.
func (j *blasJob) pack(dst []float32, j0, n, k0, k int) {
	w := &j.prod.w
	if !w.trans {
		for i := 0; i < n; i += panel.Width {
			j.blas.packer.Pack(dst[i*k:(i+panel.Width)*k], w.v[(j0+i)*w.ld+k0:], w.ld, min(panel.Width, n-i), k)
		}
		return
	}
	full := n / panel.Width
	for i := range k {
		// Along the row, over all the panels: it is read in one piece.
		src := w.v[(k0+i)*w.ld+j0:][:full*panel.Width]
		d := i * panel.Width
		for len(src) >= panel.Width {
			*(*[panel.Width]float32)(dst[d:]) = *(*[panel.Width]float32)(src)
			src = src[panel.Width:]
			d += k * panel.Width
		}
	}
	if rest := n - full*panel.Width; rest > 0 {
		gemm.PackPanel(j.blas.dev.set, dst[full*panel.Width*k:][:panel.Width*k], w.v[k0*w.ld+j0+full*panel.Width:], w.ld, true, rest, k)
	}
}

// manyRows packs the rows, pass by pass, and lets each worker pack the panels
// that it is about to use.
func (j *blasJob) manyRows() {
	p := &j.prod
	p.direct = j.alpha == 1 && j.beta == 0 && p.colStep == 1 && p.part == whole
	threads := len(j.work)
	pass := max(passFloats/p.k, 2*blockRows)
	pass = (p.m + (p.m+pass-1)/pass - 1) / ((p.m + pass - 1) / pass) // even passes
	count := panel.Count(p.n)
	for p.row0 = 0; p.row0 < p.m; p.row0 += pass {
		p.mb = min(pass, p.m-p.row0)
		blocks := (p.mb + blockRows - 1) / blockRows
		p.block = (p.mb + blocks - 1) / blocks
		blocks = (p.mb + p.block - 1) / p.block
		reserve(&j.pa, p.mb*p.k)
		j.run(blocks, p.serial, packRows)

		p.panels = min(8, max(1, packBytes/(4*panel.Width*p.k)))
		for p.panels > 1 && count < 3*threads*p.panels {
			p.panels--
		}
		p.columns = (count + p.panels - 1) / p.panels
		p.perSplit = blocks
		if splits := (2*threads + p.columns - 1) / p.columns; threads > 1 && splits > 1 && !p.serial {
			p.perSplit = max(1, blocks/splits)
		}
		j.run(p.columns*((blocks+p.perSplit-1)/p.perSplit), p.serial, productChunk)
	}
}

// packRows packs one block of rows.
func packRows(j *blasJob, _, chunk int) {
	p, ks := &j.prod, j.blas.dev.gemm
	r0 := chunk * p.block
	rows := min(p.block, p.mb-r0)
	dst := j.pa[r0*p.k : (r0+rows)*p.k]
	if src := p.a.from(p.row0 + r0); p.a.trans {
		ks.PackTrans(dst, src, p.a.ld, rows, p.k, 0, ks.Tiles(rows))
	} else {
		ks.PackA(dst, src, p.a.ld, rows, p.k)
	}
}

// productChunk computes some panels for some blocks of rows.
func productChunk(j *blasJob, worker, chunk int) {
	p, ks := &j.prod, j.blas.dev.gemm
	w := &j.work[worker]
	j0 := chunk % p.columns * p.panels * panel.Width
	n := min(p.panels*panel.Width, p.n-j0)
	count := panel.Count(n)
	var pack []float32
	for r0, left := chunk/p.columns*p.perSplit*p.block, p.perSplit; r0 < p.mb && left > 0; r0, left = r0+p.block, left-1 {
		rows := min(p.block, p.mb-r0)
		i0 := p.row0 + r0
		if p.part == upper && j0+n <= i0 || p.part == lower && j0 >= i0+rows {
			continue
		}
		if pack == nil {
			pack = reserve(&w.pack, count*panel.Width*p.k)
			j.pack(pack, j0, n, 0, p.k)
		}
		out, ld := reserve(&w.out, rows*n), n
		if p.direct {
			out, ld = p.c[p.off+i0*p.rowStep+j0:], p.rowStep
		}
		scratch := reserve(&w.tiles, ks.ScratchSize(rows))
		ks.Panels(out, ld, n, j.pa[r0*p.k:(r0+rows)*p.k], rows, p.k, &j.blas.codec, tensor.AsBytes(pack), 0, count, scratch)
		if p.direct {
			continue
		}
		for r := range rows {
			c0, c1 := p.span(i0+r, j0, j0+n)
			if c0 < c1 {
				j.merge(worker, p.rowC(i0+r, c0, c1-c0), out[r*n+c0-j0:r*n+c1-j0])
			}
		}
	}
}
