package samebit_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"samebit"
	"samebit/internal/testenv"
	"samebit/state"
)

// realTolerance bounds |float32 − float64| of the real model's logits, whose
// largest are near 20: float32 rounding of 30 layers moves them by some 1e-4.
const realTolerance = 5e-4

// The expected numbers come from an independent float64 forward pass over the
// dequantised tensors.
func TestRealModel(t *testing.T) {
	if testing.Short() {
		t.Skip("loads 94 MiB")
	}
	path := testenv.Weights(t)
	var want struct {
		Prompts []struct {
			Text      string    `json:"text"`
			IDs       []int32   `json:"ids"`
			TopIDs    []int32   `json:"top_ids"`
			TopLogits []float64 `json:"top_logits"`
			LSE       float64   `json:"logsumexp"`
			NLL       []float64 `json:"nll_per_token"`
			Greedy    []int32   `json:"greedy"`
			Margin    []float64 `json:"greedy_margin"`
			Out       string    `json:"greedy_text"`
		} `json:"prompts"`
	}
	b, err := os.ReadFile("testdata/models/gguf/smollm2-135m-q4_1.json")
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil || len(want.Prompts) != 3 {
		t.Fatalf("%d prompts: %v", len(want.Prompts), err)
	}
	m, err := samebit.Open(path, samebit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	near := func(what string, got, want float64) {
		t.Helper()
		if d := math.Abs(got - want); !(d <= realTolerance) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	for _, p := range want.Prompts {
		if ids := m.Tokenizer.Encode(nil, p.Text); !slices.Equal(ids, p.IDs) {
			t.Errorf("%q encodes to %v, want %v", p.Text, ids, p.IDs)
		}
		r, s, err := m.NewRunner()
		if err != nil {
			t.Fatal(err)
		}
		rows := make([]state.Row, len(p.IDs))
		for i, id := range p.IDs {
			rows[i].Token = id
		}
		var last []float32
		err = r.AppendAll(context.Background(), rows, func(i int, l []float32) {
			if i < len(p.NLL) {
				near("negative log likelihood", logSumExp(l)-float64(l[p.IDs[i+1]]), p.NLL[i])
			}
			last = slices.Clone(l)
		})
		if err != nil {
			t.Fatal(err)
		}
		near("logsumexp", logSumExp(last), p.LSE)
		for i, id := range p.TopIDs {
			near("top logit", float64(last[id]), p.TopLogits[i])
		}
		for i, id := range p.Greedy {
			l := slices.Clone(r.Logits())
			slices.Sort(l)
			near("margin", float64(l[len(l)-1]-l[len(l)-2]), p.Margin[i])
			if r.Logits()[id] != l[len(l)-1] {
				t.Fatalf("%q: token %d is not %d", p.Text, i, id)
			}
			if err := r.Step(context.Background(), id); err != nil {
				t.Fatal(err)
			}
		}
		r.Close()
		s.Close()

		var ids []int32
		var text string
		for tok, err := range m.Generate(context.Background(), p.Text, samebit.Gen{MaxTokens: len(p.Greedy), Ignore: true, Special: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if len(ids) < len(p.Greedy) {
				ids = append(ids, tok.ID)
			}
			text += tok.Text
		}
		if !slices.Equal(ids, p.Greedy) {
			t.Errorf("%q continues with %v, want %v", p.Text, ids, p.Greedy)
		}
		if p.Out != "" && text != p.Out {
			t.Errorf("%q continues with %q, want %q", p.Text, text, p.Out)
		}
	}
}

func logSumExp(l []float32) float64 {
	m := float64(slices.Max(l))
	s := 0.0
	for _, v := range l {
		s += math.Exp(float64(v) - m)
	}
	return m + math.Log(s)
}
