// Package ref is the meaning of every op: plain loops over float32 in the steps
// and orders of docs/numerics.md. It is not optimised, ever; the other devices
// must give its bits.
package ref

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"samebit/backend"
	"samebit/internal/blockq"
	"samebit/tensor"
)

type device struct{ closed atomic.Bool }

// New returns the reference device.
func New() backend.Device { return new(device) }

func (*device) Name() string { return "ref" }

func (*device) Info() backend.Info {
	return backend.Info{Name: "ref", Model: "plain loops", Kernels: "ref", Threads: 1, BF16Pages: true}
}

type buffer []byte

func (b buffer) Len() int     { return len(b) }
func (b buffer) Host() []byte { return b }

func (*device) Alloc(bytes int) (b tensor.Buffer, err error) {
	defer func() { // make panics about what no address space holds
		if recover() != nil {
			b, err = nil, fmt.Errorf("ref: Alloc of %d bytes: %w", bytes, backend.ErrNoMemory)
		}
	}()
	const align = 256
	m := make([]byte, bytes+align)
	o := int(-uintptr(unsafe.Pointer(unsafe.SliceData(m))) & (align - 1))
	return buffer(m[o : o+bytes : o+bytes]), nil
}

func (*device) Free(tensor.Buffer) {}

// weight keeps the defined float32 value of every element.
type weight struct {
	v    []float32
	n, k int
	dt   tensor.DType
}

func (w *weight) Out() int            { return w.n }
func (w *weight) In() int             { return w.k }
func (w *weight) DType() tensor.DType { return w.dt }
func (w *weight) Bytes() int64        { return int64(4 * len(w.v)) }
func (w *weight) Aliases() bool       { return false }
func (w *weight) row(n int) []float32 { return w.v[n*w.k : (n+1)*w.k] }

func (d *device) Pack(t tensor.Tensor, use backend.Use) (backend.Weight, error) {
	if err := backend.CheckPack(t, use); err != nil {
		return nil, err
	}
	if d.closed.Load() {
		return nil, fmt.Errorf("ref: Pack: device %w", backend.ErrClosed)
	}
	raw, ok := t.Raw()
	if !ok {
		return nil, fmt.Errorf("ref: Pack: %v is not in this process's memory", t)
	}
	w := &weight{v: make([]float32, t.Len()), n: t.Dim(0), k: t.Dim(1), dt: t.DType()}
	if err := blockq.Widen(w.v, raw, t.DType()); err != nil {
		return nil, fmt.Errorf("ref: Pack: %w", err)
	}
	return w, nil
}

func (*device) Unpack(backend.Weight) {}

func (d *device) NewStream() (backend.Stream, error) {
	if d.closed.Load() {
		return nil, fmt.Errorf("ref: new stream: device %w", backend.ErrClosed)
	}
	return &stream{dev: d}, nil
}

func (d *device) Close() error {
	d.closed.Store(true)
	return nil
}

type plan struct {
	segs []backend.Seg
	rows int
}

func (p *plan) Segs() []backend.Seg { return p.segs }
func (p *plan) Rows() int           { return p.rows }

type stream struct {
	dev    *device
	err    error
	closed bool
	plan   plan
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
	}
}

func (s *stream) Close() error {
	s.closed, s.err = true, fmt.Errorf("ref: stream %w", backend.ErrClosed)
	return nil
}

func (s *stream) Plan(segs []backend.Seg) backend.Plan {
	s.plan.segs, s.plan.rows = s.plan.segs[:0], 0
	if s.fails(backend.CheckPlan(segs)) {
		return &s.plan
	}
	for i := range segs {
		g := &segs[i]
		if s.away(g.KV...) || s.away(g.DeltaIn, g.DeltaOut, g.ConvIn, g.ConvOut, g.SumIn, g.SumOut) {
			return &s.plan
		}
		if a := g.Archive; a != nil {
			if s.away(a.Window...) {
				return &s.plan
			}
			for i := range a.In.Tensors() {
				if s.away(*a.In.Tensors()[i], *a.Out.Tensors()[i]) {
					return &s.plan
				}
			}
		}
	}
	s.plan.segs = append(s.plan.segs, segs...)
	if n := len(segs); n > 0 {
		s.plan.rows = segs[n-1].Row + segs[n-1].Rows
	}
	return &s.plan
}

// away fails the stream if the bytes of a valid tensor are not in this process's
// memory, and reports whether it did.
func (s *stream) away(ts ...tensor.Tensor) bool {
	for i := range ts {
		if b, _ := ts[i].Buffer(); b != nil && b.Host() == nil {
			return s.fails(fmt.Errorf("ref: %v is not in this process's memory", ts[i]))
		}
	}
	return false
}

func (s *stream) Read(dst []byte, src tensor.Tensor) {
	if s.err != nil {
		return
	}
	b, ok := src.Raw()
	if !ok || len(b) != len(dst) {
		s.fails(fmt.Errorf("ref: Read of %v into %d bytes", src, len(dst)))
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
		s.fails(fmt.Errorf("ref: Write of %d bytes to %v", len(src), dst))
		return
	}
	copy(b, src)
}

// current reports whether p is this stream's plan.
func (s *stream) current(p backend.Plan) bool {
	if q, ok := p.(*plan); !ok || q != &s.plan {
		s.fails(fmt.Errorf("ref: the plan belongs to another stream"))
		return false
	}
	return true
}

// own unwraps a weight that this device packed.
func (s *stream) own(w backend.Weight) *weight {
	r, ok := w.(*weight)
	if !ok {
		s.fails(fmt.Errorf("ref: weight of type %T was packed by another device", w))
		return nil
	}
	return r
}
