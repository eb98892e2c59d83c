package qccbench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"samebit/backend"
	"samebit/bench"
	"samebit/nn"
	"samebit/qcc"
	"samebit/state"
	"samebit/tensor"
)

// Mode says what of a text is timed.
type Mode string

const (
	Decode  Mode = "decode"  // token by token, from the first on
	Prefill Mode = "prefill" // in chunks
)

// DecodeConfig is what [RunDecode] and [RunScaling] measure.
type DecodeConfig struct {
	RunID  string
	Shell  Shell
	Mode   Mode
	Chunk  int // rows of a pass of a prefill
	Warmup int
	Steps  int // timed runs of the whole text, exact and bounded in turn

	Window, Codes, Active int // Window 0: 128, or one less than the text
	Lazy                  bool
	Stride                int // with stale reads
}

func (c DecodeConfig) check(lengths ...int) error {
	for _, n := range lengths {
		if n < 2 || n > 1<<24 {
			return fmt.Errorf("qccbench: texts of %d tokens: want 2 to 2^24", n)
		}
	}
	if c.Mode != Decode && c.Mode != Prefill {
		return fmt.Errorf("qccbench: mode %q: want %q or %q", c.Mode, Decode, Prefill)
	}
	if c.Warmup < 0 || c.Steps < 1 || c.Chunk < 1 {
		return fmt.Errorf("qccbench: %d warm-ups, %d steps, chunks of %d: want at least 0, 1 and 1", c.Warmup, c.Steps, c.Chunk)
	}
	return nil
}

// apply changes a retrofit's configuration for a text of some length.
func (c DecodeConfig) apply(q *qcc.Config, length int) {
	if q.Window = c.Window; c.Window == 0 {
		q.Window = min(128, length-1)
	}
	q.Codes, q.ActiveCodes, q.LazyDecay = c.Codes, c.Active, c.Lazy
	if c.Stride > 1 {
		q.ReadStride, q.StaleReads = c.Stride, true
	}
	q.MaxPosition = max(length, 4096)
}

// DecodeResult compares a text's whole time.
type DecodeResult struct {
	Head
	Mode    Mode    `json:"mode"`
	Length  int     `json:"length"`
	QCC     float64 `json:"qcc_seconds"` // median of the steps
	Full    float64 `json:"full_seconds"`
	Speedup float64 `json:"speedup"`
	Elements

	// Of the time that processors spent, which other programs disturb less.
	QCCProcessor  float64 `json:"qcc_processor_seconds"`
	FullProcessor float64 `json:"full_processor_seconds"`
}

// RunDecode times one text with a model of random weights and with its retrofit.
func RunDecode(ctx context.Context, dev backend.Device, length int, c DecodeConfig) (DecodeResult, error) {
	r := DecodeResult{Head: head("decode", c.RunID, dev), Mode: c.Mode, Length: length}
	r.Synthetic, r.MatchedFullKV = true, true
	if err := c.check(length); err != nil {
		return r, err
	}
	p, err := openPair(ctx, dev, c.Shell, func(q *qcc.Config) { c.apply(q, length) })
	if err != nil {
		return r, err
	}
	r.Elements = elements(p.own.Config, len(p.own.Layers), length)
	s, err := p.both(length, c)
	r.QCC, r.Full, r.Speedup, r.QCCProcessor, r.FullProcessor = s.QCC, s.Full, s.Speedup, s.QCCProcessor, s.FullProcessor
	if e := p.close(); err == nil {
		err = e
	}
	return r, err
}

// both times a text with both models in turn and returns medians.
func (p *pair) both(length int, c DecodeConfig) (SpeedPoint, error) {
	rows, chunk := p.text(length), 1
	if c.Mode == Prefill {
		chunk = c.Chunk
	}
	var t turns
	for i := range c.Warmup + c.Steps {
		for j, d := range []*nn.Decoder{p.own.Decoder, p.full} {
			err := p.fresh(d, func(st state.State) error {
				return t.time(j, i >= c.Warmup, func() error { return p.run(d, st, rows, chunk, nil) })
			})
			if err != nil {
				return SpeedPoint{}, err
			}
		}
	}
	return t.point(length), nil
}

// turns are the times of the bounded and the exact model.
type turns struct{ wall, processor [2][]float64 }

func (t *turns) time(which int, counts bool, f func() error) error {
	c, begin := bench.CPUSeconds(), time.Now()
	err := f()
	if counts {
		t.wall[which] = append(t.wall[which], time.Since(begin).Seconds())
		t.processor[which] = append(t.processor[which], bench.CPUSeconds()-c)
	}
	return err
}

func (t *turns) point(length int) SpeedPoint {
	s := SpeedPoint{Length: length, QCC: bench.Median(t.wall[0]), Full: bench.Median(t.wall[1]), QCCProcessor: bench.Median(t.processor[0]), FullProcessor: bench.Median(t.processor[1])}
	s.Speedup = s.Full / s.QCC
	return s
}

// ScalingResult is time over the length of a text.
type ScalingResult struct {
	Head
	Mode      Mode            `json:"mode"`
	Lengths   []ScalingLength `json:"lengths"`
	QCCSlope  float64         `json:"qcc_slope"` // of log seconds over log length, least squares
	FullSlope float64         `json:"full_slope"`
}

// ScalingLength is one length.
type ScalingLength struct {
	Length  int     `json:"length"`
	QCC     float64 `json:"qcc_seconds"`
	Full    float64 `json:"full_seconds"`
	Speedup float64 `json:"speedup"`
}

// RunScaling times texts of several lengths.
func RunScaling(ctx context.Context, dev backend.Device, lengths []int, c DecodeConfig) (ScalingResult, error) {
	r := ScalingResult{Head: head("scaling", c.RunID, dev), Mode: c.Mode}
	r.Synthetic, r.MatchedFullKV = true, true
	if err := c.check(lengths...); err != nil {
		return r, err
	}
	var x, own, full []float64
	for _, n := range lengths {
		d, err := RunDecode(ctx, dev, n, c)
		if err != nil {
			return r, err
		}
		r.Lengths = append(r.Lengths, ScalingLength{n, d.QCC, d.Full, d.Speedup})
		x, own, full = append(x, float64(n)), append(own, d.QCC), append(full, d.Full)
	}
	r.QCCSlope, r.FullSlope = slope(x, own), slope(x, full)
	return r, nil
}

// slope is the least-squares slope of log y over log x; 0 for fewer than two points.
func slope(x, y []float64) float64 {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		a, b := math.Log(x[i]), math.Log(y[i])
		sx, sy, sxx, sxy = sx+a, sy+b, sxx+a*a, sxy+a*b
	}
	if d := n*sxx - sx*sx; d > 0 {
		return (n*sxy - sx*sy) / d
	}
	return 0
}

// SpeedConfig is what [RunSpeed] compares: decoding per token behind contexts, and
// whole prompts.
type SpeedConfig struct {
	RunID    string
	Shell    Shell
	Contexts []int // rows before the tokens that are decoded
	Tokens   int   // decoded and timed behind each, exact and bounded in turn
	Prompts  []int
	Repeat   int // of prompts
	Chunk    int

	Window, Codes int // 0: 128 and 16
}

// SpeedResult are ratios of medians: of single tokens, and of prompts.
type SpeedResult struct {
	Head
	Window  int          `json:"window_size"`
	Codes   int          `json:"num_codes"`
	Decode  []SpeedPoint `json:"decode"`
	Prefill []SpeedPoint `json:"prefill"`
}

// SpeedPoint is one context or prompt.
type SpeedPoint struct {
	Length  int     `json:"length"`
	QCC     float64 `json:"qcc_seconds"` // of a token, or of the prompt
	Full    float64 `json:"full_seconds"`
	Speedup float64 `json:"speedup"`

	// The same of the time that processors spent, which other programs disturb less.
	QCCProcessor  float64 `json:"qcc_processor_seconds"`
	FullProcessor float64 `json:"full_processor_seconds"`
}

// RunSpeed compares a retrofit of random weights with the model that it was made
// of: same weights, rows, threads and kernels, in turn, so that a loaded machine slows
// both. Behind a context the exact model decodes over a cache of random rows, since
// only its time is asked for, and the bounded one over what it left of a text.
func RunSpeed(ctx context.Context, dev backend.Device, c SpeedConfig, progress func(done, total int)) (SpeedResult, error) {
	r := SpeedResult{Head: head("speed", c.RunID, dev), Decode: []SpeedPoint{}, Prefill: []SpeedPoint{}}
	r.Synthetic, r.MatchedFullKV = true, true
	if c.Tokens < 1 || c.Repeat < 1 || c.Chunk < 1 {
		return r, fmt.Errorf("qccbench: %d tokens, %d repetitions, chunks of %d: want at least one", c.Tokens, c.Repeat, c.Chunk)
	}
	d := DecodeConfig{Mode: Prefill, Chunk: c.Chunk, Steps: c.Repeat, Codes: 16}
	if err := d.check(append(append([]int(nil), c.Contexts...), c.Prompts...)...); err != nil {
		return r, err
	}
	p, err := openPair(ctx, dev, c.Shell, func(q *qcc.Config) {
		q.MaxPosition, q.Window, q.Codes = 131072, cmp.Or(c.Window, q.Window), cmp.Or(c.Codes, q.Codes)
	})
	if err != nil {
		return r, err
	}
	r.Window, r.Codes = p.own.Config.Window, p.own.Config.Codes
	done := func() {
		if progress != nil {
			progress(len(r.Decode)+len(r.Prefill), len(c.Contexts)+len(c.Prompts))
		}
	}
	for _, n := range c.Contexts {
		s, err := p.behind(n, c)
		if err != nil {
			p.close()
			return r, err
		}
		r.Decode = append(r.Decode, s)
		done()
	}
	for _, n := range c.Prompts {
		s, err := p.both(n, d)
		if err != nil {
			p.close()
			return r, err
		}
		r.Prefill = append(r.Prefill, s)
		done()
	}
	return r, p.close()
}

// behind times tokens after n rows.
func (p *pair) behind(n int, c SpeedConfig) (SpeedPoint, error) {
	var s SpeedPoint
	err := p.fresh(p.own.Decoder, func(own state.State) error {
		if err := p.run(p.own.Decoder, own, p.text(n), c.Chunk, nil); err != nil {
			return err
		}
		return p.fresh(p.full, func(full state.State) error {
			if err := fillKV(full, p.full.Shapes.KV, n); err != nil {
				return err
			}
			var t turns
			for i, row := range p.text(c.Tokens + 4) { // the first ones warm up
				for j, d := range []*nn.Decoder{p.own.Decoder, p.full} {
					st := own
					if j == 1 {
						st = full
					}
					if err := t.time(j, i >= 4, func() error { return p.run(d, st, []state.Row{row}, 1, nil) }); err != nil {
						return err
					}
				}
			}
			s = t.point(n)
			return nil
		})
	})
	return s, err
}

// fillKV puts n random rows into an empty cache.
func fillKV(st state.State, shape state.KVShape, n int) error {
	r := rand.New(rand.NewPCG(3, 4))
	at := 0
	return st.Load(n, func(string) (tensor.Tensor, error) {
		rows := min(backend.Page, n-at)
		at += rows
		v := make([]float32, 2*shape.Layers*shape.Heads*rows*shape.Dim)
		for i := range v {
			v[i] = 2*r.Float32() - 1
		}
		return tensor.FromF32(v, 2*shape.Layers, shape.Heads, rows, shape.Dim)
	})
}
