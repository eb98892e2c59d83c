package cache

import (
	"context"
	"fmt"

	"samebit/state"
	"samebit/tensor"
)

// Router picks the route of a request, the index of an upper half, from the mean
// over all its rows of the feature that the lower half sums. The mean may be kept.
type Router interface {
	Pick(mean []float32) int
}

// LowerHalf is a sequence of the layers below the first specialist, whose state
// has a running sum (state.Sum): an nn.Runner of a lower half with a tap.
type LowerHalf interface {
	Appender
	// AppendHidden is Append that hands out the row that leaves the half for each
	// row; the slice is valid during the call only.
	AppendHidden(ctx context.Context, rows []state.Row, each func(row int, hidden []float32)) error
	State() state.State
	Len() int
}

// UpperHalf is a sequence of the layers above, which takes hidden rows.
type UpperHalf interface {
	Appender
	Len() int
}

// Specialist is the upper half of one route.
type Specialist struct {
	Model state.ID // of its states; must tell the lower half too, as that of a Split does
	Seq   UpperHalf
}

// Routed is a sequence whose upper layers depend on all of the prompt. It belongs
// to one goroutine; several may share a Cache.
type Routed struct {
	Model       state.ID // of the lower half's states
	Lower       LowerHalf
	Specialists []Specialist // by route; route 0 is the plain trunk
	Router      Router
	Extra       [32]byte // of all keys, see Key

	cache *Cache // of the last RunRouted; makes room for Append
}

// RoutedReport is what a RunRouted did.
type RoutedReport struct {
	Route        int
	Lower, Upper Report
	// Again is how many rows the lower half ran although it had been restored
	// behind them: the picked route had no checkpoint as deep.
	Again int
}

// RunRouted runs rows through the lower half, lets the router pick a route, and
// runs the picked upper half; both begin at the deepest checkpoints that they have
// and make new ones, as Prefill does. It leaves both with all rows.
//
// The lower half's checkpoints serve every route, and the route is known before an
// upper half runs, so what is found can change the work only. When the picked
// route's checkpoint is less deep than the lower half's, the rows between go
// through the lower half once more, from its deepest checkpoint before them; Stats
// count such a request as Mispredict. Hidden rows are held, 4·H bytes each, while
// the upper half runs them.
//
// The history of a restored upper sequence has the request's rows in place of
// hidden ones, so it cannot be rewound into them.
func (c *Cache) RunRouted(ctx context.Context, r *Routed, rows []state.Row, stateLen int) (RoutedReport, error) {
	var rep RoutedReport
	if len(r.Specialists) == 0 || r.Lower == nil || r.Router == nil {
		return rep, fmt.Errorf("cache: routed run of %d rows: want a lower half, a router and at least the upper half of route 0", len(rows))
	}
	sum, ok := state.Part[*state.Sum](r.Lower.State())
	if !ok {
		return rep, fmt.Errorf("cache: routed run of %d rows: the lower half's state has no running sum: give the half a tap", len(rows))
	}
	r.cache = c
	low := &lower{LowerHalf: r.Lower}
	var err error
	if rep.Lower, err = c.Prefill(ctx, Key{Model: r.Model, Extra: r.Extra}, low, rows, stateLen); err != nil {
		return rep, err
	}
	mean, err := sum.Mean()
	if err != nil {
		return rep, err
	}
	rep.Route = r.Router.Pick(mean)
	if rep.Route < 0 || rep.Route >= len(r.Specialists) {
		return rep, fmt.Errorf("cache: the router picked route %d of %d", rep.Route, len(r.Specialists))
	}
	s := r.Specialists[rep.Route]
	up := &upper{UpperHalf: s.Seq, c: c, r: r, low: low, rows: rows}
	rep.Upper, err = c.Prefill(ctx, Key{Model: s.Model, Route: int32(rep.Route), Extra: r.Extra}, up, rows, stateLen)
	if rep.Again = up.again; rep.Again > 0 {
		c.mu.Lock()
		c.stats.Mispredict++
		c.mu.Unlock()
	}
	return rep, err
}

// Append runs more rows on a route, as decoding does, without checkpoints. The
// route that RunRouted picked stays. When the pool is full, checkpoints of the cache
// make room. After an error the halves may have unequal rows.
func (r *Routed) Append(ctx context.Context, route int, rows []state.Row) error {
	if route < 0 || route >= len(r.Specialists) {
		return fmt.Errorf("cache: append on route %d of %d", route, len(r.Specialists))
	}
	s := r.Specialists[route].Seq
	if s.Len() != r.Lower.Len() {
		return fmt.Errorf("cache: append on route %d, whose upper half has %d rows where the lower half has %d: RunRouted brings them together", route, s.Len(), r.Lower.Len())
	}
	at := s.Len()
	low := &lower{LowerHalf: r.Lower, from: at}
	if err := r.cache.append(ctx, low, at, rows); err != nil {
		return err
	}
	return r.cache.append(ctx, s, at, low.hidden)
}

// lower notes the hidden rows of what it runs since it was last restored.
type lower struct {
	LowerHalf
	from   int // row of hidden[0]
	hidden []state.Row
}

func (l *lower) at(n int) { l.from, l.hidden = n, nil }

func (l *lower) Reset() error {
	l.at(0)
	return l.LowerHalf.Reset()
}

func (l *lower) Resume(rows []state.Row, s state.Snapshot) error {
	l.at(len(rows))
	return l.LowerHalf.Resume(rows, s)
}

func (l *lower) Adopt(rows []state.Row, get func(string) (tensor.Tensor, error)) error {
	err := l.LowerHalf.Adopt(rows, get)
	if err == nil {
		l.at(len(rows))
	}
	return err
}

func (l *lower) Append(ctx context.Context, rows []state.Row) error {
	return l.AppendHidden(ctx, rows, func(_ int, h []float32) {
		l.hidden = append(l.hidden, state.Row{Token: -1, Vec: append([]float32(nil), h...)})
	})
}

// upper turns rows of the request into hidden rows.
type upper struct {
	UpperHalf
	c     *Cache
	r     *Routed
	low   *lower
	rows  []state.Row
	again int
}

func (u *upper) Append(ctx context.Context, rows []state.Row) error {
	at := u.Len()
	if at < u.low.from {
		if err := u.fill(ctx, at); err != nil {
			return err
		}
	}
	at -= u.low.from
	return u.UpperHalf.Append(ctx, u.low.hidden[at:at+len(rows)])
}

// fill gets the hidden rows from row at on that the lower half was restored behind,
// and leaves it where it was.
func (u *upper) fill(ctx context.Context, at int) error {
	end, behind := u.low.from, u.low.hidden
	here, err := u.low.Snapshot()
	if err != nil {
		return err
	}
	defer here.Release()
	if at == 0 {
		err = u.low.Reset()
	} else {
		_, err = u.c.Prefill(ctx, Key{Model: u.r.Model, Extra: u.r.Extra}, u.low, u.rows[:at], at)
	}
	u.low.at(at)
	if err == nil {
		err = u.c.append(ctx, u.low, at, u.rows[at:end])
	}
	again := append(u.low.hidden, behind...)
	if e := u.low.LowerHalf.Resume(u.rows, here); err == nil {
		err = e
	}
	if err != nil {
		u.low.at(end)
		u.low.hidden = behind
		return err
	}
	u.again += end - at
	u.low.from, u.low.hidden = at, again
	return nil
}
