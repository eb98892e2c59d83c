package calib

import (
	"context"
	"fmt"
	"slices"

	"samebit/backend"
	"samebit/nn"
	"samebit/qcc"
	"samebit/tensor"
)

// Compare measures how close a student's logits are to a teacher's of the same
// vocabulary, on rows of each sequence from a row on, the mean over sequences.
// Sequences without such rows are left out.
func Compare(ctx context.Context, dev backend.Device, teacher, student *nn.Decoder, sequences [][]int32, from int) (Fidelity, error) {
	var sum Fidelity
	if dev == nil || teacher == nil || student == nil || teacher.Head == nil || student.Head == nil || teacher.Vocab != student.Vocab {
		return sum, fmt.Errorf("calib: compare wants a device and two models with heads and one vocabulary: %w", ErrOptions)
	}
	if from < 0 {
		return sum, fmt.Errorf("calib: compare from row %d: want at least 0: %w", from, ErrOptions)
	}
	s, err := dev.NewStream()
	if err != nil {
		return sum, fmt.Errorf("calib: %w", err)
	}
	defer s.Close()
	var heads [2]*head
	for i, d := range []*nn.Decoder{student, teacher} {
		if heads[i], err = newHead(dev, s, d); err != nil {
			return sum, err
		}
		defer heads[i].close()
	}
	r, err := newReader(dev, s)
	if err != nil {
		return sum, err
	}
	defer r.close()
	n := 0
	for _, tokens := range sequences {
		if len(tokens) <= from {
			continue
		}
		x, err := r.final(ctx, student, tokens, from)
		if err != nil {
			return sum, err
		}
		y, err := r.final(ctx, teacher, tokens, from)
		if err != nil {
			return sum, err
		}
		f, err := compare(heads[0], heads[1], x, y)
		if err != nil {
			return sum, err
		}
		sum.add(f)
		n++
	}
	if n == 0 {
		return sum, fmt.Errorf("calib: none of %d sequences is longer than %d tokens: nothing to compare: %w", len(sequences), from, ErrOptions)
	}
	sum.mean(n)
	return sum, nil
}

// WindowRows is the number of original rows whose keys and values take at least the
// bytes of window, addresses, sinks and archive or matrices of a layer.
func WindowRows(c qcc.Config) int {
	kv := c.KV
	if kv == 0 {
		kv = c.Heads
	}
	n := int(c.Elements(1)) + 2*kv*c.Sinks*c.Dim
	if c.Memory == qcc.MemoryArchive && c.PositionInvariant && c.RoPE != nil && !c.Lexical {
		n += kv * c.Window * c.Dim
	}
	row := 2 * kv * c.Dim
	return (n + row - 1) / row
}

// Windowed is a model whose full attention sees the last rows alone, in some blocks,
// nil for all: what a bounded state of so many rows is without an archive. It shares
// the weights of d, and its states keep all rows.
func Windowed(d *nn.Decoder, blocks []int, window int) (*nn.Decoder, error) {
	if d == nil || window < 1 {
		return nil, fmt.Errorf("calib: a window of %d rows: want a model and at least 1: %w", window, ErrOptions)
	}
	w := *d
	w.Closers = nil
	w.Blocks = append([]nn.Block(nil), d.Blocks...)
	for i := range w.Blocks {
		a, ok := w.Blocks[i].Mix.(*nn.Attention)
		if ok && a.Window == 0 && (blocks == nil || slices.Contains(blocks, i)) {
			c := *a
			c.Window = window
			w.Blocks[i].Mix = &c
		}
	}
	return &w, nil
}

// compare measures the fidelity of final rows [n][Hidden] of a student and its
// teacher.
func compare(student, teacher *head, x, y []float32) (Fidelity, error) {
	var f Fidelity
	var cosines, kls []float32
	rows := len(x) / student.dec.Hidden
	if len(y) != rows*teacher.dec.Hidden {
		return f, fmt.Errorf("calib: compare %d values with %d: want as many rows of each", len(x), len(y))
	}
	same := 0
	for at := 0; at < rows; at += headRows {
		to := min(at+headRows, rows)
		cos, kl, err := f.group(student, teacher, x[at*student.dec.Hidden:to*student.dec.Hidden], y[at*teacher.dec.Hidden:to*teacher.dec.Hidden], &same)
		if err != nil {
			student.stream.Reset()
			return f, fmt.Errorf("calib: compare: %w", err)
		}
		cosines, kls = append(cosines, cos...), append(kls, kl...)
	}
	f.Rows = rows
	if rows > 0 {
		f.Cosine, f.KL, f.Top1 = 1-float64(mean(cosines)), float64(mean(kls)), float64(same)/float64(rows)
	}
	return f, nil
}

// group compares a group of rows: 1 - cosine and divergence of each, and in f and
// same what needs no order.
func (f *Fidelity) group(student, teacher *head, x, y []float32, same *int) (cos, kl []float32, err error) {
	h, c, v := student, student.plain, student.dec.Vocab
	defer c.Release(c.Mark())
	s, t := student.logits(c, x), teacher.logits(c, y)
	n := s.Dim(0)
	out, none := [2]tensor.Tensor{column(c, n), column(c, n)}, tensor.Tensor{}
	h.g.CosineError(out[0], none, s, t, none, 1)
	h.g.DistillKL(out[1], none, s, t, none, 1, 1)
	a, b := make([]float32, n*v), make([]float32, n*v)
	cos, kl = make([]float32, n), make([]float32, n)
	h.stream.Read(tensor.AsBytes(cos), out[0])
	h.stream.Read(tensor.AsBytes(kl), out[1])
	h.stream.Read(tensor.AsBytes(a), s)
	h.stream.Read(tensor.AsBytes(b), t)
	if err := h.stream.Sync(); err != nil {
		return nil, nil, err
	}
	for r := range n {
		x, y := a[r*v:(r+1)*v], b[r*v:(r+1)*v]
		i, _ := topTwo(x)
		if j, _ := topTwo(y); i == j {
			*same++
		}
		for k := range x {
			f.Worst = max(f.Worst, x[k]-y[k], y[k]-x[k])
		}
	}
	return cos, kl, nil
}
