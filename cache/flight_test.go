package cache

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"samebit/state"
)

// count makes n rows, the last of them beginning at other.
func count(n, other int) []state.Row {
	rows := make([]state.Row, n)
	for i := range rows {
		rows[i].Token = int32(i)
		if i >= other {
			rows[i].Token += 1000
		}
	}
	return rows
}

// every100 makes checkpoints at 100, 200, ... and the end.
var every100 = Policy{Stride: 100, Tail: -1, MinPrefix: -1, Junction: -1}

// slow takes a second for each span.
func slow(ctx context.Context, _, _ int) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type result struct {
	rep Report
	err error
	at  time.Duration
}

// bubble runs test with fake time and looks for snapshots that nobody released.
func bubble(t *testing.T, cfg Config, test func(t *testing.T, c *Cache, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := New(nil, cfg)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{}
		test(t, c, w)
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if w.live != 0 {
			t.Errorf("%d snapshots are held after Close", w.live)
		}
		if len(c.flights) != 0 {
			t.Errorf("%d flights are left", len(c.flights))
		}
	})
}

func start(ctx context.Context, c *Cache, q *fakeSeq, rows []state.Row, stateLen int) chan result {
	out := make(chan result, 1)
	began := time.Now()
	go func() {
		rep, err := c.Prefill(ctx, Key{}, q, rows, stateLen)
		out <- result{rep, err, time.Since(began)}
	}()
	synctest.Wait()
	return out
}

func TestFollowersStartFromTheLeader(t *testing.T) {
	for _, budget := range []int64{0, 1} { // also when nothing stays in the cache
		bubble(t, Config{MemoryBytes: budget, Policy: every100}, func(t *testing.T, c *Cache, w *world) {
			ctx := context.Background()
			lead := w.seq()
			lead.before = slow
			a := start(ctx, c, lead, count(350, 350), 349)
			var rest []chan result
			var seqs []*fakeSeq
			for range 5 {
				q := w.seq()
				seqs = append(seqs, q)
				rest = append(rest, start(ctx, c, q, count(350, 350), 349))
			}
			if r := <-a; r.err != nil || !slices.Equal(r.rep.Made, []int{100, 200, 300, 349}) {
				t.Errorf("leader: %+v", r)
			}
			for i, ch := range rest {
				r := <-ch
				if r.err != nil || r.rep.Start != 349 || !slices.Equal(seqs[i].spans, [][2]int{{349, 350}}) {
					t.Errorf("budget %d, follower %d: %+v, ran %v", budget, i, r, seqs[i].spans)
				}
			}
			if got := c.Stats().Waits; got == 0 {
				t.Error("nobody waited")
			}
		})
	}
}

// The leader runs on over rows that a follower does not share.
func TestFollowerTakesOnlyWhatItShares(t *testing.T) {
	bubble(t, Config{MemoryBytes: 1, Policy: every100}, func(t *testing.T, c *Cache, w *world) {
		lead := w.seq()
		quick := 0
		lead.before = func(ctx context.Context, from, to int) error {
			if quick++; quick == 1 {
				return slow(ctx, from, to)
			}
			return nil
		}
		a := start(context.Background(), c, lead, count(400, 400), 400)
		q := w.seq()
		b := start(context.Background(), c, q, count(400, 150), 400)
		if r := <-a; r.err != nil {
			t.Fatal(r.err)
		}
		if r := <-b; r.err != nil || r.rep.Waits != 1 || r.rep.Start > 100 {
			t.Errorf("%+v, only 150 rows are shared", r)
		}
	})
}

func TestFollowerTakesOver(t *testing.T) {
	broken := errors.New("broken")
	for name, fail := range map[string]func(ctx context.Context, cancel func(), from, to int) error{
		"error": func(ctx context.Context, _ func(), from, to int) error {
			if from == 200 {
				time.Sleep(time.Second)
				return broken
			}
			return slow(ctx, from, to)
		},
		"cancelled": func(ctx context.Context, cancel func(), from, to int) error {
			if from == 200 {
				cancel()
			}
			return slow(ctx, from, to)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Config{Policy: every100}, func(t *testing.T, c *Cache, w *world) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				lead := w.seq()
				lead.before = func(ctx context.Context, from, to int) error { return fail(ctx, cancel, from, to) }
				a := start(ctx, c, lead, count(400, 400), 400)
				second, third := w.seq(), w.seq()
				second.before, third.before = slow, slow
				b := start(context.Background(), c, second, count(400, 400), 400)
				d := start(context.Background(), c, third, count(400, 400), 400)
				if r := <-a; !errors.Is(r.err, broken) && !errors.Is(r.err, context.Canceled) {
					t.Errorf("leader: %v", r.err)
				}
				x, y := <-b, <-d
				if x.err != nil || y.err != nil {
					t.Fatal(x.err, y.err)
				}
				// One of them computes the rest from 200, the other nothing.
				if got := []int{x.rep.Computed, y.rep.Computed}; !slices.Equal(got, []int{200, 0}) && !slices.Equal(got, []int{0, 200}) {
					t.Errorf("followers computed %v rows, want 200 and 0", got)
				}
				if s := c.Stats(); s.Failed != 1 || s.Rows != 2 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestWaitingFollowerIsCancelled(t *testing.T) {
	bubble(t, Config{Policy: every100}, func(t *testing.T, c *Cache, w *world) {
		lead := w.seq()
		lead.before = slow
		a := start(context.Background(), c, lead, count(200, 200), 200)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		r := <-start(ctx, c, w.seq(), count(200, 200), 200)
		if !errors.Is(r.err, context.DeadlineExceeded) || r.at != time.Second/2 {
			t.Errorf("%v after %v", r.err, r.at)
		}
		if r := <-a; r.err != nil {
			t.Error(r.err)
		}
	})
}

// Requests that want less than the leader's next checkpoint do not wait for it.
func TestShortRequestDoesNotWait(t *testing.T) {
	bubble(t, Config{Policy: every100}, func(t *testing.T, c *Cache, w *world) {
		lead := w.seq()
		lead.before = slow
		a := start(context.Background(), c, lead, count(200, 200), 200)
		if r := <-start(context.Background(), c, w.seq(), count(90, 90), 90); r.at != 0 || r.rep.Waits != 0 {
			t.Errorf("%+v", r)
		}
		<-a
	})
}

func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(nil, Config{Policy: every100})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{}
		q := w.seq()
		q.before = slow
		a := start(context.Background(), c, q, count(300, 300), 300)
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close while a request runs: %v", err)
		}
		// A request that comes now runs by itself.
		late := w.seq()
		if r := <-start(context.Background(), c, late, count(300, 300), 300); r.err != nil || r.rep.Outcome != Bypass || late.n != 300 {
			t.Errorf("after Close: %+v, %d rows", r, late.n)
		}
		// The one inside ends well and keeps nothing.
		if r := <-a; r.err != nil || q.n != 300 {
			t.Errorf("%+v", r)
		}
		if w.live != 0 {
			t.Errorf("%d snapshots are held", w.live)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseClosesTheStore(t *testing.T) {
	for _, budget := range []int64{0, -1} {
		var s lazy
		c, err := New(nil, Config{MemoryBytes: budget, Store: &s})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.Close(context.Background()); err != nil || s.closed != 1 {
				t.Errorf("budget %d: %v, the store was closed %d times", budget, err, s.closed)
			}
		}
	}
}

// Checkpoints make room when the pool is full, and the span goes on where it
// stopped.
func TestFullPool(t *testing.T) {
	bubble(t, Config{Policy: every100}, func(t *testing.T, c *Cache, w *world) {
		ctx := context.Background()
		for doc := range 6 {
			if _, err := c.Prefill(ctx, Key{Route: int32(doc)}, w.seq(), count(100, 100), 100); err != nil {
				t.Fatal(err)
			}
		}
		q := w.seq()
		q.before = func(_ context.Context, from, to int) error {
			if c.Stats().Checkpoints > 2 {
				if from == 0 {
					q.n = 30 // some chunks are done
				}
				return state.ErrNoRoom
			}
			return nil
		}
		rep, err := c.Prefill(ctx, Key{Route: 9}, q, count(100, 100), 100)
		if err != nil || q.n != 100 || q.spans[0] != [2]int{30, 100} {
			t.Errorf("%+v, %v: ran %v", rep, err, q.spans)
		}
		if s := c.Stats(); s.Relieved == 0 {
			t.Errorf("%+v", s)
		}
		q.before = func(context.Context, int, int) error { return state.ErrNoRoom }
		if _, err := c.Prefill(ctx, Key{Route: 10}, q, count(100, 100), 100); !errors.Is(err, state.ErrNoRoom) {
			t.Errorf("a pool that is full without the cache: %v", err)
		}
	})
}

// The leader's caller may write its next prompt where the last one was while a
// follower has yet to look.
func TestFollowerOfRowsThatChange(t *testing.T) {
	mine, other := count(200, 200), count(200, 150)
	mine[3], other[3] = state.Row{Token: -1, Vec: []float32{1, 2}}, state.Row{Token: -1, Vec: []float32{1, 2}}
	bubble(t, Config{Policy: every100}, func(t *testing.T, c *Cache, w *world) {
		for name, tt := range map[string]struct {
			rows []state.Row
			vec  float32 // written into the leader's continuous row
			want int
		}{"the rows that were run": {slices.Clone(mine), 9, 200}, "the next prompt's": {other, 1, 0}} {
			q := w.seq()
			q.n = 200
			s, err := q.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			rows := slices.Clone(mine)
			rows[3].Vec = slices.Clone(mine[3].Vec)
			c.mu.Lock()
			c.lead(Key{}, rows, 100)
			f := c.join(Key{}, tt.rows, 200, 0)
			c.advance(Key{}, f, s, 0)
			c.mu.Unlock()
			s.Release()
			rows[3].Vec[0] = tt.vec
			copy(rows[4:], other[4:])
			got, err := c.wait(context.Background(), f, f.step, tt.rows, 200)
			n := 0
			if got != nil {
				n = got.Len()
				got.Release()
			}
			if err != nil || n != tt.want {
				t.Errorf("%s: starts at %d, %v, want %d", name, n, err, tt.want)
			}
		}
	})
}

// silent is a store that answers no question.
type silent struct{ lazy }

func (*silent) Stamp(ctx context.Context) uint64 {
	<-ctx.Done()
	return 0
}

// Requests that wait for a store, or for others that do, end with their contexts.
func TestSilentStore(t *testing.T) {
	bubble(t, Config{Policy: every100, Store: &silent{}}, func(t *testing.T, c *Cache, w *world) {
		var l []chan result
		limits := []time.Duration{3 * time.Second, time.Second, 2 * time.Second}
		for _, limit := range limits {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			l = append(l, start(ctx, c, w.seq(), count(100, 100), 100))
		}
		for i, ch := range l {
			if r := <-ch; !errors.Is(r.err, context.DeadlineExceeded) || r.at != limits[i] {
				t.Errorf("%v after %v, want the end of the context after %v", r.err, r.at, limits[i])
			}
		}
	})
}

// What was seen of keys is forgotten when the store has changed since.
func TestListingsAreForgotten(t *testing.T) {
	bubble(t, Config{Policy: every100, Store: &counted{}}, func(t *testing.T, c *Cache, w *world) {
		for i := range int32(100) {
			if _, err := c.Prefill(context.Background(), Key{Route: i}, w.seq(), count(100, 100), 100); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(c.tier.seen); n != 10 {
			t.Errorf("listings of %d keys are remembered, want the 10 since the last change", n)
		}
	})
}

// counted is a store that others change at every tenth question.
type counted struct {
	lazy
	asked uint64
}

func (s *counted) Stamp(context.Context) uint64 {
	s.asked++
	return (s.asked - 1) / 10
}

// elsewhere is a sequence of another pool than any snapshot's.
type elsewhere struct{ *fakeSeq }

func (elsewhere) Resume([]state.Row, state.Snapshot) error { return state.ErrForeign }

// Snapshots of another pool cannot be used, and the request runs without them.
func TestForeignSnapshots(t *testing.T) {
	for name, tt := range map[string]struct {
		budget int64
		store  Store
		follow bool // while the snapshot is being made
	}{"in memory": {0, nil, false}, "being written": {1, &lazy{}, false}, "from a leader": {1, nil, true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Config{MemoryBytes: tt.budget, Policy: every100, Store: tt.store}, func(t *testing.T, c *Cache, w *world) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				q := w.seq()
				q.before = slow
				first := start(ctx, c, q, count(100, 100), 100)
				if !tt.follow {
					first <- <-first
					synctest.Wait()
				}
				other := elsewhere{w.seq()}
				rep, err := c.Prefill(ctx, Key{}, other, count(100, 100), 100)
				if err != nil || rep.Outcome != Cold || other.n != 100 {
					t.Errorf("%+v, %v, %d rows", rep, err, other.n)
				}
				if r := <-first; r.err != nil {
					t.Error(r.err)
				}
			})
		})
	}
}
