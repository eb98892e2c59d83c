package qcc

import (
	"context"
	"fmt"

	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// Compiled is a prompt of which a fixed number of rows is kept per key head, as they
// were. Decoding is exact attention over them and all later rows.
type Compiled struct {
	// Decoder is the model with states that take Snapshot. It shares the weights of
	// the one that was compiled and must not be closed.
	Decoder  *nn.Decoder
	Rows     []state.Row    // of the prompt
	Snapshot state.Snapshot // after them; Release it when done
	Kept     [][][]int      // rows by layer and key head, rising
}

// Resume makes r, a runner of c.Decoder, continue the prompt.
func (c *Compiled) Resume(r *nn.Runner) error { return r.Resume(c.Rows, c.Snapshot) }

// Compile keeps chosen rows of a prompt that r has run, per layer and key head: the
// last queries score all keys, scores are spread over neighbours and blocks, anchors,
// the first and the last rows come before others. r stays as it is. The observing
// queries are run once more, for which a recurrent part may have to begin anew.
//
// Models with layers of a sliding window or with an archive are refused with
// ErrConfig: their attention counts rows, which a selection has left out.
func Compile(ctx context.Context, d *nn.Decoder, r *nn.Runner, cfg CompileConfig) (*Compiled, error) {
	cfg, err := cfg.resolved()
	if err != nil {
		return nil, err
	}
	if err := countless(d, "compiling"); err != nil {
		return nil, err
	}
	rows := append([]state.Row(nil), r.History()...)
	if len(rows) == 0 {
		return nil, fmt.Errorf("qcc: compiling a prompt of no rows: %w", ErrShape)
	}
	f, err := r.Fork()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at := max(0, len(rows)-cfg.Queries)
	if cfg.Observe == ObserveLast {
		at = len(rows) - 1
	}
	if err := f.Rewind(ctx, at); err != nil {
		return nil, err
	}
	seen := make([]*observation, d.Shapes.KV.Layers)
	for i := range seen {
		seen[i] = &observation{mode: cfg.Observe, groups: d.Shapes.KV.Heads}
	}
	var host []float32
	f.Ctx().Probe = func(c *nn.Ctx, layer int, q tensor.Tensor, scale float32) {
		g := &c.Plan.Segs()[0]
		slots, heads := g.Slot+g.Rows, q.Dim(1)
		if cap(host) < g.Rows*heads*slots {
			host = make([]float32, g.Rows*heads*slots)
		}
		host = host[:g.Rows*heads*slots]
		m := c.Mark()
		defer c.Release(m)
		w := c.Tmp(g.Rows, heads*slots).Heads(heads, slots)
		if cfg.Observe == ObserveLast {
			c.Stream.AttnScores(w, q, c.Plan, layer, scale, 0)
		} else {
			c.Stream.AttnWeights(w, q, c.Plan, layer, scale, 0)
		}
		c.Stream.Read(tensor.AsBytes(host), w.Reshape(g.Rows, heads*slots))
		if c.Stream.Sync() != nil { // the pass reports it
			return
		}
		for i := range g.Rows {
			seen[layer].add(host[i*heads*slots:(i+1)*heads*slots], slots, slots)
		}
	}
	err = f.Append(ctx, rows[at:])
	f.Ctx().Probe = nil
	if err != nil {
		return nil, err
	}
	kept := make([][][]int, len(seen))
	for l, o := range seen {
		for _, s := range o.result() {
			list, err := cfg.Select(s)
			if err != nil {
				return nil, err
			}
			kept[l] = append(kept[l], list)
		}
	}
	return keep(d, f, rows, kept)
}

// countless refuses models whose attention does not only depend on which keys there
// are; what is what is done to them.
func countless(d *nn.Decoder, what string) error {
	if d.Shapes.KV.Layers == 0 {
		return fmt.Errorf("qcc: %s a model without full attention: %w", what, ErrConfig)
	}
	if d.Bounded {
		return fmt.Errorf("qcc: %s a model whose memory is bounded already: %w", what, ErrConfig)
	}
	for i := range d.Blocks {
		switch m := d.Blocks[i].Mix.(type) {
		case *Mixer:
			return fmt.Errorf("qcc: %s a model whose block %d has an archive: %w", what, i, ErrConfig)
		case *nn.Attention:
			if m.Window > 0 {
				return fmt.Errorf("qcc: %s a model whose block %d sees a window of %d rows: %w", what, i, m.Window, ErrConfig)
			}
		}
	}
	return nil
}

// keep makes the state of the kept rows beside the other parts of a sequence.
func keep(d *nn.Decoder, r *nn.Runner, rows []state.Row, kept [][][]int) (*Compiled, error) {
	kv, ok := state.Part[*state.KV](r.State())
	if !ok {
		return nil, fmt.Errorf("qcc: compiling a state %T without keys and values: %w", r.State(), ErrConfig)
	}
	small, err := kv.Keep(kept)
	if err != nil {
		return nil, err
	}
	defer small.Release()
	whole := state.State(small)
	if st, ok := r.State().(*state.Stack); ok {
		s := &state.Stack{}
		for _, p := range st.Parts { // the keys and values last: they decide the slots
			if p != state.State(kv) {
				s.Parts = append(s.Parts, p)
			}
		}
		s.Parts = append(s.Parts, small)
		whole = s
	}
	snap, err := whole.Snapshot()
	if err != nil {
		return nil, err
	}
	c := *d
	c.Closers = nil
	c.NewState = func(p *state.Pool) (state.State, error) {
		k, err := state.NewKept(p, d.ID, d.Shapes.KV)
		if err != nil {
			return nil, err
		}
		rest := d.Shapes
		rest.KV = state.KVShape{}
		return beside(rest, d.ID, p, k)
	}
	return &Compiled{Decoder: &c, Rows: rows, Snapshot: snap, Kept: kept}, nil
}

// beside is an empty state of what rest describes, with kv as its last part.
func beside(rest nn.Shapes, id state.ID, p *state.Pool, kv state.State) (state.State, error) {
	if rest == (nn.Shapes{}) {
		return kv, nil
	}
	other, err := rest.NewState(id)(p)
	if err != nil {
		return nil, err
	}
	s, ok := other.(*state.Stack)
	if !ok {
		s = &state.Stack{Parts: []state.State{other}}
	}
	s.Parts = append(s.Parts, kv)
	return s, nil
}
