package eval

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/qwen3"
	"samebit/rclc"
	"samebit/state"
	"samebit/token"
	"samebit/token/jinja"
)

var bg = context.Background()

// tiny is a dense or a hybrid model with a tokenizer.
func tiny(t testing.TB, name string, threads int) (*rclc.Model, *token.Tokenizer) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dev, err := cpu.New(cpu.Config{Threads: threads})
	must(err)
	set, err := checkpoint.Open("../../testdata/models/gguf/" + name + ".gguf")
	must(err)
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	must(err)
	dec, err := qwen3.Load(bg, dev, cfg, set, qwen3.LoadOptions{})
	must(err)
	pool, err := state.NewPool(dev, 0)
	must(err)
	tok := tokenizer(t)
	chat, err := rclc.NewChat(tok, jinja.ChatML())
	must(err)
	m, err := rclc.NewModel(dec, pool, rclc.ModelConfig{ModelType: cfg.ModelType, Tokenizer: tok, Chat: chat})
	must(err)
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err) // a page was not given back
		}
		dec.Close()
		dev.Close()
	})
	return m, tok
}

func questions(t testing.TB, tok *token.Tokenizer, n int) []Case {
	t.Helper()
	cases, err := Generate(tok, GenerateConfig{Cases: n, Documents: 2, Tokens: 150, TwoFacts: n / 3, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// timeless are results without what differs from run to run.
func timeless(l []Result) []Result {
	out := slices.Clone(l)
	for i := range out {
		out[i].Transfer, out[i].Generate = 0, 0
	}
	return out
}

// Results do not depend on threads, on passes, on being interrupted or on being
// shared by processes.
func TestRunIsDeterministic(t *testing.T) {
	m, tok := tiny(t, "qwen3-bf16", 3)
	cases := questions(t, tok, 3)
	cfg := Config{Methods: Methods, Ratios: []int{2, 8}, MaxTokens: 3, Placement: InTurn, Seed: 9}
	want, err := Run(bg, m, tok, cases, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 3*(6*2+3) {
		t.Errorf("%d results", len(want))
	}
	one, tok1 := tiny(t, "qwen3-bf16", 1)
	cfg.BatchRows = 37
	got, err := Run(bg, one, tok1, cases, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(timeless(want), timeless(got)) {
		t.Error("one thread and small passes give other results")
	}

	// Choosing first and answering later; stopped by a failing writer in between.
	stop := errors.New("the disk is full")
	early := cfg
	early.Answer = []int{8}
	n := 0
	early.Emit = func(Result) error {
		if n++; n > 20 {
			return stop
		}
		return nil
	}
	part, err := Run(bg, one, tok1, cases, early)
	if !errors.Is(err, stop) || len(part) != 20 {
		t.Fatalf("%d results and %v", len(part), err)
	}
	cfg.Have = part
	all, err := Run(bg, one, tok1, cases, cfg)
	if err != nil {
		t.Fatal(err)
	}
	last := map[key]Result{}
	for _, r := range timeless(all) {
		last[key{r.Case, r.Method, r.Ratio}] = r
	}
	for _, w := range timeless(want) {
		if g := last[key{w.Case, w.Method, w.Ratio}]; !reflect.DeepEqual(g, w) {
			t.Errorf("resumed: %+v, want %+v", g, w)
		}
	}
	if again, err := Run(bg, one, tok1, cases, Config{Methods: Methods, Ratios: []int{2, 8}, MaxTokens: 3, Placement: InTurn, Seed: 9, Have: all}); err != nil || len(again) != len(all) {
		t.Errorf("done again: %d results of %d, %v", len(again), len(all), err)
	}

	cfg.Have = nil
	var shared []Result
	for part := range 2 {
		cfg.Part, cfg.Parts = part, 2
		l, err := Run(bg, one, tok1, cases, cfg)
		if err != nil {
			t.Fatal(err)
		}
		shared = append(shared, l...)
	}
	slices.SortStableFunc(shared, func(a, b Result) int { return a.Case - b.Case })
	if !reflect.DeepEqual(timeless(want), timeless(shared)) {
		t.Error("two parts give other results than the whole")
	}
}

// What a method keeps, and the rows that the receiver gets, are those of a transfer.
func TestRunIsATransfer(t *testing.T) {
	for _, name := range []string{"qwen3-bf16", "qwen35-f32"} {
		for _, where := range Placements {
			t.Run(fmt.Sprint(name, " ", where), func(t *testing.T) {
				m, tok := tiny(t, name, 2)
				c := questions(t, tok, 1)[0]
				cfg := Config{Methods: []string{CacheBack, QSnap, ChunkKV}, Ratios: []int{3}, MaxTokens: 4, Placement: where}
				got, err := Run(bg, m, tok, []Case{c}, cfg)
				if err != nil {
					t.Fatal(err)
				}
				c.Begin = "" // agents do not begin an answer
				again, err := Run(bg, m, tok, []Case{c}, cfg)
				if err != nil {
					t.Fatal(err)
				}
				var from []rclc.Source
				for _, d := range c.Documents {
					s, err := rclc.FromText(bg, m, d)
					if err != nil {
						t.Fatal(err)
					}
					defer s.Release()
					from = append(from, s)
				}
				for i, sel := range []rclc.Selector{rclc.CacheBack{}, rclc.QSnap{}, rclc.ChunkKV{}} {
					said := []jinja.Message{{Role: "system", Content: System}}
					a, err := rclc.Bind(bg, m, rclc.AgentConfig{History: func() []jinja.Message { return said }})
					if err != nil {
						t.Fatal(err)
					}
					defer a.Close()
					tc := rclc.Config{Ratio: 3, Selector: sel, Record: true}
					if where == InTurn {
						tc.Placement = rclc.Placement{InTurn: true, Before: "Evidence:\n", After: "\nQuestion: "}
					}
					if err := rclc.Transfer(bg, from, []rclc.Receiver{a}, []rclc.Request{{Text: c.Question}}, tc); err != nil {
						t.Fatal(err)
					}
					for _, d := range a.Queue() {
						for k, msg := range d.Messages {
							if s := spans(msg.Selection().Indices); !reflect.DeepEqual(s, got[i].Spans[k]) {
								t.Errorf("%s, sender %d: %v, a transfer keeps %v", got[i].Method, k, got[i].Spans[k], s)
							}
						}
						if d.Bytes() != got[i].Bytes || d.Positions() != got[i].Retained {
							t.Errorf("%s: %d positions of %d bytes, a transfer has %d of %d", got[i].Method, got[i].Retained, got[i].Bytes, d.Positions(), d.Bytes())
						}
					}
					in, err := a.Pop(bg, rclc.PopConfig{})
					if err != nil {
						t.Fatal(err)
					}
					r, s, err := in.Runner(bg)
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					defer r.Close()
					var ids []int32
					for range 4 {
						best := 0
						for id, x := range r.Logits()[:tok.Size()] {
							if x > r.Logits()[best] {
								best = id
							}
						}
						if tok.IsStop(int32(best)) {
							break
						}
						ids = append(ids, int32(best))
						if err := r.Step(bg, int32(best)); err != nil {
							t.Fatal(err)
						}
					}
					want, _, _ := strings.Cut(strings.TrimLeft(tok.TextSkip(ids), " \n"), "\n")
					if want = strings.TrimSpace(want); again[i].Answer != want {
						t.Errorf("%s answers %q, an agent %q", again[i].Method, again[i].Answer, want)
					}
				}
			})
		}
	}
}

func TestRunRefuses(t *testing.T) {
	m, tok := tiny(t, "qwen3-bf16", 1)
	cases := questions(t, tok, 1)
	bare := []Case{{Documents: []string{"a b c"}, Question: "q", Answers: []string{"x"}}}
	mute, err := rclc.NewModel(m.Decoder(), m.Pool(), rclc.ModelConfig{Tokenizer: tok})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m     *rclc.Model
		cases []Case
		cfg   Config
		want  string
	}{
		{m, nil, Config{}, "no case"},
		{mute, cases, Config{}, "chat template"},
		{m, cases, Config{Methods: []string{"best"}}, `method "best"`},
		{m, bare, Config{Methods: []string{Gold}}, "where their evidence is"},
		{m, cases, Config{Ratios: []int{0}}, "ratio 0"},
		{m, cases, Config{Answer: []int{8}}, "ratio 8"},
		{m, cases, Config{Placement: "after"}, `placement "after"`},
		{m, cases, Config{MaxTokens: -1}, "-1 tokens"},
		{m, cases, Config{Part: 2, Parts: 2}, "part 2 of 2"},
	} {
		if _, err := Run(bg, c.m, tok, c.cases, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	stopped, cancel := context.WithCancel(bg)
	cancel()
	if _, err := Run(stopped, m, tok, cases, Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestReport(t *testing.T) {
	results := []Result{
		{Case: 0, Method: CacheBack, Ratio: 4, Answered: true, Contains: true, Correct: true, Gold: 4, GoldKept: 4, Retained: 10},
		{Case: 1, Method: CacheBack, Ratio: 4, Answered: true, Contains: true, Gold: 4, GoldKept: 2, Retained: 20},
		{Case: 0, Method: Recent, Ratio: 4, Answered: true, Gold: 4, GoldKept: 0},
		{Case: 1, Method: Recent, Ratio: 4}, // chosen only
		{Case: 1, Method: Recent, Ratio: 4, Answered: true, Contains: true, Gold: 4, GoldKept: 4},
		{Case: 0, Method: Full, Answered: true},
	}
	got := Report(results, 1)
	if len(got) != 3 || got[0].Method != CacheBack || got[1].Method != Recent || got[2].Method != Full {
		t.Fatalf("%+v", got)
	}
	c, r := got[0], got[1]
	if c.Contains.Mean != 1 || c.Correct.Mean != 0.5 || c.Recall.Mean != 0.75 || c.Whole.Mean != 0.5 || c.Retained != 15 {
		t.Errorf("%+v", c)
	}
	if r.Contains.N != 2 || r.Contains.Mean != 0.5 || r.Ahead.Mean != 0.5 || r.Recall.Mean != 0.5 || got[2].Recall.N != 0 || c.Gain.Mean != 1 || c.Gain.N != 1 || got[2].Gain.N != 0 {
		t.Errorf("%+v", r)
	}
	var b strings.Builder
	if err := WriteTable(&b, got); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"2 cases\n\nright answers, %", "ratio 4\ncacheback", "\nfull", "cacheback ahead, points", "\nrecent                   50 [0, 100]\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasSuffix(line, " \n") {
			t.Errorf("%q ends in a space", line)
		}
	}
}
