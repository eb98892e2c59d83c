package rclc

import (
	"context"
	"slices"

	"samebit/nn"
	"samebit/state"
)

// Sender is what an agent could send: the rows of a sequence and the state that they
// left. It is an immutable value: nothing changes its fields once it is made, and
// what extends one returns another. Senders share memory; each is released once.
type Sender struct {
	Model *Model
	// Rows went in, one per position. A token needs no vector; Token -1 marks a
	// continuous row.
	Rows []state.Row
	// Snap is the state after Rows; Release releases it.
	Snap state.Snapshot
	// LastHidden is the final normed row [Hidden] of the last position, nil if it is
	// not known.
	LastHidden []float32
	// Inherited is how many leading positions came from another agent. They keep
	// their full weight in relative budgets.
	Inherited int
	// Latent is how many rows at the end are feedback of the model itself. Built-in
	// selectors keep them all.
	Latent int
	// NoIDs says that the tokens of the rows are not known: every Token is -1 and
	// means nothing.
	NoIDs bool
}

// FromTokens runs ids from an empty sequence.
func FromTokens(ctx context.Context, m *Model, ids []int32) (*Sender, error) {
	return FromRows(ctx, m, state.Tokens(ids))
}

// FromText is FromTokens of text from outside: what it spells are characters.
func FromText(ctx context.Context, m *Model, text string) (*Sender, error) {
	if m == nil || m.Tokenizer == nil {
		return nil, fail(ErrState, "tokenizer", "a sender from text needs a tokenizer: give ids")
	}
	return FromTokens(ctx, m, m.Tokenizer.EncodePlain(nil, text))
}

// FromRows runs rows from an empty sequence.
func FromRows(ctx context.Context, m *Model, rows []state.Row) (*Sender, error) {
	if err := checkRows(m, rows); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fail(ErrState, "rows", "a sender of no rows: give at least one")
	}
	s := &Sender{Model: m}
	err := m.scratch(func(r *nn.Runner) error { return s.run(ctx, r, rows) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// FromRunner is the sender of a sequence as it stands. It shares the sequence's
// memory, and runs nothing.
func FromRunner(m *Model, r *nn.Runner) (*Sender, error) {
	rows := slices.Clone(r.History())
	if err := checkRows(m, rows); err != nil {
		return nil, err
	}
	snap, err := r.Snapshot()
	if err != nil {
		return nil, err
	}
	s := &Sender{Model: m, Rows: rows, Snap: snap, LastHidden: slices.Clone(r.Hidden())}
	if err := s.Validate(); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

// run appends rows to a runner and takes what is there.
func (s *Sender) run(ctx context.Context, r *nn.Runner, rows []state.Row) (err error) {
	if len(rows) > 0 {
		if s.LastHidden, err = appended(ctx, r, rows); err != nil {
			return err
		}
	}
	s.Rows = slices.Clone(r.History())
	s.Snap, err = r.Snapshot()
	return err
}

// Extend returns the sender with rows appended; they are not latent, so the latent
// tail, no longer last, becomes ordinary continuous rows. s stays what it is.
func (s *Sender) Extend(ctx context.Context, rows []state.Row) (*Sender, error) {
	if err := checkRows(s.Model, rows); err != nil {
		return nil, err
	}
	n := &Sender{Model: s.Model, Inherited: s.Inherited, NoIDs: s.NoIDs && len(rows) == 0}
	err := s.Model.scratch(func(r *nn.Runner) error {
		if err := r.Resume(s.Rows, s.Snap); err != nil {
			return err
		}
		return n.run(ctx, r, rows)
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// Len is the number of positions, T.
func (s *Sender) Len() int { return len(s.Rows) }

// IDs are the tokens of the rows, -1 for continuous ones; nil if they are unknown.
func (s *Sender) IDs() []int32 {
	if s.NoIDs {
		return nil
	}
	ids := make([]int32, len(s.Rows))
	for i, r := range s.Rows {
		ids[i] = r.Token
	}
	return ids
}

// Sender returns s, so that it is a [Source].
func (s *Sender) Sender(context.Context) (*Sender, error) {
	if s == nil {
		return nil, fail(ErrState, "model", "the sender is nil: was the error looked at that came with it?")
	}
	return s.Retain(), nil
}

// Retain returns a copy of s that is released by itself.
func (s *Sender) Retain() *Sender {
	c := *s
	if c.Snap != nil {
		c.Snap = c.Snap.Retain()
	}
	return &c
}

// Release gives up the sender's share of the memory. A second call does nothing.
func (s *Sender) Release() {
	if s.Snap != nil {
		s.Snap.Release()
		s.Snap = nil
	}
}
