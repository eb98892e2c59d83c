package nn_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// half is the rig with another decoder.
func (g *rig) half(d *nn.Decoder) *rig {
	h := *g
	h.dec = d
	return &h
}

// halves are two runners that follow each other.
type halves struct {
	g            *rig
	lower, upper *nn.Runner
	s            *script
}

// run takes both halves n rows on, the upper half in pieces of its own.
func (w *halves) run(n int, what string) {
	w.g.Helper()
	at, h := w.lower.Len(), w.g.dec.Hidden
	var hidden []float32
	w.g.must(w.lower.AppendHidden(bg, w.s.rows[at:at+n], func(_ int, v []float32) { hidden = append(hidden, v...) }))
	rows := nn.HiddenRows(hidden, h)
	w.g.must(w.upper.AppendAll(bg, rows, func(i int, l []float32) { w.g.same(what, l, w.s.logits[at+i]) }))
}

// TestSplit: lower and upper half, each in chunks of its own, through snapshots and
// files, give the bits of the whole.
func TestSplit(t *testing.T) {
	for _, model := range models {
		g := newRig(t, model, 0)
		scripts := g.scripts(model)
		last := len(g.dec.Blocks) - 1
		for _, at := range []int{1, (last + 1) / 2, last} {
			t.Run(fmt.Sprintf("%s/%d", model, at), func(t *testing.T) {
				g := *g
				g.TB = t
				ld, ud, err := g.dec.Split(at)
				g.must(err)
				ld, err = ld.WithTap(nn.Tap{Block: at - 1, Eps: 1e-6})
				g.must(err)
				l, u := g.half(ld), g.half(ud)
				means := map[int][]float32{}
				for seed := range seeds(t, 6, 2) {
					rnd := rand.New(rand.NewPCG(uint64(seed), 9))
					w := halves{&g, l.runner([]int{1, 5, 64, 200}[rnd.IntN(4)]), u.runner([]int{3, 17, 200}[rnd.IntN(3)]), scripts[0]}
					var ls, us state.Snapshot
					var history [2][]state.Row
					for w.lower.Len() < scriptRows {
						w.run(min(1+rnd.IntN(60), scriptRows-w.lower.Len()), fmt.Sprintf("seed %d", seed))
						switch rnd.IntN(4) {
						case 0: // go back, once, to where both halves were kept
							if ls != nil && w.s == scripts[0] {
								g.must(w.lower.Resume(history[0], ls))
								g.must(w.upper.Resume(history[1], us))
								ls.Release()
								us.Release()
								ls = nil
							}
						case 1:
							if ls == nil {
								ls, err = w.lower.Snapshot()
								g.must(err)
								us, err = w.upper.Snapshot()
								g.must(err)
								history = [2][]state.Row{w.lower.History(), w.upper.History()}
								history[0], history[1] = history[0][:len(history[0]):len(history[0])], history[1][:len(history[1]):len(history[1])]
							}
						case 2:
							a, b := l.saved(w.lower), u.saved(w.upper)
							w.lower, w.upper = l.runner(33), u.runner(8)
							g.must(w.lower.Load(bytes.NewReader(a)))
							g.must(w.upper.Load(bytes.NewReader(b)))
						case 3:
							n := rnd.IntN(w.lower.Len() + 1)
							g.must(w.lower.Truncate(bg, n))
							g.must(w.upper.Rewind(bg, n))
							if n > 0 {
								g.same("rewound", w.upper.Logits(), w.s.logits[n-1])
							}
						}
					}
					if ls != nil {
						ls.Release()
						us.Release()
					}
					m := g.mean(w.lower)
					if means[0] == nil {
						means[0] = m
					}
					g.same("mean of the tap", m, means[0])
				}
				g.same("mean of the tap, by hand", means[0], g.meanByHand(at, scripts[0].rows))
			})
		}
	}
}

func (g *rig) mean(r *nn.Runner) []float32 {
	g.Helper()
	s, ok := state.Part[*state.Sum](r.State())
	if !ok {
		g.Fatal("the state has no sum")
	}
	m, err := s.Mean()
	g.must(err)
	return m
}

// meanByHand sums what leaves block at-1 of the whole model.
func (g *rig) meanByHand(at int, rows []state.Row) []float32 {
	g.Helper()
	c := g.ctx()
	h := g.dec.Hidden
	sum, ones := make([]float32, h), make([]float32, h)
	for i := range ones {
		ones[i] = 1
	}
	w, err := tensor.FromF32(ones, h)
	g.must(err)
	c.Trace = func(c *nn.Ctx, i int, x tensor.Tensor) {
		if i != at {
			return
		}
		y := c.Tmp(x.Dim(0), h)
		c.Stream.RMSNorm(y, x, w, 1e-6)
		v := read(c, y)
		for r := range rows {
			for j := range sum {
				sum[j] += v[r*h+j]
			}
		}
	}
	g.must(g.dec.Forward(bg, c, []nn.Seq{{State: g.state(), In: rows}}))
	for j := range sum {
		sum[j] /= float32(len(rows))
	}
	return sum
}

// TestTapWeight gives the tap a weight, and taps the whole model.
func TestTapWeight(t *testing.T) {
	g := newRig(t, models[3], 0)
	s := g.scripts(models[3])[0]
	plain, err := g.dec.WithTap(nn.Tap{Block: 2, Eps: 1e-6})
	g.must(err)
	v := make([]float32, g.dec.Hidden)
	for i := range v {
		v[i] = 2 // times two is exact
	}
	c := g.ctx()
	two := c.Tmp(1, g.dec.Hidden).Index(0)
	in, _ := tensor.FromF32(v, len(v))
	g.stream.Copy(two, in)
	g.must(g.stream.Sync())
	double, err := g.dec.WithTap(nn.Tap{Block: 2, Eps: 1e-6, Weight: two, Digest: [32]byte{2}})
	g.must(err)
	var means [2][]float32
	for i, d := range []*nn.Decoder{plain, double} {
		r := g.half(d).runner(11)
		g.must(r.AppendAll(bg, s.rows, func(i int, l []float32) { g.same("a tapped model", l, s.logits[i]) }))
		means[i] = g.mean(r)
	}
	for j := range means[0] {
		means[0][j] *= 2
	}
	g.same("twice the mean", means[1], means[0])
	if plain.ID == double.ID || plain.ID == g.dec.ID {
		t.Error("taps do not change the ID")
	}
	for _, bad := range []nn.Tap{{Block: -1}, {Block: len(g.dec.Blocks)}, {Weight: two}, {Digest: [32]byte{1}}, {Weight: in.Cols(0, 3), Digest: [32]byte{1}}} {
		if _, err := g.dec.WithTap(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	if _, err := plain.WithTap(nn.Tap{}); err == nil {
		t.Error("a second tap is accepted")
	}
	if _, _, err := plain.Split(2); err == nil {
		t.Error("a tapped decoder is split")
	}
}

func TestSplitRefuses(t *testing.T) {
	g := newRig(t, models[3], 0)
	for _, at := range []int{-1, 0, len(g.dec.Blocks), 1 << 30} {
		if _, _, err := g.dec.Split(at); err == nil {
			t.Errorf("split before block %d", at)
		}
	}
	ld, ud, err := g.dec.Split(4)
	g.must(err)
	ids := map[state.ID]bool{g.dec.ID: true, ld.ID: true, ud.ID: true}
	l2, u2, err := g.dec.Split(5)
	g.must(err)
	ids[l2.ID], ids[u2.ID] = true, true
	if len(ids) != 5 {
		t.Error("halves share an ID")
	}
	l, u := g.half(ld).runner(8), g.half(ud).runner(8)
	if err := u.Append(bg, tokens(1)); err == nil || !strings.Contains(err.Error(), "no embedding") {
		t.Errorf("tokens for the upper half: %v", err)
	}
	g.must(l.Append(bg, tokens(1, 2)))
	if l.Logits() != nil || len(l.Hidden()) != g.dec.Hidden {
		t.Error("the lower half has logits or no hidden row")
	}
	if err := l.AppendAll(bg, tokens(3), nil); err == nil || l.Len() != 2 {
		t.Errorf("logits of the lower half: %v", err)
	}
	s, err := l.Snapshot()
	g.must(err)
	defer s.Release()
	if err := u.Resume(tokens(1, 2), s); !errors.Is(err, state.ErrForeign) {
		t.Errorf("the upper half takes the lower half's state: %v", err)
	}
	custom := *g.dec
	custom.Blocks = append([]nn.Block{{Mix: strange{}}}, g.dec.Blocks...)
	if _, _, err := custom.Split(2); err == nil || !strings.Contains(err.Error(), "strange") {
		t.Errorf("a mixer of no known kind: %v", err)
	}
	custom = *g.dec
	custom.Shapes = nn.Shapes{}
	if _, _, err := custom.Split(2); err == nil {
		t.Error("a decoder without shapes is split")
	}
}

type strange struct{}

func (strange) Mix(*nn.Ctx, tensor.Tensor, tensor.Tensor) {}
