// Package lockstep is a device made of two: it runs every op on both and stops
// at the first bit that differs, so that the first wrong op of a model is named
// instead of its last consequence.
package lockstep

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"samebit/backend"
	"samebit/tensor"
)

// Device runs every op on A and on B. Results are those of A. Its memory is not
// addressable by the host; operands of ops that lie in plain host memory are
// shown to both devices as they are, outputs must come from Alloc.
type Device struct {
	a, b backend.Device

	closed atomic.Bool

	mu     sync.Mutex
	counts map[string]*Count
	op     int64
}

// Count says what was compared for one op.
type Count struct {
	Op        string
	Ops       int64 // calls
	Values    int64 // values compared
	Differing int64 // of them, with other bits
}

// New joins two devices. Close closes neither.
func New(a, b backend.Device) *Device {
	return &Device{a: a, b: b, counts: map[string]*Count{}}
}

// Counts returns the numbers of all ops so far, in order of their names.
func (d *Device) Counts() []Count {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := make([]Count, 0, len(d.counts))
	for _, c := range d.counts {
		l = append(l, *c)
	}
	slices.SortFunc(l, func(x, y Count) int { return strings.Compare(x.Op, y.Op) })
	return l
}

// note counts a call and returns its number among all.
func (d *Device) note(op string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.counts[op]
	if c == nil {
		c = &Count{Op: op}
		d.counts[op] = c
	}
	c.Ops++
	d.op++
	return d.op
}

func (d *Device) compared(op string, values, differing int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.counts[op]
	c.Values += int64(values)
	c.Differing += int64(differing)
}

// Name is "lockstep(a, b)".
func (d *Device) Name() string { return fmt.Sprintf("lockstep(%s, %s)", d.a.Name(), d.b.Name()) }

// Info is that of both devices.
func (d *Device) Info() backend.Info {
	a, b := d.a.Info(), d.b.Info()
	return backend.Info{
		Name: d.Name(), Model: a.Model + " and " + b.Model, Kernels: a.Kernels + " and " + b.Kernels,
		Threads: max(a.Threads, b.Threads), Memory: a.Memory, Inexact: cmp.Or(a.Inexact, b.Inexact), Slow: cmp.Or(a.Slow, b.Slow),
		BF16Pages: a.BF16Pages && b.BF16Pages,
	}
}

// buffer is one buffer of each device.
type buffer struct{ a, b tensor.Buffer }

func (m *buffer) Len() int { return m.a.Len() }

// Host is nil: bytes written past the streams would reach one device only.
func (m *buffer) Host() []byte { return nil }

// Alloc takes memory of both devices.
func (d *Device) Alloc(bytes int) (tensor.Buffer, error) {
	a, err := d.a.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("lockstep: %s: %w", d.a.Name(), err)
	}
	b, err := d.b.Alloc(bytes)
	if err != nil {
		d.a.Free(a)
		return nil, fmt.Errorf("lockstep: %s: %w", d.b.Name(), err)
	}
	return &buffer{a, b}, nil
}

// Free gives both buffers back.
func (d *Device) Free(m tensor.Buffer) {
	if m, ok := m.(*buffer); ok && m != nil {
		d.a.Free(m.a)
		d.b.Free(m.b)
	}
}

// split views a tensor on both devices.
func split(t tensor.Tensor) (a, b tensor.Tensor) {
	buf, _ := t.Buffer()
	if m, ok := buf.(*buffer); ok {
		return t.On(m.a), t.On(m.b)
	}
	return t, t
}

// weight is packed on both devices.
type weight struct {
	backend.Weight
	b backend.Weight
}

func (w *weight) Bytes() int64  { return w.Weight.Bytes() + w.b.Bytes() }
func (w *weight) Aliases() bool { return w.Weight.Aliases() || w.b.Aliases() }

// Pack packs on both devices.
func (d *Device) Pack(w tensor.Tensor, use backend.Use) (backend.Weight, error) {
	if d.closed.Load() {
		return nil, fmt.Errorf("lockstep: Pack: device %w", backend.ErrClosed)
	}
	ta, tb := split(w)
	a, err := d.a.Pack(ta, use)
	if err != nil {
		return nil, fmt.Errorf("lockstep: %s: %w", d.a.Name(), err)
	}
	b, err := d.b.Pack(tb, use)
	if err != nil {
		d.a.Unpack(a)
		return nil, fmt.Errorf("lockstep: %s: %w", d.b.Name(), err)
	}
	return &weight{a, b}, nil
}

// Unpack frees both weights.
func (d *Device) Unpack(w backend.Weight) {
	if w, ok := w.(*weight); ok && w != nil {
		d.a.Unpack(w.Weight)
		d.b.Unpack(w.b)
	}
}

// both are the two weights; a weight of another device goes to both as it is, so
// that they refuse it.
func both(w backend.Weight) (a, b backend.Weight) {
	if w, ok := w.(*weight); ok && w != nil {
		return w.Weight, w.b
	}
	return w, w
}

func bothAll(l []backend.Weight) (a, b []backend.Weight) {
	for _, w := range l {
		x, y := both(w)
		a, b = append(a, x), append(b, y)
	}
	return a, b
}

// NewStream opens a stream on each device.
func (d *Device) NewStream() (backend.Stream, error) {
	if d.closed.Load() {
		return nil, fmt.Errorf("lockstep: new stream: device %w", backend.ErrClosed)
	}
	a, err := d.a.NewStream()
	if err != nil {
		return nil, fmt.Errorf("lockstep: %s: %w", d.a.Name(), err)
	}
	b, err := d.b.NewStream()
	if err != nil {
		a.Close()
		return nil, fmt.Errorf("lockstep: %s: %w", d.b.Name(), err)
	}
	return withOps(&stream{dev: d, a: a, b: b}), nil
}

// Close leaves both devices open: they belong to whoever opened them.
func (d *Device) Close() error {
	d.closed.Store(true)
	return nil
}
