package qccbench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"samebit/backend"
	"samebit/nn"
	"samebit/qcc"
	"samebit/state"
)

// AssociativeConfig is what [RunAssociative] tries.
type AssociativeConfig struct {
	RunID                     string
	Trials                    int
	Context                   int // tokens that the needles are spread over
	Needles, Near, Random     int // needles, distractors near each, others
	Dim, Sets, Ways           int
	NearNoise, QueryNoise     float64
	RequireRate, RequireRatio float64
	Seed                      uint64
	Progress                  func(done, total int)
}

// AssociativeResult is what an exact table finds when it is told what to keep, which
// no deployed admission is: an upper bound.
type AssociativeResult struct {
	Head
	Oracle  bool    `json:"oracle_admission"`
	Trials  int     `json:"trials"`
	Needles int     `json:"needles"`
	Table   float64 `json:"table_success_rate"` // trials whose needles were all found
	Full    float64 `json:"full_success_rate"`  // by a search among all keys
	Ratio   float64 `json:"success_ratio"`
	Needle  float64 `json:"needle_success_rate"`
	Missed  float64 `json:"catastrophic_miss_rate"` // trials that the full search solves and the table does not
	Depths  [2]int  `json:"depth_range"`            // tokens before the end
	State   int64   `json:"state_bytes"`
	FullKV  int64   `json:"full_kv_bytes"`
	Passed  bool    `json:"passed_development_gate"`
}

// RunAssociative stores needles among distractors in the exact tier of a layer and
// asks for them with noisy queries. There is no model: keys and values are drawn.
func RunAssociative(ctx context.Context, dev backend.Device, c AssociativeConfig) (AssociativeResult, error) {
	r := AssociativeResult{Head: head("associative_retrieval", c.RunID, dev), Oracle: true, Trials: c.Trials, Needles: c.Needles}
	r.Synthetic = true
	if c.Trials < 1 || c.Needles < 1 || c.Near < 0 || c.Random < 0 || c.Dim < 2 || c.Dim > 4096 || max(c.Needles, c.Near, c.Random) > 1<<12 {
		return r, fmt.Errorf("qccbench: %d trials of %d needles with %d near and %d random distractors, %d wide: want at least one trial and needle, 2 wide or more, and at most %d of each", c.Trials, c.Needles, c.Near, c.Random, c.Dim, 1<<12)
	}
	if n := c.events(); c.Context <= n {
		return r, fmt.Errorf("qccbench: %d needles and distractors in %d tokens: want at least %d tokens", n, c.Context, n+1)
	}
	cfg := qcc.RegistryConfig(1, c.Dim)
	always := 1.0
	cfg.Window, cfg.Codes, cfg.Scales, cfg.Remote = 1, 1, 1, &always
	cfg.Exact = &qcc.Exact{Sets: c.Sets, Ways: c.Ways, Confidence: -0.5, ConfidenceTemp: 1000, AdmissionWeight: 1, DiversityWeight: 0.1}
	p, err := qcc.NewParams(cfg, c.Seed)
	if err != nil {
		return r, err
	}
	// The oracle: values begin with a mark, and only marked ones are admitted. A hit's
	// value replaces everything else.
	p.AdmValue[0], p.AdmBias[0], p.ExactMix[0] = 2, -0.5, 1000
	reg, err := qcc.NewRegistry(dev, cfg, p)
	if err != nil {
		return r, err
	}
	found, solved := 0, 0
	r.Depths = [2]int{math.MaxInt, 0}
	next := rand.New(rand.NewPCG(c.Seed, 1))
	for i := range c.Trials {
		t := c.trial(next, &r.Depths)
		out, err := reg.Forward(ctx, "trial", t.in)
		if err != nil {
			reg.Close()
			return r, err
		}
		reg.Drop("trial")
		hits, full := 0, 0
		for q := range c.Needles {
			row := out[(t.events+q)*c.Dim : (t.events+q+1)*c.Dim]
			if slices.Equal(row, t.in.V[t.at[q]*c.Dim:(t.at[q]+1)*c.Dim]) {
				hits++
			}
			if t.nearest(q, c.Dim) == t.at[q] {
				full++
			}
		}
		found += hits
		if full == c.Needles {
			solved++
			if hits < c.Needles {
				r.Missed++
			}
		}
		if hits == c.Needles {
			r.Table++
		}
		if c.Progress != nil {
			c.Progress(i+1, c.Trials)
		}
	}
	n := float64(c.Trials)
	r.Table, r.Missed, r.Full, r.Needle = r.Table/n, r.Missed/n, float64(solved)/n, float64(found)/n/float64(c.Needles)
	if solved > 0 {
		r.Ratio = r.Table / r.Full
	}
	window, archive := cfg.Bytes(1, c.Context)
	r.State, r.FullKV = window+archive, 8*int64(c.Dim)*int64(c.Context)
	r.Passed = r.Table >= c.RequireRate && r.Ratio >= c.RequireRatio
	return r, reg.Close()
}

func (c AssociativeConfig) events() int { return c.Needles*(1+c.Near) + c.Random }

// trial is one text of events, then a query per needle.
type trial struct {
	events int
	at     []int // the event of each needle
	in     qcc.Projected
}

// trial draws keys and values. Tokens between the events change no slot and are left
// out; depths are where they would lie.
func (c AssociativeConfig) trial(next *rand.Rand, depths *[2]int) trial {
	d, n := c.Dim, c.events()
	t := trial{events: n, at: make([]int, c.Needles)}
	rows := n + c.Needles
	t.in = qcc.Projected{Q: make([]float32, rows*d), K: make([]float32, rows*d), V: make([]float32, rows*d)}
	unit := func(dst, near []float32, noise float64) {
		s := 0.0
		for i := range dst {
			x := next.NormFloat64()
			if near != nil {
				x = float64(near[i]) + noise*x/math.Sqrt(float64(d))
			}
			dst[i] = float32(x)
			s += x * x
		}
		for i := range dst {
			dst[i] /= float32(math.Sqrt(s))
		}
	}
	order := next.Perm(n)
	key := func(e int) []float32 { return t.in.K[e*d : (e+1)*d] }
	for e := range n {
		v := t.in.V[e*d : (e+1)*d]
		for i := range v {
			v[i] = next.Float32() - 0.5
		}
		v[0] = -1
	}
	for i := range c.Needles {
		t.at[i] = order[i*(1+c.Near)]
		unit(key(t.at[i]), nil, 0)
		t.in.V[t.at[i]*d] = float32(d) // the mark, which outweighs the rest
		for j := range c.Near {
			unit(key(order[i*(1+c.Near)+1+j]), key(t.at[i]), c.NearNoise)
		}
		depth := c.Context - next.IntN(c.Context-n)
		depths[0], depths[1] = min(depths[0], depth), max(depths[1], depth)
	}
	for _, e := range order[c.Needles*(1+c.Near):] {
		unit(key(e), nil, 0)
	}
	// The last event leaves the window when the first query comes.
	for i := range c.Needles {
		unit(t.in.Q[(n+i)*d:(n+i+1)*d], key(t.at[i]), c.QueryNoise)
	}
	for i := range t.in.V[n*d:] {
		if i%d == 0 {
			t.in.V[n*d+i] = -1
		}
	}
	return t
}

// nearest is the event whose key is nearest to a query, among all.
func (t trial) nearest(q, d int) int {
	best, most := -1, math.Inf(-1)
	x := t.in.Q[(t.events+q)*d : (t.events+q+1)*d]
	for e := range t.events {
		s := 0.0
		for i := range x {
			s += float64(x[i]) * float64(t.in.K[e*d+i])
		}
		if s > most {
			best, most = e, s
		}
	}
	return best
}

// StrictConfig is a data set of retrieval over long contexts.
type StrictConfig struct {
	Lengths                    []int
	Vocab                      int
	QueryAt                    float64 // where the marker is repeated, as a share of the length
	Seed                       uint64
	RandomMarker, RandomFiller bool
}

// Retrieval is a record of such a set: the token behind target_position is asked for.
type Retrieval struct {
	IDs     []int32 `json:"input_ids"`
	Target  int     `json:"target_position"`
	Answers []int32 `json:"answers"`
}

// WriteStrict writes one record per length and value, as JSON lines: token 0 is a
// marker and token 1 the value; at the query's place the marker comes again, and the
// value is what should follow.
func WriteStrict(w io.Writer, c StrictConfig) (records int, err error) {
	if c.Vocab < firstValue+2 || c.Vocab > 1<<20 || !(c.QueryAt > 0 && c.QueryAt < 1) {
		return 0, fmt.Errorf("qccbench: a vocabulary of %d, queries at %v of the length: want 5 to 2^20, and a share between 0 and 1", c.Vocab, c.QueryAt)
	}
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	next := rand.New(rand.NewPCG(c.Seed, 2))
	for _, n := range c.Lengths {
		at := int(float64(n) * c.QueryAt)
		if n < 8 || n > 1<<26 || at < 3 || at > n-2 {
			return records, fmt.Errorf("qccbench: records of %d tokens with a query at %d: want 8 to 2^26, and room before and behind it", n, at)
		}
		for value := int32(firstValue); value < int32(c.Vocab); value++ {
			x := Retrieval{IDs: make([]int32, n), Target: at, Answers: []int32{value}}
			marker := int32(marker)
			if c.RandomMarker {
				for marker = value; marker == value; {
					marker = firstValue + int32(next.IntN(c.Vocab-firstValue))
				}
			}
			for i := range x.IDs {
				x.IDs[i] = filler
				for c.RandomFiller && (x.IDs[i] == filler || x.IDs[i] == marker) {
					x.IDs[i] = firstValue + int32(next.IntN(c.Vocab-firstValue))
				}
			}
			x.IDs[0], x.IDs[1], x.IDs[at], x.IDs[at+1] = marker, value, marker, value
			if err := e.Encode(x); err != nil {
				return records, err
			}
			records++
		}
	}
	return records, b.Flush()
}

// RetrievalConfig is an evaluation on such records.
type RetrievalConfig struct {
	RunID       string
	Chunk       int
	Target      float64
	CompareFull bool
	Max         int // records; 0: all
	Progress    func(done int)
}

// RetrievalResult counts records whose likeliest token at the target is an answer.
type RetrievalResult struct {
	Head
	Window   int     `json:"window_size"`
	Records  int     `json:"examples"`
	Correct  int     `json:"correct"`
	Accuracy float64 `json:"accuracy"`
	Target   float64 `json:"target"`
	Passed   bool    `json:"passed"`
	Full     float64 `json:"full_accuracy,omitempty"`
	Ratio    float64 `json:"quality_ratio,omitempty"`
	Cosine   float64 `json:"mean_cosine,omitempty"` // of the logits at the target
}

// RunRetrieval asks a retrofitted model, and with CompareFull the model itself, which
// it closes, for the answers of records.
func RunRetrieval(ctx context.Context, dev backend.Device, d *nn.Decoder, a *qcc.Adapter, records io.Reader, c RetrievalConfig) (RetrievalResult, error) {
	r := RetrievalResult{Head: head("evaluate_retrieval", c.RunID, dev), Window: a.Config.Window, Target: c.Target}
	r.Synthetic, r.QCCOnly, r.MatchedFullKV = true, !c.CompareFull, c.CompareFull
	p, err := patched(ctx, dev, d, a)
	if err != nil {
		d.Close()
		return r, err
	}
	arm := func(d *nn.Decoder) func(ids []int32) ([]float32, error) {
		return func(ids []int32) ([]float32, error) {
			return p.last(d, state.Tokens(ids), c.Chunk)
		}
	}
	both := arms{own: arm(p.own.Decoder)}
	if c.CompareFull {
		both.full = arm(p.full)
	}
	err = both.retrieve(records, c, &r)
	if e := p.close(); err == nil {
		err = e
	}
	return r, err
}

// arms give the logits of the last token of a text: those of the bounded model and, if
// it is compared, of the exact one.
type arms struct {
	own, full func(ids []int32) ([]float32, error)
}

func (a arms) retrieve(records io.Reader, c RetrievalConfig, r *RetrievalResult) error {
	if c.Chunk < 1 {
		return fmt.Errorf("qccbench: chunks of %d rows: want at least one", c.Chunk)
	}
	in := json.NewDecoder(bufio.NewReader(records))
	full, cosine := 0, 0.0
	for c.Max == 0 || r.Records < c.Max {
		var x Retrieval
		if err := in.Decode(&x); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("qccbench: record %d: %w", r.Records, err)
		}
		if x.Target < 0 || x.Target >= len(x.IDs) || len(x.Answers) == 0 {
			return fmt.Errorf("qccbench: record %d asks at %d of %d tokens for %d answers", r.Records, x.Target, len(x.IDs), len(x.Answers))
		}
		own, err := a.own(x.IDs[:x.Target+1])
		if err != nil {
			return fmt.Errorf("qccbench: record %d: %w", r.Records, err)
		}
		if slices.Contains(x.Answers, top(own)) {
			r.Correct++
		}
		if a.full != nil {
			l, err := a.full(x.IDs[:x.Target+1])
			if err != nil {
				return fmt.Errorf("qccbench: record %d: %w", r.Records, err)
			}
			if slices.Contains(x.Answers, top(l)) {
				full++
			}
			var f Fidelity
			f.add(own, l)
			cosine += f.Cosine
		}
		r.Records++
		if c.Progress != nil {
			c.Progress(r.Records)
		}
	}
	n := float64(r.Records)
	if n == 0 {
		return fmt.Errorf("qccbench: the data set has no records")
	}
	r.Accuracy, r.Full, r.Cosine = float64(r.Correct)/n, float64(full)/n, cosine/n
	r.Passed = r.Accuracy >= c.Target
	if full > 0 {
		r.Ratio = r.Accuracy / r.Full
	}
	return nil
}

// last are the logits of the last row of a text.
func (p *pair) last(d *nn.Decoder, rows []state.Row, chunk int) (logits []float32, err error) {
	err = p.fresh(d, func(st state.State) error {
		if n := len(rows) - 1; n > 0 {
			if err := p.run(d, st, rows[:n], chunk, nil); err != nil {
				return err
			}
		}
		return p.run(d, st, rows[len(rows)-1:], 1, func(l []float32) { logits = slices.Clone(l) })
	})
	return logits, err
}

// top is the index of the largest value, the first one of several.
func top(v []float32) int32 {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return int32(best)
}
