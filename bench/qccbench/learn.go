package qccbench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"samebit/backend"
	"samebit/qcc"
)

// LearnConfig is a small training of codes.
type LearnConfig struct {
	RunID         string
	Steps, Batch  int
	Length, Dim   int
	Codes, Window int
	Decay         float64 // factor per token
	Rate          float64 // of Adam
	Seed          uint64
}

// LearnResult is how near an archive comes to what it stands for, before and after.
type LearnResult struct {
	Head
	Steps       int     `json:"steps"`
	Initial     float64 `json:"initial_mse"`
	Final       float64 `json:"final_mse"`
	Improvement float64 `json:"improvement"` // initial over final
	Mean        float64 `json:"decayed_mean_mse"`
	Elements    int     `json:"state_elements"` // of the archive
}

// RunLearn trains the codes of an archive of one head to give what softmax attention
// over the past gives whose weights decay alike, on random rows, and compares both on
// rows of its own. The decayed mean of the values stands beside: it looks at no key.
func RunLearn(ctx context.Context, dev backend.Device, c LearnConfig) (LearnResult, error) {
	r := LearnResult{Head: head("archive-quality", c.RunID, dev), Steps: c.Steps, Elements: c.Codes * (c.Dim + 1)}
	r.Synthetic, r.QCCOnly = true, true
	if c.Steps < 0 || c.Batch < 1 || c.Length <= c.Window || c.Length > 1<<14 || c.Dim > 1<<10 || c.Batch > 1<<10 || !(c.Rate > 0) {
		return r, fmt.Errorf("qccbench: %d steps of %d texts of %d tokens, window %d, rate %v: want positive numbers, and texts that are longer than the window", c.Steps, c.Batch, c.Length, c.Window, c.Rate)
	}
	one := 1.0 // the archive alone
	cfg := qcc.DefaultConfig(c.Dim, 1)
	cfg.Window, cfg.Codes, cfg.Scales, cfg.Decay, cfg.Rank, cfg.Remote = c.Window, c.Codes, 1, []float64{c.Decay}, 0, &one
	p, err := qcc.NewParams(cfg, c.Seed)
	if err != nil {
		return r, err
	}
	next := rand.New(rand.NewPCG(c.Seed, 1))
	normal := func(n int, scale float64) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(scale * next.NormFloat64())
		}
		return v
	}
	l := &learner{LearnConfig: c, cfg: cfg, p: p, dev: dev, maps: qcc.Projections{O: make([]float32, c.Dim*c.Dim)}}
	for i := range c.Dim {
		l.maps.O[i*c.Dim+i] = 1
	}
	for _, m := range []*[]float32{&l.maps.Q, &l.maps.K, &l.maps.V} {
		*m = normal(c.Dim*c.Dim, 1/math.Sqrt(float64(c.Dim)))
	}
	rows := func() [][]float32 {
		out := make([][]float32, c.Batch)
		for i := range out {
			out[i] = normal(c.Length*c.Dim, 1)
		}
		return out
	}
	heldOut := rows()
	if r.Initial, err = l.pass(ctx, heldOut, nil); err != nil {
		return r, err
	}
	m, v := make([]float64, len(p.Codes)), make([]float64, len(p.Codes))
	for step := 1; step <= c.Steps; step++ {
		d := make([]float32, len(p.Codes))
		if _, err := l.pass(ctx, rows(), d); err != nil {
			return r, err
		}
		for i, g := range d { // Adam
			m[i] += 0.1 * (float64(g) - m[i])
			v[i] += 0.001 * (float64(g)*float64(g) - v[i])
			m1, v1 := m[i]/(1-math.Pow(0.9, float64(step))), v[i]/(1-math.Pow(0.999, float64(step)))
			p.Codes[i] -= float32(c.Rate * m1 / (math.Sqrt(v1) + 1e-8))
		}
	}
	if r.Final, err = l.pass(ctx, heldOut, nil); err != nil {
		return r, err
	}
	r.Improvement = r.Initial / r.Final
	n := 0
	for _, x := range heldOut {
		exact, mean := l.exact(x, 1), l.exact(x, 0)
		for i := range exact {
			r.Mean += (mean[i] - exact[i]) * (mean[i] - exact[i])
		}
		n += len(exact)
	}
	r.Mean /= float64(n)
	return r, nil
}

// learner is a layer that learns.
type learner struct {
	LearnConfig
	cfg  qcc.Config
	p    *qcc.Params
	maps qcc.Projections
	dev  backend.Device
}

// pass runs texts and returns the mean squared error of the rows that read the
// archive; with d it adds the gradient of the codes.
func (l *learner) pass(ctx context.Context, texts [][]float32, d []float32) (mse float64, err error) {
	layer, err := qcc.New(l.dev, l.cfg, &l.maps, l.p)
	if err != nil {
		return 0, err
	}
	defer layer.Close()
	from := l.cfg.From() * l.Dim
	n := float64(len(texts) * (l.Length*l.Dim - from))
	for _, x := range texts {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		y, dOut := make([]float32, len(x)), make([]float32, len(x))
		if err := layer.Forward(ctx, y, qcc.Block{Hidden: x}); err != nil {
			return 0, err
		}
		for i, want := range l.exact(x, 1) {
			e := float64(y[from+i]) - want
			mse += e * e / n
			dOut[from+i] = float32(2 * e / n)
		}
		if d == nil {
			continue
		}
		if err := layer.Backward(ctx, &qcc.Params{Codes: d}, qcc.Block{}, qcc.Block{Hidden: x}, dOut); err != nil {
			return 0, err
		}
	}
	return mse, nil
}

// exact is softmax attention over the rows that have left the window, their weights
// times the decay of their age; sharpness 0 gives the decayed mean. The first result
// is that of the first row with an archive.
func (l *learner) exact(x []float32, sharpness float64) []float64 {
	d := l.Dim
	times := func(w []float32) []float64 {
		out := make([]float64, len(x))
		for t := range l.Length {
			for i := range d {
				for j := range d {
					out[t*d+i] += float64(w[i*d+j]) * float64(x[t*d+j])
				}
			}
		}
		return out
	}
	q, k, v := times(l.maps.Q), times(l.maps.K), times(l.maps.V)
	var out []float64
	for t := l.cfg.From(); t < l.Length; t++ {
		row, sum := make([]float64, d), 0.0
		for j := 0; j <= t-l.Window; j++ {
			dot := 0.0
			for i := range d {
				dot += q[t*d+i] * k[j*d+i]
			}
			w := math.Exp(sharpness*dot/math.Sqrt(float64(d))) * math.Pow(l.Decay, float64(t-j))
			sum += w
			for i := range d {
				row[i] += w * v[j*d+i]
			}
		}
		for i := range row {
			out = append(out, row[i]/sum)
		}
	}
	return out
}
