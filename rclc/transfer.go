package rclc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// Transfer selects from every sender, for every request, and delivers to every
// receiver: with s senders, r receivers and q requests there are r·q deliveries of s
// messages. A selection is made once per sender and request and shared.
//
// Nothing is delivered until every message of every request exists: until then any
// error, and the end of ctx, leaves senders, receivers and queues as they were.
// Then, for each request in order, the receivers are called in order; the first that
// fails ends the transfer, and deliveries made before it stay.
func Transfer(ctx context.Context, senders []Source, receivers []Receiver, requests []Request, cfg Config) error {
	t := &transfer{cfg: cfg, receivers: receivers, requests: requests}
	defer t.release()
	err := t.prepare(ctx, senders)
	if err == nil {
		err = t.run(ctx)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = t.deliver(ctx)
	}
	if e := ctx.Err(); e != nil && errors.Is(err, e) {
		return e
	}
	return err
}

// transfer is a transfer under way.
type transfer struct {
	cfg       Config
	receivers []Receiver
	requests  []Request

	senders    []*Sender
	ids        [][][]int32 // by request, sender
	plans      [][]Plan    // by request, receiver; of planners
	counts     [][]int     // by request, sender: positions granted
	deliveries []Delivery  // by request
}

// reserve is how many positions are set aside for reasoning after selection.
func (t *transfer) reserve() int {
	if t.cfg.Reason != nil && t.cfg.ReasonContext.after() {
		return t.cfg.ReasonBudget
	}
	return 0
}

func (t *transfer) release() {
	for _, s := range t.senders {
		s.Release()
	}
}

// prepare checks everything that can be checked before anything is run, resolves the
// senders, and asks planners for their plans.
func (t *transfer) prepare(ctx context.Context, sources []Source) error {
	if err := t.cfg.check(); err != nil {
		return err
	}
	if t.cfg.Selector == nil {
		t.cfg.Selector = CacheBack{}
	}
	switch {
	case len(sources) == 0:
		return fail(ErrOption, "senders_empty", "a transfer without senders: give at least one")
	case len(t.receivers) == 0:
		return fail(ErrOption, "receivers_empty", "a transfer without receivers: give at least one")
	case len(t.requests) == 0:
		return fail(ErrOption, "requests_empty", "a transfer without requests: give at least one")
	}
	for i, s := range sources {
		if missing(s) {
			return fail(ErrOption, "senders_empty", "sender %d is nil: leave it out", i)
		}
	}
	for k, r := range t.receivers {
		if missing(r) {
			return fail(ErrOption, "receivers_empty", "receiver %d is nil: leave it out", k)
		}
	}
	for i, source := range sources {
		if err := ctx.Err(); err != nil {
			return err
		}
		s, err := source.Sender(ctx)
		if err != nil {
			drop(s)
			return within(err, "sender %d", i)
		}
		if s == nil {
			return fail(ErrState, "model", "sender %d: its source has nothing to send and no error: return one", i)
		}
		t.senders = append(t.senders, s)
	}
	for i, s := range t.senders {
		if err := s.Validate(); err != nil {
			return fail(ErrState, Code(err), "sender %d: %w", i, err)
		}
		if t.cfg.Form == TokenIDs && s.NoIDs {
			return fail(ErrState, "ids", "sender %d does not know its ids, which the form %v needs: send embeddings", i, t.cfg.Form)
		}
	}
	if err := t.compatible(); err != nil {
		return err
	}
	for q, r := range t.requests {
		t.plans = append(t.plans, make([]Plan, len(t.receivers)))
		for k, to := range t.receivers {
			p, ok := to.(Planner)
			if !ok {
				continue
			}
			var err error
			if t.plans[q][k], err = p.Plan(ctx, r, t.cfg.Placement); err != nil {
				return within(err, "receiver %d, request %d", k, q)
			}
		}
	}
	t.counts = make([][]int, len(t.requests))
	if t.cfg.Reason == nil || t.cfg.ReasonContext.after() {
		for q := range t.requests {
			if err := t.fit(q, t.senders); err != nil {
				return err
			}
		}
	}
	for q, r := range t.requests {
		t.ids = append(t.ids, make([][]int32, len(t.senders)))
		for i, s := range t.senders {
			var err error
			if t.ids[q][i], err = r.ids(s.Model); err != nil {
				return fail(ErrRequest, Code(err), "request %d for sender %d: %w", q, i, err)
			}
		}
	}
	return nil
}

// check refuses options that contradict each other.
func (c *Config) check() error {
	switch {
	case c.Form > TokenIDs:
		return fail(ErrOption, "form", "form %d is not known: want Embeddings or TokenIDs", c.Form)
	case c.ReasonContext > SelectedWithRequest:
		return fail(ErrOption, "reason_context", "reasoning context %d is not known: want Full, FullWithRequest, Selected or SelectedWithRequest", c.ReasonContext)
	case c.ReasonBudget < 0 || c.ReasonBudget > noLimit:
		return fail(ErrOption, "reason_budget", "a reasoning budget of %d rows: want 1 to %d, or 0 for none", c.ReasonBudget, noLimit)
	case c.Selector != nil && missing(c.Selector):
		return fail(ErrOption, "selector", "the selector is a nil function: leave Selector out for CacheBack")
	case c.Reason != nil && missing(c.Reason):
		return fail(ErrOption, "reason_missing", "the reasoner is a nil function: leave Reason out")
	case c.Reason == nil && (c.ReasonContext != Full || c.ReasonBudget != 0):
		return fail(ErrOption, "reason_missing", "a reasoning context of %v and budget of %d without reasoning: set Reason, or leave them out", c.ReasonContext, c.ReasonBudget)
	case c.Reason != nil && c.ReasonContext.after() && c.ReasonBudget == 0:
		return fail(ErrOption, "reason_budget", "reasoning in the context %v needs a budget of rows that are set aside for it", c.ReasonContext)
	case c.Parallel < 0:
		return fail(ErrOption, "parallel", "%d senders at once: want at least 1, or 0 for one per worker", c.Parallel)
	}
	if err := c.Placement.check(); err != nil {
		return err
	}
	_, err := Cap(1, 0, 0, c.Ratio, c.Budget)
	return err
}

// missing reports whether there is nothing behind an interface that could be called.
func missing(x any) bool {
	switch x := x.(type) {
	case nil:
		return true
	case *Sender:
		return x == nil
	case *Agent:
		return x == nil
	case ReceiverFunc:
		return x == nil
	case SelectorFunc:
		return x == nil
	case ReasonerFunc:
		return x == nil
	}
	return false
}

// compatible checks every planner against every sender.
func (t *transfer) compatible() error {
	for k, to := range t.receivers {
		p, ok := to.(Planner)
		if !ok {
			continue
		}
		m := p.Model()
		if m == nil {
			return fail(ErrIncompatible, "model", "receiver %d plans and has no model: it must tell what the received rows will run on", k)
		}
		for i, s := range t.senders {
			if err := m.Info.compatible(&s.Model.Info); err != nil {
				return fail(ErrIncompatible, Code(err), "receiver %d and sender %d: %w", k, i, err)
			}
		}
	}
	return nil
}

// fit resolves the budgets of a request.
func (t *transfer) fit(q int, senders []*Sender) error {
	n := t.reserve()
	var caps, floors, available []int
	for _, s := range senders {
		c, err := Cap(s.Len(), s.Inherited, n, t.cfg.Ratio, t.cfg.Budget)
		if err != nil {
			return err
		}
		floor := 1
		if f, ok := t.cfg.Selector.(Floorer); ok {
			floor = min(max(f.Floor(s), 1), s.Len()+1) // more than there is cannot be granted anyway
		}
		caps, floors = append(caps, c), append(floors, floor+n)
	}
	for k, to := range t.receivers {
		if _, ok := to.(Planner); ok && t.plans[q][k].Limit > 0 {
			available = append(available, t.plans[q][k].Available())
		}
	}
	var err error
	if t.counts[q], err = Fit(caps, floors, available); err != nil && len(t.requests) > 1 {
		err = within(err, "request %d", q)
	}
	return err
}

// run makes all messages.
func (t *transfer) run(ctx context.Context) error {
	before := t.cfg.Reason != nil && !t.cfg.ReasonContext.after()
	if before && t.cfg.ReasonContext == Full {
		grown := make([]*Sender, len(t.senders))
		err := t.each(ctx, func(ctx context.Context, i int) (err error) {
			longest := 0
			for q := range t.requests {
				longest = max(longest, len(t.ids[q][i]))
			}
			grown[i], err = t.reason(ctx, t.senders[i], i, longest, nil)
			return err
		})
		t.senders = replaced(t.senders, grown)
		if err != nil {
			return err
		}
	}
	for q := range t.requests {
		if err := t.request(ctx, q, before); err != nil {
			return err
		}
	}
	return nil
}

// replaced releases the senders that have a successor and returns what is left.
func replaced(old, grown []*Sender) []*Sender {
	l := slices.Clone(old)
	for i, g := range grown {
		if g != nil {
			l[i].Release()
			l[i] = g
		}
	}
	return l
}

// request makes the messages of one request.
func (t *transfer) request(ctx context.Context, q int, before bool) error {
	senders := t.senders
	if before && t.cfg.ReasonContext == FullWithRequest {
		grown := make([]*Sender, len(senders))
		defer func() {
			for _, s := range grown {
				if s != nil {
					s.Release()
				}
			}
		}()
		err := t.each(ctx, func(ctx context.Context, i int) (err error) {
			grown[i], err = t.reason(ctx, t.senders[i], i, len(t.ids[q][i]), t.ids[q][i])
			return err
		})
		if err != nil {
			return err
		}
		senders = grown
	}
	if before {
		if err := t.fit(q, senders); err != nil {
			return err
		}
	}
	d := Delivery{Request: t.requests[q], Messages: make([]Message, len(senders))}
	err := t.each(ctx, func(ctx context.Context, i int) (err error) {
		d.Messages[i], err = t.message(ctx, senders[i], q, i)
		return err
	})
	t.deliveries = append(t.deliveries, d)
	return err
}

// message makes the message of one sender for one request.
func (t *transfer) message(ctx context.Context, s *Sender, q, i int) (Message, error) {
	count, n := t.counts[q][i], t.reserve()
	kept, scores, err := t.choose(ctx, s, t.ids[q][i], count-n)
	if err != nil {
		return Message{}, &SelectionError{Sender: i, Request: q, Err: err}
	}
	rows, added := s.at(kept), 0
	if t.cfg.Reason != nil && t.cfg.ReasonContext.after() {
		if rows, added, err = t.reasonSelected(ctx, s, i, rows, t.ids[q][i]); err != nil {
			return Message{}, err
		}
	}
	m, err := encode(s, rows, t.cfg.Form)
	if err != nil {
		return Message{}, fail(ErrMessage, Code(err), "sender %d, request %d: %w", i, q, err)
	}
	if t.cfg.Record {
		r := &Selection{Source: s.Len(), Budget: count, Indices: kept, Added: added, Reserve: n,
			Spans: spansOf(s.Len(), s.Latent, s.IDs(), kept, s.Model.Tokenizer), Request: slices.Clone(t.ids[q][i]), Latent: s.Latent, Rows: rowsDigest(s)}
		if named, ok := t.cfg.Selector.(Namer); ok {
			r.Selector = named.Name()
		}
		if scores != nil {
			r.Scores = scoresDigest(scores)
		}
		m.selection = r
	}
	return m, nil
}

// choose calls the selector and checks what it returns. Scores are those of a
// built-in selector that needed them.
func (t *transfer) choose(ctx context.Context, s *Sender, request []int32, budget int) (kept []int, scores []float32, err error) {
	if b, ok := t.cfg.Selector.(ruled); ok {
		kept, scores, err = b.rule().scored(ctx, s, request, budget)
	} else {
		kept, err = t.outside(ctx, s, request, budget)
	}
	if err != nil {
		return nil, nil, err
	}
	kept, err = checkPositions(kept, s.Len(), budget)
	return kept, scores, err
}

// outside calls a selector from outside, one at a time for a model, with copies of
// what it could change.
func (t *transfer) outside(ctx context.Context, s *Sender, request []int32, budget int) ([]int, error) {
	select {
	case s.Model.serial <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.Model.serial }()
	own := s.private()
	defer own.Release()
	return t.cfg.Selector.Select(ctx, own, slices.Clone(request), budget)
}

// each calls f for every sender, several at a time where nothing from outside is
// called. The error is that of the first sender in their order that has one; those
// behind it may not have been called.
func (t *transfer) each(ctx context.Context, f func(ctx context.Context, i int) error) error {
	n := len(t.senders)
	errs := make([]error, n)
	stop := make([]context.CancelFunc, n)
	ctxs := make([]context.Context, n)
	for i := range n {
		ctxs[i], stop[i] = context.WithCancel(ctx)
		defer stop[i]()
	}
	// In full rounds of all workers each has a sender of its own; a rest shares them.
	own := 0
	if k := t.senders[0].Model.pool.Device().Info().Threads; k > 1 && t.parallel() >= k {
		own = n / k * k
	}
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if errs[i] = ctxs[i].Err(); errs[i] == nil {
				c := ctxs[i]
				if i < own {
					c = context.WithValue(c, solo{}, true)
				}
				errs[i] = f(c, i)
			}
			if errs[i] != nil { // what comes after does not matter any more
				for j := i + 1; j < n; j++ {
					stop[j]()
				}
			}
		}
	}
	var wg sync.WaitGroup
	for range min(t.parallel(), n) - 1 {
		wg.Go(work)
	}
	work() // here, so that what is called from outside runs, and fails, in the caller's goroutine
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// parallel is how many senders are worked on at once.
func (t *transfer) parallel() int {
	if _, ok := t.cfg.Selector.(ruled); !ok {
		return 1
	}
	if t.cfg.Reason != nil && !exact(t.cfg.Reason) {
		return 1
	}
	if t.cfg.Parallel > 0 {
		return t.cfg.Parallel
	}
	return max(1, t.senders[0].Model.pool.Device().Info().Threads)
}

// deliver calls the receivers.
func (t *transfer) deliver(ctx context.Context) error {
	for q, d := range t.deliveries {
		for k, to := range t.receivers {
			own := Delivery{Request: Request{Text: d.Request.Text, IDs: slices.Clone(d.Request.IDs)}, Messages: slices.Clone(d.Messages)}
			var err error
			if p, ok := to.(Planner); ok {
				err = p.Enqueue(own, t.plans[q][k])
			} else {
				err = to.Deliver(ctx, own)
			}
			if err != nil {
				return within(err, "receiver %d, request %d", k, q)
			}
		}
	}
	return nil
}
