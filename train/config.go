// Package train trains small language models: a config file says what data, what
// model and how long, and the same file gives the same weights to the last bit on
// any number of workers, in any micro-batches, interrupted or not.
package train

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"samebit/grad"
	"samebit/qwen3"
	"samebit/train/tasks"
)

// Config is a training as its JSON file describes it.
type Config struct {
	Name string `json:"name"`
	Seed uint64 `json:"seed"`

	Vocabulary Vocabulary      `json:"vocabulary"`
	Model      json.RawMessage `json:"model"` // a model's config.json; vocab_size and token ids are filled in

	// Residual is a factor on the first values of what attention and feed-forward parts
	// write to the residual stream; 0 means 1.
	Residual float64 `json:"residual,omitempty"`

	// Prose are text files to train on besides the generated tasks; the last
	// twentieth of their text is held out. A name may begin with $GOROOT.
	Prose []string `json:"prose,omitempty"`

	Stages    []Stage   `json:"stages"`
	Optimiser Optimiser `json:"optimiser"`
	// Text is the weight of the loss of tokens that are no answers, next to 1 for
	// those that are; 0 learns answers only.
	Text float32 `json:"text"`

	Validation Validation `json:"validation"`
	Save       int        `json:"save"` // steps between checkpoints; 0 means 100
}

// Vocabulary says which tokenizer is trained on the data before the model is.
type Vocabulary struct {
	Size    int    `json:"size"`
	Samples int    `json:"samples"`       // generated texts to train it on; 0 means 2000
	Pre     string `json:"pre,omitempty"` // how text is cut into pieces, as token.TrainConfig has it
}

// Stage is a part of the training with one mixture of data.
type Stage struct {
	Steps     int            `json:"steps"`
	Rows      int            `json:"rows"`    // of a batch, at least
	Least     int            `json:"least"`   // rows of a sequence, about
	Most      int            `json:"most"`    // rows of a sequence, at most
	Answers   int            `json:"answers"` // questions of a task, at most; 0 means 1
	Prose     float64        `json:"prose"`   // share of sequences that are prose
	Kinds     []tasks.Kind   `json:"kinds,omitempty"`
	Formats   []tasks.Format `json:"formats,omitempty"`
	Style     tasks.Style    `json:"style,omitempty"`
	ProseText float32        `json:"prose_text,omitempty"` // weight of the loss of prose; 0 means 1
	Text      float32        `json:"text,omitempty"`       // as the config's text, which 0 means
	Rates     []float64      `json:"rates,omitempty"`      // of the first and the last step, on a line between; nil means the schedule's
}

// Optimiser are the constants of AdamW and of its schedule over all stages.
type Optimiser struct {
	Rate   float64 `json:"rate"`
	Floor  float64 `json:"floor"` // fraction of the rate that the cosine ends at
	Warmup int     `json:"warmup"`
	Beta2  float64 `json:"beta2,omitempty"` // 0 means 0.999
	Decay  float64 `json:"decay"`
	Clip   float64 `json:"clip"`
}

// Validation says how the model is judged while it is trained.
type Validation struct {
	Every    int   `json:"every"`    // steps; 0 means never
	Samples  int   `json:"samples"`  // tasks with held-out names per length; 0 means 100
	Lengths  []int `json:"lengths"`  // rows of their contexts, about
	Patience int   `json:"patience"` // validations without improvement that end the training; 0 means never
}

// ErrConfig is the cause when a config file is wrong.
var ErrConfig = errors.New("bad training config")

// ReadConfig reads and checks a config file.
func ReadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("train: %w: name a JSON file such as models/tiny.json", err)
	}
	c, err := ParseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ParseConfig parses and checks the text of a config file.
func ParseConfig(data []byte) (Config, error) {
	var c Config
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("train: %w: %w", ErrConfig, err)
	}
	if err := c.check(); err != nil {
		return Config{}, fmt.Errorf("train: %w: %w", ErrConfig, err)
	}
	return c, nil
}

func (c *Config) check() error {
	if c.Vocabulary.Size < 256+len(tasks.Control) || c.Vocabulary.Size > 1<<20 {
		return fmt.Errorf("vocabulary.size is %d: at least %d (bytes and control tokens), at most a million", c.Vocabulary.Size, 256+len(tasks.Control))
	}
	if c.Vocabulary.Samples < 0 || c.Save < 0 {
		return fmt.Errorf("vocabulary.samples is %d and save %d: neither may be negative", c.Vocabulary.Samples, c.Save)
	}
	if len(c.Stages) == 0 {
		return errors.New("stages is empty: give at least one, with steps, rows, least and most")
	}
	shape, _, err := c.shape(0)
	if err != nil {
		return err
	}
	for i, s := range c.Stages {
		switch {
		case s.Steps < 1 || s.Rows < 1:
			return fmt.Errorf("stages[%d] has %d steps of %d rows: both must be at least 1", i, s.Steps, s.Rows)
		case s.Least < 16 || s.Most < s.Least+32:
			return fmt.Errorf("stages[%d] has sequences of %d to %d rows: least must be at least 16, and most at least 32 more", i, s.Least, s.Most)
		case s.Most > shape.Context:
			return fmt.Errorf("stages[%d] has sequences of up to %d rows, the model's context is %d: raise max_position_embeddings or lower most", i, s.Most, shape.Context)
		case s.Answers < 0 || s.Answers > 64:
			return fmt.Errorf("stages[%d] has %d answers: from 0 to 64", i, s.Answers)
		case !(s.Prose >= 0 && s.Prose <= 1):
			return fmt.Errorf("stages[%d] has a share of prose of %g: from 0 to 1", i, s.Prose)
		case s.Prose > 0 && len(c.Prose) == 0:
			return fmt.Errorf("stages[%d] wants prose, and prose names no file", i)
		case !(s.ProseText >= 0 && s.ProseText <= 1):
			return fmt.Errorf("stages[%d] has a prose_text of %g: from 0 to 1", i, s.ProseText)
		case !(s.Text >= 0 && s.Text <= 1):
			return fmt.Errorf("stages[%d] has a text of %g: from 0 to 1", i, s.Text)
		case s.Rates != nil && (len(s.Rates) != 2 || !rate(s.Rates[0]) || !rate(s.Rates[1])):
			return fmt.Errorf("stages[%d] has rates %v: two, of the first and of the last step, both in (0, 1)", i, s.Rates)
		}
		if err := (tasks.Config{Kinds: s.Kinds, Formats: s.Formats, Style: s.Style}).Check(); err != nil {
			return fmt.Errorf("stages[%d]: %w", i, err)
		}
	}
	o := c.Optimiser
	if !rate(o.Rate) || !(o.Floor >= 0 && o.Floor <= 1) || o.Warmup < 0 || !(o.Beta2 >= 0 && o.Beta2 < 1) || !(o.Decay >= 0 && o.Decay < 1) || !(o.Clip >= 0) {
		return fmt.Errorf("optimiser is %+v: rate in (0, 1), floor in [0, 1], warmup and clip not negative, beta2 and decay in [0, 1)", o)
	}
	if !(c.Residual >= 0 && c.Residual <= 10) {
		return fmt.Errorf("residual is %g: from 0 to 10", c.Residual)
	}
	if !(c.Text >= 0 && c.Text <= 1) {
		return fmt.Errorf("text is %g: from 0 to 1", c.Text)
	}
	v := c.Validation
	if v.Every < 0 || v.Samples < 0 || v.Patience < 0 || v.Every > 0 && len(v.Lengths) == 0 {
		return fmt.Errorf("validation is %+v: nothing may be negative, and lengths are needed", v)
	}
	for _, n := range v.Lengths {
		if n < 32 || n > shape.Context {
			return fmt.Errorf("validation.lengths has %d: from 32 to the model's context of %d", n, shape.Context)
		}
	}
	return nil
}

// Steps is the number of steps of all stages.
func (c *Config) Steps() int {
	n := 0
	for _, s := range c.Stages {
		n += s.Steps
	}
	return n
}

func rate(r float64) bool { return r > 0 && r < 1 }

// stage is the index of the stage of step n, counted from 1, and which of its steps n
// is, from 0.
func (c *Config) stage(n int) (i, at int) {
	at = n - 1
	for i < len(c.Stages)-1 && at >= c.Stages[i].Steps {
		at -= c.Stages[i].Steps
		i++
	}
	return i, at
}

// judged says whether the model is validated after step n.
func (c *Config) judged(n int) bool {
	v := c.Validation
	return v.Every > 0 && (n%v.Every == 0 || n == c.Steps())
}

// samples is the number of texts that the vocabulary is trained on.
func (c *Config) samples() int { return cmp.Or(c.Vocabulary.Samples, 2000) }

// samples is the number of tasks of a length.
func (v *Validation) samples() int { return cmp.Or(v.Samples, 100) }

// rate is the learning rate of step n, counted from 1.
func (c *Config) rate(n int) float64 {
	i, at := c.stage(n)
	s := &c.Stages[i]
	if s.Rates == nil {
		o := c.Optimiser
		return grad.Schedule{Peak: o.Rate, Warmup: o.Warmup, Total: c.Steps(), Floor: o.Floor}.At(n)
	}
	along := float64(at) / float64(max(1, s.Steps-1))
	return float64(float32(s.Rates[0] + float64((s.Rates[1]-s.Rates[0])*along)))
}

// shape completes the model's config.json for a vocabulary of n ids, and reads it.
func (c *Config) shape(n int) (qwen3.Config, []byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(c.Model, &fields); err != nil {
		return qwen3.Config{}, nil, fmt.Errorf("model is no config.json: %w", err)
	}
	if n == 0 {
		n = c.Vocabulary.Size
	}
	end := n - len(tasks.Control) + slices.Index(tasks.Control, endOfTurn)
	fields["vocab_size"] = n
	fields["eos_token_id"] = end
	fields["dtype"] = "bfloat16"
	text, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return qwen3.Config{}, nil, err
	}
	shape, err := qwen3.ParseConfig(text, nil)
	if err != nil {
		return qwen3.Config{}, nil, fmt.Errorf("model: %w", err)
	}
	if shape.Context < 1 {
		return qwen3.Config{}, nil, errors.New("model has no max_position_embeddings")
	}
	return shape, append(text, '\n'), nil
}

// digest identifies what decides a training's bits, besides the text of its prose.
func (c *Config) digest() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // a parsed config can be written
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}
