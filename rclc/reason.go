package rclc

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"

	"samebit/state"
	"samebit/tensor"
)

// noLimit is how many rows fit where nothing limits them.
const noLimit = math.MaxInt32

// exact reports whether what a reasoner returns needs no check: that of this package.
func exact(r Reasoner) bool {
	_, ok := r.(interface{ exact() })
	return ok
}

// room is how many rows may be added to a sender of t rows with a request of n.
func (t *transfer) room(m *Model, rows, request int) int {
	room := noLimit
	if c := m.Info.Context; c > 0 {
		room = c - rows - request
	}
	if b := t.cfg.ReasonBudget; b > 0 {
		room = min(room, b)
	}
	return room
}

// reason runs reasoning on a sender before selection. longest is the length of the
// longest request that will be scored on the result.
func (t *transfer) reason(ctx context.Context, s *Sender, i, longest int, request []int32) (*Sender, error) {
	return t.think(ctx, s, i, t.room(s.Model, s.Len(), longest), longest, request)
}

// reasonSelected runs reasoning on the selected rows by themselves, and returns them
// with what it added.
func (t *transfer) reasonSelected(ctx context.Context, s *Sender, i int, rows []state.Row, request []int32) ([]state.Row, int, error) {
	alone, err := FromRows(ctx, s.Model, rows)
	if err != nil {
		return nil, 0, fail(ErrReason, Code(err), "sender %d: running its selected rows: %w", i, err)
	}
	defer alone.Release()
	alone.NoIDs = s.NoIDs
	var seen []int32
	if t.cfg.ReasonContext.sees() {
		seen = request
	}
	got, err := t.think(ctx, alone, i, t.room(s.Model, len(rows), len(request)), len(request), seen)
	if err != nil {
		return nil, 0, err
	}
	defer got.Release()
	return got.Rows, got.Len() - len(rows), nil
}

// think calls the reasoner and checks what it returns.
func (t *transfer) think(ctx context.Context, s *Sender, i, room, request int, seen []int32) (*Sender, error) {
	if room < 0 {
		return nil, fail(ErrContext, "reason_context_limit", "sender %d: %d rows and a request of %d leave no room for reasoning in the model's context of %d: shorten the request or the sender", i, s.Len(), request, s.Model.Info.Context)
	}
	if exact(t.cfg.Reason) {
		got, err := t.cfg.Reason.Reason(ctx, s, room, seen)
		if err != nil {
			return nil, fail(ErrReason, codeOr(err, "reason"), "sender %d: %w", i, err)
		}
		return got, nil
	}
	own := s.private()
	got, err := t.cfg.Reason.Reason(ctx, own, room, slices.Clone(seen))
	own.Release()
	if err == nil {
		err = checkReasoned(ctx, s, got, room)
	}
	if err != nil {
		drop(got)
		return nil, fail(ErrReason, codeOr(err, "reason"), "sender %d: %w", i, err)
	}
	return got, nil
}

// codeOr is the code of an error, or one for errors without.
func codeOr(err error, code string) string {
	if c := Code(err); c != "" {
		return c
	}
	return code
}

// private is a copy of a sender that nobody else's memory is reached through, other
// than the snapshot's, which cannot be changed.
func (s *Sender) private() *Sender {
	c := s.Retain()
	c.Rows = slices.Clone(s.Rows)
	for i := range c.Rows {
		c.Rows[i].Vec = slices.Clone(c.Rows[i].Vec)
	}
	c.LastHidden = slices.Clone(s.LastHidden)
	return c
}

// checkReasoned refuses a result that is not s with at most limit continuous rows
// more. Its state must have the bits that running those rows after s gives.
func checkReasoned(ctx context.Context, s, got *Sender, limit int) error {
	if got == nil {
		return fail(ErrReason, "reason_nil", "reasoning returned nothing: return the sender retained to add no rows")
	}
	if err := got.Validate(); err != nil {
		return fail(ErrReason, Code(err), "reasoning returned an invalid sender: %w", err)
	}
	added := got.Len() - s.Len()
	switch {
	case got.Model != s.Model:
		return fail(ErrReason, "reason_model", "reasoning returned a sender of another model")
	case added < 0 || added > limit:
		return fail(ErrReason, "reason_rows", "reasoning returned %d rows for a sender of %d: want at least as many, and at most %d more", got.Len(), s.Len(), limit)
	case got.Inherited != s.Inherited:
		return fail(ErrReason, "reason_inherited", "reasoning changed the inherited positions from %d to %d", s.Inherited, got.Inherited)
	case got.Latent != s.Latent+added:
		return fail(ErrReason, "reason_latent", "reasoning added %d rows and returned a latent tail of %d: want %d", added, got.Latent, s.Latent+added)
	case got.NoIDs != s.NoIDs:
		return fail(ErrReason, "reason_ids", "reasoning lost the ids of the rows, or gives some to rows whose ids are not known: leave NoIDs as it is")
	}
	for i, r := range got.Rows[:s.Len()] {
		same, err := sameRow(s.Model, s.Rows[i], r)
		if err != nil {
			return err
		}
		if !same {
			return fail(ErrReason, "reason_prefix", "reasoning changed row %d", i)
		}
	}
	for i, r := range got.Rows[s.Len():] {
		for k, x := range r.Vec {
			if !finite(x) {
				return fail(ErrReason, "reason_finite", "row %d that reasoning added has the value %v at %d: want finite ones", i, x, k)
			}
		}
	}
	return checkState(ctx, s, got)
}

// sameRow reports whether two rows put the same bits into a model.
func sameRow(m *Model, a, b state.Row) (bool, error) {
	if a.Token != b.Token {
		return false, nil
	}
	if a.Vec == nil && b.Vec == nil {
		return true, nil
	}
	for _, r := range []*state.Row{&a, &b} {
		if r.Vec == nil {
			v, err := m.Row(r.Token)
			if err != nil {
				return false, err
			}
			r.Vec = v
		}
	}
	return sameBits(a.Vec, b.Vec), nil
}

// checkState runs the rows that got has more than s after s, and compares the states.
func checkState(ctx context.Context, s, got *Sender) error {
	want, err := s.Extend(ctx, got.Rows[s.Len():])
	if err != nil {
		return err
	}
	defer want.Release()
	a, err := want.stateDigest()
	if err != nil {
		return err
	}
	b, err := got.stateDigest()
	if err != nil {
		return err
	}
	if a != b {
		return fail(ErrReason, "reason_state", "the state that reasoning returned is not that of its rows: what it fed besides them must leave no trace")
	}
	if got.LastHidden != nil && want.LastHidden != nil && !sameBits(got.LastHidden, want.LastHidden) {
		return fail(ErrReason, "reason_state", "the last hidden row that reasoning returned is not that of its rows")
	}
	return nil
}

// stateDigest is the digest of the bits of a sender's state.
func (s *Sender) stateDigest() (d Digest, err error) {
	h := sha256.New()
	err = s.Snap.Save(func(name string, t tensor.Tensor) error {
		raw, _ := t.Raw()
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(raw)))
		h.Write([]byte(name))
		h.Write(n[:])
		h.Write(raw)
		return nil
	})
	h.Sum(d[:0])
	return d, err
}

// at returns the rows at positions.
func (s *Sender) at(kept []int) []state.Row {
	rows := make([]state.Row, len(kept))
	for i, p := range kept {
		rows[i] = s.Rows[p]
	}
	return rows
}
