package state

import (
	"fmt"
	"sync/atomic"

	"samebit/backend"
	"samebit/tensor"
)

// DeltaShape is the shape of the recurrent state of all Gated DeltaNet layers.
type DeltaShape struct {
	Layers, Heads, DK, DV int // value heads, each with a dk×dv state
	Taps, Channels        int // of the causal convolution
}

// Delta holds the recurrent state and the convolution inputs of all delta-net
// layers. A pass reads one bank and writes another, so that it is atomic and a
// snapshot is a reference.
type Delta struct {
	pool  *Pool
	id    ID
	shape DeltaShape
	cur   *bank // nil: the zero state of no rows
	next  *bank // written by the pass under way, kept for reuse
	zero  *bank // all zeros, made when first needed
	n     int
}

// bank is the state after some row.
type bank struct{ delta, conv *block }

// NewDelta returns an empty state of the model id.
func NewDelta(pool *Pool, id ID, shape DeltaShape) (*Delta, error) {
	if shape.Layers < 1 || shape.Heads < 1 || shape.DK < 1 || shape.DV < 1 || shape.Taps < 2 || shape.Channels < 1 {
		return nil, fmt.Errorf("state: recurrent state of shape %+v", shape)
	}
	return &Delta{pool: pool, id: id, shape: shape}, nil
}

func (d *Delta) bank() (*bank, error) {
	s, err := d.pool.get(d.shape.Layers, d.shape.Heads, d.shape.DK, d.shape.DV)
	if err != nil {
		return nil, err
	}
	c, err := d.pool.get(d.shape.Layers, d.shape.Taps-1, d.shape.Channels)
	if err != nil {
		s.release()
		return nil, err
	}
	return &bank{s, c}, nil
}

func (b *bank) retain() *bank { return &bank{b.delta.retain(), b.conv.retain()} }

func (b *bank) release() {
	if b != nil {
		b.delta.release()
		b.conv.release()
	}
}

func (b *bank) bytes() int64 {
	if b == nil {
		return 0
	}
	return b.delta.bytes() + b.conv.bytes()
}

// Model is the model that the state belongs to.
func (d *Delta) Model() ID { return d.id }

func (d *Delta) Len() int     { return d.n }
func (d *Delta) Bytes() int64 { return d.cur.bytes() + d.next.bytes() + d.zero.bytes() }

// zeros returns a bank of +0, the state before the first row.
func (d *Delta) zeros() (*bank, error) {
	if d.zero != nil {
		return d.zero, nil
	}
	z, err := d.bank()
	if err != nil {
		return nil, err
	}
	err = d.pool.run(func(s backend.Stream) {
		s.Write(z.delta.t, make([]byte, z.delta.bytes()))
		s.Write(z.conv.t, make([]byte, z.conv.bytes()))
	})
	if err != nil {
		z.release()
		return nil, err
	}
	d.zero = z
	return z, nil
}

func (d *Delta) Begin(seg *backend.Seg, rows int) error {
	if rows < 1 {
		return fmt.Errorf("state: Begin with %d rows", rows)
	}
	in := d.cur
	if in == nil {
		z, err := d.zeros()
		if err != nil {
			return err
		}
		in = z
	}
	if d.next != nil && d.next.delta.shared() {
		d.next.release()
		d.next = nil
	}
	if d.next == nil {
		b, err := d.bank()
		if err != nil {
			return err
		}
		d.next = b
	}
	seg.DeltaIn, seg.DeltaOut = in.delta.t, d.next.delta.t
	seg.ConvIn, seg.ConvOut = in.conv.t, d.next.conv.t
	seg.Slot, seg.Pos = d.n, d.n
	return nil
}

func (d *Delta) Commit(rows int) {
	d.cur, d.next = d.next, d.cur
	d.n += rows
}

// Truncate lands at n only if that is the end; otherwise at 0.
func (d *Delta) Truncate(n int) (int, error) {
	if err := checkTruncate(n, d.n); err != nil {
		return d.n, err
	}
	if n < d.n {
		d.reset()
	}
	return d.n, nil
}

func (d *Delta) reset() {
	d.cur.release()
	d.cur, d.n = nil, 0
}

func (d *Delta) Release() {
	d.reset()
	d.next.release()
	d.zero.release()
	d.next, d.zero = nil, nil
}

func (d *Delta) Snapshot() (Snapshot, error) {
	s := &deltaSnapshot{id: d.id, shape: d.shape, n: d.n}
	if d.cur != nil {
		s.bank = d.cur.retain()
	}
	s.refs.Store(1)
	return s, nil
}

func (d *Delta) Restore(snap Snapshot) error {
	s, ok := snap.(*deltaSnapshot)
	if !ok || s.id != d.id || s.shape != d.shape {
		return foreign(snap, "a recurrent state", d.id)
	}
	if s.bank != nil && s.bank.delta.pool != d.pool {
		return fmt.Errorf("state: the snapshot lies in another pool, use Move: %w", ErrForeign)
	}
	var b *bank
	if s.bank != nil {
		b = s.bank.retain()
	}
	d.reset()
	d.cur, d.n = b, s.n
	return nil
}

func (d *Delta) Fork() (State, error) {
	f := &Delta{pool: d.pool, id: d.id, shape: d.shape, n: d.n}
	if d.cur != nil {
		f.cur = d.cur.retain()
	}
	return f, nil
}

const (
	deltaName = "delta"
	convName  = "conv"
)

func (d *Delta) Load(rows int, get func(string) (tensor.Tensor, error)) error {
	if rows < 0 {
		return fmt.Errorf("state: loading %d rows", rows)
	}
	if rows == 0 {
		d.reset()
		return nil
	}
	b, err := d.bank()
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		dst  tensor.Tensor
		dim  []int
	}{
		{deltaName, b.delta.t, []int{d.shape.Layers, d.shape.Heads, d.shape.DK, d.shape.DV}},
		{convName, b.conv.t, []int{d.shape.Layers, d.shape.Taps - 1, d.shape.Channels}},
	} {
		t, err := get(part.name)
		if err == nil {
			err = wantShape(part.name, t, part.dim...)
		}
		if err == nil {
			err = d.pool.upload(part.dst, t, false)
		}
		if err != nil {
			b.release()
			return err
		}
	}
	d.reset()
	d.cur, d.n = b, rows
	return nil
}

type deltaSnapshot struct {
	id    ID
	shape DeltaShape
	n     int
	bank  *bank // nil before the first row
	refs  atomic.Int32
}

func (s *deltaSnapshot) Model() ID    { return s.id }
func (s *deltaSnapshot) Len() int     { return s.n }
func (s *deltaSnapshot) Bytes() int64 { return s.bank.bytes() }

func (s *deltaSnapshot) Save(emit func(string, tensor.Tensor) error) error {
	if s.bank == nil {
		return nil
	}
	if err := s.bank.delta.pool.download(deltaName, s.bank.delta.t, 0, emit); err != nil {
		return err
	}
	return s.bank.conv.pool.download(convName, s.bank.conv.t, 0, emit)
}

func (s *deltaSnapshot) Retain() Snapshot {
	s.refs.Add(1)
	return s
}

func (s *deltaSnapshot) Release() {
	n := s.refs.Add(-1)
	if invariants && n < 0 {
		panic("state: snapshot released too often")
	}
	if n == 0 {
		s.bank.release()
	}
}
