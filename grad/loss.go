package grad

import (
	"samebit/internal/canon"
	"samebit/tensor"
)

// The losses write the loss of each row and add scale times their gradient to that
// of x at once; Backward takes them from there. A mean over a batch of n counted
// rows has scale 1/n in every pass of the batch. See backend.Grad for the formulas.

// CrossEntropy is logsumexp(x[r]) - x[r, targets[r]] of logits x [R, V], times
// weights[r]; a row with a negative target does not count.
func (t *Tape) CrossEntropy(loss, x, targets, weights tensor.Tensor, scale float32) {
	if t.Err() != nil {
		return
	}
	t.begin()
	if d := t.into(x); t.err == nil {
		t.g.CrossEntropy(loss, d, x, targets, weights, scale)
	}
}

// DistillKL is t²·KL(softmax(y/t) ‖ softmax(x/t)) of a student's logits x and a
// teacher's y.
func (t *Tape) DistillKL(loss, x, y, weights tensor.Tensor, temperature, scale float32) {
	if d, ok := t.lossOf(x); ok {
		t.g.DistillKL(loss, d, x, y, weights, temperature, scale)
	}
}

// SquaredError is the mean of the squares of x - y.
func (t *Tape) SquaredError(loss, x, y, weights tensor.Tensor, scale float32) {
	if d, ok := t.lossOf(x); ok {
		t.g.SquaredError(loss, d, x, y, weights, scale)
	}
}

// CosineError is 1 - cos(x, y).
func (t *Tape) CosineError(loss, x, y, weights tensor.Tensor, scale float32) {
	if d, ok := t.lossOf(x); ok {
		t.g.CosineError(loss, d, x, y, weights, scale)
	}
}

func (t *Tape) lossOf(x tensor.Tensor) (tensor.Tensor, bool) {
	if t.Err() != nil {
		return tensor.Tensor{}, false
	}
	t.begin()
	d := t.grad(x)
	return d, t.err == nil
}

// Mean is the mean of losses in their order (numerics.md 10): RSUM, then a division
// by their number; 0 of none.
func Mean(losses []float32) float32 {
	if len(losses) == 0 {
		return 0
	}
	return canon.Sum(losses) / float32(len(losses))
}
