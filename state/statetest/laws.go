package statetest

import (
	"errors"
	"fmt"

	"samebit/backend"
	"samebit/state"
	"samebit/tensor"
)

// lengths are around the borders of pages.
var lengths = []int{0, 1, 63, 64, 65, 127, 128, 129}

func cuts(w *world) {
	for _, n := range lengths {
		for _, c := range [][]int{nil, {1}, {63}, {64, 1}, {7, 7, 50, 1, 64}, {n / 2}} {
			q := w.newSeq()
			w.appendCut(q, text(1, n), c...)
			w.check(q, fmt.Sprintf("%d rows cut at %v", n, c))
			q.st.Release()
		}
	}
}

// company runs sequences of different lengths through shared passes.
func company(w *world) {
	qs := []*seq{w.newSeq(), w.newSeq(), w.newSeq()}
	for pass := range 4 {
		toks := [][]int32{text(1+pass, 1), text(11+pass, 40+pass), text(21+pass, 64)}
		w.must(w.begin(qs, toks))
		for i, q := range qs {
			q.st.Commit(len(toks[i]))
			q.tokens = append(q.tokens, toks[i]...)
		}
	}
	for i, q := range qs {
		w.check(q, fmt.Sprintf("sequence %d of a shared pass", i))
		q.st.Release()
	}
}

func snapshots(w *world) {
	for _, n := range lengths {
		q := w.newSeq()
		w.append(q, text(1, n)...)
		was := q.tokens[:n:n]
		s := w.snapshot(q)
		for _, more := range [][]int32{text(2, 1), text(3, 66)} {
			w.append(q, more...)
			w.checkSnapshot(s, was, fmt.Sprintf("snapshot at %d after %d more rows", n, len(more)))
			w.check(q, "the original after a snapshot")
		}
		w.truncate(q, n/2)
		w.append(q, text(4, 70)...)
		w.checkSnapshot(s, was, "snapshot after the original went back and elsewhere")
		q.st.Release()
		w.checkSnapshot(s, was, "snapshot after the original was released")
		if s.Retain() != s {
			w.Error("Retain returns another snapshot")
		}
		s.Release()
		w.checkSnapshot(s, was, "snapshot with one reference left")
		s.Release()
	}
}

func restore(w *world) {
	for _, n := range lengths {
		q := w.newSeq()
		w.append(q, text(1, n)...)
		s := w.snapshot(q)
		was := q.tokens[:n:n]
		for _, other := range []int{0, 1, 64, 100, 200} { // what the restoring state held before
			p := w.newSeq()
			w.append(p, text(5, other)...)
			for range 2 {
				w.must(p.st.Restore(s))
				p.tokens = was
				w.check(p, fmt.Sprintf("%d rows restored over %d", n, other))
				w.append(p, text(6+other, 65)...)
				w.check(p, "and continued")
			}
			w.must(q.st.Restore(s)) // into the state that it came from
			q.tokens = was
			w.append(q, text(7, 3)...)
			w.check(q, "the origin restored and continued")
			w.check(p, "the other one, meanwhile")
			p.st.Release()
		}
		w.checkSnapshot(s, was, "the snapshot after all that")
		s.Release()
		q.st.Release()
	}
}

func forks(w *world) {
	for _, n := range lengths {
		q := w.newSeq()
		w.append(q, text(1, n)...)
		f := w.fork(q)
		g := w.fork(f)
		w.append(q, text(2, 3)...)
		w.append(f, text(3, 64)...)
		w.check(q, "the original")
		w.check(f, "the fork")
		w.check(g, "the fork of the fork")
		w.truncate(f, n/2)
		w.append(f, text(4, 5)...)
		w.append(q, text(5, 130)...)
		w.check(f, "the fork, gone back")
		w.check(q, "the original, after its fork went back")
		q.st.Release()
		w.append(g, text(6, 2)...)
		w.check(g, "the fork of the fork after the original's end")
		w.check(f, "the fork after the original's end")
		g.st.Release()
		f.st.Release()
	}
}

func truncate(w *world) {
	for _, n := range lengths {
		for _, to := range lengths {
			if to > n {
				continue
			}
			q := w.newSeq()
			w.append(q, text(1, n)...)
			w.truncate(q, to)
			w.check(q, fmt.Sprintf("%d rows truncated to %d and replayed", n, to))
			w.append(q, text(2, 64)...)
			w.check(q, "and continued")
			q.st.Release()
		}
	}
}

func aborted(w *world) {
	for _, n := range lengths {
		q := w.newSeq()
		w.append(q, text(1, n)...)
		s := w.snapshot(q)
		was := q.tokens[:n:n]
		for _, rows := range []int{1, 63, 130} {
			w.abort(q, text(9, rows)...)
			w.check(q, fmt.Sprintf("%d rows after a pass of %d was given up", n, rows))
			w.checkSnapshot(s, was, "a snapshot after a pass was given up")

			w.abort(q, text(8, rows)...)
			f := w.fork(q) // without a look at the state in between
			w.append(f, text(3, 2)...)
			w.check(f, "a fork after a pass was given up")
			f.st.Release()

			w.abort(q, text(7, rows)...)
			w.append(q, text(4, 1)...) // a shorter pass
			w.check(q, "a pass after one that was given up")
			w.abort(q, text(7, rows)...)
			w.truncate(q, n)
			w.check(q, "truncated after a pass was given up")
			w.abort(q, text(7, rows)...)
			w.must(q.st.Restore(s))
			w.check(q, "restored after a pass was given up")
		}
		w.abort(q, text(9, 64)...)
		s.Release()
		q.st.Release()
	}
}

// foreign refuses what belongs to another model, shape, pool or kind.
func foreign(w *world) {
	q := w.newSeq()
	w.append(q, text(1, 70)...)
	other, err := state.NewPool(w.dev, 0)
	w.must(err)
	defer other.Close()
	for _, c := range []struct {
		why  string
		pool *state.Pool
		id   state.ID
		make func(*state.Pool, state.ID) (state.State, error)
	}{
		{"another model", w.pool, state.ID{9}, w.kind.New},
		{"another shape", w.pool, id, w.kind.Reshaped},
		{"another pool", other, id, w.kind.New},
	} {
		st, err := c.make(c.pool, c.id)
		w.must(err)
		s := w.snapshot(q)
		if err := st.Restore(s); !errors.Is(err, state.ErrForeign) {
			w.Errorf("restoring a snapshot of %s: %v, want ErrForeign", c.why, err)
		}
		if c.pool == w.pool { // Move is for other pools
			if err := state.Move(st, s); !errors.Is(err, state.ErrForeign) {
				w.Errorf("moving a snapshot to %s: %v, want ErrForeign", c.why, err)
			}
		}
		if st.Len() != 0 {
			w.Errorf("%s: the refused snapshot left %d rows", c.why, st.Len())
		}
		if c.pool == w.pool { // and the other way round, over something
			seg := new(backend.Seg)
			w.must(st.Begin(seg, 3))
			st.Commit(3)
			o, err := st.Snapshot()
			w.must(err)
			if err := q.st.Restore(o); !errors.Is(err, state.ErrForeign) {
				w.Errorf("restoring from %s: %v, want ErrForeign", c.why, err)
			}
			o.Release()
		}
		w.check(q, "after refusing "+c.why)
		s.Release()
		st.Release()
	}
	for _, s := range []state.Snapshot{nil, strange{}} {
		if err := q.st.Restore(s); !errors.Is(err, state.ErrForeign) {
			w.Errorf("restoring %T: %v, want ErrForeign", s, err)
		}
	}
	missing := errors.New("missing")
	if err := q.st.Load(3, func(string) (tensor.Tensor, error) { return tensor.Tensor{}, missing }); !errors.Is(err, missing) {
		w.Errorf("loading from nothing: %v", err)
	}
	if err := q.st.Load(3, func(string) (tensor.Tensor, error) { return tensor.Tensor{}, nil }); err == nil {
		w.Error("loading invalid tensors: no error")
	}
	// Some of the tensors are there, then one is missing.
	p := w.newSeq()
	w.append(p, text(2, 130)...)
	held := map[string]tensor.Tensor{}
	s := w.snapshot(p)
	w.must(s.Save(func(name string, x tensor.Tensor) error { // kept beyond the call
		raw, _ := x.Raw()
		dim := make([]int, x.Dims())
		for i := range dim {
			dim[i] = x.Dim(i)
		}
		c, err := tensor.New(tensor.Bytes(append([]byte(nil), raw...)), 0, x.DType(), dim...)
		held[name] = c
		return err
	}))
	s.Release()
	p.st.Release()
	for there := range len(held) {
		n := 0
		err := q.st.Load(130, func(name string) (tensor.Tensor, error) {
			if n++; n > there {
				return tensor.Tensor{}, missing
			}
			return held[name], nil
		})
		if !errors.Is(err, missing) {
			w.Errorf("loading %d of %d tensors: %v", there, len(held), err)
		}
		w.check(q, fmt.Sprintf("after loading %d of %d tensors", there, len(held)))
	}
	w.check(q, "after refusals")
	q.st.Release()
}

// strange is a snapshot of no kind.
type strange struct{ state.Snapshot }

func (strange) Model() state.ID { return id }
func (strange) Len() int        { return 0 }

func arguments(w *world) {
	q := w.newSeq()
	w.append(q, text(1, 65)...)
	for _, n := range []int{-1, 66, 1 << 30} {
		if reached, err := q.st.Truncate(n); err == nil || reached != 65 {
			w.Errorf("Truncate to %d of 65 rows: landed at %d, error %v", n, reached, err)
		}
	}
	for _, n := range []int{0, -3} {
		if err := q.st.Begin(new(backend.Seg), n); err == nil {
			w.Errorf("Begin with %d rows: no error", n)
		}
	}
	if err := q.st.Load(-1, nil); err == nil {
		w.Error("Load of -1 rows: no error")
	}
	w.check(q, "after refusals")
	w.must(q.st.Load(0, nil))
	q.tokens = nil
	w.check(q, "loaded with no rows")
	w.append(q, text(2, 3)...)
	w.check(q, "and continued")
	q.st.Release()
	if q.st.Len() != 0 {
		w.Errorf("%d rows after Release", q.st.Len())
	}
}

// accounts counts shared memory once and gives all of it back.
func accounts(w *world) {
	q := w.newSeq()
	w.append(q, text(1, 200)...)
	one := w.pool.Bytes()
	if one <= 0 || q.st.Bytes() <= 0 {
		w.Errorf("a sequence of 200 rows counts %d bytes, the pool %d", q.st.Bytes(), one)
	}
	var forks []*seq
	var snaps []state.Snapshot
	for range 5 {
		forks = append(forks, w.fork(q))
		snaps = append(snaps, w.snapshot(q))
	}
	if n := w.pool.Bytes(); n > one {
		w.Errorf("5 forks and 5 snapshots raise %d bytes to %d", one, n)
	}
	if s := snaps[0].Bytes(); s <= 0 || s > one {
		w.Errorf("a snapshot counts %d bytes of %d", s, one)
	}
	q.st.Release()
	if w.pool.Bytes() == 0 {
		w.Error("releasing the original freed what its forks share")
	}
	if err := w.pool.Close(); err == nil {
		w.Error("a pool in use was closed without an error")
	}
	for i, f := range forks {
		w.check(f, "a fork after its original's end")
		f.st.Release()
		snaps[i].Release()
	}
	if n := w.pool.Bytes(); n != 0 {
		w.Errorf("%d bytes in use after everything was released", n)
	}
	q.tokens = nil
	w.append(q, text(2, 5)...) // a released state is empty, not broken
	w.check(q, "after Release")
	q.st.Release()
}

// moved carries a sequence to another pool, perhaps of another device, in the
// middle of its text.
func moved(from, to *world) {
	for _, n := range lengths {
		q, p := from.newSeq(), to.newSeq()
		from.append(q, text(1, n)...)
		to.append(p, text(2, 70)...) // what is there is replaced
		s := from.snapshot(q)
		from.must(state.Move(p.st, s))
		s.Release()
		p.tokens = append([]int32(nil), q.tokens...)
		to.check(p, "moved")
		for i := range 3 {
			to.append(p, text(3+i, 23)...)
			from.append(q, text(3+i, 23)...)
		}
		to.check(p, "moved and continued")
		from.check(q, "the original after a move")
		p.st.Release()
		q.st.Release()
	}
}
