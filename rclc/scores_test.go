package rclc

import (
	"math"
	"slices"
	"testing"

	"samebit/backend"
	"samebit/tensor"
)

// scoreCase is one selector call on captured queries and keys.
type scoreCase struct {
	ID       string
	Selector string
	Types    []string `json:"layer_types"`
	Heads    int      `json:"q_heads"`
	KV       int      `json:"kv_heads"`
	D        int      `json:"head_dim"`
	T        int      `json:"sender_positions"`
	R        int      `json:"request_rows"`
	Latent   int      `json:"latent_steps"`
	Inherit  int      `json:"inherited_positions"`
	Ratio    *int
	Budget   *int
	Resolved int `json:"resolved_budget"`
	Span     int `json:"span_size"`
	Chunk    int `json:"chunk_size"`
	Window   int `json:"window_size"`
	Kernel   int `json:"kernel_size"`
	Context  int `json:"context_limit"`
	Layers   []*struct{ Q, K array }
	Expected struct {
		Selected  []int
		Scored    bool
		Scores    []float64
		Votes     []float64
		Energy    []float64
		RowEnergy []float64 `json:"row_energy"`
		Position  []float64 `json:"position_scores"`
	}
	Error string
}

// weigh runs attention over the captured queries and keys of every full layer, in
// blocks of rows, and shows the weights to g. past rows were there before.
func (c *scoreCase) weigh(t testing.TB, dev backend.Device, g *gauge, past, rows, block int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := dev.NewStream()
	must(err)
	defer s.Close()
	var bufs []tensor.Buffer
	defer func() {
		for _, b := range bufs {
			dev.Free(b)
		}
	}()
	alloc := func(v []float32, dim ...int) tensor.Tensor {
		n := 1
		for _, d := range dim {
			n *= d
		}
		b, err := dev.Alloc(4 * n)
		must(err)
		bufs = append(bufs, b)
		x, err := tensor.New(b, 0, tensor.F32, dim...)
		must(err)
		if v != nil {
			s.Write(x, tensor.AsBytes(v))
		}
		return x
	}
	must(g.open(dev))
	defer g.close(dev)
	for l, kind := range c.Types {
		if kind != "full" {
			continue
		}
		n := past + rows
		var pages []tensor.Tensor
		for range (n + backend.Page - 1) / backend.Page {
			pages = append(pages, alloc(nil, 2, c.KV, backend.Page, c.D))
		}
		k := alloc(turn(c.Layers[l].K.f32(t), c.KV, n, c.D), n, c.KV, c.D)
		v := alloc(make([]float32, n*c.KV*c.D), n, c.KV, c.D)
		q := alloc(turn(c.Layers[l].Q.f32(t), c.Heads, rows, c.D), rows, c.Heads, c.D)
		if past > 0 {
			s.PutKV(s.Plan([]backend.Seg{{Rows: past, KV: pages}}), 0, k.Rows(0, past), v.Rows(0, past))
		}
		p := s.Plan([]backend.Seg{{Rows: rows, Slot: past, Pos: past, KV: pages}})
		s.PutKV(p, 0, k.Rows(past, n), v.Rows(past, n))
		for at := 0; at < rows; at += block {
			to := min(at+block, rows)
			w, out := alloc(nil, to-at, c.Heads, n), alloc(nil, to-at, c.Heads, c.D)
			s.AttentionWeights(out, w, q.Rows(at, to), p, at, 0, float32(1/math.Sqrt(float64(c.D))), 0)
			g.take(s, at, w)
		}
	}
	must(s.Sync())
}

// turn makes [n, heads, d] of [heads, n, d].
func turn(v []float32, heads, n, d int) []float32 {
	out := make([]float32, len(v))
	for h := range heads {
		for r := range n {
			copy(out[(r*heads+h)*d:][:d], v[(h*n+r)*d:])
		}
	}
	return out
}

// rule is the selector with the case's options as they are, zeros included.
func (c *scoreCase) rule() rule {
	switch c.Selector {
	case "cacheback":
		return rule{name: c.Selector, span: c.Span, square: true}
	case "qsnap":
		return rule{name: c.Selector, span: c.Span}
	}
	return rule{name: c.Selector, chunks: true, span: c.Chunk, window: c.Window, kernel: c.Kernel}
}

// run selects on a device; more are vectors that lead to the scores.
func (c *scoreCase) run(t testing.TB, dev backend.Device, block int) (kept []int, scores []float32, more [][]float32, err error) {
	r := c.rule()
	budget, err := Cap(c.T, c.Inherit, 0, deref(c.Ratio), deref(c.Budget))
	if err != nil || budget != c.Resolved {
		t.Fatalf("%s: a budget of %d, want %d, %v", c.ID, budget, c.Resolved, err)
	}
	if kept, err = r.covers(c.T, c.Latent, budget); err != nil || kept != nil {
		return kept, nil, nil, err
	}
	if r.chunks {
		p, err := r.before(c.T)
		if err != nil {
			return nil, nil, nil, err
		}
		v := newChunks(c.T, r.window, c.KV, r.kernel)
		c.weigh(t, dev, &v.gauge, p, r.window, block)
		more = append(more, slices.Clone(v.positions()))
		if scores, err = chunked(more[0], r.span); err != nil {
			return nil, nil, nil, err
		}
	} else {
		v := newVotes(c.T, c.R, c.Heads, c.KV, r.square)
		c.weigh(t, dev, &v.gauge, c.T, c.R, block)
		if scores, err = v.scores(); err != nil {
			return nil, nil, nil, err
		}
		more = append(more, v.votes, v.energy, v.rowEnergy)
	}
	kept, err = pick(scores, c.Latent, budget, r.span)
	return kept, scores, more, err
}

func deref(p *int) int {
	if p == nil {
		return 0
	}
	return *p
}

// TestGoldenScores checks the selectors on captured queries and keys, and that every
// device, number of workers and size of a block gives the same bits.
func TestGoldenScores(t *testing.T) {
	all := devices(t)
	for name, count := range map[string]int{"cacheback": 23, "qsnap": 10, "chunkkv": 18} {
		var f struct{ Cases []scoreCase }
		golden(t, "scores-"+name, &f)
		if len(f.Cases) != count {
			t.Errorf("%s: %d cases", name, len(f.Cases))
		}
		for i := range f.Cases {
			c := &f.Cases[i]
			if c.Context > 0 { // needs a model: TestContextLimit
				if c.T+c.R <= c.Context || c.Error != "context_limit" {
					t.Errorf("%s: unexpected", c.ID)
				}
				continue
			}
			if c.Error != "" {
				_, _, _, err := c.run(t, all[0], 64)
				wantCode(t, c.ID, err, c.Error)
				continue
			}
			kept, scores, more, err := c.run(t, all[0], 1<<20)
			if err != nil {
				t.Errorf("%s: %v", c.ID, err)
				continue
			}
			if !slices.Equal(kept, c.Expected.Selected) {
				t.Errorf("%s: selected %v, want %v", c.ID, kept, c.Expected.Selected)
			}
			if (scores != nil) != c.Expected.Scored {
				t.Errorf("%s: scored %v", c.ID, scores != nil)
			}
			if scores == nil {
				continue
			}
			e := &c.Expected
			if name == "chunkkv" {
				near(t, c.ID+" scores", scores, e.Scores, 1e-5, 1e-7)
				near(t, c.ID+" position scores", more[0], e.Position, 1e-5, 1e-7)
			} else {
				near(t, c.ID+" scores", scores, e.Scores, 2e-5, 1e-7)
				near(t, c.ID+" votes", more[0], e.Votes, 2e-5, 1e-7)
			}
			if name == "cacheback" {
				near(t, c.ID+" energy", more[1], e.Energy, 2e-5, 1e-7)
				near(t, c.ID+" row energy", more[2], e.RowEnergy, 2e-5, 1e-7)
			}
			for d, dev := range all[1:] {
				_, got, _, err := c.run(t, dev, []int{1, 3, 7, 256}[d%4])
				if err != nil || !sameBits(got, scores) {
					t.Errorf("%s: other bits on %s, device %d: %v", c.ID, dev.Name(), d+1, err)
				}
			}
		}
	}
}

// With one request row the ratio is 1 to the bit, so CacheBack is QSnap.
func TestOneRowIsQSnap(t *testing.T) {
	var f struct{ Cases []scoreCase }
	golden(t, "scores-cacheback", &f)
	seen := 0
	for i := range f.Cases {
		c := &f.Cases[i]
		if c.R != 1 || c.Error != "" {
			continue
		}
		_, a, more, err := c.run(t, devices(t)[0], 8)
		if err != nil {
			t.Fatal(err)
		}
		c.Selector = "qsnap"
		_, b, _, err := c.run(t, devices(t)[0], 8)
		if err != nil {
			t.Fatal(err)
		}
		for p := range a {
			if more[1][p] >= 0x1p-126 && math.Float32bits(a[p]) != math.Float32bits(b[p]) {
				t.Errorf("%s: position %d scores %v with CacheBack and %v with QSnap", c.ID, p, a[p], b[p])
			}
		}
		seen++
	}
	if seen < 3 {
		t.Errorf("only %d cases", seen)
	}
}
