package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"samebit/state"
)

// tier brings checkpoints to a store and back. One goroutine writes, so that
// requests do not wait for it. Fields are guarded by Cache.mu unless said
// otherwise.
type tier struct {
	c     *Cache
	store Store

	queue   []*entry
	waiting ledger        // memory of entries that were evicted and wait to be written
	step    chan struct{} // closed and replaced when an entry has left the queue
	wake    chan struct{}
	stop    context.CancelFunc
	stopped chan struct{}
	writing *entry
	closed  bool

	turn  chan struct{} // filled by whoever lists, one at a time; guards seen and stamp
	seen  map[Key]listing
	stamp uint64             // of the newest in seen
	known map[EntryID]*entry // what is believed to be in the store
	puts  int
}

// listing remembers the last List of a key.
type listing struct {
	stamp uint64
	again time.Time // not before: listing may take a tenth of the time
}

// sweepEvery is the number of Puts after which entries that the store has dropped
// leave the tree.
const sweepEvery = 256

func newTier(c *Cache, s Store) *tier {
	ctx, stop := context.WithCancel(context.Background())
	t := &tier{
		c: c, store: s, stop: stop,
		waiting: ledger{pieces: map[any]*piece{}},
		step:    make(chan struct{}), wake: make(chan struct{}, 1), stopped: make(chan struct{}),
		turn: make(chan struct{}, 1), seen: map[Key]listing{}, known: map[EntryID]*entry{},
	}
	go t.write(ctx)
	return t
}

// fault counts and logs what went wrong with the store. Requests go on without it.
func (t *tier) fault(what string, err error) {
	t.c.mu.Lock()
	t.c.stats.StoreFault++
	t.c.mu.Unlock()
	t.c.count(StoreFaults, 1)
	t.c.cfg.Log.Warn("cache: "+what, "err", err)
}

// take waits for the turn to list; false if ctx ends first.
func (t *tier) take(ctx context.Context) bool {
	select {
	case t.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// refresh learns of entries that others, or an earlier process, have written.
func (t *tier) refresh(ctx context.Context, k Key) {
	if !t.take(ctx) {
		return
	}
	defer func() { <-t.turn }()
	c := t.c
	stamp, began := t.store.Stamp(ctx), c.cfg.Clock()
	last, ok := t.seen[k]
	if ok && (last.stamp == stamp || began.Before(last.again)) {
		return
	}
	if stamp != t.stamp { // keys that nobody asks about any more are forgotten
		t.stamp = stamp
		maps.DeleteFunc(t.seen, func(_ Key, l listing) bool { return l.stamp != stamp && !began.Before(l.again) })
	}
	err := t.list(ctx, k)
	if ctx.Err() != nil {
		return
	}
	now := c.cfg.Clock()
	last = listing{stamp, now.Add(10 * now.Sub(began))}
	if err != nil {
		t.fault("listing the second tier", err)
		last.stamp = ^stamp // not seen at all
	}
	t.seen[k] = last
}

// list makes the tree agree with what the store has of a key.
func (t *tier) list(ctx context.Context, k Key) error {
	c := t.c
	c.mu.Lock()
	gone := map[EntryID]*entry{} // unless the store speaks of it
	for id, e := range t.known {
		if e.key == k {
			gone[id] = e
		}
	}
	c.mu.Unlock()
	err := t.store.List(ctx, k, func(id EntryID) bool {
		delete(gone, id)
		c.mu.Lock()
		defer c.mu.Unlock()
		return t.known[id] != nil
	}, func(e Entry) bool {
		if len(e.Rows) == 0 || e.Key != k || NewEntry(k, e.Rows).ID != e.ID {
			return true
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		root := c.roots[k]
		if root == nil {
			root = &node{}
			c.roots[k] = root
		}
		n := root.place(e.Rows)
		if n.entry == nil {
			n.entry = &entry{at: n, key: k}
			c.stats.Entries++
		}
		n.entry.stored, t.known[e.ID] = true, n.entry
		return true
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, e := range gone {
		t.forget(id, e)
	}
	return nil
}

// forget notes that the store does not have e.
func (t *tier) forget(id EntryID, e *entry) {
	delete(t.known, id)
	e.stored = false
	t.c.settle(e)
}

// sweep is list for all keys.
func (t *tier) sweep(ctx context.Context) {
	t.c.mu.Lock()
	keys := map[Key]bool{}
	for _, e := range t.known {
		keys[e.key] = true
	}
	t.c.mu.Unlock()
	if !t.take(ctx) {
		return
	}
	defer func() { <-t.turn }()
	for k := range keys {
		if err := t.list(ctx, k); err != nil {
			return
		}
	}
}

// promote makes a into the stored checkpoint e of rows and puts it into memory.
// The caller has pinned e.
func (t *tier) promote(ctx context.Context, e *entry, rows []state.Row, a Appender) error {
	c := t.c
	id := NewEntry(e.key, rows)
	err := t.store.Get(ctx, id, a)
	if errors.Is(err, ErrNotFound) {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.forget(id.ID, e)
		return err
	}
	var s state.Snapshot
	if err == nil {
		s, err = a.Snapshot()
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, state.ErrNoRoom) { // the pool's, not the store's
			t.fault(fmt.Sprintf("reading %d rows from the second tier", len(rows)), err)
		}
		return err
	}
	defer s.Release()
	c.count(Promotions, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Promotions++
	c.insert(e.key, rows, s)
	c.evict()
	return nil
}

// demote queues an evicted entry. When too much waits already, it is dropped.
func (t *tier) demote(e *entry) {
	t.waiting.add(e.snap)
	if t.closed || len(t.queue) > 0 && t.waiting.bytes > t.c.cfg.MemoryBytes/4 {
		t.waiting.remove(e.snap)
		t.c.stats.Dropped++
		return
	}
	e.evicted = true
	t.push(e)
}

func (t *tier) push(e *entry) {
	e.queued = true
	t.queue = append(t.queue, e)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// write is the goroutine that empties the queue.
func (t *tier) write(ctx context.Context) {
	defer close(t.stopped)
	c := t.c
	for {
		c.mu.Lock()
		if len(t.queue) == 0 || ctx.Err() != nil {
			t.abandon()
			c.mu.Unlock()
			select {
			case <-t.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		e := t.queue[0]
		t.queue = t.queue[1:]
		t.writing = e
		snap, rows := e.snap, e.at.rows()
		c.mu.Unlock()

		id := NewEntry(e.key, rows)
		err := t.store.Put(ctx, id, snap)
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrTooLarge) {
			t.fault(fmt.Sprintf("writing %d rows to the second tier", len(rows)), err)
		}

		c.mu.Lock()
		t.writing = nil
		if err == nil {
			t.known[id.ID], e.stored = e, true
			c.stats.Demotions++
		}
		t.leave(e)
		t.stepped()
		c.mu.Unlock()
		if err == nil {
			c.count(Demotions, 1)
			if t.puts++; t.puts%sweepEvery == 0 {
				t.sweep(ctx)
			}
		}
	}
}

// leave takes e out of the queue's account.
func (t *tier) leave(e *entry) {
	e.queued = false
	if e.evicted {
		e.evicted = false
		t.waiting.remove(e.snap)
	}
	t.c.settle(e)
}

// abandon gives up what is queued.
func (t *tier) abandon() {
	for _, e := range t.queue {
		t.leave(e)
	}
	t.queue = nil
}

// abandonEvicted gives up what is in memory only because it is queued; false if
// nothing was.
func (t *tier) abandonEvicted() bool {
	n := len(t.queue)
	t.queue = slices.DeleteFunc(t.queue, func(e *entry) bool {
		if !e.resident {
			t.leave(e)
		}
		return !e.queued
	})
	if n == len(t.queue) {
		return false
	}
	t.c.stats.Dropped += int64(n - len(t.queue))
	t.stepped()
	return true
}

// written waits until the evicted entry that is being written is in memory no more;
// false if there is none or ctx ends first. It is called without the lock.
func (t *tier) written(ctx context.Context) bool {
	t.c.mu.Lock()
	step, busy := t.step, t.writing != nil && !t.writing.resident
	t.c.mu.Unlock()
	if !busy {
		return false
	}
	select {
	case <-step:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *tier) stepped() {
	close(t.step)
	t.step = make(chan struct{})
}

// flush queues everything in memory and waits until the queue is empty.
func (t *tier) flush(ctx context.Context) error {
	c := t.c
	c.mu.Lock()
	for _, e := range c.order.ranked() { // the most valuable last, as the newest of the store
		if !e.stored && !e.queued {
			t.push(e)
		}
	}
	c.mu.Unlock()
	for {
		c.mu.Lock()
		empty, step := len(t.queue) == 0 && t.writing == nil, t.step
		c.mu.Unlock()
		if empty {
			return nil
		}
		select {
		case <-step:
		case <-t.stopped:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("cache: writing to the second tier: %w", ctx.Err())
		}
	}
}

func (t *tier) close(ctx context.Context) error {
	t.c.mu.Lock()
	t.closed = true
	t.c.mu.Unlock()
	err := t.flush(ctx)
	t.stop()
	<-t.stopped
	return errors.Join(err, t.store.Close())
}

// Flush writes what is in memory to the second tier, if there is one, and waits
// for it. What is written stays in memory too.
func (c *Cache) Flush(ctx context.Context) error {
	if c.tier == nil || !c.enter() {
		return nil
	}
	defer c.leave()
	return c.tier.flush(ctx)
}
