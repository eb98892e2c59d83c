package agenttrace

import (
	"context"
	"errors"
	"slices"

	"samebit/backend"
	"samebit/cache"
	"samebit/state"
	"samebit/tensor"
)

// Shape is what a sequence of a model costs.
type Shape struct {
	Name string
	Page int64 // bytes of a page of 64 rows of all attention layers
	Bank int64 // bytes of the recurrent state and convolution inputs; 0 for a dense model
}

// Shapes are models whose costs are worth knowing; states are float32.
func Shapes() []Shape {
	return []Shape{
		{"hybrid 27B", 8 << 20, 48 * 4 * (48*128*128 + 3*10240)},
		{"hybrid 2B", 6 * 2 * 2 * 256 * 64 * 4, 18 * 4 * (16*128*128 + 3*6144)},
		{"dense 1.7B", 28 * 2 * 8 * 128 * 64 * 4, 0},
	}
}

// Figures say what a cache made of a trace.
type Figures struct {
	Requests, Tokens int
	Common, Reused   int   // rows
	Budget, Peak     int64 // bytes
	Dense            int64 // bytes that checkpoints at every 16 rows would take
	Stats            cache.Stats
}

// Share is the part of the rows in common prefixes that was reused.
func (f Figures) Share() float64 { return float64(f.Reused) / float64(max(f.Common, 1)) }

// Dense is what checkpoints at every 16 rows of all requests take.
func Dense(shape Shape, trace []Request) (int64, error) {
	c, err := cache.New(nil, cache.Config{MemoryBytes: 1 << 60, Policy: cache.Policy{Stride: 16, Tail: -1, MinPrefix: -1, Junction: -1}})
	if err != nil {
		return 0, err
	}
	defer c.Close(context.Background())
	f, err := replay(c, shape, trace)
	return f.Peak, err
}

// Replay sends the trace through a cache with the budget of cfg, as prompts whose
// last row alone is not prefix, and counts; no model runs.
func Replay(cfg cache.Config, shape Shape, trace []Request) (Figures, error) {
	c, err := cache.New(nil, cfg)
	if err != nil {
		return Figures{}, err
	}
	defer c.Close(context.Background())
	f, err := replay(c, shape, trace)
	f.Budget = cfg.MemoryBytes
	return f, err
}

func replay(c *cache.Cache, shape Shape, trace []Request) (f Figures, err error) {
	common := Common(trace)
	q := &counted{shape: shape}
	for i, r := range trace {
		rep, err := c.Prefill(context.Background(), cache.Key{}, q, r.Rows, len(r.Rows)-1)
		if err != nil {
			return f, err
		}
		f.Requests++
		f.Tokens += len(r.Rows)
		f.Common += min(common[i], len(r.Rows)-1) // the last row is always run
		f.Reused += rep.Start
		f.Peak = max(f.Peak, c.Stats().Bytes)
	}
	f.Stats = c.Stats()
	return f, nil
}

// counted is a sequence that has the memory of a model and does not compute.
type counted struct {
	shape  Shape
	n      int
	pages  []*piece
	bank   *piece
	shared bool // the last page belongs to a snapshot too
}

// piece is one page or bank; its address is its name.
type piece struct{ bytes int64 }

func (q *counted) Reset() error {
	*q = counted{shape: q.shape}
	return nil
}

func (q *counted) Resume(_ []state.Row, s state.Snapshot) error {
	f, ok := s.(*figure)
	if !ok {
		return state.ErrForeign
	}
	*q = counted{shape: q.shape, n: f.n, pages: slices.Clone(f.pages), bank: f.bank, shared: true}
	return nil
}

func (q *counted) Adopt([]state.Row, func(string) (tensor.Tensor, error)) error {
	return errors.New("agenttrace: there is no state to read")
}

func (q *counted) Append(_ context.Context, rows []state.Row) error {
	if len(rows) == 0 {
		return nil
	}
	if q.shared && q.n%backend.Page != 0 {
		q.pages[len(q.pages)-1] = &piece{q.shape.Page}
	}
	q.n += len(rows)
	for len(q.pages)*backend.Page < q.n {
		q.pages = append(q.pages, &piece{q.shape.Page})
	}
	q.bank, q.shared = &piece{q.shape.Bank}, false
	return nil
}

func (q *counted) Snapshot() (state.Snapshot, error) {
	q.shared = true
	return &figure{n: q.n, pages: slices.Clone(q.pages), bank: q.bank}, nil
}

// figure is a snapshot of a counted sequence.
type figure struct {
	n     int
	pages []*piece
	bank  *piece
}

func (f *figure) Model() state.ID { return state.ID{} }
func (f *figure) Len() int        { return f.n }

func (f *figure) Bytes() (n int64) {
	f.Pieces(func(_ any, b int64) { n += b })
	return n
}

func (f *figure) Pieces(each func(piece any, bytes int64)) {
	for _, p := range f.pages {
		each(p, p.bytes)
	}
	each(f.bank, f.bank.bytes)
}

// Cut is possible without recurrent layers.
func (f *figure) Cut(n int) (state.Snapshot, bool) {
	if f.bank.bytes > 0 {
		return nil, false
	}
	return &figure{n: n, pages: f.pages[:(n+backend.Page-1)/backend.Page], bank: f.bank}, true
}

func (f *figure) Save(func(string, tensor.Tensor) error) error {
	return errors.New("agenttrace: there is no state to save")
}

func (f *figure) Retain() state.Snapshot { return f }
func (f *figure) Release()               {}
