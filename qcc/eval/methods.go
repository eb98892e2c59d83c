package eval

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"samebit/backend"
	"samebit/nn"
	"samebit/qcc"
	"samebit/qcc/calib"
	"samebit/state"
	"samebit/tensor"
)

// The methods. A budget is a number of rows of keys and values; each method spends
// the bytes of that on what it keeps.
const (
	Full    = "full"    // everything: no budget
	Window  = "window"  // the last rows
	Sinks   = "sinks"   // the first four and the last rows
	Novel   = "sieve"   // qcc.Sieve: first, last and novel rows
	Table   = "table"   // window and exact tier, joined by mass; unlike keys stay
	Archive = "archive" // window and archive as published, without training
	Compile = "compile" // rows chosen by the question: the only one that knows it
)

// Methods lists all in the order of reports.
var Methods = []string{Full, Window, Sinks, Novel, Table, Archive, Compile}

// Streaming are the methods that read a text without knowing what will be asked.
var Streaming = []string{Full, Window, Sinks, Novel, Table, Archive}

// Adapter is a memory that somebody trained, under the name that reports have.
type Adapter struct {
	Name string
	*qcc.Adapter
}

// BareWindow follows an adapter's name in results where a window of the same bytes is
// meant.
const BareWindow = ", bare window"

// adapter is the one of a method, nil if it has none.
func (c *Config) adapter(method string) *Adapter {
	for i, a := range c.Adapters {
		if method == a.Name || method == a.Name+BareWindow {
			return &c.Adapters[i]
		}
	}
	return nil
}

func checkNames(list []Adapter) error {
	var names []string
	for _, a := range list {
		switch {
		case a.Adapter == nil || a.Name == "":
			return fmt.Errorf("eval: adapter %q: want a name and an adapter", a.Name)
		case slices.Contains(Methods, a.Name), slices.Contains(names, a.Name), strings.HasSuffix(a.Name, BareWindow):
			return fmt.Errorf("eval: adapter %q: another memory has this name: give a name of its own", a.Name)
		}
		names = append(names, a.Name)
	}
	return nil
}

// subject is a model as one memory runs it.
type subject struct {
	dec   *nn.Decoder
	close func()
	// bare is, where it is not 0, the number of rows whose bytes count: the model sees
	// no others, though its state has them.
	bare int
	row  int64 // bytes of a row
}

// bytes are those that count, of a state of so many bytes that has read tokens.
func (s *subject) bytes(have int64, tokens int) int64 {
	if s.bare > 0 && tokens > s.bare {
		return have - int64(tokens-s.bare)*s.row
	}
	return have
}

// subject puts a memory on the model. It is the run's, which closes it.
func (r *run) subject(m memory) (*subject, error) {
	if s, ok := r.subjects[m]; ok {
		return s, nil
	}
	s, err := r.open(m)
	if err == nil {
		r.subjects[m] = s
	}
	return s, err
}

func (r *run) open(m memory) (*subject, error) {
	d := r.m.Decoder
	sieve := func(c qcc.Sieve) (*subject, error) {
		c.Slots = m.rows
		s, err := qcc.Sieved(d, c)
		return &subject{dec: s, close: func() {}}, err
	}
	switch m.method {
	case Full, Compile:
		return &subject{dec: d, close: func() {}}, nil
	case Window:
		return sieve(qcc.Sieve{Sinks: -1, Score: qcc.SieveRecent})
	case Sinks:
		return sieve(qcc.Sieve{Score: qcc.SieveRecent})
	case Novel:
		return sieve(qcc.Sieve{})
	}
	if a := r.cfg.adapter(m.method); a != nil && m.method != a.Name {
		w, err := calib.Windowed(d, a.Layers, m.rows)
		kv := d.Shapes.KV
		return &subject{dec: w, close: func() {}, bare: m.rows, row: int64(8 * len(a.Layers) * kv.Heads * kv.Dim)}, err
	}
	a, err := r.adapter(m)
	if err != nil {
		return nil, err
	}
	p, err := qcc.Patch(r.m.Device, d, a)
	if err != nil {
		return nil, err
	}
	return &subject{dec: p.Decoder, close: p.Close}, nil
}

// adapter spends a budget on a window and an archive or a table: what the archive
// takes away is missing from the window.
func (r *run) adapter(m memory) (*qcc.Adapter, error) {
	if a := r.cfg.adapter(m.method); a != nil {
		return a.Adapter, nil
	}
	d, rows := r.m.Decoder, m.rows
	c, err := qcc.ModelConfig(d)
	if err != nil {
		return nil, err
	}
	group := c.Heads / c.KV
	switch m.method {
	case Archive:
		sums := c.Codes * c.Scales * (c.Dim + 1) * group / (2 * c.Dim)
		c.Window = (rows - sums) * 2 / 3 // a row has an unrotated key besides
	case Table:
		c.PositionInvariant, c.Codes, c.Scales, c.Rank, c.Sinks = false, 1, 1, 0, 4
		c.Window = max(c.Sinks, rows/4)
		e := qcc.DefaultExact()
		e.Sets, e.Ways, e.MassMerge, e.AdmissionWeight, e.DiversityWeight, e.Threshold = (rows-c.Window-2*c.Sinks)/group, 1, true, 0, 1, -1e9
		c.Exact = e
	}
	if c.Window < 1 || c.Exact != nil && c.Exact.Sets < 1 {
		return nil, fmt.Errorf("eval: a budget of %d rows is too small for %s on this model: %w", rows, m.method, errBudget)
	}
	return qcc.NewAdapter(d, qcc.Retrofit{KV: qcc.KVRepeat, Config: c}, r.cfg.Seed)
}

// stateBytes is what a saved state holds: content, without what pages leave unused.
func stateBytes(s state.State) (int64, error) {
	snap, err := s.Snapshot()
	if err != nil {
		return 0, err
	}
	defer snap.Release()
	var n int64
	err = snap.Save(func(_ string, t tensor.Tensor) error {
		b, _ := t.Raw()
		n += int64(len(b))
		return nil
	})
	return n, err
}

// ask runs a question after what r has read and reports whether the answer is the
// model's own, token by token.
func ask(ctx context.Context, r *nn.Runner, q question) (bool, error) {
	f, err := r.Fork()
	if err != nil {
		return false, err
	}
	defer f.Close()
	return answers(ctx, f, q)
}

func answers(ctx context.Context, r *nn.Runner, q question) (bool, error) {
	right := true
	in := state.Tokens(q.ask, q.answer[:len(q.answer)-1])
	err := r.AppendAll(ctx, in, func(i int, logits []float32) {
		if at := i - len(q.ask) + 1; at >= 0 && !q.given[at] && best(logits) != int(q.answer[at]) {
			right = false
		}
	})
	return right, err
}

func best(v []float32) int {
	b := 0
	for i, x := range v {
		if x > v[b] {
			b = i
		}
	}
	return b
}

// compiled is ask of a state that keeps what the question chooses. It also gives the
// bytes of that state.
func (r *run) compiled(ctx context.Context, full *nn.Runner, s backend.Stream, q question, budget int) (right bool, bytes int64, err error) {
	f, err := full.Fork()
	if err != nil {
		return false, 0, err
	}
	defer f.Close()
	last := len(q.ask) - 1
	if err := f.Append(ctx, state.Tokens(q.ask[:last])); err != nil {
		return false, 0, err
	}
	c, err := qcc.Compile(ctx, r.m.Decoder, f, qcc.CompileConfig{Budget: budget, Queries: max(1, last)})
	if err != nil {
		return false, 0, err
	}
	defer c.Snapshot.Release()
	k, err := c.Decoder.NewRunner(s, r.m.Pool, nn.RunnerConfig{})
	if err != nil {
		return false, 0, err
	}
	defer k.Close()
	if err := c.Resume(k); err != nil {
		return false, 0, err
	}
	if bytes, err = stateBytes(k.State()); err != nil {
		return false, 0, err
	}
	q.ask = q.ask[last:]
	right, err = answers(ctx, k, q)
	return right, bytes, err
}
