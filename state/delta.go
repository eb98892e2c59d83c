package state

import (
	"fmt"

	"samebit/backend"
)

// DeltaShape is the shape of the recurrent state of all Gated DeltaNet layers.
type DeltaShape struct {
	Layers, Heads, DK, DV int // value heads, each with a dk×dv state
	Taps, Channels        int // of the causal convolution; 0: there is none
}

// Delta holds the recurrent state and the convolution inputs of all delta-net
// layers. A pass reads one bank and writes another; Truncate lands at the end or
// at no rows.
type Delta struct{ banked }

// NewDelta returns an empty state of the model id.
func NewDelta(pool *Pool, id ID, shape DeltaShape) (*Delta, error) {
	conv := shape.Taps != 0 || shape.Channels != 0
	if shape.Layers < 1 || shape.Heads < 1 || shape.DK < 1 || shape.DV < 1 || conv && (shape.Taps < 2 || shape.Channels < 1) {
		return nil, fmt.Errorf("state: recurrent state of shape %+v", shape)
	}
	parts := []part{{"delta", []int{shape.Layers, shape.Heads, shape.DK, shape.DV}}}
	if conv {
		parts = append(parts, part{"conv", []int{shape.Layers, shape.Taps - 1, shape.Channels}})
	}
	return &Delta{banked{pool: pool, id: id, layout: &layout{"recurrent state", shape, parts}}}, nil
}

func (d *Delta) Begin(seg *backend.Seg, rows int) error {
	in, out, err := d.begin(seg, rows)
	if err != nil {
		return err
	}
	seg.DeltaIn, seg.DeltaOut = in[0].t, out[0].t
	if len(in) > 1 {
		seg.ConvIn, seg.ConvOut = in[1].t, out[1].t
	}
	return nil
}

func (d *Delta) Fork() (State, error) { return &Delta{d.fork()}, nil }
