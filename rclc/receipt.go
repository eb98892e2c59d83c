package rclc

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math"
	"slices"

	"samebit/checkpoint"
)

// A record of a selection is its receipt: with the same sender, anybody can repeat
// the selection and compare bits.

// rowsDigest is the digest of a sender's rows: of each its id, or -1 and its values.
func rowsDigest(s *Sender) (d Digest) {
	h := sha256.New()
	for _, r := range s.Rows {
		id := r.Token
		if s.NoIDs {
			id = -1
		}
		hashWord(h, uint32(id))
		if id == -1 {
			h.Write(checkpoint.LittleEndian(r.Vec))
		}
	}
	h.Sum(d[:0])
	return d
}

// scoresDigest is the digest of the bits of a selector's scores.
func scoresDigest(scores []float32) (d Digest) {
	return sha256.Sum256(checkpoint.LittleEndian(scores))
}

func hashWord(h hash.Hash, v uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	h.Write(b[:])
}

// Verification is what repeating a selection gave.
type Verification struct {
	Selector    string   // name and options of what was repeated
	Source      int      // positions of the sender
	Kept        int      // positions that the receipt says were kept
	Scored      bool     // the bits of the scores were compared, not only the positions
	Differences []string // what is not as the receipt says; none: everything has the same bits
}

// Equal reports whether the repetition gave the same bits.
func (v *Verification) Equal() bool { return len(v.Differences) == 0 }

func (v *Verification) add(format string, a ...any) {
	v.Differences = append(v.Differences, fmt.Sprintf(format, a...))
}

// Verify repeats the selection that m's record is a receipt of, on the sender that
// the selector saw, and compares everything by bits: the sender's rows, the kept
// positions, the scores, and the rows of m with those of the sender. Rows that
// reasoning added after the selection are not repeated.
//
// with is the selector; nil means the built-in one that the receipt names. A
// difference is no error: [Verification.Differences] lists what differs, with
// numbers. Verify fails with ErrSelection when there is no receipt, or the selector
// is not known or fails.
func Verify(ctx context.Context, s *Sender, m Message, with Selector) (*Verification, error) {
	r := m.selection
	if r == nil {
		return nil, fail(ErrSelection, "receipt", "the message has no receipt of its selection: transfer with Record")
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if with == nil {
		var err error
		if with, err = ParseSelector(r.Selector); err != nil {
			return nil, err
		}
	}
	v := &Verification{Selector: r.Selector, Source: s.Len(), Kept: len(r.Indices)}
	if m.from != nil {
		if err := s.Model.Info.compatible(m.from); err != nil {
			v.add("model: %s", plain(err))
			return v, nil // nothing else could be equal
		}
	}
	if s.Len() != r.Source {
		v.add("source: the sender has %d positions, the receipt %d", s.Len(), r.Source)
		return v, nil
	}
	if s.Latent != r.Latent {
		v.add("latent tail: the sender has %d rows, the receipt %d", s.Latent, r.Latent)
	}
	if d := rowsDigest(s); r.Rows != (Digest{}) && d != r.Rows {
		v.add("rows: those of the sender have digest %x, the receipt %x", d, r.Rows)
	}
	if err := v.payload(s, m); err != nil {
		return nil, err
	}
	budget := r.Budget - r.Reserve
	got, scores, err := replay(ctx, with, s, r, min(budget, s.Len()))
	if err != nil {
		return nil, fail(ErrSelection, "selector", "repeating the selection of %s with a budget of %d: %w", r.Selector, budget, err)
	}
	v.positions(r.Indices, got)
	if r.Scores != (Digest{}) && scores != nil {
		if v.Scored = true; scoresDigest(scores) != r.Scores {
			v.add("scores: the bits of %d scores have digest %x, the receipt %x", len(scores), scoresDigest(scores), r.Scores)
		}
	}
	if (r.Scores != Digest{}) != (scores != nil) && isRuled(with) {
		v.add("scores: the selector scored now: %v, by the receipt: %v", scores != nil, r.Scores != Digest{})
	}
	return v, nil
}

// replay selects, and returns the scores of a selector that has them.
func replay(ctx context.Context, with Selector, s *Sender, r *Selection, budget int) (kept []int, scores []float32, err error) {
	if b, ok := with.(ruled); ok {
		return b.rule().scored(ctx, s, r.Request, budget)
	}
	if kept, err = with.Select(ctx, s, r.Request, budget); err != nil {
		return nil, nil, err
	}
	kept = slices.Sorted(slices.Values(kept))
	if sc, ok := with.(Scorer); ok && r.Scores != (Digest{}) {
		scores, err = sc.Scores(ctx, s, r.Request)
	}
	return kept, scores, err
}

func isRuled(s Selector) bool {
	_, ok := s.(ruled)
	return ok
}

// positions compares kept positions.
func (v *Verification) positions(want, got []int) {
	if slices.Equal(want, got) {
		return
	}
	only := func(a, b []int) (l []int) {
		for _, p := range a {
			if _, ok := slices.BinarySearch(b, p); !ok {
				l = append(l, p)
			}
		}
		return l
	}
	lost, added := only(want, got), only(got, want)
	v.add("positions: %d are kept now, %d by the receipt; only by the receipt: %s; only now: %s", len(got), len(want), few(lost), few(added))
}

// few lists the first ones.
func few(l []int) string {
	const most = 12
	if len(l) == 0 {
		return "none"
	}
	if len(l) <= most {
		return fmt.Sprint(l)
	}
	return fmt.Sprintf("%v and %d more", l[:most], len(l)-most)
}

// payload compares the rows of a message with the sender's at the kept positions.
func (v *Verification) payload(s *Sender, m Message) error {
	rows, err := m.Rows(s.Model)
	if err != nil {
		v.add("message: %s", plain(err))
		return nil
	}
	differ, first := 0, ""
	for i, p := range m.selection.Indices {
		if i >= len(rows) || p < 0 || p >= s.Len() {
			v.add("message: it has %d rows, and the receipt position %d of %d", len(rows), p, s.Len())
			return nil
		}
		got, want := rows[i], s.Rows[p]
		same, why := true, ""
		switch {
		case got.Token >= 0 && (want.Token < 0 || s.NoIDs):
			same, why = false, fmt.Sprintf("is token %d, the sender's position %d is continuous", got.Token, p)
		case got.Token >= 0:
			if same = got.Token == want.Token; !same {
				why = fmt.Sprintf("is token %d, the sender's position %d token %d", got.Token, p, want.Token)
			}
		default:
			vec := want.Vec
			if vec == nil {
				if vec, err = s.Model.Row(want.Token); err != nil {
					return err
				}
			}
			if k := firstOther(got.Vec, vec); k >= 0 {
				same, why = false, fmt.Sprintf("has other values than the sender's position %d, the first at %d: %x and %x", p, k, bitsAt(got.Vec, k), bitsAt(vec, k))
			}
		}
		if !same {
			if differ++; differ == 1 {
				first = fmt.Sprintf("row %d %s", i, why)
			}
		}
	}
	if differ > 0 {
		v.add("payload: %d of %d rows are not the sender's: %s", differ, len(m.selection.Indices), first)
	}
	return nil
}

// firstOther is the first place where bits differ, -1 for none.
func firstOther(a, b []float32) int {
	for k := range max(len(a), len(b)) {
		if k >= len(a) || k >= len(b) || math.Float32bits(a[k]) != math.Float32bits(b[k]) {
			return k
		}
	}
	return -1
}

func bitsAt(v []float32, k int) uint32 {
	if k >= len(v) {
		return 0
	}
	return math.Float32bits(v[k])
}
