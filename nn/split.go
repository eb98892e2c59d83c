package nn

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"samebit/state"
	"samebit/tensor"
)

// Split returns the two halves of a decoder: lower has the embedding and blocks
// [0, at), and leaves the rows that come out of them as Hidden, without norm and
// logits; upper takes those rows as continuous rows, and has blocks [at, L) and
// the head. Run one after the other, rows cut in any way, they give the bits of d.
//
// A half has states of its own layers only and an ID from d's, so that neither
// takes the other's checkpoints. The halves share d's weights: close d after them.
// Layers in a Ctx's Trace, Probe and in a Tap count within the half.
func (d *Decoder) Split(at int) (lower, upper *Decoder, err error) {
	switch {
	case at < 1 || at >= len(d.Blocks):
		return nil, nil, fmt.Errorf("nn: split before block %d of %d: each half needs a block", at, len(d.Blocks))
	case d.Tap != nil:
		return nil, nil, fmt.Errorf("nn: split of a decoder with a tap: give the half its own")
	}
	if err := d.shaped(); err != nil {
		return nil, nil, err
	}
	lower, err = d.half("lower", at, 0, at)
	if err != nil {
		return nil, nil, err
	}
	upper, err = d.half("upper", at, at, len(d.Blocks))
	if err != nil {
		return nil, nil, err
	}
	lower.Head, lower.Norm = nil, tensor.Tensor{}
	upper.Embed = nil
	return lower, upper, nil
}

// half has blocks [from, to), with ordinals and states that begin at from.
func (d *Decoder) half(which string, at, from, to int) (*Decoder, error) {
	h := *d
	h.Closers = nil
	before, err := layers(d.Blocks[:from])
	if err != nil {
		return nil, err
	}
	own, err := layers(d.Blocks[from:to])
	if err != nil {
		return nil, err
	}
	h.Blocks = make([]Block, to-from)
	for i, b := range d.Blocks[from:to] {
		switch m := b.Mix.(type) {
		case *Attention:
			c := *m
			c.Layer -= before.KV.Layers
			b.Mix = &c
		case *GatedDelta:
			c := *m
			c.Layer -= before.Delta.Layers
			b.Mix = &c
		}
		h.Blocks[i] = b
	}
	h.Shapes.KV.Layers, h.Shapes.Delta.Layers = own.KV.Layers, own.Delta.Layers
	b := append([]byte("samebit.nn.half."+which), d.ID[:]...)
	h.ID = sha256.Sum256(binary.LittleEndian.AppendUint64(b, uint64(at)))
	h.NewState = h.Shapes.NewState(h.ID)
	return &h, nil
}

// layers counts the layers of each kind.
func layers(blocks []Block) (n Shapes, err error) {
	for i := range blocks {
		switch m := blocks[i].Mix.(type) {
		case *Attention:
			n.KV.Layers++
		case *GatedDelta:
			n.Delta.Layers++
		default:
			return n, fmt.Errorf("nn: a block mixes rows by %T, whose states cannot be divided", m)
		}
	}
	return n, nil
}

// shaped checks that Shapes describes the states, so that other ones can be made by it.
func (d *Decoder) shaped() error {
	if d.Bounded {
		return fmt.Errorf("nn: the decoder's memory is bounded: split, tap or store it otherwise before that")
	}
	n, err := layers(d.Blocks)
	if err != nil {
		return err
	}
	if n.KV.Layers != d.Shapes.KV.Layers || n.Delta.Layers != d.Shapes.Delta.Layers {
		return fmt.Errorf("nn: the decoder has %d attention and %d recurrent layers, its shapes say %d and %d: set Decoder.Shapes",
			n.KV.Layers, n.Delta.Layers, d.Shapes.KV.Layers, d.Shapes.Delta.Layers)
	}
	return nil
}

// HiddenRows makes continuous rows of hidden rows [R, H], for the upper half. They
// share the memory of hidden.
func HiddenRows(hidden []float32, width int) []state.Row {
	rows := make([]state.Row, 0, len(hidden)/max(width, 1))
	for ; len(hidden) >= width && width > 0; hidden = hidden[width:] {
		rows = append(rows, state.Row{Token: -1, Vec: hidden[:width:width]})
	}
	return rows
}
