package state

import (
	"fmt"
	"sync/atomic"

	"samebit/backend"
	"samebit/tensor"
)

// Stack is a state made of states that advance together. Its parts write
// different fields of a Seg.
type Stack struct{ Parts []State }

// Part finds the first part of type T in a state that may be a stack.
func Part[T State](s State) (T, bool) {
	if t, ok := s.(T); ok {
		return t, true
	}
	if st, ok := s.(*Stack); ok {
		for _, p := range st.Parts {
			if t, ok := Part[T](p); ok {
				return t, true
			}
		}
	}
	var none T
	return none, false
}

// Model is the model that the first part belongs to; zero if no part says.
func (s *Stack) Model() ID {
	for _, p := range s.Parts {
		if m, ok := p.(modelled); ok {
			return m.Model()
		}
	}
	return ID{}
}

func (s *Stack) Len() int {
	if len(s.Parts) == 0 {
		return 0
	}
	return s.Parts[0].Len()
}

func (s *Stack) Bytes() int64 {
	var n int64
	for _, p := range s.Parts {
		n += p.Bytes()
	}
	return n
}

func (s *Stack) Begin(seg *backend.Seg, rows int) error {
	for _, p := range s.Parts {
		if err := p.Begin(seg, rows); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) Commit(rows int) {
	for _, p := range s.Parts {
		p.Commit(rows)
	}
}

// Truncate lands at the deepest row that every part reaches.
func (s *Stack) Truncate(n int) (int, error) {
	for again := true; again; {
		again = false
		for _, p := range s.Parts {
			if p.Len() == n {
				continue
			}
			reached, err := p.Truncate(n)
			if err != nil {
				return s.Len(), err
			}
			if reached < n {
				n, again = reached, true
			}
		}
	}
	return n, nil
}

func (s *Stack) Release() {
	for _, p := range s.Parts {
		p.Release()
	}
}

func (s *Stack) Snapshot() (Snapshot, error) {
	st := &stackSnapshot{}
	st.refs.Store(1)
	for _, p := range s.Parts {
		q, err := p.Snapshot()
		if err != nil {
			st.Release()
			return nil, err
		}
		st.parts = append(st.parts, q)
	}
	return st, nil
}

func (s *Stack) Restore(snap Snapshot) error {
	st, ok := snap.(*stackSnapshot)
	if !ok || len(st.parts) != len(s.Parts) {
		return foreign(snap, fmt.Sprintf("a stack of %d", len(s.Parts)), s.Model())
	}
	old, err := s.Snapshot()
	if err != nil {
		return err
	}
	defer old.Release()
	for i, p := range s.Parts {
		if err := p.Restore(st.parts[i]); err != nil {
			for j, q := range s.Parts[:i] { // back to where we were
				if e := q.Restore(old.(*stackSnapshot).parts[j]); e != nil {
					return e
				}
			}
			return err
		}
	}
	return nil
}

func (s *Stack) Fork() (State, error) {
	f := &Stack{}
	for _, p := range s.Parts {
		q, err := p.Fork()
		if err != nil {
			f.Release()
			return nil, err
		}
		f.Parts = append(f.Parts, q)
	}
	return f, nil
}

func (s *Stack) Load(rows int, get func(string) (tensor.Tensor, error)) error {
	old, err := s.Snapshot()
	if err != nil {
		return err
	}
	defer old.Release()
	for _, p := range s.Parts {
		if err := p.Load(rows, get); err != nil {
			if e := s.Restore(old); e != nil {
				return e
			}
			return err
		}
	}
	return nil
}

type stackSnapshot struct {
	parts []Snapshot
	refs  atomic.Int32
}

func (s *stackSnapshot) Model() ID {
	if len(s.parts) == 0 {
		return ID{}
	}
	return s.parts[0].Model()
}

func (s *stackSnapshot) Len() int {
	if len(s.parts) == 0 {
		return 0
	}
	return s.parts[0].Len()
}

func (s *stackSnapshot) Bytes() int64 {
	var n int64
	for _, p := range s.parts {
		n += p.Bytes()
	}
	return n
}

func (s *stackSnapshot) Save(emit func(string, tensor.Tensor) error) error {
	for _, p := range s.parts {
		if err := p.Save(emit); err != nil {
			return err
		}
	}
	return nil
}

func (s *stackSnapshot) Retain() Snapshot {
	s.refs.Add(1)
	return s
}

func (s *stackSnapshot) Release() {
	n := s.refs.Add(-1)
	if invariants && n < 0 {
		panic("state: snapshot released too often")
	}
	if n == 0 {
		for _, p := range s.parts {
			p.Release()
		}
	}
}
