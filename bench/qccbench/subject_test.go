package qccbench

import (
	"strings"
	"testing"

	"samebit/backend"
	"samebit/nn"
	"samebit/qcc"
)

// A result is synthetic unless the model and what it reads are somebody's, and says what
// it is of.
func TestSubject(t *testing.T) {
	dev := device(t)
	ctx := t.Context()
	text := ids(50)
	runs := []struct {
		name string
		rows bool // random ones without a text
		run  func(d *nn.Decoder, a *qcc.Adapter, generated bool, text []int32) (Head, Subject, error)
	}{
		{"latency", true, func(d *nn.Decoder, a *qcc.Adapter, g bool, text []int32) (Head, Subject, error) {
			r, err := RunLatency(ctx, dev, d, a, LatencyConfig{Length: 40, Repeats: 1, Tokens: 2, Chunk: 16, Memory: "some", Generated: g, Text: text})
			return r.Head, r.Subject, err
		}},
		{"concurrency", true, func(d *nn.Decoder, a *qcc.Adapter, g bool, text []int32) (Head, Subject, error) {
			r, err := RunConcurrency(ctx, dev, d, a, ConcurrencyConfig{Length: 40, Tokens: 1, Batches: []int{2}, Chunk: 16, Memory: "some", Generated: g, Text: text})
			return r.Head, r.Subject, err
		}},
		{"streaming", true, func(d *nn.Decoder, a *qcc.Adapter, g bool, text []int32) (Head, Subject, error) {
			r, err := RunStream(ctx, dev, d, a, StreamConfig{Total: 50, Chunk: 16, Memory: "some", Generated: g, Text: text})
			return r.Head, r.Subject, err
		}},
		{"perplexity", false, func(d *nn.Decoder, a *qcc.Adapter, g bool, _ []int32) (Head, Subject, error) {
			r, err := RunPerplexity(ctx, dev, d, a, text, PerplexityConfig{Chunk: 16, Memory: "some", Generated: g})
			return r.Head, r.Subject, err
		}},
		{"ruler", false, both(t, dev, func(full, own *nn.Decoder, g bool) (Head, Subject, error) {
			r, err := RunRuler(ctx, dev, full, own, letters, []RulerRecord{{Task: "vt", Input: "text", Outputs: []string{"x"}, Length: 1}}, RulerConfig{Tokens: 1, Chunk: 8, Memory: "some", Generated: g})
			return r.Head, r.Subject, err
		})},
		{"longbench", false, both(t, dev, func(full, own *nn.Decoder, g bool) (Head, Subject, error) {
			r, err := RunLongBench(ctx, dev, full, own, letters, []LongBenchRecord{{Dataset: "lcc", Context: "text", Answers: []string{"x"}, Length: 1}}, LongBenchConfig{Prompt: "{context}", Tokens: 1, Chunk: 8, Memory: "some", Generated: g})
			return r.Head, r.Subject, err
		})},
		{"retrieval", false, both(t, dev, func(full, own *nn.Decoder, g bool) (Head, Subject, error) {
			text := []byte("text")
			m, err := NewManifest(text, ManifestConfig{Trials: 1, Context: 100, Needles: 1})
			if err != nil {
				return Head{}, Subject{}, err
			}
			var b strings.Builder
			if err := WriteManifest(&b, m); err != nil {
				return Head{}, Subject{}, err
			}
			r, err := RunNeedles(ctx, dev, full, own, letters, []byte(b.String()), text, NeedlesConfig{Tokens: 1, Chunk: 8, Memory: "some", Generated: g})
			return r.Head, r.Subject, err
		})},
	}
	for _, r := range runs {
		for _, generated := range []bool{true, false} {
			for _, given := range [][]int32{text, nil} {
				d, a := bounded(t, dev, 16)
				want := Subject{ModelID: subject(d, "").ModelID, Memory: "some", Native: 500}
				d.Context = 500
				h, s, err := r.run(d, a, generated, given)
				if synthetic := generated || r.rows && given == nil; err != nil || h.Synthetic != synthetic || s != want {
					t.Errorf("%s, made model %v, given text %v: %+v of %+v, %v; want synthetic %v of %+v", r.name, generated, given != nil, h, s, err, synthetic, want)
				}
				if !r.rows {
					break
				}
			}
		}
		if d, a := bounded(t, dev, 16); r.rows {
			if _, _, err := r.run(d, a, false, text[:20]); err == nil || !strings.Contains(err.Error(), "give a longer text") {
				t.Errorf("%s of a text that is too short: %v", r.name, err)
			}
		} else {
			d.Close()
		}
	}
}

// both makes a run of two decoders one of a model and its adapter.
func both(t *testing.T, dev backend.Device, run func(full, own *nn.Decoder, generated bool) (Head, Subject, error)) func(*nn.Decoder, *qcc.Adapter, bool, []int32) (Head, Subject, error) {
	return func(d *nn.Decoder, a *qcc.Adapter, generated bool, _ []int32) (Head, Subject, error) {
		p, err := patched(t.Context(), dev, d, a)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		return run(p.full, p.own.Decoder, generated)
	}
}

// What is read is the text that was given, over and over, or random tokens.
func TestGivenText(t *testing.T) {
	p := pair{given: []int32{5, 7, 9}}
	for i, want := range [][]int32{{5, 7}, {9, 5, 7, 9}, {5}} {
		for j, row := range p.text(len(want)) {
			if row.Token != want[j] {
				t.Errorf("row %d of part %d is token %d, want %d", j, i, row.Token, want[j])
			}
		}
	}
}
