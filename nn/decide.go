package nn

import (
	"context"
	"fmt"
	"slices"

	"samebit/state"
	"samebit/tensor"
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
	asked := slices.Clone(questions)
	for i, q := range questions {
		if q.At < 0 || q.At >= len(rows) {
			return nil, fmt.Errorf("nn: question %d is about row %d of %d", i, q.At, len(rows))
		}
		asked[i].At += r.Len()
	}
	a, err := r.Ask(asked)
	if err != nil {
		return nil, err
	}
	if err := a.Append(ctx, rows); err != nil {
		return nil, err
	}
	return a.Answers(), nil
}

// Asker is a Runner that answers questions when their rows are run, by whoever
// runs them: given to a cache in the runner's place it makes decisions with no more
// work than the rows that the cache does not have.
type Asker struct {
	*Runner
	questions []Question
	answers   [][]float32
}

// Ask returns the runner as an Asker. Rows of questions count from the beginning
// of the sequence and are to come.
func (r *Runner) Ask(questions []Question) (*Asker, error) {
	switch err := r.usable(); {
	case err != nil:
		return nil, err
	case r.dec.Head == nil:
		return nil, fmt.Errorf("nn: questions to a lower half, which has no head")
	case r.c.Stream == nil:
		return nil, fmt.Errorf("nn: questions to a runner without a stream of its own: give NewRunner one")
	}
	for i, q := range questions {
		if q.At < 0 {
			return nil, fmt.Errorf("nn: question %d is about row %d", i, q.At)
		}
		if err := r.dec.checkOptions(q.Options); err != nil {
			return nil, fmt.Errorf("nn: question %d: %w", i, err)
		}
	}
	return &Asker{r, questions, make([][]float32, len(questions))}, nil
}

// Answers are the probabilities of each question's options; nil where the row was
// not run by Append.
func (a *Asker) Answers() [][]float32 { return a.answers }

// Append runs rows and answers the questions about them. It leaves no logits.
func (a *Asker) Append(ctx context.Context, rows []state.Row) error {
	if err := a.fits(len(rows)); err != nil {
		return err
	}
	s, h := &a.seq[0], a.dec.Hidden
	defer func(no bool) { s.NoLogits, s.At = no, nil }(s.NoLogits)
	s.NoLogits = true
	for done := 0; done < len(rows); {
		n := a.next(len(rows) - done)
		from := a.Len()
		s.At = s.At[:0]
		for _, q := range a.questions {
			if q.At >= from && q.At < from+n {
				s.At = append(s.At, q.At-from)
			}
		}
		slices.Sort(s.At)
		s.At = slices.Compact(s.At)
		err := a.pass(ctx, rows[done:done+n], WantRows)
		a.fresh = false
		if err != nil {
			return err
		}
		for i, q := range a.questions {
			k, ok := slices.BinarySearch(s.At, q.At-from)
			if !ok {
				continue
			}
			if _, a.answers[i], err = a.dec.Decide(a.c, s.Hidden[k*h:(k+1)*h], q.Options); err != nil {
				return err
			}
		}
		done += n
	}
	return nil
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
		return nil, nil, fmt.Errorf("nn: questions to a lower half, which has no head")
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
	c.Stream.Write(h, tensor.AsBytes(hidden))
	c.Stream.LinearRows(l, h, d.Head, c.indices(options))
	c.Stream.Softmax(p, l)
	c.Stream.Read(tensor.AsBytes(logits), l)
	c.Stream.Read(tensor.AsBytes(probs), p)
	if err := c.Stream.Sync(); err != nil {
		c.Stream.Reset()
		if c.arena.err != nil {
			err, c.arena.err = c.arena.err, nil
		}
		return nil, nil, fmt.Errorf("nn: deciding between %d options: %w", n, err)
	}
	return logits, probs, nil
}
