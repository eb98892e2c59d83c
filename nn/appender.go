package nn

import (
	"samebit/state"
	"samebit/tensor"
)

// Adopt makes the runner the sequence that had these rows, reading its state from
// the named tensors that Snapshot.Save handed out; each tensor must stay valid
// until Adopt returns. The caller must know that the tensors belong to this model
// and these rows. A failure leaves the sequence as it was. There are no logits
// until the next Append.
func (r *Runner) Adopt(rows []state.Row, get func(name string) (tensor.Tensor, error)) error {
	if err := r.usable(); err != nil {
		return err
	}
	if err := r.State().Load(len(rows), get); err != nil {
		return err
	}
	r.rows, r.fresh = append(r.rows[:0:0], rows...), false
	return nil
}
