package cache

import (
	"context"
	"errors"

	"samebit/state"
	"samebit/tensor"
)

var (
	// ErrNotFound is the cause when a Store has no such entry, or had a damaged one.
	ErrNotFound = errors.New("no such entry")
	// ErrTooLarge is the cause when an entry exceeds a Store's bound by itself.
	ErrTooLarge = errors.New("entry larger than the store")
)

// Store is a second tier: it keeps checkpoints outside the pool and, if it can,
// beyond the process. cachetest.Run tests an implementation. All methods are safe
// for concurrent use, also by other processes with a Store on the same place.
type Store interface {
	// Put keeps s, the state after e.Rows. Whoever finds the entry, finds all of it,
	// bit for bit; a Put that fails, or a process that dies in it, leaves none. An
	// entry that is there already stays. ErrTooLarge if it can never fit.
	Put(ctx context.Context, e Entry, s state.Snapshot) error
	// Get makes into the sequence that e names. ErrNotFound when there is no such
	// entry, also when what is stored under e.ID is damaged, is of another version,
	// or has another key or other rows than e: the store deletes what is damaged.
	// Every other error means that the store could not be asked.
	Get(ctx context.Context, e Entry, into Appender) error
	// List asks skip about every entry of a key, in any order, and calls f for those
	// that it does not want to skip, until f returns false.
	List(ctx context.Context, k Key, skip func(EntryID) bool, f func(Entry) bool) error
	// Stamp changes when somebody may have added an entry. It is asked before every
	// lookup and must be cheap.
	Stamp(ctx context.Context) uint64
	Delete(ctx context.Context, id EntryID) error
	Bytes() int64 // taken by all entries
	Close() error
}

// Appender is a sequence that Prefill fills: an nn.Runner.
type Appender interface {
	Reset() error // back to no rows
	// Resume makes it the sequence that had rows when snap was taken.
	Resume(rows []state.Row, snap state.Snapshot) error
	// Adopt does the same from the tensors that a snapshot saved; a failure leaves
	// the sequence as it was.
	Adopt(rows []state.Row, get func(name string) (tensor.Tensor, error)) error
	Append(ctx context.Context, rows []state.Row) error
	Snapshot() (state.Snapshot, error)
}
