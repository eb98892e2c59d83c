package cache_test

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"samebit/cache"
	"samebit/nn"
	"samebit/state"
)

// routes is a model cut in two with an upper half per route.
type routes struct {
	*model
	lower  *nn.Decoder
	uppers []*nn.Decoder

	mu    sync.Mutex
	truth map[string]routed
}

// routed is what a direct run of rows gives.
type routed struct {
	route        int
	lower, upper []byte // states
	last, next   uint64 // logits after the last row and after one more
}

func openRoutes(t *testing.T, name string, at int) *routes {
	t.Helper()
	m := &routes{model: openModel(t, name), truth: map[string]routed{}}
	l, u, err := m.dec.Split(at)
	if err == nil {
		m.lower, err = l.WithTap(nn.Tap{Block: at - 1, Eps: 1e-6})
	}
	if err != nil {
		t.Fatal(err)
	}
	for r := range 3 {
		s := *u // the specialists differ in what they add to the norms
		s.Eps *= float32(1 + 100*r)
		s.ID[0] ^= byte(r)
		s.NewState = s.Shapes.NewState(s.ID)
		m.uppers = append(m.uppers, &s)
	}
	return m
}

// parity is a router that any change of the mean may turn.
type parity struct{}

func (parity) Pick(mean []float32) int {
	h := uint32(0)
	for _, v := range mean {
		h = h*0x9e3779b1 ^ math.Float32bits(v)>>3
	}
	return int(h>>8) % 3
}

// seq is a routed sequence with its runners.
func (m *routes) seq(t testing.TB, chunk int) (*cache.Routed, func()) {
	t.Helper()
	s, err := m.dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	runner := func(d *nn.Decoder) *nn.Runner {
		r, err := d.NewRunner(s, m.pool, nn.RunnerConfig{ChunkRows: chunk})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	low := runner(m.lower)
	closers := []func(){low.Close}
	r := &cache.Routed{Model: m.lower.ID, Lower: low, Router: parity{}}
	for _, u := range m.uppers {
		q := runner(u)
		closers = append(closers, q.Close)
		r.Specialists = append(r.Specialists, cache.Specialist{Model: u.ID, Seq: q})
	}
	return r, func() {
		for _, f := range closers {
			f()
		}
		s.Close()
	}
}

func halfState(t testing.TB, q cache.Appender) []byte {
	t.Helper()
	s, err := q.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	return stateBytes(t, s)
}

func upperLogits(r *cache.Routed, route int) []float32 {
	return r.Specialists[route].Seq.(*nn.Runner).Logits()
}

// direct runs all rows through the lower half, then through the picked one.
func (m *routes) direct(t testing.TB, rows []state.Row) routed {
	t.Helper()
	key := ""
	for _, r := range rows {
		key += string(r.Token)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if w, ok := m.truth[key]; ok {
		return w
	}
	ctx := context.Background()
	r, end := m.seq(t, 512)
	defer end()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var w routed
	var hidden []float32
	must(r.Lower.AppendHidden(ctx, rows, func(_ int, h []float32) { hidden = append(hidden, h...) }))
	sum, _ := state.Part[*state.Sum](r.Lower.State())
	mean, err := sum.Mean()
	must(err)
	w.route = parity{}.Pick(mean)
	must(r.Specialists[w.route].Seq.Append(ctx, nn.HiddenRows(hidden, m.dec.Hidden)))
	w.lower, w.upper, w.last = halfState(t, r.Lower), halfState(t, r.Specialists[w.route].Seq), bitsOf(upperLogits(r, w.route))
	must(r.Append(ctx, w.route, []state.Row{next}))
	w.next = bitsOf(upperLogits(r, w.route))
	m.truth[key] = w
	return w
}

// Whatever the cache has of whatever routes, a routed request gives the bits of a
// direct run on the route that its own rows pick.
func TestRoutedEqualsDirect(t *testing.T) {
	plans := 60
	if testing.Short() {
		plans = 9
	}
	ms := []*routes{openRoutes(t, "qwen3-tied-fp32", 1), openRoutes(t, "qwen35-8l-bf16", 5), openRoutes(t, "qwen35-8l-bf16", 3)}
	var total, again, reused, mispredicts int
	var picked [3]int
	var mu sync.Mutex
	ctx := context.Background()
	for i := range plans {
		p, m := makePlan(uint64(i)), ms[i%len(ms)]
		if p.disk {
			d, err := cache.OpenUnsynced(t.TempDir(), p.cfg.DiskBytes)
			if err != nil {
				t.Fatal(err)
			}
			p.cfg.Store = d
		}
		c, err := cache.New(m.pool, p.cfg)
		if err != nil {
			t.Fatal(err)
		}
		run := func(q request) {
			r, end := m.seq(t, p.chunk)
			defer end()
			r.Extra = cache.Domain{Tenant: q.tenant}.Extra()
			want := m.direct(t, q.rows)
			rep, err := c.RunRouted(ctx, r, q.rows, q.stateLen)
			if err != nil {
				t.Errorf("%v: %v", p, err)
				return
			}
			mu.Lock()
			total, again, reused = total+1, again+rep.Again, reused+rep.Upper.Start
			if rep.Again > 0 {
				mispredicts++
			}
			picked[rep.Route]++
			mu.Unlock()
			up := r.Specialists[want.route].Seq
			if rep.Route != want.route || !bytes.Equal(halfState(t, r.Lower), want.lower) || !bytes.Equal(halfState(t, up), want.upper) {
				t.Errorf("%v: %d rows: route %d, want %d, or other states; %+v", p, len(q.rows), rep.Route, want.route, rep)
				return
			}
			if l := upperLogits(r, want.route); l != nil && bitsOf(l) != want.last || l == nil && q.stateLen < len(q.rows) {
				t.Errorf("%v: %d rows: other logits than a direct run; %+v", p, len(q.rows), rep)
			}
			if err := r.Append(ctx, rep.Route, []state.Row{next}); err != nil || bitsOf(upperLogits(r, rep.Route)) != want.next {
				t.Errorf("%v: %d rows: the next row differs; error %v", p, len(q.rows), err)
			}
		}
		for _, b := range p.batch {
			work := make(chan request)
			var wg sync.WaitGroup
			for range p.workers {
				wg.Go(func() {
					for q := range work {
						run(q)
					}
				})
			}
			for _, q := range b {
				work <- q
			}
			close(work)
			wg.Wait()
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		if s := c.Stats(); s.StoreFault != 0 || s.Pinned != 0 {
			t.Errorf("%v: %+v", p, s)
		}
		if t.Failed() {
			t.FailNow()
		}
		if n := m.pool.Bytes(); n != 0 {
			t.Fatalf("%v: %d bytes of pages and banks are left", p, n)
		}
	}
	t.Logf("%d requests on routes %v, %d rows of upper halves reused, %d mispredicts, %d rows run again by lower halves", total, picked, reused, mispredicts, again)
	if mispredicts == 0 || reused == 0 || picked[0]*picked[1]*picked[2] == 0 {
		t.Error("the plans do not exercise routes")
	}
}

// An earlier request on the same prefix took another route: the second one finds
// the lower half's checkpoint, not the upper half's.
func TestRoutedMispredict(t *testing.T) {
	m := openRoutes(t, hybrid, 2)
	c, err := cache.New(m.pool, cache.Config{Policy: small(16)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	r, end := m.seq(t, 13)
	defer end()
	rng := rand.New(rand.NewPCG(1, 2))
	prefix := tokens(3, 70)
	seen := map[int]bool{}
	for len(seen) < 3 {
		rows := append(prefix[:64:64], tokens(rng.IntN(1000), 3+rng.IntN(5))...)
		want := m.direct(t, rows)
		before := c.Stats().Mispredict
		rep, err := c.RunRouted(context.Background(), r, rows, 64)
		if err != nil {
			t.Fatal(err)
		}
		missed := len(seen) > 0 && !seen[rep.Route]
		if rep.Route != want.route || missed != (rep.Again == 64) || missed != (c.Stats().Mispredict > before) || seen[rep.Route] && rep.Upper.Start != 64 {
			t.Errorf("route %d after %v: %+v", rep.Route, seen, rep)
		}
		if bitsOf(upperLogits(r, rep.Route)) != want.last {
			t.Errorf("route %d: other logits", rep.Route)
		}
		seen[rep.Route] = true
	}
}

type fixed int

func (f fixed) Pick([]float32) int { return int(f) }

// Faults of the model are handed on, wherever they come, and leave nothing wrong.
func TestRoutedFaults(t *testing.T) {
	m := openRoutes(t, hybrid, 2)
	ctx := context.Background()
	c, err := cache.New(m.pool, cache.Config{Policy: small(16)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	r, end := m.seq(t, 13)
	defer end()
	rows := tokens(8, 50)
	r.Router = fixed(3)
	if _, err := c.RunRouted(ctx, r, rows, 40); err == nil || !strings.Contains(err.Error(), "route 3 of 3") {
		t.Errorf("a route that is not there: %v", err)
	}
	for left := 1; ; left++ { // every op of the run on a second route, one after the other
		c.Clear()
		for _, route := range []int{1, 2} {
			r.Router = fixed(route)
			if route == 1 {
				if _, err := c.RunRouted(ctx, r, rows, 40); err != nil {
					t.Fatal(err)
				}
				continue
			}
			calls := left
			brief, cancel := context.WithCancel(ctx)
			r.Lower = &cancelling{LowerHalf: r.Lower, left: &calls, cancel: cancel}
			rep, err := c.RunRouted(brief, r, rows, 40)
			r.Lower = r.Lower.(*cancelling).LowerHalf
			cancel()
			if calls > 0 { // all went well
				if err != nil || rep.Again == 0 {
					t.Fatalf("%+v, error %v", rep, err)
				}
				if left < 3 {
					t.Errorf("only %d calls could fail", left)
				}
				return
			}
			if err == nil {
				t.Errorf("cancelled at call %d: no error", left)
			}
			rep, err = c.RunRouted(ctx, r, rows, 40)
			if err != nil {
				t.Fatal(err)
			}
			got := bitsOf(upperLogits(r, 2))
			fresh, shut := m.seq(t, 512)
			fresh.Router = fixed(2)
			none, _ := cache.New(m.pool, cache.Config{MemoryBytes: -1})
			if _, err := none.RunRouted(ctx, fresh, rows, 40); err != nil {
				t.Fatal(err)
			}
			if got != bitsOf(upperLogits(fresh, 2)) {
				t.Errorf("after a cancelled run (call %d): other logits; %+v", left, rep)
			}
			shut()
		}
	}
}

// cancelling is a lower half that ends the context in its left-th call.
type cancelling struct {
	cache.LowerHalf
	left   *int
	cancel func()
}

func (q *cancelling) AppendHidden(ctx context.Context, rows []state.Row, each func(int, []float32)) error {
	if *q.left--; *q.left == 0 {
		q.cancel()
	}
	return q.LowerHalf.AppendHidden(ctx, rows, each)
}

func TestRoutedRefuses(t *testing.T) {
	m := openRoutes(t, hybrid, 2)
	ctx := context.Background()
	c, err := cache.New(m.pool, cache.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	r, end := m.seq(t, 13)
	defer end()
	rows := tokens(8, 9)
	bad := func(change func(*cache.Routed), want string) {
		t.Helper()
		q := *r
		change(&q)
		if _, err := c.RunRouted(ctx, &q, rows, 3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	bad(func(q *cache.Routed) { q.Router = nil }, "a router")
	bad(func(q *cache.Routed) { q.Lower = nil }, "a lower half")
	bad(func(q *cache.Routed) { q.Specialists = nil }, "route 0")
	bad(func(q *cache.Routed) { q.Lower = noSum{q.Lower} }, "running sum")
	bad(func(q *cache.Routed) { q.Router = fixed(-1) }, "route -1 of 3")
	if _, err := c.RunRouted(ctx, r, nil, 0); err == nil {
		t.Error("no rows: no error")
	}
	r.Router = fixed(1)
	if _, err := c.RunRouted(ctx, r, rows, 3); err != nil {
		t.Fatal(err)
	}
	for _, route := range []int{-1, 3, 0} { // 0 has other rows
		if err := r.Append(ctx, route, rows); err == nil {
			t.Errorf("append on route %d after a run on route 1: no error", route)
		}
	}
	if d, _ := r.Lower.(*nn.Runner); d.Len() != len(rows) {
		t.Errorf("refused appends ran: %d rows", d.Len())
	}
}

type noSum struct{ cache.LowerHalf }

func (noSum) State() state.State { return &state.Stack{} }

// crowded is an upper half whose rows find a full pool while there are checkpoints.
type crowded struct {
	cache.UpperHalf
	c *cache.Cache
}

func (q crowded) Append(ctx context.Context, rows []state.Row) error {
	if q.c.Stats().Checkpoints > 0 {
		return state.ErrNoRoom
	}
	return q.UpperHalf.Append(ctx, rows)
}

// Checkpoints make room for appended rows, whichever half wants it.
func TestRoutedAppendInAFullPool(t *testing.T) {
	m := openRoutes(t, hybrid, 2)
	ctx := context.Background()
	c, err := cache.New(m.pool, cache.Config{Policy: small(16)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	r, end := m.seq(t, 13)
	defer end()
	r.Router = fixed(1)
	if _, err := c.RunRouted(ctx, r, tokens(8, 50), 40); err != nil {
		t.Fatal(err)
	}
	up := &r.Specialists[1].Seq
	*up = crowded{*up, c}
	err = r.Append(ctx, 1, tokens(9, 3))
	*up = (*up).(crowded).UpperHalf
	if err != nil || r.Lower.Len() != 53 || (*up).Len() != 53 || c.Stats().Relieved == 0 {
		t.Errorf("%v: halves of %d and %d rows, want 53; %+v", err, r.Lower.Len(), (*up).Len(), c.Stats())
	}
}
