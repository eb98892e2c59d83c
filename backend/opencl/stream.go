package opencl

import (
	"encoding/binary"
	"fmt"
	"math"

	"samebit/backend"
	"samebit/backend/opencl/internal/cl"
	"samebit/internal/archive"
	"samebit/tensor"
)

// stream enqueues each op on the device's queue. What only the device can know, ids
// outside a table, it notes in status, which every kernel looks at first: after such a
// failure nothing more is written, and the host hears of it when it next waits.
type stream struct {
	dev     *Device
	err     error
	closed  bool
	status  cl.Mem
	pending bool // a kernel that may have set status was enqueued
	plan    plan
	scratch *memory
	tables  map[*weight]*expertTable
	pows    archive.PowerTables[*memory]
	call    call
}

// Codes of status[0]; status[1] to status[3] are the place, the number found there
// and the limit. status[4] is used by Route.
const (
	embedID = 1 + iota
	linearID
	gatherRow
	expertID
	nanRouter
	embedGradID
	gatherGradRow
	lossTarget
)

var fine = [5]uint32{4: math.MaxInt32}

func statusBytes() []byte {
	b := make([]byte, 0, 4*len(fine))
	for _, v := range fine {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func statusError(b []byte) error {
	v := func(i int) int32 { return int32(binary.LittleEndian.Uint32(b[4*i:])) }
	switch v(0) {
	case 0:
		return nil
	case embedID:
		return fmt.Errorf("opencl: Embed: id %d of row %d is outside a table of %d", v(2), v(1), v(3))
	case linearID:
		return fmt.Errorf("opencl: LinearRows: output %d, number %d of the list, is outside a weight of %d", v(2), v(1), v(3))
	case gatherRow:
		return fmt.Errorf("opencl: Gather: row %d of %d, number %d of the list", v(2), v(3), v(1))
	case expertID:
		return fmt.Errorf("opencl: Experts: expert %d of %d, number %d of the list", v(2), v(3), v(1))
	case embedGradID:
		return fmt.Errorf("opencl: EmbedGrad: id %d of row %d is outside a table of %d", v(2), v(1), v(3))
	case gatherGradRow:
		return fmt.Errorf("opencl: GatherGrad: row %d of %d, number %d of the list", v(2), v(3), v(1))
	case lossTarget:
		return fmt.Errorf("opencl: CrossEntropy: target %d of row %d is outside %d classes", v(2), v(1), v(3))
	case nanRouter:
		return fmt.Errorf("opencl: Route: the router's logits of row %d are NaN", v(1))
	}
	return fmt.Errorf("opencl: the device reports failure %d of no op", v(0))
}

func (d *Device) NewStream() (backend.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("opencl: new stream: device %w", backend.ErrClosed)
	}
	s := &stream{dev: d, tables: map[*weight]*expertTable{}}
	var err error
	if s.status, err = d.api.CreateBuffer(d.ctx, int64(4*len(fine))); err != nil {
		return nil, fmt.Errorf("opencl: new stream: %w", err)
	}
	if err := d.api.Write(d.queue, s.status, 0, statusBytes()); err != nil {
		d.api.ReleaseBuffer(s.status)
		return nil, fmt.Errorf("opencl: new stream: %w", err)
	}
	d.streams[s] = true
	return s, nil
}

// fails records err, unless the device failed before, and reports whether the stream
// is or was failing.
func (s *stream) fails(err error) bool {
	if err != nil && s.err == nil {
		s.settle()
		if s.err == nil {
			s.err = err
		}
	}
	return s.err != nil
}

// settle asks the device whether an op failed there.
func (s *stream) settle() {
	if !s.pending {
		return
	}
	s.pending = false
	b := statusBytes()
	s.dev.mu.Lock()
	err := s.dev.closedError()
	if err == nil {
		err = s.dev.api.Read(s.dev.queue, b, s.status, 0)
	}
	s.dev.mu.Unlock()
	if err == nil {
		err = statusError(b)
	}
	if s.err == nil {
		s.err = err
	}
}

// closedError is for streams that outlive their device. d.mu is held.
func (d *Device) closedError() error {
	if d.closed {
		return fmt.Errorf("device %w", backend.ErrClosed)
	}
	return nil
}

// Device is where the stream's memory lies.
func (s *stream) Device() backend.Device { return s.dev }

func (s *stream) Err() error { return s.err }

func (s *stream) Sync() error {
	s.settle()
	if !s.closed {
		s.dev.mu.Lock()
		err := s.dev.closedError()
		if err == nil {
			err = s.dev.api.Finish(s.dev.queue)
		}
		s.dev.mu.Unlock()
		if err != nil {
			s.fails(err)
		}
	}
	return s.err
}

func (s *stream) Reset() {
	if s.closed {
		return
	}
	s.err, s.pending = nil, false
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	if s.err = s.dev.closedError(); s.err == nil {
		s.err = s.dev.api.Write(s.dev.queue, s.status, 0, statusBytes())
	}
}

func (s *stream) Close() error {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.closed {
		return nil
	}
	err := s.release()
	*s = stream{dev: d, closed: true, err: fmt.Errorf("opencl: stream %w", backend.ErrClosed)}
	return err
}

// release frees what the stream holds on the device. d.mu is held.
func (s *stream) release() error {
	d := s.dev
	if d.closed || s.closed {
		return nil
	}
	delete(d.streams, s)
	err := d.api.ReleaseBuffer(s.status)
	d.release(s.scratch)
	d.release(s.plan.tables)
	d.release(s.plan.archive)
	for _, t := range s.pows {
		d.release(t.Mem)
	}
	for i := range s.plan.ropes {
		d.release(s.plan.ropes[i].mem)
	}
	for _, t := range s.tables {
		d.release(t.mem)
	}
	return err
}

// on is the memory that a tensor views and the byte at which it begins; anything
// else fails the stream.
func (s *stream) on(t *tensor.Tensor) (*memory, int64) {
	b, off := t.Buffer()
	if m, ok := b.(*memory); ok && m.dev == s.dev && !m.freed {
		return m, int64(off)
	}
	s.fails(fmt.Errorf("opencl: %v is not in the memory of %s", *t, s.dev.Name()))
	return nil, 0
}

// away fails the stream if a valid tensor lies elsewhere, and reports whether it did.
func (s *stream) away(ts ...tensor.Tensor) bool {
	for i := range ts {
		if ts[i].Valid() {
			if m, _ := s.on(&ts[i]); m == nil {
				return true
			}
		}
	}
	return false
}

// begin locks the device and starts a launch; end must follow, whatever happens.
func (s *stream) begin(p program, name string) *call {
	d := s.dev
	d.mu.Lock()
	c := &s.call
	*c = call{d: d}
	if c.err = d.closedError(); c.err == nil {
		if c.k, c.err = d.kernel(p, name); c.err == nil {
			c.mem(s.status)
		}
	}
	return c
}

// end finishes a launch over the work items of three axes, in groups along the first.
func (s *stream) end(local, n0, n1, n2 int) {
	err := s.call.run(local, n0, n1, n2)
	s.dev.mu.Unlock()
	if err != nil {
		s.fails(fmt.Errorf("opencl: %w", err))
	}
}

// view passes a tensor of rows: its slab and a View in elements of 4 bytes.
func (c *call) view(t tensor.Tensor) *call {
	b, off := t.Buffer()
	m, ok := b.(*memory)
	if c.err != nil || !ok {
		c.n += 2
		return c
	}
	c.mem(c.d.slabs[m.slab].mem)
	s0, s1, heads := t.Stride(0), 0, 1
	if t.Dims() == 3 {
		s1, heads = t.Stride(1), max(t.Dim(1), 1)
	}
	c.putView((m.off+int64(off))/4, s0, s1, heads)
	return c
}

// flat passes rows of width floats from float off of m on.
func (c *call) flat(m *memory, off int64, width int) *call {
	if c.err != nil {
		c.n += 2
		return c
	}
	c.mem(c.d.slabs[m.slab].mem)
	c.putView(m.off/4+off, width, 0, 1)
	return c
}

func (c *call) putView(off int64, s0, s1, heads int) {
	for i, v := range [4]uint64{uint64(off), uint64(s0), uint64(s1), uint64(heads)} {
		binary.LittleEndian.PutUint64(c.d.args[8*i:], v)
	}
	c.set(32)
}

// none fills the place of an operand that is not there.
func (c *call) none(s *stream) *call {
	c.mem(s.status)
	c.putView(0, 0, 0, 1)
	return c
}

// operand passes a tensor that may not be there; the kernel knows by other means.
func (c *call) operand(s *stream, t tensor.Tensor) *call {
	if t.Valid() {
		return c.view(t)
	}
	return c.none(s)
}

// maybe passes whether an operand is there, and the operand.
func (c *call) maybe(s *stream, t tensor.Tensor) *call { return c.flag(t.Valid()).operand(s, t) }

// space is scratch memory for n floats, of unspecified content. The queue's order
// lets every op use the same.
func (s *stream) space(n int) *memory {
	if s.scratch = s.grown(s.scratch, 4*n); s.scratch == nil {
		return nil
	}
	return s.scratch
}

// grown is m if it has n bytes, else new memory in its place; nil if there is none.
func (s *stream) grown(m *memory, n int) *memory {
	if m != nil && m.n >= n && !m.freed {
		return m
	}
	d := s.dev
	d.mu.Lock()
	d.release(m)
	m, err := d.alloc(n)
	d.mu.Unlock()
	if err != nil {
		s.fails(err)
		return nil
	}
	return m
}

// upload writes bytes to m at once.
func (s *stream) upload(m *memory, off int64, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	d := s.dev
	d.mu.Lock()
	err := d.closedError()
	if err == nil && m.freed {
		err = fmt.Errorf("opencl: a write to memory that was given back")
	}
	if err == nil {
		err = d.api.Write(d.queue, d.slabs[m.slab].mem, m.off+off, b)
	}
	d.mu.Unlock()
	return err == nil || !s.fails(fmt.Errorf("opencl: writing %d bytes: %w", len(b), err))
}

func (s *stream) Read(dst []byte, src tensor.Tensor) {
	s.settle()
	if s.err != nil {
		return
	}
	if !src.Valid() || !src.Contiguous() || src.DType().Bytes(src.Len()) != len(dst) {
		s.fails(fmt.Errorf("opencl: Read of %v into %d bytes", src, len(dst)))
		return
	}
	m, off := s.on(&src)
	if m == nil || len(dst) == 0 {
		return
	}
	d := s.dev
	d.mu.Lock()
	err := d.closedError()
	if err == nil {
		err = d.api.Read(d.queue, dst, d.slabs[m.slab].mem, m.off+off)
	}
	d.mu.Unlock()
	if err != nil {
		s.fails(fmt.Errorf("opencl: Read of %v: %w", src, err))
	}
}

func (s *stream) Write(dst tensor.Tensor, src []byte) {
	s.settle()
	if s.err != nil {
		return
	}
	if !dst.Valid() || !dst.Contiguous() || dst.DType().Bytes(dst.Len()) != len(src) {
		s.fails(fmt.Errorf("opencl: Write of %d bytes to %v", len(src), dst))
		return
	}
	if m, off := s.on(&dst); m != nil {
		s.upload(m, off, src)
	}
}

// own unwraps a weight that this device packed.
func (s *stream) own(w backend.Weight) *weight {
	r, ok := w.(*weight)
	switch {
	case !ok || r.mem.dev != s.dev:
		s.fails(fmt.Errorf("opencl: weight of type %T was packed by another device", w))
		return nil
	case r.mem.freed:
		s.fails(fmt.Errorf("opencl: a weight of %d outputs is used after Unpack", r.n))
		return nil
	}
	return r
}
