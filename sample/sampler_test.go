package sample

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

var inf = float32(math.Inf(1))

func mustNew(t testing.TB, c Config, vocab int) *Sampler {
	t.Helper()
	s, err := New(c, vocab)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// full spreads Probs over the vocabulary.
func full(t testing.TB, s *Sampler, logits []float32, history []int32) []float64 {
	t.Helper()
	c, err := s.Probs(logits, history)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]float64, s.vocab)
	for _, c := range c {
		p[c.ID] = float64(c.Prob)
	}
	return p
}

func TestGoldens(t *testing.T) {
	raw, err := os.ReadFile("../testdata/models/text/sampling.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Logits  []float32
			History []int32
			Params  struct {
				Temperature       *float32
				TopK              int      `json:"top_k"`
				TopP              *float32 `json:"top_p"`
				MinP              float32  `json:"min_p"`
				RepetitionPenalty float32  `json:"repetition_penalty"`
				FrequencyPenalty  float32  `json:"frequency_penalty"`
				PresencePenalty   float32  `json:"presence_penalty"`
				PenaltyLastN      int      `json:"penalty_last_n"`
			}
			Llama        []float64 `json:"probs_llamacpp_order"`
			Transformers []float64 `json:"probs_transformers_order"`
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) != 40 {
		t.Fatalf("%d cases, want 40", len(file.Cases))
	}
	worst := 0.0
	for i, c := range file.Cases {
		p := c.Params
		cfg := Config{Temperature: 1, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, RepetitionPenalty: p.RepetitionPenalty,
			FrequencyPenalty: p.FrequencyPenalty, PresencePenalty: p.PresencePenalty, PenaltyLastN: p.PenaltyLastN}
		if p.Temperature != nil {
			cfg.Temperature = *p.Temperature
		}
		for rules, want := range [][]float64{LlamaCpp: c.Llama, Transformers: c.Transformers} {
			if want == nil {
				continue
			}
			cfg.Rules = Rules(rules)
			got := full(t, mustNew(t, cfg, len(c.Logits)), c.Logits, c.History)
			for id := range want {
				d := math.Abs(got[id] - want[id])
				if want[id] > 0 {
					worst = max(worst, d/want[id])
				}
				if (want[id] == 0) != (got[id] == 0) || d > 1e-5*want[id] {
					t.Errorf("case %d %+v rules %d: id %d has %g, want %g", i, p, rules, id, got[id], want[id])
				}
			}
		}
	}
	t.Logf("largest relative difference %.2g", worst)
}

func TestConfigErrors(t *testing.T) {
	nan := float32(math.NaN())
	for name, c := range map[string]Config{
		"NaN temperature":      {Temperature: nan},
		"negative temperature": {Temperature: -0.1},
		"infinite temperature": {Temperature: inf},
		"negative top-k":       {TopK: -1},
		"top-p above 1":        {TopP: new(float32(1.01))},
		"NaN top-p":            {TopP: &nan},
		"negative top-p":       {TopP: new(float32(-0.1))},
		"min-p above 1":        {MinP: 1.5},
		"NaN min-p":            {MinP: nan},
		"negative repetition":  {RepetitionPenalty: -1},
		"infinite repetition":  {RepetitionPenalty: inf},
		"NaN frequency":        {FrequencyPenalty: nan},
		"infinite presence":    {PresencePenalty: -inf},
		"bias id too large":    {LogitBias: map[int32]float32{10: 1}},
		"bias id negative":     {LogitBias: map[int32]float32{-1: 1}},
		"NaN bias":             {LogitBias: map[int32]float32{1: nan}},
		"+Inf bias":            {LogitBias: map[int32]float32{1: inf}},
		"unknown rules":        {Rules: 9},
		"unknown step":         {Order: []Step{StepTopK, 77}},
		"step twice":           {Order: []Step{StepTopK, StepTopK}},
		"presence and rules":   {Rules: Transformers, PresencePenalty: 1},
	} {
		if _, err := New(c, 10); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := New(Config{}, 0); err == nil {
		t.Error("empty vocabulary: no error")
	}
}

func TestGreedy(t *testing.T) {
	logits := []float32{1, 5, -2, 5, 4.9, 100}
	for _, temp := range []float32{0, float32(math.Copysign(0, -1)), 1e-40, math.SmallestNonzeroFloat32, 1e-30, 1e-20, 1e-4} {
		s := mustNew(t, Config{Temperature: temp}, 5) // row 5 is beyond the vocabulary
		for step := range uint64(20) {
			id, err := s.Next(logits, nil, 0, step)
			tie := id == 3 && temp >= greedyBelow // a real distribution: half each
			if err != nil || id != 1 && !tie {
				t.Fatalf("temperature %g: id %d, %v; want 1", temp, id, err)
			}
		}
		for _, p := range full(t, s, logits, nil) {
			if !(p >= 0 && p <= 1) {
				t.Errorf("temperature %g: probability %g", temp, p)
			}
		}
	}
	s := mustNew(t, Config{Temperature: 1e-30}, 3)
	if p := full(t, s, []float32{1e20, 2e20, 1e20}, nil); p[1] != 1 {
		t.Errorf("quotients beyond float32: %v, want all on id 1", p)
	}
	s = mustNew(t, Config{RepetitionPenalty: 2}, 3)
	if id, _ := s.Next([]float32{3, 2, 1}, []int32{0, 7, -1}, 0, 0); id != 1 {
		t.Errorf("greedy with a repetition penalty chose %d, want 1", id)
	}
}

func TestPeakedRow(t *testing.T) {
	logits := make([]float32, 33)
	logits[0], logits[7] = 1, 100
	for _, rules := range []Rules{LlamaCpp, Transformers} {
		for _, p := range []float32{0, 1e-45, 0.01, 1} {
			s := mustNew(t, Config{Temperature: 1, TopP: &p, Rules: rules}, len(logits))
			for step := range uint64(50) {
				if id, err := s.Next(logits, nil, 3, step); id != 7 || err != nil {
					t.Fatalf("top-p %g: id %d, %v; want 7", p, id, err)
				}
			}
		}
		flat := make([]float32, 33)
		s := mustNew(t, Config{Temperature: 1, TopP: new(float32(0)), Rules: rules}, len(flat))
		if id, err := s.Next(flat, nil, 3, 0); id != 0 || err != nil {
			t.Errorf("top-p 0 of equals: id %d, %v; want 0", id, err)
		}
	}
}

func TestBadRows(t *testing.T) {
	good := []float32{0, 1, 2, 3}
	for _, temp := range []float32{0, 1} {
		s := mustNew(t, Config{Temperature: temp, TopK: 2}, 4)
		for _, tt := range []struct {
			row  []float32
			want error
		}{
			{good, nil},
			{[]float32{0, float32(math.NaN()), 2, 3}, ErrNotFinite},
			{good, nil},
			{[]float32{0, 1, inf, 3}, ErrNotFinite},
			{[]float32{-inf, -inf, -inf, -inf}, ErrNoCandidate},
			{[]float32{-inf, 1, -inf, -inf}, nil},
			{[]float32{math.MaxFloat32, -math.MaxFloat32, 0, 0}, nil},
		} {
			id, err := s.Next(tt.row, nil, 0, 0)
			if !errors.Is(err, tt.want) || id < 0 || id >= 4 {
				t.Errorf("temperature %g row %v: id %d, error %v; want %v", temp, tt.row, id, err, tt.want)
			}
		}
		if _, err := s.Next(good[:3], nil, 0, 0); err == nil {
			t.Error("a short row was accepted")
		}
	}
}

func TestBannedNeverChosen(t *testing.T) {
	const seed = 5
	r := rand.New(rand.NewPCG(seed, 1))
	logits := make([]float32, 301)
	for _, temp := range []float32{0, 1e-4, 1, 50} {
		for _, rules := range []Rules{LlamaCpp, Transformers} {
			for i := range logits {
				logits[i] = float32(r.NormFloat64()) * 10
			}
			ban := map[int32]float32{}
			for id := range int32(301) {
				if id%7 != 3 {
					ban[id] = -inf
				}
			}
			s := mustNew(t, Config{Temperature: temp, TopK: 60, TopP: new(float32(0.999)), LogitBias: ban, Rules: rules}, 301)
			for step := range uint64(300) {
				if id, err := s.Next(logits, []int32{3}, 0, step); err != nil || id%7 != 3 {
					t.Fatalf("seed %d temperature %g: id %d, %v", seed, temp, id, err)
				}
			}
		}
	}
	s := mustNew(t, Config{Temperature: 1, LogitBias: map[int32]float32{0: -inf, 1: -inf}}, 2)
	if _, err := s.Next([]float32{1, 2}, nil, 0, 0); !errors.Is(err, ErrNoCandidate) {
		t.Errorf("everything banned: %v", err)
	}
}

// The same (seed, sequence, step) draws the same id whatever was drawn before,
// and different seeds differ; a seed does not force greedy.
func TestDrawDependsOnSeedSequenceStep(t *testing.T) {
	logits := make([]float32, 57)
	for i := range logits {
		logits[i] = float32(i%5) / 4
	}
	c := Balanced()
	c.Temperature, c.Seed = 0.9, 7
	text := func(c Config, seq uint64) (ids []int32) {
		s := mustNew(t, c, len(logits))
		for step := range uint64(64) {
			id, err := s.Next(logits, ids, seq, step)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	first := text(c, 0)
	if !slices.Equal(first, text(c, 0)) {
		t.Error("same seed, other text")
	}
	if slices.Equal(first, text(c, 1)) {
		t.Error("two sequences share their draws")
	}
	other := c
	other.Seed = 8
	if slices.Equal(first, text(other, 0)) {
		t.Error("other seed, same text")
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(first)))); n < 5 {
		t.Errorf("only %d different ids in 64 draws at temperature 0.9", n)
	}
	s := mustNew(t, c, len(logits)) // interleaved and backwards
	for step := 63; step >= 0; step-- {
		if _, err := s.Next(logits, nil, 99, uint64(step)); err != nil {
			t.Fatal(err)
		}
		if id, _ := s.Next(logits, first[:step], 0, uint64(step)); id != first[step] {
			t.Fatalf("step %d drew %d after other sequences, %d before", step, id, first[step])
		}
	}
}

func TestDrawFollowsProbs(t *testing.T) {
	logits := []float32{0, 1, 2, -1, 0.5, 1.5, -inf}
	s := mustNew(t, Config{Temperature: 1.3, MinP: 0.05, Seed: 3}, len(logits))
	want := full(t, s, logits, nil)
	const n = 40000
	var seen [7]float64
	for step := range uint64(n) {
		id, err := s.Next(logits, nil, 1, step)
		if err != nil {
			t.Fatal(err)
		}
		seen[id]++
	}
	for id, w := range want {
		if sd := math.Sqrt(w*(1-w)/n) + 1e-12; math.Abs(seen[id]/n-w) > 5*sd {
			t.Errorf("id %d drawn in %.4f of cases, probability %.4f", id, seen[id]/n, w)
		}
	}
}

// Selecting with a heap, in growing portions, or sorting everything must give
// the same candidates, ties included.
func TestSelectionEqualsSort(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 2))
	for trial := range 60 {
		v := 1 + r.IntN(5000)
		row := make([]float32, v)
		for i := range row {
			row[i] = float32(r.IntN(1+r.IntN(400))) / 8
			if r.IntN(50) == 0 {
				row[i] = -inf
			}
		}
		row[r.IntN(v)] = 3
		s := mustNew(t, Config{Temperature: 1}, v)
		want := make([]scored, 0, v)
		for id, x := range row {
			if x >= -math.MaxFloat32 {
				want = append(want, scored{x: x, id: int32(id)})
			}
		}
		slices.SortFunc(want, before)
		for _, k := range []int{1, 2, 40, 127, 128, v, r.IntN(v) + 1} {
			copy(s.work, row)
			s.selectTop(k)
			if got := s.cand; !slices.Equal(got, want[:min(k, len(want))]) {
				t.Fatalf("seed %d trial %d: top %d of %d differ from the sort", seed, trial, k, v)
			}
		}
		// the draw walks the same order as the whole list
		for _, p := range []float32{0.5, 0.9, 0.999} {
			c := mustNew(t, Config{Temperature: 1, TopP: &p}, v)
			cands, err := c.Probs(row, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range cands {
				if x.ID != want[i].id {
					t.Fatalf("seed %d trial %d: place %d holds id %d, want %d", seed, trial, i, x.ID, want[i].id)
				}
			}
		}
		all, _ := s.Probs(row, nil)
		probs := slices.Clone(all)
		for range 20 {
			u, sum, i := r.Float64(), 0.0, 0
			for ; i < len(probs)-1; i++ {
				if sum += float64(probs[i].Prob); sum > u {
					break
				}
			}
			if err := s.load(row, nil); err != nil {
				t.Fatal(err)
			}
			if got := s.draw(u); got != probs[i].ID {
				t.Fatalf("seed %d trial %d: u=%g drew %d, the whole list gives %d", seed, trial, u, got, probs[i].ID)
			}
		}
	}
}

func TestCustomOrder(t *testing.T) {
	row := []float32{4, 3, 2, 1}
	s := mustNew(t, Config{Temperature: 1, TopK: 1, RepetitionPenalty: 8, Order: []Step{StepTopK, StepPenalties}}, 4)
	if id, _ := s.Next(row, []int32{0}, 0, 0); id != 0 {
		t.Errorf("top-k before penalties chose %d, want 0", id)
	}
	s = mustNew(t, Config{Temperature: 1, TopK: 1, RepetitionPenalty: 8}, 4)
	if id, _ := s.Next(row, []int32{0}, 0, 0); id != 1 {
		t.Errorf("penalties before top-k chose %d, want 1", id)
	}
	s = mustNew(t, Config{Temperature: 1, TopK: 2, FrequencyPenalty: 3e38, RepetitionPenalty: 1e-40}, 4)
	for _, p := range full(t, s, row, []int32{0, 0, 1, 2, 3}) {
		if !(p >= 0 && p <= 1) {
			t.Errorf("extreme penalties gave probability %g", p)
		}
	}
	tie := []float32{1, 2, 2, 2, 0}
	if p := full(t, mustNew(t, Config{Temperature: 1, TopK: 2, Rules: Transformers}, 5), tie, nil); p[3] == 0 || p[0] != 0 {
		t.Errorf("transformers top-k with ties: %v, want ids 1, 2, 3", p)
	}
	if p := full(t, mustNew(t, Config{Temperature: 1, TopK: 2}, 5), tie, nil); p[3] != 0 {
		t.Errorf("llama.cpp top-k with ties: %v, want ids 1, 2", p)
	}
}

// Draws are part of the contract: processors, compilers and versions of this
// package must agree on them.
func TestDrawsArePinned(t *testing.T) {
	row := bigRow(3001)
	for i := range row {
		row[i] = float32(row[i]*row[i])/16 + row[i] // a few good candidates, many bad
	}
	history := []int32{5, 17, 5, 2999, 40, 41}
	for i, tt := range []struct {
		c    Config
		want string
	}{
		{Config{Temperature: 1, Seed: 1}, "[758 608 1263 1506 1393 1432 1157 1865 1355 1148 526 2874]"},
		{Config{Temperature: 0.8, TopP: new(float32(0.9)), RepetitionPenalty: 1.1, Seed: 2}, "[2307 1011 384 2874 1627 1157 625 2293 2407 1157 2192 254]"},
		{Config{Temperature: 1.7, MinP: 0.02, PresencePenalty: 0.5, Seed: 3}, "[573 1018 758 1132 1157 2428 2652 1234 2409 2639 1449 1171]"},
		{Config{Temperature: 0.9, TopK: 300, TopP: new(float32(0.95)), Rules: Transformers, Seed: 4}, "[983 1432 1828 584 148 2103 926 2449 2153 111 1011 2466]"},
		{Balanced(), "[2319 2628 2319 55 1263 1318 2628 1685 2449 971 2326 1157]"},
	} {
		s := mustNew(t, tt.c, len(row))
		var got []int32
		for step := range uint64(12) {
			id, err := s.Next(row, history, 5, step)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, id)
		}
		if g := fmt.Sprint(got); g != tt.want {
			t.Errorf("config %d drew %s, want %s", i, g, tt.want)
		}
	}
}

func bigRow(v int) []float32 {
	r := rand.New(rand.NewPCG(1, 9))
	row := make([]float32, v)
	for i := range row {
		row[i] = float32(r.IntN(1<<20))/(1<<16) - 8
	}
	return row
}

func TestNoAllocation(t *testing.T) {
	row, history := bigRow(4001), make([]int32, 100)
	for i, c := range []Config{{}, Balanced(), {Temperature: 1}, {Temperature: 1, TopP: new(float32(0.9)), RepetitionPenalty: 1.1},
		{Temperature: 1, MinP: 0.1, TopK: 50, Rules: Transformers, RepetitionPenalty: 1.1}} {
		s := mustNew(t, c, len(row))
		step := uint64(0)
		if n := testing.AllocsPerRun(50, func() { s.Next(row, history, 0, step%8); step++ }); n != 0 {
			t.Errorf("config %d: %g allocations per call", i, n)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	row, history := bigRow(151936), make([]int32, 64)
	for name, c := range map[string]Config{"greedy": {}, "balanced": Balanced(), "plain": {Temperature: 1}, "top-p": {Temperature: 1, TopP: new(float32(0.95))},
		"transformers": {Temperature: 0.6, TopK: 20, TopP: new(float32(0.95)), Rules: Transformers}} {
		b.Run(fmt.Sprintf("%s/vocab=%d", name, len(row)), func(b *testing.B) {
			s := mustNew(b, c, len(row))
			b.ReportAllocs()
			for step := uint64(0); b.Loop(); step++ {
				if _, err := s.Next(row, history, 0, step); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
