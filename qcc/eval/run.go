// Package eval judges memories of constant size: a model reads a text with each of
// them and answers questions about it, and predicts held-out text beside the model
// with its full cache. Everything is counted against the bytes that the memory holds.
package eval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"samebit/backend"
	"samebit/internal/jsonlines"
	"samebit/nn"
	"samebit/qcc/calib"
	"samebit/state"
	"samebit/tensor"
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
	Tasks     []Task   // nil: Forms and Worded, or with English wording Worded
	Wording   Wording  // of Worded; "": Register
	Methods   []string // nil: Streaming. Full is always there
	Budgets   []int    // rows of keys and values, multiples of 64; nil: 128 and 256
	Lengths   []int    // tokens of the contexts, about; nil: 512
	Pairs     []int    // of recall; nil: 16
	Contexts  int      // of every task, length and number of pairs; 0: 8
	Questions int      // about each context, at most; 0: 8
	Seed      uint64

	Text     []int32 // held-out text; nil: none is read
	TextRows int     // of it in one sequence; 0: the longest length

	// Adapters are memories with a size of their own. Beside each stands a bare
	// window of as many rows as window and archive have the bytes of.
	Adapters []Adapter

	// Have are results of an earlier run; what they hold is not done again.
	Have []Result
	// Emit is called with each new result.
	Emit func(Result) error
	// Progress, if set, is told how many contexts are done.
	Progress func(done, total int)
}

// Result is what one method did with one context, or with one piece of text.
type Result struct {
	Run       string `json:"run"` // what model, wording, seed and number of questions amount to
	Task      Task   `json:"task"`
	Length    int    `json:"length"`
	Pairs     int    `json:"pairs,omitempty"`
	Index     int    `json:"index"`
	Method    string `json:"method"`
	Rows      int    `json:"budget_rows,omitempty"`
	Of        string `json:"of,omitempty"` // what adapter and text amount to
	Tokens    int    `json:"tokens"`       // of the context
	Bytes     int64  `json:"state_bytes"`  // at its end
	Questions int    `json:"questions,omitempty"`
	Right     int    `json:"right,omitempty"`

	Fidelity *Fidelity `json:"fidelity,omitempty"` // of text
}

func (r *Result) key() key {
	return key{cell{r.Task, r.Length, r.Pairs}, r.Index, memory{r.Method, r.Rows}}
}

// cell is what results are summed up by, besides the memory.
type cell struct {
	task          Task
	length, pairs int
}

// memory is a method with a budget; Full has none, that of adapters is their own.
type memory struct {
	method string
	rows   int
}

type key struct {
	cell
	index int
	memory
}

// Read reads the results that a run wrote, one JSON object per line. A last line that
// was cut off is left out.
func Read(r io.Reader) ([]Result, error) {
	out, err := jsonlines.Read[Result](r)
	if err != nil {
		return nil, fmt.Errorf("eval: results, %w", err)
	}
	for i, r := range out {
		if r.Task == Text && r.Fidelity == nil {
			return nil, fmt.Errorf("eval: result %d, of %s with text, has no fidelity: leave its line out, and it is made again", i+1, r.Method)
		}
	}
	return out, nil
}

func (c *Config) fill() error {
	ints := func(v *[]int, d ...int) {
		if *v == nil {
			*v = d
		}
	}
	if c.Wording == "" {
		c.Wording = Register
	}
	if !slices.Contains(Wordings, c.Wording) {
		return fmt.Errorf("eval: wording %q: have %v", c.Wording, Wordings)
	}
	if c.Tasks == nil {
		c.Tasks = Tasks(c.Wording)
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
	if len(c.Lengths) == 0 || len(c.Pairs) == 0 {
		return fmt.Errorf("eval: %d lengths and %d numbers of pairs: want at least one of each, or nil for those that a run takes by itself", len(c.Lengths), len(c.Pairs))
	}
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
		if !slices.Contains(Forms, t) && !slices.Contains(Worded, t) {
			return fmt.Errorf("eval: task %q: have %v and %v", t, Forms, Worded)
		}
	}
	for _, m := range c.Methods {
		if !slices.Contains(Methods, m) {
			return fmt.Errorf("eval: method %q: have %s", m, strings.Join(Methods, ", "))
		}
	}
	if err := checkNames(c.Adapters); err != nil {
		return err
	}
	for _, b := range c.Budgets {
		if b < backend.Page || b%backend.Page != 0 {
			return fmt.Errorf("eval: a budget of %d rows: want a multiple of %d", b, backend.Page)
		}
	}
	if slices.Min(c.Lengths) < 32 || slices.Min(c.Pairs) < 1 || c.Contexts < 1 || c.Questions < 1 || c.TextRows < 32 {
		return fmt.Errorf("eval: lengths %v, %v pairs, %d contexts, %d questions: want at least 32 tokens and one of each", c.Lengths, c.Pairs, c.Contexts, c.Questions)
	}
	if n, most := slices.Max(c.Pairs), wordings[c.Wording].most; n > most && slices.Contains(c.Tasks, Recall) {
		return fmt.Errorf("eval: recall of %d pairs: the wording %s has names for %d: ask for at most as many", n, c.Wording, most)
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

// memories are those that are compared, in the order of reports.
func (c *Config) memories() []memory {
	var out []memory
	for _, m := range Methods {
		switch {
		case !slices.Contains(c.Methods, m):
		case m == Full:
			out = append(out, memory{m, 0})
		default:
			for _, b := range c.Budgets {
				out = append(out, memory{m, b})
			}
		}
	}
	for _, a := range c.Adapters {
		rows := calib.WindowRows(a.Config)
		out = append(out, memory{a.Name, rows}, memory{a.Name + BareWindow, rows})
	}
	return out
}

// run is a run under way.
type run struct {
	m        Model
	cfg      *Config
	s        backend.Stream
	id       string // of results
	memories []memory
	subjects map[memory]*subject
	sources  map[source]string
	have     map[key]bool
	out      []Result
}

// Run judges a model. It returns the results of Have and the new ones, also those
// that were there when it failed or was cancelled.
func Run(ctx context.Context, m Model, cfg Config) ([]Result, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if err := m.Decoder.CheckText(cfg.Text); err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	s, err := m.Device.NewStream()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := &run{m: m, cfg: &cfg, s: s, memories: cfg.memories(), subjects: map[memory]*subject{}, sources: map[source]string{}, have: map[key]bool{}, out: slices.Clone(cfg.Have)}
	defer func() {
		for _, s := range r.subjects {
			s.close()
		}
	}()
	for _, m := range r.memories { // a foreign one is told of before anything is read
		if cfg.adapter(m.method) == nil {
			continue
		}
		if _, err := r.subject(m); err != nil {
			return r.out, fmt.Errorf("eval: adapter %s: %w", m.method, err)
		}
	}
	if err := r.resume(); err != nil {
		return r.out, err
	}
	cells := cfg.cells()
	pieces := 0
	if n := len(cfg.Text) / cfg.TextRows; cfg.Text != nil {
		if pieces = min(n, cfg.Contexts); pieces == 0 {
			return r.out, fmt.Errorf("eval: a text of %d tokens for sequences of %d: give a longer one, or ask for shorter sequences", len(cfg.Text), cfg.TextRows)
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

// resume takes over the results of an earlier run, of the same things.
func (r *run) resume() error {
	c := r.cfg
	r.id = digest(r.m.Decoder.ID[:], fmt.Appendf(nil, "%s %d %d", c.Wording, c.Seed, c.Questions))
	for i := range r.out {
		v := &r.out[i]
		if v.Run != r.id {
			return fmt.Errorf("eval: the earlier results are of another model, wording, seed or number of questions (%q, here %q): keep these in a file of their own", v.Run, r.id)
		}
		k := v.key()
		same := slices.Contains(r.memories, k.memory) || c.adapter(k.method) != nil // whatever the adapter's size
		if same && (v.Task != Text || c.Text != nil) && v.Of != r.of(k.cell, k.memory) {
			return fmt.Errorf("eval: the earlier results of %s (%s) are of another text or adapter: keep these in a file of their own", v.Method, v.Task)
		}
		r.have[k] = true
	}
	return nil
}

// source is what results rest on besides the model.
type source struct {
	adapter string // by name; "": none
	text    bool
}

// of is a digest of a result's source, "" if there is none. Each is made once: texts are
// long, and have many results.
func (r *run) of(c cell, m memory) string {
	from, a := source{text: c.task == Text}, r.cfg.adapter(m.method)
	if a != nil {
		from.adapter = a.Name
	}
	if of, ok := r.sources[from]; ok || from == (source{}) {
		return of
	}
	var parts [][]byte
	if a != nil {
		id := r.subjects[memory{a.Name, calib.WindowRows(a.Config)}].dec.ID
		parts = append(parts, id[:])
	}
	if from.text {
		parts = append(parts, tensor.AsBytes(r.cfg.Text))
	}
	r.sources[from] = digest(parts...)
	return r.sources[from]
}

func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

func (r *run) emit(v Result) error {
	v.Run, v.Of = r.id, r.of(v.key().cell, v.key().memory)
	r.out, r.have[v.key()] = append(r.out, v), true
	if r.cfg.Emit == nil {
		return nil
	}
	return r.cfg.Emit(v)
}

// job is a result that is still to be made, and the model that makes it.
type job struct {
	Result
	*subject
}

// failed says at which memory something failed.
func (j *job) failed(err error) error {
	return fmt.Errorf("%s with %d rows: %w", j.Method, j.Rows, err)
}

// lacking are the results that an index of a cell still lacks, without those of
// memories that cannot spend their budget, or that need a question where there is none.
func (r *run) lacking(c cell, index int) ([]*job, error) {
	var out []*job
	for _, m := range r.memories {
		j := &job{Result: Result{Task: c.task, Length: c.length, Pairs: c.pairs, Index: index, Method: m.method, Rows: m.rows}}
		if r.have[j.key()] || c.task == Text && m.method == Compile {
			continue
		}
		var err error
		switch j.subject, err = r.subject(m); {
		case err == nil:
			out = append(out, j)
		case !errors.Is(err, errBudget):
			return nil, j.failed(err)
		}
	}
	return out, nil
}

// item asks all memories about one context.
func (r *run) item(ctx context.Context, c cell, index int) error {
	left, err := r.lacking(c, index)
	if err != nil || len(left) == 0 {
		return err
	}
	it, err := makeItem(r.m.Tokenizer, r.cfg.Wording, c, r.cfg.Questions, r.cfg.Seed, uint64(index))
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
	var whole *nn.Runner // has read the context with the full cache, which Full and Compile go on from
	defer func() {
		if whole != nil {
			whole.Close()
		}
	}()
	for _, j := range left {
		k := whole
		if k == nil || j.dec != r.m.Decoder {
			if k, err = j.dec.NewRunner(r.s, r.m.Pool, nn.RunnerConfig{}); err != nil {
				return err
			}
			if j.dec == r.m.Decoder {
				whole = k
			}
			err = k.Append(ctx, state.Tokens(it.context))
		}
		if err == nil {
			j.Tokens = len(it.context)
			err = r.askAll(ctx, j, k, it)
		}
		if k != whole {
			k.Close()
		}
		if err != nil {
			return j.failed(err)
		}
		if err := r.emit(j.Result); err != nil {
			return err
		}
	}
	return nil
}

// askAll asks a memory that has read the context, and counts its bytes.
func (r *run) askAll(ctx context.Context, j *job, k *nn.Runner, it item) (err error) {
	if j.Bytes, err = stateBytes(k.State()); err != nil {
		return err
	}
	j.Bytes = j.bytes(j.Bytes, j.Tokens)
	for _, q := range it.questions {
		var right bool
		if j.Method == Compile {
			right, j.Bytes, err = r.compiled(ctx, k, r.s, q, j.Rows)
		} else {
			right, err = ask(ctx, k, q)
		}
		if err != nil {
			return err
		}
		j.Questions++
		if right {
			j.Right++
		}
	}
	return nil
}
