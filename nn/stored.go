package nn

import (
	"crypto/sha256"
	"fmt"

	"samebit/tensor"
)

// WithKV returns a decoder that shares everything with d and stores keys and values as
// dt: F32, which a zero dt means too, or BF16, which takes half the memory, is read
// faster at depth and gives other logits, the same ones for the same rows on every path
// (docs/numerics.md 9). States of one type are not those of the other: with BF16 the
// decoder has an ID of its own, from d's. Which devices have such pages, their Info
// says; elsewhere making a state fails. Ask for it before a memory is bounded.
func (d *Decoder) WithKV(dt tensor.DType) (*Decoder, error) {
	n := *d
	n.Closers = nil
	have := d.Shapes.KV.Stored()
	switch {
	case dt == tensor.Invalid:
		dt = tensor.F32
	case dt != tensor.F32 && dt != tensor.BF16:
		return nil, fmt.Errorf("nn: keys and values stored as %v: want F32 or BF16", dt)
	}
	if dt == have {
		return &n, nil
	}
	if have != tensor.F32 {
		return nil, fmt.Errorf("nn: the decoder stores keys and values as %v already: take the one that it was made from", have)
	}
	if err := d.shaped(); err != nil {
		return nil, err
	}
	if n.Shapes.KV.Layers == 0 {
		return &n, nil
	}
	n.Shapes.KV.Type = dt
	n.ID = sha256.Sum256(append([]byte("samebit.nn.kv/"+dt.String()), d.ID[:]...))
	n.NewState = n.Shapes.NewState(n.ID)
	return &n, nil
}
