package qcc

import (
	"context"
	"fmt"

	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// fullAttention makes a mixer answer with attention over all rows, while window and
// archive take them in.
type fullAttention struct{ layer int } // among the layers with keys and values

// exactState is that of the decoder that runs prompts: keys and values of all rows,
// then the parts of newState.
func (p *Patched) exactState(pool *state.Pool) (state.State, error) {
	shape := p.Decoder.Shapes.KV
	shape.Layers += len(p.Layers)
	kv, err := state.NewKV(pool, p.exact.ID, shape)
	if err != nil {
		return nil, err
	}
	rest := p.Decoder.Shapes
	rest.KV.Layers = 0
	other, err := p.state(pool, rest)
	if err != nil {
		return nil, err
	}
	st := &state.Stack{Parts: []state.State{kv}}
	if s, ok := other.(*state.Stack); ok {
		st.Parts = append(st.Parts, s.Parts...)
	} else {
		st.Parts = append(st.Parts, other)
	}
	return st, nil
}

// Exact reports whether prompts can be run exactly, by Prefill.
func (p *Patched) Exact() bool { return p.exact != nil }

// Prefill makes r, a runner of p.Decoder, the sequence of these rows, of which every
// one attends to all before it: logits and activations are the original model's, and
// window and archive hold what these activations left. What follows is bounded. It
// needs the memory of an exact cache of the rows meanwhile; cfg bounds its passes. It
// fails with ErrConfig without [Retrofit.ExactPrefill], and after an error r is as it
// was.
//
// A sequence that goes back (Truncate, Rewind) may replay rows, which is bounded.
func (p *Patched) Prefill(ctx context.Context, pool *state.Pool, r *nn.Runner, rows []state.Row, cfg nn.RunnerConfig) error {
	if p.exact == nil {
		return fmt.Errorf("qcc: an exact prompt: retrofit with ExactPrefill: %w", ErrConfig)
	}
	if pool == nil || r == nil || len(rows) == 0 {
		return fmt.Errorf("qcc: an exact prompt needs a pool, a runner and rows: %w", ErrShape)
	}
	s, err := pool.Device().NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	cfg.Batcher = nil
	x, err := p.exact.NewRunner(s, pool, cfg)
	if err != nil {
		return err
	}
	defer x.Close()
	if err := x.Append(ctx, rows); err != nil {
		return err
	}
	st := x.State().(*state.Stack)
	bounded := &state.Stack{Parts: st.Parts[1:]}
	if p.Decoder.Shapes.KV.Layers > 0 {
		kv, err := p.remaining(pool, st.Parts[0])
		if err != nil {
			return err
		}
		defer kv.Release()
		bounded.Parts = append([]state.State{kv}, bounded.Parts...)
	}
	whole := state.State(bounded)
	if len(bounded.Parts) == 1 {
		whole = bounded.Parts[0]
	}
	snap, err := whole.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Release()
	return r.ResumeAt(rows, snap, x.Hidden())
}

// remaining copies the keys and values of the layers that were not replaced.
func (p *Patched) remaining(pool *state.Pool, all state.State) (*state.KV, error) {
	var layers []int
	for b := range p.exact.Blocks {
		if a, ok := p.exact.Blocks[b].Mix.(*nn.Attention); ok {
			layers = append(layers, a.Layer)
		}
	}
	snap, err := all.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Release()
	held := map[string]tensor.Tensor{}
	err = snap.Save(func(name string, t tensor.Tensor) error {
		v, ok := t.F32()
		if !ok {
			return fmt.Errorf("qcc: %s is not in this process's memory: %w", name, ErrShape)
		}
		dim := t.Shape() // [2·layers, heads, slots, width]: keys and values by layer
		plane := dim[1] * dim[2] * dim[3]
		var kept []float32
		for _, l := range layers {
			kept = append(kept, v[2*l*plane:2*(l+1)*plane]...)
		}
		dim[0] = 2 * len(layers)
		held[name], err = tensor.FromF32(kept, dim...)
		return err
	})
	if err != nil {
		return nil, err
	}
	kv, err := state.NewKV(pool, p.Decoder.ID, p.Decoder.Shapes.KV)
	if err != nil {
		return nil, err
	}
	err = kv.Load(snap.Len(), func(name string) (tensor.Tensor, error) { return held[name], nil })
	return kv, err
}
