package qcc

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// SieveScore says which rows a [Sieve] keeps besides the first and the last ones.
type SieveScore string

const (
	SieveNovel  SieveScore = "novel"  // whose key and value are least like the head's others
	SieveRecent SieveScore = "recent" // the last ones: a sliding window
)

// Sieve is a cache of a fixed number of original rows per key head: after every 64
// rows each head keeps those that its score prefers. Nothing is trained. What a row
// sees follows from the text before it alone, whatever its cut into passes; nothing
// looks at later rows, nor at questions. The zero value keeps 256 slots.
type Sieve struct {
	Slots  int        `json:"slots"`  // kept per key head, a multiple of 64; up to 64 rows more lie beside them. 0: 256
	Recent int        `json:"recent"` // of them the last rows; 0: a quarter
	Sinks  int        `json:"sinks"`  // of them the first rows; 0: 4, negative: none
	Score  SieveScore `json:"score"`  // "": SieveNovel
}

func (c Sieve) resolved() (Sieve, error) {
	if c.Slots == 0 {
		c.Slots = 256
	}
	if c.Recent == 0 {
		c.Recent = c.Slots / 4
	}
	if c.Sinks == 0 {
		c.Sinks = 4
	}
	c.Sinks = max(c.Sinks, 0)
	if c.Score == "" {
		c.Score = SieveNovel
	}
	switch {
	case c.Slots < backend.Page || c.Slots%backend.Page != 0 || c.Slots > 1<<24:
		return c, fmt.Errorf("qcc: a sieve of %d slots: want a multiple of %d, at most 2^24: %w", c.Slots, backend.Page, ErrConfig)
	case c.Recent < 1 || c.Recent+c.Sinks > c.Slots:
		return c, fmt.Errorf("qcc: a sieve of %d slots for %d first and %d last rows: want at least one last row, and room for all: %w", c.Slots, c.Sinks, c.Recent, ErrConfig)
	case c.Score != SieveNovel && c.Score != SieveRecent:
		return c, fmt.Errorf("qcc: score %q: want %q or %q: %w", c.Score, SieveNovel, SieveRecent, ErrConfig)
	}
	return c, nil
}

// Sieved is a model whose full attention keeps a fixed number of rows. It shares the
// weights of d, which must outlive it, and must not be closed. Recurrent layers stay
// as they are; models with sliding windows or archives are refused with ErrConfig.
func Sieved(d *nn.Decoder, c Sieve) (*nn.Decoder, error) {
	c, err := c.resolved()
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, fmt.Errorf("qcc: no model to put a sieve on: %w", ErrConfig)
	}
	if err := countless(d, "a sieve on"); err != nil {
		return nil, err
	}
	s := *d
	s.Closers, s.Bounded = nil, true
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	s.ID = sha256.Sum256(append(append([]byte("samebit.qcc.sieve/1"), d.ID[:]...), b...))
	rest := d.Shapes
	rest.KV = state.KVShape{}
	s.NewState = func(p *state.Pool) (state.State, error) {
		v, err := state.NewSieve(p, s.ID, d.Shapes.KV, c.Slots, c.choose)
		if err != nil {
			return nil, err
		}
		return beside(rest, s.ID, p, v)
	}
	return &s, nil
}

// choose keeps the first and the last rows and of the others those with the highest
// scores, the later of equals.
func (c Sieve) choose(_, _ int, keys, values tensor.Tensor, keep int) ([]int, error) {
	n := keys.Dim(0)
	score := make([]float64, n)
	if c.Score == SieveNovel {
		unlike(score, keys)
		unlike(score, values)
	}
	// a NaN comes last, so that the order is one
	for i, x := range score {
		if x != x {
			score[i] = math.Inf(-1)
		}
	}
	first, last := min(c.Sinks, n), n-c.Recent
	order := make([]int, 0, n)
	for i := first; i < last; i++ {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(score[b], score[a]), b-a) })
	list := order[:keep-first-c.Recent]
	for i := range first {
		list = append(list, i)
	}
	for i := last; i < n; i++ {
		list = append(list, i)
	}
	slices.Sort(list)
	return list, nil
}

// unlike adds to the scores of rows x [n, D] by how far each points away from the
// direction that they have in common:
//
//	score_i += -(x_i/|x_i|)·m/|m|,  m = Σ_i x_i/|x_i|
//
// in float64, sums in rising order, every product rounded by itself: the same bits
// on every machine.
func unlike(score []float64, x tensor.Tensor) {
	mean, lengths := make([]float64, x.Dim(1)), make([]float64, len(score))
	for i := range score {
		row := x.Row(i)
		sum := 0.0
		for _, v := range row {
			sum += float64(float64(v) * float64(v))
		}
		lengths[i] = positive(math.Sqrt(sum))
		for j, v := range row {
			mean[j] += float64(v) / lengths[i]
		}
	}
	sum := 0.0
	for _, v := range mean {
		sum += float64(v * v)
	}
	length := positive(math.Sqrt(sum))
	for i := range score {
		sum := 0.0
		for j, v := range x.Row(i) {
			sum += float64(float64(v) * mean[j])
		}
		score[i] -= sum / lengths[i] / length
	}
}

// positive is a length to divide by: that of nothing is 1.
func positive(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}
