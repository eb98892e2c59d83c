package state

import (
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

// Choose names the slots that a key head keeps, rising: keep of those that hold keys
// and values, both [n, D], oldest first. It must depend on nothing else.
type Choose func(layer, head int, keys, values tensor.Tensor, keep int) ([]int, error)

// Sieve holds keys and values of a fixed number of slots per head and of up to a page
// of rows more. When that page is full, the next row passes everything through the
// sieve first: each head keeps its own choice of rows, as they were. So what a row
// sees follows from the text before it, however it was cut into passes, and memory
// does not grow.
//
// A pass takes as many rows as Room says. Truncate lands where it is told as far back
// as the last choice, before that at no rows.
type Sieve struct {
	*Kept
	keep   int // slots after a choice, whole pages
	choose Choose
	next   *Kept // the choice that the next row needs; nil: not made
}

// NewSieve returns an empty state of the model id that keeps so many slots, a
// multiple of the page. The id must tell choices apart.
func NewSieve(pool *Pool, id ID, shape KVShape, slots int, choose Choose) (*Sieve, error) {
	if slots < backend.Page || slots%backend.Page != 0 || slots > maxSlots/2 || choose == nil {
		return nil, fmt.Errorf("state: a sieve of %d slots: want a multiple of %d, and a choice", slots, backend.Page)
	}
	k, err := NewKept(pool, id, shape)
	if err != nil {
		return nil, err
	}
	return &Sieve{Kept: k, keep: slots, choose: choose}, nil
}

// full reports whether the next row needs a choice.
func (s *Sieve) full() bool { return s.n == s.keep+backend.Page }

// Room is the number of rows that the next pass may have.
func (s *Sieve) Room() int {
	if s.full() {
		return backend.Page
	}
	return s.keep + backend.Page - s.n
}

// Room is the number of rows that a pass of s may have, most if s does not mind.
func Room(s State, most int) int {
	switch t := s.(type) {
	case interface{ Room() int }:
		return min(most, t.Room())
	case interface{ parts() []State }:
		for _, p := range t.parts() {
			most = Room(p, most)
		}
	}
	return most
}

func (s *Stack) parts() []State { return s.Parts }

func (s *Sieve) Bytes() int64 {
	n := s.Kept.Bytes()
	if s.next != nil {
		n += s.next.Bytes()
	}
	return n
}

func (s *Sieve) Begin(seg *backend.Seg, rows int) error {
	if rows > s.Room() {
		return fmt.Errorf("state: Begin with %d rows of a sieve that chooses after %d: run them in passes of at most Room", rows, s.Room())
	}
	if !s.full() {
		return s.Kept.Begin(seg, rows)
	}
	if s.next == nil {
		next, err := s.sift()
		if err != nil {
			return err
		}
		s.next = next
	}
	return s.next.Begin(seg, rows)
}

// sift is the state after a choice.
func (s *Sieve) sift() (*Kept, error) {
	held, err := s.host()
	if err != nil {
		return nil, err
	}
	sh := s.shape
	v := make([]float32, 2*s.n*sh.Dim)
	both, err := tensor.FromF32(v, 2, s.n, sh.Dim)
	if err != nil {
		return nil, err
	}
	keys, values := both.Index(0), both.Index(1)
	slots := make([][][]int, sh.Layers)
	for l := range slots {
		for h := range sh.Heads {
			for j := range s.n {
				t := held[j/backend.Page]
				copy(keys.Row(j), t.Index(2*l).Vec(h, j%backend.Page))
				copy(values.Row(j), t.Index(2*l+1).Vec(h, j%backend.Page))
			}
			list, err := s.choose(l, h, keys, values, s.keep)
			if err != nil {
				return nil, err
			}
			slots[l] = append(slots[l], list)
		}
	}
	n, err := s.checkKeep(slots)
	if err == nil && n != s.keep {
		err = fmt.Errorf("state: the choice of a sieve keeps %d rows, want %d", n, s.keep)
	}
	if err != nil {
		return nil, err
	}
	return s.KV.keep(held, slots, n, s.Len())
}

func (s *Sieve) Commit(rows int) {
	if s.full() {
		s.Kept.Release()
		s.Kept, s.next = s.next, nil
	}
	s.Kept.Commit(rows)
}

// forget drops a choice that was made for rows that never came.
func (s *Sieve) forget() {
	if s.next != nil {
		s.next.Release()
		s.next = nil
	}
}

func (s *Sieve) Truncate(n int) (int, error) {
	if n < s.Len() {
		s.forget()
	}
	return s.Kept.Truncate(n)
}

func (s *Sieve) Release() {
	s.forget()
	s.Kept.Release()
}

func (s *Sieve) Fork() (State, error) {
	k, err := s.Kept.Fork()
	if err != nil {
		return nil, err
	}
	return &Sieve{Kept: k.(*Kept), keep: s.keep, choose: s.choose}, nil
}

func (s *Sieve) Restore(snap Snapshot) error {
	if k, ok := snap.(*keptSnapshot); ok && k.Snapshot.Len() > s.keep+backend.Page {
		return foreign(snap, fmt.Sprintf("a sieve of %d slots", s.keep), s.id)
	}
	s.forget()
	return s.Kept.Restore(snap)
}

func (s *Sieve) Load(rows int, get func(string) (tensor.Tensor, error)) error {
	fresh, err := NewKept(s.pool, s.id, s.shape)
	if err != nil {
		return err
	}
	if err := fresh.Load(rows, get); err != nil {
		return err
	}
	if fresh.n > s.keep+backend.Page {
		fresh.Release()
		return fmt.Errorf("state: loading %d slots into a sieve of %d: %w", fresh.n, s.keep, ErrForeign)
	}
	s.forget()
	s.Kept.Release()
	s.Kept = fresh
	return nil
}
