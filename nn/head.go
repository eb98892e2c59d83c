package nn

import (
	"context"

	"samebit/tensor"
)

// headRows is how many rows get logits at a time: enough for the weights to be
// read once per group, few enough that a large vocabulary needs little scratch.
const headRows = 64

// head computes what is wanted of the rows and reads it: rows with logits first,
// then those without.
func (d *Decoder) head(ctx context.Context, c *Ctx, x tensor.Tensor, seqs []Seq) error {
	for i := range seqs {
		s := &seqs[i]
		k := s.wanted()
		s.Logits = s.Logits[:0]
		if d.logits(s) {
			s.Logits = grow(s.Logits, k*d.Vocab)
		}
		if s.NeedHidden {
			s.Hidden = grow(s.Hidden, k*d.Hidden)
		}
	}
	for _, logits := range [2]bool{true, false} {
		d.collect(c, seqs, logits)
		cur := cursor{d: d, seqs: seqs, logits: logits}
		for i := 0; i < len(c.want); i += headRows {
			if err := ctx.Err(); err != nil {
				return err
			}
			d.group(c, x, c.want[i:min(i+headRows, len(c.want))], &cur)
		}
	}
	return nil
}

// logits reports whether wanted rows of s get logits.
func (d *Decoder) logits(s *Seq) bool { return d.Head != nil && !s.NoLogits }

// takes reports whether the wanted rows of s belong to those with or without
// logits.
func (d *Decoder) takes(s *Seq, logits bool) bool {
	return d.logits(s) == logits && (logits || s.NeedHidden)
}

// collect lists the rows of the pass that are wanted with or without logits.
func (d *Decoder) collect(c *Ctx, seqs []Seq, logits bool) {
	c.want = c.want[:0]
	row := 0
	for i := range seqs {
		s := &seqs[i]
		if d.takes(s, logits) {
			for k := range s.wanted() {
				c.want = append(c.want, int32(row+s.row(k)))
			}
		}
		row += len(s.In)
	}
}

// group does the rows w of x, which cur walks.
func (d *Decoder) group(c *Ctx, x tensor.Tensor, w []int32, cur *cursor) {
	defer c.Release(c.Mark())
	h := c.Tmp(len(w), d.Hidden)
	c.Stream.Gather(h, x, c.indices(w))
	if d.Norm.Valid() {
		g := h
		h = c.Tmp(len(w), d.Hidden)
		c.Stream.RMSNorm(h, g, d.Norm, d.Eps)
	}
	var logits tensor.Tensor
	if cur.logits {
		logits = c.Tmp(len(w), d.Vocab)
		c.Stream.Linear(logits, h, d.Head)
	}
	for j := range w {
		s, k := cur.next()
		if cur.logits {
			c.Stream.Read(tensor.AsBytes(s.Logits[k*d.Vocab:(k+1)*d.Vocab]), logits.Rows(j, j+1))
		}
		if s.NeedHidden {
			c.Stream.Read(tensor.AsBytes(s.Hidden[k*d.Hidden:(k+1)*d.Hidden]), h.Rows(j, j+1))
		}
	}
}

func (s *Seq) wanted() int {
	switch s.Want {
	case WantLast:
		return 1
	case WantAll:
		return len(s.In)
	case WantRows:
		return len(s.At)
	}
	return 0
}

// row is the k-th wanted row.
func (s *Seq) row(k int) int {
	switch s.Want {
	case WantLast:
		return len(s.In) - 1
	case WantRows:
		return s.At[k]
	}
	return k
}

// cursor walks the wanted rows of a pass in order, those with or without logits.
type cursor struct {
	d      *Decoder
	seqs   []Seq
	logits bool
	i, k   int
}

func (c *cursor) next() (*Seq, int) {
	for !c.d.takes(&c.seqs[c.i], c.logits) || c.k >= c.seqs[c.i].wanted() {
		c.i, c.k = c.i+1, 0
	}
	c.k++
	return &c.seqs[c.i], c.k - 1
}

func grow(v []float32, n int) []float32 {
	if cap(v) < n {
		return make([]float32, n)
	}
	return v[:n]
}
