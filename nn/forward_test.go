package nn_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

var bg = context.Background()

// TestNoRoom lets the second sequence of a pass run out of memory.
func TestNoRoom(t *testing.T) {
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			free := newRig(t, model, 0)
			s := free.scripts(model)
			st := free.state()
			c := free.ctx()
			free.must(free.dec.Forward(bg, c, []nn.Seq{{State: st, In: s[0].rows[:70]}}))
			one := free.pool.Bytes()
			st.Release()

			g := newRig(t, model, one*5/2)
			c = g.ctx()
			seqs := make([]nn.Seq, 3)
			for i := range seqs {
				seqs[i] = nn.Seq{State: g.state(), In: s[i].rows[:70], Want: nn.WantLast}
			}
			err := g.dec.Forward(bg, c, seqs)
			if !errors.Is(err, state.ErrNoRoom) {
				t.Fatalf("three sequences in the memory of two and a half: %v, want ErrNoRoom", err)
			}
			for i := range seqs {
				if seqs[i].State.Len() != 0 {
					t.Errorf("sequence %d has %d rows after the refusal", i, seqs[i].State.Len())
				}
			}
			seqs[2].State.Release()
			g.must(g.dec.Forward(bg, c, seqs[:2]))
			for i := range seqs[:2] {
				g.same("the retry", seqs[i].Logits, s[i].logits[69])
			}
		})
	}
}

// TestFullDevice refuses memory for scratch.
func TestFullDevice(t *testing.T) {
	g := newRig(t, models[0], 0)
	s := g.scripts(models[0])
	dev := &limited{Device: g.dev}
	c := nn.NewCtx(g.stream, dev)
	defer c.Close()
	q := []nn.Seq{{State: g.state(), In: s[0].rows[:9], Want: nn.WantLast}}
	for range 2 {
		if err := g.dec.Forward(bg, c, q); !errors.Is(err, backend.ErrNoMemory) {
			t.Fatalf("a pass without memory for scratch: %v, want ErrNoMemory", err)
		}
	}
	dev.open = true
	g.must(g.dec.Forward(bg, c, q))
	g.same("with memory", q[0].Logits, s[0].logits[8])
}

type limited struct {
	backend.Device
	open bool
}

func (d *limited) Alloc(n int) (tensor.Buffer, error) {
	if !d.open {
		return nil, backend.ErrNoMemory
	}
	return d.Device.Alloc(n)
}

// TestContinuousRows gives embedding rows instead of tokens.
func TestContinuousRows(t *testing.T) {
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			g := newRig(t, model, 0)
			s := g.scripts(model)[0]
			c := g.ctx()
			var vecs []float32
			c.Trace = func(c *nn.Ctx, i int, x tensor.Tensor) {
				if i == 0 {
					vecs = read(c, x)
				}
			}
			const n = 40
			g.must(g.dec.Forward(bg, c, []nn.Seq{{State: g.state(), In: s.rows[:n]}}))
			rows := make([]state.Row, n)
			h := g.dec.Hidden
			for i := range rows {
				rows[i] = s.rows[i]
				if i%3 != 1 {
					rows[i] = state.Row{Token: -1, Vec: vecs[i*h : (i+1)*h]}
				}
			}
			r := g.runner(7)
			g.must(r.AppendAll(bg, rows, func(i int, l []float32) { g.same("continuous rows", l, s.logits[i]) }))

			// What was given is remembered even if the caller reuses it, as a latent
			// rollout does with Hidden.
			g.must(r.Append(bg, []state.Row{{Token: -1, Vec: r.Hidden()}}))
			g.must(r.Append(bg, []state.Row{{Token: -1, Vec: r.Hidden()}}))
			want := append([]float32(nil), r.Logits()...)
			clear(vecs)
			file := g.saved(r)
			g.must(r.Append(bg, s.rows[:5]))
			g.must(r.Rewind(bg, n+2))
			g.same("rewound to a latent row", r.Logits(), want)
			g.must(r.Truncate(bg, 0))
			g.must(r.Load(strings.NewReader(string(file))))
			g.must(r.Rewind(bg, n+2))
			g.same("latent rows from a file", r.Logits(), want)
		})
	}
}

// TestEqualPrompts puts one prompt eight times into a pass, half of them from a
// shared snapshot.
func TestEqualPrompts(t *testing.T) {
	for _, model := range models {
		g := newRig(t, model, 0)
		s := g.scripts(model)[0]
		c := g.ctx()
		first := g.state()
		g.must(g.dec.Forward(bg, c, []nn.Seq{{State: first, In: s.rows[:70]}}))
		snap, err := first.Snapshot()
		g.must(err)
		defer snap.Release()
		seqs := make([]nn.Seq, 8)
		for i := range seqs {
			seqs[i] = nn.Seq{State: g.state(), In: s.rows[:100], Want: nn.WantLast}
			if i%2 == 1 {
				g.must(seqs[i].State.Restore(snap))
				seqs[i].In = s.rows[70:100]
			}
		}
		for at := 100; at < 110; at++ {
			g.must(g.dec.Forward(bg, c, seqs))
			for i := range seqs {
				g.same(model+" eight times", seqs[i].Logits, s.logits[at-1])
				seqs[i].In = s.rows[at : at+1]
			}
		}
	}
}

// TestBadRow puts a row of NaN into a batch: only its own sequence suffers.
func TestBadRow(t *testing.T) {
	for _, model := range models {
		g := newRig(t, model, 0)
		s := g.scripts(model)
		nan := make([]float32, g.dec.Hidden)
		for i := range nan {
			nan[i] = float32(math.NaN())
		}
		seqs := []nn.Seq{{State: g.state(), In: s[0].rows[:9], Want: nn.WantLast}, {State: g.state(), In: []state.Row{{Token: -1, Vec: nan}}, Want: nn.WantLast},
			{State: g.state(), In: s[1].rows[:33], Want: nn.WantLast}}
		err := g.dec.Forward(bg, g.ctx(), seqs)
		if strings.Contains(model, "moe") { // no experts can be chosen for such a row
			if err == nil || !strings.Contains(err.Error(), "row 9") || seqs[0].State.Len() != 0 {
				t.Errorf("%s: a row of NaN: error %v, want one that names row 9", model, err)
			}
			continue
		}
		g.must(err)
		g.same(model+" beside NaN", seqs[0].Logits, s[0].logits[8])
		g.same(model+" behind NaN", seqs[2].Logits, s[1].logits[32])
		if v := seqs[1].Logits[3]; v == v {
			t.Errorf("%s: a row of NaN gives the logit %v", model, v)
		}
	}
}

func TestRefusals(t *testing.T) {
	g := newRig(t, models[0], 0)
	s := g.scripts(models[0])[0]
	st, c := g.state(), g.ctx()
	g.must(g.dec.Forward(bg, c, []nn.Seq{{State: st, In: s.rows[:5]}}))
	other := g.state()
	for _, tt := range []struct {
		why  string
		seqs []nn.Seq
		want string
	}{
		{"no sequences", nil, "no rows"},
		{"no state", []nn.Seq{{In: tokens(1)}}, "no state"},
		{"no rows", []nn.Seq{{State: st}}, "no rows"},
		{"token beyond the vocabulary", []nn.Seq{{State: other, In: tokens(1)}, {State: st, In: tokens(3, 512)}}, "token 512"},
		{"negative token", []nn.Seq{{State: st, In: tokens(-1)}}, "token -1"},
		{"narrow vector", []nn.Seq{{State: st, In: []state.Row{{Token: -1, Vec: make([]float32, 63)}}}}, "63 values"},
		{"empty vector", []nn.Seq{{State: st, In: []state.Row{{Token: -1, Vec: []float32{}}}}}, "0 values"},
		{"one state twice", []nn.Seq{{State: st, In: tokens(1)}, {State: st, In: tokens(2)}}, "share one state"},
		{"beyond the context", []nn.Seq{{State: st, In: make([]state.Row, 508)}}, "context of 512"},
	} {
		err := g.dec.Forward(bg, c, tt.seqs)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.why, err, tt.want)
		}
		if st.Len() != 5 || other.Len() != 0 {
			t.Fatalf("%s: the refused pass left %d and %d rows", tt.why, st.Len(), other.Len())
		}
	}
	q := []nn.Seq{{State: st, In: s.rows[5:9], Want: nn.WantLast}}
	g.must(g.dec.Forward(bg, c, q))
	g.same("after refusals", q[0].Logits, s.logits[8])

	r := g.runner(50)
	g.must(r.Append(bg, s.rows[:100]))
	if err := r.Append(bg, make([]state.Row, 413)); err == nil || r.Len() != 100 {
		t.Errorf("a prompt beyond the context: %v, %d rows", err, r.Len())
	}
	if err := r.AppendAll(bg, make([]state.Row, 413), func(int, []float32) {}); err == nil {
		t.Error("AppendAll beyond the context: no error")
	}
	g.must(r.Rewind(bg, 100))
	g.same("after a prompt beyond the context", r.Logits(), s.logits[99])
	g.must(r.Append(bg, make([]state.Row, 412))) // up to the last row
	if err := r.Step(bg, 1); err == nil || r.Len() != 512 {
		t.Errorf("a step beyond the context: %v, %d rows", err, r.Len())
	}
	for _, n := range []int{-1, 513} {
		if r.Truncate(bg, n) == nil || r.Rewind(bg, n) == nil {
			t.Errorf("going back to row %d of 512: no error", n)
		}
	}
	snap, err := r.Snapshot()
	g.must(err)
	defer snap.Release()
	if r.Resume(s.rows[:3], snap) == nil {
		t.Error("resuming 512 rows with a history of 3: no error")
	}
	if _, err := g.dec.NewRunner(g.stream, g.pool, nn.RunnerConfig{ChunkRows: -1}); err == nil {
		t.Error("chunks of -1 rows: no error")
	}
	g.must(r.Reset())
	if r.Len() != 0 || r.Logits() != nil || r.Hidden() != nil {
		t.Errorf("Reset leaves %d rows", r.Len())
	}
}

// TestForkOfOneRow: a fork copies the logits of the last row, not all that were asked
// for.
func TestForkOfOneRow(t *testing.T) {
	g := newRig(t, models[0], 0)
	s := g.scripts(models[0])[0]
	r := g.runner(scriptRows)
	g.must(r.AppendAll(bg, s.rows, func(int, []float32) {}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := r.Fork()
	runtime.ReadMemStats(&after)
	g.must(err)
	defer f.Close()
	if took, all := after.TotalAlloc-before.TotalAlloc, uint64(4*scriptRows*g.dec.Vocab); took > all/4 {
		t.Errorf("a fork takes %d bytes, the logits of all rows are %d", took, all)
	}
	g.same("of the fork", f.Logits(), s.logits[scriptRows-1])
	g.same("hidden", f.Hidden(), s.hidden[scriptRows-1])
}

// TestLogitsValidity says after what a runner has logits.
func TestLogitsValidity(t *testing.T) {
	g := newRig(t, models[3], 0)
	s := g.scripts(models[3])[0]
	r := g.runner(16)
	if r.Logits() != nil {
		t.Error("an empty sequence has logits")
	}
	g.must(r.Append(bg, nil))
	g.must(r.Append(bg, s.rows[:40]))
	g.must(r.Rewind(bg, 40))
	g.same("rewound to where it is", r.Logits(), s.logits[39])
	g.same("hidden", r.Hidden(), s.hidden[39])
	f, err := r.Fork()
	g.must(err)
	defer f.Close()
	g.must(r.Step(bg, s.rows[40].Token))
	g.same("a fork's logits are its own", f.Logits(), s.logits[39])
	g.must(r.Rewind(bg, 40))
	g.same("rewound by one", r.Logits(), s.logits[39])
	g.must(r.Truncate(bg, 30))
	if r.Logits() != nil {
		t.Error("Truncate left logits")
	}
	g.must(r.Rewind(bg, 30))
	g.same("rewound to where it is, without logits", r.Logits(), s.logits[29])
	over, cancel := context.WithCancel(bg)
	cancel()
	if err := r.Append(over, s.rows[30:60]); !errors.Is(err, context.Canceled) || r.Len() != 30 {
		t.Errorf("append with a cancelled context: %v, %d rows", err, r.Len())
	}
	var seen [][2]int
	r.OnProgress(func(done, total int) { seen = append(seen, [2]int{done, total}) })
	g.must(r.Append(bg, s.rows[30:70]))
	if want := [][2]int{{16, 40}, {32, 40}, {40, 40}}; len(seen) != 3 || seen[0] != want[0] || seen[2] != want[2] {
		t.Errorf("progress %v, want %v", seen, want)
	}
	g.same("in chunks with progress", r.Logits(), s.logits[69])
}
