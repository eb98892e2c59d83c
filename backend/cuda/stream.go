package cuda

import (
	"errors"
	"fmt"

	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/internal/archive"
	"samebit/tensor"
)

// stream enqueues ops; the device runs them while the caller goes on. Operands of
// launches lie in reused memory, so that an op allocates nothing.
type stream struct {
	dev    *Device
	q      driver.Stream
	watch  driver.Forgetter // nil if the context does not watch reads
	err    error
	closed bool
	busy   bool // something was enqueued since the last wait

	funcs  map[string]driver.Function
	params driver.Params

	in     ring      // page-locked memory on the way to the device
	out    ring      // and back
	reads  []pending // what lies in out
	status status

	graphs graphs

	plan    plan
	scratch [scratches]area
	ropes   []angles
	table   rowTable
	tables  map[*weight]*expertTable

	archive archiveTable
	decays  archive.PowerTables[area]
	scan    archiveScan // calls under way, which allocate nothing
	exact   exactTier
}

// area is device memory that grows.
type area struct {
	ptr   driver.Ptr
	bytes int
}

const (
	scratchStats    = iota // maxima and sums of key blocks
	scratchOut             // their outputs
	scratchFinal           // final maxima and reciprocal sums
	scratchProb            // probabilities of a router
	scratchPick            // its choices
	scratchHidden          // of experts
	scratchScales          // factors of norms
	scratchParts           // chains of blocks of rows
	scratchExpanded        // rows of a weight
	scratchSlopes          // gradients within a convolution
	scratchDelta           // states, and what lies beside them
	scratchArchive         // of reads and writes of an archive
	scratches
)

func (d *Device) NewStream() (backend.Stream, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, fmt.Errorf("cuda: new stream: device %w", backend.ErrClosed)
	}
	d.held++
	d.mu.Unlock()
	s := &stream{dev: d, funcs: map[string]driver.Function{}, tables: map[*weight]*expertTable{}}
	s.watch, _ = d.ctx.(driver.Forgetter)
	var err error
	if s.q, err = d.ctx.NewStream(); err == nil {
		if err = s.in.open(d.ctx); err == nil {
			if err = s.out.open(d.ctx); err == nil {
				err = s.status.open(s)
			}
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: new stream: %w", err), s.Close())
	}
	return s, nil
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

func (s *stream) Err() error { return s.err }

// Close waits for the device and gives everything back.
func (s *stream) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	c := s.dev.ctx
	var errs []error
	if s.q != 0 {
		errs = append(errs, s.flush(), c.Sync(s.q))
	}
	errs = append(errs, s.graphs.close(c)...)
	for i := range s.scratch {
		errs = append(errs, s.scratch[i].free(c))
	}
	errs = append(errs, s.plan.mem.free(c), s.table.mem.free(c), s.archive.mem.free(c), s.status.mem.free(c))
	for _, t := range s.decays {
		errs = append(errs, t.Mem.free(c))
	}
	for i := range s.ropes {
		errs = append(errs, s.ropes[i].mem.free(c))
	}
	for _, t := range s.tables {
		errs = append(errs, t.mem.free(c))
	}
	errs = append(errs, s.in.close(c), s.out.close(c))
	if s.status.host != nil {
		errs = append(errs, c.FreeHost(s.status.host))
	}
	if s.q != 0 {
		errs = append(errs, c.CloseStream(s.q))
	}
	s.err = fmt.Errorf("cuda: stream %w", backend.ErrClosed)
	s.dev.mu.Lock()
	s.dev.release()
	s.dev.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cuda: closing a stream: %w", err)
	}
	return nil
}

func (a *area) free(c driver.Context) error {
	if a.ptr == 0 {
		return nil
	}
	err := c.Free(a.ptr)
	*a = area{}
	return err
}

// room makes an area at least that large; its contents are lost.
func (s *stream) room(a *area, bytes int) bool {
	if a.bytes >= bytes && a.ptr != 0 {
		return s.forget(a.ptr, a.bytes)
	}
	if s.fails(s.wait()) || s.fails(a.free(s.dev.ctx)) { // ops under way may use it
		return false
	}
	bytes += bytes/2 + 256
	p, err := s.dev.ctx.Alloc(bytes)
	if err != nil {
		s.fails(fmt.Errorf("cuda: scratch of %d bytes: %w", bytes, err))
		return false
	}
	a.ptr, a.bytes = p, bytes
	return true
}

// forget tells a context that watches reads that memory is used anew.
func (s *stream) forget(p driver.Ptr, bytes int) bool {
	if s.watch != nil && bytes > 0 {
		s.do(step{kind: forget, to: p, n: bytes}, nil)
	}
	return s.err == nil
}

// tmp is scratch memory on the device.
func (s *stream) tmp(which, bytes int) (driver.Ptr, bool) {
	a := &s.scratch[which]
	ok := s.room(a, bytes)
	return a.ptr, ok
}

// kernel starts a parameter list.
func (s *stream) kernel() *driver.Params { return s.params.Reset() }

// launch runs a kernel with the parameters of s.params.
func (s *stream) launch(module, name string, grid, block [3]uint32, shared int) {
	f, ok := s.funcs[name]
	if !ok {
		var err error
		if f, err = s.dev.function(module, name); s.fails(err) {
			return
		}
		s.funcs[name] = f
	}
	s.do(step{kind: launchKernel, name: name, f: f, launch: driver.Launch{Grid: grid, Block: block, Shared: shared}}, s.params.Bytes())
}

// at gives the address of a tensor.
func (s *stream) at(t tensor.Tensor) driver.Ptr {
	b, off := t.Buffer()
	return b.(*buffer).ptr + driver.Ptr(off)
}

// away fails the stream if a valid tensor does not lie on this device, and reports
// whether it did.
func (s *stream) away(ts ...tensor.Tensor) bool {
	for i := range ts {
		b, _ := ts[i].Buffer()
		if b == nil {
			continue
		}
		m, ok := b.(*buffer)
		if !ok || m.dev != s.dev {
			return s.fails(fmt.Errorf("cuda: %v is not in the memory of %s", ts[i], s.dev.name))
		}
		if m.freed {
			return s.fails(fmt.Errorf("cuda: %v is used after Free", ts[i]))
		}
	}
	return false
}

// own unwraps a weight that this device packed.
func (s *stream) own(w backend.Weight) *weight {
	r, ok := w.(*weight)
	if !ok || r.dev != s.dev {
		s.fails(fmt.Errorf("cuda: weight of type %T was packed by another device", w))
		return nil
	}
	if r.ptr == 0 {
		s.fails(fmt.Errorf("cuda: a weight of %d outputs is used after Unpack", r.n))
		return nil
	}
	return r
}

// view appends a tensor of rows, [R, C] or [R, H, C], as the struct View of
// kernels/canon.cuh.
func (s *stream) view(p *driver.Params, t tensor.Tensor) *driver.Params {
	heads, stride2 := 1, 0
	if t.Dims() == 3 {
		heads, stride2 = max(t.Dim(1), 1), t.Stride(1)
	}
	return p.Ptr(s.at(t)).Uint64(uint64(t.Stride(0))).Uint64(uint64(stride2)).Int32(int32(heads)).Int32(int32(rowsOf(t)))
}

// rowsOf is the number of rows of a tensor of rows, heads counted one by one.
func rowsOf(t tensor.Tensor) int {
	if t.Dims() == 3 {
		return t.Dim(0) * t.Dim(1)
	}
	return t.Dim(0)
}

const maxGrid = 65535 // of the second and third axis

// each launches an elementwise kernel: a thread per column, rows on the second
// axis.
func (s *stream) each(module, name string, cols, rows int) {
	if rows == 0 || cols == 0 {
		return
	}
	block := min(256, (cols+31)/32*32)
	s.launch(module, name, [3]uint32{uint32((cols + block - 1) / block), uint32(min(rows, maxGrid)), 1}, [3]uint32{uint32(block), 1, 1}, 0)
}

// perRow launches a kernel with a CTA of warps per row.
func (s *stream) perRow(module, name string, cols, rows int) {
	if rows == 0 {
		return
	}
	s.launch(module, name, [3]uint32{uint32(rows), 1, 1}, [3]uint32{32, uint32(min(32, max(1, (cols+255)/256))), 1}, 0)
}

// perHead launches a kernel with a warp per row, four rows to a CTA.
func (s *stream) perHead(module, name string, rows int) {
	if rows == 0 {
		return
	}
	s.launch(module, name, [3]uint32{uint32((rows + 3) / 4), 1, 1}, [3]uint32{32, 4, 1}, 0)
}
