package calib

import (
	"fmt"

	"samebit/backend"
	"samebit/grad"
	"samebit/nn"
	"samebit/tensor"
)

// headRows are the rows that get logits at a time, so that logits of a large
// vocabulary need little memory.
const headRows = 128

// head turns rows into logits and compares those of student and teacher. Both models
// have the same head.
type head struct {
	dec    *nn.Decoder // whose norm and head they are
	stream backend.Stream
	g      backend.Grad
	tape   *grad.Tape // of one group of rows at a time
	c      *nn.Ctx    // on the tape
	plain  *nn.Ctx    // on the stream
}

func newHead(dev backend.Device, s backend.Stream, dec *nn.Decoder) (*head, error) {
	tape, err := grad.NewTape(s, dev, nil)
	if err != nil {
		return nil, fmt.Errorf("calib: %w", err)
	}
	g := s.(backend.Grad) // a tape has looked
	return &head{dec: dec, stream: s, g: g, tape: tape, c: nn.NewCtx(tape, dev), plain: nn.NewCtx(s, dev)}, nil
}

func (h *head) close() {
	h.c.Close()
	h.plain.Close()
	h.tape.Close()
}

// logits are those of final rows [n][Hidden], on c.
func (h *head) logits(c *nn.Ctx, hidden []float32) tensor.Tensor {
	n := len(hidden) / h.dec.Hidden
	x, y := c.Tmp(n, h.dec.Hidden), c.Tmp(n, h.dec.Vocab)
	h.stream.Write(x, tensor.AsBytes(hidden))
	h.stream.Linear(y, x, h.dec.Head)
	return y
}

// column is memory for one value per row.
func column(c *nn.Ctx, n int) tensor.Tensor { return c.Tmp(1, n).Reshape(n) }

// indices are whole numbers in scratch memory.
func indices(c *nn.Ctx, v []int32) (tensor.Tensor, error) {
	b, off := c.Tmp(1, len(v)).Buffer()
	if b == nil {
		return tensor.Tensor{}, fmt.Errorf("calib: scratch for %d rows: %w", len(v), backend.ErrNoMemory)
	}
	t, err := tensor.New(b, off, tensor.I32, len(v))
	if err != nil {
		return t, fmt.Errorf("calib: %w", err)
	}
	c.Stream.Write(t, tensor.AsBytes(v))
	return t, nil
}

// terms are the losses of rows, in order.
type terms struct {
	squared, cosine, kl, ce, margin []float32
}

// mean is that of losses in their order.
func mean(losses []float32) float32 { return grad.Mean(losses) }

// total is the mean over the rows.
func (t *terms) total(w Weights) float32 {
	sum := float32(0)
	for _, x := range []struct {
		weight float32
		rows   []float32
	}{{w.squared(), t.squared}, {w.Cosine, t.cosine}, {w.KL, t.kl}, {w.CE, t.ce}, {w.Margin, t.margin}} {
		if x.weight != 0 {
			sum += float32(x.weight * mean(x.rows))
		}
	}
	return sum
}

// loss appends the losses of rows x [n, Hidden], what leaves the last block, to t and
// writes the gradient of scale times the sum of the weighted losses to dx. teacher
// are the teacher's final rows [n][Hidden], after the norm.
func (h *head) loss(t *terms, dx, x tensor.Tensor, teacher []float32, w Weights, scale float32) error {
	c, n := h.c, x.Dim(0)
	defer c.Release(c.Mark())
	y := h.logits(c, teacher)
	norm, s := c.Tmp(n, h.dec.Hidden), c.Tmp(n, h.dec.Vocab)
	h.tape.RMSNorm(norm, x, h.dec.Norm, h.dec.Eps)
	h.tape.Linear(s, norm, h.dec.Head)
	if err := h.distil(t, s, y, w, scale); err != nil {
		return err
	}
	if err := h.tape.Backward(); err != nil {
		h.tape.Reset()
		return err
	}
	h.stream.Copy(dx, h.tape.Grad(x))
	return h.stream.Sync()
}

// distil appends the losses of logits s next to the teacher's y to t, and adds scale
// times the gradient of their weighted sum to that of s, in this order of terms.
func (h *head) distil(t *terms, s, y tensor.Tensor, w Weights, scale float32) error {
	c, n := h.c, s.Dim(0)
	out := column(c, n)
	read := func(to []float32) []float32 {
		v := make([]float32, n)
		h.tape.Read(tensor.AsBytes(v), out)
		return append(to, v...)
	}
	none := tensor.Tensor{}
	if f := w.squared(); f > 0 {
		h.tape.SquaredError(out, s, y, none, f*scale)
		t.squared = read(t.squared)
	}
	if w.Cosine > 0 {
		h.tape.CosineError(out, s, y, none, w.Cosine*scale)
		t.cosine = read(t.cosine)
	}
	if w.KL > 0 {
		h.tape.DistillKL(out, s, y, none, w.Temperature, w.KL*scale)
		t.kl = read(t.kl)
	}
	if w.CE > 0 {
		top, err := indices(c, make([]int32, n))
		if err != nil {
			return err
		}
		h.stream.ArgMax(top, y)
		h.tape.CrossEntropy(out, s, top, none, w.CE*scale)
		t.ce = read(t.ce)
	}
	if w.Margin > 0 {
		if err := h.margin(t, s, y, w, scale); err != nil {
			return err
		}
	}
	return h.tape.Err()
}

// margin wants the teacher's first choice to lie above its second by a gap.
func (h *head) margin(t *terms, s, y tensor.Tensor, w Weights, scale float32) error {
	n, v := s.Dim(0), s.Dim(1)
	student, teacher := make([]float32, n*v), make([]float32, n*v)
	h.stream.Read(tensor.AsBytes(student), s)
	h.stream.Read(tensor.AsBytes(teacher), y)
	if err := h.stream.Sync(); err != nil {
		return err
	}
	d := make([]float32, n*v)
	for r := range n {
		first, second := topTwo(teacher[r*v : (r+1)*v])
		s := student[r*v : (r+1)*v]
		loss := max(0, (w.Gap-s[first])+s[second])
		if loss > 0 {
			d[r*v+first], d[r*v+second] = -(w.Margin * scale), w.Margin*scale
		}
		t.margin = append(t.margin, loss)
	}
	dy := h.c.Tmp(n, v)
	h.stream.Write(dy, tensor.AsBytes(d))
	h.tape.Seed(s, dy)
	return h.tape.Err()
}

// topTwo are the places of the largest and the next value, the first of equals. A
// single value is both.
func topTwo(x []float32) (first, second int) {
	second = min(1, len(x)-1)
	if len(x) > 1 && x[1] > x[0] {
		first, second = 1, 0
	}
	for i := 2; i < len(x); i++ {
		switch {
		case x[i] > x[first]:
			first, second = i, first
		case x[i] > x[second]:
			second = i
		}
	}
	return first, second
}

// Fidelity says how close a student's logits are to the teacher's. Rows that the
// window covers are not counted: there both are the same.
type Fidelity struct {
	Rows   int     `json:"rows"`
	Cosine float64 `json:"mean_logit_cosine"`
	Top1   float64 `json:"top1_agreement"`
	KL     float64 `json:"kl"` // nats, of the teacher's distribution to the student's
	Worst  float32 `json:"max_abs_logit_diff"`
}

// Score is what decides which of two is better: cosine or agreement, whichever is
// less.
func (f *Fidelity) Score() float64 { return min(f.Cosine, f.Top1) }

// add joins the fidelity of another sequence; mean ends a sum of n.
func (f *Fidelity) add(g Fidelity) {
	f.Rows += g.Rows
	f.Cosine += g.Cosine
	f.Top1 += g.Top1
	f.KL += g.KL
	f.Worst = max(f.Worst, g.Worst)
}

func (f *Fidelity) mean(n int) {
	f.Cosine /= float64(n)
	f.Top1 /= float64(n)
	f.KL /= float64(n)
}
