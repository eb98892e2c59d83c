package qccbench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"samebit/backend"
	"samebit/nn"
	"samebit/qcc"
	"samebit/state"
)

// LatencyConfig is a prompt and the tokens after it.
type LatencyConfig struct {
	RunID           string
	Length          int
	Repeats, Warmup int
	Tokens          int
	Chunk           int
	Memory          string  // says how the retrofit's memory is bounded
	Generated       bool    // the project made the model
	Text            []int32 // what is read; none: random tokens
}

// LatencyResult has times to the first token and per token after it, of a retrofit and
// of its model in turn.
type LatencyResult struct {
	Head
	Subject
	Length  int `json:"context_tokens"`
	Window  int `json:"window_size"`
	Repeats int `json:"repeats"`
	Tokens  int `json:"decode_steps"`
	QCC     struct {
		TTFT Tail `json:"ttft_ms"`
		TPOT Tail `json:"tpot_ms"`
	} `json:"qcc"`
	Full struct {
		TTFT Tail `json:"ttft_ms"`
		TPOT Tail `json:"tpot_ms"`
	} `json:"full_kv"`
	Speedup struct {
		TTFT Tail `json:"ttft"`
		TPOT Tail `json:"tpot"`
	} `json:"speedup"`
	Regression float64 `json:"ttft_regression"` // how much later the mean first token is, as a share; below 0 it is earlier
}

// Tail is the mean and the upper quantiles of times, or of their ratios.
type Tail struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
}

// tail interpolates linearly between ranks.
func tail(v []float64) (t Tail) {
	s := slices.Sorted(slices.Values(v))
	at := func(q float64) float64 {
		x := q * float64(len(s)-1)
		i := int(x)
		return s[i] + (s[min(i+1, len(s)-1)]-s[i])*(x-float64(i))
	}
	for _, x := range s {
		t.Mean += x / float64(len(s))
	}
	t.P50, t.P95, t.P99 = at(0.5), at(0.95), at(0.99)
	return t
}

func (t Tail) over(u Tail) Tail {
	return Tail{t.Mean / u.Mean, t.P50 / u.P50, t.P95 / u.P95, t.P99 / u.P99}
}

// RunLatency times prompts and tokens of a model, which it closes, and of its retrofit.
func RunLatency(ctx context.Context, dev backend.Device, d *nn.Decoder, a *qcc.Adapter, c LatencyConfig) (LatencyResult, error) {
	r := LatencyResult{Head: head("latency", c.RunID, dev), Subject: subject(d, c.Memory), Length: c.Length, Window: a.Config.Window, Repeats: c.Repeats, Tokens: c.Tokens}
	r.Synthetic, r.MatchedFullKV = c.Generated || len(c.Text) == 0, true
	if c.Length < 1 || c.Repeats < 1 || c.Warmup < 0 || c.Tokens < 1 || c.Chunk < 1 {
		d.Close()
		return r, fmt.Errorf("qccbench: %d repetitions of %d tokens and %d more: want positive numbers", c.Repeats, c.Length, c.Tokens)
	}
	if err := covers(c.Text, c.Length+c.Tokens); err != nil {
		d.Close()
		return r, err
	}
	p, err := patched(ctx, dev, d, a)
	if err != nil {
		d.Close()
		return r, err
	}
	p.given = c.Text
	rows, more := p.text(c.Length), p.text(c.Tokens)
	var first, rest [2][]float64
	for i := 0; i < c.Warmup+c.Repeats && err == nil; i++ {
		for j, m := range []*nn.Decoder{p.own.Decoder, p.full} {
			err = errors.Join(err, p.fresh(m, func(st state.State) error {
				s, err := seconds(func() error { return p.run(m, st, rows, c.Chunk, nil) })
				if i >= c.Warmup {
					first[j] = append(first[j], 1000*s)
				}
				for _, row := range more {
					if err != nil {
						return err
					}
					s, err = seconds(func() error { return p.run(m, st, []state.Row{row}, 1, nil) })
					if i >= c.Warmup {
						rest[j] = append(rest[j], 1000*s)
					}
				}
				return err
			}))
		}
	}
	if err == nil {
		r.QCC.TTFT, r.QCC.TPOT, r.Full.TTFT, r.Full.TPOT = tail(first[0]), tail(rest[0]), tail(first[1]), tail(rest[1])
		r.Speedup.TTFT, r.Speedup.TPOT = r.Full.TTFT.over(r.QCC.TTFT), r.Full.TPOT.over(r.QCC.TPOT)
		r.Regression = r.QCC.TTFT.Mean/r.Full.TTFT.Mean - 1
	}
	if e := p.close(); err == nil {
		err = e
	}
	return r, err
}

// ConcurrencyConfig is a number of sequences that decode together.
type ConcurrencyConfig struct {
	RunID       string
	Length      int // rows before
	Tokens      int
	Batches     []int
	Chunk       int
	BudgetBytes int64   // for the states of a batch; 0: no limit
	Memory      string  // says how the retrofit's memory is bounded
	Generated   bool    // the project made the model
	Text        []int32 // what is read, each sequence from where the last one ended; none: random tokens
}

// ConcurrencyResult says what fitted and how fast it was.
type ConcurrencyResult struct {
	Head
	Subject
	Length  int                `json:"context_tokens"`
	Window  int                `json:"window_size"`
	Budget  int64              `json:"budget_bytes,omitempty"`
	Batches []ConcurrencyPoint `json:"batches"`
	QCC     int                `json:"qcc_concurrency"` // the largest batch that fitted
	Full    int                `json:"full_kv_concurrency"`

	// Of the smallest batch that both could decode; left out if there is none.
	StateBatch int   `json:"attention_state_batch_size,omitempty"`
	QCCState   int64 `json:"qcc_attention_state_bytes,omitempty"`
	FullState  int64 `json:"full_kv_attention_state_bytes,omitempty"`
}

// ConcurrencyPoint is one model and batch.
type ConcurrencyPoint struct {
	Model     string  `json:"model"` // qcc or full_kv
	Batch     int     `json:"batch_size"`
	Status    string  `json:"status"` // ok, or oom: the budget does not hold the states
	PerSecond float64 `json:"tokens_per_second,omitempty"`
	State     int64   `json:"attention_state_bytes,omitempty"`
}

// RunConcurrency decodes batches with a model, which it closes, and with its retrofit.
func RunConcurrency(ctx context.Context, dev backend.Device, d *nn.Decoder, a *qcc.Adapter, c ConcurrencyConfig) (ConcurrencyResult, error) {
	r := ConcurrencyResult{Head: head("concurrency", c.RunID, dev), Subject: subject(d, c.Memory), Length: c.Length, Window: a.Config.Window, Budget: c.BudgetBytes, Batches: []ConcurrencyPoint{}}
	r.Synthetic, r.MatchedFullKV = c.Generated || len(c.Text) == 0, true
	if c.Length < 1 || c.Tokens < 1 || c.Chunk < 1 || len(c.Batches) == 0 || slices.Min(c.Batches) < 1 || slices.Max(c.Batches) > 1<<12 || c.BudgetBytes < 0 {
		d.Close()
		return r, fmt.Errorf("qccbench: batches %v of %d tokens and %d more: want positive numbers, batches to 2^12", c.Batches, c.Length, c.Tokens)
	}
	if err := covers(c.Text, c.Length+c.Tokens); err != nil {
		d.Close()
		return r, err
	}
	p, err := patched(ctx, dev, d, a)
	if err != nil {
		d.Close()
		return r, err
	}
	p.given = c.Text
	for _, n := range c.Batches {
		var fits [2]int64 // bytes
		for j, m := range []*nn.Decoder{p.own.Decoder, p.full} {
			if err != nil {
				break
			}
			x := ConcurrencyPoint{Model: []string{"qcc", "full_kv"}[j], Batch: n, Status: "ok"}
			err = p.batch(m, c, &x)
			if errors.Is(err, state.ErrNoRoom) || errors.Is(err, backend.ErrNoMemory) {
				x, err = ConcurrencyPoint{Model: x.Model, Batch: n, Status: "oom"}, nil
			} else if j == 0 {
				r.QCC = max(r.QCC, n)
			} else {
				r.Full = max(r.Full, n)
			}
			r.Batches = append(r.Batches, x)
			fits[j] = x.State
		}
		if fits[0] > 0 && fits[1] > 0 && (r.StateBatch == 0 || n < r.StateBatch) {
			r.StateBatch, r.QCCState, r.FullState = n, fits[0], fits[1]
		}
	}
	if e := p.close(); err == nil {
		err = e
	}
	return r, err
}

// batch decodes n sequences together, in a pool of their own.
func (p *pair) batch(m *nn.Decoder, c ConcurrencyConfig, x *ConcurrencyPoint) (err error) {
	pool, err := state.NewPool(p.dev, c.BudgetBytes)
	if err != nil {
		return err
	}
	p.at = 0 // of a text that was given both models read the same
	seqs := make([]nn.Seq, x.Batch)
	defer func() {
		for i := range seqs {
			if seqs[i].State != nil {
				seqs[i].State.Release()
			}
		}
		err = errors.Join(err, pool.Close())
	}()
	for i := range seqs {
		if seqs[i].State, err = m.NewState(pool); err != nil {
			return err
		}
		if err = p.run(m, seqs[i].State, p.text(c.Length), c.Chunk, nil); err != nil {
			return err
		}
	}
	s, err := seconds(func() error {
		for range c.Tokens {
			for i := range seqs {
				seqs[i].In, seqs[i].Want = p.text(1), nn.WantLast
			}
			if err := m.Forward(p.ctx, p.c, seqs); err != nil {
				return err
			}
		}
		return nil
	})
	x.PerSecond, x.State = float64(x.Batch*c.Tokens)/s, pool.Bytes()
	return err
}

// PerplexityConfig is a text whose every token but the first is predicted.
type PerplexityConfig struct {
	RunID     string
	Chunk     int
	Max       int    // tokens read; 0: all
	Memory    string // says how the retrofit's memory is bounded
	Generated bool   // the project made the model
	Benchmark string // that the text is of, as whoever gives it says; "": none
	MinNative int    // context that the model must have
}

// PerplexityResult is how well a retrofit and its model predict a text, which is one
// sequence: no token at the border of a chunk is dropped. Scores are 1/perplexity; tasks
// are the quarters of the text. It is never the full suite: one text is none.
type PerplexityResult struct {
	Head
	Benchmark string `json:"benchmark,omitempty"`
	Subject
	FullSuite bool               `json:"full_suite"`
	QCCScore  float64            `json:"qcc_score"`
	FullScore float64            `json:"full_kv_score"`
	Ratios    map[string]float64 `json:"task_ratios"`

	Window int        `json:"window_size"`
	Tokens int        `json:"tokens"`
	QCC    Likelihood `json:"qcc"`
	Full   Likelihood `json:"full_kv"`
	Ratio  float64    `json:"quality_ratio"`
}

// Likelihood is the mean negative log-likelihood per token, in nats.
type Likelihood struct {
	NLL        float64   `json:"mean_nll"`
	Perplexity float64   `json:"perplexity"`
	Score      float64   `json:"quality_score"` // 1/perplexity
	Buckets    []float64 `json:"bucket_nll"`    // by quarter of the text
}

// RunPerplexity reads a text with a model, which it closes, and with its retrofit.
func RunPerplexity(ctx context.Context, dev backend.Device, d *nn.Decoder, a *qcc.Adapter, ids []int32, c PerplexityConfig) (PerplexityResult, error) {
	r := PerplexityResult{Head: head("perplexity", c.RunID, dev), Benchmark: c.Benchmark, Subject: subject(d, c.Memory), Ratios: map[string]float64{}, Window: a.Config.Window}
	r.Synthetic, r.MatchedFullKV = c.Generated, true
	if c.Max > 0 {
		ids = ids[:min(c.Max, len(ids))]
	}
	if len(ids) < 5 || c.Chunk < 1 {
		d.Close()
		return r, fmt.Errorf("qccbench: a text of %d tokens in chunks of %d: want at least 5, and 1", len(ids), c.Chunk)
	}
	if err := d.CheckText(ids); err != nil {
		d.Close()
		return r, fmt.Errorf("qccbench: %w", err)
	}
	r.Tokens = len(ids) - 1
	if err := native(d, c.MinNative); err != nil {
		d.Close()
		return r, err
	}
	p, err := patched(ctx, dev, d, a)
	if err != nil {
		d.Close()
		return r, err
	}
	rows := state.Tokens(ids[:len(ids)-1])
	for j, m := range []*nn.Decoder{p.own.Decoder, p.full} {
		l := Likelihood{Buckets: make([]float64, 4)}
		var n [4]float64
		if err == nil {
			err = p.fresh(m, func(st state.State) error {
				i := 0
				return p.run(m, st, rows, c.Chunk, func(v []float32) {
					x := logSum(v, int(top(v))) - float64(v[ids[i+1]])
					q := 4 * i / len(rows)
					l.NLL, l.Buckets[q], n[q] = l.NLL+x, l.Buckets[q]+x, n[q]+1
					i++
				})
			})
		}
		l.NLL /= float64(r.Tokens)
		for q := range n {
			l.Buckets[q] /= n[q]
		}
		l.Perplexity, l.Score = math.Exp(l.NLL), math.Exp(-l.NLL)
		if j == 0 {
			r.QCC = l
		} else {
			r.Full = l
		}
	}
	r.QCCScore, r.FullScore, r.Ratio = r.QCC.Score, r.Full.Score, r.QCC.Score/r.Full.Score
	for q := range r.QCC.Buckets {
		r.Ratios[quarters[q]] = math.Exp(r.Full.Buckets[q] - r.QCC.Buckets[q])
	}
	if e := p.close(); err == nil {
		err = e
	}
	return r, err
}
