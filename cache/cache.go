// Package cache keeps checkpoints of sequences and starts new sequences from the
// deepest one whose rows they share.
//
// A result that was reached through the cache has the bits of the result computed
// from the first row on. That holds because states do not depend on how rows were
// split into passes, because a checkpoint is stored bit for bit, and because it is
// used only after every row that it covers was compared; hashes are addresses,
// never proof.
//
// Checkpoints lie in a radix tree over rows, one per [Key]. Their memory is shared
// with the sequences that made them, page by page, and counted once. What exceeds
// the budget goes to a [Store], if there is one, or away.
package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"samebit/state"
)

// Config bounds a Cache. The zero value keeps at most 1 GiB in memory and nothing
// elsewhere.
type Config struct {
	MemoryBytes int64 // of distinct pages and banks; 0 means 1 GiB, negative keeps nothing
	Order       Order // of eviction; the zero value is Cost
	Policy      Policy

	// Dir, if set, is the folder of a second tier of at most DiskBytes (0: 8 GiB).
	// Processes may share it, and it survives them.
	Dir       string
	DiskBytes int64
	// Store, if set, is the second tier instead of a folder. The cache closes it.
	Store Store

	Clock   func() time.Time // for timings; nil means time.Now
	Metrics Metrics          // may be nil
	Log     *slog.Logger     // of faults of the second tier; nil means none
}

// Cache holds checkpoints. It is safe for concurrent use.
type Cache struct {
	cfg  Config
	pol  Policy
	pool *state.Pool

	mu      sync.Mutex
	roots   map[Key]*node
	ledger  ledger
	order   order
	flights map[Key][]*flight
	stats   Stats
	active  int           // requests inside
	closing bool          // no new ones
	idle    chan struct{} // closed when closing and the last request has left

	tier *tier // nil without a store
}

// New makes an empty cache, or one that knows what its second tier holds. The pool
// is the one that appenders take their states from; it may be nil, and then its
// figures are missing from Stats.
func New(pool *state.Pool, cfg Config) (*Cache, error) {
	if cfg.MemoryBytes == 0 {
		cfg.MemoryBytes = 1 << 30
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if cfg.Order > LRU {
		return nil, fmt.Errorf("cache: order of eviction %d: want Cost or LRU", cfg.Order)
	}
	c := &Cache{
		cfg: cfg, pol: cfg.Policy.resolved(), pool: pool,
		roots: map[Key]*node{}, flights: map[Key][]*flight{}, idle: make(chan struct{}),
		ledger: ledger{pieces: map[any]*piece{}},
	}
	c.order = newLRU()
	if cfg.Order == Cost {
		c.order = &costs{ledger: &c.ledger}
	}
	if cfg.Store == nil && cfg.Dir != "" && cfg.MemoryBytes > 0 {
		d, err := OpenDisk(cfg.Dir, cfg.DiskBytes)
		if err != nil {
			return nil, err
		}
		cfg.Store = d
	}
	if cfg.Store != nil && cfg.MemoryBytes > 0 {
		c.tier = newTier(c, cfg.Store)
	}
	return c, nil
}

// Policy is where checkpoints are made, defaults filled in; 0 means none.
func (c *Cache) Policy() Policy { return c.pol }

// Lookup returns the deepest checkpoint in memory whose rows rows begins with, and
// how many they are. The caller releases the snapshot; n is 0 and the snapshot nil
// when there is none.
func (c *Cache) Lookup(k Key, rows []state.Row) (snap state.Snapshot, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	root := c.roots[k]
	if root == nil {
		return nil, 0
	}
	var best *entry
	root.walk(rows, func(e *entry) {
		if e.snap != nil {
			best = e
		}
	})
	if best == nil {
		return nil, 0
	}
	if best.resident {
		c.order.touch(best)
	}
	return best.snap.Retain(), best.pos()
}

// Insert keeps s, the state after rows, and takes a reference of its own. An
// existing checkpoint at the same place stays. The cache may drop it at once when
// the budget is small.
func (c *Cache) Insert(k Key, rows []state.Row, s state.Snapshot) error {
	switch {
	case s == nil || len(rows) == 0:
		return fmt.Errorf("cache: insert of %d rows: a checkpoint has at least one row and a snapshot", len(rows))
	case s.Len() != len(rows):
		return fmt.Errorf("cache: insert of %d rows: the snapshot has %d", len(rows), s.Len())
	case s.Model() != k.Model:
		return fmt.Errorf("cache: insert of %d rows under model %v: the snapshot is of model %v: %w", len(rows), k.Model, s.Model(), state.ErrForeign)
	}
	if !c.enter() {
		return nil
	}
	defer c.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.insert(k, rows, s)
	c.evict()
	return nil
}

// insert puts a checkpoint into the tree and the budget.
func (c *Cache) insert(k Key, rows []state.Row, s state.Snapshot) *entry {
	root := c.roots[k]
	if root == nil {
		root = &node{}
		c.roots[k] = root
	}
	n := root.place(rows)
	e := n.entry
	if e == nil {
		e = &entry{at: n, key: k}
		n.entry = e
		c.stats.Entries++
	}
	switch {
	case e.resident:
		c.order.touch(e)
		return e
	case e.snap == nil:
		e.snap = s.Retain()
	}
	c.admit(e)
	return e
}

// admit counts e, which has a snapshot, in the budget.
func (c *Cache) admit(e *entry) {
	e.resident = true
	c.ledger.add(e.snap)
	c.order.add(e)
	c.stats.Checkpoints++
}

// evict brings the memory within the budget as far as pins allow.
func (c *Cache) evict() {
	for c.ledger.bytes > max(c.cfg.MemoryBytes, 0) {
		if !c.evictOne(true) {
			return
		}
	}
}

// evictOne drops the next victim; with demote it goes to the second tier.
func (c *Cache) evictOne(demote bool) bool {
	e := c.order.victim()
	if e == nil {
		return false
	}
	c.dismiss(e)
	c.stats.Evicted++
	c.count(Evictions, 1)
	if c.tier != nil && !e.stored && !e.queued {
		if demote {
			c.tier.demote(e)
		} else {
			c.stats.Dropped++
		}
	}
	c.settle(e)
	return true
}

// dismiss takes e out of the budget.
func (c *Cache) dismiss(e *entry) {
	if e.resident {
		c.order.remove(e)
		c.ledger.remove(e.snap)
		e.resident = false
		c.stats.Checkpoints--
	}
}

// forget drops e from memory although it is in use.
func (c *Cache) forget(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismiss(e)
	c.settle(e)
}

// settle drops the snapshot of an entry that nobody needs in memory and the entry
// when it is nowhere.
func (c *Cache) settle(e *entry) {
	if e.resident || e.queued {
		return
	}
	if e.snap != nil {
		e.snap.Release()
		e.snap = nil
	}
	if e.stored || e.at.entry != e {
		return
	}
	e.at.entry = nil
	c.stats.Entries--
	if root := e.at.prune(); root.empty() {
		delete(c.roots, e.key)
	}
}

// enter counts a request in; false when the cache is closed or keeps nothing.
func (c *Cache) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || c.cfg.MemoryBytes < 0 {
		return false
	}
	c.active++
	return true
}

func (c *Cache) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	if c.closing && c.active == 0 {
		close(c.idle)
	}
}

// Close waits for running requests, brings what is in memory to the second tier,
// and releases everything. When ctx ends first, waiting and saving stop and the
// memory that running requests still use is released as they finish. Requests that
// come later run without the cache.
func (c *Cache) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil
	}
	c.closing = true
	if c.active == 0 {
		close(c.idle)
	}
	c.mu.Unlock()
	var err error
	select {
	case <-c.idle:
	case <-ctx.Done():
		err = fmt.Errorf("cache: closed while requests were running: %w", ctx.Err())
	}
	switch {
	case c.tier != nil:
		err = errors.Join(err, c.tier.close(ctx))
	case c.cfg.Store != nil:
		err = errors.Join(err, c.cfg.Store.Close())
	}
	c.mu.Lock()
	c.cfg.MemoryBytes = -1 // requests that are still inside keep nothing
	c.mu.Unlock()
	c.Clear()
	return err
}

// Clear drops what is in memory and not in use. The second tier keeps what it has.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, root := range c.roots {
		var all []*entry
		root.below(func(e *entry) { all = append(all, e) })
		for i := 0; i < len(all); i++ {
			all[i].at.below(func(e *entry) { all = append(all, e) })
		}
		for _, e := range all {
			if e.pins == 0 {
				c.dismiss(e)
			}
			c.settle(e)
		}
	}
}
