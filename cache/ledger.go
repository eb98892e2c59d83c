package cache

import "samebit/state"

// entry is a checkpoint at a node of the tree. It is in memory, in the store, or
// in both; one that is in neither leaves the tree.
type entry struct {
	at  *node
	key Key

	snap     state.Snapshot // held while resident or queued
	resident bool           // counted in the budget and subject to eviction
	queued   bool           // on its way to the store
	evicted  bool           // queued by an eviction, so counted by the queue
	stored   bool           // believed to be in the store
	pins     int            // requests that run from it

	prev, next *entry  // of the LRU order
	age, prio  float64 // of the cost order
	seq        int64
	heap       int
}

func (e *entry) pos() int { return e.at.end }

// ledger counts the memory of snapshots, shared pieces once.
type ledger struct {
	pieces map[any]*piece
	bytes  int64
}

type piece struct {
	refs  int
	bytes int64
}

func (l *ledger) add(s state.Snapshot) {
	state.Pieces(s, func(p any, bytes int64) {
		q := l.pieces[p]
		if q == nil {
			q = &piece{bytes: bytes}
			l.pieces[p] = q
			l.bytes += bytes
		}
		q.refs++
	})
}

func (l *ledger) remove(s state.Snapshot) {
	state.Pieces(s, func(p any, _ int64) {
		q := l.pieces[p]
		if q.refs--; q.refs == 0 {
			delete(l.pieces, p)
			l.bytes -= q.bytes
		}
	})
}

// frees is what removing s, one of the snapshots added, would give back.
func (l *ledger) frees(s state.Snapshot) (n int64) {
	state.Pieces(s, func(p any, _ int64) {
		if q := l.pieces[p]; q.refs == 1 {
			n += q.bytes
		}
	})
	return n
}
