package state

import (
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

// Sum holds a running sum over all rows of a sequence, one chain of adds per
// component in row order (docs/numerics.md 5): what a router takes its mean from.
// Op SumRows fills it.
type Sum struct {
	banked
	width int
}

// NewSum returns an empty sum of rows of so many values.
func NewSum(pool *Pool, id ID, width int) (*Sum, error) {
	if width < 1 {
		return nil, fmt.Errorf("state: running sum of rows of %d values", width)
	}
	return &Sum{banked{pool: pool, id: id, layout: &layout{"running sum", width, []part{{"sum", []int{width}}}}}, width}, nil
}

func (s *Sum) Begin(seg *backend.Seg, rows int) error {
	in, out, err := s.begin(seg, rows)
	if err != nil {
		return err
	}
	seg.SumIn, seg.SumOut = in[0].t, out[0].t
	return nil
}

func (s *Sum) Fork() (State, error) { return &Sum{s.fork(), s.width}, nil }

// Mean returns the sum divided by the number of rows. It fails before the first
// row.
func (s *Sum) Mean() ([]float32, error) {
	if s.n == 0 {
		return nil, fmt.Errorf("state: mean of no rows")
	}
	v := make([]float32, s.width)
	err := s.pool.run(func(st backend.Stream) {
		st.Read(tensor.AsBytes(v), s.cur[0].t)
	})
	if err != nil {
		return nil, fmt.Errorf("state: reading a running sum: %w", err)
	}
	for i := range v {
		v[i] /= float32(s.n)
	}
	return v, nil
}
