package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"samebit/state"
	"samebit/tensor"
)

// full makes q's rows fit only while at most most snapshots are held.
func (q *fakeSeq) full(most int) {
	q.before = func(context.Context, int, int) error { return q.w.full(most) }
}

func (w *world) full(most int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live > most {
		return state.ErrNoRoom
	}
	return nil
}

// lazy is a store without entries that takes a second for each.
type lazy struct {
	Store
	closed int
}

func (*lazy) Put(ctx context.Context, _ Entry, _ state.Snapshot) error {
	return slow(ctx, 0, 0)
}

func (*lazy) Get(context.Context, Entry, Appender) error { return ErrNotFound }
func (*lazy) List(context.Context, Key, func(EntryID) bool, func(Entry) bool) error {
	return nil
}
func (*lazy) Stamp(context.Context) uint64 { return 0 }
func (*lazy) Bytes() int64                 { return 0 }
func (s *lazy) Close() error               { s.closed++; return nil }

// A pool that is full of checkpoints makes room at once, although the second tier
// would take seconds to keep them.
func TestFullPoolWithSlowStore(t *testing.T) {
	ctx := context.Background()
	fill := func(t *testing.T, c *Cache, w *world, docs int) {
		t.Helper()
		for doc := range docs {
			rows := count(100, 0)
			rows[0].Token = int32(5000 + doc)
			r := <-start(ctx, c, w.seq(), rows, 100)
			if r.err != nil {
				t.Fatal(r.err)
			}
		}
	}
	for name, tt := range map[string]struct {
		budget int64
		prior  func(c *Cache)
		most   int           // snapshots for which there is room
		wait   time.Duration // for the writer
	}{
		"in memory":              {0, nil, 2, 0},
		"waiting to be written":  {2200, nil, 3, 0}, // two stay, one is being written, one waits
		"queued by a Flush":      {0, func(c *Cache) { go c.Flush(ctx); synctest.Wait() }, 1, 0},
		"being written, evicted": {1, nil, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Config{MemoryBytes: tt.budget, Policy: every100, Store: &lazy{}}, func(t *testing.T, c *Cache, w *world) {
				fill(t, c, w, 6)
				if tt.prior != nil {
					tt.prior(c)
				}
				q := w.seq()
				q.full(tt.most)
				r := <-start(ctx, c, q, count(100, 100), 100)
				if r.err != nil || r.at != tt.wait || q.n != 100 {
					t.Errorf("%+v, %d rows, want them after %v", r, q.n, tt.wait)
				}
				q.full(-1)
				if r := <-start(ctx, c, q, count(100, 50), 100); !errors.Is(r.err, state.ErrNoRoom) {
					t.Errorf("a pool that is full without the cache: %v", r.err)
				}
			})
		})
	}
}

// cramped is a sequence whose states are read only if there is room.
type cramped struct {
	*fakeSeq
	most int
}

func (q cramped) Adopt(rows []state.Row, get func(string) (tensor.Tensor, error)) error {
	if err := q.w.full(q.most); err != nil {
		return err
	}
	return q.fakeSeq.Adopt(rows, get)
}

// What is in the second tier is read after room was made for it.
func TestFullPoolWhilePromoting(t *testing.T) {
	d, err := OpenUnsynced(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(nil, Config{Store: d, Policy: every100})
	if err != nil {
		t.Fatal(err)
	}
	w, ctx := &world{}, context.Background()
	run := func(q cramped, doc int) Report {
		t.Helper()
		rep, err := c.Prefill(ctx, Key{Route: int32(doc)}, q, count(100, 100), 100)
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	run(cramped{w.seq(), 9}, 0)
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	c.Clear()
	for doc := 1; doc < 5; doc++ {
		run(cramped{w.seq(), 9}, doc)
	}
	if rep := run(cramped{w.seq(), 1}, 0); !rep.Stored || rep.Computed != 0 {
		t.Errorf("%+v", rep)
	}
	if s := c.Stats(); s.Relieved == 0 || s.StoreFault != 0 {
		t.Errorf("%+v", s)
	}
	c.Clear()
	if rep := run(cramped{w.seq(), -1}, 0); rep.Computed != 100 {
		t.Errorf("a pool that is full without the cache: %+v", rep)
	}
	if err := c.Close(ctx); err != nil || c.Stats().StoreFault != 0 {
		t.Errorf("%+v, %v", c.Stats(), err)
	}
}
