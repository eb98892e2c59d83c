package lm

import (
	"context"
	"fmt"

	"samebit/backend"
	"samebit/grad"
	"samebit/nn"
	"samebit/qcc"
	"samebit/tensor"
)

// Text is a text of a batch and what to learn from it: target r should follow row r, a
// negative one does not count.
type Text struct{ IDs, Targets []int32 }

// Score is how well a batch was foretold.
type Score struct {
	Rows  int     // that count
	Right int     // whose likeliest token is the target
	Loss  float32 // mean cross-entropy, nats
}

// Accuracy is the share of rows that are right.
func (s Score) Accuracy() float64 { return float64(s.Right) / float64(max(s.Rows, 1)) }

// microRows is a trainer's micro.
const microRows = 4096

// Trainer trains a model on a device. The same batches give the same bits whatever the
// threads and the device. It belongs to one goroutine.
type Trainer struct {
	model  *Model
	stream backend.Stream
	params *grad.Params
	adam   *grad.AdamW
	tape   *grad.Tape
	ctx    *nn.Ctx // on the tape
	states []*qcc.State
	micro  int // rows of a pass of more than one text: memory, and no bit
}

// NewTrainer opens a model on a device and trains it from the parameters in p, which it
// copies. Weight decay is on all of them. It fails with qcc.ErrConfig, qcc.ErrShape,
// qcc.ErrUntrainable or backend.ErrUnsupported.
func NewTrainer(dev backend.Device, c Config, p *Params, o grad.AdamWConfig) (*Trainer, error) {
	if err := c.Layer.Trainable(); err != nil {
		return nil, err
	}
	if c.Layer.ActiveCodes > 0 && c.Layer.ActiveCodes < c.Layer.Codes {
		return nil, fmt.Errorf("lm: sparse reads have no gradient: train with all codes: %w", qcc.ErrUntrainable)
	}
	m, err := New(dev, c, p)
	if err != nil {
		return nil, err
	}
	t := &Trainer{model: m, micro: microRows}
	if err := t.open(p, o); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Trainer) open(p *Params, o grad.AdamWConfig) (err error) {
	m := t.model
	if t.stream, err = m.dev.NewStream(); err != nil {
		return err
	}
	if t.params, err = grad.NewParams(t.stream, m.dev); err != nil {
		return err
	}
	for _, f := range p.fields(m.Config) {
		var x *grad.Param
		if w := m.weights[f.Name]; w != nil {
			x, err = t.params.AddWeight(f.Name, w, *f.Values)
		} else {
			x, err = t.params.AddTensor(f.Name, m.vectors[f.Name], grad.Plain, *f.Values)
		}
		if err != nil {
			return err
		}
		x.NoDecay = false
	}
	if t.adam, err = grad.NewAdamW(t.params, o); err != nil {
		return err
	}
	if t.tape, err = grad.NewTape(t.stream, m.dev, t.params); err != nil {
		return err
	}
	t.ctx = nn.NewCtx(t.tape, m.dev)
	t.ctx.Keep = true
	return nil
}

// Close frees everything, the model included.
func (t *Trainer) Close() error {
	for _, st := range t.states {
		st.Release()
	}
	if t.ctx != nil {
		t.ctx.Close()
		t.tape.Close()
	}
	if t.params != nil {
		t.params.Close()
	}
	if t.stream != nil {
		t.stream.Close()
	}
	return t.model.Close()
}

// Model is the model that is trained, as it is after the last step. States of it are
// good until the next one. It is closed with the trainer.
func (t *Trainer) Model() *Model { return t.model }

// Len is the number of trained values.
func (t *Trainer) Len() int { return t.params.Len() }

// Backward adds the gradient of a batch's mean loss, and returns what it was. After an
// error the batch is forgotten.
func (t *Trainer) Backward(ctx context.Context, batch []Text) (Score, error) {
	s, err := t.run(ctx, batch, true)
	if err != nil {
		t.params.Zero()
	}
	return s, err
}

// Step makes a step of AdamW from the gradients that Backward added, and begins a new
// batch.
func (t *Trainer) Step(rate float64) error {
	_, err := t.adam.Step(rate)
	return err
}

// Score runs a batch without learning from it.
func (t *Trainer) Score(ctx context.Context, batch []Text) (Score, error) {
	return t.run(ctx, batch, false)
}

// Params copies what the parameters have become.
func (t *Trainer) Params() (*Params, error) {
	p, to := &Params{}, map[string]*[]float32{}
	for _, f := range p.fields(t.model.Config) {
		to[f.Name] = f.Values
	}
	for x := range t.params.All() {
		v := make([]float32, x.Value.Len())
		t.stream.Read(tensor.AsBytes(v), x.Value)
		*to[x.Name] = v
	}
	return p, t.stream.Sync()
}

func (t *Trainer) run(ctx context.Context, batch []Text, learn bool) (Score, error) {
	var s Score
	for i, x := range batch {
		if len(x.IDs) == 0 || len(x.IDs) > t.model.MaxPosition || len(x.Targets) != len(x.IDs) {
			return s, fmt.Errorf("lm: text %d has %d tokens and %d targets: want as many of each, 1 to %d: %w", i, len(x.IDs), len(x.Targets), t.model.MaxPosition, qcc.ErrShape)
		}
		for _, id := range x.Targets {
			if id >= 0 {
				s.Rows++
			}
		}
	}
	if s.Rows == 0 {
		return s, fmt.Errorf("lm: a batch of %d texts without a target: %w", len(batch), qcc.ErrShape)
	}
	losses := make([]float32, 0, s.Rows)
	scale := 1 / float32(s.Rows)
	for len(batch) > 0 {
		n, rows := 1, len(batch[0].IDs)
		for n < len(batch) && rows+len(batch[n].IDs) <= t.micro {
			rows += len(batch[n].IDs)
			n++
		}
		right, err := t.pass(ctx, batch[:n], scale, learn, &losses)
		if err != nil {
			t.tape.Reset()
			return s, fmt.Errorf("lm: a pass of %d texts: %w", n, err)
		}
		s.Right += right
		batch = batch[n:]
	}
	s.Loss = grad.Mean(losses)
	return s, nil
}

// pass runs texts as one pass, takes it back if it is to learn, appends the losses of
// the rows that count and returns how many are right.
func (t *Trainer) pass(ctx context.Context, batch []Text, scale float32, learn bool, losses *[]float32) (right int, err error) {
	m, c := t.model, t.ctx
	if learn {
		mark := c.Mark()
		defer func() {
			c.Keep = false
			c.Release(mark)
			c.Keep = true
		}()
	} else {
		if c, err = m.ctx(); err != nil {
			return 0, err
		}
		defer m.done(c)
		defer c.Release(c.Mark())
		defer func() {
			if err != nil {
				c.Stream.Reset()
			}
		}()
	}
	var ids, targets []int32
	segs := make([]backend.Seg, len(batch))
	for i, x := range batch {
		if i == len(t.states) {
			st, err := m.NewState()
			if err != nil {
				return 0, err
			}
			t.states = append(t.states, st)
		}
		segs[i] = backend.Seg{Row: len(ids), Rows: len(x.IDs)}
		if err := t.states[i].Begin(&segs[i], len(x.IDs)); err != nil { // never committed: the text is forgotten
			return 0, err
		}
		ids, targets = append(ids, x.IDs...), append(targets, x.Targets...)
	}
	c.Plan = c.Stream.Plan(segs)
	logits, err := m.run(ctx, c, ids, segs)
	if err != nil {
		return 0, err
	}
	want, err := ints(c, targets)
	if err != nil {
		return 0, err
	}
	top, err := ints(c, targets)
	if err != nil {
		return 0, err
	}
	loss := c.Tmp(len(ids), 1).Reshape(len(ids))
	if learn {
		t.tape.CrossEntropy(loss, logits, want, tensor.Tensor{}, scale)
	} else if g, ok := c.Stream.(backend.Grad); ok {
		g.CrossEntropy(loss, tensor.Tensor{}, logits, want, tensor.Tensor{}, scale)
	}
	c.Stream.ArgMax(top, logits)
	each, best := make([]float32, len(ids)), make([]int32, len(ids))
	c.Stream.Read(tensor.AsBytes(each), loss)
	c.Stream.Read(tensor.AsBytes(best), top)
	if err := c.Stream.Sync(); err != nil {
		return 0, err
	}
	for r, id := range targets {
		if id >= 0 {
			*losses = append(*losses, each[r])
			if best[r] == id {
				right++
			}
		}
	}
	if learn {
		return right, t.tape.Backward()
	}
	return right, nil
}
