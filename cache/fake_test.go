package cache

import (
	"context"
	"sync"

	"samebit/state"
	"samebit/tensor"
)

// world is where the fakes of a test keep their account.
type world struct {
	mu      sync.Mutex
	live    int      // snapshots with references
	evicted [][2]int // group and position of those that lost the last one
}

// fakeGroup stands for the keys and values that the checkpoints of one row share.
type fakeGroup struct {
	id    int
	bytes int64
}

// fakeSnap is a snapshot that costs 1000 bytes besides its group.
type fakeSnap struct {
	w     *world
	model state.ID
	group *fakeGroup
	n     int
	refs  int
}

func (s *fakeSnap) Model() state.ID { return s.model }
func (s *fakeSnap) Len() int        { return s.n }
func (s *fakeSnap) Bytes() int64    { return 1000 + s.group.bytes }

func (s *fakeSnap) Save(emit func(string, tensor.Tensor) error) error {
	v := make([]float32, s.n)
	for i := range v {
		v[i] = float32(i)
	}
	t, err := tensor.FromF32(v, s.n)
	if err != nil {
		return err
	}
	return emit("fake", t)
}

func (s *fakeSnap) Pieces(f func(any, int64)) {
	f(s, 1000)
	f(s.group, s.group.bytes)
}

func (s *fakeSnap) Retain() state.Snapshot {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.refs < 1 {
		panic("retained after the last release")
	}
	s.refs++
	return s
}

func (s *fakeSnap) Release() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.refs--; s.refs == 0 {
		s.w.live--
		s.w.evicted = append(s.w.evicted, [2]int{s.group.id, s.n})
	}
	if s.refs < 0 {
		panic("released too often")
	}
}

// fakeSeq is an appender without a model.
type fakeSeq struct {
	w     *world
	model state.ID
	group *fakeGroup
	n     int
	spans [][2]int
	// before, if set, is called before a span is run and may fail it.
	before func(ctx context.Context, from, to int) error
}

func (w *world) seq() *fakeSeq { return &fakeSeq{w: w, group: &fakeGroup{bytes: 100}} }

func (q *fakeSeq) Reset() error { q.n = 0; return nil }

func (q *fakeSeq) Resume(rows []state.Row, s state.Snapshot) error {
	if s.Len() != len(rows) {
		panic("resumed with other rows")
	}
	q.n = len(rows)
	return nil
}

func (q *fakeSeq) Adopt(rows []state.Row, get func(string) (tensor.Tensor, error)) error {
	_, err := get("fake")
	if err == nil {
		q.n = len(rows)
	}
	return err
}

func (q *fakeSeq) Append(ctx context.Context, rows []state.Row) error {
	if q.before != nil {
		if err := q.before(ctx, q.n, q.n+len(rows)); err != nil {
			return err
		}
	}
	q.spans = append(q.spans, [2]int{q.n, q.n + len(rows)})
	q.n += len(rows)
	return nil
}

func (q *fakeSeq) Snapshot() (state.Snapshot, error) {
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	q.w.live++
	return &fakeSnap{w: q.w, model: q.model, group: q.group, n: q.n, refs: 1}, nil
}
