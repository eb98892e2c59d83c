package qcc

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"samebit/backend"
	"samebit/nn"
	"samebit/tensor"
)

// Registry serves one layer's window and archive to many requests, whose rows are
// projected elsewhere. Parameters are shared, each request has a state. It is safe
// for concurrent use: calls for different requests run side by side, a request is
// locked for the duration of a call. How requests are grouped changes no bit.
type Registry struct {
	*engine
	Config Config

	mu       sync.Mutex
	requests map[string]*request
}

// request is a state behind a lock; st is nil after Drop or before the first rows.
type request struct {
	sync.Mutex
	st *State
}

// Projected are rows of one or more requests after projection: queries [T, Heads,
// Dim], keys and values [T, key heads, Dim], rotated where the layer rotates. RawQ
// and RawK, unrotated, are what a position-invariant archive sees; nil: Q and K.
type Projected struct{ Q, K, V, RawQ, RawK []float32 }

// NewRegistry opens a registry on a device. The configuration must mix with a
// constant (Config.Remote), have no rotation of its own and no lexical addresses:
// the rows come as they are. With PositionInvariant rows bring RawQ and RawK.
func NewRegistry(dev backend.Device, c Config, p *Params) (*Registry, error) {
	switch {
	case c.Memory == MemoryDelta:
		return nil, fmt.Errorf("qcc: a registry sees no hidden rows, by which a gated-delta memory writes and forgets: take an archive: %w", ErrConfig)
	case c.Remote == nil && !c.prefix() && !c.NoArchive && (c.Exact == nil || !c.Exact.MassMerge):
		return nil, fmt.Errorf("qcc: a registry sees no hidden rows and cannot gate by them: give Remote: %w", ErrConfig)
	case c.RoPE != nil, c.Lexical, c.ActiveQuery:
		return nil, fmt.Errorf("qcc: a registry takes rows as they are: no rotation, hints or correction of the live query: %w", ErrConfig)
	}
	if c.PositionInvariant { // the window keeps addresses, whoever rotated
		c.RoPE = &RoPE{Theta: 10000}
	}
	if p != nil && c.Remote == nil { // a gate that nobody asks
		q := *p
		c.Remote, p = new(float64), &q
	}
	e, err := newEngine(dev, c, p, nil)
	if err != nil {
		return nil, err
	}
	return &Registry{engine: e, Config: c, requests: map[string]*request{}}, nil
}

// Forward consumes the rows of one request and returns their responses [T, Heads,
// Dim]. The first call for an id makes its state.
func (r *Registry) Forward(ctx context.Context, id string, in Projected) ([]float32, error) {
	w := r.Config.Heads * r.Config.Dim
	if len(in.Q) == 0 || len(in.Q)%w != 0 {
		return nil, fmt.Errorf("qcc: request %q has %d query values: want whole rows of %d: %w", id, len(in.Q), w, ErrShape)
	}
	return r.ForwardRagged(ctx, []string{id}, []int{len(in.Q) / w}, in)
}

// ForwardBatch is ForwardRagged with an equal number of rows for each request.
func (r *Registry) ForwardBatch(ctx context.Context, ids []string, in Projected) ([]float32, error) {
	w := r.Config.Heads * r.Config.Dim
	if len(ids) == 0 || len(in.Q)%(w*len(ids)) != 0 {
		return nil, fmt.Errorf("qcc: %d query values do not divide among %d requests in rows of %d: %w", len(in.Q), len(ids), w, ErrShape)
	}
	lens := make([]int, len(ids))
	for i := range lens {
		lens[i] = len(in.Q) / w / len(ids)
	}
	return r.ForwardRagged(ctx, ids, lens, in)
}

// ForwardRagged consumes lens[i] rows of request ids[i], one after the other in in,
// and returns the responses in the same order. It fails with ErrDuplicateRequest if
// an id comes twice. After an error every request is as it was.
func (r *Registry) ForwardRagged(ctx context.Context, ids []string, lens []int, in Projected) ([]float32, error) {
	total, err := r.check(ids, lens, in)
	if err != nil {
		return nil, err
	}
	held, err := r.lock(ids)
	defer func() {
		for i, q := range held {
			if q.st != nil && q.st.Len() == 0 { // made for nothing
				r.forget(ids[i], q)
			}
			q.Unlock()
		}
	}()
	if err != nil {
		return nil, err
	}
	shares := make([]share, len(ids))
	for i, q := range held {
		shares[i] = share{q.st, lens[i]}
	}
	f := &r.Config
	out := make([]float32, total*f.Heads*f.Dim)
	err = r.pass(ctx, out, shares, func(c *nn.Ctx, n int) tensor.Tensor {
		heads := func(v []float32, h int) tensor.Tensor { return put(c, v, n, h*f.Dim).Heads(h, f.Dim) }
		kv := f.keyHeads()
		x := rows{q: heads(in.Q, f.Heads), k: heads(in.K, kv), v: heads(in.V, kv)}
		x.address = x.q
		if f.PositionInvariant {
			x.raw = x.k
			if in.RawQ != nil {
				x.address, x.raw = heads(in.RawQ, f.Heads), heads(in.RawK, kv)
			}
		}
		return r.mixer.attend(c, x).Reshape(n, f.Heads*f.Dim)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (r *Registry) check(ids []string, lens []int, in Projected) (total int, err error) {
	if len(ids) == 0 || len(ids) != len(lens) {
		return 0, fmt.Errorf("qcc: %d requests with %d lengths: %w", len(ids), len(lens), ErrShape)
	}
	seen := map[string]bool{}
	for i, id := range ids {
		if seen[id] {
			return 0, fmt.Errorf("qcc: request %q: %w", id, ErrDuplicateRequest)
		}
		seen[id] = true
		if lens[i] < 1 || lens[i] > 1<<24 {
			return 0, fmt.Errorf("qcc: request %q has %d rows: want at least 1: %w", id, lens[i], ErrShape)
		}
		total += lens[i]
	}
	q, kv := total*r.Config.Heads*r.Config.Dim, total*r.Config.keyHeads()*r.Config.Dim
	raw := in.RawQ != nil || in.RawK != nil
	if len(in.Q) != q || len(in.K) != kv || len(in.V) != kv || raw && (len(in.RawQ) != q || len(in.RawK) != kv || !r.Config.PositionInvariant) {
		return 0, fmt.Errorf("qcc: %d, %d and %d values of queries, keys and values, %d and %d unrotated: want %d and %d for %d rows, unrotated ones for a position-invariant archive only: %w",
			len(in.Q), len(in.K), len(in.V), len(in.RawQ), len(in.RawK), q, kv, total, ErrShape)
	}
	return total, nil
}

// lock holds the requests of a call, in an order that all calls share; those that
// do not exist are made. The result is in the order of ids, and is to be unlocked
// even with an error.
func (r *Registry) lock(ids []string) ([]*request, error) {
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	by := map[string]*request{}
	for _, id := range sorted {
		by[id] = r.acquire(id)
	}
	held := make([]*request, len(ids))
	var err error
	for i, id := range ids {
		q := by[id]
		held[i] = q
		if q.st == nil && err == nil {
			q.st, err = NewState(r.pool, r.id, r.Config, 1)
		}
	}
	if err != nil {
		for i, q := range held {
			if q.st == nil {
				r.forget(ids[i], q)
			}
		}
	}
	return held, err
}

// acquire returns the request of an id, locked; it is made if there is none.
func (r *Registry) acquire(id string) *request {
	for {
		r.mu.Lock()
		q := r.requests[id]
		if q == nil {
			q = &request{}
			r.requests[id] = q
		}
		r.mu.Unlock()
		q.Lock()
		r.mu.Lock()
		now := r.requests[id]
		r.mu.Unlock()
		if now == q {
			return q
		}
		q.Unlock() // dropped while we waited
	}
}

// forget takes a locked request out of the registry and frees its state.
func (r *Registry) forget(id string, q *request) {
	r.mu.Lock()
	if r.requests[id] == q {
		delete(r.requests, id)
	}
	r.mu.Unlock()
	if q.st != nil {
		q.st.Release()
		q.st = nil
	}
}

// find is acquire for requests that must exist.
func (r *Registry) find(id string) (*request, error) {
	for {
		r.mu.Lock()
		q := r.requests[id]
		r.mu.Unlock()
		if q == nil {
			return nil, fmt.Errorf("qcc: request %q: %w", id, ErrUnknownRequest)
		}
		q.Lock()
		r.mu.Lock()
		now := r.requests[id]
		r.mu.Unlock()
		if now == q && q.st != nil {
			return q, nil
		}
		q.Unlock()
		if now == q { // made by a call that failed
			return nil, fmt.Errorf("qcc: request %q: %w", id, ErrUnknownRequest)
		}
	}
}

// Fork makes dst a copy of src, replacing what dst was. Neither sees the other's
// later rows.
func (r *Registry) Fork(src, dst string) error {
	q, err := r.find(src)
	if err != nil {
		return err
	}
	if src == dst {
		q.Unlock()
		return nil
	}
	st, err := q.st.fork()
	q.Unlock()
	if err != nil {
		return err
	}
	to := r.acquire(dst)
	if to.st != nil {
		to.st.Release()
	}
	to.st = st
	to.Unlock()
	return nil
}

// Reset makes a request begin anew.
func (r *Registry) Reset(id string) { r.Drop(id) }

// Drop forgets a request. An unknown id is no error.
func (r *Registry) Drop(id string) {
	q, err := r.find(id)
	if err != nil {
		return
	}
	r.forget(id, q)
	q.Unlock()
}

// Seen is the number of tokens that a request has consumed.
func (r *Registry) Seen(id string) (int, error) {
	q, err := r.find(id)
	if err != nil {
		return 0, err
	}
	defer q.Unlock()
	return q.st.Len(), nil
}

// Requests lists the ids there are, sorted.
func (r *Registry) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var l []string
	for id := range r.requests {
		l = append(l, id)
	}
	slices.Sort(l)
	return l
}

// Close drops all requests and frees the registry's memory.
func (r *Registry) Close() error {
	for _, id := range r.Requests() {
		r.Drop(id)
	}
	return r.engine.Close()
}
