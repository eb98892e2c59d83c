package nn

import (
	"fmt"
	"slices"

	"samebit/state"
	"samebit/tensor"
)

// ResumeAt is Resume of a sequence whose last final normed row [H] is known, as
// Hidden or AppendHidden gave it. It leaves the logits of that row, for one product
// with the head and no pass: what a Rewind to the end would run again, all rows of a
// recurrent model.
func (r *Runner) ResumeAt(rows []state.Row, snap state.Snapshot, hidden []float32) error {
	d, c, s := r.dec, r.c, &r.seq[0]
	switch err := r.usable(); {
	case err != nil:
		return err
	case d.Head == nil:
		return fmt.Errorf("nn: logits of a lower half, which has no head: use Resume")
	case c.Stream == nil:
		return fmt.Errorf("nn: logits of a runner without a stream of its own: use Resume")
	case len(hidden) != d.Hidden:
		return fmt.Errorf("nn: resuming at a row of %d values, the model's width is %d", len(hidden), d.Hidden)
	}
	logits := make([]float32, d.Vocab)
	if err := c.product(logits, hidden, d); err != nil {
		return fmt.Errorf("nn: logits of the last row: %w", err)
	}
	if err := r.Resume(rows, snap); err != nil {
		return err
	}
	s.Logits, s.Hidden, r.fresh = logits, slices.Clone(hidden), true
	return nil
}

// product writes the head's outputs for a final normed row.
func (c *Ctx) product(logits, hidden []float32, d *Decoder) error {
	defer c.Release(c.Mark())
	h, l := c.Tmp(1, d.Hidden), c.Tmp(1, d.Vocab)
	c.Stream.Write(h, tensor.AsBytes(hidden))
	c.Stream.Linear(l, h, d.Head)
	c.Stream.Read(tensor.AsBytes(logits), l)
	err := c.Stream.Sync()
	if err != nil {
		c.Stream.Reset()
		if c.arena.err != nil {
			err, c.arena.err = c.arena.err, nil
		}
	}
	return err
}
