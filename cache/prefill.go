package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"samebit/state"
)

// Outcome says what a request found.
type Outcome uint8

const (
	Cold    Outcome = iota // nothing
	Partial                // a part of the prefix
	Hit                    // all of the prefix
	Bypass                 // it did not look
)

func (o Outcome) String() string {
	return [...]string{"cold", "partial", "hit", "bypass"}[o]
}

// Report is what a Prefill did.
type Report struct {
	Outcome  Outcome
	Start    int   // rows that came from the cache
	Computed int   // rows that were run; with Start all rows of the request
	Made     []int // checkpoints kept, by row
	Stored   bool  // the start came from the second tier
	Waits    int   // times it waited for another request's checkpoint
	Timing   Timing
}

// Prefill runs rows in a, from the deepest checkpoint that they share on, and
// makes checkpoints of the first stateLen of them by the policy. It leaves a with
// all rows, whatever was reused and whatever it held before.
//
// The last row is always run, so that its logits exist, unless stateLen is
// len(rows): then rows is all prefix, and a hit leaves a state without logits.
//
// An error of the model is returned as it is; a then holds some of the rows, and
// checkpoints that were finished are kept. The context is looked at between spans,
// and by the model as it likes.
func (c *Cache) Prefill(ctx context.Context, k Key, a Appender, rows []state.Row, stateLen int) (Report, error) {
	if stateLen < 0 || stateLen > len(rows) || len(rows) == 0 {
		return Report{}, fmt.Errorf("cache: prefill of %d rows with a prefix of %d: want at least one row and a prefix within them", len(rows), stateLen)
	}
	short := c.pol.down(stateLen) < max(c.pol.MinPrefix, 1)
	if short || !c.enter() {
		return c.bypass(ctx, a, rows, short)
	}
	defer c.leave()
	p := &prefill{c: c, ctx: ctx, key: k, a: a, rows: rows, end: stateLen, limit: len(rows), clock: c.cfg.Clock()}
	if stateLen < len(rows) {
		p.limit--
	}
	err := p.run()
	p.done(err)
	return p.rep, err
}

// bypass runs rows without the cache.
func (c *Cache) bypass(ctx context.Context, a Appender, rows []state.Row, short bool) (Report, error) {
	rep := Report{Outcome: Bypass, Computed: len(rows)}
	c.mu.Lock()
	if short {
		c.stats.BypassShort++
	} else {
		c.stats.BypassClosed++
	}
	c.mu.Unlock()
	c.count(Bypasses, 1)
	start := c.cfg.Clock()
	err := a.Reset()
	if err == nil {
		err = a.Append(ctx, rows)
	}
	rep.Timing[PhaseSuffix] = c.cfg.Clock().Sub(start)
	return rep, err
}

// prefill is one request.
type prefill struct {
	c     *Cache
	ctx   context.Context
	key   Key
	a     Appender
	rows  []state.Row
	end   int // of the prefix
	limit int // the deepest start
	rep   Report
	clock time.Time

	start    *entry         // pinned; nil for a cold start or when hand is deeper
	hand     state.Snapshot // from a flight, or cut from donor's
	donor    *entry
	plan     []int
	flight   *flight
	diverged bool // the place where rows leave the tree was counted
	junction []int
	misses   int  // entries that were not there when it came to them
	noStore  bool // the second tier is not asked any more
	noMemory bool // nor is memory, which offered a snapshot of another pool
}

// lap gives the time since the last lap to a phase.
func (p *prefill) lap(ph Phase) {
	now := p.c.cfg.Clock()
	p.rep.Timing[ph] += now.Sub(p.clock)
	p.clock = now
}

func (p *prefill) run() error {
	defer p.release()
	for {
		if err := p.find(); err != nil {
			return err
		}
		p.lap(PhaseLookup)
		again, err := p.restore()
		p.lap(PhaseRestore)
		if err != nil {
			return err
		}
		if !again {
			break
		}
		p.release()
	}
	at := p.rep.Start
	for i, pos := range p.plan {
		if err := p.c.append(p.ctx, p.a, at, p.rows[at:pos]); err != nil {
			return err
		}
		p.lap(PhasePrefix)
		next := 0
		if i+1 < len(p.plan) {
			next = p.plan[i+1]
		}
		if err := p.keep(pos, next); err != nil {
			return err
		}
		p.lap(PhaseSave)
		at = pos
	}
	err := p.c.append(p.ctx, p.a, at, p.rows[at:])
	p.lap(PhaseSuffix)
	return err
}

// find settles where to start: it waits as long as another request is about to
// reach a deeper place.
func (p *prefill) find() error {
	c := p.c
	if c.tier != nil {
		c.tier.refresh(p.ctx, p.key)
	}
	for {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		c.mu.Lock()
		p.lookup()
		var f *flight
		if !p.noMemory {
			f = c.join(p.key, p.rows, p.limit, p.rep.Start)
		}
		if f == nil {
			if len(p.plan) > 0 {
				p.flight = c.lead(p.key, p.rows, p.plan[0])
			}
			c.mu.Unlock()
			return nil
		}
		step := f.step
		c.stats.Waits++
		c.mu.Unlock()
		p.release()
		p.rep.Waits++
		c.count(Waits, 1)
		s, err := c.wait(p.ctx, f, step, p.rows, p.limit)
		if err != nil {
			return err
		}
		p.hand = s
	}
}

// lookup finds the deepest start and plans from there. It is called with the lock.
func (p *prefill) lookup() {
	c := p.c
	p.rep.Start, p.start, p.plan = 0, nil, nil
	if root := c.roots[p.key]; root != nil {
		f := root.walk(p.rows, func(e *entry) {
			without := p.noStore
			if e.snap != nil {
				without = p.noMemory
			}
			if e.pos() <= p.limit && !without {
				p.start = e
			}
		})
		if p.start != nil {
			p.rep.Start = p.start.pos()
		}
		p.cut(f, min(f.depth, p.limit))
		d := c.pol.down(f.depth)
		if c.pol.Junction > 0 && f.depth < len(p.rows) && d > p.rep.Start && d <= p.end && !p.diverged {
			p.diverged = true
			if f.node.diverged(f.depth) >= c.pol.Junction {
				p.junction = []int{d}
			}
		}
	}
	if p.hand != nil && p.hand.Len() > p.rep.Start {
		p.start, p.rep.Start = nil, p.hand.Len()
	}
	if p.start != nil {
		p.start.pins++
		if p.start.resident {
			c.order.touch(p.start)
		}
	}
	p.plan = c.pol.checkpoints(p.rep.Start, p.end, p.junction...)
}

// cut makes the first n rows of a deeper checkpoint the start, where states can be
// cut: those of models without recurrent layers.
func (p *prefill) cut(f found, n int) {
	if n <= p.rep.Start || p.hand != nil && n <= p.hand.Len() || p.noMemory {
		return
	}
	e := f.node.donor(new(int))
	if e == nil {
		return
	}
	if s, ok := state.Cut(e.snap, n); ok {
		if p.hand != nil {
			p.hand.Release()
		}
		p.hand, p.donor = s, e
		if e.resident {
			p.c.order.touch(e)
		}
	}
}

// restore brings the sequence to the start; again when that has turned out not to
// be there.
func (p *prefill) restore() (again bool, err error) {
	at := p.rows[:p.rep.Start]
	switch {
	case len(at) == 0:
		return false, p.a.Reset()
	case p.start == nil:
		return p.resume(at, p.hand, p.donor)
	}
	p.c.mu.Lock()
	snap := p.start.snap
	if snap != nil {
		snap.Retain()
	}
	p.c.mu.Unlock()
	if snap != nil {
		defer snap.Release()
		return p.resume(at, snap, p.start)
	}
	if t := p.c.tier; t != nil {
		err := t.promote(p.ctx, p.start, at, p.a)
		for errors.Is(err, state.ErrNoRoom) && p.c.Relieve(p.ctx) {
			err = t.promote(p.ctx, p.start, at, p.a)
		}
		if err == nil {
			p.rep.Stored = true
			return false, nil
		}
		if p.misses++; p.misses == 3 || !errors.Is(err, ErrNotFound) {
			p.noStore = true
		}
	}
	return true, p.ctx.Err()
}

// resume is Resume with a snapshot of e, if e is not nil; again when it lies in
// another pool, where it helps nobody.
func (p *prefill) resume(rows []state.Row, s state.Snapshot, e *entry) (again bool, err error) {
	err = p.a.Resume(rows, s)
	if !errors.Is(err, state.ErrForeign) {
		return false, err
	}
	p.noMemory = true
	if e != nil {
		p.c.forget(e)
	}
	return true, nil
}

// keep makes the sequence's state the checkpoint at pos.
func (p *prefill) keep(pos, next int) error {
	s, err := p.a.Snapshot()
	if err != nil {
		return err
	}
	defer s.Release()
	if s.Len() != pos || s.Model() != p.key.Model {
		return fmt.Errorf("cache: the sequence has %d rows of model %v where %d of model %v were run: %w", s.Len(), s.Model(), pos, p.key.Model, state.ErrForeign)
	}
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.insert(p.key, p.rows[:pos], s)
	c.advance(p.key, p.flight, s, next)
	c.evict()
	p.rep.Made = append(p.rep.Made, pos)
	return nil
}

// release lets go of the start and of the flight.
func (p *prefill) release() {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.start != nil {
		p.start.pins--
		p.start = nil
	}
	if p.hand != nil {
		p.hand.Release()
		p.hand, p.donor = nil, nil
	}
	if p.flight != nil {
		c.end(p.key, p.flight)
		p.flight = nil
	}
	c.evict() // what was pinned may go now
}

// done counts the request.
func (p *prefill) done(err error) {
	c, r := p.c, &p.rep
	r.Computed = len(p.rows) - r.Start
	which := Colds
	switch {
	case r.Start >= c.pol.down(p.end):
		r.Outcome, which = Hit, Hits
	case r.Start > 0:
		r.Outcome, which = Partial, Partials
	}
	c.mu.Lock()
	s := &c.stats
	s.Made += int64(len(r.Made))
	if err != nil {
		s.Failed++
	} else {
		s.Rows++
		*map[Counter]*int64{Colds: &s.Cold, Hits: &s.Hits, Partials: &s.Partial}[which]++
		s.TokensReused += int64(r.Start)
		s.TokensComputed += int64(r.Computed)
	}
	c.mu.Unlock()
	if c.cfg.Metrics == nil {
		return
	}
	c.count(CheckpointsMade, int64(len(r.Made)))
	if err == nil {
		c.count(Requests, 1)
		c.count(which, 1)
		c.count(RowsReused, int64(r.Start))
		c.count(RowsComputed, int64(r.Computed))
		for ph, d := range r.Timing {
			c.cfg.Metrics.Time(Phase(ph), d)
		}
	}
}
