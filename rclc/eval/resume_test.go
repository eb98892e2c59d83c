package eval

import (
	"slices"
	"strings"
	"testing"

	"samebit/rclc"
	"samebit/token/jinja"
)

// Results are taken over by the run that they are of, and by no other.
func TestResume(t *testing.T) {
	m, tok := tiny(t, "qwen3-bf16", 1)
	other, _ := tiny(t, "qwen35-f32", 1)
	template, err := jinja.Parse("plain", "{% for m in messages %}{{ m.content }}\n{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	spoken, err := rclc.NewChat(tok, template)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := rclc.NewModel(m.Decoder(), m.Pool(), rclc.ModelConfig{Tokenizer: tok, Chat: spoken})
	if err != nil {
		t.Fatal(err)
	}
	made := func(tokens int) []Case {
		cases, err := Generate(tok, GenerateConfig{Cases: 3, Documents: 2, Tokens: tokens, Seed: 4})
		if err != nil {
			t.Fatal(err)
		}
		return cases
	}
	cases, short := made(250), made(200)
	if short[0].Question != cases[0].Question || !slices.Equal(short[0].Answers, cases[0].Answers) {
		t.Fatal("the length of documents decides on the question: shorter ones do not make the same case with other documents")
	}
	answers := slices.Clone(cases)
	answers[1].Answers = []string{"nobody"}

	cfg := Config{Methods: []string{Recent, Random}, Ratios: []int{4}, Answer: []int{}, MaxTokens: 2, Seed: 9}
	have, err := Run(bg, m, tok, cases[:2], cfg)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(f func(*Result)) []Result {
		out := slices.Clone(have)
		f(&out[0])
		return out
	}
	span := func(s ...[2]int) []Result {
		return changed(func(r *Result) { r.Spans = [][][2]int{r.Spans[0], s} })
	}
	const foreign = "name another file for these"
	for _, tt := range []struct {
		name  string
		m     *rclc.Model
		cases []Case
		set   func(*Config)
		have  []Result
		want  string // "": taken over
	}{
		{name: "answers, methods and ratios come later", set: func(c *Config) { c.Methods, c.Ratios, c.Answer = []string{Recent, Random, None}, []int{2, 4}, nil }},
		{name: "more cases", cases: cases},
		{name: "fewer cases", cases: cases[:1], want: "case 1"},
		{name: "no case", have: changed(func(r *Result) { r.Case = -1 }), want: "case -1"},
		{name: "other documents", cases: short[:2], want: "case 0 of other documents"},
		{name: "other answers", cases: answers[:2], want: "case 1 of other documents, question or answers"},
		{name: "other model", m: other, want: foreign},
		{name: "other template", m: plain, want: foreign},
		{name: "other span", set: func(c *Config) { c.Span = 8 }, want: foreign},
		{name: "other seed", set: func(c *Config) { c.Seed++ }, want: foreign},
		{name: "other placement", set: func(c *Config) { c.Placement = InTurn }, want: foreign},
		{name: "longer answers", set: func(c *Config) { c.MaxTokens++ }, want: foreign},
		{name: "an older version's", have: changed(func(r *Result) { r.Run = "" }), want: foreign},

		// a file that was changed by hand
		{name: "beyond the document", have: span([2]int{0, 1000}), want: "positions 0 to 1000"},
		{name: "before it", have: span([2]int{-1, 2}), want: "positions -1 to 2"},
		{name: "backwards", have: span([2]int{3, 2}), want: "positions 3 to 2"},
		{name: "twice", have: span([2]int{0, 4}, [2]int{3, 5}), want: "positions 3 to 5, after 4"},
		{name: "too few documents", have: changed(func(r *Result) { r.Spans = r.Spans[:1] }), want: "spans of 1 documents out of 2"},
		{name: "too many", have: changed(func(r *Result) { r.Spans = append(r.Spans[:2:2], r.Spans[0]) }), want: "spans of 3 documents out of 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, now, cfg := m, cases[:2], cfg
			if tt.m != nil {
				m = tt.m
			}
			if tt.cases != nil {
				now = tt.cases
			}
			if cfg.Have = have; tt.have != nil {
				cfg.Have, cfg.Answer = tt.have, nil
			}
			if tt.set != nil {
				tt.set(&cfg)
			}
			got, err := Run(bg, m, tok, now, cfg)
			switch {
			case tt.want != "":
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want %q", err, tt.want)
				}
			case err != nil:
				t.Error(err)
			default: // together they are one run
				for i, r := range got {
					if r.Run != have[0].Run {
						t.Errorf("result %d is of run %q, the first of %q", i, r.Run, have[0].Run)
					}
				}
				if len(got) <= len(have) {
					t.Errorf("%d results after %d", len(got), len(have))
				}
			}
		})
	}
}
