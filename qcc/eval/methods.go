package eval

import (
	"context"
	"fmt"
	"slices"

	"samebit/backend"
	"samebit/nn"
	"samebit/qcc"
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
	Archive = "archive" // window and archive as published, or as an adapter has it
	Compile = "compile" // rows chosen by the question: the only one that knows it
)

// Methods lists all in the order of reports.
var Methods = []string{Full, Window, Sinks, Novel, Table, Archive, Compile}

// Streaming are the methods that read a text without knowing what will be asked.
var Streaming = []string{Full, Window, Sinks, Novel, Table, Archive}

// subject is a model as one method runs it.
type subject struct {
	dec    *nn.Decoder
	close  func()
	budget int // of Compile
}

// subject puts a method on the model.
func (r *run) subject(method string, rows int) (*subject, error) {
	d := r.m.Decoder
	sieve := func(c qcc.Sieve) (*subject, error) {
		c.Slots = rows
		s, err := qcc.Sieved(d, c)
		return &subject{dec: s, close: func() {}}, err
	}
	switch method {
	case Full:
		return &subject{dec: d, close: func() {}}, nil
	case Compile:
		return &subject{dec: d, close: func() {}, budget: rows}, nil
	case Window:
		return sieve(qcc.Sieve{Sinks: -1, Score: qcc.SieveRecent})
	case Sinks:
		return sieve(qcc.Sieve{Score: qcc.SieveRecent})
	case Novel:
		return sieve(qcc.Sieve{})
	}
	a, err := r.adapter(method, rows)
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
func (r *run) adapter(method string, rows int) (*qcc.Adapter, error) {
	if method == Archive && r.cfg.Adapter != nil {
		return r.cfg.Adapter, nil
	}
	d := r.m.Decoder
	c, err := qcc.ModelConfig(d)
	if err != nil {
		return nil, err
	}
	group := c.Heads / c.KV
	switch method {
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
		return nil, fmt.Errorf("eval: a budget of %d rows is too small for %s on this model: %w", rows, method, errBudget)
	}
	return qcc.NewAdapter(d, qcc.Retrofit{KV: qcc.KVRepeat, Config: c}, r.cfg.Seed)
}

func rowsOf(ids []int32) []state.Row {
	out := make([]state.Row, len(ids))
	for i, id := range ids {
		out[i].Token = id
	}
	return out
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
	return answers(ctx, f, q.ask, q.answer)
}

func answers(ctx context.Context, r *nn.Runner, ask, answer []int32) (bool, error) {
	right := true
	in := rowsOf(append(slices.Clone(ask), answer[:len(answer)-1]...))
	err := r.AppendAll(ctx, in, func(i int, logits []float32) {
		if at := i - len(ask) + 1; at >= 0 && best(logits) != int(answer[at]) {
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
	if err := f.Append(ctx, rowsOf(q.ask[:last])); err != nil {
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
	right, err = answers(ctx, k, q.ask[last:], q.answer)
	return right, bytes, err
}
