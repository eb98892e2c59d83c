package qccbench

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// letters is a text of the small model: a token for each of 64 characters.
var letters = Text{
	Size: 64, Stop: func(id int32) bool { return false },
	Encode: letterIDs, Plain: letterIDs,
	Decode: func(ids []int32) string {
		b := make([]byte, len(ids))
		for i, id := range ids {
			b[i] = byte(id) + 64
		}
		return string(b)
	},
}

func letterIDs(s string) []int32 {
	l := make([]int32, len(s))
	for i := range s {
		l[i] = int32(s[i]) % 64
	}
	return l
}

func TestRuler(t *testing.T) {
	dev := device(t)
	d, a := bounded(t, dev, 60)
	p, err := patched(t.Context(), dev, d, a)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	full, own := *p.full, *p.own.Decoder
	full.Context, own.Context = 50, 50
	const ask = "Where does the river end? It ends"
	w, err := newWriter(dev, letters, 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := w.answer(t.Context(), &full, letters.Encode(ask))
	if err != nil {
		t.Fatal(err)
	}
	w.close()
	text := letters
	n := 0
	text.Stop = func(int32) bool { n++; return n%2 == 0 } // the second token of an answer
	records := []RulerRecord{
		{Task: "left out", Input: ask, Outputs: []string{first}, Length: 1},
		{Task: "niah", Input: ask[:20], Prefix: ask[20:], Outputs: []string{strings.ToLower(first), "not there"}, Length: 7999},
		{Task: "niah", Input: strings.Repeat(ask, 2), Outputs: []string{first}, Length: 8000},
	}
	c := RulerConfig{Skip: 1, Tokens: 3, Chunk: 8, MinNative: 50}
	r, err := RunRuler(t.Context(), dev, &full, &own, text, records, c)
	if err != nil || len(r.Records) != 2 || r.Errors != 2 || r.Limits != 0 || r.FullSuite || !r.MatchedFullKV || r.QCCOnly {
		t.Fatalf("%+v, %v", r, err)
	}
	if x := r.Records[0]; x.QCC != x.Full || x.Full.Score != 0.5 || x.Full.Prediction != first || x.Bucket != "0-8K" {
		t.Errorf("half an answer in a window that covers the text: %+v", x)
	}
	if x := r.Records[1]; x.Full.Score != 0 || !strings.Contains(x.Full.Error, "leaves no room") || x.Bucket != "8-32K" {
		t.Errorf("a text beyond the context: %+v", x)
	}
	if r.Full != 0.25 || r.QCC != 0.25 || *r.Retention != 1 || *r.Ratios["niah/0-8K"] != 1 || len(r.Ratios) != 2 || r.Ratios["niah/8-32K"] != nil {
		t.Errorf("means: %+v", r)
	}
	// An answer without an end scores nothing, even if it is there.
	c.Max, c.Tokens = 1, 1
	r, err = RunRuler(t.Context(), dev, &full, &own, letters, records, c)
	if x := r.Records[0].Full; err != nil || r.Limits != 2 || !x.Limit || x.Recall != 0.5 || x.Score != 0 || r.Retention != nil {
		t.Errorf("at the limit: %+v, %v", r, err)
	}
	for what, set := range map[string]func(*RulerConfig){
		"too small a context": func(c *RulerConfig) { c.MinNative = 51 }, "no rows": func(c *RulerConfig) { c.Skip = 3 }, "no tokens": func(c *RulerConfig) { c.Tokens = 0 },
		"passes of no rows": func(c *RulerConfig) { c.Chunk = 0 }, "less than no row": func(c *RulerConfig) { c.Max = -1 },
	} {
		bad := c
		set(&bad)
		if _, err := RunRuler(t.Context(), dev, &full, &own, letters, records, bad); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RunRuler(ctx, dev, &full, &own, letters, records, c); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestReadRuler(t *testing.T) {
	l, err := ReadRuler(strings.NewReader(`{"index":4,"input":"a","outputs":["b"],"length":9,"others_id":1}`+"\n"+`{"task":"vt","index":5,"input":"a","answer_prefix":" is","outputs":["b"],"length":128000}`), "niah")
	if err != nil || len(l) != 2 || l[0].Task != "niah" || l[0].Index != 4 || l[1].Task != "vt" || l[1].Prefix != " is" || rulerBucket(l[1].Length) != "128K+" || rulerBucket(127_999) != "32-128K" || rulerBucket(32_000) != "32-128K" {
		t.Errorf("%+v, %v", l, err)
	}
	for _, text := range []string{`{"index":1}`, `{"input":"a","outputs":["b"]}`, `{"input":"a","outputs":[],"length":9}`, `{"input":"a","outputs":[""],"length":9}`, `{"input":1}`, `{"input":"a","outputs":["b"],"length":9`} {
		if _, err := ReadRuler(strings.NewReader(text), "niah"); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}
