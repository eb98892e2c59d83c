package rclc

import (
	"context"
	"slices"
	"sync"

	"samebit/state"
	"samebit/token/jinja"
)

// AgentConfig says what an agent starts with. All of it may be left out: such an
// agent first receives.
type AgentConfig struct {
	// History returns the conversation as it is now. It is read when a state or a
	// plan is needed, from one goroutine at a time, and must not call the agent.
	History func() []jinja.Message

	// At most one of these three is what the agent sends from the start, which
	// History then does not decide. Bind runs what Snap does not cover. Text is plain:
	// control tokens that it spells are characters.
	Text   string
	IDs    []int32
	Sender *Sender // retained by the agent; the caller releases its own
	// Snap is a state after the first rows of IDs, such as a generation leaves it.
	// Length is no proof of content: IDs must be exactly what was run.
	Snap state.Snapshot

	MaxNewTokens int // positions kept free for an answer; 0 means 128
	ContextLimit int // positions in all; 0 means the model's
	// Placement is where rows stand that come by Deliver; those of a Transfer stand
	// where its Config says.
	Placement Placement
}

// Agent takes part in a conversation, sends what it knows and receives what others
// know. Its methods may be called from many goroutines; those that run the model
// wait for each other, and give up waiting when their context ends. What fails
// leaves the agent as it was. Answers are never added to the history: that is the
// caller's.
type Agent struct {
	model   *Model
	history func() []jinja.Message
	maxNew  int
	limit   int
	place   Placement
	busy    chan struct{} // held by the operation that runs

	mu      sync.Mutex // of what follows; held for moments only
	closed  bool
	own     *Sender // explicit state, nil for none
	seen    *Sender // of the history when it was last run, nil for none
	queue   []queued
	changes int // of the queue
	pending *Inputs
}

type queued struct {
	Delivery
	plan Plan
}

const defaultNewTokens = 128

// Bind makes an agent of a model. It runs rows only for Text, IDs and a Snap that
// does not cover them. Close the agent before the model's pool.
func Bind(ctx context.Context, m *Model, cfg AgentConfig) (*Agent, error) {
	if m == nil {
		return nil, fail(ErrOption, "model", "an agent needs a model")
	}
	given := 0
	for _, is := range []bool{cfg.Text != "", cfg.IDs != nil, cfg.Sender != nil} {
		if is {
			given++
		}
	}
	switch c := m.Info.Context; {
	case given > 1:
		return nil, fail(ErrOption, "agent", "text, ids and a sender are given: one of them is the state, leave out the others")
	case cfg.Snap != nil && cfg.IDs == nil:
		return nil, fail(ErrOption, "agent", "a snapshot of %d rows without the ids that it has run: give them", cfg.Snap.Len())
	case cfg.MaxNewTokens < 0:
		return nil, fail(ErrOption, "agent", "an answer of %d tokens: want a positive number, or 0 for %d", cfg.MaxNewTokens, defaultNewTokens)
	case cfg.ContextLimit < 0 || c > 0 && cfg.ContextLimit > c:
		return nil, fail(ErrOption, "agent", "a context of %d positions: the model has %d; want at most that, or 0 for it", cfg.ContextLimit, c)
	case cfg.History != nil && m.Chat == nil:
		return nil, fail(ErrOption, "agent", "a history needs a model with a chat template: set Model.Chat, see NewChat, or give text or ids")
	case cfg.Sender != nil && cfg.Sender.Model != m:
		return nil, fail(ErrIncompatible, "agent", "the sender belongs to another model than the agent's")
	}
	if err := cfg.Placement.check(); err != nil {
		return nil, err
	}
	a := &Agent{model: m, history: cfg.History, maxNew: cfg.MaxNewTokens, limit: cfg.ContextLimit, place: cfg.Placement, busy: make(chan struct{}, 1)}
	if a.maxNew == 0 {
		a.maxNew = defaultNewTokens
	}
	if a.limit == 0 {
		a.limit = m.Info.Context
	}
	var err error
	switch {
	case cfg.Text != "":
		var ids []int32
		if ids, err = a.plainIDs(cfg.Text); err == nil {
			a.own, err = a.fromIDs(ctx, ids, nil)
		}
	case cfg.IDs != nil:
		a.own, err = a.fromIDs(ctx, cfg.IDs, cfg.Snap)
	case cfg.Sender != nil:
		if err = cfg.Sender.Validate(); err == nil {
			err = a.fits(cfg.Sender.Len(), 0)
		}
		if err == nil {
			a.own = cfg.Sender.Retain()
		}
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Close releases what the agent remembers and has received. It waits for the
// operation that runs; what comes later fails. A second Close does nothing.
func (a *Agent) Close() {
	a.busy <- struct{}{}
	defer a.unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.setOwn(nil)
	a.setSeen(nil)
	a.setPending(nil)
	a.queue = nil
	a.changes++
}

// Model is the model that the agent is bound to.
func (a *Agent) Model() *Model { return a.model }

// lock waits for the operation that runs, if any.
func (a *Agent) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case a.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if a.closed { // set only by who holds busy
		a.unlock()
		return fail(ErrState, "closed", "the agent is closed")
	}
	return nil
}

func (a *Agent) unlock() { <-a.busy }

// The setters release what was there; mu is held.
func (a *Agent) setOwn(s *Sender)  { drop(a.own); a.own = s }
func (a *Agent) setSeen(s *Sender) { drop(a.seen); a.seen = s }
func (a *Agent) setPending(i *Inputs) {
	if a.pending != nil {
		drop(a.pending.base)
		a.pending.base = nil
	}
	a.pending = i
}

func drop(s *Sender) {
	if s != nil {
		s.Release()
	}
}

// install makes s, which may be nil, the explicit state. Nothing is pending then.
func (a *Agent) install(s *Sender) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setOwn(s)
	a.setPending(nil)
}

// fits refuses more positions than the agent has.
func (a *Agent) fits(rows, more int) error {
	if a.limit > 0 && rows+more > a.limit {
		return fail(ErrContext, "context_limit", "%d positions and %d more exceed the agent's context of %d: shorten them, or keep fewer free for the answer", rows, more, a.limit)
	}
	return nil
}

// plainIDs encodes text from outside.
func (a *Agent) plainIDs(text string) ([]int32, error) { return Request{Text: text}.ids(a.model) }

// fromIDs is the state after ids, of which snap, if not nil, covers a part.
func (a *Agent) fromIDs(ctx context.Context, ids []int32, snap state.Snapshot) (*Sender, error) {
	if len(ids) == 0 {
		return nil, fail(ErrState, "rows", "a state of no ids: give at least one")
	}
	rows := make([]state.Row, len(ids))
	for i, id := range ids {
		if id < 0 {
			return nil, fail(ErrState, "vocab_range", "id %d of %d is %d: want ids of the vocabulary", i, len(ids), id)
		}
		rows[i].Token = id
	}
	return a.complete(ctx, rows, snap)
}

// complete is the state after rows, of which snap, if not nil, covers a part.
func (a *Agent) complete(ctx context.Context, rows []state.Row, snap state.Snapshot) (*Sender, error) {
	if err := a.fits(len(rows), 0); err != nil {
		return nil, err
	}
	if err := checkRows(a.model, rows); err != nil {
		return nil, err
	}
	if snap == nil || snap.Len() == 0 {
		return FromRows(ctx, a.model, rows)
	}
	n := snap.Len()
	if n > len(rows) {
		return nil, fail(ErrState, "cache_length", "a snapshot of %d rows for %d: give all that it has run", n, len(rows))
	}
	s := &Sender{Model: a.model, Rows: slices.Clone(rows[:n]), Snap: snap.Retain()}
	if err := s.Validate(); err != nil {
		s.Release()
		return nil, err
	}
	if n == len(rows) {
		return s, nil
	}
	defer s.Release()
	return s.Extend(ctx, rows[n:])
}

// Sender is the state that the agent would send: what it retained, or its history,
// which is rendered, and run as far as it is new. The caller releases it. It fails
// while inputs are pending.
func (a *Agent) Sender(ctx context.Context) (*Sender, error) {
	if err := a.lock(ctx); err != nil {
		return nil, err
	}
	defer a.unlock()
	return a.resolve(ctx)
}

// resolve is Sender of who holds busy.
func (a *Agent) resolve(ctx context.Context) (*Sender, error) {
	if a.pending != nil {
		return nil, errPending(a.pending)
	}
	if a.own != nil {
		return a.own.Retain(), nil
	}
	var messages []jinja.Message
	if a.history != nil {
		messages = a.history()
	}
	if len(messages) == 0 {
		return nil, fail(ErrState, "no_state", "the agent has nothing to send: its history is empty, and no state was recorded")
	}
	ids, _, err := a.model.Chat(messages, false, "")
	if err != nil {
		return nil, err
	}
	was := 0
	if s := a.seen; s != nil && s.Len() <= len(ids) && slices.EqualFunc(s.Rows, ids[:s.Len()], func(r state.Row, id int32) bool { return r.Token == id }) {
		if was = s.Len(); was == len(ids) {
			return s.Retain(), nil
		}
	}
	var s *Sender
	if was == 0 {
		s, err = a.fromIDs(ctx, ids, nil)
	} else if err = a.fits(len(ids), 0); err == nil {
		s, err = a.seen.Extend(ctx, state.Tokens(ids[was:]))
	}
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setSeen(s.Retain())
	return s, nil
}

func errPending(in *Inputs) error {
	return fail(ErrPending, "pending", "inputs of %d rows are pending: record their continuation with Update, or give it up with Discard", len(in.rows))
}

// Append adds ids to the state, without template, and retains the result; the
// history stays what it is. A latent tail becomes ordinary continuous rows.
func (a *Agent) Append(ctx context.Context, ids []int32) error {
	if len(ids) == 0 {
		return fail(ErrRequest, "request_empty", "nothing to append: give at least one id")
	}
	return a.extend(ctx, func() ([]int32, error) {
		for i, id := range ids {
			if id < 0 {
				return nil, fail(ErrRequest, "vocab_range", "id %d of %d to append is %d: want ids of the vocabulary", i, len(ids), id)
			}
		}
		return ids, nil
	})
}

// AppendText is Append of text from outside: control tokens that it spells are
// characters.
func (a *Agent) AppendText(ctx context.Context, text string) error {
	return a.extend(ctx, func() ([]int32, error) { return a.plainIDs(text) })
}

func (a *Agent) extend(ctx context.Context, encode func() ([]int32, error)) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	ids, err := encode()
	if err != nil {
		return err
	}
	s, err := a.resolve(ctx)
	if err != nil {
		return err
	}
	defer s.Release()
	if err := a.fits(s.Len(), len(ids)); err != nil {
		return err
	}
	n, err := s.Extend(ctx, state.Tokens(ids))
	if err != nil {
		return err
	}
	a.install(n)
	return nil
}

// Record makes ids the agent's state: a prompt, or a whole generation with its
// prompt. snap, unless nil, is a state after the first rows of it; what it does not
// cover is run. The caller keeps its own reference to snap. Record is refused while
// inputs are pending, whose continuation Update records.
func (a *Agent) Record(ctx context.Context, ids []int32, snap state.Snapshot) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	if a.pending != nil {
		return errPending(a.pending)
	}
	s, err := a.fromIDs(ctx, ids, snap)
	if err != nil {
		return err
	}
	a.install(s)
	return nil
}

// Reset gives up the retained state and pending inputs: from here on the history is
// what the agent sends.
func (a *Agent) Reset(ctx context.Context) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	a.install(nil)
	return nil
}

// Plan renders the prompt for a request: the history and the request, or, without
// history, the request's ids as they are. See [Planner].
func (a *Agent) Plan(ctx context.Context, r Request, where Placement) (Plan, error) {
	if err := a.lock(ctx); err != nil {
		return Plan{}, err
	}
	defer a.unlock()
	var history []jinja.Message
	if a.history != nil {
		history = slices.Clone(a.history())
	}
	return a.model.NewPlan(history, r, where, a.maxNew, a.limit)
}

// Enqueue keeps a delivery and its plan until it is popped. Messages of another model
// are refused. See [Planner].
func (a *Agent) Enqueue(d Delivery, p Plan) error {
	if len(d.Messages) == 0 {
		return fail(ErrMessage, "message_empty", "the delivery has no messages")
	}
	for i, m := range d.Messages {
		_, err := m.Rows(a.model)
		if err == nil && m.from != nil {
			err = a.model.Info.compatible(m.from)
		}
		if err != nil {
			return within(err, "message %d of %d", i, len(d.Messages))
		}
	}
	if err := p.check(a.model); err != nil {
		return err
	}
	if a.limit > 0 && (p.Limit == 0 || p.Limit > a.limit) {
		p.Limit = a.limit
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return fail(ErrState, "closed", "the agent is closed")
	}
	d.Messages = slices.Clone(d.Messages)
	d.Request.IDs = slices.Clone(d.Request.IDs)
	p.Prompt = slices.Clone(p.Prompt)
	a.queue = append(a.queue, queued{d, p})
	a.changes++
	return nil
}

// Deliver plans and enqueues a delivery that comes by itself. One that does not fit
// beside its prompt is enqueued all the same; Pop will say so, and may be given a
// shorter prompt. One that fits beside none is refused: it could never be popped.
func (a *Agent) Deliver(ctx context.Context, d Delivery) error {
	if n := d.Positions(); a.limit > 0 && n >= a.limit {
		return fail(ErrReceiverFull, "receiver_no_space", "%d received rows leave no position free of the agent's context of %d: send less", n, a.limit)
	}
	p, err := a.Plan(ctx, d.Request, a.place)
	if err != nil {
		return err
	}
	return a.Enqueue(d, p)
}

// Len is the number of deliveries in the queue.
func (a *Agent) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue)
}
