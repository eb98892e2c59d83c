package qcc

import (
	"context"
	"fmt"
	"sync"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// engine runs passes of a mixer on a device, from any number of goroutines.
type engine struct {
	*device
	pool  *state.Pool
	id    state.ID
	mixer *Mixer

	mu     sync.Mutex
	idle   []*nn.Ctx
	all    []*nn.Ctx
	closed bool
}

func newEngine(dev backend.Device, c Config, p *Params, pr *Projections) (*engine, error) {
	m, d, err := openMixer(dev, 0, c, pr, p)
	if err != nil {
		return nil, err
	}
	e := &engine{device: d, mixer: m, id: digest(c, p.Named(c))}
	if pr != nil {
		e.id = digest(c, p.Named(c), pr.named(c))
	}
	if e.pool, err = state.NewPool(dev, 0); err != nil {
		d.close()
		return nil, err
	}
	return e, nil
}

// project packs the maps of a layer by itself.
func (m *Mixer) project(d *device, pr *Projections) error {
	to := map[string]*backend.Weight{"q": &m.Q, "k": &m.K, "v": &m.V, "o": &m.O}
	bias := map[string]*tensor.Tensor{"bq": &m.BQ, "bk": &m.BK, "bv": &m.BV, "bo": &m.BO}
	for _, f := range pr.named(m.Config) {
		if len(*f.Values) != f.Size() {
			return fmt.Errorf("qcc: projection %s has %d values, the configuration wants %v: %w", f.Name, len(*f.Values), f.Dim, ErrShape)
		}
		var err error
		if w := to[f.Name]; w != nil {
			*w, err = d.pack(*f.Values, f.Dim[0], f.Dim[1])
		} else {
			*bias[f.Name], err = d.upload(*f.Values, f.Dim...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// borrow gives a goroutine a stream with scratch; back returns it.
func (e *engine) borrow() (*nn.Ctx, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("qcc: layer %w", backend.ErrClosed)
	}
	if n := len(e.idle); n > 0 {
		c := e.idle[n-1]
		e.idle = e.idle[:n-1]
		return c, nil
	}
	s, err := e.dev.NewStream()
	if err != nil {
		return nil, err
	}
	c := nn.NewCtx(s, e.dev)
	e.all = append(e.all, c)
	return c, nil
}

func (e *engine) back(c *nn.Ctx) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idle = append(e.idle, c)
}

// Close frees the layer's memory. States must have been released, and no call may
// be running or follow.
func (e *engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	for _, c := range e.all {
		c.Close()
		c.Stream.Close()
	}
	err := e.pool.Close()
	e.device.close()
	return err
}

func (e *engine) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// share is one text's share of a pass.
type share struct {
	st   *State
	rows int
}

// pass runs f over rows of several states and reads what it returns. It commits all
// states or none.
func (e *engine) pass(ctx context.Context, dst []float32, shares []share, f func(c *nn.Ctx, rows int) tensor.Tensor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := e.borrow()
	if err != nil {
		return err
	}
	defer e.back(c)
	defer c.Release(c.Mark())
	rows := 0
	segs := make([]backend.Seg, len(shares))
	for i, s := range shares {
		segs[i] = backend.Seg{Row: rows, Rows: s.rows}
		if err := s.st.Begin(&segs[i], s.rows); err != nil {
			return err
		}
		rows += s.rows
	}
	c.Plan = c.Stream.Plan(segs)
	out := f(c, rows)
	c.Stream.Read(tensor.AsBytes(dst), out)
	if err := c.Stream.Sync(); err != nil {
		c.Stream.Reset()
		return fmt.Errorf("qcc: pass of %d rows: %w", rows, err)
	}
	for _, s := range shares {
		s.st.Commit(s.rows)
	}
	return nil
}

// put copies host rows into scratch.
func put(c *nn.Ctx, v []float32, rows, cols int) tensor.Tensor {
	t := c.Tmp(rows, cols)
	c.Stream.Write(t, tensor.AsBytes(v))
	return t
}
