// Package cachetest is the suite that every cache.Store must pass.
package cachetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"samebit/cache"
	"samebit/state"
)

// Run tests a kind of store. fresh returns a way to open stores on one new, empty
// place that holds at least 4 MiB: each call of open is like another process. The
// suite closes what it opens.
func Run(t *testing.T, fresh func(t *testing.T) (open func() cache.Store)) {
	for _, part := range []struct {
		name string
		test func(*fixture)
	}{
		{"bits come back", bits},
		{"what is not there", missing},
		{"list", list},
		{"delete", remove},
		{"other model", foreign},
		{"cancelled", cancelled},
		{"another process", second},
		{"all at once", together},
		{"through a cache", through},
	} {
		t.Run(part.name, func(t *testing.T) {
			f := &fixture{T: t, Bed: NewBed(t), open: fresh(t)}
			f.store = f.reopen()
			part.test(f)
		})
	}
}

type fixture struct {
	*testing.T
	*Bed
	open  func() cache.Store
	store cache.Store
}

var ctx = context.Background()

func (f *fixture) reopen() cache.Store {
	s := f.open()
	f.Cleanup(func() { s.Close() })
	return s
}

// rows makes n rows of a document, every fifth continuous if mixed.
func rows(doc, n int, mixed bool) []state.Row {
	l := make([]state.Row, n)
	for i := range l {
		l[i].Token = int32(doc*1000 + i*7%31)
		if mixed && i%5 == 2 {
			nan := math.Float32frombits(0x7fc00001)
			l[i] = state.Row{Token: -1, Vec: []float32{float32(doc), float32(math.Copysign(0, -1)), nan, float32(i)}}
		}
	}
	return l
}

// put runs rows and stores the end; it returns the entry and its state.
func (f *fixture) put(k cache.Key, l []state.Row) (cache.Entry, []byte) {
	f.Helper()
	s := f.Sequence(k.Model, 0)
	if err := s.Append(ctx, l); err != nil {
		f.Fatal(err)
	}
	snap, err := s.Snapshot()
	if err != nil {
		f.Fatal(err)
	}
	defer snap.Release()
	e := cache.NewEntry(k, l)
	if err := f.store.Put(ctx, e, snap); err != nil {
		f.Fatalf("putting %d rows: %v", len(l), err)
	}
	return e, f.bytes(s)
}

func (f *fixture) bytes(s *Sequence) []byte {
	f.Helper()
	b, err := s.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// want gets e and compares all of its state.
func (f *fixture) want(s cache.Store, e cache.Entry, state []byte) {
	f.Helper()
	q := f.Sequence(e.Key.Model, 0)
	if err := s.Get(ctx, e, q); err != nil {
		f.Errorf("getting %d rows: %v", len(e.Rows), err)
		return
	}
	if q.Len() != len(e.Rows) || !bytes.Equal(f.bytes(q), state) {
		f.Errorf("%d rows come back with other bits", len(e.Rows))
	}
}

// wantNone gets e and expects that it is not there and that the sequence is left
// alone.
func (f *fixture) wantNone(why string, s cache.Store, e cache.Entry) {
	f.Helper()
	q := f.Sequence(e.Key.Model, 0)
	if err := q.Append(ctx, rows(99, 3, false)); err != nil {
		f.Fatal(err)
	}
	before := f.bytes(q)
	if err := s.Get(ctx, e, q); !errors.Is(err, cache.ErrNotFound) {
		f.Errorf("%s: %v, want ErrNotFound", why, err)
	}
	if q.Len() != 3 || !bytes.Equal(f.bytes(q), before) {
		f.Errorf("%s: the sequence was changed", why)
	}
}

func bits(f *fixture) {
	k := cache.Key{Model: state.ID{1}, Route: -3, Extra: [32]byte{7}}
	for i, n := range []int{1, 63, 64, 65, 131} {
		for _, mixed := range []bool{false, true} {
			before := f.store.Bytes()
			e, st := f.put(k, rows(i, n, mixed))
			f.want(f.store, e, st)
			f.want(f.store, e, st)
			if n > 1 && f.store.Bytes() <= before {
				f.Errorf("%d bytes before %d rows, %d with them", before, n, f.store.Bytes())
			}
			b := f.store.Bytes()
			if e, st = f.put(k, rows(i, n, mixed)); f.store.Bytes() != b {
				f.Errorf("%d bytes, %d after the same entry again", b, f.store.Bytes())
			}
			f.want(f.store, e, st)
		}
	}
}

func missing(f *fixture) {
	k := cache.Key{Model: state.ID{1}}
	e, st := f.put(k, rows(1, 70, true))
	f.wantNone("shorter rows", f.store, cache.NewEntry(k, e.Rows[:69]))
	f.wantNone("other rows", f.store, cache.NewEntry(k, rows(2, 70, true)))
	for _, o := range []cache.Key{{Model: state.ID{2}}, {Model: k.Model, Route: 1}, {Model: k.Model, Extra: [32]byte{1}}} {
		f.wantNone(fmt.Sprintf("key %v", o), f.store, cache.NewEntry(o, e.Rows))
	}
	// An address is no proof: the same ID with other rows or another key.
	f.wantNone("colliding rows", f.store, cache.Entry{ID: e.ID, Key: k, Rows: rows(3, 70, true)})
	f.wantNone("colliding route", f.store, cache.Entry{ID: e.ID, Key: cache.Key{Model: k.Model, Route: 5}, Rows: e.Rows})
	other := slices.Clone(e.Rows)
	other[2].Vec = append([]float32(nil), other[2].Vec...)
	other[2].Vec[1] = 0 // was -0
	f.wantNone("one sign", f.store, cache.Entry{ID: e.ID, Key: k, Rows: other})
	f.want(f.store, e, st)
}

func (f *fixture) all(s cache.Store, k cache.Key) []cache.EntryID {
	f.Helper()
	var l []cache.EntryID
	err := s.List(ctx, k, func(cache.EntryID) bool { return false }, func(e cache.Entry) bool {
		if e.Key != k || cache.NewEntry(k, e.Rows).ID != e.ID {
			f.Errorf("an entry is listed under key %v with id %v and %d rows that do not belong together", e.Key, e.ID, len(e.Rows))
		}
		l = append(l, e.ID)
		return true
	})
	if err != nil {
		f.Fatal(err)
	}
	slices.SortFunc(l, func(a, b cache.EntryID) int { return bytes.Compare(a[:], b[:]) })
	return l
}

func list(f *fixture) {
	k, o := cache.Key{Model: state.ID{1}}, cache.Key{Model: state.ID{1}, Extra: [32]byte{1}}
	if l := f.all(f.store, k); len(l) != 0 {
		f.Errorf("%d entries in an empty store", len(l))
	}
	var ids []cache.EntryID
	for i := range 5 {
		e, _ := f.put(k, rows(i, 10+i, i%2 == 0))
		ids = append(ids, e.ID)
	}
	f.put(o, rows(1, 11, false))
	if l := f.all(f.store, k); len(l) != 5 || slices.ContainsFunc(ids, func(id cache.EntryID) bool { return !slices.Contains(l, id) }) {
		f.Errorf("%d entries are listed, want the 5 of the key", len(l))
	}
	if l := f.all(f.store, o); len(l) != 1 {
		f.Errorf("%d entries of the other key, want 1", len(l))
	}
	asked := 0
	if err := f.store.List(ctx, k, func(cache.EntryID) bool { asked++; return true }, func(cache.Entry) bool { return true }); err != nil || asked != 5 {
		f.Errorf("skip was asked about %d entries of 5, %v: a cache forgets the others", asked, err)
	}
	n := 0
	err := f.store.List(ctx, k, func(id cache.EntryID) bool { return id == ids[2] }, func(e cache.Entry) bool {
		if e.ID == ids[2] {
			f.Error("an entry is listed that was to be skipped")
		}
		n++
		return n < 2
	})
	if err != nil || n != 2 {
		f.Errorf("%d entries after false at the second, %v", n, err)
	}
}

func remove(f *fixture) {
	k := cache.Key{Model: state.ID{1}}
	a, _ := f.put(k, rows(1, 20, false))
	b, st := f.put(k, rows(2, 20, false))
	full := f.store.Bytes()
	if err := f.store.Delete(ctx, a.ID); err != nil {
		f.Fatal(err)
	}
	if err := f.store.Delete(ctx, a.ID); err != nil {
		f.Errorf("deleting what is not there: %v", err)
	}
	f.wantNone("deleted", f.store, a)
	f.want(f.store, b, st)
	if n := f.store.Bytes(); n >= full {
		f.Errorf("%d bytes, %d before the deletion", n, full)
	}
	if l := f.all(f.store, k); len(l) != 1 {
		f.Errorf("%d entries are listed after a deletion, want 1", len(l))
	}
}

func foreign(f *fixture) {
	k := cache.Key{Model: state.ID{1}}
	s := f.Sequence(state.ID{2}, 0)
	if err := s.Append(ctx, rows(1, 5, false)); err != nil {
		f.Fatal(err)
	}
	snap, err := s.Snapshot()
	if err != nil {
		f.Fatal(err)
	}
	defer snap.Release()
	if err := f.store.Put(ctx, cache.NewEntry(k, rows(1, 5, false)), snap); err == nil {
		f.Error("a snapshot of another model was stored")
	}
	if err := f.store.Put(ctx, cache.NewEntry(cache.Key{Model: state.ID{2}}, rows(1, 6, false)), snap); err == nil {
		f.Error("a snapshot of other rows was stored")
	}
	// A state of another shape under the same key does not fit and is as good as
	// damaged.
	e, _ := f.put(k, rows(1, 5, false))
	wide := f.Sequence(k.Model, 2)
	if err := f.store.Get(ctx, e, wide); !errors.Is(err, cache.ErrNotFound) {
		f.Errorf("a state of another shape: %v, want ErrNotFound", err)
	}
	if wide.Len() != 0 {
		f.Error("the sequence was changed")
	}
}

func cancelled(f *fixture) {
	k := cache.Key{Model: state.ID{1}}
	s := f.Sequence(k.Model, 0)
	if err := s.Append(ctx, rows(1, 5, false)); err != nil {
		f.Fatal(err)
	}
	snap, err := s.Snapshot()
	if err != nil {
		f.Fatal(err)
	}
	defer snap.Release()
	dead, cancel := context.WithCancel(ctx)
	cancel()
	e := cache.NewEntry(k, rows(1, 5, false))
	if err := f.store.Put(dead, e, snap); err == nil {
		st := f.bytes(s) // it was quick: then it is there
		f.want(f.store, e, st)
	} else {
		f.wantNone("cancelled Put", f.store, e)
	}
}

func second(f *fixture) {
	k := cache.Key{Model: state.ID{1}}
	e, st := f.put(k, rows(1, 66, true))
	other := f.reopen()
	f.want(other, e, st)
	stamp := other.Stamp(ctx)
	e2, st2 := f.put(k, rows(2, 66, true))
	if other.Stamp(ctx) == stamp {
		f.Error("the stamp is the same after another process added an entry")
	}
	f.want(other, e2, st2)
	if l := f.all(other, k); len(l) != 2 {
		f.Errorf("%d entries are listed elsewhere, want 2", len(l))
	}
	if err := f.store.Close(); err != nil {
		f.Fatal(err)
	}
	f.store = f.reopen()
	f.want(f.store, e, st)
	f.want(f.store, e2, st2)
}

func together(f *fixture) {
	k := cache.Key{Model: state.ID{1}}
	type made struct {
		e  cache.Entry
		st []byte
	}
	var all []made
	for i := range 6 {
		e, st := f.put(k, rows(i, 30+i, i%2 == 0))
		all = append(all, made{e, st})
	}
	stores := []cache.Store{f.store, f.reopen(), f.reopen()}
	var wg sync.WaitGroup
	for w := range 6 {
		s := stores[w%len(stores)]
		q := f.Sequence(k.Model, 0)
		wg.Go(func() {
			for i := range 30 {
				m := all[(i*5+w)%len(all)]
				err := s.Get(ctx, m.e, q)
				if err == nil {
					b, err := q.Bytes()
					if err != nil || !bytes.Equal(b, m.st) {
						f.Errorf("%d rows come back with other bits (%v)", len(m.e.Rows), err)
					}
					snap, err := q.Snapshot()
					if err != nil {
						f.Error(err)
						return
					}
					if err := s.Put(ctx, m.e, snap); err != nil {
						f.Error(err)
					}
					snap.Release()
				} else if !errors.Is(err, cache.ErrNotFound) {
					f.Error(err)
				}
				if i%7 == w {
					if err := s.Delete(ctx, m.e.ID); err != nil {
						f.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// through uses the store as a cache does: what one cache made, the next one hits.
func through(f *fixture) {
	f.store.Close()
	k := cache.Key{Model: state.ID{1}}
	l := rows(1, 150, true)
	for turn := range 3 {
		c, err := cache.New(f.Pool(), cache.Config{Store: f.open(), Policy: cache.Policy{Stride: 50, MinPrefix: -1}})
		if err != nil {
			f.Fatal(err)
		}
		q, cold := f.Sequence(k.Model, 0), f.Sequence(k.Model, 0)
		rep, err := c.Prefill(ctx, k, q, l, 149)
		if err != nil {
			f.Fatal(err)
		}
		if (rep.Outcome == cache.Hit) != (turn > 0) || rep.Stored != (turn > 0) {
			f.Errorf("turn %d: %+v", turn, rep)
		}
		if err := cold.Append(ctx, l); err != nil {
			f.Fatal(err)
		}
		if !bytes.Equal(f.bytes(q), f.bytes(cold)) {
			f.Errorf("turn %d: other bits than cold", turn)
		}
		if err := c.Close(ctx); err != nil {
			f.Fatal(err)
		}
		if s := c.Stats(); s.StoreFault != 0 {
			f.Errorf("turn %d: %d faults", turn, s.StoreFault)
		}
	}
}
