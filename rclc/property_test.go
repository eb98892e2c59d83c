package rclc

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"samebit/state"
)

// FuzzSelectSpans compares span selection with the rules, tried out one by one.
func FuzzSelectSpans(f *testing.F) {
	f.Add(uint64(1), 10, 4, 3, 1, false)
	f.Add(uint64(7), 66, 19, 16, 3, true)
	f.Add(uint64(9), 1, 1, 1, 0, false)
	f.Fuzz(func(t *testing.T, seed uint64, n, budget, span, protect int, ties bool) {
		n, protect = 1+abs(n)%90, abs(protect)%5
		budget, span = 1+abs(budget)%(n+3), 1+abs(span)%(n+5)
		r := rand.New(rand.NewPCG(seed, 3))
		scores := make([]float32, n)
		for i := range scores {
			if scores[i] = float32(r.NormFloat64()); ties {
				scores[i] = float32(r.IntN(3))
			}
		}
		var protected []int
		for range protect {
			protected = append(protected, r.IntN(n))
		}
		got, err := SelectSpans(scores, budget, protected, span)
		want, wantErr := plainSpans(scores, budget, protected, span)
		if (err != nil) != wantErr {
			t.Fatalf("error %v, want one: %v", err, wantErr)
		}
		if err == nil && !slices.Equal(got, want) {
			t.Fatalf("%d of %v, spans of %d, protected %v: selected %v, want %v", budget, scores, span, protected, got, want)
		}
		if err == nil && len(got) != min(budget, n) {
			t.Fatalf("%d positions of a budget of %d", len(got), budget)
		}
	})
}

func abs(n int) int { return max(n, -max(n, math.MinInt+1)) & math.MaxInt }

// plainSpans is the text of SelectSpans as slow code.
func plainSpans(scores []float32, budget int, protected []int, span int) (kept []int, bad bool) {
	have := map[int]bool{}
	for _, p := range protected {
		have[p] = true
	}
	if len(have) > budget {
		return nil, true
	}
	taken := map[int]bool{}
	for len(have) < min(budget, len(scores)) {
		best, bestMean := -1, 0.0
		for i := 0; i*span < len(scores); i++ {
			sum, n := 0.0, 0
			for p := i * span; p < min(len(scores), (i+1)*span); p++ {
				sum, n = sum+float64(scores[p]), n+1
			}
			if mean := sum / float64(n); !taken[i] && (best < 0 || mean > bestMean) {
				best, bestMean = i, mean
			}
		}
		taken[best] = true
		lo, hi := best*span, min(len(scores), (best+1)*span)
		var free []int
		top := lo
		for p := lo; p < hi; p++ {
			if !have[p] {
				free = append(free, p)
			}
			if scores[p] > scores[top] {
				top = p
			}
		}
		room := budget - len(have)
		if len(free) > room {
			from := 0
			for i := range len(free) - room + 1 {
				key := func(i int) [3]int {
					a, b := free[i], free[i+room-1]
					d := a + b - 2*top
					return [3]int{max(d, -d), b - a, a}
				}
				if k, l := key(i), key(from); slices.Compare(k[:], l[:]) < 0 {
					from = i
				}
			}
			free = free[from : from+room]
		}
		for _, p := range free {
			have[p] = true
		}
	}
	for p := range have {
		kept = append(kept, p)
	}
	slices.Sort(kept)
	return kept, false
}

// FuzzSupport checks the bounds of CacheBack's factor on weights: from 1 to
// R·min(R, 7), up to the rounding of sums; and that rows or heads given twice change
// nothing but that.
func FuzzSupport(f *testing.F) {
	f.Add(uint64(1), 5, 3, 2)
	f.Add(uint64(2), 40, 9, 4)
	f.Add(uint64(3), 3, 1, 1)
	f.Fuzz(func(t *testing.T, seed uint64, n, rows, heads int) {
		n, rows, heads = 1+abs(n)%50, 1+abs(rows)%12, 1+abs(heads)%4
		r := rand.New(rand.NewPCG(seed, 5))
		w := make([][]float32, rows*heads)
		for i := range w {
			w[i] = make([]float32, n)
			sum := 0.0
			for p := range w[i] {
				x := math.Exp(3 * r.NormFloat64())
				w[i][p], sum = float32(x), sum+x
			}
			for p := range w[i] {
				w[i][p] = float32(float64(w[i][p]) / sum)
			}
		}
		votes, energy, row := plainVotes(w, rows, heads, n)
		for p := range energy {
			if energy[p] == 0 {
				continue
			}
			ratio, most := float64(row[p])/float64(energy[p]), float64(rows*min(rows, 7))
			if ratio < 1-1e-5 || ratio > most*(1+1e-5) {
				t.Fatalf("position %d: a ratio of %v, want 1 to %v", p, ratio, most)
			}
		}
		var twice [][]float32
		for i := range w {
			twice = append(twice, w[i])
			if i%heads == heads-1 { // the row once more
				twice = append(twice, w[i-heads+1:i+1]...)
			}
		}
		v2, e2, r2 := plainVotes(twice, 2*rows, heads, n)
		for k, pair := range [][2][]float32{{votes, v2}, {energy, e2}, {row, r2}} {
			for p := range pair[0] {
				if a, b := float64(pair[0][p]), float64(pair[1][p]); math.Abs(a-b) > 1e-5*math.Abs(a) {
					t.Fatalf("vector %d at %d is %v, and %v of rows given twice", k, p, a, b)
				}
			}
		}
	})
}

// plainVotes forms votes and energies of one layer with one group of heads; w is
// [rows·heads][n].
func plainVotes(w [][]float32, rows, heads, n int) (votes, energy, row []float32) {
	v := newVotes(n, rows, heads, 1, true)
	sum, square := make([]float32, n), make([]float32, n)
	m, top := make([]float32, n), make([]float32, n)
	for r := range rows {
		for p := range m {
			m[p] = 0
			for h := range heads {
				m[p] += w[r*heads+h][p]
			}
			m[p] /= float32(heads)
			sum[p] += m[p]
		}
		max7(top, m)
		for p := range top {
			x := 256 * top[p]
			square[p] += float32(x * x)
		}
	}
	v.add([][]float32{sum}, [][]float32{square})
	return v.votes, v.energy, v.rowEnergy
}

func FuzzParsePositions(f *testing.F) {
	f.Add([]byte(`[1, 2.5, "x", true, null, -3]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if l, err := ParsePositions(string(raw)); err == nil {
			t.Errorf("a text gives %v", l)
		}
		list := make([]any, 0, len(raw))
		for i, b := range raw {
			list = append(list, []any{float64(b), int(b), int64(b), true, float64(b) + 0.5, nil}[(i+int(b))%6])
		}
		l, err := ParsePositions(list)
		if err == nil && len(l) != len(list) || err != nil && Code(err) != "selection_non_integer" {
			t.Errorf("%v of %v, %v", l, list, err)
		}
	})
}

// Positions of other programs, in all the forms that hold them.
func TestParsePositions(t *testing.T) {
	want := []int{3, 1, 4}
	for _, v := range []any{[]int{3, 1, 4}, []int32{3, 1, 4}, []int64{3, 1, 4}, []any{3.0, json.Number("1"), int32(4)}} {
		if got, err := ParsePositions(v); err != nil || !slices.Equal(got, want) {
			t.Errorf("%T: %v, %v", v, got, err)
		}
	}
	for _, v := range []any{[]any{json.Number("1.0")}, []any{math.NaN()}, []any{1e300}, []any{[]int{1}}} {
		if _, err := ParsePositions(v); Code(err) != "selection_non_integer" {
			t.Errorf("%v: error %v", v, err)
		}
	}
	if _, err := ParsePositions(map[string]int{}); Code(err) != "selection_type" {
		t.Errorf("a map: error %v", err)
	}
}

// A built-in selector inside one from outside does as by itself.
func TestSelectorInside(t *testing.T) {
	m := core(t, processor(t, 2, ""), "qwen3-tied-fp32", ModelConfig{})
	s := tokens(t, m, script(1, 100, m.Info.Vocab))
	for _, in := range []Selector{CacheBack{Span: 4}, QSnap{}, ChunkKV{}} {
		var got [2]Delivery
		for i, sel := range []Selector{in, SelectorFunc(in.Select)} {
			to := ReceiverFunc(func(_ context.Context, d Delivery) error { got[i] = d; return nil })
			if err := Transfer(bg, []Source{s}, []Receiver{to}, []Request{{IDs: []int32{1, 2, 3}}}, Config{Selector: sel, Form: TokenIDs, Record: true}); err != nil {
				t.Fatal(err)
			}
		}
		a, b := got[0].Messages[0], got[1].Messages[0]
		if !slices.Equal(a.ids, b.ids) || !slices.Equal(a.selection.Indices, b.selection.Indices) || a.selection.Scores == (Digest{}) || b.selection.Scores != (Digest{}) || b.selection.Selector != "" {
			t.Errorf("%v: %v by itself, %v inside", in, a.selection.Indices, b.selection.Indices)
		}
	}
}

// What no model of transfers can be made of is refused.
func TestNewModel(t *testing.T) {
	m := core(t, processor(t, 1, ""), "qwen35-8l-bf16", ModelConfig{Tokenizer: byteTokens{}})
	if i := m.Info; len(i.LayerTypes) != i.Layers || !slices.Contains(i.LayerTypes, LinearLayer) || !slices.Contains(i.LayerTypes, FullLayer) || i.Heads == 0 || i.Tokens == (Digest{}) {
		t.Errorf("%+v", i)
	}
	lower, upper, err := m.dec.Split(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []func() error{
		func() error { _, err := NewModel(nil, m.pool, ModelConfig{}); return err },
		func() error { _, err := NewModel(m.dec, nil, ModelConfig{}); return err },
		func() error { _, err := NewModel(lower, m.pool, ModelConfig{}); return err },
		func() error { _, err := NewModel(upper, m.pool, ModelConfig{}); return err },
		func() error { _, err := NewModel(m.dec, m.pool, ModelConfig{ChunkRows: -1}); return err },
		func() error { _, err := NewModel(m.dec, m.pool, ModelConfig{Tokenizer: largeTokens{}}); return err },
	} {
		if err := f(); Code(err) != "model" || !errors.Is(err, ErrOption) {
			t.Errorf("error %v", err)
		}
	}
	if _, err := m.Row(int32(m.Info.Vocab)); Code(err) != "vocab_range" {
		t.Errorf("error %v", err)
	}
	if s, err := FromText(bg, m, "abc"); err != nil || !slices.Equal(s.IDs(), []int32{97, 98, 99}) {
		t.Errorf("%v, %v", s, err)
	} else {
		s.Release()
		s.Release()
	}
	if _, err := FromText(bg, varied(m, func(m *Model) { m.Tokenizer = nil }), "abc"); Code(err) != "tokenizer" {
		t.Errorf("error %v", err)
	}
}

type largeTokens struct{ byteTokens }

func (largeTokens) Size() int { return 1 << 20 }

// Names of selectors are read back.
func TestParseSelector(t *testing.T) {
	for _, s := range []Selector{CacheBack{}, QSnap{Span: 3}, ChunkKV{Chunk: 4, Window: 5, Kernel: 7}, CacheBack{Span: 1 << 40}} {
		name := s.(Namer).Name()
		got, err := ParseSelector(name)
		if err != nil || got.(Namer).Name() != name {
			t.Errorf("%q gives %v, %v", name, got, err)
		}
	}
	for name, code := range map[string]string{
		"": "selector_name", "recent": "selector_name", "cacheback span": "selector_name", "qsnap span=x": "selector_name",
		"qsnap window=4": "selector_name", "cacheback span=2 span=2": "selector_name", "cacheback span=0": "bad_span_size", "chunkkv kernel=0": "bad_chunk_options",
	} {
		if _, err := ParseSelector(name); Code(err) != code {
			t.Errorf("%q: error %v, want %s", name, err, code)
		}
	}
}

// varied is a model that says something else about itself.
func varied(m *Model, change func(*Model)) *Model {
	o := &Model{Info: m.Info, Tokenizer: m.Tokenizer, Chat: m.Chat, dec: m.dec, pool: m.pool, full: m.full, serial: m.serial}
	change(o)
	return o
}

// nothing is a source with neither a sender nor an error.
type nothing struct{}

func (nothing) Sender(context.Context) (*Sender, error) { return nil, nil }

// greedy is a selector that needs more than there ever is.
type greedy struct{ CacheBack }

func (greedy) Floor(*Sender) int { return math.MaxInt }

// TestEqualSpans: of many spans with equal scores the lowest are kept.
func TestEqualSpans(t *testing.T) {
	scores := make([]float32, 300)
	for p := range scores {
		scores[p] = float32(p / 150 % 2) // the second half before the first
	}
	got, err := SelectSpans(scores, 195, nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range got {
		want := i
		if i >= 45 {
			want = i + 105
		}
		if p != want {
			t.Fatalf("position %d of the selection is %d, want %d", i, p, want)
		}
	}
}

// TestShorterRun: of two runs whose middles are as near to the peak the shorter one is
// kept, not the one that straddles positions that are kept already.
func TestShorterRun(t *testing.T) {
	scores := []float32{1, 1, 1, 1, 1, 2, 1, 1, 0}
	got, err := SelectSpans(scores, 5, []int{3, 4}, 8) // 2, 5, 6 or 5, 6, 7
	if want := []int{3, 4, 5, 6, 7}; err != nil || !slices.Equal(got, want) {
		t.Errorf("selected %v, %v, want %v", got, err, want)
	}
}

// TestReceiversShareNothing: what one receiver does with the lists that it is given,
// others do not see.
func TestReceiversShareNothing(t *testing.T) {
	m := core(t, processor(t, 1, ""), "qwen3-tied-fp32", ModelConfig{})
	s := tokens(t, m, script(1, 60, 200))
	spoil := ReceiverFunc(func(_ context.Context, d Delivery) error {
		d.Messages[0], d.Request.IDs[0] = Message{}, 99
		return nil
	})
	b := &inbox{m: m}
	request := []int32{1, 2}
	if err := Transfer(bg, []Source{s}, []Receiver{spoil, b}, []Request{{IDs: request}}, Config{}); err != nil {
		t.Fatal(err)
	}
	if d := b.got[0]; d.Messages[0].Positions() != 15 || d.Request.IDs[0] != 1 || request[0] != 1 {
		t.Errorf("the second receiver has %d positions for %v", d.Messages[0].Positions(), d.Request.IDs)
	}
}

// TestNilAndEmpty: what is not there is an error, not a panic.
func TestNilAndEmpty(t *testing.T) {
	m := core(t, processor(t, 1, ""), "qwen3-tied-fp32", ModelConfig{})
	s := tokens(t, m, script(1, 60, 200))
	released := s.Retain()
	released.Release()
	must := func(what string, err, cause error, code string) {
		t.Helper()
		if !errors.Is(err, cause) || Code(err) != code {
			t.Errorf("%s: %v with code %q, want %v with code %q", what, err, Code(err), cause, code)
		}
	}
	for _, sel := range []interface {
		Selector
		Scorer
	}{CacheBack{}, QSnap{}, ChunkKV{Window: 5}} {
		for what, s := range map[string]*Sender{"nil": nil, "zero": {}, "released": released} {
			code := "model"
			if what == "released" {
				code = "snapshot"
			}
			_, err := sel.Scores(bg, s, []int32{1})
			must("scores of a sender that is "+what, err, ErrState, code)
			_, err = sel.Select(bg, s, []int32{1}, 9)
			must("a selection from a sender that is "+what, err, ErrState, code)
		}
	}
	_, err := CacheBack{}.Scores(bg, s, []int32{3, int32(m.Info.Vocab)})
	must("an id beyond the vocabulary", err, ErrRequest, "request_vocab")
	_, err = CacheBack{}.Scores(bg, s, nil)
	must("no request", err, ErrRequest, "request_empty")
	_, err = LatentMass(bg, nil, LatentConfig{Steps: 1})
	must("latent rows of nil", err, ErrState, "model")
	_, err = (*Sender)(nil).Sender(bg)
	must("nil as a source", err, ErrState, "model")
	_, err = FromRows(bg, m, nil)
	must("no rows", err, ErrState, "rows")
	_, err = FromTokens(bg, nil, []int32{1})
	must("no model", err, ErrState, "model")
	_, err = FromText(bg, nil, "a")
	must("text without a model", err, ErrState, "tokenizer")
	_, err = Fit([]int{1, 2}, []int{1}, nil)
	must("a cap without a floor", err, ErrOption, "senders")
}

// TestOutsidePanics: what a caller's own function throws reaches the caller, who may
// go on: nothing stays locked or held.
func TestOutsidePanics(t *testing.T) {
	m := core(t, processor(t, 2, ""), "qwen3-tied-fp32", ModelConfig{})
	s := tokens(t, m, script(1, 60, 200))
	used := m.pool.Bytes()
	to := ReceiverFunc(func(context.Context, Delivery) error { return nil })
	send := func(sel Selector) (thrown any, err error) {
		defer func() { thrown = recover() }()
		return nil, Transfer(bg, []Source{s, s}, []Receiver{to}, []Request{{IDs: []int32{1}}}, Config{Selector: sel})
	}
	if thrown, _ := send(SelectorFunc(func(context.Context, *Sender, []int32, int) ([]int, error) { panic("mine") })); thrown != "mine" {
		t.Errorf("thrown is %v", thrown)
	}
	if m.pool.Bytes() != used {
		t.Errorf("%d bytes of states, %d before", m.pool.Bytes(), used)
	}
	if thrown, err := send(SelectorFunc(func(context.Context, *Sender, []int32, int) ([]int, error) { return []int{0}, nil })); err != nil || thrown != nil {
		t.Errorf("the next transfer: %v, %v", err, thrown)
	}
}

// TestBadInput goes through what a transfer refuses, by code.
func TestBadInput(t *testing.T) {
	m := core(t, processor(t, 1, ""), "qwen3-tied-fp32", ModelConfig{Tokenizer: byteTokens{}})
	good := tokens(t, m, script(1, 60, 200))
	with := func(f func(s *Sender)) []Source {
		s := good.Retain()
		t.Cleanup(s.Release)
		s.Rows = slices.Clone(s.Rows)
		f(s)
		return []Source{s}
	}
	ids := func(n int) []Request { return []Request{{IDs: script(3, n, 200)}} }
	vec := make([]float32, m.Info.Hidden)
	nowhere := []Receiver{ReceiverFunc(func(context.Context, Delivery) error { t.Error("something was delivered"); return nil })}
	planner := func(change func(m *Model)) []Receiver {
		return []Receiver{&inbox{m: varied(m, change)}}
	}
	for _, c := range []struct {
		code string
		is   error
		from []Source
		to   []Receiver
		req  []Request
		cfg  Config
	}{
		{"senders_empty", ErrOption, []Source{}, nil, nil, Config{}},
		{"senders_empty", ErrOption, []Source{nil}, nil, nil, Config{}},
		{"receivers_empty", ErrOption, nil, []Receiver{}, nil, Config{}},
		{"receivers_empty", ErrOption, nil, []Receiver{nil}, nil, Config{}},
		{"requests_empty", ErrOption, nil, nil, []Request{}, Config{}},
		{"senders_empty", ErrOption, []Source{good, (*Sender)(nil)}, nil, nil, Config{}},
		{"senders_empty", ErrOption, []Source{(*Agent)(nil)}, nil, nil, Config{}},
		{"receivers_empty", ErrOption, nil, []Receiver{ReceiverFunc(nil)}, nil, Config{}},
		{"receivers_empty", ErrOption, nil, []Receiver{(*Agent)(nil)}, nil, Config{}},
		{"selector", ErrOption, nil, nil, nil, Config{Selector: SelectorFunc(nil)}},
		{"reason_missing", ErrOption, nil, nil, nil, Config{Reason: ReasonerFunc(nil)}},
		{"model", ErrState, []Source{good, nothing{}}, nil, nil, Config{}},
		{"model", ErrIncompatible, nil, []Receiver{&inbox{}}, nil, Config{}},
		{"form", ErrOption, nil, nil, nil, Config{Form: 7}},
		{"placement", ErrOption, nil, nil, nil, Config{Placement: Placement{After: "x"}}},
		{"parallel", ErrOption, nil, nil, nil, Config{Parallel: -1}},
		{"reason_context", ErrOption, nil, nil, nil, Config{Reason: Latent{Steps: 1}, ReasonContext: 9}},
		{"reason_missing", ErrOption, nil, nil, nil, Config{ReasonBudget: 3}},
		{"reason_missing", ErrOption, nil, nil, nil, Config{ReasonContext: Selected}},
		{"reason_budget", ErrOption, nil, nil, nil, Config{Reason: Latent{Steps: 1}, ReasonContext: Selected}},
		{"reason_budget", ErrOption, nil, nil, nil, Config{Reason: Latent{Steps: 1}, ReasonBudget: -1}},
		{"reason_budget", ErrOption, nil, nil, nil, Config{Reason: Latent{Steps: 1}, ReasonContext: Selected, ReasonBudget: math.MaxInt}},
		{"budget_below_floor", ErrBudget, nil, nil, nil, Config{Selector: greedy{}, Reason: Latent{Steps: 1}, ReasonContext: Selected, ReasonBudget: 5}},
		{"latent_limit", ErrReason, nil, nil, nil, Config{Reason: Latent{Steps: 9}, ReasonBudget: 3}},
		{"bad_span_size", ErrSelection, nil, nil, nil, Config{Selector: CacheBack{Span: -1}}},
		{"bad_chunk_options", ErrSelection, nil, nil, nil, Config{Selector: ChunkKV{Kernel: 4}}},
		{"sender_too_short", ErrSelection, nil, nil, nil, Config{Selector: ChunkKV{Window: 60}}},
		{"budget_below_floor", ErrBudget, with(func(s *Sender) {
			s.Latent = 20
			for i := 40; i < 60; i++ {
				s.Rows[i] = state.Row{Token: -1, Vec: vec}
			}
		}), nil, nil, Config{}},
		{"context_limit", ErrContext, nil, nil, ids(453), Config{}}, // cb22: 60 + 453 > 512
		{"request_empty", ErrRequest, nil, nil, []Request{{}}, Config{}},
		{"request_empty", ErrRequest, nil, nil, []Request{{Text: " \n"}}, Config{}},
		{"request_empty", ErrRequest, nil, nil, []Request{{IDs: []int32{}}}, Config{}},
		{"request_vocab", ErrRequest, nil, nil, []Request{{IDs: []int32{1, 512}}}, Config{}},
		{"request", ErrRequest, nil, nil, []Request{{Text: "a", IDs: []int32{1}}}, Config{}},
		{"model", ErrState, with(func(s *Sender) { s.Model = nil }), nil, nil, Config{}},
		{"model", ErrState, with(func(s *Sender) { s.Model = varied(m, func(o *Model) { o.full = []bool{false} }) }), nil, nil, Config{}},
		{"rows", ErrState, with(func(s *Sender) { s.Rows = nil }), nil, nil, Config{}},
		{"rows", ErrState, with(func(s *Sender) { s.Rows[3] = state.Row{Token: -1} }), nil, nil, Config{}},
		{"width_mismatch", ErrState, with(func(s *Sender) { s.Rows[3].Vec = vec[1:] }), nil, nil, Config{}},
		{"vocab_range", ErrState, with(func(s *Sender) { s.Rows[3].Token = 512 }), nil, nil, Config{}},
		{"counts", ErrState, with(func(s *Sender) { s.Latent = 60 }), nil, nil, Config{}},
		{"counts", ErrState, with(func(s *Sender) { s.Inherited = 61 }), nil, nil, Config{}},
		{"ids", ErrState, with(func(s *Sender) { s.Latent = 1 }), nil, nil, Config{}},
		{"ids", ErrState, with(func(s *Sender) { s.NoIDs = true }), nil, nil, Config{}},
		{"ids", ErrState, with(func(s *Sender) {
			s.NoIDs = true
			for i := range s.Rows {
				s.Rows[i] = state.Row{Token: -1, Vec: vec}
			}
		}), nil, nil, Config{Form: TokenIDs}},
		{"cache_length", ErrState, with(func(s *Sender) { s.Rows = s.Rows[1:] }), nil, nil, Config{}},
		{"snapshot", ErrState, with(func(s *Sender) { s.Release() }), nil, nil, Config{}},
		{"snapshot", ErrState, with(func(s *Sender) { s.Model = varied(m, func(o *Model) { o.Info.ID[3]++ }) }), nil, nil, Config{}},
		{"width_mismatch", ErrState, with(func(s *Sender) { s.LastHidden = vec[1:] }), nil, nil, Config{}},
		{"geometry", ErrIncompatible, nil, planner(func(m *Model) { m.Info.KVHeads++ }), nil, Config{}},
		{"geometry", ErrIncompatible, nil, planner(func(m *Model) { m.Info.LayerTypes = []string{FullLayer} }), nil, Config{}},
		{"model_type", ErrIncompatible, nil, planner(func(m *Model) { m.Info.ModelType = "llama" }), nil, Config{}},
		{"checkpoint", ErrIncompatible, nil, planner(func(m *Model) { m.Info.Checkpoint = "other" }), nil, Config{}},
		{"vocabulary", ErrIncompatible, nil, planner(func(m *Model) { m.Info.Tokens[0]++ }), nil, Config{}},
		{"model_digest", ErrIncompatible, nil, planner(func(m *Model) { m.Info.ID[0]++ }), nil, Config{}},
		{"receiver_full", ErrReceiverFull, nil, []Receiver{&inbox{m: m, limit: 4}}, nil, Config{}},
		{"plan", ErrOption, nil, []Receiver{&inbox{m: m, limit: 513}}, nil, Config{}},
		{"chat_template", ErrRequest, nil, []Receiver{&inbox{m: m}}, []Request{{Text: "a"}}, Config{}},
		{"request_placement", ErrRequest, nil, []Receiver{&inbox{m: m}}, nil, Config{Placement: Placement{InTurn: true}}},
	} {
		if c.from == nil {
			c.from = []Source{good}
		}
		if c.to == nil {
			c.to = nowhere
		}
		if c.req == nil {
			c.req = ids(3)
		}
		err := Transfer(bg, c.from, c.to, c.req, c.cfg)
		if Code(err) != c.code || !errors.Is(err, c.is) {
			t.Errorf("error %v with code %q, want %q of %v", err, Code(err), c.code, c.is)
		}
		if err != nil && strings.Count(err.Error(), "rclc: ") > 1 {
			t.Errorf("the error repeats itself: %v", err)
		}
		for _, r := range c.to {
			b, ok := r.(*inbox)
			if !ok || len(b.got) == 0 {
				continue
			}
			t.Errorf("%s: something was delivered", c.code)
		}
	}
}
