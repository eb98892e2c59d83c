package qccbench

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"samebit/backend"
	"samebit/bench"
	"samebit/nn"
	"samebit/qcc"
	"samebit/state"
)

// StreamConfig is a long text that flows through a retrofitted model.
type StreamConfig struct {
	RunID     string
	Total     int     // tokens
	Chunk     int     // rows of a pass
	Memory    string  // says how the retrofit's memory is bounded
	Generated bool    // the project made the model
	Text      []int32 // what is read; none: random tokens
	Progress  func(done, total int)
}

// StreamResult says what memory did meanwhile. Bytes of the process are those after a
// pass, none where the system does not tell.
type StreamResult struct {
	Head
	Subject
	Status    string  `json:"status"` // ok, or oom if memory ran out, with what there was
	Total     int     `json:"total_tokens"`
	Chunk     int     `json:"chunk"`
	Window    int     `json:"window_size"`
	PerSecond float64 `json:"tokens_per_second"`

	State     int64 `json:"attention_state_bytes"` // that the pool counts, in the end
	Accounted int64 `json:"accounted_bytes"`       // what the configuration says
	Most      int64 `json:"attention_state_peak_bytes"`
	FullKV    int64 `json:"full_kv_bytes"` // of an exact cache of the text
	Mismatch  int   `json:"accounting_mismatches"`

	Filled   int64   `json:"resident_bytes_after_window"` // the largest up to the mark
	FilledAt int     `json:"resident_mark_tokens"`
	Peak     int64   `json:"resident_peak_bytes"` // the largest behind it
	Last     int64   `json:"resident_last_bytes"`
	Growth   float64 `json:"resident_growth"` // Peak over Filled, less one

	// The most that the process ever had, also while a pass ran and the model was loaded, if
	// its memory is what the model's state lies in.
	QCCPeak int64 `json:"qcc_peak_memory_bytes,omitempty"`
}

// Check says what Total and Chunk may be.
func (c StreamConfig) Check() error {
	const most = 1 << 29
	if c.Chunk < 1 || c.Total < 1 || c.Total > most {
		return fmt.Errorf("want 1 to %d tokens in passes of at least 1", most)
	}
	return nil
}

// settle is how many windows and passes flow before memory is looked at: scratch has
// its size then, and the collector has run.
const settle = 32

// RunStream streams tokens through the retrofit of a model, which it closes. After every
// pass the memory that the pool counts must be what the configuration says.
func RunStream(ctx context.Context, dev backend.Device, d *nn.Decoder, a *qcc.Adapter, c StreamConfig) (StreamResult, error) {
	r := StreamResult{Head: head("streaming_memory", c.RunID, dev), Subject: subject(d, c.Memory), Status: "ok", Total: c.Total, Chunk: c.Chunk, Window: a.Config.Window}
	r.Synthetic, r.QCCOnly = c.Generated || len(c.Text) == 0, true
	if err := c.Check(); err != nil {
		d.Close()
		return r, fmt.Errorf("qccbench: %d tokens in chunks of %d: %w", c.Total, c.Chunk, err)
	}
	if err := covers(c.Text, c.Total); err != nil {
		d.Close()
		return r, err
	}
	endless := *d
	endless.Context = 0
	p, err := patched(ctx, dev, &endless, a)
	if err != nil {
		d.Close()
		return r, err
	}
	p.given = c.Text
	err = p.fresh(p.own.Decoder, func(st state.State) error { return p.stream(st, c, &r) })
	if errors.Is(err, backend.ErrNoMemory) {
		r.Status, err = "oom", nil
	}
	if e := p.close(); err == nil {
		err = e
	}
	return r, err
}

func (p *pair) stream(st state.State, c StreamConfig, r *StreamResult) error {
	own, ok := state.Part[*qcc.State](st)
	if !ok {
		return fmt.Errorf("qccbench: a state %T without an archive", st)
	}
	layers := len(p.own.Layers)
	mark := min(c.Total/2, settle*max(r.Window, c.Chunk))
	rows := make([]state.Row, c.Chunk)
	var spent float64
	for at := 0; at < c.Total; {
		n := min(c.Chunk, c.Total-at)
		p.fill(rows[:n])
		s, err := seconds(func() error { return p.run(p.own.Decoder, st, rows[:n], n, nil) })
		if err != nil {
			return err
		}
		spent += s
		at += n
		window, archive := p.own.Config.Bytes(layers, at)
		rest := st.Bytes() - own.Bytes() // of layers without an archive
		r.State, r.Accounted = p.pool.Bytes(), window+archive+rest
		if r.State != r.Accounted {
			r.Mismatch++
		}
		r.Most = max(r.Most, r.State)
		runtime.GC() // some hundred bytes of garbage a pass, of which the collector lets megabytes gather, are no growth
		r.Last = bench.ResidentBytes()
		if at <= mark {
			r.Filled, r.FilledAt = max(r.Filled, r.Last), at
		} else {
			r.Peak = max(r.Peak, r.Last)
		}
		if c.Progress != nil {
			c.Progress(at, c.Total)
		}
	}
	r.PerSecond = float64(c.Total) / spent
	r.FullKV = 4 * own.Account().FullKV
	if r.Filled > 0 {
		r.Growth = float64(r.Peak)/float64(r.Filled) - 1
	}
	if name := p.dev.Name(); name == "cpu" || name == "ref" {
		r.QCCPeak = bench.PeakBytes()
	}
	return nil
}

// LongConfig is a text of a given length and a model of random weights.
type LongConfig struct {
	RunID         string
	Shell         Shell
	Length        int
	Chunk         int
	Window, Codes int
	Lexical       bool
	StateOnly     bool // count, and run nothing
	Tokens        int  // decoded and timed after the text
	Progress      func(done, total int)
}

// LongResult counts a state beside an exact cache of the same length, by the published
// formula, and in bytes as they are.
type LongResult struct {
	Head
	Length        int     `json:"length"`
	Ran           bool    `json:"ran"`
	Bounded       int64   `json:"bounded_bytes"` // of the published formula's elements, four bytes each
	Full          int64   `json:"full_bytes"`
	Real          int64   `json:"real_bytes"` // pages and both banks
	StateFraction float64 `json:"state_fraction_percent"`
	Reduction     float64 `json:"reduction"`
	UnderHalf     bool    `json:"under_0.5pct"`
	UnderTenth    bool    `json:"under_0.1pct"`

	PrefillSeconds float64 `json:"prefill_seconds,omitempty"`
	TPOT           float64 `json:"tpot_ms,omitempty"` // median of single tokens behind the text
}

// RunLong counts the state of a long text and, unless StateOnly, runs it.
func RunLong(ctx context.Context, dev backend.Device, c LongConfig) (LongResult, error) {
	r := LongResult{Head: head("long_context", c.RunID, dev), Length: c.Length}
	r.Synthetic, r.QCCOnly = true, true
	if c.Length < 1 || c.Length > 1<<29 || c.Chunk < 1 || c.Tokens < 1 {
		return r, fmt.Errorf("qccbench: %d tokens in chunks of %d, %d after them: want positive numbers, at most 2^29 tokens", c.Length, c.Chunk, c.Tokens)
	}
	set := func(q *qcc.Config) {
		q.Window, q.Codes, q.Lexical, q.MaxPosition = c.Window, c.Codes, c.Lexical, max(c.Length, 4096)
	}
	h := c.Shell
	if err := h.check(); err != nil {
		return r, err
	}
	cfg := qcc.RetrofitConfig(h.Hidden, h.Heads, h.Heads, h.Hidden/h.Heads, 0)
	cfg.RoPE = &qcc.RoPE{Model: true}
	set(&cfg)
	if err := cfg.Validate(); err != nil {
		return r, err
	}
	e := elements(cfg, h.Layers, c.Length)
	window, archive := cfg.Bytes(h.Layers, c.Length)
	r.Bounded, r.Full, r.Real, r.Reduction = 4*e.Bounded, 4*e.Full, window+archive, e.Reduction
	fraction := float64(e.Bounded) / float64(e.Full)
	r.StateFraction, r.UnderHalf, r.UnderTenth = 100*fraction, fraction < 0.005, fraction < 0.001
	if c.StateOnly {
		return r, nil
	}
	p, err := openPair(ctx, dev, h, set)
	if err != nil {
		return r, err
	}
	err = p.fresh(p.own.Decoder, func(st state.State) error { return p.long(st, c, &r) })
	if e := p.close(); err == nil {
		err = e
	}
	return r, err
}

func (p *pair) long(st state.State, c LongConfig, r *LongResult) error {
	for at := 0; at < c.Length; {
		n := min(c.Chunk, c.Length-at)
		rows := p.text(n)
		s, err := seconds(func() error { return p.run(p.own.Decoder, st, rows, n, nil) })
		if err != nil {
			return err
		}
		r.PrefillSeconds += s
		at += n
		if c.Progress != nil {
			c.Progress(at, c.Length)
		}
	}
	var t []float64
	for _, row := range p.text(c.Tokens) {
		s, err := seconds(func() error { return p.run(p.own.Decoder, st, []state.Row{row}, 1, nil) })
		if err != nil {
			return err
		}
		t = append(t, 1000*s)
	}
	r.Ran, r.TPOT = true, bench.Median(t)
	return nil
}
