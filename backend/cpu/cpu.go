// Package cpu is the fast implementation of the ops on the processor: packed
// weights, vector kernels and a pool of spinning workers, with the bits of
// package ref on every instruction set and at every number of threads.
package cpu

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"samebit/backend"
	"samebit/backend/cpu/internal/attn"
	"samebit/backend/cpu/internal/attngrad"
	"samebit/backend/cpu/internal/delta"
	"samebit/backend/cpu/internal/deltagrad"
	"samebit/backend/cpu/internal/gemm"
	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/pool"
	"samebit/backend/cpu/internal/vec"
	"samebit/tensor"
)

// Config chooses threads and kernels. The zero value uses all processors and the
// fastest instruction set; neither changes a bit of any result.
type Config struct {
	Threads int    // workers, the caller counted; 0 means GOMAXPROCS
	Impl    string // "generic", "neon", "avx2" or "avx512"; empty means the fastest
}

// Impls lists the kernels that this machine and build can run, the fastest last.
func Impls() []string {
	var l []string
	for _, s := range isa.Available() {
		l = append(l, s.String())
	}
	return l
}

// Device runs ops on the processor. It implements backend.Device.
type Device struct {
	set   isa.Set
	pool  *pool.Pool
	gemm  *gemm.Kernels
	vec   *vec.Kernels
	attn  *attn.Kernels
	delta *delta.Kernels

	attnGrad  *attngrad.Kernels
	deltaGrad *deltagrad.Kernels

	slabs   slabs // of packed weights
	buffers slabs // of Alloc
	closed  atomic.Bool
}

// New starts the workers. It fails if the kernels are not available here or if
// the processor flushes subnormals, which would change bits.
func New(cfg Config) (*Device, error) {
	set, err := isa.Parse(cfg.Impl)
	if err != nil {
		return nil, fmt.Errorf("cpu: kernels %q are not available here, have %v: %w", cfg.Impl, Impls(), backend.ErrUnsupported)
	}
	if cfg.Threads < 0 || cfg.Threads > 1024 {
		return nil, fmt.Errorf("cpu: %d threads: want 1 to 1024, or 0 for all processors", cfg.Threads)
	}
	if cfg.Threads == 0 {
		cfg.Threads = runtime.GOMAXPROCS(0)
	}
	d := &Device{set: set, gemm: gemm.For(set), vec: vec.For(set), attn: attn.For(set), delta: delta.For(set),
		attnGrad: attngrad.For(set), deltaGrad: deltagrad.For(set), buffers: slabs{classes: true}}
	if err := d.vec.Check(); err != nil {
		return nil, fmt.Errorf("cpu: exact results are not possible on this processor: %w: %w", err, backend.ErrUnsupported)
	}
	d.pool = pool.New(cfg.Threads)
	return d, nil
}

func (d *Device) Name() string { return "cpu" }

func (d *Device) Info() backend.Info {
	return backend.Info{Name: "cpu", Model: runtime.GOARCH, Kernels: d.set.String(), Threads: d.pool.Threads(), BF16Pages: true}
}

func (d *Device) Alloc(bytes int) (tensor.Buffer, error) {
	if bytes >= leastPiece && bytes <= slabBytes/4 {
		p, err := d.buffers.get(bytes)
		if err != nil {
			return nil, err
		}
		return &memory{b: p.b, part: p, from: &d.buffers}, nil
	}
	m, err := alloc(bytes)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (d *Device) Free(b tensor.Buffer) {
	if m, ok := b.(*memory); ok {
		m.free()
	}
}

func (d *Device) NewStream() (backend.Stream, error) {
	if d.closed.Load() {
		return nil, fmt.Errorf("cpu: new stream: device %w", backend.ErrClosed)
	}
	return newStream(d), nil
}

// NewSoloStream returns a stream whose ops run on the caller's processor alone
// (backend.Solo).
func (d *Device) NewSoloStream() (backend.Stream, error) {
	if d.closed.Load() {
		return nil, fmt.Errorf("cpu: new stream: device %w", backend.ErrClosed)
	}
	s := newStream(d)
	s.solo = true
	return s, nil
}

// Close stops the workers. Streams of the device go on with one thread.
func (d *Device) Close() error {
	if !d.closed.Swap(true) {
		d.pool.Close()
	}
	return nil
}
