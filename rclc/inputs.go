package rclc

import (
	"context"
	"slices"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
)

// Inputs are rows that an agent hands out to be continued. They are pending until
// Update records the continuation.
type Inputs struct {
	// Allowance is the number of positions kept free for the continuation.
	Allowance int
	// Inherited is how many leading positions count as another agent's.
	Inherited int

	agent *Agent
	rows  []state.Row
	base  *Sender // state after all rows, if there is one; the agent's mu guards it
	noIDs bool
}

// Rows are the rows, at positions 0, 1, …: tokens, and continuous rows. Nobody
// writes to their vectors.
func (in *Inputs) Rows() []state.Row { return slices.Clone(in.rows) }

// Len is the number of rows.
func (in *Inputs) Len() int { return len(in.rows) }

// IDs are the known tokens of the rows, -1 for continuous ones.
func (in *Inputs) IDs() []int32 { return (&Sender{Rows: in.rows}).IDs() }

// Runner returns a sequence that has run the rows, with the logits of the last one:
// sample, Step, and give its Snapshot to Update. Close the runner, then the stream.
//
// Rows of a retained state are not run again, unless it does not know its last final
// row, as after a Record whose snapshot covers all: then the last one is, and with
// recurrent layers all are.
func (in *Inputs) Runner(ctx context.Context) (*nn.Runner, backend.Stream, error) {
	r, s, err := in.agent.model.NewRunner()
	if err != nil {
		return nil, nil, err
	}
	if base := in.hold(); base != nil {
		if base.LastHidden != nil {
			err = r.ResumeAt(base.Rows, base.Snap, base.LastHidden)
		} else if err = r.Resume(base.Rows, base.Snap); err == nil {
			err = r.Rewind(ctx, len(base.Rows))
		}
		base.Release()
	} else {
		err = r.Append(ctx, in.rows)
	}
	if err != nil {
		r.Close()
		s.Close()
		return nil, nil, err
	}
	return r, s, nil
}

// hold retains the base, if the inputs still have one.
func (in *Inputs) hold() *Sender {
	in.agent.mu.Lock()
	defer in.agent.mu.Unlock()
	if in.base == nil {
		return nil
	}
	return in.base.Retain()
}

// Inputs hands out the retained state, or the history's, to be continued by itself:
// no delivery is taken. maxNewTokens positions are kept free, 0 meaning the agent's
// own number.
func (a *Agent) Inputs(ctx context.Context, maxNewTokens int) (*Inputs, error) {
	if err := a.lock(ctx); err != nil {
		return nil, err
	}
	defer a.unlock()
	allowance, err := a.allowance(maxNewTokens, a.maxNew)
	if err != nil {
		return nil, err
	}
	s, err := a.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.fits(s.Len(), allowance); err != nil {
		s.Release()
		return nil, err
	}
	in := &Inputs{agent: a, rows: slices.Clone(s.Rows), base: s, noIDs: s.NoIDs, Allowance: allowance, Inherited: s.Inherited}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setPending(in)
	return in, nil
}

func (a *Agent) allowance(n, otherwise int) (int, error) {
	if n < 0 {
		return 0, fail(ErrOption, "bad_allowance", "an answer of %d tokens: want a positive number, or 0 for %d", n, otherwise)
	}
	if n == 0 {
		n = otherwise
	}
	return n, nil
}

// PopConfig changes what Pop does. The zero value takes the plan as it was made.
type PopConfig struct {
	// Text or IDs take the place of the planned prompt, as they are: control tokens
	// in Text are control tokens. The received rows come before them.
	Text string
	IDs  []int32

	MaxNewTokens   int  // positions kept free in the place of the planned; 0 for those
	DiscardPending bool // give up pending inputs instead of failing
}

// Pop takes the oldest delivery and hands out its rows with the prompt of its plan,
// to be continued. If it fails, the delivery stays queued, and what is pending,
// pending.
func (a *Agent) Pop(ctx context.Context, cfg PopConfig) (*Inputs, error) {
	if err := a.lock(ctx); err != nil {
		return nil, err
	}
	defer a.unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return nil, fail(ErrEmptyQueue, "queue_empty", "no delivery is queued: wait for the transfer to return first")
	}
	if a.pending != nil && !cfg.DiscardPending {
		return nil, errPending(a.pending)
	}
	q := a.queue[0]
	p := q.plan
	switch {
	case cfg.Text != "" && cfg.IDs != nil:
		return nil, fail(ErrOption, "prompt", "a prompt of both text and %d ids: give one of them", len(cfg.IDs))
	case cfg.Text != "":
		if a.model.Tokenizer == nil {
			return nil, fail(ErrOption, "prompt", "the prompt is text and the model has no tokenizer: give ids")
		}
		p.Prompt, p.At = a.model.Tokenizer.Encode(nil, cfg.Text), 0
	case cfg.IDs != nil:
		p.Prompt, p.At = slices.Clone(cfg.IDs), 0
	}
	var err error
	if p.Allowance, err = a.allowance(cfg.MaxNewTokens, p.Allowance); err != nil {
		return nil, err
	}
	rows, inherited, err := p.Assemble(a.model, q.Delivery)
	if err != nil {
		return nil, err
	}
	if err := checkRows(a.model, rows); err != nil {
		return nil, err
	}
	in := &Inputs{agent: a, rows: rows, Allowance: p.Allowance, Inherited: inherited}
	a.queue[0] = queued{}
	a.queue = a.queue[1:]
	a.changes++
	a.setPending(in)
	return in, nil
}

// Generation is what followed inputs.
type Generation struct {
	// IDs are the new tokens, in order.
	IDs []int32
	// Snap, unless nil, is a state after the inputs' rows and the first of IDs, or
	// after fewer; what it does not cover is run. The caller keeps its own reference.
	Snap state.Snapshot
}

// Update records the continuation of the pending inputs, which must be in itself:
// the agent retains its rows and the new tokens. Length is no proof of content: the
// snapshot must be of exactly these rows.
func (a *Agent) Update(ctx context.Context, in *Inputs, g Generation) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	switch {
	case a.pending == nil:
		return fail(ErrPending, "not_pending", "nothing is pending: take inputs with Pop or Inputs first")
	case in != a.pending:
		return fail(ErrPending, "not_pending", "these inputs are not the pending ones, which have %d rows: record those, or give them up with Discard", len(a.pending.rows))
	}
	for i, id := range g.IDs {
		if id < 0 {
			return fail(ErrState, "vocab_range", "id %d of %d new ones is %d: want ids of the vocabulary", i, len(g.IDs), id)
		}
	}
	rows := slices.Concat(in.rows, state.Tokens(g.IDs))
	snap := g.Snap
	if snap == nil {
		if base := in.hold(); base != nil {
			defer base.Release()
			snap = base.Snap
		}
	}
	s, err := a.complete(ctx, rows, snap)
	if err != nil {
		return err
	}
	s.Inherited = in.Inherited
	s.NoIDs = in.noIDs && len(g.IDs) == 0
	if err := s.Validate(); err != nil { // Inherited is the caller's to change
		s.Release()
		return err
	}
	a.install(s)
	return nil
}

// Discard gives up the pending inputs, if any. What the agent retained stays; a
// delivery that was popped does not come back.
func (a *Agent) Discard(ctx context.Context) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setPending(nil)
	return nil
}
