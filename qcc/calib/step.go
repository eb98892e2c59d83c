package calib

import (
	"context"
	"errors"
	"fmt"

	"samebit/backend"
	"samebit/grad"
	"samebit/grad/lm"
	"samebit/nn"
	"samebit/tensor"
)

// step makes one optimiser step.
func (r *run) step(ctx context.Context, n int, rate float64) (Step, error) {
	batch := make([]*lesson, r.o.Chunks)
	counted, compared := 0, 0
	for i := range batch {
		batch[i] = r.lessons[((n-1)*r.o.Chunks+i)%len(r.lessons)]
		counted += len(batch[i].tokens) - batch[i].from
		compared += len(batch[i].at)
	}
	var t terms
	w := &watching{squared: make([][]float32, len(r.chosen)), cosine: make([][]float32, len(r.chosen))}
	if r.o.Attention > 0 {
		w.scale = r.o.Attention * 0.5 / float32(len(r.chosen)*compared)
	}
	scale := (1 - r.o.Attention) / float32(counted)
	for from := 0; from < len(batch); {
		to, size := from+1, len(batch[from].tokens)
		for to < len(batch) && size+len(batch[to].tokens) <= r.microRows() {
			size += len(batch[to].tokens)
			to++
		}
		w.batch = batch[from:to]
		if err := r.pass(ctx, w, &t, scale); err != nil {
			return Step{}, err
		}
		from = to
	}
	s := Step{Step: n, Steps: r.o.Steps, Logits: t.total(r.o.Weights), Rate: rate}
	for i := range r.chosen {
		s.Attention += half(w.squared[i], w.cosine[i])
	}
	s.Attention /= float32(len(r.chosen))
	s.Loss = float32((1-r.o.Attention)*s.Logits) + float32(r.o.Attention*s.Attention)
	if err := checkFinite(n, s.Loss); err != nil {
		return s, err
	}
	var err error
	if s.Norm, err = r.adam.Step(rate); err != nil {
		return s, errors.Join(checkFinite(n, s.Norm), err)
	}
	return s, nil
}

// half is the loss of outputs: half of each mean.
func half(squared, cosine []float32) float32 {
	return float32(0.5*mean(squared)) + float32(0.5*mean(cosine))
}

func (r *run) microRows() int {
	if r.o.MicroRows == 0 {
		return 1024
	}
	return r.o.MicroRows
}

// pass runs a micro-batch and takes it back.
func (r *run) pass(ctx context.Context, w *watching, t *terms, scale float32) error {
	sequences := make([][]int32, len(w.batch))
	for i, l := range w.batch {
		sequences[i] = l.tokens
	}
	r.now = w
	err := r.lm.Pass(ctx, sequences, func(p *lm.Pass) error {
		if w.err != nil {
			return w.err
		}
		h := r.teacher.Hidden
		dx := p.Ctx.Tmp(p.Rows.Dim(0), h)
		p.Stream.(backend.Grad).Zero(dx) // a tape has looked
		row := 0
		for _, l := range w.batch {
			if r.o.Attention == 1 {
				break
			}
			for a := l.from; a < len(l.tokens); a += headRows {
				b := min(a+headRows, len(l.tokens))
				if err := r.head.loss(t, dx.Rows(row+a, row+b), p.Rows.Rows(row+a, row+b), l.final[(a-l.from)*h:(b-l.from)*h], r.o.Weights, scale); err != nil {
					return err
				}
			}
			row += len(l.tokens)
		}
		p.Tape.Seed(p.Rows, dx)
		return p.Tape.Err()
	})
	if err != nil {
		return fmt.Errorf("calib: %w", err)
	}
	return nil
}

// watching compares outputs of layers while a pass makes them.
type watching struct {
	batch           []*lesson // of the pass
	scale           float32
	squared, cosine [][]float32 // losses by layer
	err             error
}

// see is called by the student's chosen layers.
func (r *run) see(i int, c *nn.Ctx, dst, _ tensor.Tensor) {
	w := r.now
	var at []int32
	var want []float32
	row := int32(0)
	for _, l := range w.batch {
		for _, t := range l.at {
			at = append(at, row+t)
		}
		want = append(want, l.outs[i]...)
		row += int32(len(l.tokens))
	}
	idx, err := indices(c, at)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	tape, ok := c.Stream.(*grad.Tape)
	if !ok {
		w.err = errors.Join(w.err, fmt.Errorf("calib: a pass without a tape is watched: %w", backend.ErrUnsupported))
		return
	}
	y := c.Tmp(len(at), dst.Dim(1))
	tape.Gather(y, dst, idx)
	squared, cosine := outputs(c, tape, y, want, w.scale)
	w.squared[i] = append(w.squared[i], squared...)
	w.cosine[i] = append(w.cosine[i], cosine...)
}

// outputs returns squared error and 1 - cosine of rows y next to want, and adds scale
// times the gradient of both to that of y.
func outputs(c *nn.Ctx, tape *grad.Tape, y tensor.Tensor, want []float32, scale float32) (squared, cosine []float32) {
	n := y.Dim(0)
	target, out, none := c.Tmp(n, y.Dim(1)), column(c, n), tensor.Tensor{}
	tape.Write(target, tensor.AsBytes(want))
	squared, cosine = make([]float32, n), make([]float32, n)
	tape.SquaredError(out, y, target, none, scale)
	tape.Read(tensor.AsBytes(squared), out)
	tape.CosineError(out, y, target, none, scale)
	tape.Read(tensor.AsBytes(cosine), out)
	return squared, cosine
}
