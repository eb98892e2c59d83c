package cache

import "time"

// Stats are counts since the cache was made and what it holds now.
type Stats struct {
	Rows           int64 `json:"rows"` // requests that used the cache
	Hits           int64 `json:"hits"` // nothing of the prefix was computed
	Partial        int64 `json:"partial"`
	Cold           int64 `json:"cold"`
	Mispredict     int64 `json:"mispredict"`
	TokensReused   int64 `json:"tokens_reused"`
	TokensComputed int64 `json:"tokens_computed"`
	Made           int64 `json:"ckpts_made"`
	Evicted        int64 `json:"evicted"`
	Failed         int64 `json:"failed"` // requests that ended with an error

	BypassShort  int64 `json:"bypass_short"`  // prefix shorter than MinPrefix
	BypassClosed int64 `json:"bypass_closed"` // cache closed or without memory

	Waits      int64 `json:"waits"`     // for another request that computes the same prefix
	Demotions  int64 `json:"demotions"` // checkpoints written to the second tier
	Promotions int64 `json:"promotions"`
	Dropped    int64 `json:"dropped"`      // evicted while the second tier was too slow or the pool full
	StoreFault int64 `json:"store_errors"` // of the second tier
	Relieved   int64 `json:"relieved"`     // times the cache made room in a full pool

	Bytes       int64 `json:"used_bytes"` // distinct pages and banks of checkpoints in memory
	Pinned      int64 `json:"pinned_bytes"`
	IndexBytes  int64 `json:"index_bytes"` // rows kept by the index, outside the budget
	Checkpoints int64 `json:"checkpoints"` // in memory
	Entries     int64 `json:"entries"`     // in memory or in the second tier
	Pieces      int64 `json:"pieces"`      // distinct pages and banks
	StoreBytes  int64 `json:"store_bytes"`
	PoolBytes   int64 `json:"pool_bytes"` // of sequences and checkpoints together
}

// Stats returns a copy of the figures.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	s := c.stats
	s.Bytes, s.Pieces = c.ledger.bytes, int64(len(c.ledger.pieces))
	pinned := ledger{pieces: map[any]*piece{}}
	var walk func(n *node)
	walk = func(n *node) {
		s.IndexBytes += n.run.bytes()
		if n.entry != nil && n.entry.pins > 0 && n.entry.resident {
			pinned.add(n.entry.snap)
		}
		for _, k := range n.kids {
			walk(k)
		}
		for _, k := range n.vecs {
			walk(k)
		}
	}
	for _, r := range c.roots {
		walk(r)
	}
	s.Pinned = pinned.bytes
	c.mu.Unlock()
	if c.tier != nil {
		s.StoreBytes = c.tier.store.Bytes()
	}
	if c.pool != nil {
		s.PoolBytes = c.pool.Bytes()
	}
	return s
}

// Metrics receives what happens as it happens. Its methods must be quick and safe
// for concurrent use; they may not call the cache.
type Metrics interface {
	Count(what Counter, n int64)
	Time(what Phase, d time.Duration)
}

// Counter names what Metrics.Count counts.
type Counter uint8

const (
	Requests Counter = iota
	Hits
	Partials
	Colds
	Bypasses
	RowsReused
	RowsComputed
	CheckpointsMade
	Evictions
	Demotions
	Promotions
	Waits
	StoreFaults
)

var counterNames = [...]string{"requests", "hits", "partial", "cold", "bypass", "rows_reused", "rows_computed",
	"checkpoints_made", "evictions", "demotions", "promotions", "waits", "store_faults"}

func (c Counter) String() string { return counterNames[c] }

// Phase names a part of a request's time.
type Phase uint8

const (
	PhaseLookup  Phase = iota // finding the start, waiting for others included
	PhaseRestore              // copying or loading it
	PhasePrefix               // running rows up to the last checkpoint
	PhaseSave                 // taking and keeping checkpoints
	PhaseSuffix               // running the rest
	phases
)

func (p Phase) String() string {
	return [...]string{"lookup", "restore", "prefix", "save", "suffix"}[p]
}

// Timing is the time of each Phase.
type Timing [phases]time.Duration

func (c *Cache) count(what Counter, n int64) {
	if c.cfg.Metrics != nil {
		c.cfg.Metrics.Count(what, n)
	}
}
