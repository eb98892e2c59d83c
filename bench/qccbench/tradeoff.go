package qccbench

import (
	"context"
	"fmt"
	"math"

	"samebit/backend"
	"samebit/qcc"
	"samebit/state"
)

// TradeoffConfig is what [RunTradeoff] tries: reads that are used again.
type TradeoffConfig struct {
	RunID                 string
	Shell                 Shell
	Length                int
	Window, Codes, Active int
	Strides               []int
	Closeness             []float64 // cosines of queries from which a read is used again
	RepeatToken           bool      // a text of one token
}

// TradeoffResult compares every setting with reads of every token.
type TradeoffResult struct {
	Head
	Length   int             `json:"length"`
	Settings []TradeoffPoint `json:"settings"`
}

// TradeoffPoint is one setting; the first reads every token.
type TradeoffPoint struct {
	Stride    int      `json:"archive_read_stride"`
	Closeness *float64 `json:"query_threshold,omitempty"`
	Seconds   float64  `json:"seconds"`
	Relative  float64  `json:"relative"` // how many times as fast as the first
	MSE       float64  `json:"logit_mse"`
	Cosine    float64  `json:"cosine"`
}

// RunTradeoff decodes a text token by token with stale reads of several strides and
// closenesses.
func RunTradeoff(ctx context.Context, dev backend.Device, c TradeoffConfig) (TradeoffResult, error) {
	r := TradeoffResult{Head: head("tradeoff", c.RunID, dev), Length: c.Length}
	r.Synthetic, r.QCCOnly = true, true
	if c.Length < 2 || c.Length > 1<<20 {
		return r, fmt.Errorf("qccbench: a text of %d tokens: want 2 to 2^20", c.Length)
	}
	points := []TradeoffPoint{{Stride: 1}}
	for _, s := range c.Strides {
		if s < 1 {
			return r, fmt.Errorf("qccbench: a stride of %d: want at least 1", s)
		}
		if s > 1 {
			points = append(points, TradeoffPoint{Stride: s})
		}
	}
	for _, x := range c.Closeness {
		points = append(points, TradeoffPoint{Stride: 1, Closeness: &x})
	}
	var base []float32
	for _, t := range points {
		p, err := openPair(ctx, dev, c.Shell, func(q *qcc.Config) {
			q.Window, q.Codes, q.ActiveCodes, q.LazyDecay = c.Window, c.Codes, c.Active, c.Active > 0
			q.ReadStride, q.StaleReads, q.ReadCloseness = t.Stride, t.Stride > 1, t.Closeness
		})
		if err != nil {
			return r, err
		}
		rows := p.text(c.Length)
		if c.RepeatToken {
			for i := range rows {
				rows[i] = rows[0]
			}
		}
		logits := make([]float32, 0, c.Length*c.Shell.Vocab)
		err = p.fresh(p.own.Decoder, func(st state.State) (err error) {
			t.Seconds, err = seconds(func() error {
				return p.run(p.own.Decoder, st, rows, 1, func(l []float32) { logits = append(logits, l...) })
			})
			return err
		})
		if e := p.close(); err == nil {
			err = e
		}
		if err != nil {
			return r, err
		}
		if base == nil {
			base = logits
		}
		t.Relative = 1
		if len(r.Settings) > 0 {
			t.Relative = r.Settings[0].Seconds / t.Seconds
		}
		var f Fidelity
		v := c.Shell.Vocab
		for at := 0; at < len(base); at += v {
			f.add(logits[at:at+v], base[at:at+v])
		}
		f.finish()
		t.MSE, t.Cosine = f.MSE/float64(v), math.Min(f.Cosine, 1)
		r.Settings = append(r.Settings, t)
	}
	return r, nil
}
