package statetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"samebit/backend"
	"samebit/state"
)

// room runs into a pool's limit everywhere and checks that nothing is lost.
func room(t *testing.T, k Kind, dev backend.Device, tr *truth) {
	probe := newWorld(t, k, dev, 0, tr)
	q := probe.newSeq()
	probe.append(q, text(1, 130)...)
	full := probe.pool.Bytes()
	q.st.Release()

	for _, share := range []int64{1, 4, 5, 6, 7, 8, 12} { // in quarters of what 130 rows need
		w := newWorld(t, k, dev, full*share/4, tr)
		a, b := w.newSeq(), w.newSeq()
		refused := 0
		for i := range 30 {
			for _, q := range []*seq{a, b} {
				more := text(2+i, 9)
				before := len(q.tokens)
				err := w.begin([]*seq{q}, [][]int32{more})
				switch {
				case err == nil:
					q.st.Commit(len(more))
					q.tokens = append(q.tokens, more...)
				case !errors.Is(err, state.ErrNoRoom):
					t.Fatalf("%d quarters: %v, want ErrNoRoom", share, err)
				default:
					refused++
					if q.st.Len() != before {
						t.Fatalf("%d quarters: a refused pass moved %d rows to %d", share, before, q.st.Len())
					}
				}
				if n := w.pool.Bytes(); n > full*share/4 {
					t.Fatalf("%d bytes in a pool limited to %d", n, full*share/4)
				}
			}
		}
		if refused == 0 && share < 8 {
			t.Errorf("%d quarters: two sequences of 270 rows were never refused", share)
		}
		b.st.Release() // room for a look at a
		b.tokens = nil
		if share >= 8 {
			w.check(a, "a sequence that was refused rows")
		}
		a.st.Release()
		a.tokens = nil
		if share >= 4 { // the pool has room again
			w.append(b, text(9, 9)...)
			w.check(b, "a sequence after the other made room")
		}
		b.st.Release()
	}
}

// goroutines share snapshots: each restores, continues, compares and lets go.
func goroutines(t *testing.T, k Kind, dev backend.Device, tr *truth) {
	w := newWorld(t, k, dev, 0, tr)
	q := w.newSeq()
	w.append(q, text(1, 100)...)
	s := w.snapshot(q)
	const workers = 8
	want := make([]string, workers)
	for i := range want {
		want[i] = tr.of(slices.Concat(q.tokens, text(2+i, 40)))
	}
	var wg sync.WaitGroup
	for i := range workers {
		mine := s.Retain()
		stream, err := dev.NewStream()
		w.must(err)
		wg.Go(func() {
			defer stream.Close()
			defer mine.Release()
			me := &world{TB: w.TB, kind: k, dev: dev, pool: w.pool, c: &Scratch{Stream: stream, dev: dev}}
			st, err := k.New(w.pool, id)
			if err != nil {
				t.Error(err)
				return
			}
			p := &seq{st: st}
			defer st.Release()
			for range 5 {
				extra := mine.Retain()
				if err := st.Restore(mine); err != nil {
					t.Error(err)
					return
				}
				extra.Release()
				more := text(2+i, 40)
				for at := 0; at < 40; at += 8 {
					if err := me.begin([]*seq{p}, [][]int32{more[at : at+8]}); err != nil {
						t.Error(err)
						return
					}
					st.Commit(8)
				}
				end, err := st.Snapshot()
				if err != nil {
					t.Error(err)
					return
				}
				if contents(t, end) != want[i] {
					t.Errorf("goroutine %d has other bits", i)
				}
				end.Release()
			}
		})
	}
	w.append(q, text(99, 30)...) // the original goes on meanwhile
	s.Release()
	wg.Wait()
	w.check(q, "the original")
	q.st.Release()
}

// plans are 200 random steps from a seed. The model beside them is a list of
// tokens per sequence and per snapshot.
func plans(t *testing.T, k Kind, dev backend.Device, tr *truth) {
	seeds := 6
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newWorld(t, k, dev, 0, tr)
			plan(w, rand.New(rand.NewPCG(uint64(seed), 17)))
		})
	}
}

type kept struct {
	s      state.Snapshot
	tokens []int32
	refs   int
}

func plan(w *world, r *rand.Rand) {
	const longest = 300
	seqs := []*seq{w.newSeq()}
	var snaps []*kept
	var log []string
	defer func() {
		if w.Failed() {
			w.Logf("the plan: %v", log)
		}
	}()
	drop := func(i int) {
		x := snaps[i]
		x.s.Release()
		if x.refs--; x.refs == 0 {
			snaps = slices.Delete(snaps, i, i+1)
		}
	}
	for step := range 200 {
		i := r.IntN(len(seqs))
		q := seqs[i]
		rows := 1 + r.IntN([]int{3, 20, 80}[r.IntN(3)])
		what := []string{"append", "append", "append", "abort", "fork", "release", "snapshot", "restore", "drop", "retain", "truncate", "check", "move", "batch"}[r.IntN(14)]
		log = append(log, fmt.Sprintf("%d: %s %d rows=%d len=%d", step, what, i, rows, len(q.tokens)))
		switch what {
		case "append":
			if len(q.tokens)+rows > longest {
				w.truncate(q, r.IntN(len(q.tokens)+1))
			}
			w.append(q, text(r.IntN(5), rows)...)
		case "abort":
			w.abort(q, text(r.IntN(5), rows)...)
		case "fork":
			if len(seqs) < 6 {
				seqs = append(seqs, w.fork(q))
			}
		case "release":
			if len(seqs) > 1 {
				q.st.Release()
				seqs = slices.Delete(seqs, i, i+1)
			}
		case "snapshot":
			if len(snaps) < 8 {
				snaps = append(snaps, &kept{w.snapshot(q), slices.Clone(q.tokens), 1})
			}
		case "restore":
			if len(snaps) > 0 {
				x := snaps[r.IntN(len(snaps))]
				w.must(q.st.Restore(x.s))
				q.tokens = slices.Clone(x.tokens)
			}
		case "retain":
			if len(snaps) > 0 {
				x := snaps[r.IntN(len(snaps))]
				x.s.Retain()
				x.refs++
			}
		case "drop":
			if len(snaps) > 0 {
				drop(r.IntN(len(snaps)))
			}
		case "truncate":
			w.truncate(q, r.IntN(len(q.tokens)+1))
		case "move":
			p := w.newSeq()
			s := w.snapshot(q)
			w.must(state.Move(p.st, s))
			s.Release()
			p.tokens = slices.Clone(q.tokens)
			q.st.Release()
			seqs[i] = p
		case "batch":
			toks := make([][]int32, len(seqs))
			for j := range seqs {
				toks[j] = text(r.IntN(5), 1+r.IntN(4))
			}
			w.must(w.begin(seqs, toks))
			for j, q := range seqs {
				if j%3 == 2 {
					continue // a pass need not commit everywhere
				}
				q.st.Commit(len(toks[j]))
				q.tokens = append(q.tokens, toks[j]...)
			}
		case "check":
			w.check(q, "in a plan")
			if len(snaps) > 0 {
				x := snaps[r.IntN(len(snaps))]
				w.checkSnapshot(x.s, x.tokens, "in a plan")
			}
		}
		if w.Failed() {
			return
		}
	}
	for _, q := range seqs {
		w.check(q, "at the end of a plan")
		q.st.Release()
	}
	for len(snaps) > 0 {
		w.checkSnapshot(snaps[0].s, snaps[0].tokens, "at the end of a plan")
		drop(0)
	}
}
