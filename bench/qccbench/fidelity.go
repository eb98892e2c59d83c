package qccbench

import (
	"context"
	"fmt"
	"math"

	"samebit/backend"
	"samebit/nn"
	"samebit/qcc"
	"samebit/qcc/lm"
	"samebit/state"
)

// Fidelity says how far rows of logits are apart. The cosine alone says little: see
// [RunRandomFidelity].
type Fidelity struct {
	Rows    int     `json:"rows"`
	Cosine  float64 `json:"mean_logit_cosine"`
	Top1    float64 `json:"top1_agreement"`
	KL      float64 `json:"mean_kl"` // of the exact distribution to the bounded one, nats
	MSE     float64 `json:"mse"`     // over the vocabulary summed, mean over rows, as published
	MaxDiff float64 `json:"max_abs_logit_diff"`

	same int
}

// add takes in one row of either model.
func (f *Fidelity) add(own, full []float32) {
	var ab, aa, bb, d2 float64
	topA, topB := 0, 0
	for i := range own {
		a, b := float64(own[i]), float64(full[i])
		ab, aa, bb, d2 = ab+a*b, aa+a*a, bb+b*b, d2+(a-b)*(a-b)
		f.MaxDiff = max(f.MaxDiff, math.Abs(a-b))
		if own[i] > own[topA] {
			topA = i
		}
		if full[i] > full[topB] {
			topB = i
		}
	}
	f.Rows++
	f.Cosine += ab / max(math.Sqrt(aa)*math.Sqrt(bb), 1e-12)
	f.MSE += d2
	if topA == topB {
		f.same++
	}
	za, zb := logSum(own, topA), logSum(full, topB)
	for i := range own {
		lb := float64(full[i]) - zb
		f.KL += math.Exp(lb) * (lb - float64(own[i]) + za)
	}
}

// finish turns sums into means.
func (f *Fidelity) finish() {
	if n := float64(f.Rows); n > 0 {
		f.Cosine, f.MSE, f.KL, f.Top1 = f.Cosine/n, f.MSE/n, f.KL/n, float64(f.same)/n
	}
}

// logSum is the logarithm of the sum of exponentials; top is where the largest is.
func logSum(v []float32, top int) float64 {
	s := 0.0
	for _, x := range v {
		s += math.Exp(float64(x) - float64(v[top]))
	}
	return float64(v[top]) + math.Log(s)
}

// compare runs rows through both models and takes in every row of logits from some on.
func (p *pair) compare(rows []state.Row, chunk, from int, f *Fidelity) error {
	return p.fresh(p.own.Decoder, func(own state.State) error {
		return p.fresh(p.full, func(full state.State) error {
			v := p.full.Vocab
			kept := make([]float32, 0, chunk*v)
			for at := 0; at < len(rows); at += chunk {
				part := rows[at:min(at+chunk, len(rows))]
				kept = kept[:0]
				if err := p.run(p.own.Decoder, own, part, chunk, func(l []float32) { kept = append(kept, l...) }); err != nil {
					return err
				}
				i := 0
				err := p.run(p.full, full, part, chunk, func(l []float32) {
					if at+i >= from {
						f.add(kept[i*v:(i+1)*v], l)
					}
					i++
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// RetrofitConfig is a comparison of a retrofitted model with itself.
type RetrofitConfig struct {
	RunID     string
	Chunk     int
	Gate      float64 // that cosine and top-1 must both reach
	Synthetic bool    // the texts are no texts, or the weights are random
}

// RetrofitResult has a report per text and over all rows; those beyond the window,
// which alone can differ, also by themselves.
type RetrofitResult struct {
	Head
	Window  int        `json:"window_size"`
	Records []Fidelity `json:"records"`
	Fidelity
	Beyond Fidelity `json:"beyond_window"`
	Gate   float64  `json:"quality_gate"`
	Passed bool     `json:"fidelity_passed"` // beyond the window, by cosine and by top-1
}

// RunRetrofit runs texts through a model, which it closes, and through its retrofit.
func RunRetrofit(ctx context.Context, dev backend.Device, d *nn.Decoder, a *qcc.Adapter, texts [][]int32, c RetrofitConfig) (RetrofitResult, error) {
	r := RetrofitResult{Head: head("retrofit", c.RunID, dev), Window: a.Config.Window, Gate: c.Gate}
	r.MatchedFullKV, r.Synthetic = true, c.Synthetic
	if c.Chunk < 1 || len(texts) == 0 {
		d.Close()
		return r, fmt.Errorf("qccbench: %d texts in chunks of %d: want at least one of each", len(texts), c.Chunk)
	}
	p, err := patched(ctx, dev, d, a)
	if err != nil {
		d.Close()
		return r, err
	}
	for _, ids := range texts {
		rows := state.Tokens(ids)
		var whole, beyond Fidelity
		for _, part := range []struct {
			f    *Fidelity
			from int
		}{{&whole, 0}, {&beyond, a.Config.From()}} {
			if err == nil && part.from < len(rows) {
				err = p.compare(rows, c.Chunk, part.from, part.f)
			}
		}
		if err != nil {
			break
		}
		r.Fidelity.merge(whole)
		r.Beyond.merge(beyond)
		whole.finish()
		r.Records = append(r.Records, whole)
	}
	r.Fidelity.finish()
	r.Beyond.finish()
	r.Passed = err == nil && r.Beyond.Rows > 0 && r.Beyond.Cosine >= c.Gate && r.Beyond.Top1 >= c.Gate
	if e := p.close(); err == nil {
		err = e
	}
	return r, err
}

// merge adds the sums of another.
func (f *Fidelity) merge(g Fidelity) {
	f.Rows, f.same = f.Rows+g.Rows, f.same+g.same
	f.Cosine, f.MSE, f.KL, f.MaxDiff = f.Cosine+g.Cosine, f.MSE+g.MSE, f.KL+g.KL, max(f.MaxDiff, g.MaxDiff)
}

// RandomConfig is the published fidelity of random weights.
type RandomConfig struct {
	RunID         string
	Shell         Shell
	Lengths       []int
	Batch         int
	Window, Codes int
	Target        float64
}

// RandomResult is that fidelity, beside what a bare window and no attention at all
// reach: a target that they reach as well says nothing.
type RandomResult struct {
	Head
	Target  float64        `json:"target"`
	Lengths []RandomLength `json:"lengths"`
	Passed  bool           `json:"passed"`
	Vacuous bool           `json:"passed_without_attention"`
}

// RandomLength is one length.
type RandomLength struct {
	Length int `json:"length"`
	Fidelity
	WindowOnly  float64 `json:"window_only_cosine"`
	NoAttention float64 `json:"no_attention_cosine"`
}

// RunRandomFidelity compares the small language model of random weights with itself
// under full attention. It is a check of plumbing and no measure of quality.
func RunRandomFidelity(ctx context.Context, dev backend.Device, c RandomConfig) (RandomResult, error) {
	r := RandomResult{Head: head("fullkv_quality", c.RunID, dev), Target: c.Target, Passed: true, Vacuous: true}
	r.Synthetic, r.MatchedFullKV = true, true
	if len(c.Lengths) == 0 || c.Batch < 1 {
		return r, fmt.Errorf("qccbench: %d lengths, %d texts of each: want at least one", len(c.Lengths), c.Batch)
	}
	if err := c.Shell.check(); err != nil {
		return r, err
	}
	for _, n := range c.Lengths {
		if n < 2 || n > 1<<20 {
			return r, fmt.Errorf("qccbench: texts of %d tokens: want 2 to 2^20", n)
		}
		l, err := c.length(ctx, dev, n)
		if err != nil {
			return r, err
		}
		r.Lengths = append(r.Lengths, l)
		r.Passed, r.Vacuous = r.Passed && l.Cosine >= c.Target, r.Vacuous && l.NoAttention >= c.Target
	}
	return r, nil
}

func (c RandomConfig) length(ctx context.Context, dev backend.Device, n int) (RandomLength, error) {
	r := RandomLength{Length: n}
	s := c.Shell
	base := qcc.DefaultConfig(s.Hidden, s.Heads)
	base.Window, base.Codes, base.MaxPosition = c.Window, c.Codes, max(n, 4096)
	params := randomLM(s, base)
	full, window := base, base
	full.NoArchive, full.Window = true, n
	window.Remote = new(float64)
	none := *params
	none.Layers = append([]lm.LayerParams(nil), params.Layers...)
	for i := range none.Layers {
		none.Layers[i].O = make([]float32, s.Hidden*s.Hidden)
	}
	var logits [4][]float32
	for i, m := range []struct {
		c qcc.Config
		p *lm.Params
	}{{full, params}, {base, params}, {window, params}, {base, &none}} {
		var err error
		if logits[i], err = s.logits(ctx, dev, m.c, m.p, n, c.Batch); err != nil {
			return r, err
		}
	}
	var f [3]Fidelity
	for i := range f {
		for at := 0; at < len(logits[0]); at += s.Vocab {
			f[i].add(logits[i+1][at:at+s.Vocab], logits[0][at:at+s.Vocab])
		}
		f[i].finish()
	}
	r.Fidelity, r.WindowOnly, r.NoAttention = f[0], f[1].Cosine, f[2].Cosine
	return r, nil
}

// randomLM draws parameters as published: a normal embedding, uniform linear layers.
func randomLM(s Shell, c qcc.Config) *lm.Params {
	w := s.Hidden
	normal := func(name string, n int) []float32 {
		v := make([]float32, n)
		qcc.Normal(v, s.Seed, name, 1)
		return v
	}
	uniform := func(name string, n, in int) []float32 {
		v := make([]float32, n)
		qcc.Uniform(v, s.Seed, name, float32(1/math.Sqrt(float64(in))))
		return v
	}
	ones := func() []float32 {
		v := make([]float32, w)
		for i := range v {
			v[i] = 1
		}
		return v
	}
	p := &lm.Params{Embed: normal("embed", s.Vocab*w), NormW: ones(), NormB: make([]float32, w)}
	for i := range s.Layers {
		at := func(name string, n, in int) []float32 { return uniform(fmt.Sprint(i, name), n, in) }
		own, _ := qcc.NewParams(c, s.Seed+uint64(i)) // of a configuration that lm.New checks
		p.Layers = append(p.Layers, lm.LayerParams{Params: own,
			Projections: qcc.Projections{Q: at("q", w*w, w), K: at("k", w*w, w), V: at("v", w*w, w), O: at("o", w*w, w),
				BQ: at("bq", w, w), BK: at("bk", w, w), BV: at("bv", w, w), BO: at("bo", w, w)},
			Norm1W: ones(), Norm1B: make([]float32, w), Norm2W: ones(), Norm2B: make([]float32, w),
			W1: at("w1", 4*w*w, w), B1: at("b1", 4*w, w), W2: at("w2", 4*w*w, 4*w), B2: at("b2", w, 4*w)})
	}
	return p
}

// logits are those of seeded texts.
func (s Shell) logits(ctx context.Context, dev backend.Device, c qcc.Config, p *lm.Params, n, batch int) ([]float32, error) {
	cfg := lm.DefaultConfig(s.Vocab)
	cfg.Layer, cfg.Layers, cfg.MaxPosition = c, s.Layers, max(n, 4096)
	m, err := lm.New(dev, cfg, p)
	if err != nil {
		return nil, err
	}
	out := make([]float32, batch*n*s.Vocab)
	for i := range batch {
		ids := make([]int32, n)
		v := make([]float32, n)
		qcc.Uniform(v, s.Seed, fmt.Sprint("text", i), 0.5)
		for j := range ids {
			ids[j] = int32((v[j] + 0.5) * float32(s.Vocab))
		}
		if err := m.Forward(ctx, out[i*n*s.Vocab:(i+1)*n*s.Vocab], ids); err != nil {
			m.Close()
			return nil, err
		}
	}
	return out, m.Close()
}
