package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"samebit/internal/canon"
)

var (
	// ErrNotFinite marks a row of logits with a NaN or +Inf in it.
	ErrNotFinite = errors.New("logit is not finite")
	// ErrNoCandidate marks a row whose every id is banned or -Inf.
	ErrNoCandidate = errors.New("no id is left to choose from")
)

// Candidate is an id that survived the filters, with its probability.
type Candidate struct {
	ID   int32
	Prob float32
}

// Sampler draws ids for rows of logits. It holds scratch space and no state
// that could change a result: every draw depends on the arguments of
// [Sampler.Next] alone. One goroutine at a time may use it.
type Sampler struct {
	cfg   Config
	vocab int
	bias  []biased
	rng   *rand.ChaCha8

	work  []float32   // [vocab] the row being worked on
	prob  []float32   // [vocab] probabilities of work, while no filter has cut it
	count []int32     // [vocab] occurrences in the window; all zero between calls
	exps  []float32   // softmax of a list
	cand  []scored    // the candidates in order, once list is true
	out   []Candidate // returned by Probs
	list  bool
}

type biased struct {
	id int32
	b  float32
}

// scored is a candidate: its current logit, and its probability once softmax ran.
type scored struct {
	x, p float32
	id   int32
}

// before is the total order of candidates: larger logit, then smaller id.
func before(a, b scored) int {
	switch {
	case a.x > b.x:
		return -1
	case a.x < b.x:
		return 1
	}
	return int(a.id) - int(b.id)
}

// New returns a sampler for ids below vocab, the size of the tokenizer's
// vocabulary; a model's logits may have more rows, which are never chosen.
// A value of cfg outside its range is an error that names it.
func New(cfg Config, vocab int) (*Sampler, error) {
	c, err := cfg.resolved(vocab)
	if err != nil {
		return nil, err
	}
	c.Order = slices.Clone(c.Order)
	s := &Sampler{cfg: c, vocab: vocab, work: make([]float32, vocab), rng: rand.NewChaCha8([32]byte{})}
	for id, b := range c.LogitBias {
		s.bias = append(s.bias, biased{id, b})
	}
	s.cfg.LogitBias = nil // the caller may change its map
	slices.SortFunc(s.bias, func(a, b biased) int { return int(a.id - b.id) })
	return s, nil
}

// Next draws the id that follows history (prompt and output so far, oldest
// first; read by the penalties only, ids outside the vocabulary are ignored)
// given the logits [>= vocab] of its last position, which stay untouched.
//
// seq numbers the sequence, step the position in it; they and the seed alone
// choose the random number, so callers must not use a pair twice. An error
// ([ErrNotFinite], [ErrNoCandidate], too few logits) concerns this row alone.
func (s *Sampler) Next(logits []float32, history []int32, seq, step uint64) (int32, error) {
	if err := s.load(logits, history); err != nil {
		return 0, fmt.Errorf("sample: next id of sequence %d, step %d: %w", seq, step, err)
	}
	if s.greedy() {
		return s.argmax(), nil
	}
	s.filter(history)
	return s.draw(s.uniform(seq, step)), nil
}

// Probs returns the distribution [Sampler.Next] would draw from, in the order
// of its inverse CDF; candidates of probability 0 are left out. The slice is
// valid until the next call.
func (s *Sampler) Probs(logits []float32, history []int32) ([]Candidate, error) {
	if err := s.load(logits, history); err != nil {
		return nil, fmt.Errorf("sample: probabilities: %w", err)
	}
	s.out = s.out[:0]
	if s.greedy() {
		return append(s.out, Candidate{s.argmax(), 1}), nil
	}
	s.filter(history)
	if !s.list {
		s.softmax()
		s.selectTop(s.vocab)
	} else {
		s.softmax()
	}
	for _, c := range s.cand {
		if c.p > 0 {
			s.out = append(s.out, Candidate{c.id, c.p})
		}
	}
	return s.out, nil
}

// load copies the row, adds the bias, and applies the penalties if they are
// the first step or the choice is greedy. It leaves at least one logit above
// -Inf and none at +Inf or NaN.
func (s *Sampler) load(logits []float32, history []int32) error {
	if len(logits) < s.vocab {
		return fmt.Errorf("%d logits for a vocabulary of %d: pass the whole row", len(logits), s.vocab)
	}
	s.list, s.cand = false, s.cand[:0]
	copy(s.work, logits[:s.vocab])
	for _, b := range s.bias {
		s.work[b.id] += b.b
	}
	if s.greedy() && slices.Contains(s.cfg.Order, StepPenalties) {
		s.penalties(history)
	}
	return s.check()
}

func (s *Sampler) check() error {
	any := false
	for id, x := range s.work {
		if !(x <= math.MaxFloat32) {
			return fmt.Errorf("%w: id %d has %v: the forward pass (or a bias) overflowed in this row", ErrNotFinite, id, x)
		}
		any = any || x >= -math.MaxFloat32
	}
	if !any {
		return fmt.Errorf("%w: all %d logits are -Inf: lift some bans", ErrNoCandidate, s.vocab)
	}
	return nil
}

func (s *Sampler) greedy() bool { return s.cfg.Temperature < greedyBelow }

// argmax returns the best id of work, the smallest among equals.
func (s *Sampler) argmax() int32 {
	best := 0
	for id, x := range s.work {
		if x > s.work[best] {
			best = id
		}
	}
	return int32(best)
}

// uniform returns a number in [0,1), a multiple of 2⁻⁵³: the first output of
// ChaCha8 keyed with seed, seq and step (little-endian), so that no other draw
// can shift it.
func (s *Sampler) uniform(seq, step uint64) float64 {
	key := [32]byte{24: 's', 25: 'a', 26: 'm', 27: 'p', 28: 'l', 29: 'e'}
	binary.LittleEndian.PutUint64(key[0:], s.cfg.Seed)
	binary.LittleEndian.PutUint64(key[8:], seq)
	binary.LittleEndian.PutUint64(key[16:], step)
	s.rng.Seed(key)
	return float64(s.rng.Uint64()>>11) * 0x1p-53
}

// draw returns the first candidate whose running sum of probabilities exceeds
// u. Rounding may leave the whole sum a little below 1: then the last
// candidate with a probability above 0 is taken.
func (s *Sampler) draw(u float64) int32 {
	s.softmax()
	if s.list {
		id, _ := s.cut(u)
		return s.cand[id].id
	}
	for k := firstSelection; ; k = s.grow(k) {
		s.selectTop(k)
		if i, ok := s.cut(u); ok || len(s.cand) < k || k >= s.vocab {
			return s.cand[i].id
		}
	}
}

// cut returns the place of the first candidate whose running sum exceeds u, or
// the last with a probability above 0 and false.
func (s *Sampler) cut(u float64) (int, bool) {
	sum, last := 0.0, 0
	for i, c := range s.cand {
		if c.p > 0 {
			last = i
		}
		if sum += float64(c.p); sum > u {
			return i, true
		}
	}
	return last, false
}

// softmax sets the probabilities of the candidates: of the whole row in id
// order while it is uncut, else of the list in its order (numerics.md 3, 5).
func (s *Sampler) softmax() {
	if s.list {
		m := s.cand[0].x
		for _, c := range s.cand[1:] {
			m = max(m, c.x)
		}
		s.exps = s.exps[:0]
		for i := range s.cand {
			s.exps = append(s.exps, canon.Exp(s.cand[i].x-m))
		}
		r := 1 / canon.Sum(s.exps)
		for i := range s.cand {
			s.cand[i].p = s.exps[i] * r
		}
		return
	}
	if s.prob == nil {
		s.prob = make([]float32, s.vocab)
	}
	m := slices.Max(s.work)
	for i, x := range s.work {
		if d := x - m; d > canon.ExpLo { // at and below that exp is +0
			s.prob[i] = canon.Exp(d)
		} else {
			s.prob[i] = 0
		}
	}
	r := 1 / canon.Sum(s.prob)
	for i := range s.prob {
		s.prob[i] *= r
	}
}
