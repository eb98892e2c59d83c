package nn

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"samebit/tensor"
)

// Tap makes a decoder sum, over the rows of a sequence, the RMS-normalised rows
// that leave one of its blocks: the feature of a router. The sum is a part of the
// sequence's state, state.Sum.
type Tap struct {
	Block  int           // index among the decoder's blocks
	Weight tensor.Tensor // of the norm [H] on the decoder's device; invalid for none
	Digest [32]byte      // of the weight's values; zeros without one
	Eps    float32       // of the norm
}

// WithTap returns a decoder that shares everything with d and keeps the sum. Its
// states are other states: it has an ID of its own, from d's and the tap.
func (d *Decoder) WithTap(t Tap) (*Decoder, error) {
	switch {
	case d.Tap != nil:
		return nil, fmt.Errorf("nn: the decoder has a tap after block %d already", d.Tap.Block)
	case t.Block < 0 || t.Block >= len(d.Blocks):
		return nil, fmt.Errorf("nn: tap after block %d of %d", t.Block, len(d.Blocks))
	case t.Weight.Valid() == (t.Digest == [32]byte{}):
		return nil, fmt.Errorf("nn: tap after block %d: a weight needs the digest of its values, and no weight none", t.Block)
	case t.Weight.Valid() && (t.Weight.Dims() != 1 || t.Weight.Dim(0) != d.Hidden || t.Weight.DType() != tensor.F32):
		return nil, fmt.Errorf("nn: tap after block %d: the weight is %v, want F32[%d]", t.Block, t.Weight, d.Hidden)
	}
	if err := d.shaped(); err != nil {
		return nil, err
	}
	n := *d
	n.Tap, n.Closers = &t, nil
	n.Shapes.Sum = d.Hidden
	b := append([]byte("samebit.nn.tap"), d.ID[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Block))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(t.Eps))
	n.ID = sha256.Sum256(append(b, t.Digest[:]...))
	n.NewState = n.Shapes.NewState(n.ID)
	return &n, nil
}

// tap adds rows [R, H] to the sums of the pass.
func (d *Decoder) tap(c *Ctx, x tensor.Tensor) {
	w := d.Tap.Weight
	if !w.Valid() { // times one changes no bit
		for len(c.ones) < d.Hidden {
			c.ones = append(c.ones, 1)
		}
		w = c.arena.get(tensor.F32, d.Hidden)
		c.Stream.Write(w, tensor.AsBytes(c.ones[:d.Hidden]))
	}
	h := c.Tmp(x.Dim(0), d.Hidden)
	c.Stream.RMSNorm(h, x, w, d.Tap.Eps)
	c.Stream.SumRows(c.Plan, h)
}
