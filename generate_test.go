package samebit_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"samebit"
	"samebit/sample"
	"samebit/token"
)

const prompt = "Hello world"

func TestGreedyText(t *testing.T) {
	m := open(t, tiny, samebit.Config{})
	var rep samebit.Report
	want := generate(t, m, prompt, samebit.Gen{MaxTokens: 40, Report: &rep})
	if rep.Tokens != 40 || rep.Reason != "length" || rep.PromptTokens != len(m.Tokenizer.EncodeSpecial(nil, prompt)) || rep.Reused != 0 || rep.Prefill <= 0 || rep.Decode <= 0 {
		t.Errorf("report %+v", rep)
	}
	for range 20 {
		if got := generate(t, m, prompt, samebit.Gen{MaxTokens: 40}); got != want {
			t.Fatalf("text %q, before it was %q", got, want)
		}
	}
	if got := generate(t, m, prompt, samebit.Gen{MaxTokens: 40, Sample: sample.Config{Seed: 9}}); got != want {
		t.Errorf("a seed changes greedy text: %q", got)
	}
	if got := generate(t, m, prompt, samebit.Gen{}); !strings.HasPrefix(got, strings.TrimRight(want, "\ufffd")) {
		t.Errorf("a longer text begins %q, want %q", got, want)
	}
	var ids []int32
	for tok, err := range m.GenerateIDs(bg, m.Tokenizer.EncodeSpecial(nil, prompt), samebit.Gen{MaxTokens: 40}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, tok.ID)
	}
	if len(ids) != 40 {
		t.Errorf("%d tokens, want each of 40 once", len(ids))
	}
	if got := string(m.Tokenizer.DecodeSkip(nil, ids)); !strings.HasPrefix(string([]rune(got)), strings.TrimRight(want, "\ufffd")) {
		t.Errorf("ids give %q, the stream %q", got, want)
	}
}

func TestSeeds(t *testing.T) {
	m := open(t, tiny, samebit.Config{})
	g := func(seed, sequence uint64) string {
		return generate(t, m, prompt, samebit.Gen{MaxTokens: 20, Sequence: sequence, Sample: sample.Config{Temperature: 0.9, Seed: seed}})
	}
	if a, b := g(7, 0), g(7, 0); a != b {
		t.Errorf("seed 7 gives %q and %q", a, b)
	}
	texts := []string{generate(t, m, prompt, samebit.Gen{MaxTokens: 20}), g(7, 0), g(8, 0), g(7, 1)}
	slices.Sort(texts)
	if len(slices.Compact(texts)) != 4 {
		t.Errorf("seeds and sequences do not tell texts apart: %q", texts)
	}
}

// TestConcurrentGenerations: twenty in a row and eight at once give the one text.
func TestConcurrentGenerations(t *testing.T) {
	for _, path := range []string{tiny, hybrid} {
		m := open(t, path, samebit.Config{ChunkRows: 4})
		gens := []samebit.Gen{{MaxTokens: 30}, {MaxTokens: 30, Sample: sample.Config{Temperature: 0.8, Seed: 3}}}
		want := []string{generate(t, m, prompt, gens[0]), generate(t, m, prompt, gens[1])}
		for i := range 20 {
			if got := generate(t, m, prompt, gens[i%2]); got != want[i%2] {
				t.Errorf("%s: request %d has the text %q, want %q", path, i, got, want[i%2])
			}
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for k := range 3 {
					g := gens[(i+k)%2]
					if got := generate(t, m, prompt, g); got != want[(i+k)%2] {
						t.Errorf("%s: goroutine %d has the text %q, want %q", path, i, got, want[(i+k)%2])
					}
				}
			})
		}
		wg.Wait()
		if n := m.Pool().Bytes(); n != 0 {
			t.Errorf("%d bytes of states are left", n)
		}
	}
}

func TestStops(t *testing.T) {
	m := open(t, tiny, samebit.Config{})
	whole := generate(t, m, prompt, samebit.Gen{MaxTokens: 40})
	for _, n := range []int{1, 2, 3, 5} {
		for at := range 20 {
			if at+n > len(whole) {
				break
			}
			stop := whole[at : at+n]
			var rep samebit.Report
			got := generate(t, m, prompt, samebit.Gen{MaxTokens: 40, Stop: []string{"never seen", stop}, Report: &rep})
			if want := whole[:strings.Index(whole, stop)]; got != want || rep.Reason != "stop string" {
				t.Errorf("stopped at %q: text %q (%s), want %q", stop, got, rep.Reason, want)
			}
		}
	}
	// A beginning of a stop string that never ends comes out in the end.
	tail := whole[len(whole)-3:]
	if got := generate(t, m, prompt, samebit.Gen{MaxTokens: 40, Stop: []string{tail + "…"}}); got != whole {
		t.Errorf("held back: %q, want %q", got, whole)
	}
	for _, err := range m.Generate(bg, prompt, samebit.Gen{Stop: []string{""}}) {
		if err == nil {
			t.Error("an empty stop string gives no error")
		}
	}
}

// TestEnd makes the third token an end-of-text token.
func TestEnd(t *testing.T) {
	m := open(t, tiny, samebit.Config{})
	var ids []int32
	for tok := range m.Generate(bg, prompt, samebit.Gen{MaxTokens: 12}) {
		ids = append(ids, tok.ID)
	}
	at := 1
	for slices.Contains(ids[:at], ids[at]) {
		at++
	}
	m.Tokenizer.AddStops(ids[at])
	var rep samebit.Report
	generate(t, m, prompt, samebit.Gen{MaxTokens: 12, Report: &rep})
	if rep.Reason != "stop" || rep.Tokens != at+1 {
		t.Errorf("token %d ends the text: report %+v", at, rep)
	}
	generate(t, m, prompt, samebit.Gen{MaxTokens: 12, Ignore: true, Report: &rep})
	if rep.Reason != "length" || rep.Tokens != 12 {
		t.Errorf("ignoring the end: report %+v", rep)
	}
}

func TestContextEnd(t *testing.T) {
	m := open(t, tiny, samebit.Config{Context: 20})
	var rep samebit.Report
	generate(t, m, prompt, samebit.Gen{Report: &rep})
	if rep.Reason != "context" || rep.PromptTokens+rep.Tokens != 20 {
		t.Errorf("the context's end: report %+v", rep)
	}
	for _, g := range []struct {
		prompt, want string
		gen          samebit.Gen
	}{
		{strings.Repeat("Hello ", 40), "context of 20", samebit.Gen{}},
		{"", "no tokens", samebit.Gen{}},
		{prompt, "MaxTokens is -1", samebit.Gen{MaxTokens: -1}},
		{prompt, "", samebit.Gen{Sample: sample.Config{Temperature: -1}}},
	} {
		n := 0
		for tok, err := range m.Generate(bg, g.prompt, g.gen) {
			if n++; err == nil || !strings.Contains(err.Error(), g.want) || tok != (samebit.Token{}) {
				t.Errorf("%q with %+v: token %+v, error %v, want %q in it", g.prompt, g.gen, tok, err, g.want)
			}
		}
		if n != 1 {
			t.Errorf("%q with %+v: %d tokens, want one error", g.prompt, g.gen, n)
		}
	}
	for _, ids := range [][]int32{nil, {512}, {-1}} {
		for _, err := range m.GenerateIDs(bg, ids, samebit.Gen{}) {
			if err == nil {
				t.Errorf("ids %v: no error", ids)
			}
		}
	}
}

// TestCancel ends a generation before, during and after its prompt.
func TestCancel(t *testing.T) {
	m := open(t, tiny, samebit.Config{ChunkRows: 8})
	long := strings.Repeat("Hello ", 60)
	want := generate(t, m, prompt, samebit.Gen{MaxTokens: 20})

	ctx, cancel := context.WithCancel(bg)
	cancel()
	var rep samebit.Report
	for _, err := range m.Generate(ctx, prompt, samebit.Gen{Report: &rep}) {
		if !errors.Is(err, context.Canceled) || rep.Reason != "cancelled" {
			t.Errorf("cancelled before the prompt: %v, %+v", err, rep)
		}
	}

	ctx, cancel = context.WithCancel(bg)
	defer cancel()
	chunks, tokens := 0, 0
	for _, err := range m.Generate(ctx, long, samebit.Gen{Report: &rep, Prefill: func(done, total int) {
		if chunks++; chunks == 2 {
			cancel()
		}
	}}) {
		if tokens++; !errors.Is(err, context.Canceled) || rep.Reason != "cancelled" {
			t.Errorf("cancelled during the prompt: %v, %+v", err, rep)
		}
	}
	if chunks != 2 || tokens != 1 {
		t.Errorf("a prompt cancelled after 2 chunks went on for %d, %d tokens came", chunks-2, tokens)
	}

	ctx, cancel = context.WithCancel(bg)
	defer cancel()
	var got string
	var last error
	n := 0
	for tok, err := range m.Generate(ctx, prompt, samebit.Gen{MaxTokens: 20, Report: &rep}) {
		got, last = got+tok.Text, err
		if n++; n == 5 {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) || n != 6 || !strings.HasPrefix(want, got) || rep.Reason != "cancelled" || rep.Tokens != 5 {
		t.Errorf("cancelled after 5 tokens: %d came, text %q, error %v, %+v", n, got, last, rep)
	}
	for range m.Generate(bg, prompt, samebit.Gen{Report: &rep}) {
		break
	}
	if rep.Reason != "cancelled" || rep.Tokens != 1 {
		t.Errorf("left after a token: %+v", rep)
	}
	if n := m.Pool().Bytes(); n != 0 {
		t.Errorf("%d bytes of states are left", n)
	}
}

// TestCancelledStreams leaves no goroutine and no memory behind.
func TestCancelledStreams(t *testing.T) {
	m := open(t, tiny, samebit.Config{})
	want := generate(t, m, prompt, samebit.Gen{MaxTokens: 9})
	before := runtime.NumGoroutine()
	rounds := 1000
	if testing.Short() {
		rounds = 200
	}
	for i := range rounds {
		ctx, cancel := context.WithCancel(bg)
		n := 0
		for range m.Generate(ctx, prompt, samebit.Gen{MaxTokens: 9}) {
			if n++; n > i%4 {
				cancel()
				if i%2 == 0 {
					break
				}
			}
		}
		cancel()
	}
	settle(t, before)
	if n := m.Pool().Bytes(); n != 0 {
		t.Errorf("%d bytes of states are left", n)
	}
	if got := generate(t, m, prompt, samebit.Gen{MaxTokens: 9}); got != want {
		t.Errorf("afterwards the text is %q, want %q", got, want)
	}
}

// TestSpecialTokens: control tokens in a prompt count as such, in plain text not.
func TestSpecialTokens(t *testing.T) {
	m := open(t, tiny, samebit.Config{})
	tok := m.Tokenizer
	const text = "a<|im_end|>b"
	end := tok.ID("<|im_end|>")
	if !slices.Contains(tok.EncodeSpecial(nil, text), end) {
		t.Error("a prompt's <|im_end|> is not the control token")
	}
	plain := tok.EncodePlain(nil, text)
	if slices.Contains(plain, end) || tok.Text(plain) != text {
		t.Errorf("plain text encodes to %v, which reads %q", plain, tok.Text(plain))
	}
	var a, b samebit.Report
	generate(t, m, text, samebit.Gen{MaxTokens: 1, Report: &a})
	for _, err := range m.GenerateIDs(bg, plain, samebit.Gen{MaxTokens: 1, Report: &b}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if a.PromptTokens >= b.PromptTokens {
		t.Errorf("a control token takes %d rows, its letters %d", a.PromptTokens, b.PromptTokens)
	}
}

// TestNoRoomForStates limits the memory of all sequences.
func TestNoRoomForStates(t *testing.T) {
	m := open(t, tiny, samebit.Config{StateBytes: 1000})
	var rep samebit.Report
	n := 0
	for _, err := range m.Generate(bg, prompt, samebit.Gen{Report: &rep}) {
		if n++; err == nil || !strings.Contains(err.Error(), "limit of 1000") || rep.Reason != "error" {
			t.Errorf("1000 bytes of states: %v, %+v", err, rep)
		}
	}
	if n != 1 {
		t.Errorf("%d tokens, want one error", n)
	}
}

// A stop string may be completed by what an unfinished character ends as; what
// was held back before it is shown.
func TestStopAtUnfinishedEnd(t *testing.T) {
	m := open(t, tiny, samebit.Config{})
	for seed := range uint64(400) {
		g := samebit.Gen{MaxTokens: 2, Ignore: true, Sample: sample.Config{Temperature: 2, Seed: seed}}
		text := token.Decoder{Tokenizer: m.Tokenizer, SkipSpecial: true}
		said := ""
		for tok, err := range m.Generate(bg, prompt, g) {
			if err != nil {
				t.Fatal(err)
			}
			said += text.Push(tok.ID)
		}
		if text.Flush() != "\ufffd" || said == "" || strings.Contains(said, "\ufffd") {
			continue
		}
		var rep samebit.Report
		g.Report, g.Stop = &rep, []string{"\ufffd", said + "never"}
		if got := generate(t, m, prompt, g); got != said || rep.Reason != "stop string" {
			t.Errorf("seed %d: text %q, reason %q, want %q, stop string", seed, got, rep.Reason, said)
		}
		return
	}
	t.Fatal("no text of this model ends inside a character")
}
