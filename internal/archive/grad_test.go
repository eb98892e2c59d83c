package archive

import (
	"math"
	"math/rand/v2"
	"testing"
)

var wide = Math[float64]{
	FMA: math.FMA, Exp: math.Exp, Log: math.Log, Sqrt: math.Sqrt,
	Sigmoid: func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
}

// trial is a head of a sequence with gradients of its responses.
type trial struct {
	o                                   Options[float64]
	rows, window, sinks, group          int
	q, k, v, dy                         []float64 // [rows, group, D], [rows, D], [rows, D] and as q
	codes, mix, corrV, corrU, corrScale []float64
	land                                []float64
	gate                                []gatePoint // by event and code
}

// gatePoint is a gate where the gradient is asked for: what was hard stays so, and a
// smooth gate is added times the weight, less its value here. That has the value of
// the hard gate and the slope of training.
type gatePoint struct {
	hard         bool
	weight, soft float64
}

func draw(r *rand.Rand, n int, scale float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = r.NormFloat64() * scale
	}
	return v
}

func newTrial(r *rand.Rand) *trial {
	t := &trial{window: 1 + r.IntN(3), group: 1 + r.IntN(2)}
	t.sinks = r.IntN(t.window + 1)
	t.rows = t.window + t.sinks + r.IntN(8)
	o := &t.o
	*o = Options[float64]{Math: &wide, M: 1 + r.IntN(4), S: 1 + r.IntN(3), D: 1 + r.IntN(4), R: r.IntN(3), PerCode: r.IntN(2) == 0, Features: r.IntN(3) == 0, Scale: 0.75, LandmarkTemp: 1.5}
	for range o.S {
		d := 0.5 + 0.45*r.Float64()
		o.Decay, o.Gain = append(o.Decay, d), append(o.Gain, Power(d, t.window))
	}
	switch r.IntN(4) {
	case 0:
		o.Landmarks = 1 + r.IntN(3)
	case 1:
		// Where no code is written at all the clamp of the denominator has an edge.
		o.Gate, o.Threshold, o.PerCode, o.M = true, -0.1, false, 8
	}
	t.q, t.dy = draw(r, t.rows*t.group*o.D, 1), draw(r, t.rows*t.group*o.D, 1)
	t.k, t.v = draw(r, t.rows*o.D, 1), draw(r, t.rows*o.D, 1)
	t.codes, t.mix, t.land = draw(r, o.M*o.D, 0.7), draw(r, o.M*o.S, 1), draw(r, 1, 1)
	t.corrV, t.corrU, t.corrScale = draw(r, o.D*o.R, 1), draw(r, o.R*o.D, 1), draw(r, o.R*o.S, 1)
	return t
}

func (t *trial) head() *Head[float64] {
	o := &t.o
	h := &Head[float64]{Options: o, Codes: t.codes, Mix: t.mix, CorrV: t.corrV, CorrU: t.corrU, CorrScale: t.corrScale, LandMix: t.land[0],
		Num: make([]float64, o.M*o.S*o.D), Den: make([]float64, o.M*o.S), LandKey: make([]float64, o.M*o.D), LandValue: make([]float64, o.M*o.D), LandScore: make([]float64, o.M)}
	h.Init()
	return h
}

func row(v []float64, i, n int) []float64 { return v[i*n : (i+1)*n] }

// loss is the sum of all responses times their gradients, with the state by its
// closed form: a sum over the events.
func (t *trial) loss() (loss float64) {
	o, h := &t.o, t.head()
	from := t.window + t.sinks
	var weights [][]float64
	for i := from; i < t.rows; i++ {
		j := i - t.window
		h.Write(i-from, row(t.k, j, o.D), row(t.v, j, o.D)) // for the landmarks
		weights = append(weights, t.weights(h, i-from, row(t.k, j, o.D)))
		for c := range h.Den {
			h.Den[c] = 0
			clear(row(h.Num, c, o.D))
			for e, w := range weights {
				a := w[c/o.S] * o.Gain[c%o.S] * math.Pow(o.Decay[c%o.S], float64(i-from-e))
				h.Den[c] += a
				for d := range o.D {
					h.Num[c*o.D+d] += a * t.v[(from+e-t.window)*o.D+d]
				}
			}
		}
		for g := range t.group {
			y := make([]float64, o.D)
			h.Read(y, row(t.q, i*t.group+g, o.D), i-from+1)
			for d := range y {
				loss += y[d] * t.dy[(i*t.group+g)*o.D+d]
			}
		}
	}
	return loss
}

// weights are those of event e.
func (t *trial) weights(h *Head[float64], e int, k []float64) []float64 {
	l := h.scores(k)
	w := h.weights(l, k)
	if !t.o.Gate {
		return w
	}
	for m := range w {
		soft, i := wide.Sigmoid((l[m]-t.o.Threshold)/0.1), e*t.o.M+m
		if i == len(t.gate) {
			t.gate = append(t.gate, gatePoint{l[m] >= t.o.Threshold, w[m], soft})
		}
		g := &t.gate[i]
		if !g.hard {
			w[m] = 0
		}
		w[m] += g.weight * (soft - g.soft)
	}
	return w
}

// The gradients are the slopes of the formulas, by central differences.
func TestSlopes(t *testing.T) {
	for seed := range uint64(48) {
		r := rand.New(rand.NewPCG(seed, 71))
		z := newTrial(r)
		o := &z.o
		size := func(v []float64) []float64 { return make([]float64, len(v)) }
		dq, dk, dv := size(z.q), size(z.k), size(z.v)
		to := Grads[float64]{Codes: size(z.codes), Mix: size(z.mix), CorrV: size(z.corrV), CorrU: size(z.corrU), CorrScale: size(z.corrScale), LandMix: size(z.land)}
		heads := func(v []float64) func(i, g int) []float64 {
			return func(i, g int) []float64 { return row(v, i*z.group+g, o.D) }
		}
		rows := func(v []float64) func(i int) []float64 { return func(i int) []float64 { return row(v, i, o.D) } }
		s := Sequence[float64]{Head: z.head(), Rows: z.rows, Window: z.window, Sinks: z.sinks, Group: z.group, Query: heads(z.q), DY: heads(z.dy), DQuery: heads(dq),
			Address: rows(z.k), Value: rows(z.v), DAddress: rows(dk), DValue: rows(dv), To: to}
		s.Backward()
		z.loss()
		for _, p := range []struct {
			name string
			x, d []float64
			skip bool // landmarks are constants, not functions of what they were
		}{
			{"queries", z.q, dq, false}, {"addresses", z.k, dk, o.Landmarks != NoLandmarks}, {"values", z.v, dv, o.Landmarks != NoLandmarks},
			{"codes", z.codes, to.Codes, false}, {"mix", z.mix, to.Mix, false}, {"corrV", z.corrV, to.CorrV, false}, {"corrU", z.corrU, to.CorrU, false},
			{"corrScale", z.corrScale, to.CorrScale, false}, {"landmark mix", z.land, to.LandMix, false},
		} {
			if p.skip {
				continue
			}
			if at, got, want := slope(z.loss, p.x, p.d); at >= 0 {
				t.Fatalf("seed %d (%+v, %d rows, window %d+%d, %d heads): gradient of %s at %d is %v, central differences give %v", seed, *o, z.rows, z.window, z.sinks, z.group, p.name, at, got, want)
			}
		}
	}
}

// slope compares d with the slope of f by x and returns the first place that is off;
// -1 for none. The error of the differences is of fourth order.
func slope(f func() float64, x, d []float64) (at int, got, want float64) {
	const h = 0x1p-16
	slopes, most := make([]float64, len(x)), 0.0
	for i, v := range x {
		var y [5]float64
		for n := range y {
			x[i] = v + float64(n-2)*h
			y[n] = f()
		}
		x[i] = v
		slopes[i] = (y[0] - y[4] + 8*(y[3]-y[1])) / (12 * h)
		most = max(most, math.Abs(slopes[i]))
	}
	for i, s := range slopes {
		if !(math.Abs(d[i]-s) <= 1e-7*most+1e-9) {
			return i, d[i], s
		}
	}
	return -1, 0, 0
}

// The mix of two responses has the slope of its formula, and rows are told apart by
// which of the two is longer.
func TestMixSlopes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 60 {
		d := 1 + r.IntN(5)
		local, remote, dy, gate := draw(r, d, 1), draw(r, d, 1+float64(n%3)), draw(r, d, 1), draw(r, 1, 1)
		constant, norm := n%4 == 3, n%2 == 1
		weight := func() float64 {
			if constant {
				return 0.25
			}
			return wide.Sigmoid(gate[0])
		}
		loss := func() float64 {
			y := make([]float64, d)
			wide.Mix(y, local, remote, weight(), 0, constant, norm)
			return wide.Dot(y, dy)
		}
		dl, dr, dg := make([]float64, d), make([]float64, d), make([]float64, 1)
		if g := wide.MixBack(dl, dr, dy, local, remote, weight(), constant, norm); !constant {
			dg[0] = g
		}
		for what, p := range map[string][2][]float64{"local": {local, dl}, "remote": {remote, dr}, "gate": {gate, dg}} {
			if at, got, want := slope(loss, p[0], p[1]); at >= 0 {
				t.Fatalf("mix %d: gradient of %s at %d is %v, central differences give %v", n, what, at, got, want)
			}
		}
	}
}

func TestCorrectSlopes(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const d, rank = 5, 3
	h := &Head[float64]{Options: &Options[float64]{Math: &wide, D: d, R: rank}, CorrV: draw(r, d*rank, 1), CorrU: draw(r, rank*d, 1)}
	q, dy := draw(r, d, 1), draw(r, d, 1)
	loss := func() float64 {
		y := make([]float64, d)
		h.Correct(y, q)
		return wide.Dot(y, dy)
	}
	dq, dv, du := make([]float64, d), make([]float64, d*rank), make([]float64, rank*d)
	h.CorrectBack(dq, dv, du, dy, q)
	for what, p := range map[string][2][]float64{"q": {q, dq}, "v": {h.CorrV, dv}, "u": {h.CorrU, du}} {
		if at, got, want := slope(loss, p[0], p[1]); at >= 0 {
			t.Fatalf("gradient of %s at %d is %v, central differences give %v", what, at, got, want)
		}
	}
}
