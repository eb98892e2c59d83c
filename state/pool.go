package state

import (
	"fmt"
	"sync"
	"sync/atomic"

	"samebit/backend"
	"samebit/tensor"
)

// Pool hands out the memory of states on one device and counts it, every shared
// page once. It is safe for concurrent use.
type Pool struct {
	dev   backend.Device
	limit int64

	mu     sync.Mutex
	stream backend.Stream          // copies and page conversions
	free   map[int][]tensor.Buffer // by size
	idle   int64                   // bytes in free
	bytes  int64                   // bytes in use
}

// NewPool makes a pool that holds at most limit bytes; 0 means no limit.
func NewPool(dev backend.Device, limit int64) (*Pool, error) {
	if dev == nil {
		return nil, fmt.Errorf("state: pool: no device")
	}
	s, err := dev.NewStream()
	if err != nil {
		return nil, fmt.Errorf("state: pool on %s: %w", dev.Name(), err)
	}
	return &Pool{dev: dev, limit: limit, stream: s, free: map[int][]tensor.Buffer{}}, nil
}

// Device is where the pool's memory lies.
func (p *Pool) Device() backend.Device { return p.dev }

// Bytes is the memory in use, each shared page counted once.
func (p *Pool) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// Close frees the pool's memory. States and snapshots of the pool must have been
// released.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
	if p.bytes != 0 {
		return fmt.Errorf("state: pool closed with %d bytes in use", p.bytes)
	}
	return p.stream.Close()
}

// drop frees the buffers that wait for reuse.
func (p *Pool) drop() {
	for n, l := range p.free {
		for _, b := range l {
			p.dev.Free(b)
		}
		delete(p.free, n)
	}
	p.idle = 0
}

// block is a counted piece of device memory.
type block struct {
	pool *Pool
	buf  tensor.Buffer
	t    tensor.Tensor
	refs atomic.Int32
}

// get returns a block of float32 with one reference. Its content is unspecified.
func (p *Pool) get(dim ...int) (*block, error) { return p.take(p.limit, tensor.F32, dim) }

// take is get of a type, with a limit of its own, 0 for none.
func (p *Pool) take(limit int64, dt tensor.DType, dim []int) (*block, error) {
	n := dt.Bytes(1)
	for _, d := range dim {
		n *= d
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if limit > 0 && p.bytes+int64(n) > limit {
		return nil, fmt.Errorf("state: %d bytes more than the %d in use exceed the pool's limit of %d: release sequences or raise the limit: %w",
			n, p.bytes, limit, ErrNoRoom)
	}
	buf, err := p.buffer(n, limit)
	if err != nil {
		return nil, fmt.Errorf("state: memory for more rows: %w", err)
	}
	t, err := tensor.New(buf, 0, dt, dim...)
	if err != nil {
		p.dev.Free(buf)
		return nil, fmt.Errorf("state: %w", err)
	}
	p.bytes += int64(n)
	b := &block{pool: p, buf: buf, t: t}
	b.refs.Store(1)
	return b, nil
}

// buffer takes an idle buffer of n bytes or a new one, for which others may have
// to go.
func (p *Pool) buffer(n int, limit int64) (tensor.Buffer, error) {
	if l := p.free[n]; len(l) > 0 {
		p.free[n] = l[:len(l)-1]
		p.idle -= int64(n)
		return l[len(l)-1], nil
	}
	if limit > 0 && p.bytes+p.idle+int64(n) > limit {
		p.drop()
	}
	buf, err := p.dev.Alloc(n)
	if err != nil && p.idle > 0 {
		p.drop()
		buf, err = p.dev.Alloc(n)
	}
	return buf, err
}

func (b *block) bytes() int64 { return int64(b.buf.Len()) }
func (b *block) shared() bool { return b.refs.Load() > 1 }

func (b *block) retain() *block {
	if n := b.refs.Add(1); invariants && n < 2 {
		panic("state: block retained after its last release")
	}
	return b
}

func (b *block) release() {
	n := b.refs.Add(-1)
	if invariants && n < 0 {
		panic("state: block released too often")
	}
	if n != 0 {
		return
	}
	if invariants {
		poison(b.buf)
	}
	p := b.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	size := b.buf.Len()
	p.bytes -= int64(size)
	p.idle += int64(size)
	p.free[size] = append(p.free[size], b.buf)
}

// poison fills host memory with NaN.
func poison(b tensor.Buffer) {
	h := b.Host()
	for i := range h {
		h[i] = 0xff
	}
}

// run does f on the pool's own stream and waits.
func (p *Pool) run(f func(backend.Stream)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.stream)
	err := p.stream.Sync()
	p.stream.Reset()
	return err
}

// clone returns a copy of b.
func (b *block) clone() (*block, error) {
	dim := b.t.Shape()
	c, err := b.pool.take(b.pool.limit, b.t.DType(), dim)
	if err != nil {
		return nil, err
	}
	if err := b.pool.run(func(s backend.Stream) { s.Copy(c.t, b.t) }); err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}
