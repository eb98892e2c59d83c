package train

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"

	"samebit/checkpoint"
	"samebit/grad/journal"
)

// openState opens the state of an interrupted training, nil if there is none. Another
// config's is opened if the run may go on with a changed config, and this one would
// have made the steps that are made; p is then what it would have said itself.
func (r *run) openState(p *progress) (saved *checkpoint.Set, changed bool, err error) {
	saved, err = r.log.Open(p)
	if err == nil || p.Format != format || p.Config == r.log.Config {
		return saved, false, err
	}
	if !r.opt.Changed {
		return nil, false, fmt.Errorf("%w; if this config changes no step that is made, go on with it by --changed", err)
	}
	path := filepath.Join(r.dir, journal.StateFile)
	if p.Training == nil || p.Training.digest() != p.Config || p.Training.check() != nil {
		return nil, false, fmt.Errorf("train: %s does not have the config that it was made with: make one more step with that config, then change it", path)
	}
	log, err := ReadLog(r.dir)
	if err != nil {
		return nil, false, err
	}
	if len(log) < p.Steps { // whose validations say what model is kept
		return nil, false, fmt.Errorf("train: %s has %d of the %d steps of %s: go on with the config that it was made with", journal.LogFile, len(log), p.Steps, path)
	}
	id := r.log.Config
	r.log.Config = p.Config
	if saved, err = r.log.Open(p); err != nil {
		return nil, false, err
	}
	r.log.Config = id
	if err := r.cfg.takesOver(p, log); err != nil {
		saved.Close()
		return nil, false, fmt.Errorf("train: this config would not have made the %d steps of %s: %w", p.Steps, path, err)
	}
	return saved, true, nil
}

// takesOver checks that a training of c would have come to the state that p describes,
// with this log, and takes what is left of p's validations over. The error names the
// first difference.
func (c *Config) takesOver(p *progress, log []Point) error {
	was, n := p.Training, p.Steps
	if c.Steps() < n {
		return fmt.Errorf("it ends after step %d", c.Steps())
	}
	a, b := was.basis(), c.basis()
	if n == 0 {
		a.Optimiser, b.Optimiser = optimiser{}, optimiser{}
	}
	if err := difference("", a, b); err != nil {
		return err
	}
	if err := difference("model.", was.completed(), c.completed()); err != nil {
		return err
	}
	for k := 1; k <= n; k++ {
		i, _ := c.stage(k)
		if err := difference(fmt.Sprintf("step %d: stages[%d].", k, i), was.mixture(k), c.mixture(k)); err != nil {
			return err
		}
		if x, y := was.rate(k), c.rate(k); x != y {
			return fmt.Errorf("the rate of step %d was %v and is %v: a stage in progress must keep its line from the first rate to the last, and the schedule its number of steps", k, x, y)
		}
	}
	return c.takesOverValidations(p, log)
}

// takesOverValidations is the part of takesOver that decides which model is kept.
func (c *Config) takesOverValidations(p *progress, log []Point) error {
	was, n := p.Training, p.Steps
	best, bad, made := math.Inf(1), 0, 0
	for _, l := range log {
		if l.Step > n {
			break
		}
		// What a shorter config validated at its end is undone below.
		if x, y := was.judged(l.Step), c.judged(l.Step); y && !x {
			return fmt.Errorf("step %d was not validated and would be: validation.every was %d and is %d, the last step was %d and is %d", l.Step, was.Validation.Every, c.Validation.Every, was.Steps(), c.Steps())
		} else if x && !y && l.Step != was.Steps() {
			return fmt.Errorf("step %d was validated and would not be: validation.every was %d and is %d", l.Step, was.Validation.Every, c.Validation.Every)
		} else if !y {
			continue
		}
		if made++; made == 1 || l.AnswerLoss < best {
			best, bad = l.AnswerLoss, 0
		} else {
			bad++
		}
		if v := c.Validation; v.Patience > 0 && bad >= v.Patience && l.Step < n {
			return fmt.Errorf("it ends after step %d, by a validation.patience of %d", l.Step, v.Patience)
		}
	}
	p.Bad = bad
	if made == 0 {
		p.Best, p.BestAt = nil, 0
		return nil
	}
	if err := difference("validation.", was.judging(), c.judging()); err != nil {
		return fmt.Errorf("%w, and the model that is kept was chosen by it", err)
	}
	if !c.judged(p.BestAt) {
		return fmt.Errorf("step %d would not be validated (validation.every is %d) and is that of the model that is kept, since it was the last", p.BestAt, c.Validation.Every)
	}
	return nil
}

// basis is what decides about every step besides the model and the text of the prose, in
// the form that has one spelling.
type basis struct {
	Seed       uint64     `json:"seed"`
	Vocabulary Vocabulary `json:"vocabulary"`
	Residual   float64    `json:"residual"`
	Prose      []string   `json:"prose,omitempty"`
	Optimiser  optimiser  `json:"optimiser"`
}

// optimiser are the constants of AdamW that rates do not have in them.
type optimiser struct {
	Beta2 float64 `json:"beta2"`
	Decay float64 `json:"decay"`
	Clip  float64 `json:"clip"`
}

func (c *Config) basis() basis {
	o := c.Optimiser
	b := basis{c.Seed, c.Vocabulary, cmp.Or(c.Residual, 1), c.Prose, optimiser{cmp.Or(o.Beta2, 0.999), o.Decay, o.Clip}}
	b.Vocabulary.Samples = c.samples()
	return b
}

// completed is the model's config.json.
func (c *Config) completed() json.RawMessage {
	_, text, err := c.shape(0)
	if err != nil {
		panic(err) // a checked config has a model
	}
	return text
}

// mixture is what the batch of step n is drawn from: its stage without length and rates.
func (c *Config) mixture(n int) Stage {
	i, _ := c.stage(n)
	s := c.Stages[i]
	s.Steps, s.Rates = 0, nil
	s.Answers, s.ProseText, s.Text = max(1, s.Answers), cmp.Or(s.ProseText, 1), cmp.Or(s.Text, c.Text)
	return s
}

// judging is how a validation is made.
func (c *Config) judging() any {
	return struct {
		Samples int   `json:"samples"`
		Lengths []int `json:"lengths"`
	}{c.Validation.samples(), c.Validation.Lengths}
}

// difference names the first value in which two configs differ, nil if there is none.
func difference(path string, was, is any) error {
	a, err := plain(was)
	b, errB := plain(is)
	if err = errors.Join(err, errB); err != nil {
		return err
	}
	return differs(path, a, b)
}

func differs(path string, a, b any) error {
	x, ok := a.(map[string]any)
	y, also := b.(map[string]any)
	if !ok || !also {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return fmt.Errorf("%s was %s and is %s", path, spelled(a), spelled(b))
	}
	all := maps.Clone(x)
	maps.Copy(all, y)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		next := path + name
		if _, deep := all[name].(map[string]any); deep {
			next += "."
		}
		if err := differs(next, x[name], y[name]); err != nil {
			return err
		}
	}
	return nil
}

// plain is a value as its JSON has it.
func plain(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out any
	return out, d.Decode(&out)
}

// spelled is a value for an error.
func spelled(v any) string {
	if v == nil {
		return "not given"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
