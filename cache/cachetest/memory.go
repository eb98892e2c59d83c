package cachetest

import (
	"bytes"
	"context"
	"maps"
	"sync"

	"samebit/cache"
	"samebit/state"
)

// Place holds the bytes of entries for the stores that are opened on it: the
// smallest thing that satisfies cache.Store, and an example of one that keeps
// entries as objects of bytes.
type Place struct {
	mu      sync.Mutex
	objects map[cache.EntryID][]byte
	keys    map[cache.EntryID]cache.Key
	changes uint64
}

// Open returns a store on p.
func (p *Place) Open() cache.Store { return placeStore{p} }

type placeStore struct{ p *Place }

func (s placeStore) Put(ctx context.Context, e cache.Entry, snap state.Snapshot) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := cache.WriteEntry(&b, e, snap); err != nil {
		return err
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.objects == nil {
		s.p.objects, s.p.keys = map[cache.EntryID][]byte{}, map[cache.EntryID]cache.Key{}
	}
	if s.p.objects[e.ID] == nil {
		s.p.objects[e.ID], s.p.keys[e.ID] = b.Bytes(), e.Key
		s.p.changes++
	}
	return nil
}

func (s placeStore) Get(_ context.Context, e cache.Entry, into cache.Appender) error {
	s.p.mu.Lock()
	b := s.p.objects[e.ID]
	s.p.mu.Unlock()
	if b == nil {
		return cache.ErrNotFound
	}
	return cache.ReadEntry(b, e, into)
}

func (s placeStore) List(_ context.Context, k cache.Key, skip func(cache.EntryID) bool, f func(cache.Entry) bool) error {
	s.p.mu.Lock()
	objects, keys := maps.Clone(s.p.objects), maps.Clone(s.p.keys)
	s.p.mu.Unlock()
	for id, b := range objects {
		if keys[id] != k || skip(id) {
			continue
		}
		if e, err := cache.EntryRows(b); err == nil && e.ID == id && !f(e) {
			return nil
		}
	}
	return nil
}

func (s placeStore) Stamp(context.Context) uint64 {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.changes
}

func (s placeStore) Delete(_ context.Context, id cache.EntryID) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	delete(s.p.objects, id)
	delete(s.p.keys, id)
	return nil
}

func (s placeStore) Bytes() (n int64) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for _, b := range s.p.objects {
		n += int64(len(b))
	}
	return n
}

func (s placeStore) Close() error { return nil }
