package calib

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"samebit/qcc"
)

func TestOptionErrors(t *testing.T) {
	for _, o := range []Options{LayerOptions(), TextOptions()} {
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		says   string
		change func(o *Options)
	}{
		{"0 steps", func(o *Options) { o.Steps = 0 }}, {"of 0 sequences", func(o *Options) { o.Chunks = 0 }},
		{"learning rate", func(o *Options) { o.Rate = 0 }}, {"learning rate", func(o *Options) { o.Rate = math.NaN() }},
		{"warmup", func(o *Options) { o.Warmup = 101 }}, {"floor", func(o *Options) { o.Floor = -1 }},
		{"weight decay", func(o *Options) { o.Decay = 1 }}, {"clipped", func(o *Options) { o.Clip = -1 }},
		{"loss weights", func(o *Options) { o.Weights.KL = 1.5 }}, {"at most 1 in all", func(o *Options) { o.Weights.Cosine = 0.6 }},
		{"loss weights", func(o *Options) { o.Weights.Margin = nan }}, {"temperature", func(o *Options) { o.Weights.Temperature = 0 }},
		{"margin of", func(o *Options) { o.Weights.Gap = nan }}, {"outputs", func(o *Options) { o.Attention = 2 }},
		{"compared on 0 rows", func(o *Options) { o.AttentionRows = 0 }}, {"codes from", func(o *Options) { o.CodeInit = "guess" }},
		{"spread", func(o *Options) { o.CodeSpread = 1 }}, {"spread by", func(o *Options) { o.CodeInit, o.CodeSpread = Whitened, math.NaN() }},
		{"codes from 0 rows", func(o *Options) { o.CodeTokens = 0 }}, {"validation", func(o *Options) { o.Interval = 0 }},
		{"patience", func(o *Options) { o.Patience = -1 }}, {"micro-batch", func(o *Options) { o.MicroRows = -1 }},
		{"quality gate", func(o *Options) { o.Gate = 2 }}, {"saved", func(o *Options) { o.Save = 0 }},
	} {
		o := LayerOptions()
		c.change(&o)
		if err := o.Check(); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.says, err)
		}
	}
	for _, c := range []struct {
		says   string
		change func(o *AdmissionOptions)
	}{
		{"0 steps", func(o *AdmissionOptions) { o.Steps = 0 }}, {"learning rate", func(o *AdmissionOptions) { o.Rate = 1 }},
		{"weight decay", func(o *AdmissionOptions) { o.Decay = -1 }}, {"queries", func(o *AdmissionOptions) { o.Queries = 0 }},
		{"largest weights", func(o *AdmissionOptions) { o.Top = 0 }}, {"share", func(o *AdmissionOptions) { o.Share = 0 }},
		{"saved", func(o *AdmissionOptions) { o.Save = 0 }},
	} {
		o := DefaultAdmission()
		c.change(&o)
		if err := o.Check(); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("admission, %q: %v", c.says, err)
		}
	}
}

func TestChooseLayers(t *testing.T) {
	for choice, want := range map[string][]int{"all": {0, 1, 2, 3, 4, 5, 6}, "first-half": {0, 1, 2}, "last-half": {3, 4, 5, 6}, "last-quarter": {6}, "2-4": {2, 3, 4}, "6": {6}, "0, 3,5": {0, 3, 5}} {
		if got, err := ChooseLayers(choice, 7); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", choice, got, err)
		}
	}
	for _, choice := range []string{"", "most", "7", "-1", "3-7", "4-2", "1,1", "2,1", "a-b", "1,,2", "1.5"} {
		if got, err := ChooseLayers(choice, 7); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v, %v", choice, got, err)
		}
	}
}

// Windows lie evenly, as rint(linspace) says.
func TestWindows(t *testing.T) {
	if got := Spread(0, 10, 5); !slices.Equal(got, []int{0, 2, 5, 8, 10}) { // 2.5 and 7.5 go to the even ones
		t.Error(got)
	}
	if got := Spread(3, 3, 1); !slices.Equal(got, []int{3}) {
		t.Error(got)
	}
	text := make([]int32, 100)
	for i := range text {
		text[i] = int32(i)
	}
	w := Windows(text, 30, 4)
	for i, first := range []int32{0, 23, 47, 70} {
		if len(w) != 4 || len(w[i]) != 30 || w[i][0] != first {
			t.Fatalf("window %d of %d begins at %d", i, len(w), w[i][0])
		}
	}
	if w := Windows(text, 200, 4); len(w) != 1 || len(w[0]) != 100 {
		t.Errorf("a short text makes %d windows", len(w))
	}
	if w := Windows(nil, 20, 4); w != nil {
		t.Error("windows of nothing")
	}
}

func TestUntrainable(t *testing.T) {
	for name, change := range map[string]func(c *qcc.Config){
		"archive": func(c *qcc.Config) { c.NoArchive = true }, "lazy": func(c *qcc.Config) { c.ActiveCodes, c.LazyDecay = 2, true },
		"exact tier": func(c *qcc.Config) { c.Exact = qcc.DefaultExact() },
	} {
		c := qcc.DefaultConfig(32, 2)
		change(&c)
		if _, err := trainable(c); !errors.Is(err, qcc.ErrUntrainable) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := qcc.DefaultConfig(32, 2)
	c.ActiveCodes, c.StaleReads, c.ReadStride = 3, true, 4
	if d, err := trainable(c); err != nil || d.ActiveCodes != 0 || d.Reuses() || d.Validate() != nil {
		t.Errorf("sparse reads: %+v, %v", d, err)
	}
}
