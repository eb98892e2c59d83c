package qcc

import (
	"context"
	"fmt"

	"samebit/backend"
	"samebit/nn"
	"samebit/tensor"
)

// Layer is one attention layer with its projections. It is immutable and safe for
// concurrent use; each State belongs to one goroutine.
type Layer struct {
	*engine
	Config Config

	trainer trainer
}

// Block are rows of a text: hidden rows [T, Hidden] and, with lexical addressing,
// hints [T, Hidden]; without Hint the rows are their own hints.
type Block struct{ Hidden, Hint []float32 }

// forwardRows is how many rows Forward puts into a pass.
const forwardRows = 512

// New opens a layer on a device. It fails with backend.ErrUnsupported if the device
// has no archive attention, with ErrConfig or ErrShape if something does not fit.
func New(dev backend.Device, c Config, pr *Projections, p *Params) (*Layer, error) {
	if pr == nil {
		return nil, fmt.Errorf("qcc: a layer needs projections: %w", ErrShape)
	}
	e, err := newEngine(dev, c, p, pr)
	if err != nil {
		return nil, err
	}
	return &Layer{engine: e, Config: c}, nil
}

// NewState returns an empty state. Release it when done.
func (l *Layer) NewState() (*State, error) { return NewState(l.pool, l.id, l.Config, 1) }

// Step writes the output [Hidden] of one token.
func (l *Layer) Step(dst []float32, st *State, in Block) error {
	if len(in.Hidden) != l.Config.Hidden {
		return fmt.Errorf("qcc: a step takes a row of %d values, not %d: %w", l.Config.Hidden, len(in.Hidden), ErrShape)
	}
	return l.Chunk(context.Background(), dst, st, in)
}

// Chunk writes the outputs [T, Hidden] of any number of tokens, with the bits of as
// many steps, unless the configuration uses reads again (Config.Reuses). A chunk of
// one token is a step. After an error or a cancelled context the state is as it was.
func (l *Layer) Chunk(ctx context.Context, dst []float32, st *State, in Block) error {
	n, err := l.rows(dst, st, in)
	if err != nil || n == 0 {
		return err
	}
	w := l.Config.Hidden
	return l.pass(ctx, dst, []share{{st, n}}, func(c *nn.Ctx, rows int) tensor.Tensor {
		x := put(c, in.Hidden, rows, w)
		hint := x
		if in.Hint != nil && l.Config.Lexical {
			hint = put(c, in.Hint, rows, w)
		}
		y := c.Tmp(rows, w)
		l.mixer.MixHint(c, y, x, hint)
		return y
	})
}

func (l *Layer) rows(dst []float32, st *State, in Block) (int, error) {
	w := l.Config.Hidden
	n := len(in.Hidden) / w
	if len(in.Hidden) != n*w || len(dst) != n*w || in.Hint != nil && len(in.Hint) != n*w {
		return 0, fmt.Errorf("qcc: %d values in, %d hints, %d out: want whole rows of %d, as many of each: %w", len(in.Hidden), len(in.Hint), len(dst), w, ErrShape)
	}
	if st == nil || st.id != l.id {
		return 0, fmt.Errorf("qcc: the state was not made by this layer: %w", ErrDigest)
	}
	return n, nil
}

// Prefill is Chunk in passes of a bounded number of rows.
func (l *Layer) Prefill(ctx context.Context, dst []float32, st *State, in Block) error {
	n, err := l.rows(dst, st, in)
	if err != nil {
		return err
	}
	w := l.Config.Hidden
	for at := 0; at < n; {
		to := min(n, at+forwardRows)
		if to == n-1 { // a pass of one row would be a step
			to = n
		}
		b := Block{Hidden: in.Hidden[at*w : to*w]}
		if in.Hint != nil {
			b.Hint = in.Hint[at*w : to*w]
		}
		if err := l.Chunk(ctx, dst[at*w:to*w], st, b); err != nil {
			return err
		}
		at = to
	}
	return nil
}

// Forward writes the outputs of a whole text, from a fresh state that it forgets.
func (l *Layer) Forward(ctx context.Context, dst []float32, in Block) error {
	st, err := l.NewState()
	if err != nil {
		return err
	}
	defer st.Release()
	return l.Prefill(ctx, dst, st, in)
}
