package eval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"samebit/nn"
	"samebit/rclc"
	"samebit/state"
	"samebit/token"
)

// Config says what a run compares. The zero value compares the built-in selectors
// with the last rows at ratio 4.
type Config struct {
	Methods   []string  // nil means cacheback, qsnap, chunkkv and recent
	Ratios    []int     // nil means 4
	Answer    []int     // ratios at which answers are made; nil means all of Ratios. Recall is counted at all
	Placement Placement // "" means BeforePrompt
	MaxTokens int       // of an answer; 0 means 12
	Span      int       // width of spans; 0 means 16
	TextCases int       // the method text only for so many cases; 0 means all
	Seed      uint64    // of the method random
	BatchRows int       // rows per pass of the answers; 0 means 512. It changes no bit

	// Part and Parts let processes share a run: this one does the cases i with
	// i mod Parts = Part. 0 parts mean one.
	Part, Parts int

	// Have are results of an earlier run, as Read returns them; what they hold is
	// not done again. Those of other things are refused: methods, ratios, what is
	// answered and the number of cases may differ, the rest must be the same.
	Have []Result
	// Emit is called with each new result, in the order of cases, methods and ratios.
	Emit func(Result) error
	// Progress, if set, is called after each case.
	Progress func(done, total int)
}

// Result is what one method did with one case at one ratio. All but the times are
// the same in every run.
type Result struct {
	Case      int        `json:"case"`
	Of        string     `json:"of"`  // what the case amounts to
	Run       string     `json:"run"` // what model, tokenizer, chat template and configuration amount to
	Kind      string     `json:"kind,omitempty"`
	Method    string     `json:"selector"`
	Ratio     int        `json:"ratio,omitempty"`
	Source    int        `json:"source_positions,omitempty"`
	Retained  int        `json:"retained_positions,omitempty"`
	Bytes     int        `json:"payload_bytes,omitempty"`
	Spans     [][][2]int `json:"spans,omitempty"` // kept, by sender
	Gold      int        `json:"gold_positions,omitempty"`
	GoldKept  int        `json:"gold_retained,omitempty"`
	Answered  bool       `json:"answered"`
	Placement Placement  `json:"placement,omitempty"`
	Question  string     `json:"question,omitempty"`
	Expected  []string   `json:"expected,omitempty"`
	Answer    string     `json:"answer"`
	Correct   bool       `json:"correct"`  // equal after normalisation
	Contains  bool       `json:"contains"` // the answer holds an accepted one
	Transfer  float64    `json:"transfer_seconds"`
	Generate  float64    `json:"generation_seconds"`
}

// key names a result.
type key struct {
	index  int
	method string
	ratio  int
}

// fill puts the defaults in and refuses what cannot be run.
func (cfg *Config) fill(cases []Case) error {
	if cfg.Methods == nil {
		cfg.Methods = []string{CacheBack, QSnap, ChunkKV, Recent}
	}
	if cfg.Ratios == nil {
		cfg.Ratios = []int{4}
	}
	if cfg.Answer == nil {
		cfg.Answer = cfg.Ratios
	}
	for p, v := range map[*int]int{&cfg.MaxTokens: 12, &cfg.Span: 16, &cfg.BatchRows: 512} {
		if *p == 0 {
			*p = v
		}
	}
	if cfg.Placement == "" {
		cfg.Placement = BeforePrompt
	}
	if cfg.Parts == 0 {
		cfg.Parts = 1
	}
	if cfg.Parts < 1 || cfg.Part < 0 || cfg.Part >= cfg.Parts {
		return fmt.Errorf("eval: part %d of %d: want at least one part, counted from 0", cfg.Part, cfg.Parts)
	}
	for _, m := range cfg.Methods {
		if !slices.Contains(Methods, m) {
			return fmt.Errorf("eval: method %q: have %s", m, strings.Join(Methods, ", "))
		}
		if m == Gold && slices.ContainsFunc(cases, func(c Case) bool { return len(c.Evidence) == 0 }) {
			return fmt.Errorf("eval: method %q: some cases do not say where their evidence is: leave the method out, or add it", m)
		}
	}
	for _, r := range cfg.Ratios {
		if r < 1 {
			return fmt.Errorf("eval: ratio %d: want at least 1", r)
		}
	}
	for _, r := range cfg.Answer {
		if !slices.Contains(cfg.Ratios, r) {
			return fmt.Errorf("eval: answers at ratio %d, which is not among the ratios %v", r, cfg.Ratios)
		}
	}
	switch {
	case !slices.Contains(Placements, cfg.Placement):
		return fmt.Errorf("eval: placement %q: have %q and %q", cfg.Placement, BeforePrompt, InTurn)
	case cfg.MaxTokens < 1, cfg.Span < 1, cfg.BatchRows < 1, cfg.TextCases < 0:
		return fmt.Errorf("eval: %d tokens per answer, spans of %d, %d rows per pass, text for %d cases: want positive numbers", cfg.MaxTokens, cfg.Span, cfg.BatchRows, cfg.TextCases)
	}
	return nil
}

// Run answers every case by every method at every ratio. Senders are run once per
// case and scored once per selector, since scores do not depend on the budget; the
// rows that a receiver gets, and so its answer, are those of a transfer. It returns
// the results of Have and the new ones.
func Run(ctx context.Context, m *rclc.Model, tok *token.Tokenizer, cases []Case, cfg Config) ([]Result, error) {
	if err := cfg.fill(cases); err != nil {
		return nil, err
	}
	if len(cases) == 0 {
		return nil, errors.New("eval: no case to run")
	}
	if m.Chat == nil {
		return nil, errors.New("eval: the model has no chat template: give one")
	}
	batch, err := m.Decoder().NewBatcher(m.Pool().Device(), nn.BatcherConfig{Rows: cfg.BatchRows})
	if err != nil {
		return nil, err
	}
	defer batch.Close()
	r := run{cfg: &cfg, receiver: receiver{model: m, tok: tok, batch: batch, longest: cfg.MaxTokens}, have: map[key]Result{}}
	if err := r.resume(cases); err != nil {
		return nil, err
	}
	out := slices.Clone(cfg.Have)
	for i := range cases {
		if i%cfg.Parts != cfg.Part {
			continue
		}
		fresh, err := r.one(ctx, i, &cases[i])
		if err != nil {
			return out, err
		}
		for _, v := range fresh {
			if cfg.Emit != nil {
				if err := cfg.Emit(v); err != nil {
					return out, err
				}
			}
			out = append(out, v)
		}
		if cfg.Progress != nil {
			cfg.Progress(i+1, len(cases))
		}
	}
	return out, nil
}

// run is a run under way.
type run struct {
	cfg *Config
	receiver
	id   string   // of results
	of   []string // by case
	have map[key]Result
}

// wants reports whether a case is answered by a method.
func (r *run) wants(i int, method string) bool {
	return method != Text || r.cfg.TextCases == 0 || i < r.cfg.TextCases
}

// one makes what is missing of a case.
func (r *run) one(ctx context.Context, i int, c *Case) ([]Result, error) {
	var work []Result // in the order of tables
	var missing []string
	for _, method := range r.cfg.Methods {
		if !r.wants(i, method) {
			continue
		}
		ratios := []int{0}
		if sized(method) {
			ratios = r.cfg.Ratios
		}
		for _, ratio := range ratios {
			h, ok := r.have[key{i, method, ratio}]
			answer := !sized(method) || slices.Contains(r.cfg.Answer, ratio)
			if ok && (h.Answered || !answer) || !answer && method == Text {
				continue
			}
			if !ok {
				h = Result{Case: i, Of: r.of[i], Run: r.id, Kind: c.Kind, Method: method, Ratio: ratio, Question: c.Question}
			}
			if chooses(method) && !ok && !slices.Contains(missing, method) {
				missing = append(missing, method)
			}
			if answer {
				h.Answered, h.Placement, h.Expected = true, r.cfg.Placement, c.Answers
			}
			work = append(work, h)
		}
	}
	if len(work) == 0 {
		return nil, nil
	}
	ids := make([][]int32, len(c.Documents))
	for d, text := range c.Documents {
		ids[d] = r.tok.EncodePlain(nil, text)
		if len(ids[d]) == 0 {
			return nil, fmt.Errorf("eval: case %d: document %d has no tokens", i, d)
		}
	}
	if len(missing) > 0 {
		if err := r.selections(ctx, i, c, ids, missing, work); err != nil {
			return nil, err
		}
	}
	return work, r.answers(ctx, i, c, ids, work)
}

// selections fills in what was chosen.
func (r *run) selections(ctx context.Context, i int, c *Case, ids [][]int32, methods []string, work []Result) error {
	senders := make([]*rclc.Sender, len(ids))
	defer func() {
		for _, s := range senders {
			if s != nil {
				s.Release()
			}
		}
	}()
	for d := range ids {
		var err error
		if senders[d], err = rclc.FromTokens(ctx, r.model, ids[d]); err != nil {
			return fmt.Errorf("eval: case %d, document %d: %w", i, d, err)
		}
	}
	request := r.tok.EncodePlain(nil, c.Question)
	got, err := r.cfg.choose(ctx, senders, request, i, methods)
	if err != nil {
		return err
	}
	gold := c.gold(r.tok, ids)
	for k := range work {
		v := &work[k]
		g, ok := got[key{i, v.Method, v.Ratio}]
		if !ok {
			continue
		}
		v.Source, v.Retained, v.Spans, v.Transfer = 0, 0, nil, g.seconds
		for d, kept := range g.rows {
			v.Source += len(ids[d])
			v.Retained += len(kept)
			v.Spans = append(v.Spans, spans(kept))
		}
		v.Bytes = 4 * r.model.Info.Hidden * v.Retained
		v.Gold, v.GoldKept = recall(gold, v.Spans)
	}
	return nil
}

// answers fills in the answers, all at once; equal prompts are run once.
func (r *run) answers(ctx context.Context, i int, c *Case, ids [][]int32, work []Result) error {
	before, after, err := r.around(c, r.cfg.Placement)
	if err != nil {
		return err
	}
	said, err := r.written(ctx, c, ids, work)
	if err != nil {
		return err
	}
	prompts := make([][]state.Row, len(work))
	for k := range work {
		v := &work[k]
		if !v.Answered {
			continue
		}
		switch v.Method {
		case Full:
			prompts[k], err = r.text(strings.Join(c.Documents, "\n\n"), c)
		case Gold:
			prompts[k], err = r.text(c.evidence(), c)
		case None:
			prompts[k], err = r.text("", c)
		case Text:
			var parts []string
			v.Source, v.Retained, v.Bytes = 0, 0, 0
			for d, l := range said {
				n := min(budget(len(ids[d]), v.Ratio), len(l))
				text := r.tok.TextSkip(l[:n])
				parts = append(parts, text)
				v.Source, v.Retained, v.Bytes = v.Source+len(ids[d]), v.Retained+n, v.Bytes+len(text)
			}
			prompts[k], err = r.text(strings.Join(parts, "\n\n"), c)
		default:
			if err = inside(v.Spans, ids); err != nil {
				break
			}
			p := slices.Clone(before)
			for d, kept := range v.Spans {
				for _, s := range kept {
					p = append(p, state.Tokens(ids[d][s[0]:s[1]])...)
				}
			}
			prompts[k] = append(p, after...)
		}
		if err != nil {
			return fmt.Errorf("eval: case %d, %s: %w", i, v.Method, err)
		}
	}
	first := map[string]int{} // prompt to the first that has it
	same := make([]int, len(work))
	errs := make([]error, len(work))
	var wait sync.WaitGroup
	for k := range work {
		if same[k] = k; prompts[k] == nil {
			continue
		}
		name := fmt.Sprint(prompts[k])
		if f, ok := first[name]; ok {
			same[k] = f
			continue
		}
		first[name] = k
		wait.Go(func() {
			start := time.Now()
			work[k].Answer, errs[k] = r.answer(ctx, prompts[k])
			work[k].Generate = time.Since(start).Seconds()
		})
	}
	wait.Wait()
	for k := range work {
		v, f := &work[k], same[k]
		if errs[f] != nil {
			return fmt.Errorf("eval: case %d, %s at ratio %d: %w", i, v.Method, v.Ratio, errs[f])
		}
		v.Answer, v.Generate = work[f].Answer, work[f].Generate
		v.Correct, v.Contains = v.Answered && c.Correct(v.Answer), v.Answered && c.Contains(v.Answer)
	}
	return nil
}

// written is what the senders write when they are asked for text, as long as the
// smallest ratio allows; a larger ratio gets the beginning of it, which is what the
// greedy model writes within a smaller limit.
func (r *run) written(ctx context.Context, c *Case, ids [][]int32, work []Result) ([][]int32, error) {
	least := 0
	for _, v := range work {
		if v.Method == Text && v.Answered && (least == 0 || v.Ratio < least) {
			least = v.Ratio
		}
	}
	if least == 0 {
		return nil, nil
	}
	out, errs := make([][]int32, len(ids)), make([]error, len(ids))
	var wait sync.WaitGroup
	for d := range ids {
		wait.Go(func() {
			var in []state.Row
			if in, errs[d] = r.summary(c.Documents[d], c); errs[d] == nil {
				out[d], errs[d] = r.generate(ctx, in, budget(len(ids[d]), least), "")
			}
		})
	}
	wait.Wait()
	return out, errors.Join(errs...)
}
