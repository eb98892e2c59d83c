package nn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// TestRunnerPlans drives one runner along random ways: steps and chunks, forks,
// rewinds, resumed snapshots, saved files, cancelled and failing passes. Every
// logit on the way must have the bits of the straight run.
func TestRunnerPlans(t *testing.T) {
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			g := newRig(t, model, 0)
			g.scripts(model)
			for seed := range seeds(t, 30, 4) {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					q := *g
					q.TB = t
					q.runnerPlan(model, rand.New(rand.NewPCG(uint64(seed), 1)))
				})
			}
		})
	}
}

// walk is a runner at a place of a script.
type walk struct {
	r *nn.Runner
	s *script
}

func (g *rig) runnerPlan(model string, rnd *rand.Rand) {
	bg := context.Background()
	scripts := g.scripts(model)
	f := &faulty{Stream: g.stream}
	g.stream = f
	w := walk{g.runner([]int{3, 17, 64, 200}[rnd.IntN(4)]), scripts[rnd.IntN(len(scripts))]}
	var log record
	defer log.show(g)
	var snap state.Snapshot
	var snapRows int
	var snapScript *script
	defer func() {
		if snap != nil {
			snap.Release()
		}
	}()
	for step := range 22 {
		at := w.r.Len()
		if at > 0 && w.r.Logits() != nil {
			g.same(fmt.Sprintf("row %d at step %d", at-1, step), w.r.Logits(), w.s.logits[at-1])
		}
		left := scriptRows - at
		n := min(left, 1+rnd.IntN([]int{2, 20, 60}[rnd.IntN(3)]))
		what := rnd.IntN(12)
		log.add("%d: op %d at %d, %d rows", step, what, at, n)
		switch {
		case left == 0 || what == 0:
			to := rnd.IntN(at + 1)
			g.must(w.r.Rewind(bg, to))
			if to > 0 && w.r.Logits() == nil {
				g.Fatalf("rewound to row %d without logits", to)
			}
		case what == 1:
			g.must(w.r.Truncate(bg, rnd.IntN(at+1)))
		case what == 2: // go on along another text if it began the same
			if o := scripts[rnd.IntN(len(scripts))]; at <= min(o.shared, w.s.shared) {
				w.s = o
			}
		case what == 3:
			fork, err := w.r.Fork()
			g.must(err)
			g.must(w.r.Append(bg, scripts[(step+1)%4].rows[:n])) // the other goes elsewhere
			w.r.Close()
			g.Cleanup(fork.Close)
			w.r = fork
		case what == 4:
			file := g.saved(w.r)
			w.r.Close()
			w.r = g.runner(1 + rnd.IntN(70))
			g.must(w.r.Load(bytes.NewReader(file)))
		case what == 5 && snap == nil:
			s, err := w.r.Snapshot()
			g.must(err)
			snap, snapRows, snapScript = s, at, w.s
		case what == 5:
			g.must(w.r.Resume(snapScript.rows[:snapRows], snap))
			w.s = snapScript
		case what == 6 || what == 7: // a pass that fails or is cancelled
			ctx, cancel := context.WithCancel(bg)
			if what == 6 {
				f.left = 1 + rnd.IntN(60)
			} else {
				k := rnd.IntN(6)
				w.r.Ctx().Trace = func(*nn.Ctx, int, tensor.Tensor) {
					if k--; k < 0 {
						cancel()
					}
				}
			}
			err := w.r.Append(ctx, w.s.rows[at:at+n])
			cancel()
			f.left, w.r.Ctx().Trace = 0, nil
			if err != nil && what == 7 && !errors.Is(err, context.Canceled) {
				g.Fatalf("cancelled: %v", err)
			}
			if have := w.r.Len(); have < at || have > at+n || w.r.State().Len() != have {
				g.Fatalf("a given-up append of %d rows at %d left %d rows, %d in the state", n, at, have, w.r.State().Len())
			}
		case what == 8:
			g.must(w.r.Step(bg, w.s.rows[at].Token))
		case what == 9:
			g.must(w.r.Append(bg, w.s.rows[at:at+n]))
		default:
			g.must(w.r.AppendAll(bg, w.s.rows[at:at+n], func(i int, l []float32) {
				g.same(fmt.Sprintf("row %d at step %d", at+i, step), l, w.s.logits[at+i])
			}))
		}
	}
}

// TestForwardPlans puts random companies of sequences into passes.
func TestForwardPlans(t *testing.T) {
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			g := newRig(t, model, 0)
			g.scripts(model)
			for seed := range seeds(t, 30, 4) {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					q := *g
					q.TB = t
					q.forwardPlan(model, rand.New(rand.NewPCG(uint64(seed), 2)))
				})
			}
		})
	}
}

func (g *rig) forwardPlan(model string, rnd *rand.Rand) {
	bg := context.Background()
	scripts := g.scripts(model)
	f := &faulty{Stream: g.stream}
	c := nn.NewCtx(f, g.dev)
	defer c.Close()
	type member struct {
		st state.State
		s  *script
	}
	var all []member
	for range 2 + rnd.IntN(4) {
		all = append(all, member{g.state(), scripts[rnd.IntN(len(scripts))]})
	}
	var log record
	defer log.show(g)
	for step := range 12 {
		var seqs []nn.Seq
		var who []member
		for _, i := range rnd.Perm(len(all))[:1+rnd.IntN(len(all))] {
			m := all[i]
			if m.st.Len() == scriptRows || rnd.IntN(9) == 0 {
				if _, err := m.st.Truncate(rnd.IntN(max(m.st.Len(), 1))); err != nil {
					g.Fatal(err)
				}
			}
			at := m.st.Len()
			n := min(scriptRows-at, 1+rnd.IntN([]int{1, 9, 70}[rnd.IntN(3)]))
			seqs = append(seqs, nn.Seq{State: m.st, In: m.s.rows[at : at+n], Want: nn.Want(rnd.IntN(3)), NeedHidden: rnd.IntN(2) == 0})
			who = append(who, m)
			log.add("%d: sequence %d at %d, %d rows", step, i, at, n)
		}
		lens := make([]int, len(seqs))
		for i := range seqs {
			lens[i] = seqs[i].State.Len()
		}
		if rnd.IntN(3) == 0 { // first a try that must change nothing
			ctx, cancel := context.WithCancel(bg)
			k := 1 << 20
			if rnd.IntN(2) == 0 {
				k = rnd.IntN(len(g.dec.Blocks)) // before the last block
			} else {
				f.left = 1 + rnd.IntN(30)
			}
			c.Trace = func(*nn.Ctx, int, tensor.Tensor) {
				if k--; k < 0 {
					cancel()
				}
			}
			err := g.dec.Forward(ctx, c, seqs)
			c.Trace = nil
			f.left = 0
			cancel()
			log.add("%d: tried: %v", step, err)
			if err == nil {
				g.Fatal("a cancelled or failing pass gave no error")
			}
			for i := range seqs {
				if n := seqs[i].State.Len(); n != lens[i] {
					g.Fatalf("a failed pass moved sequence %d from %d to %d rows", i, lens[i], n)
				}
			}
		}
		g.must(g.dec.Forward(bg, c, seqs))
		for i := range seqs {
			q, m := &seqs[i], who[i]
			first := lens[i]
			switch q.Want {
			case nn.WantNone:
				continue
			case nn.WantLast:
				first += len(q.In) - 1
			}
			v, h := g.dec.Vocab, g.dec.Hidden
			if len(q.Logits) != (lens[i]+len(q.In)-first)*v {
				g.Fatalf("%d logits for %d rows, want mode %d", len(q.Logits), len(q.In), q.Want)
			}
			for k := range len(q.Logits) / v {
				g.same(fmt.Sprintf("row %d at step %d", first+k, step), q.Logits[k*v:(k+1)*v], m.s.logits[first+k])
				if q.NeedHidden {
					g.same("hidden row", q.Hidden[k*h:(k+1)*h], m.s.hidden[first+k])
				}
			}
		}
	}
}
