package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"samebit/state"
)

// snap makes a snapshot of n rows that costs 1000 bytes and its group.
func (w *world) snap(g *fakeGroup, n int) *fakeSnap {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live++
	return &fakeSnap{w: w, group: g, n: n, refs: 1}
}

func TestInsertAndLookup(t *testing.T) {
	c, err := New(nil, Config{})
	if err != nil {
		t.Fatal(err)
	}
	w, g, k := &world{}, &fakeGroup{bytes: 10}, Key{}
	rows := count(50, 50)
	if s, n := c.Lookup(k, rows); s != nil || n != 0 {
		t.Errorf("%v, %d in an empty cache", s, n)
	}
	for _, n := range []int{10, 40, 20} {
		s := w.snap(g, n)
		if err := c.Insert(k, rows[:n], s); err != nil {
			t.Fatal(err)
		}
		if err := c.Insert(k, rows[:n], w.snap(g, n)); err != nil { // stays as it is
			t.Fatal(err)
		}
		if got, n2 := c.Lookup(k, rows[:n]); got != s || n2 != n {
			t.Errorf("%v, %d after inserting %d rows twice", got, n2, n)
		}
	}
	for n, want := range map[int]int{9: 0, 10: 10, 19: 10, 20: 20, 39: 20, 40: 40, 50: 40} {
		if _, got := c.Lookup(k, rows[:n]); got != want {
			t.Errorf("%d rows: found %d, want %d", n, got, want)
		}
	}
	if _, got := c.Lookup(k, count(50, 39)); got != 20 {
		t.Errorf("rows that differ from 39 on: found %d, want 20", got)
	}
	if s := c.Stats(); s.Checkpoints != 3 || s.Bytes != 3010 || s.Pieces != 4 || s.IndexBytes != 160 {
		t.Errorf("%+v", s)
	}
	for what, err := range map[string]error{
		"no snapshot":   c.Insert(k, rows, nil),
		"no rows":       c.Insert(k, nil, w.snap(g, 0)),
		"other length":  c.Insert(k, rows, w.snap(g, 10)),
		"other model":   c.Insert(Key{Model: state.ID{1}}, rows[:10], w.snap(g, 10)),
		"bad prefix":    func() error { _, err := c.Prefill(context.Background(), k, w.seq(), rows, 51); return err }(),
		"no request":    func() error { _, err := c.Prefill(context.Background(), k, w.seq(), nil, 0); return err }(),
		"unknown order": func() error { _, err := New(nil, Config{Order: 7}); return err }(),
		"bad bound":     func() error { _, err := OpenDisk(t.TempDir(), -1); return err }(),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "cache: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.Clear()
	if s := c.Stats(); s.Checkpoints != 0 || s.Bytes != 0 || s.Entries != 0 || len(c.roots) != 0 {
		t.Errorf("after Clear %+v", s)
	}
}

// The budget is exceeded by what running requests pin, and by nothing else.
func TestPinned(t *testing.T) {
	for _, o := range []Order{Cost, LRU} {
		c, err := New(nil, Config{MemoryBytes: 2500, Order: o, Policy: every100})
		if err != nil {
			t.Fatal(err)
		}
		w, ctx := &world{}, context.Background()
		first := w.seq()
		if _, err := c.Prefill(ctx, Key{}, first, count(100, 100), 100); err != nil {
			t.Fatal(err)
		}
		q := w.seq()
		q.before = func(_ context.Context, from, _ int) error {
			// While this request runs from 100, others fill the cache.
			for i := range 5 {
				if _, err := c.Prefill(ctx, Key{Route: 1}, w.seq(), count(100, i), 100); err != nil {
					t.Error(err)
				}
			}
			if s, n := c.Lookup(Key{}, count(100, 100)); n != 100 {
				t.Errorf("%v: the pinned start is gone", o)
			} else {
				s.Release()
			}
			if s := c.Stats(); s.Pinned != 1100 || s.Bytes > 2500+s.Pinned {
				t.Errorf("%v: %+v", o, s)
			}
			return nil
		}
		if rep, err := c.Prefill(ctx, Key{}, q, count(150, 150), 100); err != nil || rep.Start != 100 {
			t.Errorf("%v: %+v, %v", o, rep, err)
		}
		if s := c.Stats(); s.Pinned != 0 || s.Bytes > 2500 {
			t.Errorf("%v, at rest: %+v", o, s)
		}
		if err := c.Close(ctx); err != nil || w.live != 0 {
			t.Errorf("%v: %v, %d snapshots are left", o, err, w.live)
		}
	}
}

// tally is a Metrics.
type tally struct {
	mu    sync.Mutex
	n     map[string]int64
	times map[string]time.Duration
}

func (m *tally) Count(what Counter, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n[what.String()] += n
}

func (m *tally) Time(what Phase, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times[what.String()] += d
}

func TestMetricsAndStats(t *testing.T) {
	m := &tally{n: map[string]int64{}, times: map[string]time.Duration{}}
	now := time.Time{}
	clock := func() time.Time { now = now.Add(time.Millisecond); return now }
	c, err := New(nil, Config{Policy: Policy{Stride: 100, Tail: -1, Junction: -1}, Metrics: m, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	w, ctx := &world{}, context.Background()
	for _, n := range []int{100, 300, 300, 400} {
		if _, err := c.Prefill(ctx, Key{}, w.seq(), count(n+5, n+5), n); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int64{"requests": 3, "cold": 1, "hit": 0, "hits": 1, "partial": 1, "bypass": 1, "rows_reused": 600, "rows_computed": 305 + 5 + 105, "checkpoints_made": 4}
	for k, v := range want {
		if m.n[k] != v {
			t.Errorf("%s: %d, want %d", k, m.n[k], v)
		}
	}
	if m.times["prefix"] != 4*time.Millisecond || m.times["save"] != 4*time.Millisecond || m.times["suffix"] != 3*time.Millisecond || m.times["lookup"] == 0 || m.times["restore"] == 0 {
		t.Errorf("%v", m.times)
	}
	b, err := json.Marshal(c.Stats())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rows", "hits", "partial", "cold", "mispredict", "tokens_reused", "tokens_computed", "ckpts_made", "evicted"} {
		if !bytes.Contains(b, []byte(`"`+name+`":`)) {
			t.Errorf("%s is missing in %s", name, b)
		}
	}
}

func TestPrecapture(t *testing.T) {
	c, err := New(nil, Config{})
	if err != nil {
		t.Fatal(err)
	}
	w, ctx := &world{}, context.Background()
	calls := 0
	err = c.Precapture(ctx, Key{}, w.seq(), [][]state.Row{count(30, 30), nil, count(500, 500)}, func() error { calls++; return nil })
	if err != nil || calls != 3 {
		t.Fatalf("%v after %d calls", err, calls)
	}
	if rep, err := c.Prefill(ctx, Key{}, w.seq(), count(520, 520), 500); err != nil || rep.Outcome != Hit || rep.Start != 500 {
		t.Errorf("%+v, %v", rep, err)
	}
	busy := errors.New("busy")
	if err := c.Precapture(ctx, Key{}, w.seq(), [][]state.Row{count(30, 30)}, func() error { return busy }); err != busy {
		t.Errorf("%v", err)
	}
	q := w.seq()
	q.before = func(context.Context, int, int) error { return busy }
	if err := c.Precapture(ctx, Key{Route: 1}, q, [][]state.Row{count(30, 30)}, nil); !errors.Is(err, busy) {
		t.Errorf("%v", err)
	}
}

// sick is a store whose every operation can fail.
type sick struct {
	Store
	fail error
}

func (s *sick) Put(ctx context.Context, e Entry, snap state.Snapshot) error {
	if s.fail != nil {
		return s.fail
	}
	return s.Store.Put(ctx, e, snap)
}

func (s *sick) Get(ctx context.Context, e Entry, into Appender) error {
	if s.fail != nil {
		return s.fail
	}
	return s.Store.Get(ctx, e, into)
}

func (s *sick) List(ctx context.Context, k Key, skip func(EntryID) bool, f func(Entry) bool) error {
	if s.fail != nil {
		return s.fail
	}
	return s.Store.List(ctx, k, skip, f)
}

// A store that fails costs time and nothing else.
func TestSickStore(t *testing.T) {
	d, err := OpenUnsynced(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &sick{Store: d}
	var log bytes.Buffer
	c, err := New(nil, Config{Store: s, Policy: every100, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	w, ctx := &world{}, context.Background()
	run := func(want int) {
		t.Helper()
		q := w.seq()
		if rep, err := c.Prefill(ctx, Key{}, q, count(250, 250), 250); err != nil || rep.Start != want || q.n != 250 {
			t.Errorf("%+v, %v, want a start at %d", rep, err, want)
		}
	}
	run(0)
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	c.Clear()
	s.fail = errors.New("unplugged")
	run(0) // entries are known and cannot be read
	run(250)
	faults := c.Stats().StoreFault
	if faults == 0 || !strings.Contains(log.String(), "unplugged") {
		t.Errorf("%d faults, log %q", faults, log.String())
	}
	c.Clear()
	s.fail = nil
	run(250) // it is back
	if s := c.Stats(); s.Promotions != 1 {
		t.Errorf("%+v", s)
	}
	// An entry that others removed is a miss.
	c.Clear()
	e := NewEntry(Key{}, count(250, 250))
	if err := d.Delete(ctx, e.ID); err != nil {
		t.Fatal(err)
	}
	run(200)
	s.fail = errors.New("unplugged")
	if err := c.Close(ctx); err != nil {
		t.Errorf("closing over a store that fails: %v", err)
	}
	if w.live != 0 {
		t.Errorf("%d snapshots are left", w.live)
	}
}

// Another entry's file under an entry's name, as a collision of digests would put
// it there, is not used.
func TestSC19CollidingNames(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenUnsynced(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := put(t, d, 20); err != nil {
		t.Fatal(err)
	}
	a, _ := fakeEntry(20)
	b := NewEntry(a.Key, count(20, 5))
	data, err := os.ReadFile(filepath.Join(dir, fileName(a.Key, a.ID)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileName(b.Key, b.ID)), data, 0o600); err != nil {
		t.Fatal(err)
	}
	var q collect
	if err := d.Get(context.Background(), b, &q); !errors.Is(err, ErrNotFound) || q.got != nil {
		t.Errorf("%v, %v", err, q.got)
	}
	n := 0
	if err := d.List(context.Background(), a.Key, func(EntryID) bool { return false }, func(e Entry) bool { n++; return true }); err != nil || n != 1 {
		t.Errorf("%d entries are listed, %v", n, err)
	}
}
