package opencl

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"samebit/backend"
	"samebit/backend/opencl/internal/cl"
	"samebit/tensor"
)

// Kernels reach pages and states of any number of sequences, but take few buffers:
// memory therefore lies in at most 16 large ones, the slabs, which arena.cl knows.
const (
	maxSlabs  = 16
	firstSlab = 64 << 20 // bytes; each further slab is twice as large
	align     = 256
)

// slab is a buffer of the driver with its free ranges, ascending and never adjacent.
type slab struct {
	mem  cl.Mem
	size int64
	free []span
}

type span struct{ off, len int64 }

// take cuts n bytes from the first range that has them.
func (s *slab) take(n int64) (int64, bool) {
	for i := range s.free {
		f := &s.free[i]
		if f.len < n {
			continue
		}
		off := f.off
		if f.off, f.len = f.off+n, f.len-n; f.len == 0 {
			s.free = slices.Delete(s.free, i, i+1)
		}
		return off, true
	}
	return 0, false
}

// give returns a range and joins it with its neighbours.
func (s *slab) give(off, n int64) {
	i, _ := slices.BinarySearchFunc(s.free, off, func(f span, off int64) int { return int(f.off/align - off/align) })
	if i < len(s.free) && off+n == s.free[i].off {
		s.free[i].off, s.free[i].len = off, s.free[i].len+n
	} else {
		s.free = slices.Insert(s.free, i, span{off, n})
	}
	if i > 0 && s.free[i-1].off+s.free[i-1].len == off {
		s.free[i-1].len += s.free[i].len
		s.free = slices.Delete(s.free, i, i+1)
	}
}

func (s *slab) empty() bool { return len(s.free) == 1 && s.free[0].len == s.size }

// memory is a range of a slab. It implements tensor.Buffer.
type memory struct {
	dev   *Device
	slab  int
	off   int64
	n     int
	freed bool
}

func (m *memory) Len() int     { return m.n }
func (m *memory) Host() []byte { return nil }

// ref names byte off of m for arena.cl.
func (m *memory) ref(off int64) uint64 { return uint64(m.slab)<<56 | uint64(m.off+off) }

func rounded(n int) int64 { return (int64(max(n, 1)) + align - 1) / align * align }

// alloc takes n bytes of unspecified content. d.mu is held.
func (d *Device) alloc(n int) (*memory, error) {
	if n < 0 || int64(n) > math.MaxInt64-align || rounded(n) > d.limit {
		return nil, fmt.Errorf("opencl: Alloc of %d bytes, %s gives at most %d at once: %w", n, d.info.Model, d.limit, backend.ErrNoMemory)
	}
	if d.closed {
		return nil, fmt.Errorf("opencl: Alloc of %d bytes: device %w", n, backend.ErrClosed)
	}
	need, vacant := rounded(n), -1
	for i, s := range d.slabs {
		if s == nil {
			if vacant < 0 {
				vacant = i
			}
			continue
		}
		if off, ok := s.take(need); ok {
			return &memory{dev: d, slab: i, off: off, n: n}, nil
		}
	}
	if vacant < 0 {
		return nil, fmt.Errorf("opencl: Alloc of %d bytes: all %d buffers are in use: %w", n, maxSlabs, backend.ErrNoMemory)
	}
	s, err := d.grow(need)
	if err != nil {
		return nil, fmt.Errorf("opencl: Alloc of %d bytes: %w", n, err)
	}
	d.slabs[vacant] = s
	d.moves++
	off, _ := s.take(need)
	return &memory{dev: d, slab: vacant, off: off, n: n}, nil
}

// grow makes a slab for at least need bytes, twice as large as the largest if there
// is room.
func (d *Device) grow(need int64) (*slab, error) {
	want := int64(firstSlab)
	for _, s := range d.slabs {
		if s != nil {
			want = max(want, 2*s.size)
		}
	}
	for want = min(max(want, need), d.limit); ; want = need {
		mem, err := d.api.CreateBuffer(d.ctx, want)
		if err == nil {
			// A driver may find the memory only when it is first used.
			if err = d.api.Fill(d.queue, mem, 0, align); err == nil {
				if err = d.api.Finish(d.queue); err == nil {
					return &slab{mem: mem, size: want, free: []span{{0, want}}}, nil
				}
			}
			err = errors.Join(err, d.api.ReleaseBuffer(mem))
		}
		if e := new(cl.Error); !errors.As(err, &e) || !e.NoMemory() {
			return nil, err
		}
		if want == need {
			return nil, fmt.Errorf("%w: %w", backend.ErrNoMemory, err)
		}
	}
}

// release gives memory back. A slab without any is kept only if it is the last one.
// d.mu is held.
func (d *Device) release(m *memory) error {
	if m == nil || m.freed || d.closed {
		return nil
	}
	m.freed = true
	s := d.slabs[m.slab]
	s.give(m.off, rounded(m.n))
	live := 0
	for _, o := range d.slabs {
		if o != nil {
			live++
		}
	}
	if !s.empty() || live == 1 {
		return nil
	}
	d.slabs[m.slab] = nil
	d.moves++
	return d.api.ReleaseBuffer(s.mem)
}

func (d *Device) Alloc(bytes int) (tensor.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := d.alloc(bytes)
	if err != nil {
		return nil, err
	}
	if err := d.api.Fill(d.queue, d.slabs[m.slab].mem, m.off, rounded(bytes)); err != nil {
		return nil, errors.Join(fmt.Errorf("opencl: Alloc of %d bytes: %w", bytes, err), d.release(m))
	}
	return m, nil
}

// Free gives a buffer back; work that is queued still finds it.
func (d *Device) Free(b tensor.Buffer) {
	if m, ok := b.(*memory); ok && m != nil && m.dev == d {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.release(m) // the driver can only say that the handle is wrong
	}
}

// weight is a matrix in its storage type, row after row as in a file.
type weight struct {
	mem  *memory
	n, k int
	dt   tensor.DType
}

func (w *weight) Out() int            { return w.n }
func (w *weight) In() int             { return w.k }
func (w *weight) DType() tensor.DType { return w.dt }
func (w *weight) Bytes() int64        { return rounded(w.mem.n) }
func (w *weight) Aliases() bool       { return false }
func (w *weight) stride() uint64      { return uint64(w.dt.Bytes(w.k)) }

// Pack uploads the matrix. Kernels widen its values as they read them.
func (d *Device) Pack(t tensor.Tensor, use backend.Use) (backend.Weight, error) {
	if err := backend.CheckPack(t, use); err != nil {
		return nil, err
	}
	raw, ok := t.Raw()
	if !ok {
		return nil, fmt.Errorf("opencl: Pack: %v is not in this process's memory", t)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("opencl: Pack: device %w", backend.ErrClosed)
	}
	m, err := d.alloc(len(raw))
	if err != nil {
		return nil, err
	}
	if err := d.api.Write(d.queue, d.slabs[m.slab].mem, m.off, raw); err != nil {
		return nil, errors.Join(fmt.Errorf("opencl: Pack of %v: %w", t, err), d.release(m))
	}
	return &weight{mem: m, n: t.Dim(0), k: t.Dim(1), dt: t.DType()}, nil
}

func (d *Device) Unpack(w backend.Weight) {
	if w, ok := w.(*weight); ok && w != nil {
		d.Free(w.mem)
	}
}
