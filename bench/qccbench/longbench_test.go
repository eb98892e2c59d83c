package qccbench

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"samebit/nn"
)

func TestLongBench(t *testing.T) {
	dev := device(t)
	d, a := bounded(t, dev, 60)
	p, err := patched(t.Context(), dev, d, a)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	full, own := *p.full, *p.own.Decoder
	full.Context, own.Context = 45, 45
	const passage = "The river ends in the sea, and nobody asks it why."
	said := func(d *nn.Decoder, ids []int32, n int) string {
		w, err := newWriter(dev, letters, n, 8)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		text, _, err := w.answer(t.Context(), d, ids)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	// In one data set the prompt fits, in the other it loses its middle.
	short := said(&full, letterIDs("Q: Where? "+passage[:20]), 3)
	cut := letterIDs(passage + "|?")
	long := said(&full, slices.Concat(cut[:21], cut[len(cut)-21:]), 2)
	records := []LongBenchRecord{
		{ID: "a", Dataset: "qasper", Input: "Where?", Context: passage[:20], Answers: []string{"not that", short}, Length: 4},
		{ID: "b", Dataset: "lcc", Context: passage, Answers: []string{long + " and more"}, Classes: []string{"x"}, Length: 9},
		{ID: "c", Dataset: "qasper", Input: "Left out", Context: passage, Answers: []string{"x"}, Length: 9},
	}
	var lines []string
	c := LongBenchConfig{RunID: "r", Prompts: map[string]string{"qasper": "Q: {input} {context}"}, Prompt: "{context}|?", Tokens: 3, Lengths: map[string]int{"lcc": 2}, Prefix: 42, Max: 1, Chunk: 8, MinNative: 45,
		Emit: func(arm, dataset string, p Prediction) error {
			text, err := json.Marshal(p)
			lines = append(lines, arm+"/"+dataset+" "+string(text))
			return err
		}}
	r, err := RunLongBench(t.Context(), dev, &full, &own, letters, records, c)
	if err != nil || len(r.Records) != 2 || r.Errors != 0 || r.Limits != 4 || r.Cut != 1 || r.FullSuite || !r.MatchedFullKV || r.QCCOnly || r.QCC != nil || r.Ratios != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if x := r.Records[0]; x.QCC != x.Full || x.Full.Prediction != short || x.Full.Exact != 1 || x.Full.F1 != 1 || x.Cut != 0 {
		t.Errorf("an answer in a window that covers the text: %+v; want %q", x, short)
	}
	f1, _ := tokenF1(long, long+" and more")
	if x := r.Records[1]; x.Full.Prediction != long || x.Prompt != len(cut) || x.Cut != len(cut)-42 || x.Full.F1 != f1 || x.Full.Exact != 0 {
		t.Errorf("both ends of a prompt: %+v; want %q, %g", x, long, f1)
	}
	if r.F1.Full != (1+f1)/2 || r.Exact.QCC != 0.5 || r.Tasks["lcc"].Records != 1 || r.Tasks["qasper"].Exact.Full != 1 {
		t.Errorf("means: %+v", r)
	}
	quoted, _ := json.Marshal(long)
	if len(lines) != 4 || lines[3] != `full_kv/lcc {"pred":`+string(quoted)+`,"answers":[`+strings.TrimSuffix(string(quoted), `"`)+` and more"],"all_classes":["x"],"length":9}` || !strings.HasSuffix(lines[0], `"all_classes":null,"length":4}`) || !strings.HasPrefix(lines[0], "qcc/qasper ") {
		t.Errorf("predictions %q", lines)
	}

	// The evaluator's scores, from a report that was kept.
	kept, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again LongBenchResult
	if err := json.Unmarshal(kept, &again); err != nil {
		t.Fatal(err)
	}
	if err := again.Score(map[string]float64{"qasper": 40, "lcc": 0}, map[string]float64{"qasper": 30, "lcc": 1}); err != nil || *again.Full != 20 || *again.QCC != 15.5 || *again.Ratios["qasper"] != 0.75 || again.Ratios["lcc"] != nil || *again.Tasks["qasper"].Official != (LongBenchScores{QCC: 30, Full: 40}) || again.ModelID != r.ModelID || again.RunID != "r" {
		t.Errorf("%+v, %v", again, err)
	}
	both := map[string]float64{"qasper": 40, "lcc": 0}
	for what, of := range map[string][2]map[string]float64{
		"evaluate all predictions": {both, {"qasper": 1}}, "give the result of these predictions": {{"qasper": 40, "lcc": 0, "trec": 1}, both},
	} {
		if err := again.Score(of[0], of[1]); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	if err := new(LongBenchResult).Score(both, both); err == nil || !strings.Contains(err.Error(), "want a report of qcc-longbench") {
		t.Errorf("no report: %v", err)
	}

	// Without a limit a prompt leaves room for the answer.
	c.Prefix, c.Emit = 0, nil
	if r, err = RunLongBench(t.Context(), dev, &full, &own, letters, records[1:2], c); err != nil || r.Errors != 0 || r.Records[0].Cut != len(cut)-42 { // two halves of 43
		t.Errorf("%+v, %v", r, err)
	}
	c.Prefix = 44 // no room for two more
	if r, err = RunLongBench(t.Context(), dev, &full, &own, letters, records[1:2], c); err != nil || r.Errors != 2 || r.Records[0].QCC.F1 != 0 || !strings.Contains(r.Records[0].QCC.Error, "leaves no room") {
		t.Errorf("%+v, %v", r, err)
	}
	for what, set := range map[string]func(c *LongBenchConfig){
		"a context of 45 tokens, 46 are required": func(c *LongBenchConfig) { c.MinNative = 46 }, "answers of 0 tokens in lcc": func(c *LongBenchConfig) { c.Lengths["lcc"] = 0 },
		"there is no prompt format for lcc": func(c *LongBenchConfig) { c.Prompt = "" }, "want {context}": func(c *LongBenchConfig) { c.Prompt = "{input}" },
		"two ends of a prompt": func(c *LongBenchConfig) { c.Prefix = 1 }, "passes of 0 rows": func(c *LongBenchConfig) { c.Chunk = 0 },
	} {
		bad := c
		bad.Lengths = maps.Clone(c.Lengths)
		set(&bad)
		if _, err := RunLongBench(t.Context(), dev, &full, &own, letters, records, bad); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	if _, err := RunLongBench(t.Context(), dev, &full, &own, letters, nil, c); err == nil {
		t.Error("no rows were taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RunLongBench(ctx, dev, &full, &own, letters, records, c); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestWholeLongBench(t *testing.T) {
	rows := maps.Clone(longBenchSuite)
	all := 0
	for _, n := range rows {
		all += n
	}
	if !wholeLongBench(rows) || len(rows) != 21 || all != 4750 {
		t.Errorf("%d data sets of %d rows, want 21 of 4,750", len(rows), all)
	}
	rows["lcc"]--
	if wholeLongBench(rows) {
		t.Error("a row less is the whole")
	}
	rows["lcc"]++
	delete(rows, "vcsum")
	if wholeLongBench(rows) {
		t.Error("20 data sets are the whole")
	}
}

func TestReadLongBench(t *testing.T) {
	l, err := ReadLongBench(strings.NewReader(`{"_id":"1","input":"","context":"c","answers":["b"],"all_classes":null,"length":9,"dataset":"repobench-p","language":"en"}`+"\n"+`{"context":"c","answers":["b"],"length":1}`), "lcc")
	if err != nil || len(l) != 2 || l[0].Dataset != "repobench-p" || l[0].ID != "1" || l[0].Classes != nil || l[1].Dataset != "lcc" {
		t.Errorf("%+v, %v", l, err)
	}
	for text, want := range map[string]string{`{"context":"c","answers":[],"length":9}`: "row 1: no row of LongBench", `{"answers":["b"],"length":9}`: "no row", `{"context":"c","answers":["b"]}`: "no row",
		`{"context":"c","answers":["b"],"length":9,"dataset":"../x"}`: "want a name of letters", `{"context":1}`: "row 1", `{`: "row 1"} {
		if _, err := ReadLongBench(strings.NewReader(text), "lcc"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestPrompt(t *testing.T) {
	x := LongBenchRecord{Context: "a {input} {{", Input: "{context}?"}
	if err := CheckPrompt("{{}} {context} {input}"); err != nil {
		t.Error(err)
	}
	if got := x.prompt("{{}} {context} {input}"); got != "{} a {input} {{ {context}?" {
		t.Errorf("what a row has in braces was filled in: %q", got)
	}
	for _, f := range []string{"", "{input}", "{context} {answers}", "{context} {", "{{context}}"} {
		if CheckPrompt(f) == nil {
			t.Errorf("%q was taken", f)
		}
	}
}

func TestTokenF1(t *testing.T) {
	for _, c := range []struct {
		said, want string
		f1, exact  float64
	}{
		{"The Cat!", "cat", 1, 1}, {"a black cat", "the cat", 2. / 3, 0}, {"cat cat", "cat", 2. / 3, 0}, {"dog", "cat", 0, 0}, {"", "cat", 0, 0}, {"sat cat", "cat sat", 1, 0},
	} {
		if f1, exact := tokenF1(c.said, c.want); math.Abs(f1-c.f1) > 1e-12 || exact != c.exact {
			t.Errorf("%q for %q: %g, %g", c.said, c.want, f1, exact)
		}
	}
}

func TestReadScores(t *testing.T) {
	if m, err := ReadScores(strings.NewReader(`{"qasper": 12.5, "lcc": 0}`)); err != nil || m["qasper"] != 12.5 || len(m) != 2 {
		t.Errorf("%v, %v", m, err)
	}
	for _, text := range []string{`{"qasper": {"0-4k": 1, "8k+": 2}}`, `{"qasper": "1"}`, `{"qasper": 101}`, `{"qasper": null}`, `[1]`, ``} {
		if m, err := ReadScores(strings.NewReader(text)); err == nil {
			t.Errorf("%s was taken: %v", text, m)
		}
	}
}
