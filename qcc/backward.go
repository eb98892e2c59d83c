package qcc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"samebit/backend"
	"samebit/grad"
	"samebit/nn"
	"samebit/tensor"
)

// ErrUntrainable is the cause when a configuration has parts without a gradient.
var ErrUntrainable = errors.New("layer cannot be trained")

// Trainable reports, with ErrUntrainable, what keeps layers of the configuration from
// being trained: lazy decay, which needs another archive than eager decay while the
// parameters are the same, and an exact tier, whose choices have no gradient.
func (c Config) Trainable() error {
	switch {
	case c.LazyDecay:
		return fmt.Errorf("qcc: lazy decay has no gradient: train with eager decay and all codes: %w", ErrUntrainable)
	case c.Exact != nil:
		return fmt.Errorf("qcc: an exact tier has no gradient: train without one: %w", ErrUntrainable)
	}
	return nil
}

// trainer is what a layer needs to take passes back: parameters of its own, so that
// others may use the layer meanwhile.
type trainer struct {
	mu     sync.Mutex
	device *device
	mixer  Mixer
	params *grad.Params
	of     map[string]*grad.Param
}

// Backward adds the gradients of the outputs of a whole text, of which dOut [T,
// Hidden] is the gradient, to those of the archive's parameters and the gate in d
// and of the rows in dIn. What is nil there is left out; without in.Hint a hint's
// gradient is the row's. It runs the text once more, from a fresh state, with the
// bits of Forward, except that reads are of all codes even if the configuration has
// sparse ones. What has no gradient is refused with ErrUntrainable or, of the device,
// with backend.ErrUnsupported; after an error nothing was added.
func (l *Layer) Backward(ctx context.Context, d *Params, dIn, in Block, dOut []float32) error {
	st, err := l.NewState()
	if err != nil {
		return err
	}
	defer st.Release()
	n, err := l.rows(dOut, st, in)
	if err != nil || n == 0 {
		return err
	}
	to, err := l.gradients(d)
	if err != nil {
		return err
	}
	for _, g := range [2][]float32{dIn.Hidden, dIn.Hint} {
		if g != nil && len(g) != len(dOut) {
			return fmt.Errorf("qcc: gradients of %d values for rows of %d: %w", len(g), len(dOut), ErrShape)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &l.trainer
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.open(l); err != nil {
		return err
	}
	seg := backend.Seg{Rows: n}
	if err := st.Begin(&seg, n); err != nil {
		return err
	}
	return t.backward(l, seg, to, dIn, in, dOut)
}

// gradients are the fields of d that are wanted.
func (l *Layer) gradients(d *Params) ([]Named, error) {
	if err := l.Config.Trainable(); err != nil {
		return nil, err
	}
	if d == nil {
		return nil, nil
	}
	var to []Named
	for _, f := range d.Named(l.Config) {
		if *f.Values == nil {
			continue
		}
		if len(*f.Values) != f.Size() {
			return nil, fmt.Errorf("qcc: gradient of %s has %d values, the configuration wants %v: %w", f.Name, len(*f.Values), f.Dim, ErrShape)
		}
		to = append(to, f)
	}
	return to, nil
}

// open makes the trainer's parameters when it is first used.
func (t *trainer) open(l *Layer) error {
	if l.isClosed() {
		return fmt.Errorf("qcc: layer %w", backend.ErrClosed)
	}
	if t.device != nil {
		return nil
	}
	d, err := newDevice(l.dev)
	if err != nil {
		return err
	}
	ok := false
	defer func() {
		if !ok {
			d.close()
		}
	}()
	p, err := grad.NewParams(d.stream, l.dev)
	if err != nil {
		return err
	}
	t.mixer, t.of = *l.mixer, map[string]*grad.Param{}
	t.mixer.Archive.Active = 0
	to := t.mixer.tensors()
	for _, f := range new(Params).Named(l.Config) {
		v := make([]float32, f.Size())
		d.stream.Read(tensor.AsBytes(v), *to[f.Name])
		if err := d.stream.Sync(); err != nil {
			return err
		}
		use, err := d.upload(v, f.Dim...)
		if err != nil {
			return err
		}
		*to[f.Name] = use
		if t.of[f.Name], err = p.AddTensor(f.Name, use, grad.Plain, v); err != nil {
			return err
		}
	}
	ok, t.device, t.params = true, d, p
	return nil
}

func (t *trainer) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.device != nil {
		t.params.Close()
		t.device.close()
		t.device = nil
	}
}

// backward runs a pass on a tape and takes it back.
func (t *trainer) backward(l *Layer, seg backend.Seg, to []Named, dIn, in Block, dOut []float32) error {
	s, err := l.dev.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	tape, err := grad.NewTape(s, l.dev, t.params)
	if err != nil {
		return err
	}
	defer tape.Close()
	c := nn.NewCtx(tape, l.dev)
	defer c.Close()
	c.Keep = true
	if err := t.params.Zero(); err != nil {
		return err
	}
	for _, f := range to { // the sums go on where they are
		t.device.stream.Write(t.of[f.Name].Grad, tensor.AsBytes(*f.Values))
	}
	if err := t.device.stream.Sync(); err != nil {
		return err
	}
	w := l.Config.Hidden
	c.Plan = tape.Plan([]backend.Seg{seg})
	x := put(c, in.Hidden, seg.Rows, w)
	hint := x
	if in.Hint != nil && l.Config.Lexical {
		hint = put(c, in.Hint, seg.Rows, w)
	}
	y := c.Tmp(seg.Rows, w)
	t.mixer.MixHint(c, y, x, hint)
	tape.Seed(y, put(c, dOut, seg.Rows, w))
	if err := tape.Backward(); err != nil {
		return fmt.Errorf("qcc: gradient of %d rows: %w", seg.Rows, err)
	}
	if err := t.params.Finish(); err != nil {
		return err
	}
	rows := func(of tensor.Tensor, want bool) ([]float32, error) {
		if !want {
			return nil, nil
		}
		v := make([]float32, len(dOut))
		s.Read(tensor.AsBytes(v), tape.Grad(of))
		return v, tape.Sync()
	}
	dx, err := rows(x, dIn.Hidden != nil)
	if err != nil {
		return err
	}
	dh, err := rows(hint, dIn.Hint != nil && in.Hint != nil && l.Config.Lexical)
	if err != nil {
		return err
	}
	got := make([][]float32, len(to))
	for i, f := range to {
		got[i] = make([]float32, f.Size())
		t.device.stream.Read(tensor.AsBytes(got[i]), t.of[f.Name].Grad)
	}
	if err := t.device.stream.Sync(); err != nil {
		return err
	}
	for i, f := range to { // from here on nothing fails
		copy(*f.Values, got[i])
	}
	for i, v := range dx {
		dIn.Hidden[i] += v
	}
	for i, v := range dh {
		dIn.Hint[i] += v
	}
	return nil
}

// Close frees the layer's memory. States must have been released, and no call may
// be running or follow.
func (l *Layer) Close() error {
	l.trainer.close()
	return l.engine.Close()
}
