package state

import (
	"fmt"
	"sync/atomic"

	"samebit/backend"
	"samebit/tensor"
)

// banked is what states have in common that a pass rewrites as a whole. A pass
// reads one bank and writes another, so that it is atomic and a snapshot is a
// reference.
type banked struct {
	pool   *Pool
	id     ID
	layout *layout
	cur    bank // nil: zeros, of no rows
	next   bank // written by the pass under way, kept for reuse
	zero   bank // all zeros, made when first needed
	n      int
}

// layout says what the tensors of a bank are.
type layout struct {
	kind  string // for errors
	shape any    // comparable: states of equal kind and shape take each other's snapshots
	parts []part
}

type part struct {
	name string // of the saved tensor
	dim  []int
}

// bank is the state after some row: a tensor per part.
type bank []*block

func (d *banked) bank() (bank, error) {
	b := make(bank, 0, len(d.layout.parts))
	for _, p := range d.layout.parts {
		t, err := d.pool.get(p.dim...)
		if err != nil {
			b.release()
			return nil, err
		}
		b = append(b, t)
	}
	return b, nil
}

func (b bank) retain() bank {
	var c bank
	for _, t := range b {
		c = append(c, t.retain())
	}
	return c
}

func (b bank) release() {
	for _, t := range b {
		t.release()
	}
}

// Model is the model that the state belongs to.
func (d *banked) Model() ID { return d.id }

func (d *banked) Len() int     { return d.n }
func (d *banked) Bytes() int64 { return blockBytes(d.cur) + blockBytes(d.next) + blockBytes(d.zero) }

// zeros returns a bank of +0, the state before the first row.
func (d *banked) zeros() (bank, error) {
	if d.zero != nil {
		return d.zero, nil
	}
	z, err := d.bank()
	if err != nil {
		return nil, err
	}
	err = d.pool.run(func(s backend.Stream) {
		for _, b := range z {
			s.Write(b.t, make([]byte, b.bytes()))
		}
	})
	if err != nil {
		z.release()
		return nil, err
	}
	d.zero = z
	return z, nil
}

// begin gives the banks that a pass of so many rows reads and writes.
func (d *banked) begin(seg *backend.Seg, rows int) (in, out bank, err error) {
	if rows < 1 {
		return nil, nil, fmt.Errorf("state: Begin with %d rows", rows)
	}
	if in = d.cur; in == nil {
		if in, err = d.zeros(); err != nil {
			return nil, nil, err
		}
	}
	if d.next != nil && d.next[0].shared() {
		d.next.release()
		d.next = nil
	}
	if d.next == nil {
		if d.next, err = d.bank(); err != nil {
			return nil, nil, err
		}
	}
	seg.Slot, seg.Pos = d.n, d.n
	return in, d.next, nil
}

func (d *banked) Commit(rows int) {
	d.cur, d.next = d.next, d.cur
	if d.next == nil { // the zeros have been read: their memory is the next bank
		d.next, d.zero = d.zero, nil
	}
	d.n += rows
}

// Truncate lands at n only if that is the end; otherwise at 0.
func (d *banked) Truncate(n int) (int, error) {
	if err := checkTruncate(n, d.n); err != nil {
		return d.n, err
	}
	if n < d.n {
		d.reset()
	}
	return d.n, nil
}

func (d *banked) reset() {
	d.cur.release()
	d.cur, d.n = nil, 0
}

func (d *banked) Release() {
	d.reset()
	d.next.release()
	d.zero.release()
	d.next, d.zero = nil, nil
}

func (d *banked) Snapshot() (Snapshot, error) {
	s := &bankSnapshot{id: d.id, layout: d.layout, n: d.n, bank: d.cur.retain()}
	s.refs.Store(1)
	return s, nil
}

func (d *banked) Restore(snap Snapshot) error {
	s, ok := snap.(*bankSnapshot)
	if !ok || s.id != d.id || s.layout.kind != d.layout.kind || s.layout.shape != d.layout.shape {
		return foreign(snap, "a "+d.layout.kind, d.id)
	}
	if s.bank != nil && s.bank[0].pool != d.pool {
		return errOtherPool
	}
	b := s.bank.retain()
	d.reset()
	d.cur, d.n = b, s.n
	return nil
}

// fork has the same past and memory of its own for what follows.
func (d *banked) fork() banked {
	return banked{pool: d.pool, id: d.id, layout: d.layout, n: d.n, cur: d.cur.retain()}
}

func (d *banked) Load(rows int, get func(string) (tensor.Tensor, error)) error {
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
	for i, p := range d.layout.parts {
		t, err := get(p.name)
		if err == nil {
			err = wantShape(p.name, t, p.dim...)
		}
		if err == nil {
			err = d.pool.upload(b[i].t, t, false)
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

type bankSnapshot struct {
	id     ID
	layout *layout
	n      int
	bank   bank // nil before the first row
	refs   atomic.Int32
}

func (s *bankSnapshot) Model() ID    { return s.id }
func (s *bankSnapshot) Len() int     { return s.n }
func (s *bankSnapshot) Bytes() int64 { return blockBytes(s.bank) }

func (s *bankSnapshot) Save(emit func(string, tensor.Tensor) error) error {
	for i, b := range s.bank {
		if err := b.pool.download(s.layout.parts[i].name, b.t, 0, emit); err != nil {
			return err
		}
	}
	return nil
}

func (s *bankSnapshot) Pieces(f func(any, int64)) {
	for _, b := range s.bank {
		f(b, b.bytes())
	}
}

func (s *bankSnapshot) Retain() Snapshot {
	s.refs.Add(1)
	return s
}

func (s *bankSnapshot) Release() {
	n := s.refs.Add(-1)
	if invariants && n < 0 {
		panic("state: snapshot released too often")
	}
	if n == 0 {
		s.bank.release()
	}
}
