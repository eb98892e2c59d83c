package qccbench

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestNeedles(t *testing.T) {
	dev := device(t)
	d, a := bounded(t, dev, 4096)
	p, err := patched(t.Context(), dev, d, a)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	text := []byte("The river runs to the sea, and nobody asks it why. ")
	m, err := NewManifest(text, ManifestConfig{Trials: 3, Context: 600, Needles: 2, Distractors: 4, Seed: 5})
	if err != nil || len(m.Trials) != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	for i, x := range m.Trials {
		ids, err := x.hide(20_000, letterIDs(string(text)), letterIDs)
		if err != nil || len(ids) != 20_000 {
			t.Errorf("trial %d: %d tokens, %v", i, len(ids), err)
		}
		words := map[string]bool{}
		for _, n := range x.Needles {
			for _, w := range strings.Fields(n.Key) {
				words[w] = true
			}
			if at := strings.Index(letters.Decode(ids), letters.Decode(letterIDs(n.sentence()))); at < int(n.Depth*20_000) || n.Depth < 0.01 || n.Depth > 0.97 {
				t.Errorf("trial %d: a needle of depth %g is at %d", i, n.Depth, at)
			}
		}
		for _, n := range x.Distractors {
			if w := strings.Fields(n.Key); !words[w[0]] && !words[w[1]] {
				t.Errorf("trial %d: distractor %q is like no needle", i, n.Key)
			}
		}
	}
	var file bytes.Buffer
	if err := WriteManifest(&file, m); err != nil {
		t.Fatal(err)
	}
	data := file.Bytes()
	// Both models know the answers of the first trial, the full one those of the second.
	answers := letters
	n := 0
	answers.Decode = func([]int32) string {
		i, arm, needle := n/4, n/2%2, n%2
		n++
		if i == 0 || i == 1 && (arm == 1 || needle == 0) {
			return "1234 123456789, " + m.Trials[i].Needles[needle].Value + " 87654321"
		}
		return "none"
	}
	var lines []NeedleResult
	c := NeedlesConfig{RunID: "r", Tokens: 1, Chunk: 64, Emit: func(r NeedleResult) error { lines = append(lines, r); return nil }}
	r, err := RunNeedles(t.Context(), dev, p.full, p.own.Decoder, answers, data, text, c)
	if err != nil || len(lines) != 3 || r.Trials != 3 || r.Needles != 6 || r.QCC != 1.0/3 || r.Full != 2.0/3 || r.NeedleQCC != 0.5 || r.NeedleFull != 4.0/6 || r.Missed != 1.0/3 || r.MissedOnes != 1.0/6 {
		t.Errorf("%+v, %v", r, err)
	}
	if len(r.NotEvidence) != 2 || !r.RandomDepth || !r.Multi || !r.Distractors || r.Oracle || r.Context != 600 {
		t.Errorf("%+v", r)
	}
	// A run goes on from any trial, and only from its own.
	n, c.Have, lines = 8, lines[:2], nil
	again, err := RunNeedles(t.Context(), dev, p.full, p.own.Decoder, answers, data, text, c)
	if err != nil || len(lines) != 1 || !reflect.DeepEqual(again, r) {
		t.Errorf("gone on: %+v, %v; want %+v", again, err, r)
	}
	for what, set := range map[string]func(c *NeedlesConfig, data, text *[]byte){
		"another run":      func(c *NeedlesConfig, _, _ *[]byte) { c.RunID = "s" },
		"another memory":   func(c *NeedlesConfig, _, _ *[]byte) { c.Memory = "all" },
		"another manifest": func(_ *NeedlesConfig, data, _ *[]byte) { *data = append(bytes.Clone(*data), '\n') },
		"a trial twice":    func(c *NeedlesConfig, _, _ *[]byte) { c.Have = append(c.Have, c.Have[0]) },
		"another text":     func(_ *NeedlesConfig, _, text *[]byte) { *text = []byte("no") },
		"no manifest":      func(c *NeedlesConfig, data, _ *[]byte) { c.Have, *data = nil, []byte("{}") },
		"no tokens":        func(c *NeedlesConfig, _, _ *[]byte) { c.Have, c.Tokens = nil, 0 },
	} {
		bad, from, in := c, data, text
		bad.Have = append([]NeedleResult(nil), c.Have...)
		set(&bad, &from, &in)
		if _, err := RunNeedles(t.Context(), dev, p.full, p.own.Decoder, letters, from, in, bad); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	// What cannot be read finds nothing, whatever was said before.
	full := *p.full
	full.Context = 600
	c.Have, c.Emit, n = nil, nil, 0
	r, err = RunNeedles(t.Context(), dev, &full, p.own.Decoder, answers, data, text, c)
	if err != nil || r.Errors != 3 || r.Full != 0 || r.QCC != 0 || len(r.NotEvidence) != 3 {
		t.Errorf("no room: %+v, %v", r, err)
	}
	// Whoever moves a needle chooses depths, and whoever takes another seed did not draw them.
	for what, change := range map[string]func(m *Manifest){
		"a depth":      func(m *Manifest) { m.Trials[2].Needles[1].Depth = 0.96 },
		"a distractor": func(m *Manifest) { m.Trials[1].Distractors[0].Key = "violet engine" },
		"a trial less": func(m *Manifest) { m.Trials = m.Trials[1:] },
		"another seed": func(m *Manifest) { m.Seed++ },
	} {
		var chosen Manifest
		if err := json.Unmarshal(data, &chosen); err != nil {
			t.Fatal(err)
		}
		change(&chosen)
		if chosen.drawn(text) {
			t.Errorf("%s: the trials count as drawn", what)
		}
		x := NeedlesResult{Trials: evidenceTrials}
		x.finish(chosen, false)
		if x.RandomDepth || x.Distractors || !x.Multi || !strings.Contains(strings.Join(x.NotEvidence, ""), "the manifest's seed draws") {
			t.Errorf("%s: %+v", what, x)
		}
	}
	for _, bad := range []ManifestConfig{{Trials: 0, Context: 9, Needles: 1}, {Trials: 1, Context: 9}, {Trials: 1, Context: 9, Needles: 1, Distractors: 5}, {Trials: 1, Needles: 1}} {
		if _, err := NewManifest(text, bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	if m, err = NewManifest(text, ManifestConfig{Trials: 1, Context: 20, Needles: 1}); err == nil {
		if _, err = m.Trials[0].hide(20, letterIDs("text"), letterIDs); err == nil {
			t.Error("a sentence longer than the context was hidden")
		}
	}
}

func TestFirstNumber(t *testing.T) {
	for text, want := range map[string]string{"": "", "12345678": "12345678", "x12345678y": "12345678", "123456789": "", " 1234567 and 87654321, 11111111": "87654321", "1234 5678": ""} {
		if got := firstNumber(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
