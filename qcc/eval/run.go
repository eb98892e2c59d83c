// Package eval judges memories of constant size: a model reads a text with each of
// them and answers questions about it, and predicts held-out text beside the model
// with its full cache. Everything is counted against the bytes that the memory holds.
package eval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"samebit/backend"
	"samebit/internal/jsonlines"
	"samebit/nn"
	"samebit/qcc"
	"samebit/state"
	"samebit/token"
)

// errBudget is the cause when a method cannot spend a budget; the cell is left out.
var errBudget = errors.New("budget too small")

// Model is what is judged.
type Model struct {
	Decoder   *nn.Decoder // with full attention
	Device    backend.Device
	Pool      *state.Pool
	Tokenizer *token.Tokenizer
}

// Config says what a run compares. The zero value asks what the models in the
// program know.
type Config struct {
	Tasks     []Task   // nil: Forms
	Methods   []string // nil: Streaming. Full is always there
	Budgets   []int    // rows of keys and values, multiples of 64; nil: 128 and 256
	Lengths   []int    // tokens of the contexts, about; nil: 512
	Pairs     []int    // of recall; nil: 16
	Contexts  int      // of every task, length and number of pairs; 0: 8
	Questions int      // about each context, at most; 0: 8
	Seed      uint64

	Text     []int32      // held-out text; nil: none is read
	TextRows int          // of it in one sequence; 0: the longest length
	Adapter  *qcc.Adapter // of the method archive, whatever its budget; nil: as published

	// Have are results of an earlier run; what they hold is not done again.
	Have []Result
	// Emit is called with each new result.
	Emit func(Result) error
	// Progress, if set, is told how many contexts are done.
	Progress func(done, total int)
}

// Result is what one method did with one context, or with one piece of text.
type Result struct {
	Task      Task   `json:"task"`
	Length    int    `json:"length"`
	Pairs     int    `json:"pairs,omitempty"`
	Index     int    `json:"index"`
	Method    string `json:"method"`
	Rows      int    `json:"budget_rows,omitempty"`
	Tokens    int    `json:"tokens"`      // of the context
	Bytes     int64  `json:"state_bytes"` // at its end
	Questions int    `json:"questions,omitempty"`
	Right     int    `json:"right,omitempty"`

	Fidelity *Fidelity `json:"fidelity,omitempty"` // of text
}

func (r *Result) key() key {
	return key{cell{r.Task, r.Length, r.Pairs}, r.Index, r.Method, r.Rows}
}

// cell is what results are summed up by, besides the method.
type cell struct {
	task          Task
	length, pairs int
}

type key struct {
	cell
	index  int
	method string
	rows   int
}

// Read reads the results that a run wrote, one JSON object per line. A last line that
// was cut off is left out.
func Read(r io.Reader) ([]Result, error) {
	out, err := jsonlines.Read[Result](r)
	if err != nil {
		return nil, fmt.Errorf("eval: results, %w", err)
	}
	return out, nil
}

func (c *Config) fill() error {
	ints := func(v *[]int, d ...int) {
		if *v == nil {
			*v = d
		}
	}
	if c.Tasks == nil {
		c.Tasks = Forms
	}
	if c.Methods == nil {
		c.Methods = Streaming
	}
	if !slices.Contains(c.Methods, Full) {
		c.Methods = append([]string{Full}, c.Methods...)
	}
	ints(&c.Budgets, 128, 256)
	ints(&c.Lengths, 512)
	ints(&c.Pairs, 16)
	if c.Contexts == 0 {
		c.Contexts = 8
	}
	if c.Questions == 0 {
		c.Questions = 8
	}
	if c.TextRows == 0 {
		c.TextRows = slices.Max(c.Lengths)
	}
	for _, t := range c.Tasks {
		if !slices.Contains(Forms, t) && !slices.Contains(English, t) {
			return fmt.Errorf("eval: task %q: have %v and %v", t, Forms, English)
		}
	}
	for _, m := range c.Methods {
		if !slices.Contains(Methods, m) {
			return fmt.Errorf("eval: method %q: have %s", m, strings.Join(Methods, ", "))
		}
	}
	for _, b := range c.Budgets {
		if b < backend.Page || b%backend.Page != 0 {
			return fmt.Errorf("eval: a budget of %d rows: want a multiple of %d", b, backend.Page)
		}
	}
	if slices.Min(c.Lengths) < 32 || slices.Min(c.Pairs) < 1 || c.Contexts < 1 || c.Questions < 1 || c.TextRows < 32 {
		return fmt.Errorf("eval: lengths %v, %v pairs, %d contexts, %d questions: want at least 32 tokens and one of each", c.Lengths, c.Pairs, c.Contexts, c.Questions)
	}
	return nil
}

// cells are the combinations of task, length and pairs.
func (c *Config) cells() []cell {
	var out []cell
	for _, t := range c.Tasks {
		for _, n := range c.Lengths {
			if t != Recall {
				out = append(out, cell{t, n, 0})
				continue
			}
			for _, p := range c.Pairs {
				if 14*p < n { // as many pairs find room
					out = append(out, cell{t, n, p})
				}
			}
		}
	}
	return out
}

// run is a run under way.
type run struct {
	m    Model
	cfg  *Config
	s    backend.Stream
	have map[key]bool
	out  []Result
}

// Run judges a model. It returns the results of Have and the new ones, also those
// that were there when it failed or was cancelled.
func Run(ctx context.Context, m Model, cfg Config) ([]Result, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	s, err := m.Device.NewStream()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := &run{m: m, cfg: &cfg, s: s, have: map[key]bool{}, out: slices.Clone(cfg.Have)}
	for i := range r.out {
		r.have[r.out[i].key()] = true
	}
	cells := cfg.cells()
	pieces := 0
	if n := len(cfg.Text) / cfg.TextRows; cfg.Text != nil {
		if pieces = min(n, cfg.Contexts); pieces == 0 {
			return r.out, fmt.Errorf("eval: a text of %d tokens for sequences of %d: give a longer one", len(cfg.Text), cfg.TextRows)
		}
	}
	total, done := len(cells)*cfg.Contexts+pieces, 0
	step := func() {
		if done++; cfg.Progress != nil {
			cfg.Progress(done, total)
		}
	}
	for i := range cfg.Contexts { // in turn, so that what a stopped run has is balanced
		for _, c := range cells {
			if err := r.item(ctx, c, i); err != nil {
				return r.out, fmt.Errorf("eval: %s, %d tokens, context %d: %w", c.task, c.length, i, err)
			}
			step()
		}
		if i < pieces {
			if err := r.text(ctx, i); err != nil {
				return r.out, fmt.Errorf("eval: text, piece %d: %w", i, err)
			}
			step()
		}
	}
	return r.out, nil
}

// budgets are those that a method has.
func (r *run) budgets(method string) []int {
	if method == Full {
		return []int{0}
	}
	return r.cfg.Budgets
}

func (r *run) emit(v Result) error {
	r.out = append(r.out, v)
	if r.cfg.Emit == nil {
		return nil
	}
	return r.cfg.Emit(v)
}

// each calls f for every method and budget that an index of a cell still lacks.
func (r *run) each(c cell, index int, f func(Result) error) error {
	for _, m := range r.cfg.Methods {
		for _, rows := range r.budgets(m) {
			v := Result{Task: c.task, Length: c.length, Pairs: c.pairs, Index: index, Method: m, Rows: rows}
			if r.have[v.key()] {
				continue
			}
			if err := f(v); err != nil && !errors.Is(err, errBudget) {
				return fmt.Errorf("%s with %d rows: %w", m, rows, err)
			}
		}
	}
	return nil
}

// item asks all methods about one context.
func (r *run) item(ctx context.Context, c cell, index int) error {
	it, err := makeItem(r.m.Tokenizer, c.task, c.length, c.pairs, r.cfg.Questions, r.cfg.Seed, uint64(index))
	if err != nil {
		return err
	}
	longest := 0
	for _, q := range it.questions {
		longest = max(longest, len(q.ask)+len(q.answer))
	}
	if n := len(it.context) + longest; r.m.Decoder.Context > 0 && n > r.m.Decoder.Context {
		return fmt.Errorf("%d tokens are more than the model's %d: ask for shorter contexts", n, r.m.Decoder.Context)
	}
	return r.each(c, index, func(v Result) error {
		s, err := r.subject(v.Method, v.Rows)
		if err != nil {
			return err
		}
		defer s.close()
		k, err := s.dec.NewRunner(r.s, r.m.Pool, nn.RunnerConfig{})
		if err != nil {
			return err
		}
		defer k.Close()
		if err := k.Append(ctx, rowsOf(it.context)); err != nil {
			return err
		}
		if v.Bytes, err = stateBytes(k.State()); err != nil {
			return err
		}
		v.Tokens = len(it.context)
		for _, q := range it.questions {
			var right bool
			if s.budget > 0 {
				right, v.Bytes, err = r.compiled(ctx, k, r.s, q, s.budget)
			} else {
				right, err = ask(ctx, k, q)
			}
			if err != nil {
				return err
			}
			v.Questions++
			if right {
				v.Right++
			}
		}
		return r.emit(v)
	})
}
