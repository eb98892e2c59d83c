package nn_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// products counts the products with one weight.
type products struct {
	backend.Stream
	of backend.Weight
	n  int
}

func (p *products) Linear(dst, x tensor.Tensor, w backend.Weight) {
	if w == p.of {
		p.n++
	}
	p.Stream.Linear(dst, x, w)
}

// softmax of a list, by the device.
func (g *rig) softmax(v []float32) []float32 {
	g.Helper()
	c := g.ctx()
	x, y := c.Tmp(1, len(v)), c.Tmp(1, len(v))
	in, err := tensor.FromF32(v, 1, len(v))
	g.must(err)
	g.stream.Copy(x, in)
	g.stream.Softmax(y, x)
	return read(c, y)
}

// TestDecide asks about random rows: the options' logits are those of the full
// product, which is never done.
func TestDecide(t *testing.T) {
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			g := newRig(t, model, 0)
			s := g.scripts(model)[0]
			count := &products{Stream: g.stream, of: g.dec.Head}
			g.stream = count
			b, err := g.dec.NewBatcher(g.dev, nn.BatcherConfig{Rows: 40})
			g.must(err)
			t.Cleanup(func() { b.Close() })
			for seed := range seeds(t, 12, 3) {
				rnd := rand.New(rand.NewPCG(uint64(seed), 3))
				cfg := nn.RunnerConfig{ChunkRows: []int{1, 7, 64, 200}[rnd.IntN(4)]}
				if seed%3 == 2 {
					cfg = nn.RunnerConfig{Batcher: b}
				}
				r, err := g.dec.NewRunner(g.stream, g.pool, cfg)
				g.must(err)
				from := rnd.IntN(scriptRows - 1)
				g.must(r.Append(bg, s.rows[:from]))
				before := count.n
				rows := s.rows[from:]
				var qs []nn.Question
				for range rnd.IntN(6) {
					q := nn.Question{At: rnd.IntN(len(rows))}
					for range 1 + rnd.IntN(16) {
						q.Options = append(q.Options, int32(rnd.IntN(g.dec.Vocab)))
					}
					qs = append(qs, q)
				}
				got, err := r.Decide(bg, rows, qs)
				g.must(err)
				if count.n != before {
					t.Errorf("seed %d: %d full products", seed, count.n-before)
				}
				if r.Len() != scriptRows || r.Logits() != nil || len(got) != len(qs) {
					t.Fatalf("seed %d: %d rows, logits %v, %d answers to %d questions", seed, r.Len(), r.Logits() != nil, len(got), len(qs))
				}
				for i, q := range qs {
					want := make([]float32, len(q.Options))
					for j, o := range q.Options {
						want[j] = s.logits[from+q.At][o]
					}
					logits, probs, err := g.dec.Decide(r.Ctx(), s.hidden[from+q.At], q.Options)
					g.must(err)
					g.same(fmt.Sprintf("seed %d, question %d", seed, i), logits, want)
					g.same("its probabilities", probs, g.softmax(want))
					g.same("its answer", got[i], probs)
				}
				// The same rows again, appended in pieces to one who asks.
				for i := range qs {
					qs[i].At += from
				}
				back := rnd.IntN(from + 1)
				g.must(r.Truncate(bg, back))
				a, err := r.Ask(qs)
				g.must(err)
				for r.Len() < scriptRows {
					g.must(a.Append(bg, s.rows[r.Len():min(r.Len()+1+rnd.IntN(90), scriptRows)]))
				}
				for i := range qs {
					g.same("an answer in pieces", a.Answers()[i], got[i])
				}
				g.must(r.Rewind(bg, scriptRows)) // brings logits
				g.same("rewound after decisions", r.Logits(), s.logits[scriptRows-1])
				r.Close()
			}
		})
	}
}

// TestWantedRows mixes sequences with and without logits in one pass.
func TestWantedRows(t *testing.T) {
	g := newRig(t, models[3], 0)
	s := g.scripts(models[3])
	c := g.ctx()
	n := 90
	seqs := []nn.Seq{
		{State: g.state(), In: s[0].rows[:n], Want: nn.WantRows, At: []int{0, 3, 64, 89}, NeedHidden: true, NoLogits: true},
		{State: g.state(), In: s[1].rows[:n], Want: nn.WantRows, At: []int{5, 88}},
		{State: g.state(), In: s[2].rows[:n], Want: nn.WantAll, NoLogits: true},
		{State: g.state(), In: s[3].rows[:n], Want: nn.WantAll, NeedHidden: true},
		{State: g.state(), In: s[2].rows[:n], Want: nn.WantLast, NeedHidden: true, NoLogits: true},
	}
	g.must(g.dec.Forward(bg, c, seqs))
	v, h := g.dec.Vocab, g.dec.Hidden
	for i, r := range seqs[0].At {
		g.same("hidden without logits", seqs[0].Hidden[i*h:(i+1)*h], s[0].hidden[r])
	}
	for i, r := range seqs[1].At {
		g.same("chosen rows", seqs[1].Logits[i*v:(i+1)*v], s[1].logits[r])
	}
	for i := range n {
		g.same("all rows", seqs[3].Logits[i*v:(i+1)*v], s[3].logits[i])
		g.same("all hidden rows", seqs[3].Hidden[i*h:(i+1)*h], s[3].hidden[i])
	}
	g.same("the last hidden row", seqs[4].Hidden[:h], s[2].hidden[n-1])
	if len(seqs[0].Logits)+len(seqs[2].Logits)+len(seqs[4].Logits) != 0 || len(seqs[1].Hidden)+len(seqs[2].Hidden) != 0 {
		t.Error("something was filled that nobody wanted")
	}
	for _, at := range [][]int{{-1}, {1, 1}, {2, 1}, {n}} {
		q := []nn.Seq{{State: g.state(), In: s[0].rows[:n], Want: nn.WantRows, At: at}}
		if err := g.dec.Forward(bg, c, q); err == nil || q[0].State.Len() != 0 {
			t.Errorf("rows %v of %d: error %v, %d rows ran", at, n, err, q[0].State.Len())
		}
	}
}

func TestDecideRefuses(t *testing.T) {
	g := newRig(t, models[0], 0)
	r := g.runner(8)
	rows := tokens(1, 2, 3)
	lower, _, err := g.dec.Split(1)
	g.must(err)
	l := *g
	l.dec = lower
	for _, c := range []struct {
		r    *nn.Runner
		rows []state.Row
		q    nn.Question
		want string
	}{
		{r, rows, nn.Question{At: 0}, "question 1: no options"},
		{r, rows, nn.Question{At: 3, Options: []int32{1}}, "row 3 of 3"},
		{r, rows, nn.Question{At: -1, Options: []int32{1}}, "row -1 of 3"},
		{r, rows, nn.Question{Options: []int32{1, int32(g.dec.Vocab)}}, "outside the vocabulary"},
		{r, rows, nn.Question{Options: []int32{-1}}, "outside the vocabulary"},
		{r, nil, nn.Question{Options: []int32{1}}, "row 0 of 0"},
		{l.runner(8), rows, nn.Question{Options: []int32{1}}, "no head"},
	} {
		_, err := c.r.Decide(bg, c.rows, []nn.Question{{Options: []int32{4}}, c.q})
		if len(c.rows) == 0 {
			_, err = c.r.Decide(bg, nil, []nn.Question{c.q})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || c.r.Len() != 0 {
			t.Errorf("%+v: error %v, want %q; %d rows ran", c.q, err, c.want, c.r.Len())
		}
	}
	if _, _, err := g.dec.Decide(r.Ctx(), make([]float32, 3), []int32{1}); err == nil {
		t.Error("a row of another width decides")
	}
	if _, _, err := g.dec.Decide(r.Ctx(), make([]float32, g.dec.Hidden), nil); err == nil {
		t.Error("a decision between no options")
	}
	if d := tensortest.DiffBits(nil, r.Logits()); d != "" {
		t.Error("refused decisions left logits")
	}
}
