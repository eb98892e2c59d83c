package qccbench

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"samebit/backend/cpu"
)

// toyOf is a training of few steps.
func toyOf(steps int) Toy {
	return Toy{Shell: Shell{Vocab: 8, Hidden: 16, Layers: 1, Heads: 2, Seed: 1}, Window: 4, Codes: 4, Position: "sinusoidal", MaxPosition: 64, Steps: steps, Batch: 8, Rate: 0.01, Decay: 0.01}
}

// Exact attention recalls the value; both models are the same at any number of threads.
func TestSynthetic(t *testing.T) {
	c := SyntheticConfig{Toy: toyOf(60), Length: 16, Query: 10}
	last := 0
	c.Progress = func(done, total int) {
		if last++; done != last || total != 120 {
			t.Errorf("step %d of %d, want %d of 120", done, total, last)
		}
	}
	r, err := RunSynthetic(t.Context(), device(t), c)
	if err != nil || !(r.Full.Accuracy > 0.9) || !(r.Full.EvalLoss < r.QCC.EvalLoss) || !r.Synthetic || r.QCCOnly || !r.MatchedFullKV || r.Chance != 0.2 || last != 120 {
		t.Errorf("%+v, %v", r, err)
	}
	one, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	c.Progress = nil
	again, err := RunSynthetic(t.Context(), one, c)
	if err != nil || again.QCC.Weights != r.QCC.Weights || again.Full.Weights != r.Full.Weights || again.QCC.EvalLoss != r.QCC.EvalLoss {
		t.Errorf("one thread: %+v, %v; two: %+v", again, err, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RunSynthetic(ctx, one, c); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for what, set := range map[string]func(*SyntheticConfig){
		"no room behind the question": func(c *SyntheticConfig) { c.Query = 15 }, "a text beyond the positions": func(c *SyntheticConfig) { c.Length = 65 },
		"no values": func(c *SyntheticConfig) { c.Vocab = 4 }, "no steps": func(c *SyntheticConfig) { c.Steps = 0 }, "no rate": func(c *SyntheticConfig) { c.Rate = math.NaN() },
		"a kind of positions": func(c *SyntheticConfig) { c.Position = "absolute" }, "no window": func(c *SyntheticConfig) { c.Window = 0 },
	} {
		bad := c
		set(&bad)
		if _, err := RunSynthetic(t.Context(), one, bad); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// What a training keeps answers its own questions as it says, from a file.
func TestLearnRetrieval(t *testing.T) {
	dev := device(t)
	var model, asked bytes.Buffer
	threshold := -5.0
	c := LearnRetrievalConfig{Toy: toyOf(30), Length: 16, QueryMin: 5, QueryMax: 9, EvalLengths: []int{12, 30}, EvalExamples: 6, QueryAt: 0.75, Checkpoint: &model, Examples: &asked}
	c.Threshold = &threshold
	r, err := RunLearnRetrieval(t.Context(), dev, c)
	if err != nil || !r.Synthetic || !r.QCCOnly || r.MatchedFullKV || r.BestStep < 1 || !(r.BestLoss <= r.FinalLoss) || len(r.Eval) != 2 || r.Eval[1].Query != 22 || strings.Count(asked.String(), "\n") != 12 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, full := range []bool{false, true} {
		e, err := RunToyRetrieval(t.Context(), dev, bytes.NewReader(model.Bytes()), 100, bytes.NewReader(asked.Bytes()), RetrievalConfig{Chunk: 5, Target: 2, CompareFull: full})
		if err != nil || e.Records != 12 || e.Correct != r.Eval[0].Correct+r.Eval[1].Correct || e.Passed || e.QCCOnly == full || e.Window != 4 || full && e.Cosine == 0 {
			t.Errorf("%+v, %v, the training said %+v", e, err, r.Eval)
		}
	}
	for what, f := range map[string]func() error{
		"a foreign file": func() error {
			_, err := RunToyRetrieval(t.Context(), dev, strings.NewReader("{}"), 100, &asked, RetrievalConfig{Chunk: 5})
			return err
		},
		"a text beyond the positions": func() error {
			_, err := RunToyRetrieval(t.Context(), dev, bytes.NewReader(model.Bytes()), 10, bytes.NewReader(asked.Bytes()), RetrievalConfig{Chunk: 5})
			return err
		},
		"chunks of nothing": func() error {
			_, err := RunToyRetrieval(t.Context(), dev, bytes.NewReader(model.Bytes()), 100, bytes.NewReader(asked.Bytes()), RetrievalConfig{})
			return err
		},
		"questions in the wrong order": func() error {
			bad := c
			bad.QueryMin, bad.QueryMax = 9, 5
			_, err := RunLearnRetrieval(t.Context(), dev, bad)
			return err
		},
	} {
		if f() == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// Both models learn more of a text than how often characters come.
func TestChars(t *testing.T) {
	c := CharsConfig{Toy: toyOf(60), Text: strings.Repeat("über allen Gipfeln ist Ruh, ", 40), Length: 24, EvalBatches: 2}
	r, err := RunChars(t.Context(), device(t), c)
	if err != nil || r.Vocab != 18 || r.Characters != 1120 || r.Judged != 2*8*24 || !r.Synthetic || !r.MatchedFullKV || !(r.QCC.Perplexity < r.Unigram/2) || !(r.Full.Perplexity < r.Unigram/2) ||
		math.Abs(math.Log(r.QCC.Perplexity)-r.QCC.ValidLoss) > 1e-12 {
		t.Errorf("%+v, %v", r, err)
	}
	for what, set := range map[string]func(*CharsConfig){
		"a text that is too short": func(c *CharsConfig) { c.Text = "short" }, "no UTF-8": func(c *CharsConfig) { c.Text += "\xff" }, "no batches": func(c *CharsConfig) { c.EvalBatches = 0 },
	} {
		bad := c
		set(&bad)
		if _, err := RunChars(t.Context(), device(t), bad); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}
