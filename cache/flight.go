package cache

import (
	"context"
	"slices"

	"samebit/state"
)

// flight is a prefix that a request, its leader, is computing. Requests that share
// it as far as the leader's next checkpoint wait for that instead of computing it
// themselves. All fields are guarded by Cache.mu.
type flight struct {
	rows []state.Row   // the leader's, and of our own when it has left
	next int           // the checkpoint being computed
	step chan struct{} // closed when next is reached or given up, then replaced
	over bool          // the leader has left

	last    state.Snapshot // the newest checkpoint, for followers who come when the budget has dropped it
	waiters int
}

// join finds a flight that will reach, within the first limit rows of rows, a
// checkpoint deeper than have; nil when there is none.
func (c *Cache) join(k Key, rows []state.Row, limit, have int) *flight {
	var best *flight
	for _, f := range c.flights[k] {
		if f.next > have && f.next <= limit && commonRows(f.rows[:f.next], rows) == f.next && (best == nil || f.next > best.next) {
			best = f
		}
	}
	if best != nil {
		best.waiters++
	}
	return best
}

// wait blocks until f moves on and returns its newest checkpoint, retained, if
// that lies within the first limit rows of rows: the leader may be further by now,
// on rows that are not shared. It is called without the lock.
func (c *Cache) wait(ctx context.Context, f *flight, step chan struct{}, rows []state.Row, limit int) (state.Snapshot, error) {
	var err error
	select {
	case <-step:
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var s state.Snapshot
	if f.last != nil && err == nil {
		if n := f.last.Len(); n <= limit && commonRows(f.rows[:n], rows) == n {
			s = f.last.Retain()
		}
	}
	f.waiters--
	f.tidy()
	return s, err
}

func (c *Cache) lead(k Key, rows []state.Row, next int) *flight {
	f := &flight{rows: rows, next: next, step: make(chan struct{})}
	c.flights[k] = append(c.flights[k], f)
	return f
}

// advance says that f's checkpoint is s and the next one lies at next, 0 if there
// is none.
func (c *Cache) advance(k Key, f *flight, s state.Snapshot, next int) {
	if s != nil {
		if f.last != nil {
			f.last.Release()
		}
		f.last = s.Retain()
	}
	close(f.step)
	f.step, f.next = make(chan struct{}), next
	if next == 0 {
		c.end(k, f)
	}
}

// end takes f off the list; followers look for another way.
func (c *Cache) end(k Key, f *flight) {
	if f.over {
		return
	}
	f.over = true
	l := c.flights[k]
	if l = slices.Delete(l, slices.Index(l, f), slices.Index(l, f)+1); len(l) == 0 {
		delete(c.flights, k)
	} else {
		c.flights[k] = l
	}
	close(f.step)
	if f.waiters > 0 && f.last != nil { // the leader's caller may change its rows from now on
		f.rows = makeRun(f.rows[:f.last.Len()]).appendTo(nil)
	}
	f.tidy()
}

// tidy releases what an ended flight offers when nobody can take it any more.
func (f *flight) tidy() {
	if f.over && f.waiters == 0 && f.last != nil {
		f.last.Release()
		f.last = nil
	}
}
