package cache_test

// Faults that other engines had with caches of hybrid models, by the numbers of
// the list they were collected in.

import (
	"context"
	"slices"
	"sync"
	"testing"

	"samebit/cache"
	"samebit/state"
)

const hybrid = "qwen3next-moe-fp32"

// tokens makes n rows of document doc.
func tokens(doc, n int) []state.Row {
	rows := make([]state.Row, n)
	for i := range rows {
		rows[i].Token = int32(3 + (doc*101+i*17+i*i%7)%290)
	}
	return rows
}

func join(l ...[]state.Row) []state.Row { return slices.Concat(l...) }

// bench is a model, a cache and one sequence that is used again and again.
type rig struct {
	t testing.TB
	m *model
	c *cache.Cache
	q *seq
}

func newRig(t testing.TB, m *model, cfg cache.Config) *rig {
	t.Helper()
	c, err := cache.New(m.pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t, m, c, m.seq(t, 64)}
	t.Cleanup(func() {
		r.q.close()
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// run prefills rows and compares every logit with a cold run.
func (r *rig) run(rows []state.Row, stateLen int) cache.Report {
	r.t.Helper()
	return r.runAs(cache.Key{Model: r.m.dec.ID}, rows, stateLen)
}

func (r *rig) runAs(k cache.Key, rows []state.Row, stateLen int) cache.Report {
	r.t.Helper()
	r.q.bits, r.q.ran = map[int]uint64{}, 0
	rep, err := r.c.Prefill(context.Background(), k, r.q, rows, stateLen)
	if err != nil {
		r.t.Fatal(err)
	}
	r.check(r.q, rows, rep)
	return rep
}

func (r *rig) check(q *seq, rows []state.Row, rep cache.Report) {
	r.t.Helper()
	if q.ran != len(rows)-rep.Start {
		r.t.Errorf("%d rows were run from %d of %d", q.ran, rep.Start, len(rows))
	}
	want := r.m.run(r.t, rows)
	for i, b := range q.bits {
		if b != want[i] {
			r.t.Fatalf("logits of row %d of %d, started at %d, differ from a cold run", i, len(rows), rep.Start)
		}
	}
}

func small(stride int) cache.Policy { return cache.Policy{Stride: stride, MinPrefix: -1} }

func TestSC01ColdThenHit(t *testing.T) {
	r := newRig(t, openModel(t, hybrid), cache.Config{Policy: small(128)})
	rows := tokens(1, 2*128+67)
	r.run(rows, len(rows)-1)
	if rep := r.run(rows, len(rows)-1); rep.Outcome != cache.Hit || rep.Computed != 1 {
		t.Errorf("%+v, want a hit and one row", rep)
	}
	// and from every checkpoint alone
	for _, cut := range []int{300, 307, 256, 200, 128} {
		r.run(join(rows[:cut], tokens(cut, 20)), cut)
	}
}

func TestSC02EveryLength(t *testing.T) {
	m := openModel(t, hybrid)
	most := 200
	if testing.Short() {
		most = 70
	}
	all := tokens(2, most)
	want := m.run(t, all)
	for _, stride := range []int{16, 64} {
		r := newRig(t, m, cache.Config{Policy: cache.Policy{Stride: stride, Tail: -1, MinPrefix: -1}})
		for n := 1; n <= most; n++ {
			for range 2 {
				r.q.bits = map[int]uint64{}
				rep, err := r.c.Prefill(context.Background(), cache.Key{Model: m.dec.ID}, r.q, all[:n], n-1)
				if err != nil {
					t.Fatal(err)
				}
				if b, ok := r.q.bits[n-1]; !ok || b != want[n-1] {
					t.Fatalf("length %d, stride %d, start %d: last logits differ from a cold run", n, stride, rep.Start)
				}
				for _, l := range r.q.Logits() {
					if l-l != 0 {
						t.Fatalf("length %d: logit %v", n, l)
					}
				}
			}
		}
	}
}

// Two requests in turn whose keys and values are shared; only one's recurrent
// state is there.
func TestSC04SC05SharedPagesWithoutState(t *testing.T) {
	m := openModel(t, hybrid)
	r := newRig(t, m, cache.Config{Order: cache.LRU, Policy: cache.Policy{Stride: -1, Tail: -1, MinPrefix: -1, Junction: -1}})
	a, b := join(tokens(3, 130), tokens(4, 30)), join(tokens(3, 130), tokens(5, 30))
	r.run(a, 160)
	// a's pages hold the keys of b's first 130 rows, but no state is there.
	if rep := r.run(b, 160); rep.Start != 0 {
		t.Errorf("b starts at %d where no checkpoint is", rep.Start)
	}
	one := r.c.Stats().Bytes / 2
	r.c.Clear()
	// A budget for one row's checkpoint: a goes when b comes, and comes back cold.
	small := newRig(t, m, cache.Config{MemoryBytes: one, Order: cache.LRU, Policy: cache.Policy{Stride: -1, Tail: -1, MinPrefix: -1}})
	for range 2 {
		for _, rows := range [][]state.Row{a, b} {
			if rep := small.run(rows, 160); rep.Start != 0 {
				t.Errorf("starts at %d after its state was evicted", rep.Start)
			}
		}
	}
	if rep := small.run(b, 160); rep.Start != 160 {
		t.Errorf("the last one starts at %d, want 160", rep.Start)
	}
}

func TestSC07UniqueTails(t *testing.T) {
	r := newRig(t, openModel(t, hybrid), cache.Config{Policy: small(64)})
	common := tokens(6, 400)
	for i := range 6 {
		rows := join(common, tokens(50+i, 30))
		rep := r.run(rows, len(rows))
		if i > 0 && rep.Start < 400-64 {
			t.Errorf("request %d starts at %d, want at least %d", i, rep.Start, 400-64)
		}
		if i > 2 && rep.Start != 400 {
			t.Errorf("request %d starts at %d, the junction is at 400", i, rep.Start)
		}
	}
}

func TestSC08LastTokenDiffers(t *testing.T) {
	m := openModel(t, hybrid)
	for _, stateLen := range []int{369, 370} {
		r := newRig(t, m, cache.Config{Policy: cache.Policy{MinPrefix: -1}})
		base, work, n := tokens(7, 370), 0, 2000
		if testing.Short() {
			n = 200
		}
		for i := range n {
			rows := slices.Clone(base)
			rows[369].Token = int32(3 + i%300)
			r.q.ran = 0
			if _, err := r.c.Prefill(context.Background(), cache.Key{Model: m.dec.ID}, r.q, rows, stateLen); err != nil {
				t.Fatal(err)
			}
			work += r.q.ran
		}
		if cold := n * 370; work*50 > cold {
			t.Errorf("prefix %d: %d rows were run, a fiftieth of cold is %d", stateLen, work, cold/50)
		}
	}
}

func TestSC10ChatOfFiveTurns(t *testing.T) {
	const stride = 32
	r := newRig(t, openModel(t, hybrid), cache.Config{Policy: small(stride)})
	text := tokens(8, 150) // the system prompt
	old := 0
	for turn := range 5 {
		text = join(text, tokens(20+turn, 37)) // the user
		rep := r.run(text, len(text))
		if fresh := len(text) - old; rep.Computed > fresh+stride {
			t.Errorf("turn %d runs %d rows for %d new ones", turn, rep.Computed, fresh)
		}
		old = len(text)
		text = join(text, tokens(30+turn, 11)) // the answer
	}
}

func TestSC11BlockInTheMiddle(t *testing.T) {
	r := newRig(t, openModel(t, hybrid), cache.Config{Policy: small(128)})
	a, b, c := tokens(9, 128), tokens(10, 128), tokens(11, 128)
	r.run(join(a, b), 256)
	if rep := r.run(join(a, c, b), 384); rep.Start != 128 {
		t.Errorf("starts at %d, want 128: all of the first block, nothing of the moved one", rep.Start)
	}
}

func TestSC13AnswerTokenisedAgain(t *testing.T) {
	r := newRig(t, openModel(t, hybrid), cache.Config{Policy: cache.Policy{MinPrefix: -1}})
	u1, answer := tokens(12, 440), tokens(13, 9)
	r.run(u1, len(u1))
	for _, a := range answer { // decoded
		if err := r.q.Append(context.Background(), []state.Row{a}); err != nil {
			t.Fatal(err)
		}
	}
	again := slices.Clone(answer) // other tokens for the same text
	again[4].Token, again[5].Token = 7, 8
	turn := join(u1, again, tokens(14, 8))
	if rep := r.run(turn, len(turn)); rep.Computed*20 > len(turn) {
		t.Errorf("turn 2 runs %d of %d rows", rep.Computed, len(turn))
	}
}

func TestSC14SystemPromptOfAnotherConversation(t *testing.T) {
	r := newRig(t, openModel(t, hybrid), cache.Config{Policy: cache.Policy{MinPrefix: -1}})
	system := tokens(15, 200)
	r.run(join(system, tokens(16, 20)), len(system))
	if rep := r.run(join(system, tokens(17, 25)), len(system)); rep.Outcome != cache.Hit || rep.Start != 200 {
		t.Errorf("%+v, want the whole system prompt", rep)
	}
}

func TestSC16SamePromptInOneBatch(t *testing.T) {
	m := openModel(t, hybrid)
	r := newRig(t, m, cache.Config{Policy: small(32)})
	rows := tokens(18, 101)
	seqs := make([]*seq, 8)
	var wg sync.WaitGroup
	for i := range seqs {
		seqs[i] = m.seq(t, 64)
		defer seqs[i].close()
		wg.Go(func() {
			rep, err := r.c.Prefill(context.Background(), cache.Key{Model: m.dec.ID}, seqs[i], rows, 100)
			if err != nil {
				t.Error(err)
				return
			}
			r.check(seqs[i], rows, rep)
		})
	}
	wg.Wait()
	total := 0
	for _, q := range seqs {
		total += q.ran
	}
	if total != 101+7 {
		t.Errorf("%d rows were run for 8 equal prompts, want 101 and one for each other", total)
	}
}

func TestSC17Domains(t *testing.T) {
	m := openModel(t, hybrid)
	r := newRig(t, m, cache.Config{Policy: small(32)})
	rows := tokens(19, 80)
	domains := []cache.Domain{{}, {Adapter: []byte("x")}, {Tenant: "x"}, {Inputs: [][]byte{[]byte("x")}}, {Adapter: []byte("xx")},
		{Adapter: []byte("x"), Tenant: "x"}, {Inputs: [][]byte{[]byte("x"), []byte("x")}}, {Inputs: [][]byte{[]byte("xx")}}}
	for _, d := range domains {
		for route := range int32(2) {
			k := cache.Key{Model: m.dec.ID, Route: route, Extra: d.Extra()}
			if rep := r.runAs(k, rows, 80); rep.Outcome != cache.Cold {
				t.Errorf("%+v route %d: %v, another domain's rows were used", d, route, rep.Outcome)
			}
			if rep := r.runAs(k, rows, 80); rep.Outcome != cache.Hit {
				t.Errorf("%+v route %d: %v, want a hit in the same domain", d, route, rep.Outcome)
			}
		}
	}
	// Another model's id is another key, and its snapshots are refused under it.
	other := cache.Key{Model: state.ID{1}}
	if _, n := r.c.Lookup(other, rows); n != 0 {
		t.Errorf("%d rows were found for another model", n)
	}
	if _, err := r.c.Prefill(context.Background(), other, r.q, rows, 80); err == nil {
		t.Error("checkpoints of one model were kept under the key of another")
	}
}

// Without recurrent layers every row of a shared prefix is reused, wherever the
// checkpoints are.
func TestDensePrefixesAreCut(t *testing.T) {
	r := newRig(t, openModel(t, "qwen3-tied-fp32"), cache.Config{Policy: cache.Policy{Stride: -1, Tail: -1, MinPrefix: -1, Junction: -1}})
	base := tokens(22, 250)
	r.run(base, 250)
	for _, n := range []int{1, 63, 64, 65, 127, 128, 130, 200, 249} {
		if rep := r.run(join(base[:n], tokens(70+n, 9)), n); rep.Start != n {
			t.Errorf("%d shared rows: %+v", n, rep)
		}
		if rep := r.run(base[:n], n); rep.Start != n { // and a shorter one
			t.Errorf("the first %d rows: %+v", n, rep)
		}
	}
	if rep := r.run(base, 249); rep.Computed != 1 { // the first one's pages are as they were
		t.Errorf("%+v", rep)
	}
}

func TestSC20TwiceInSequence(t *testing.T) {
	m := openModel(t, "qwen35-8l-bf16")
	r := newRig(t, m, cache.Config{Policy: small(16)})
	rows := tokens(21, 90)
	var first []int32
	for turn := range 2 {
		r.run(rows, 89)
		var out []int32
		for range 12 {
			best := 0
			for i, v := range r.q.Logits() {
				if v > r.q.Logits()[best] {
					best = i
				}
			}
			out = append(out, int32(best))
			if err := r.q.Append(context.Background(), []state.Row{{Token: int32(best)}}); err != nil {
				t.Fatal(err)
			}
		}
		if turn == 0 {
			first = out
		} else if !slices.Equal(first, out) {
			t.Errorf("second answer %v, first %v", out, first)
		}
	}
}
