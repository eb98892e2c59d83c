// Package lm takes the training passes of a language model: an nn.Decoder runs on a
// grad.Tape, in micro-batches, with or without recomputing blocks.
package lm

import (
	"context"
	"fmt"

	"samebit/backend"
	"samebit/grad"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// Sequence is a text of a batch and what to learn from it. Target r is the token
// that should follow row r; a negative one does not count. Weights are those of the
// rows' losses; nil for ones.
type Sequence struct {
	Tokens  []int32
	Targets []int32
	Weights []float32
}

// Config bounds the passes. None of it changes a bit of the gradients.
type Config struct {
	MicroRows  int  // rows of a micro-batch, at least one sequence; 0 means 1024
	Checkpoint bool // keep only the rows between blocks and run each block again: less memory, a third more work
}

// Trainer runs passes of one decoder. It belongs to one goroutine.
type Trainer struct {
	dev    backend.Device
	cfg    Config
	s      backend.Stream
	tape   *grad.Tape
	pool   *state.Pool
	stages []stage // one, or one per block
	plain  *nn.Ctx // of stages that keep nothing, on s

	buf  tensor.Buffer // losses, targets and weights of a pass
	rows int           // that it has room for
}

// stage is a part of the decoder that keeps its activations at a time.
type stage struct {
	dec  *nn.Decoder
	c    *nn.Ctx // on the tape
	rows []float32
}

// New returns a trainer that adds to the gradients of p, on streams of its own. The
// decoder's ID is that of the weights it was loaded with, so its states must not
// meet those of others.
func New(dev backend.Device, dec *nn.Decoder, p *grad.Params, cfg Config) (_ *Trainer, err error) {
	if cfg.MicroRows < 0 {
		return nil, fmt.Errorf("lm: micro-batches of %d rows: want a positive number, or 0 for 1024", cfg.MicroRows)
	}
	if cfg.MicroRows == 0 {
		cfg.MicroRows = 1024 // what is worked on stays in the caches
	}
	if dec.Head == nil || dec.Embed == nil {
		return nil, fmt.Errorf("lm: training needs a decoder with an embedding and a head")
	}
	t := &Trainer{dev: dev, cfg: cfg}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if t.s, err = dev.NewStream(); err != nil {
		return nil, err
	}
	if t.tape, err = grad.NewTape(t.s, dev, p); err != nil {
		return nil, err
	}
	if t.pool, err = state.NewPool(dev, 0); err != nil {
		return nil, err
	}
	rest := dec
	for cfg.Checkpoint && len(rest.Blocks) > 1 {
		lower, upper, err := rest.Split(1)
		if err != nil {
			return nil, err
		}
		t.stages = append(t.stages, stage{dec: lower})
		rest = upper
	}
	t.stages = append(t.stages, stage{dec: rest})
	t.plain = nn.NewCtx(t.s, dev)
	c := nn.NewCtx(t.tape, dev)
	c.Keep = true
	for i := range t.stages {
		t.stages[i].c = c
	}
	return t, nil
}

// Close frees the memory of the passes.
func (t *Trainer) Close() error {
	if len(t.stages) > 0 && t.stages[0].c != nil {
		t.stages[0].c.Close()
		t.plain.Close()
	}
	t.stages = nil
	var err error
	if t.pool != nil {
		err = t.pool.Close()
	}
	if t.buf != nil {
		t.dev.Free(t.buf)
	}
	if t.tape != nil {
		t.tape.Close()
	}
	if t.s != nil {
		t.s.Close()
	}
	*t = Trainer{}
	return err
}

// check refuses a batch that cannot be run and counts its rows that count.
func (t *Trainer) check(batch []Sequence) (n int, err error) {
	if t.tape == nil {
		return 0, fmt.Errorf("lm: trainer %w", backend.ErrClosed)
	}
	for i, q := range batch {
		if len(q.Tokens) == 0 || len(q.Targets) != len(q.Tokens) || q.Weights != nil && len(q.Weights) != len(q.Tokens) {
			return 0, fmt.Errorf("lm: sequence %d has %d tokens, %d targets and %d weights: want as many of each", i, len(q.Tokens), len(q.Targets), len(q.Weights))
		}
		for _, x := range q.Targets {
			if x >= 0 {
				n++
			}
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("lm: a batch of %d sequences without a target", len(batch))
	}
	return n, nil
}

// Backward adds the gradient of the mean loss over the counted rows of a batch to
// the parameters, which Params.Zero or a step cleared, and returns the losses of
// these rows in order. How the batch is cut into micro-batches changes no bit.
// After an error gradients are incomplete: call Params.Zero.
func (t *Trainer) Backward(ctx context.Context, batch []Sequence) ([]float32, error) {
	return t.run(ctx, batch, true)
}

// Losses returns the losses of the counted rows of a batch in order, with the bits of
// Backward, and no gradients.
func (t *Trainer) Losses(ctx context.Context, batch []Sequence) ([]float32, error) {
	return t.run(ctx, batch, false)
}

func (t *Trainer) run(ctx context.Context, batch []Sequence, learn bool) ([]float32, error) {
	n, err := t.check(batch)
	if err != nil {
		return nil, err
	}
	losses := make([]float32, 0, n)
	for from := 0; from < len(batch); {
		to, rows := from+1, len(batch[from].Tokens)
		for to < len(batch) && rows+len(batch[to].Tokens) <= t.cfg.MicroRows {
			rows += len(batch[to].Tokens)
			to++
		}
		if losses, err = t.micro(ctx, batch[from:to], rows, 1/float32(n), learn, losses); err != nil {
			t.tape.Reset()
			return nil, err
		}
		from = to
	}
	return losses, nil
}

// micro runs one micro-batch and appends its losses.
func (t *Trainer) micro(ctx context.Context, batch []Sequence, rows int, scale float32, learn bool, losses []float32) ([]float32, error) {
	tokens := make([][]int32, len(batch))
	for i, q := range batch {
		tokens[i] = q.Tokens
	}
	err := t.take(ctx, tokens, rows, learn, func(p *Pass) (err error) {
		losses, err = t.head(p, batch, scale, learn, losses)
		return err
	})
	return losses, err
}

// Pass is a pass that has reached the rows after the last block.
type Pass struct {
	Ctx    *nn.Ctx // whose stream is the tape; scratch of it is kept until the pass is taken back
	Tape   *grad.Tape
	Stream backend.Stream // below the tape: ops that have no gradient
	Rows   tensor.Tensor  // [R, Hidden], what leaves the last block, sequence by sequence
}

// Pass runs new sequences through the decoder as one micro-batch and calls loss with
// what leaves the last block. The gradients that loss adds, by losses of the tape or
// by Tape.Seed, are then taken back and added to those of the parameters. After an
// error gradients are incomplete: call Params.Zero.
func (t *Trainer) Pass(ctx context.Context, sequences [][]int32, loss func(*Pass) error) error {
	if t.tape == nil {
		return fmt.Errorf("lm: trainer %w", backend.ErrClosed)
	}
	rows := 0
	for _, q := range sequences {
		rows += len(q)
	}
	err := t.take(ctx, sequences, rows, true, loss)
	if err != nil {
		t.tape.Reset()
	}
	return err
}

// take runs sequences of so many rows in all, and takes the pass back if it is to
// learn.
func (t *Trainer) take(ctx context.Context, sequences [][]int32, rows int, learn bool, loss func(*Pass) error) error {
	tokens := make([][]state.Row, len(sequences))
	for i, q := range sequences {
		tokens[i] = state.Tokens(q)
	}
	// Up to the last stage nothing is kept but the rows in between.
	in := make([][][]state.Row, len(t.stages))
	in[0] = tokens
	last := len(t.stages) - 1
	for i := range last {
		st := &t.stages[i]
		width := st.dec.Hidden
		if len(st.rows) < rows*width {
			st.rows = make([]float32, rows*width)
		}
		err := t.forward(ctx, st.dec, t.plain, in[i], func(_, x tensor.Tensor) error {
			t.s.Read(tensor.AsBytes(st.rows[:rows*width]), x) // before any scratch is taken again
			return t.s.Sync()
		})
		if err != nil {
			return err
		}
		all := nn.HiddenRows(st.rows[:rows*width], width)
		for _, q := range sequences {
			in[i+1] = append(in[i+1], all[:len(q)])
			all = all[len(q):]
		}
	}
	var dx []float32 // of the rows between this stage and the one below
	for i := last; i >= 0; i-- {
		st := &t.stages[i]
		c := st.c
		m := c.Mark()
		err := t.forward(ctx, st.dec, c, in[i], func(first, x tensor.Tensor) (err error) {
			if i == last {
				err = loss(&Pass{Ctx: c, Tape: t.tape, Stream: t.s, Rows: x})
			} else {
				dy := c.Tmp(rows, st.dec.Hidden)
				t.s.Write(dy, tensor.AsBytes(dx))
				t.tape.Seed(x, dy)
			}
			if err != nil || !learn {
				return err
			}
			if err := t.tape.Backward(); err != nil || i == 0 {
				return err
			}
			dx = t.stages[i-1].rows[:rows*st.dec.Hidden] // no longer needed as rows
			t.s.Read(tensor.AsBytes(dx), t.tape.Grad(first))
			return t.s.Sync()
		})
		if !learn {
			t.tape.Reset()
		}
		c.Keep = false
		c.Release(m)
		c.Keep = true
		if err != nil || !learn {
			return err
		}
	}
	return nil
}

// forward runs rows of new sequences through dec and calls f, while the pass is
// still there, with the rows that enter the first block and those that leave the
// last one.
func (t *Trainer) forward(ctx context.Context, dec *nn.Decoder, c *nn.Ctx, in [][]state.Row, f func(first, last tensor.Tensor) error) error {
	seqs := make([]nn.Seq, len(in))
	defer func() {
		for i := range seqs {
			if seqs[i].State != nil {
				seqs[i].State.Release()
			}
		}
	}()
	for i := range in {
		st, err := dec.NewState(t.pool)
		if err != nil {
			return err
		}
		seqs[i] = nn.Seq{State: st, In: in[i]}
	}
	var first, last tensor.Tensor
	c.Trace = func(_ *nn.Ctx, at int, x tensor.Tensor) {
		if at == 0 {
			first = x
		}
		last = x
	}
	if err := dec.Forward(ctx, c, seqs); err != nil {
		return err
	}
	return f(first, last)
}

// head computes logits and losses of the rows of a pass.
func (t *Trainer) head(p *Pass, batch []Sequence, scale float32, learn bool, losses []float32) ([]float32, error) {
	c, x, dec := p.Ctx, p.Rows, t.stages[len(t.stages)-1].dec
	rows := x.Dim(0)
	targets, weights := make([]int32, 0, rows), []float32(nil)
	for _, q := range batch {
		if q.Weights != nil {
			weights = make([]float32, 0, rows)
		}
		targets = append(targets, q.Targets...)
	}
	for _, q := range batch {
		switch {
		case weights == nil:
		case q.Weights != nil:
			weights = append(weights, q.Weights...)
		default:
			for range q.Tokens {
				weights = append(weights, 1)
			}
		}
	}
	at, err := t.room(rows)
	if err != nil {
		return nil, err
	}
	t.s.Write(at[1], tensor.AsBytes(targets))
	w := tensor.Tensor{}
	if weights != nil {
		w = at[2]
		t.s.Write(w, tensor.AsBytes(weights))
	}
	h, logits := c.Tmp(rows, dec.Hidden), c.Tmp(rows, dec.Vocab)
	t.tape.RMSNorm(h, x, dec.Norm, dec.Eps)
	t.tape.Linear(logits, h, dec.Head)
	if learn {
		t.tape.CrossEntropy(at[0], logits, at[1], w, scale)
	} else if g, ok := t.s.(backend.Grad); ok && t.tape.Err() == nil {
		g.CrossEntropy(at[0], tensor.Tensor{}, logits, at[1], w, scale)
	}
	loss := make([]float32, rows)
	t.tape.Read(tensor.AsBytes(loss), at[0])
	if err := t.tape.Sync(); err != nil {
		return nil, err
	}
	for r, id := range targets {
		if id >= 0 {
			losses = append(losses, loss[r])
		}
	}
	return losses, nil
}

// room is memory for losses, targets and weights of so many rows.
func (t *Trainer) room(rows int) (at [3]tensor.Tensor, err error) {
	if rows > t.rows {
		if t.buf != nil {
			t.dev.Free(t.buf)
			t.buf, t.rows = nil, 0
		}
		if t.buf, err = t.dev.Alloc(12 * rows); err != nil {
			return at, err
		}
		t.rows = rows
	}
	for i, dt := range []tensor.DType{tensor.F32, tensor.I32, tensor.F32} {
		if at[i], err = tensor.New(t.buf, 4*i*t.rows, dt, rows); err != nil {
			return at, err
		}
	}
	return at, nil
}
