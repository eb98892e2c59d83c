// Package state holds what a sequence remembers while text flows through a
// model: keys and values, recurrent banks, and stacks of them.
//
// A [State] is mutable and belongs to one goroutine. A [Snapshot] is an
// immutable value that shares memory with the states it came from; it may be
// kept, restored any number of times, and used from any goroutine.
package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

var (
	// ErrForeign is the cause when a snapshot belongs to another model or shape.
	ErrForeign = errors.New("snapshot belongs to another model")
	// ErrNoGraft is the cause when rows of another sequence are offered to a
	// state that can only be reached by running them.
	ErrNoGraft = errors.New("state cannot accept foreign rows")
	// ErrNoRoom is the cause when a pool's limit is reached.
	ErrNoRoom = errors.New("no room for more rows")
)

// ID is a digest of everything that decides a state's bits: weights, config,
// adapters, the version of the numerics contract and, of a device that does not
// keep it, in what way.
type ID [sha256.Size]byte

func (id ID) String() string { return hex.EncodeToString(id[:8]) }

// Row is what went in at one position: a token, or, with Token -1, a continuous
// row of the model's width.
type Row struct {
	Token int32
	Vec   []float32
}

// Tokens are the rows of lists of tokens, one list after the other.
func Tokens(ids ...[]int32) []Row {
	n := 0
	for _, l := range ids {
		n += len(l)
	}
	rows := make([]Row, 0, n)
	for _, l := range ids {
		for _, id := range l {
			rows = append(rows, Row{Token: id})
		}
	}
	return rows
}

// State is everything a sequence remembers. A pass over rows is Begin, ops that
// write where the Seg says, and Commit; a pass that is given up before Commit
// leaves the state as it was.
type State interface {
	Len() int     // rows committed
	Bytes() int64 // memory referenced, shared pages included

	// Begin makes room for rows more rows and tells seg where they land. It
	// fails with ErrNoRoom and changes nothing that Len, Snapshot or a later
	// Begin could see.
	Begin(seg *backend.Seg, rows int) error
	// Commit makes the rows of the last Begin part of the state.
	Commit(rows int)

	Snapshot() (Snapshot, error)
	Restore(Snapshot) error // ErrForeign if the model or the shape differ
	Fork() (State, error)

	// Truncate drops rows beyond n, 0 <= n <= Len. It returns where it landed:
	// reached <= n, since a recurrent part cannot stop everywhere. Replaying the
	// rows from there gives the state that n rows have.
	Truncate(n int) (reached int, err error)

	// Load replaces the state by what Snapshot.Save wrote.
	Load(rows int, get func(name string) (tensor.Tensor, error)) error

	Release()
}

// Snapshot is a state at one moment. It counts references: whoever keeps a copy
// calls Retain, and Release when done.
type Snapshot interface {
	Model() ID
	Len() int
	Bytes() int64 // memory referenced, shared pages included

	// Save hands out the content as named host tensors in logical order, one at a
	// time; each is valid during its call only.
	Save(emit func(name string, t tensor.Tensor) error) error

	Retain() Snapshot
	Release()
}

// modelled are the states that know whose they are.
type modelled interface{ Model() ID }

// foreign says what a snapshot is that a state refuses.
func foreign(s Snapshot, into string, id ID) error {
	if s == nil {
		return fmt.Errorf("state: restoring nothing into %s: %w", into, ErrForeign)
	}
	return fmt.Errorf("state: restoring %T of model %v into %s of model %v: %w", s, s.Model(), into, id, ErrForeign)
}

// Move makes dst, a fresh state of the same kind and model on any device, equal
// to s. It fails with ErrForeign if the model or the shape differ.
func Move(dst State, s Snapshot) error {
	if dst == nil || s == nil {
		return fmt.Errorf("state: moving a snapshot %T into a state %T: one is nil", s, dst)
	}
	if m, ok := dst.(modelled); ok && m.Model() != s.Model() {
		return foreign(s, fmt.Sprintf("a %T", dst), m.Model())
	}
	held := map[string]tensor.Tensor{}
	err := s.Save(func(name string, t tensor.Tensor) error {
		b, _ := t.Raw()
		dim := t.Shape()
		c, err := tensor.New(tensor.Bytes(append([]byte(nil), b...)), 0, t.DType(), dim...)
		held[name] = c
		return err
	})
	if err != nil {
		return err
	}
	err = dst.Load(s.Len(), func(name string) (tensor.Tensor, error) {
		t, ok := held[name]
		if !ok {
			return t, fmt.Errorf("state: snapshot has no tensor %q: %w", name, ErrForeign)
		}
		delete(held, name)
		return t, nil
	})
	if err == nil && len(held) > 0 { // dst remembers less than s
		err = dst.Load(0, nil)
		if err == nil {
			err = fmt.Errorf("state: moving %T into %T, which has no place for %d of its tensors: %w", s, dst, len(held), ErrForeign)
		}
	}
	return err
}

func checkTruncate(n, length int) error {
	if n < 0 || n > length {
		return fmt.Errorf("state: Truncate to %d of %d rows", n, length)
	}
	return nil
}
