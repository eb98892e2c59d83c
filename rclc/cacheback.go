package rclc

import (
	"context"
	"fmt"
	"math"

	"samebit/backend"
	"samebit/state"
)

// CacheBack scores a position by the attention that the request's rows pay to it,
// times a factor that is the larger the more the rows differ in where they look
// (docs/numerics.md 7): what few rows need is not outvoted by what all rows glance
// at. It is the default selector.
//
// Positions are kept in spans; row 0 and the latent tail are always kept. A budget
// that covers the sender keeps everything, unscored.
type CacheBack struct {
	Span int // positions of a span; 0 means 16
}

// QSnap is CacheBack without the factor: mean attention of the request's rows, as in
// SnapKV.
type QSnap struct {
	Span int // positions of a span; 0 means 16
}

func (c CacheBack) rule() rule { return rule{name: "cacheback", span: or(c.Span, 16), square: true} }
func (q QSnap) rule() rule     { return rule{name: "qsnap", span: or(q.Span, 16)} }

func (c CacheBack) Select(ctx context.Context, s *Sender, request []int32, budget int) ([]int, error) {
	return c.rule().choose(ctx, s, request, budget)
}

func (q QSnap) Select(ctx context.Context, s *Sender, request []int32, budget int) ([]int, error) {
	return q.rule().choose(ctx, s, request, budget)
}

// Scores returns the score of every position of s.
func (c CacheBack) Scores(ctx context.Context, s *Sender, request []int32) ([]float32, error) {
	return c.rule().scores(ctx, s, request)
}

// Scores returns the score of every position of s.
func (q QSnap) Scores(ctx context.Context, s *Sender, request []int32) ([]float32, error) {
	return q.rule().scores(ctx, s, request)
}

// Floor is row 0 and the latent tail.
func (c CacheBack) Floor(s *Sender) int { return s.Latent + 1 }

// Floor is row 0 and the latent tail.
func (q QSnap) Floor(s *Sender) int { return s.Latent + 1 }

// Name is "cacheback span=16".
func (c CacheBack) Name() string { return c.rule().String() }

// Name is "qsnap span=16".
func (q QSnap) Name() string { return q.rule().String() }

// or is n, or the default where n is 0.
func or(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// ruled is a built-in selector.
type ruled interface{ rule() rule }

// rule is a built-in selector with its options resolved.
type rule struct {
	name   string
	span   int
	square bool // of CacheBack
	window int  // of ChunkKV
	kernel int
	chunks bool // ChunkKV
}

func (r rule) String() string {
	if r.chunks {
		return fmt.Sprintf("%s chunk=%d window=%d kernel=%d", r.name, r.span, r.window, r.kernel)
	}
	return fmt.Sprintf("%s span=%d", r.name, r.span)
}

// choose returns the positions to keep.
func (r rule) choose(ctx context.Context, s *Sender, request []int32, budget int) ([]int, error) {
	kept, _, err := r.scored(ctx, s, request, budget)
	return kept, err
}

// scored is choose that also returns the scores, nil where none were needed.
func (r rule) scored(ctx context.Context, s *Sender, request []int32, budget int) ([]int, []float32, error) {
	if err := s.Validate(); err != nil {
		return nil, nil, err
	}
	all, err := r.covers(s.Len(), s.Latent, budget)
	if err != nil || all != nil {
		return all, nil, err
	}
	scores, err := r.scores(ctx, s, request)
	if err != nil {
		return nil, nil, err
	}
	kept, err := pick(scores, s.Latent, budget, r.span)
	return kept, scores, err
}

// covers checks span and budget, and returns all positions if the budget holds them.
func (r rule) covers(t, latent, budget int) ([]int, error) {
	switch {
	case r.span < 1:
		return nil, fail(ErrOption, "bad_span_size", "%s with spans of %d positions: want at least 1", r.name, r.span)
	case budget < latent+1:
		return nil, fail(ErrBudget, "budget_below_protected", "a budget of %d positions cannot hold row 0 and a latent tail of %d: raise it or lower the ratio", budget, latent)
	case budget < t:
		return nil, nil
	}
	all := make([]int, t)
	for p := range all {
		all[p] = p
	}
	return all, nil
}

// pick pins row 0, which is protected with the latent tail, and selects spans.
func pick(scores []float32, latent, budget, span int) ([]int, error) {
	pinned := append([]float32(nil), scores...)
	pinned[0] = scores[peak(scores)]
	protected := []int{0}
	for p := len(scores) - latent; p < len(scores); p++ {
		protected = append(protected, p)
	}
	return SelectSpans(pinned, budget, protected, span)
}

// scores runs the capture.
func (r rule) scores(ctx context.Context, s *Sender, request []int32) ([]float32, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if r.chunks {
		return r.chunkScores(ctx, s)
	}
	m := s.Model
	if len(request) == 0 {
		return nil, fail(ErrRequest, "request_empty", "scoring needs a request of at least one id")
	}
	if err := m.checkIDs(request); err != nil {
		return nil, err
	}
	if c := m.Info.Context; c > 0 && s.Len()+len(request) > c {
		return nil, fail(ErrContext, "context_limit", "%d positions and a request of %d exceed the model's context of %d: shorten the request or the sender", s.Len(), len(request), c)
	}
	v := newVotes(s.Len(), len(request), m.Info.Heads, m.Info.KVHeads, r.square)
	if err := s.capture(ctx, s.Len(), state.Tokens(request), &v.gauge); err != nil {
		return nil, err
	}
	return v.scores()
}

// votes are the vectors that CacheBack and QSnap sum up.
type votes struct {
	gauge
	mean, votes       []float32
	energy, rowEnergy []float32 // nil for QSnap
}

func newVotes(t, rows, heads, kv int, square bool) *votes {
	v := &votes{gauge: gauge{t: t, rows: rows, groups: kv, square: square}, votes: make([]float32, t), mean: make([]float32, t)}
	if square {
		v.energy, v.rowEnergy = make([]float32, t), make([]float32, t)
	}
	v.layer = v.add
	return v
}

// add takes the sums of one layer.
func (v *votes) add(sum, square [][]float32) {
	rows := float32(v.rows)
	for j := range sum {
		for p, x := range sum[j] {
			m := x / rows
			v.mean[p] = m
			v.votes[p] += m
		}
		if !v.square {
			continue
		}
		// What was summed is done with; its memory takes the maxima.
		max7(sum[j], v.mean)
		for p, x := range sum[j] {
			t := backend.MomentScale * x
			v.energy[p] += float32(t * t)
			v.rowEnergy[p] += square[j][p] / rows
		}
	}
}

// scores finishes the sums of all layers.
func (v *votes) scores() ([]float32, error) {
	for p := range v.votes {
		v.votes[p] /= float32(v.groups)
	}
	return support(v.votes, v.energy, v.rowEnergy)
}

// support forms scores from votes and, if there are any, energies.
func support(votes, energy, rowEnergy []float32) ([]float32, error) {
	const tiny = 0x1p-126
	scores := make([]float32, len(votes))
	max7(scores, votes)
	for p := range scores {
		if energy != nil {
			ratio := float32(1)
			if rowEnergy[p] != 0 || energy[p] != 0 {
				ratio = max(rowEnergy[p]/max(energy[p], tiny), tiny)
			}
			scores[p] *= float32(ratio * ratio)
		}
		if x := float64(scores[p]); math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fail(ErrSelection, "nonfinite_scores", "the score of position %d is %v: the model's attention has overflowed", p, x)
		}
	}
	return scores, nil
}
