package cache_test

import (
	"context"
	"fmt"
	"testing"

	"samebit/cache"
	"samebit/cache/cachetest"
	"samebit/state"
)

func TestDiskIsAStore(t *testing.T) {
	cachetest.Run(t, func(t *testing.T) func() cache.Store {
		dir := t.TempDir()
		return func() cache.Store {
			d, err := cache.OpenDisk(dir, 0)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	})
}

func TestPlaceIsAStore(t *testing.T) {
	cachetest.Run(t, func(*testing.T) func() cache.Store {
		return new(cachetest.Place).Open
	})
}

// A restart finds what was there, also when the process that made it had its
// checkpoints in memory only, and another process finds it without a restart.
func TestRestartAndNeighbours(t *testing.T) {
	m := openModel(t, hybrid)
	dir := t.TempDir()
	cfg := cache.Config{Dir: dir, Policy: small(64)}
	rows := tokens(1, 200)
	first := newRig(t, m, cfg)
	neighbour := newRig(t, m, cfg)
	if rep := neighbour.run(rows, 199); rep.Outcome != cache.Cold {
		t.Errorf("%+v in an empty folder", rep)
	}
	neighbour.c.Clear()
	if rep := first.run(rows, 199); rep.Outcome != cache.Cold {
		t.Errorf("%+v, nothing was written yet", rep)
	}
	if err := first.c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if rep := neighbour.run(rows, 199); rep.Outcome != cache.Hit || !rep.Stored {
		t.Errorf("the neighbour: %+v", rep)
	}
	again := newRig(t, m, cfg)
	if rep := again.run(rows, 199); rep.Outcome != cache.Hit || !rep.Stored {
		t.Errorf("after a restart: %+v", rep)
	}
	if rep := again.run(rows, 199); rep.Outcome != cache.Hit || rep.Stored {
		t.Errorf("again: %+v", rep)
	}
	// Another model's rows are not in there.
	other := newRig(t, openModel(t, "qwen3-tied-fp32"), cfg)
	if rep := other.run(rows, 199); rep.Outcome != cache.Cold {
		t.Errorf("another model: %+v", rep)
	}
}

// What a bounded store drops leaves the index too.
func TestIndexForgetsWhatTheStoreDropped(t *testing.T) {
	m := openModel(t, hybrid)
	d, err := cache.OpenUnsynced(t.TempDir(), 400<<10)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, m, cache.Config{MemoryBytes: 200 << 10, Store: d, Policy: small(-1)})
	for i := range 40 {
		r.run(tokens(100+i, 60), 60)
		if err := r.c.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	s := r.c.Stats()
	if s.StoreBytes > 400<<10 || s.Demotions < 40 || s.Entries > s.Demotions/2 {
		t.Errorf("%d entries are known of %d written, with %d bytes stored", s.Entries, s.Demotions, s.StoreBytes)
	}
}

// A snapshot of another pool cannot be used here; the request runs without it.
func TestSnapshotOfAnotherPool(t *testing.T) {
	for name, n := range map[string]int{hybrid: 50, "qwen3-tied-fp32": 30} { // rows that are wanted of its 50
		t.Run(name, func(t *testing.T) {
			m := openModel(t, name)
			pool, err := state.NewPool(m.dev, 0)
			if err != nil {
				t.Fatal(err)
			}
			elsewhere := &model{dev: m.dev, dec: m.dec, pool: pool}
			q := elsewhere.seq(t, 64)
			rows := tokens(1, 50)
			if err := q.Append(context.Background(), rows); err != nil {
				t.Fatal(err)
			}
			s, err := q.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			q.close()
			r := newRig(t, m, cache.Config{Policy: small(-1)})
			if err := r.c.Insert(cache.Key{Model: m.dec.ID}, rows, s); err != nil {
				t.Fatal(err)
			}
			s.Release()
			if rep := r.run(rows[:n], n); rep.Outcome != cache.Cold {
				t.Errorf("%+v", rep)
			}
			if rep := r.run(rows[:n], n); rep.Outcome != cache.Hit {
				t.Errorf("%+v, the foreign one should have made room", rep)
			}
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func BenchmarkDisk(b *testing.B) {
	m := openModel(b, hybrid)
	m.dec.Context = 0
	for _, n := range []int{1024, 8192} {
		q := m.seq(b, 512)
		defer q.close()
		rows := tokens(1, n)
		if err := q.Runner.Append(context.Background(), rows); err != nil {
			b.Fatal(err)
		}
		snap, err := q.Snapshot()
		if err != nil {
			b.Fatal(err)
		}
		defer snap.Release()
		e := cache.NewEntry(cache.Key{Model: m.dec.ID}, rows)
		for _, op := range []string{"put", "get"} {
			b.Run(fmt.Sprintf("%s/rows=%d", op, n), func(b *testing.B) {
				d, err := cache.OpenUnsynced(b.TempDir(), 0)
				if err != nil {
					b.Fatal(err)
				}
				defer d.Close()
				into := m.seq(b, 512)
				defer into.close()
				put := func() {
					if err := d.Put(context.Background(), e, snap); err != nil {
						b.Fatal(err)
					}
				}
				put()
				b.SetBytes(d.Bytes())
				for b.Loop() {
					if op == "get" {
						if err := d.Get(context.Background(), e, into); err != nil {
							b.Fatal(err)
						}
						continue
					}
					b.StopTimer()
					if err := d.Delete(context.Background(), e.ID); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					put()
				}
			})
		}
	}
}
