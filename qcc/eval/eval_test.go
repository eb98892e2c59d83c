package eval

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/qwen3"
	"samebit/state"
	"samebit/token"
)

var bg = context.Background()

// small is a model with random weights, on so many threads.
func small(t testing.TB, threads int) Model {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dev, err := cpu.New(cpu.Config{Threads: threads})
	must(err)
	set, err := checkpoint.Open("../../testdata/models/gguf/qwen3-bf16.gguf")
	must(err)
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	must(err)
	dec, err := qwen3.Load(bg, dev, cfg, set, qwen3.LoadOptions{})
	must(err)
	pool, err := state.NewPool(dev, 0)
	must(err)
	tok, err := token.Open("../../testdata/models/tokenizers/bpe-512")
	must(err)
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err) // a page was not given back
		}
		dec.Close()
		dev.Close()
	})
	return Model{dec, dev, pool, tok}
}

// Results do not depend on threads or on being interrupted; every memory but the full
// one holds less than the text, all of one budget about the same.
func TestRun(t *testing.T) {
	m := small(t, 2)
	text := m.Tokenizer.EncodePlain(nil, strings.Repeat("The road from the harbour to the old mill is open again. ", 40))
	cfg := Config{Tasks: []Task{Recall, Variables}, Methods: Methods, Budgets: []int{128}, Lengths: []int{330}, Pairs: []int{4}, Contexts: 1, Questions: 2, Seed: 3, Text: text, TextRows: 256}
	want, err := Run(bg, m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if n := 3*len(Methods) - 1; len(want) != n { // nobody asks about a text
		t.Fatalf("%d results, want %d", len(want), n)
	}
	kv := m.Decoder.Shapes.KV
	row := int64(8 * kv.Layers * kv.Heads * kv.Dim)
	for _, r := range want {
		switch {
		case r.Method == Full && r.Bytes < int64(r.Tokens-1)*row:
			t.Errorf("the full cache holds %d bytes of %d tokens", r.Bytes, r.Tokens)
		case r.Method == Table && r.Bytes > 260*row: // pages of sinks and window are whole
			t.Errorf("%s holds %d rows' bytes with a budget of %d", r.Method, r.Bytes/row, r.Rows)
		case r.Method != Full && r.Method != Table && (r.Bytes > 200*row || r.Bytes < 100*row):
			t.Errorf("%s holds %d rows' bytes with a budget of %d", r.Method, r.Bytes/row, r.Rows)
		case r.Task == Text && r.Method == Full && (r.Fidelity.Top1 != 1 || math.Abs(r.Fidelity.KL) > 1e-9 || math.Abs(r.Fidelity.Cosine-1) > 1e-9):
			t.Errorf("the full cache beside itself: %+v", *r.Fidelity)
		case r.Task == Text && r.Method == Window && !(r.Fidelity.KL > 0):
			t.Errorf("a window predicts what the full cache does: %+v", *r.Fidelity)
		}
	}
	ctx, cancel := context.WithCancel(bg)
	part := cfg
	part.Emit = func(Result) error {
		cancel()
		return nil
	}
	some, err := Run(ctx, m, part)
	if !errors.Is(err, context.Canceled) || len(some) != 1 {
		t.Fatalf("cancelled: %d results, %v", len(some), err)
	}
	rest := cfg
	rest.Have = some
	got, err := Run(bg, small(t, 1), rest)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("continued on one thread: %v,\n%+v, want\n%+v", err, got, want)
	}
}

// The same seed and index give the same context, of the length asked for; what is
// asked stands in it.
func TestItems(t *testing.T) {
	tok, err := token.Open("../../testdata/models/tokenizers/bpe-512")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range English {
		for i := range uint64(20) {
			length := 300 + 40*int(i)
			it, _ := makeItem(tok, task, length, 8, 3, 5, i)
			again, _ := makeItem(tok, task, length, 8, 3, 5, i)
			if !reflect.DeepEqual(it, again) {
				t.Fatalf("%s %d differs when made again", task, i)
			}
			if n := len(it.context); n > length+40 || n < length-60 {
				t.Errorf("%s %d: %d tokens, want about %d", task, i, n, length)
			}
			context := tok.Text(it.context)
			for _, q := range it.questions {
				if a := strings.TrimSpace(tok.Text(q.answer)); a == "" || !strings.Contains(context, a) {
					t.Errorf("%s %d: %q is not in %q", task, i, a, context)
				}
				if len(q.ask) < 2 || len(q.answer) < 1 {
					t.Errorf("%s %d: a question of %d tokens and an answer of %d", task, i, len(q.ask), len(q.answer))
				}
			}
		}
	}
}

func TestTotals(t *testing.T) {
	var l []Result
	add := func(method string, rows, length int, right ...int) {
		for i, n := range right {
			l = append(l, Result{Task: Recall, Length: length, Pairs: 4, Index: i, Method: method, Rows: rows, Bytes: 100, Questions: 4, Right: n})
		}
	}
	add(Full, 0, 512, 4, 4)
	add(Full, 0, 1024, 4, 2)
	add(Window, 64, 512, 4, 2)
	add(Window, 64, 1024, 0, 1)
	totals := Totals(l, 1)
	if len(totals) != 2 || totals[0].Method != Full || totals[0].Relative.Mean != 1 || totals[0].Breaks != nil {
		t.Fatalf("%+v", totals)
	}
	w := totals[1]
	if w.Right.Mean != 7.0/16 || math.Abs(w.Relative.Mean-0.5) > 1e-12 || !reflect.DeepEqual(w.Breaks, map[Task]int{Recall: 1024}) {
		t.Errorf("%+v", w)
	}
	rows := Rows(l, 1)
	if i := slices.IndexFunc(rows, func(r Row) bool { return r.Method == Window && r.Length == 512 }); rows[i].Relative != 0.75 || rows[i].Right.N != 2 {
		t.Errorf("%+v", rows)
	}
	var b strings.Builder
	if err := WriteTable(&b, l, 1); err != nil || !strings.Contains(b.String(), "recall 1024 (4)") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestWrong(t *testing.T) {
	m := small(t, 1)
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Tasks: []Task{"riddle"}}, "riddle"},
		{Config{Methods: []string{"elephant"}}, "elephant"},
		{Config{Budgets: []int{100}}, "multiple of 64"},
		{Config{Lengths: []int{3}}, "at least 32"},
		{Config{Text: []int32{1, 2}}, "longer one"},
		{Config{Tasks: []Task{Single}, Lengths: []int{9000}, Contexts: 1}, "shorter contexts"},
	} {
		if _, err := Run(bg, m, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	if got, err := Read(strings.NewReader("{\"task\":\"recall\",\"index\":3}\n\n{\"task\"")); err != nil || len(got) != 1 || got[0].Index != 3 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Read(strings.NewReader("{}\nx\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
}
