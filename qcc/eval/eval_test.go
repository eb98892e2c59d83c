package eval

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/qcc"
	"samebit/qcc/calib"
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
	mine := archive(t, m, 24, 4)
	cfg := Config{Tasks: []Task{Recall, Variables}, Wording: English, Methods: Methods, Budgets: []int{128}, Lengths: []int{330}, Pairs: []int{4}, Contexts: 1, Questions: 2, Seed: 3, Text: text, TextRows: 256,
		Adapters: []Adapter{{"mine", mine}}}
	want, err := Run(bg, m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if n := 3*(len(Methods)+2) - 1; len(want) != n { // nobody asks about a text
		t.Fatalf("%d results, want %d", len(want), n)
	}
	kv := m.Decoder.Shapes.KV
	row := int64(8 * kv.Layers * kv.Heads * kv.Dim)
	own := map[Task]int64{}
	for _, r := range want {
		switch {
		case r.Method == "mine":
			if own[r.Task] = r.Bytes; r.Bytes >= (24+2*64)*row*3/2+10*row { // pages are whole, and rows have an unrotated key besides
				t.Errorf("an adapter of 24 rows and 4 codes holds the bytes of %d rows", r.Bytes/row)
			}
		case r.Method == "mine, bare window":
			if r.Rows != calib.WindowRows(mine.Config) || r.Bytes != int64(r.Rows)*row {
				t.Errorf("%s: a bare window of %d bytes and %d rows beside an adapter of %d bytes", r.Task, r.Bytes, r.Rows, own[r.Task])
			}
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

// archive is an adapter that nobody trained.
func archive(t testing.TB, m Model, window, codes int) *qcc.Adapter {
	t.Helper()
	c, err := qcc.ModelConfig(m.Decoder)
	if err != nil {
		t.Fatal(err)
	}
	c.Window, c.Codes, c.Scales = window, codes, 2
	a, err := qcc.NewAdapter(m.Decoder, qcc.Retrofit{KV: qcc.KVShare, Config: c}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Results of something else are not taken for one's own.
func TestForeign(t *testing.T) {
	m := small(t, 1)
	text := m.Tokenizer.EncodePlain(nil, strings.Repeat("The road is open again. ", 20))
	cfg := Config{Tasks: []Task{Single}, Wording: English, Methods: []string{Window}, Budgets: []int{64}, Lengths: []int{96}, Contexts: 1, Text: text[:64], TextRows: 64,
		Adapters: []Adapter{{"mine", archive(t, m, 24, 4)}}}
	have, err := Run(bg, m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(c *Config){
		"another text":    func(c *Config) { c.Text = text[1:65] },
		"text or adapter": func(c *Config) { c.Adapters = []Adapter{{"mine", archive(t, m, 24, 5)}} },
		"seed":            func(c *Config) { c.Seed = 7 },
		"questions":       func(c *Config) { c.Questions = 3 },
	} {
		c := cfg
		c.Have = have
		change(&c)
		if got, err := Run(bg, m, c); err == nil || !strings.Contains(err.Error(), what) || len(got) != len(have) {
			t.Errorf("%s: %d results, %v", what, len(got), err)
		}
	}
	other := archive(t, m, 24, 4)
	other.Base[0]++
	c := cfg
	c.Adapters = []Adapter{{"theirs", other}}
	if _, err := Run(bg, m, c); !errors.Is(err, qcc.ErrDigest) || !strings.Contains(err.Error(), "theirs") {
		t.Errorf("an adapter of another model: %v", err)
	}
}

// The same seed and index give the same context, of the length asked for; what is
// asked stands in it.
func TestItems(t *testing.T) {
	tok, err := token.Open("../../testdata/models/tokenizers/bpe-512")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range Wordings {
		for n := range uint64(5 * 20) {
			i, task := n/5, Worded[n%5]
			length := 300 + 40*int(i)
			c := cell{task, length, 8}
			it, _ := makeItem(tok, w, c, 3, 5, i)
			again, _ := makeItem(tok, w, c, 3, 5, i)
			if !reflect.DeepEqual(it, again) {
				t.Fatalf("%s %d differs when made again", task, i)
			}
			if n := len(it.context); n > length+40 || n < length-60 {
				t.Errorf("%s %d: %d tokens, want about %d", task, i, n, length)
			}
			context := tok.Text(it.context)
			for _, q := range it.questions {
				for _, a := range said(tok, q) {
					if a = strings.TrimSpace(a); a == "" || !strings.Contains(context, a) {
						t.Errorf("%s %d: %q is not in %q", task, i, a, context)
					}
				}
				if n := len(said(tok, q)); n != 1 && (n != 3 || task != Variables) || len(q.ask) < 2 || len(q.given) != len(q.answer) {
					t.Errorf("%s %d: a question of %d tokens, %d answers, %d tokens of %d given or not", task, i, len(q.ask), n, len(q.given), len(q.answer))
				}
			}
		}
	}
}

// What a text tells of so many names is of different ones.
func TestNames(t *testing.T) {
	for _, w := range Wordings {
		w := wordings[w]
		for seed := range uint64(3) {
			names := w.names(rand.New(rand.NewPCG(seed, 1)), w.most)
			slices.Sort(names)
			if n := len(slices.Compact(names)); n != w.most {
				t.Errorf("%d names, of which %d differ", w.most, n)
			}
		}
	}
}

// said are the parts of an answer that a model has to say.
func said(tok *token.Tokenizer, q question) (out []string) {
	for at := 0; at < len(q.answer); {
		to := at
		for to < len(q.answer) && q.given[to] == q.given[at] {
			to++
		}
		if !q.given[at] {
			out = append(out, tok.Text(q.answer[at:to]))
		}
		at = to
	}
	return out
}

// A chain is followed to its end, and its answers do not stand in the question.
func TestVariables(t *testing.T) {
	tok, err := token.Open("../../testdata/models/tokenizers/bpe-512")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range Wordings {
		for i := range uint64(10) {
			it, err := makeItem(tok, w, cell{Variables, 200, 0}, 1, 1, i)
			if err != nil {
				t.Fatal(err)
			}
			q := it.questions[0]
			ask, context, chain := tok.Text(q.ask), tok.Text(it.context), said(tok, q)
			lead := map[Wording]string{English: "VAR %S = VAR%V.", Register: "The partner of %S is%V."}[w]
			end := map[Wording]string{English: "VAR%S =%V.", Register: "The code of%S is%V."}[w]
			second := say(lead, strings.TrimSpace(chain[0]), chain[1])
			if strings.Contains(ask, chain[0]) || !strings.Contains(context, second) || !strings.Contains(context, say(end, chain[1], chain[2])) {
				t.Errorf("%s %d: chain %q, question %q, context %q", w, i, chain, ask, context)
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
	if len(totals) != 2 || totals[0].Method != Full || totals[0].Relative.Mean != 1 {
		t.Fatalf("%+v", totals)
	}
	w := totals[1]
	if w.Right.Mean != 7.0/16 || math.Abs(w.Relative.Mean-0.5) > 1e-12 {
		t.Errorf("%+v", w)
	}
	rows := Rows(l, 1)
	if i := slices.IndexFunc(rows, func(r Row) bool { return r.Method == Window && r.Length == 512 }); rows[i].Relative != 0.75 || rows[i].Right.N != 2 {
		t.Errorf("%+v", rows)
	}
	add(Full, 0, 2048, 0, 0) // nobody else was asked
	if again := Totals(l, 1); !reflect.DeepEqual(again, totals) {
		t.Errorf("%+v", again)
	}
	l = l[:len(l)-2]
	var b strings.Builder
	if err := WriteMarkdown(&b, l, 1); err != nil {
		t.Fatal(err)
	}
	want := `right answers to the 16 questions about 4 texts that all were asked, %:

| memory | budget | KiB | recall | all | of full |
| --- | --- | ---: | ---: | ---: | ---: |
| full | all | 0 | 88 | 88 [62, 100] | 100 |
| window | 64 | 0 | 44 | 44 [12, 81] | 50 |

right answers by length, %:

| memory | budget | 512 | 1024 |
| --- | --- | ---: | ---: |
| full | all | 100 | 75 |
| window | 64 | 75 | 12 |
`
	if got := b.String(); got != want { // two texts are too few to say where it breaks
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A memory breaks where it lacks answers in enough texts, whatever the order of the
// results; not where the full cache has none, nor where there are few texts.
func TestBreaks(t *testing.T) {
	var l []Result
	add := func(task Task, method string, length, pairs int, right ...int) {
		rows := 0
		if method != Full {
			rows = 64
		}
		for i, n := range right {
			l = append(l, Result{Task: task, Length: length, Pairs: pairs, Index: i, Method: method, Rows: rows, Questions: 4, Right: n})
		}
	}
	for _, c := range []struct{ length, pairs, window int }{{512, 4, 4}, {512, 16, 4}, {512, 32, 1}, {1024, 4, 3}, {1024, 16, 0}, {2048, 4, 0}} {
		add(Recall, Full, c.length, c.pairs, 4, 4, 3, 4, 4, 4)
		w := c.window
		add(Recall, Window, c.length, c.pairs, w, min(4, w+1), min(3, w), w, w, w)
	}
	add(Single, Full, 512, 0, 4, 4, 4, 4)
	add(Single, Window, 512, 0, 0, 0, 0, 0)
	add(Words, Full, 512, 0, 0, 0, 0, 0, 0, 0)
	add(Words, Window, 512, 0, 0, 0, 0, 0, 0, 0)
	want := []Break{
		{Method: Window, Rows: 64, Task: Recall, Pairs: 4, At: 1024, To: 2048},
		{Method: Window, Rows: 64, Task: Recall, Pairs: 16, At: 1024, To: 1024},
		{Method: Window, Rows: 64, Task: Single},
		{Method: Window, Rows: 64, Task: Words},
		{Method: Window, Rows: 64, Task: Recall, Length: 512, At: 32, To: 32},
		{Method: Window, Rows: 64, Task: Recall, Length: 1024, At: 4, To: 16},
	}
	for range 2 {
		if got := Breaks(l, 1); !slices.Equal(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
		slices.Reverse(l)
	}
	var b strings.Builder
	if err := WriteTable(&b, l, 1); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(b.String(), "significantly below the full cache\n")
	if got := strings.Join(strings.Fields(table), " "); got != "memory budget recall (4) recall (16) pairs at 512 pairs at 1024 window 64 1024 1024 32 4" {
		t.Error(got)
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
		{Config{Wording: "latin"}, "latin"},
		{Config{Adapters: []Adapter{{"window", &qcc.Adapter{}}}}, "another memory"},
		{Config{Adapters: []Adapter{{"mine", nil}}}, "want a name and an adapter"},
		{Config{Budgets: []int{100}}, "multiple of 64"},
		{Config{Lengths: []int{3}}, "at least 32"},
		{Config{Wording: English, Pairs: []int{4, 433}}, "recall of 433 pairs: the wording english has names for 432"},
		{Config{Pairs: []int{1501}}, "has names for 1500"},
		{Config{Lengths: []int{}}, "0 lengths"},
		{Config{Pairs: []int{}}, "0 numbers of pairs"},
		{Config{Text: []int32{1, 2}}, "longer one"},
		{Config{Text: []int32{1, 512}}, "token 512 at index 1"},
		{Config{Tasks: []Task{Single}, Lengths: []int{9000}, Contexts: 1}, "shorter contexts"},
	} {
		if _, err := Run(bg, m, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	if got, err := Read(strings.NewReader("{\"task\":\"recall\",\"index\":3}\n\n{\"task\"")); err != nil || len(got) != 1 || got[0].Index != 3 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Read(strings.NewReader("{\"task\":\"recall\"}\n{\"task\":\"text\",\"method\":\"window\"}\n")); err == nil || !strings.Contains(err.Error(), "result 2, of window with text") {
		t.Error(err)
	}
	if rows := Rows([]Result{{Task: Text, Method: Window}, {Task: Recall, Method: Window}}, 1); len(rows) != 1 || rows[0].Task != Recall {
		t.Errorf("%+v", rows)
	}
	if _, err := Read(strings.NewReader("{}\nx\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
}

// What a text and an adapter amount to is found out once, and is what kept results have.
func TestSources(t *testing.T) {
	m := small(t, 1)
	cfg := Config{Text: []int32{1, 2, 3}, Adapters: []Adapter{{"mine", archive(t, m, 24, 4)}}}
	rows := calib.WindowRows(cfg.Adapters[0].Config)
	dec := *m.Decoder
	r := &run{cfg: &cfg, sources: map[source]string{}, subjects: map[memory]*subject{{"mine", rows}: {dec: &dec}}}
	id, text := m.Decoder.ID[:], []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0}
	for range 2 {
		for _, c := range []struct {
			task   Task
			method string
			want   string
		}{{Recall, Full, ""}, {Text, Full, digest(text)}, {Recall, "mine", digest(id)}, {Text, "mine", digest(id, text)}, {Text, "mine" + BareWindow, digest(id, text)}} {
			if got := r.of(cell{task: c.task}, memory{c.method, rows}); got != c.want {
				t.Errorf("%s, %s: %q, want %q", c.task, c.method, got, c.want)
			}
		}
		cfg.Text, dec.ID = nil, state.ID{} // not read again
	}
}
