package cpu

import (
	"sync"

	"samebit/backend/cpu/internal/gemm"
	"samebit/backend/cpu/internal/gemm/blas1"
	"samebit/backend/cpu/internal/panel"
)

// BLAS offers the kernels of a device on slices in row-major storage, with the
// arguments of the Basic Linear Algebra Subprograms: matrices have a leading
// dimension (the distance of their rows), vectors an increment, and a vector
// with a negative increment is walked from its end. Its methods may be called
// from any number of goroutines; large ones share the device's workers, which
// take one operation at a time. Scratch memory is kept between calls.
//
// Each result is defined by itself, with DOT and RSUM of docs/numerics.md:
//
//	Dot          DOT(x, y)
//	SumSquares   RSUM(x²)
//	Axpy         y[i] = FMA(alpha, x[i], y[i])
//	Scal         x[i] = alpha·x[i]
//	Ger          A[i,j] = FMA(alpha·x[i], y[j], A[i,j])          the product is rounded first
//	Gemm, Gemv,  C[i,j] = FMA(beta, C[i,j], alpha·DOT(A[i,:], B[:,j]))
//	Syrk                                                         alpha·DOT is rounded first
//
// so a number depends only on the numbers that enter it: never on shapes,
// threads, strides, storage order, addresses or the instruction set. With
// beta = 0 the last line is alpha·DOT and C is not read; with alpha = 0 or no
// inputs it is beta·C (+0 for beta = 0) and A and B are not read (but Gemv leaves
// y as it is when A has no elements); with alpha = 0 Axpy and Ger leave their
// result as it is and Scal writes +0.
//
// Sizes must not be negative, increments not zero and leading dimensions at
// least the length of a row. A slice that is too short for its sizes panics like
// an index out of range, before anything is written. Results may not overlap
// other operands.
type BLAS struct {
	dev    *Device
	codec  panel.Codec
	packer gemm.Packer
	jobs   sync.Pool // of *blasJob
}

// BLAS returns the device's kernels on slices. Every call returns a new value
// with scratch memory of its own, so it should be kept. It stays usable after
// the device is closed, on one thread.
func (d *Device) BLAS() *BLAS {
	b := &BLAS{dev: d, codec: gemm.Codec(d.set, gemm.F32), packer: gemm.PackerFor(d.set)}
	b.jobs.New = func() any { return &blasJob{blas: b, work: make([]blasWork, d.pool.Threads())} }
	return b
}

// strided is a vector of n elements at v[off + i·inc].
type strided struct {
	v        []float32
	off, inc int
	n        int
}

// vector checks the length of a BLAS vector.
func vector(n int, v []float32, inc int) strided {
	s := strided{v: v, inc: inc, n: n}
	if n == 0 {
		return s
	}
	if inc < 0 {
		s.off = (1 - n) * inc
	}
	_, _ = v[s.off], v[s.off+(n-1)*inc]
	return s
}

// unit returns elements [i, j) without a copy if they lie side by side.
func (s strided) unit(i, j int) ([]float32, bool) {
	if s.inc != 1 {
		return nil, false
	}
	return s.v[s.off+i : s.off+j], true
}

// gather copies elements i … i+len(dst)-1.
func (s strided) gather(dst []float32, i int) {
	if s.inc == 1 {
		copy(dst, s.v[s.off+i:])
		return
	}
	o := s.off + i*s.inc
	for k := range dst {
		dst[k] = s.v[o]
		o += s.inc
	}
}

func (s strided) scatter(src []float32, i int) {
	if s.inc == 1 {
		copy(s.v[s.off+i:], src)
		return
	}
	o := s.off + i*s.inc
	for _, x := range src {
		s.v[o] = x
		o += s.inc
	}
}

// contiguous returns the whole vector side by side, in buf if it must be copied.
func (s strided) contiguous(buf *[]float32) []float32 {
	if v, ok := s.unit(0, s.n); ok {
		return v
	}
	v := reserve(buf, s.n)
	s.gather(v, 0)
	return v
}

// reserve returns n floats of *buf, which it replaces if it is too short.
func reserve(buf *[]float32, n int) []float32 {
	if len(*buf) < n {
		*buf = aligned(n)
	}
	return (*buf)[:n]
}

// Dot returns DOT(x, y) of n elements, on one thread.
func (b *BLAS) Dot(n int, x []float32, incX int, y []float32, incY int) float32 {
	if n == 0 {
		return 0
	}
	vx, vy := vector(n, x, incX), vector(n, y, incY)
	if incX == 1 && incY == 1 {
		return blas1.Dot(b.dev.set, x[:n], y[:n])
	}
	j := b.jobs.Get().(*blasJob)
	defer b.jobs.Put(j)
	return blas1.Dot(b.dev.set, vx.contiguous(&j.x), vy.contiguous(&j.y))
}

// SumSquares returns RSUM(x²) of n elements, on one thread.
func (b *BLAS) SumSquares(n int, x []float32, incX int) float32 {
	if n == 0 {
		return 0
	}
	vx := vector(n, x, incX)
	if incX == 1 {
		return blas1.SumSq(b.dev.set, x[:n])
	}
	j := b.jobs.Get().(*blasJob)
	defer b.jobs.Put(j)
	return blas1.SumSq(b.dev.set, vx.contiguous(&j.x))
}

// serialLevel1 is the number of elements that one thread takes by itself.
const (
	serialLevel1 = 1 << 16
	chunkLevel1  = 1 << 14
)

// Axpy adds alpha times x to y.
func (b *BLAS) Axpy(n int, alpha float32, x []float32, incX int, y []float32, incY int) {
	if n == 0 {
		return
	}
	vx, vy := vector(n, x, incX), vector(n, y, incY)
	if alpha == 0 {
		return
	}
	if incX == 1 && incY == 1 && n <= serialLevel1 {
		blas1.Axpy(b.dev.set, alpha, x[:n], y[:n])
		return
	}
	j := b.jobs.Get().(*blasJob)
	j.alpha, j.vx, j.vy = alpha, vx, vy
	j.run((n+chunkLevel1-1)/chunkLevel1, n <= serialLevel1, axpyChunk)
	j.done()
}

func axpyChunk(j *blasJob, worker, chunk int) {
	i := chunk * chunkLevel1
	j.axpy(worker, j.alpha, j.vx, j.vy, i, min(i+chunkLevel1, j.vx.n))
}

// axpy is Axpy for elements [i, end).
func (j *blasJob) axpy(worker int, alpha float32, x, y strided, i, end int) {
	set := j.blas.dev.set
	if u, ok := x.unit(i, end); ok {
		if v, ok := y.unit(i, end); ok {
			blas1.Axpy(set, alpha, u, v)
			return
		}
	}
	buf := reserve(&j.work[worker].buf, 2*gatherStep)
	for ; i < end; i += gatherStep {
		n := min(gatherStep, end-i)
		xs, ys := buf[:n], buf[gatherStep:gatherStep+n]
		x.gather(xs, i)
		y.gather(ys, i)
		blas1.Axpy(set, alpha, xs, ys)
		y.scatter(ys, i)
	}
}

// gatherStep is how many strided elements are taken at a time.
const gatherStep = 1024

// Scal multiplies x by alpha.
func (b *BLAS) Scal(n int, alpha float32, x []float32, incX int) {
	if n == 0 {
		return
	}
	vx := vector(n, x, incX)
	if incX == 1 && n <= serialLevel1 {
		b.scal(alpha, x[:n])
		return
	}
	j := b.jobs.Get().(*blasJob)
	j.alpha, j.vx = alpha, vx
	j.run((n+chunkLevel1-1)/chunkLevel1, n <= serialLevel1, scalChunk)
	j.done()
}

// scal multiplies by alpha, or clears for alpha = 0.
func (b *BLAS) scal(alpha float32, x []float32) {
	switch alpha {
	case 0:
		clear(x)
	case 1:
	default:
		blas1.Scal(b.dev.set, alpha, x)
	}
}

func scalChunk(j *blasJob, _, chunk int) {
	i := chunk * chunkLevel1
	end := min(i+chunkLevel1, j.vx.n)
	if x, ok := j.vx.unit(i, end); ok {
		j.blas.scal(j.alpha, x)
		return
	}
	v, o := j.vx.v, j.vx.off+i*j.vx.inc
	for ; i < end; i++ {
		if j.alpha == 0 {
			v[o] = 0
		} else {
			v[o] *= j.alpha
		}
		o += j.vx.inc
	}
}

// Ger adds alpha·x·yᵀ to A[m, n].
func (b *BLAS) Ger(m, n int, alpha float32, x []float32, incX int, y []float32, incY int, a []float32, lda int) {
	if m == 0 || n == 0 {
		return
	}
	vx, vy := vector(m, x, incX), vector(n, y, incY)
	_ = a[(m-1)*lda+n-1]
	if alpha == 0 {
		return
	}
	j := b.jobs.Get().(*blasJob)
	j.alpha, j.vx, j.vy = alpha, vx, strided{v: vy.contiguous(&j.y), inc: 1, n: n}
	j.c, j.ldc = a, lda
	j.rows = max(1, chunkLevel1/n)
	j.run((m+j.rows-1)/j.rows, m*n <= serialLevel1, gerChunk)
	j.done()
}

func gerChunk(j *blasJob, _, chunk int) {
	y := j.vy.v[:j.vy.n]
	for i := chunk * j.rows; i < min((chunk+1)*j.rows, j.vx.n); i++ {
		t := j.alpha * j.vx.v[j.vx.off+i*j.vx.inc]
		blas1.Axpy(j.blas.dev.set, t, y, j.c[i*j.ldc:i*j.ldc+len(y)])
	}
}
