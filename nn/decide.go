package nn

import (
	"context"
	"fmt"
	"slices"

	"samebit/state"
)

// Question asks for the probabilities of a few tokens after one row.
type Question struct {
	At      int     // row, within the rows of the call
	Options []int32 // tokens; their order is that of the answer
}

// Decide runs rows and answers questions about them: for each the softmax, over
// its options alone, of the logits after its row. Only the options' outputs of the
// head are computed; their bits are those of the full logits.
//
// Like Append it leaves the rows of finished chunks when it fails; bad questions
// are refused before anything runs. It leaves no logits: those need an Append.
func (r *Runner) Decide(ctx context.Context, rows []state.Row, questions []Question) ([][]float32, error) {
	d := r.dec
	if d.Head == nil {
		return nil, fmt.Errorf("nn: decisions of a lower half, which has no head")
	}
	var at []int
	for i, q := range questions {
		if q.At < 0 || q.At >= len(rows) {
			return nil, fmt.Errorf("nn: question %d is about row %d of %d", i, q.At, len(rows))
		}
		if err := d.checkOptions(q.Options); err != nil {
			return nil, fmt.Errorf("nn: question %d: %w", i, err)
		}
		at = append(at, q.At)
	}
	if err := r.fits(len(rows)); err != nil {
		return nil, err
	}
	slices.Sort(at)
	at = slices.Compact(at)
	hidden, err := r.hiddenAt(ctx, rows, at)
	if err != nil {
		return nil, err
	}
	answers := make([][]float32, len(questions))
	for i, q := range questions {
		k, _ := slices.BinarySearch(at, q.At)
		if _, answers[i], err = d.Decide(r.c, hidden[k*d.Hidden:(k+1)*d.Hidden], q.Options); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// hiddenAt runs rows and returns the final normed rows at rising places.
func (r *Runner) hiddenAt(ctx context.Context, rows []state.Row, at []int) ([]float32, error) {
	s := &r.seq[0]
	defer func(no bool) { s.NoLogits, s.At = no, nil }(s.NoLogits)
	s.NoLogits = true
	var hidden []float32
	for done := 0; done < len(rows); {
		n := min(r.cfg.ChunkRows, len(rows)-done)
		s.At = s.At[:0]
		for len(at) > 0 && at[0] < done+n {
			s.At = append(s.At, at[0]-done)
			at = at[1:]
		}
		err := r.pass(ctx, rows[done:done+n], WantRows)
		r.fresh = false
		if err != nil {
			return nil, err
		}
		hidden = append(hidden, s.Hidden[:len(s.At)*r.dec.Hidden]...)
		done += n
	}
	return hidden, nil
}

func (d *Decoder) checkOptions(options []int32) error {
	if len(options) == 0 {
		return fmt.Errorf("no options to choose from")
	}
	for _, o := range options {
		if o < 0 || int(o) >= d.Vocab {
			return fmt.Errorf("option %d is outside the vocabulary of %d", o, d.Vocab)
		}
	}
	return nil
}

// Decide returns the logits and the probabilities of options after a final normed
// row [H], such as Runner.Hidden: outputs of the head and their softmax
// (docs/numerics.md 5), both in the order of options.
func (d *Decoder) Decide(c *Ctx, hidden []float32, options []int32) (logits, probs []float32, err error) {
	switch {
	case d.Head == nil:
		return nil, nil, fmt.Errorf("nn: decisions of a lower half, which has no head")
	case len(hidden) != d.Hidden:
		return nil, nil, fmt.Errorf("nn: deciding from a row of %d values, the model's width is %d", len(hidden), d.Hidden)
	}
	if err := d.checkOptions(options); err != nil {
		return nil, nil, fmt.Errorf("nn: %w", err)
	}
	defer c.Release(c.Mark())
	n := len(options)
	h, l, p := c.Tmp(1, d.Hidden), c.Tmp(1, n), c.Tmp(1, n)
	logits, probs = make([]float32, n), make([]float32, n)
	c.Stream.Write(h, floatBytes(hidden))
	c.Stream.LinearRows(l, h, d.Head, c.indices(options))
	c.Stream.Softmax(p, l)
	c.Stream.Read(floatBytes(logits), l)
	c.Stream.Read(floatBytes(probs), p)
	if err := c.Stream.Sync(); err != nil {
		c.Stream.Reset()
		if c.arena.err != nil {
			err, c.arena.err = c.arena.err, nil
		}
		return nil, nil, fmt.Errorf("nn: deciding between %d options: %w", n, err)
	}
	return logits, probs, nil
}
