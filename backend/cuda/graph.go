package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"samebit/backend/cuda/driver"
)

// A pass of one row per sequence is some hundred short kernels, and the calls that
// launch them can take longer than the kernels. The work of such passes is listed
// instead of enqueued, up to the next wait. A list that was run before is captured
// as a graph of the driver, and every further one is one call. Positions, ids and
// page addresses change from pass to pass, but lie in memory that the list copies:
// a list names addresses only. Graph or not, the kernels and their operands are
// the same.

// step is one piece of work. Steps are equal if they do the same with the same
// memory.
type step struct {
	kind   work
	name   string // of a kernel
	f      driver.Function
	launch driver.Launch
	at, n  int        // parameters in a list, or bytes of page-locked memory
	to     driver.Ptr // where a copy goes, or comes from
	from   driver.Ptr // of a copy within the device
}

type work uint8

const (
	launchKernel work = iota
	copyIn            // from the ring in
	copyOut           // to the ring out
	copyStatus        // to the status
	copyWithin
	fillZero
	forget // of contexts that watch reads alone
)

// list is work in order, and the parameters of its kernels.
type list struct {
	steps  []step
	params []byte
}

func (l *list) equal(o *list) bool {
	return slices.Equal(l.steps, o.steps) && bytes.Equal(l.params, o.params)
}

func (l *list) set(o *list) {
	l.steps, l.params = append(l.steps[:0], o.steps...), append(l.params[:0], o.params...)
}

// graph is a list that was run, and from its second time on what the driver made
// of it.
type graph struct {
	list
	exec driver.Exec
	used uint64 // when, in lists
}

const (
	graphsKept = 8 // of a stream
	graphLeast = 8 // steps of a list that is kept
)

// graphs is the listing of a stream.
type graphs struct {
	listing bool // work is listed
	off     bool // the driver refused a capture
	now     list
	kept    []graph
	count   uint64 // lists
}

// do lists a step or enqueues it.
func (s *stream) do(t step, params []byte) {
	s.busy = true
	g := &s.graphs
	if !g.listing {
		s.fails(s.enqueue(&t, params))
		return
	}
	if t.kind == launchKernel {
		t.at, t.n = len(g.now.params), len(params)
		g.now.params = append(g.now.params, params...)
	}
	g.now.steps = append(g.now.steps, t)
}

// enqueue gives one step to the driver.
func (s *stream) enqueue(t *step, params []byte) error {
	c := s.dev.ctx
	switch t.kind {
	case launchKernel:
		if err := c.Launch(s.q, t.f, t.launch, params); err != nil {
			return fmt.Errorf("cuda: %s: %w", t.name, err)
		}
	case copyIn:
		if err := c.CopyIn(s.q, t.to, s.in.host[t.at:t.at+t.n]); err != nil {
			return fmt.Errorf("cuda: copying %d bytes to the device: %w", t.n, err)
		}
	case copyOut:
		if err := c.CopyOut(s.q, s.out.host[t.at:t.at+t.n], t.to); err != nil {
			return fmt.Errorf("cuda: reading %d bytes: %w", t.n, err)
		}
	case copyStatus:
		if err := c.CopyOut(s.q, s.status.host, t.to); err != nil {
			return fmt.Errorf("cuda: reading the status: %w", err)
		}
	case copyWithin:
		if err := c.Copy(s.q, t.to, t.from, t.n); err != nil {
			return fmt.Errorf("cuda: copying %d bytes within the device: %w", t.n, err)
		}
	case fillZero:
		if err := c.Fill(s.q, t.to, 0, t.n); err != nil {
			return fmt.Errorf("cuda: clearing %d bytes: %w", t.n, err)
		}
	case forget:
		if err := s.watch.Forget(s.q, t.to, t.n); err != nil {
			return fmt.Errorf("cuda: reusing %d bytes: %w", t.n, err)
		}
	}
	return nil
}

// enqueueAll enqueues a list step by step.
func (s *stream) enqueueAll(l *list) error {
	for i := range l.steps {
		t := &l.steps[i]
		var params []byte
		if t.kind == launchKernel {
			params = l.params[t.at : t.at+t.n]
		}
		if err := s.enqueue(t, params); err != nil {
			return err
		}
	}
	return nil
}

// list begins or ends the listing of work; what is listed is enqueued first.
func (s *stream) list(on bool) {
	if on = on && !s.graphs.off; on != s.graphs.listing {
		s.fails(s.flush())
		s.graphs.listing = on
	}
}

// flush enqueues what is listed: as a graph if it was listed before.
func (s *stream) flush() error {
	g := &s.graphs
	if len(g.now.steps) == 0 {
		return nil
	}
	defer func() { g.now.steps, g.now.params = g.now.steps[:0], g.now.params[:0] }()
	if g.off || len(g.now.steps) < graphLeast {
		return s.enqueueAll(&g.now)
	}
	g.count++
	k := slices.IndexFunc(g.kept, func(k graph) bool { return k.equal(&g.now) })
	if k < 0 {
		return s.keep()
	}
	x := &g.kept[k]
	x.used = g.count
	if x.exec == 0 {
		var err error
		if x.exec, err = s.capture(&x.list); err != nil {
			g.off = true // and what follows says what is wrong, if anything
			s.dev.mu.Lock()
			s.dev.slow = fmt.Sprintf("the driver refuses graphs, so that kernels are launched one by one: %v", err)
			s.dev.mu.Unlock()
			return s.enqueueAll(&g.now)
		}
	}
	if err := s.dev.ctx.LaunchGraph(s.q, x.exec); err != nil {
		return fmt.Errorf("cuda: a graph of %d steps: %w", len(x.steps), err)
	}
	return nil
}

// keep enqueues a new list and remembers it, in place of the one that was not used
// for longest.
func (s *stream) keep() error {
	g := &s.graphs
	if err := s.enqueueAll(&g.now); err != nil {
		return err
	}
	k := 0
	if len(g.kept) < graphsKept {
		k = len(g.kept)
		g.kept = append(g.kept, graph{})
	}
	for i := range g.kept {
		if g.kept[i].used < g.kept[k].used {
			k = i
		}
	}
	x := &g.kept[k]
	if x.exec != 0 {
		exec := x.exec
		x.exec = 0
		if err := s.dev.ctx.CloseExec(exec); err != nil { // the graph may still run: the driver waits for that
			return fmt.Errorf("cuda: %w", err)
		}
	}
	x.list.set(&g.now)
	x.used = g.count
	return nil
}

// capture makes a graph of a list, if the driver lets it. Nothing runs.
func (s *stream) capture(l *list) (driver.Exec, error) {
	c := s.dev.ctx
	if err := c.BeginCapture(s.q); err != nil {
		return 0, err
	}
	refused := s.enqueueAll(l)
	g, err := c.EndCapture(s.q)
	if err != nil {
		return 0, errors.Join(refused, err)
	}
	if refused != nil {
		return 0, errors.Join(refused, c.CloseGraph(g))
	}
	x, err := c.Instantiate(g)
	if err != nil {
		return 0, errors.Join(err, c.CloseGraph(g))
	}
	if err := c.CloseGraph(g); err != nil {
		return 0, errors.Join(err, c.CloseExec(x))
	}
	return x, nil
}

// close gives all graphs back.
func (g *graphs) close(c driver.Context) (errs []error) {
	for i := range g.kept {
		if x := g.kept[i].exec; x != 0 {
			errs = append(errs, c.CloseExec(x))
		}
	}
	g.kept = nil
	return errs
}
