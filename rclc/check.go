package rclc

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"samebit/state"
	"samebit/tensor"
)

// checkRows refuses rows that the model could not run.
func checkRows(m *Model, rows []state.Row) error {
	if m == nil {
		return fail(ErrState, "model", "rows without a model to run them")
	}
	if c := m.Info.Context; c > 0 && len(rows) > c {
		return fail(ErrContext, "context_limit", "%d rows exceed the model's context of %d: shorten them", len(rows), c)
	}
	for i, r := range rows {
		switch {
		case r.Token < -1 || int(r.Token) >= m.Info.Vocab:
			return fail(ErrState, "vocab_range", "row %d has the id %d: want -1 for a continuous row, or one of the vocabulary of %d", i, r.Token, m.Info.Vocab)
		case r.Vec == nil && r.Token < 0:
			return fail(ErrState, "rows", "row %d has neither an id nor a vector: give one", i)
		case r.Vec != nil && len(r.Vec) != m.Info.Hidden:
			return fail(ErrState, "width_mismatch", "row %d has %d values, the model takes %d", i, len(r.Vec), m.Info.Hidden)
		}
	}
	return nil
}

// Validate refuses a sender whose model cannot be scored or whose rows, counts and
// snapshot do not agree. It runs nothing.
func (s *Sender) Validate() error {
	if s == nil || s.Model == nil {
		return fail(ErrState, "model", "the sender is nil or has no model")
	}
	m := s.Model
	scored := false
	for _, f := range m.full {
		scored = scored || f
	}
	if !scored {
		return fail(ErrState, "model", "the model has no full attention layer that could score positions")
	}
	t := len(s.Rows)
	if t < 1 {
		return fail(ErrState, "rows", "the sender has no rows: give at least one")
	}
	if err := checkRows(m, s.Rows); err != nil {
		return err
	}
	if s.Latent < 0 || s.Latent >= t {
		return fail(ErrState, "counts", "a latent tail of %d in %d rows: want at least 0 and fewer than the rows", s.Latent, t)
	}
	if s.Inherited < 0 || s.Inherited > t-s.Latent {
		return fail(ErrState, "counts", "%d inherited positions in %d rows with a latent tail of %d: want at most %d", s.Inherited, t, s.Latent, t-s.Latent)
	}
	for i, r := range s.Rows {
		if r.Token >= 0 && s.NoIDs {
			return fail(ErrState, "ids", "row %d has the id %d in a sender without ids: want -1, or clear NoIDs", i, r.Token)
		}
		if r.Token >= 0 && i >= t-s.Latent {
			return fail(ErrState, "ids", "row %d has the id %d in the latent tail: want -1", i, r.Token)
		}
	}
	if s.Snap == nil {
		return fail(ErrState, "snapshot", "the sender has no snapshot, or was released")
	}
	if n := s.Snap.Len(); n != t {
		return fail(ErrState, "cache_length", "the snapshot has %d rows, the sender %d: give the rows that it was taken after", n, t)
	}
	if s.Snap.Model() != m.Info.ID {
		return fail(ErrState, "snapshot", "the snapshot belongs to model %.16s…, the sender to %.16s…: give the model that it was taken from", s.Snap.Model(), m.Info.ID)
	}
	if s.LastHidden != nil && len(s.LastHidden) != m.Info.Hidden {
		return fail(ErrState, "width_mismatch", "the last hidden row has %d values, the model %d", len(s.LastHidden), m.Info.Hidden)
	}
	return nil
}

// compatible refuses a sender's model that is another than the receiver's, r. The
// two may have other limits on their context, which the digest leaves out.
func (r *Info) compatible(s *Info) error {
	no := func(code, what string, a, b any) error {
		return fail(ErrIncompatible, code, "the sender has %s %v, the receiver %v: both need the same checkpoint, opened alike", what, a, b)
	}
	for _, g := range []struct {
		what string
		s, r int
	}{
		{"rows of width", s.Hidden, r.Hidden}, {"a vocabulary of", s.Vocab, r.Vocab}, {"layers:", s.Layers, r.Layers},
		{"query heads:", s.Heads, r.Heads}, {"KV heads:", s.KVHeads, r.KVHeads}, {"heads of width", s.HeadDim, r.HeadDim},
	} {
		if g.s != g.r {
			return no("geometry", g.what, g.s, g.r)
		}
	}
	other := func(a, b string) bool { return a != b && a != "" && b != "" }
	switch {
	case s.ModelType != r.ModelType:
		return no("model_type", "a model of type", strconv.Quote(s.ModelType), strconv.Quote(r.ModelType))
	case !slices.Equal(s.LayerTypes, r.LayerTypes):
		return no("geometry", "layers of types", s.LayerTypes, r.LayerTypes)
	case s.KV != r.KV:
		return no("kv", "keys and values in", cmp.Or(s.KV, "F32"), cmp.Or(r.KV, "F32"))
	case other(s.Checkpoint, r.Checkpoint):
		return no("checkpoint", "checkpoint", strconv.Quote(s.Checkpoint), strconv.Quote(r.Checkpoint))
	case other(s.Revision, r.Revision):
		return no("revision", "revision", strconv.Quote(s.Revision), strconv.Quote(r.Revision))
	case s.Tokens != r.Tokens && s.Tokens != (Digest{}) && r.Tokens != (Digest{}):
		return no("vocabulary", "a vocabulary of digest", hexDigest(s.Tokens), hexDigest(r.Tokens))
	case s.ID != r.ID:
		return no("model_digest", "a model of digest", s.ID, r.ID)
	}
	return nil
}

// checkIDs refuses ids of a request that the model does not have.
func (m *Model) checkIDs(request []int32) error {
	for i, id := range request {
		if id < 0 || int(id) >= m.Info.Vocab {
			return fail(ErrRequest, "request_vocab", "id %d of the request is %d, outside the vocabulary of %d", i, id, m.Info.Vocab)
		}
	}
	return nil
}

// sameBits compares rows by bits.
func sameBits(a, b []float32) bool { return bytes.Equal(tensor.AsBytes(a), tensor.AsBytes(b)) }
