package cpu

import (
	"fmt"
	"unsafe"

	"samebit/backend"
	"samebit/tensor"
)

// stream runs each op before it returns, spreading rows, heads or panels over the
// device's workers. The operands of the op under way lie in the stream, so that
// handing them to the workers allocates nothing.
type stream struct {
	dev    *Device
	solo   bool // runs ops in the caller's goroutine alone
	err    error
	closed bool
	plan   plan

	body  func(s *stream, worker, chunk int) // of the op under way
	rows  rowsOp
	prod  product
	attn  attention
	delta deltaOp
	arch  archiveOp

	packed  []float32   // activations in tile order
	scratch [][]float32 // by worker
	moe     experts
	project []byte
	small   weight // of Project, in project
	grad    gradOp
}

func newStream(d *Device) *stream {
	return &stream{dev: d, scratch: make([][]float32, d.pool.Threads()), attn: attention{work: make([]attnWork, d.pool.Threads())}}
}

// Do is called by the workers.
func (s *stream) Do(worker, chunk int) { s.body(s, worker, chunk) }

// threads is how many workers an op can have.
func (s *stream) threads() int {
	if s.solo {
		return 1
	}
	return s.dev.pool.Threads()
}

// run calls body for every chunk, on all workers if there is more than one.
func (s *stream) run(chunks int, body func(s *stream, worker, chunk int)) {
	if chunks == 1 || s.solo {
		for c := range chunks {
			body(s, 0, c)
		}
		return
	}
	s.body = body
	s.dev.pool.Run(s, chunks)
}

// tmp is scratch memory of a worker.
func (s *stream) tmp(worker, n int) []float32 {
	if len(s.scratch[worker]) < n {
		s.scratch[worker] = aligned(n)
	}
	return s.scratch[worker][:n]
}

// aligned returns floats on a cache line boundary.
func aligned(n int) []float32 {
	v := make([]float32, n+16)
	o := int(-uintptr(unsafe.Pointer(unsafe.SliceData(v)))/4) & 15
	return v[o : o+n]
}

// fails records err and reports whether the stream is or was failing.
func (s *stream) fails(err error) bool {
	if s.err == nil {
		s.err = err
	}
	return s.err != nil
}

// Device is where the stream's memory lies.
func (s *stream) Device() backend.Device { return s.dev }

func (s *stream) Err() error  { return s.err }
func (s *stream) Sync() error { return s.err }

func (s *stream) Reset() {
	if !s.closed {
		s.err = nil
		s.grad.first = s.grad.first[:0]
	}
}

// Close drops the scratch memory.
func (s *stream) Close() error {
	*s = stream{dev: s.dev, closed: true, err: fmt.Errorf("cpu: stream %w", backend.ErrClosed)}
	return nil
}

func (s *stream) Read(dst []byte, src tensor.Tensor) {
	if s.err != nil {
		return
	}
	b, ok := src.Raw()
	if !ok || len(b) != len(dst) {
		s.fails(fmt.Errorf("cpu: Read of %v into %d bytes", src, len(dst)))
		return
	}
	copy(dst, b)
}

func (s *stream) Write(dst tensor.Tensor, src []byte) {
	if s.err != nil {
		return
	}
	b, ok := dst.Raw()
	if !ok || len(b) != len(src) {
		s.fails(fmt.Errorf("cpu: Write of %d bytes to %v", len(src), dst))
		return
	}
	copy(b, src)
}

// away fails the stream if the bytes of a valid tensor are not in this process's
// memory, and reports whether it did.
func (s *stream) away(ts ...tensor.Tensor) bool {
	for i := range ts {
		if b, _ := ts[i].Buffer(); b != nil && b.Host() == nil {
			return s.fails(fmt.Errorf("cpu: %v is not in this process's memory", ts[i]))
		}
	}
	return false
}

// own unwraps a weight that this device, or one with the same kernels, packed.
func (s *stream) own(w backend.Weight) *weight {
	r, ok := w.(*weight)
	if !ok || r.dev.set != s.dev.set {
		s.fails(fmt.Errorf("cpu: weight of type %T was packed by another device", w))
		return nil
	}
	if r.panels == nil {
		s.fails(fmt.Errorf("cpu: a weight of %d outputs is used after Unpack", r.n))
		return nil
	}
	return r
}

// matrix is a tensor of rows: [R, C], or [R, H, D] with every head a row.
type matrix struct {
	v               []float32
	rows, cols      int
	heads           int // 1 for two axes
	stride, stride2 int
}

// row is one row of a matrix with two axes, or one head of one with three.
func (m *matrix) row(r int) []float32 {
	o := r / m.heads * m.stride
	if m.heads > 1 {
		o += r % m.heads * m.stride2
	}
	return m.v[o : o+m.cols]
}

// host views a tensor whose shape was checked; it fails the stream when the bytes
// are not in this process.
func (s *stream) host(t tensor.Tensor) matrix {
	v, ok := t.F32()
	if !ok {
		s.fails(fmt.Errorf("cpu: %v is not in this process's memory", t))
		return matrix{heads: 1}
	}
	m := matrix{v: v, rows: t.Dim(0), cols: t.Dim(t.Dims() - 1), heads: 1, stride: t.Stride(0)}
	if t.Dims() == 3 {
		m.heads, m.stride2 = max(t.Dim(1), 1), t.Stride(1)
		m.rows *= t.Dim(1)
	}
	return m
}
