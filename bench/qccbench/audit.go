package qccbench

import (
	"context"
	"strconv"

	"samebit/backend"
)

// Target is one claim in an audit: missing without a measurement, which is no pass.
type Target struct {
	Value     float64 `json:"value"`
	Threshold float64 `json:"threshold"`
	Status    string  `json:"status"` // pass, fail or missing
}

func atMost(value, threshold float64) Target  { return judged(value, threshold, value <= threshold) }
func atLeast(value, threshold float64) Target { return judged(value, threshold, value >= threshold) }

func judged(value, threshold float64, ok bool) Target {
	if ok {
		return Target{value, threshold, "pass"}
	}
	return Target{value, threshold, "fail"}
}

// AuditConfig is what [RunAudit] looks at.
type AuditConfig struct {
	RunID          string
	Shell          Shell
	Lengths        []int // of which the state is counted
	QualityLengths []int // of random weights
	Window, Codes  int
	QualityTarget  float64
	RunLatency     bool // stream each length and time the tokens behind it
	FullMax        int  // the longest text that is compared with a full cache; 0: none
	StateOnly      bool
	Progress       func(done, total int)

	Retrieve        func(ctx context.Context) (RetrievalResult, error) // asks a trained model; nil: none
	RetrievalTarget float64
}

// AuditResult has all targets in one report. Quality here is that of random weights,
// which passes without any attention and is marked so; retrieval is missing without a
// trained model.
type AuditResult struct {
	Head
	Config  Shell              `json:"config"`
	Window  int                `json:"window_size"`
	Codes   int                `json:"num_codes"`
	State   map[string]Target  `json:"state"`             // percent of a full cache, by length
	Latency map[string]Target  `json:"latency"`           // tokens per token of a full cache's time
	TPOT    map[string]float64 `json:"tpot_ms,omitempty"` // of single tokens behind the lengths that were streamed, medians
	Quality struct {
		Target
		Vacuous bool `json:"passed_without_attention"`
	} `json:"quality"`
	Retrieval Target  `json:"retrieval"`
	Elapsed   float64 `json:"elapsed"`
}

// RunAudit judges the claims that random weights can judge.
func RunAudit(ctx context.Context, dev backend.Device, c AuditConfig) (AuditResult, error) {
	r := AuditResult{Head: head("audit_targets", c.RunID, dev), Config: c.Shell, Window: c.Window, Codes: c.Codes, State: map[string]Target{}, Latency: map[string]Target{}, TPOT: map[string]float64{}}
	r.Synthetic = true
	missing := func(threshold float64) Target { return Target{Threshold: threshold, Status: "missing"} }
	r.Quality.Target, r.Retrieval = missing(c.QualityTarget), missing(c.RetrievalTarget)
	var err error
	r.Elapsed, err = seconds(func() error {
		for _, n := range c.Lengths {
			l, err := RunLong(ctx, dev, LongConfig{RunID: c.RunID, Shell: c.Shell, Length: n, Chunk: 256, Window: c.Window, Codes: c.Codes, Tokens: 16, StateOnly: c.StateOnly || !c.RunLatency, Progress: c.Progress})
			if err != nil {
				return err
			}
			r.State[strconv.Itoa(n)] = atMost(l.StateFraction, 0.5)
			r.Latency[strconv.Itoa(n)] = missing(1)
			if l.Ran {
				r.TPOT[strconv.Itoa(n)] = l.TPOT
			}
			if !c.StateOnly && c.FullMax > 0 && n <= c.FullMax {
				s, err := RunSpeed(ctx, dev, c.speed(n), nil)
				if err != nil {
					return err
				}
				r.Latency[strconv.Itoa(n)] = atLeast(s.Decode[0].Speedup, 1)
			}
		}
		if c.Retrieve != nil && !c.StateOnly {
			x, err := c.Retrieve(ctx)
			if err != nil {
				return err
			}
			r.Retrieval = atLeast(x.Accuracy, c.RetrievalTarget)
			if x.MatchedFullKV && x.Full > 0 && x.Ratio < c.RetrievalTarget { // not as good as exact attention
				r.Retrieval.Status = "fail"
			}
		}
		if c.StateOnly || len(c.QualityLengths) == 0 {
			return nil
		}
		q, err := RunRandomFidelity(ctx, dev, RandomConfig{RunID: c.RunID, Shell: Shell{Vocab: 64, Hidden: 32, Layers: 1, Heads: 4, Seed: c.Shell.Seed}, Lengths: c.QualityLengths, Batch: 1, Window: 8, Codes: 16, Target: c.QualityTarget})
		if err != nil {
			return err
		}
		least := 1.0
		for _, l := range q.Lengths {
			least = min(least, l.Cosine)
		}
		r.Quality.Target, r.Quality.Vacuous = atLeast(least, c.QualityTarget), q.Vacuous
		return nil
	})
	return r, err
}

// speed is the comparison with a full cache behind n tokens.
func (c AuditConfig) speed(n int) SpeedConfig {
	return SpeedConfig{RunID: c.RunID, Shell: c.Shell, Contexts: []int{n}, Tokens: 16, Repeat: 1, Chunk: 256, Window: c.Window, Codes: c.Codes}
}
