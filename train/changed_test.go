package train

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"samebit/grad/journal"
)

// changeable is a config whose stages have rates of their own.
func changeable(t testing.TB) Config {
	c := small(t, denseModel, 6)
	c.Stages[0].Rates, c.Stages[1].Rates = []float64{0.003, 0.003}, []float64{0.003, 0.001}
	c.Validation.Every, c.Save = 2, 100
	return c
}

// with is a config after a change.
func with(c Config, change func(c *Config)) Config {
	c.Stages, c.Prose, c.Validation.Lengths = slices.Clone(c.Stages), slices.Clone(c.Prose), slices.Clone(c.Validation.Lengths)
	change(&c)
	return c
}

// A training that goes on with a changed config ends where one of that config does, file
// by file, and needs the flag once.
func TestChanged(t *testing.T) {
	base := changeable(t)
	words := t.TempDir()
	if _, err := vocabularyIn(t.Context(), t, base, words, false); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		until  int
		first  func(c *Config)
		change func(c *Config)
	}{
		{"a later stage is another, and one is added", 3, func(*Config) {}, func(c *Config) {
			c.Name, c.Save, c.Residual, c.Vocabulary.Samples = "other", 2, 1, 20
			c.Stages[1] = Stage{Steps: 2, Rows: 200, Least: 40, Most: 100, Text: 0.5, Rates: []float64{0.002, 0.002}}
			c.Stages = append(c.Stages, Stage{Steps: 1, Rows: 100, Least: 40, Most: 100, Rates: []float64{0.001, 0.001}})
		}},
		{"the stage in progress is cut short", 2, func(*Config) {}, func(c *Config) {
			c.Stages[0].Steps, c.Stages[0].Answers = 2, 3
			c.Validation.Patience = 9
		}},
		{"a training is prolonged whose last step was validated for its end", 0, func(c *Config) {
			c.Validation.Every = 4
			c.Stages[1].Rates = []float64{0.9, 0.9} // and was not the best
		}, func(c *Config) { c.Stages = append(c.Stages, c.Stages[0]) }},
		{"nothing was validated yet", 3, func(c *Config) { c.Validation.Every = 4 }, func(c *Config) {
			c.Validation = Validation{Every: 5, Samples: 2, Lengths: []int{40}}
		}},
		{"a training is prolonged that its patience ended", 0, func(c *Config) {
			c.Validation.Every, c.Validation.Patience = 1, 1
			c.Stages[0].Rates = []float64{0.001, 0.9}
		}, func(c *Config) { c.Validation.Patience = 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			was := with(base, tt.first)
			is := with(was, tt.change)
			whole, dir := begun(t, words), begun(t, words) // all have the same vocabulary
			want, err := setup{}.run(t, t.Context(), is, whole)
			if err != nil {
				t.Fatal(err)
			}
			before, err := setup{options: Options{Until: tt.until}}.run(t, t.Context(), was, dir)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := (setup{options: Options{Until: tt.until}}).run(t, t.Context(), was, dir); err != nil || again.Steps != before.Steps || again.Stopped != before.Stopped {
				t.Errorf("the same again: %v, %+v, not %+v", err, again, before)
			}
			if before.Steps >= want.Steps {
				t.Fatalf("%d steps were made before the change, of %d", before.Steps, want.Steps)
			}
			if _, err := (setup{}).run(t, t.Context(), is, dir); err == nil || !strings.Contains(err.Error(), "go on with it by --changed") {
				t.Fatalf("without being told: %v", err)
			}
			got, err := setup{options: Options{Changed: true, Until: before.Steps}}.run(t, t.Context(), is, dir)
			if err != nil || got.Steps != before.Steps || got.Hash != before.Hash {
				t.Fatalf("changed: %v, %d steps, %s, not %s", err, got.Steps, got.Hash, before.Hash)
			}
			if got, err = (setup{}).run(t, t.Context(), is, dir); err != nil || got.Hash != want.Hash || got.BestAt != want.BestAt {
				t.Fatalf("changed and gone on with: %v, %+v, not %+v", err, got, want)
			}
			same(t, whole, dir, journal.StateFile, journal.LogFile, "model/model.safetensors", "model/config.json", "model/tokenizer.json")
		})
	}
}

// What a training is made of is not changed: the error names the first difference.
func TestChangedRefuses(t *testing.T) {
	was := changeable(t)
	log := func(losses ...float64) (l []Point) {
		for i, x := range losses {
			l = append(l, Point{Step: i + 1, AnswerLoss: x})
		}
		return l
	}
	at := func(n, best int) *progress {
		return &progress{Head: journal.Head{Steps: n}, Best: new(Judgement), BestAt: best, Training: &was}
	}
	falling := log(0, 5, 0, 4, 0, 3)
	for _, tt := range []struct {
		says   string
		p      *progress
		log    []Point
		change func(c *Config)
	}{
		{"seed was 5 and is 6", at(4, 4), falling, func(c *Config) { c.Seed++ }},
		{"vocabulary.size was 300 and is 301", at(4, 4), falling, func(c *Config) { c.Vocabulary.Size++ }},
		{"vocabulary.samples was 20 and is 2000", at(4, 4), falling, func(c *Config) { c.Vocabulary.Samples = 0 }},
		{"model.num_hidden_layers was 2 and is 3", at(4, 4), falling, func(c *Config) {
			c.Model = []byte(strings.Replace(denseModel, `"num_hidden_layers": 2`, `"num_hidden_layers": 3`, 1))
		}},
		{"model.attention_dropout was not given and is 0", at(4, 4), falling, func(c *Config) {
			c.Model = []byte(strings.Replace(denseModel, "{", `{"attention_dropout": 0.0,`, 1))
		}},
		{"residual was 1 and is 0.5", at(4, 4), falling, func(c *Config) { c.Residual = 0.5 }},
		{"prose was [", at(4, 4), falling, func(c *Config) { c.Prose[0] += "x" }},
		{"optimiser.beta2 was 0.999 and is 0.98", at(4, 4), falling, func(c *Config) { c.Optimiser.Beta2 = 0.98 }},
		{"optimiser.decay was 0.01 and is 0.02", at(1, 0), falling, func(c *Config) { c.Optimiser.Decay = 0.02 }},
		{"step 4: stages[1].rows was 400 and is 401", at(4, 4), falling, func(c *Config) { c.Stages[1].Rows++ }},
		{"step 1: stages[0].kinds was not given and is [\"copy\"]", at(4, 4), falling, func(c *Config) { c.Stages[0].Kinds = append(c.Stages[0].Kinds, "copy") }},
		{"step 1: stages[0].text was 0.2 and is 0.3", at(4, 4), falling, func(c *Config) { c.Text = 0.3 }},
		{"step 3: stages[1].answers was 3 and is 1", at(3, 2), falling, func(c *Config) { c.Stages[0].Steps = 2 }},
		{"the rate of step 5 was 0.002", at(5, 4), falling, func(c *Config) { c.Stages[1].Steps++ }},
		{"the rate of step 4 was 0.003", at(4, 4), falling, func(c *Config) { c.Stages[1].Rates = nil }},
		{"it ends after step 5", at(6, 6), falling, func(c *Config) { c.Stages[1].Steps = 2 }},
		{"step 2 was validated and would not be: validation.every was 2 and is 3", at(4, 4), falling, func(c *Config) { c.Validation.Every = 3 }},
		{"step 1 was not validated and would be", at(1, 0), falling, func(c *Config) { c.Validation.Every = 1 }},
		{"step 3 was not validated and would be: validation.every was 2 and is 2, the last step was 6 and is 3", at(3, 2), falling, func(c *Config) { c.Stages = c.Stages[:1] }},
		{"validation.samples was 5 and is 100, and the model that is kept", at(2, 2), falling, func(c *Config) { c.Validation.Samples = 0 }},
		{"validation.lengths was [64] and is [64,128], and the model that is kept", at(2, 2), falling, func(c *Config) { c.Validation.Lengths = append(c.Validation.Lengths, 128) }},
		{"it ends after step 4, by a validation.patience of 1", at(6, 2), log(0, 4, 0, 5, 0, 6), func(c *Config) { c.Validation.Patience = 1 }},
	} {
		c := with(was, tt.change)
		if err := c.check(); err != nil {
			t.Fatalf("%s: %v", tt.says, err)
		}
		if err := c.takesOver(tt.p, tt.log); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v", tt.says, err)
		}
		n := *tt.p
		n.Steps, n.Best, n.BestAt = 0, nil, 0
		if err := c.takesOver(&n, tt.log); (err == nil) != strings.Contains("optimiser step the it validation", strings.FieldsFunc(tt.says, func(r rune) bool { return r == ' ' || r == '.' })[0]) {
			t.Errorf("%q, before the first step: %v", tt.says, err)
		}
	}
	// the model of a last step that would be none
	short := with(was, func(c *Config) { c.Validation.Every = 4 })
	p := at(6, 6)
	p.Training = &short
	long := with(short, func(c *Config) { c.Stages = append(c.Stages, c.Stages[0]) })
	if err := long.takesOver(p, log(0, 0, 0, 4, 0, 3)); err == nil || !strings.Contains(err.Error(), "step 6 would not be validated") {
		t.Errorf("the best model is that of a last step: %v", err)
	}
	if p.BestAt, p.Bad = 4, 1; long.takesOver(p, log(0, 0, 0, 4, 0, 5)) != nil || p.Bad != 0 || p.BestAt != 4 {
		t.Errorf("a last step that was not the best: %+v", p)
	}
}

// A directory that is refused stays as it was, also one whose state is too old to say
// what it was made with.
func TestChangedLeavesTheDirectory(t *testing.T) {
	was, dir := changeable(t), t.TempDir()
	if _, err := (setup{options: Options{Until: 1}}).run(t, t.Context(), was, dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, journal.StateFile)
	refused := func(c Config, says string) {
		t.Helper()
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (setup{options: Options{Changed: true}}).run(t, t.Context(), c, dir); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", says, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Errorf("%q: the state changed: %v", says, err)
		}
	}
	other := with(was, func(c *Config) { c.Stages[0].Rows++ })
	refused(other, "would not have made the 1 steps of")
	page, err := os.ReadFile(was.Prose[0])
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(was.Prose[0], []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(string(page) + "\n")
	refused(was, "is not the text that the 1 steps of")
	refused(with(was, func(c *Config) { c.Stages[1].Rows++ }), "is not the text that the 1 steps of")
	write(strings.ReplaceAll(string(page)+"\n", "\n", "\r\n"))
	refused(was, "is not the text that the 1 steps of")
	write(string(page))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.NewReplacer(`\"training\":`, `\"practice\":`, `\"prose_sha256\":`, `\"verse_sha256\":`).Replace(string(text))
	if strings.Contains(old, "training") || strings.Contains(old, "prose_sha256") || len(old) != len(text) {
		t.Fatal("the state does not have its config and prose")
	}
	if err := os.WriteFile(path, []byte(old), 0o666); err != nil {
		t.Fatal(err)
	}
	refused(other, "does not have the config that it was made with: make one more step with that config")
	if _, err := (setup{options: Options{Until: 2, Changed: true}}).run(t, t.Context(), was, dir); err != nil {
		t.Fatalf("its own config: %v", err)
	}
	refused(other, "would not have made the 2 steps of")
	logFile := filepath.Join(dir, journal.LogFile)
	if text, err = os.ReadFile(logFile); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	if err := os.WriteFile(logFile, []byte(lines[0]+lines[1]), 0o666); err != nil {
		t.Fatal(err)
	}
	refused(with(was, func(c *Config) { c.Stages[1].Rows++ }), "log.csv has 1 of the 2 steps of")
}
