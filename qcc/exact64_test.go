package qcc

import (
	"math"

	"samebit/internal/archive"
)

// wide is the arithmetic of the float64 build.
var wide = archive.Math[float64]{
	FMA: math.FMA, Exp: math.Exp, Log: math.Log, Sqrt: math.Sqrt,
	Sigmoid: func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
	GELU:    func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) },
}

// layer64 is a layer in float64, a token at a time for one stream. Its archive is
// the text that gives the contract its bits.
type layer64 struct {
	c     *traceConfig
	p     fields
	heads []*archive.Head[float64]
	table []*archive.Table[float64]

	n               int
	k, v, raw       [][][]float64 // by token and head
	query, response [][]float64   // of the last read
	reads           int
	fresh           bool // reads are not used again
}

func cut(v []float64, i, n int) []float64 {
	if v == nil {
		return nil
	}
	return v[i*n : (i+1)*n]
}

func newLayer64(c *traceConfig, p fields) *layer64 {
	l := &layer64{c: c, p: p}
	o := options64(c)
	for h := range c.NumHeads {
		a := &archive.Head[float64]{Options: o, Codes: cut(p["codes"].f64(), h, c.Codes*c.HeadDim), Mix: cut(p["mix_logits"].f64(), h, c.Codes*c.Scales),
			CorrV: cut(p["corr_v"].f64(), h, c.HeadDim*c.Rank), CorrU: cut(p["corr_u"].f64(), h, c.HeadDim*c.Rank), CorrScale: cut(p["corr_scale"].f64(), h, c.Rank*c.Scales)}
		if m := p["landmark_mix"].f64(); m != nil {
			a.LandMix = m[h]
		}
		initHead64(a)
		l.heads = append(l.heads, a)
		if c.Exact != nil {
			e := c.Exact
			to := &archive.TableOptions[float64]{Math: &wide, Sets: e.Sets, Ways: e.Ways, Probe: e.Sets, D: c.HeadDim, FIFO: e.Policy == "fifo", Hard: e.Hard, Admission: 1, Diversity: e.Diversity, Temperature: 8}
			if e.Probe != nil {
				to.Probe = *e.Probe
			}
			l.table = append(l.table, newTable64(to, cut(p["set_codes"].f64(), h, e.Sets*c.HeadDim)))
		}
	}
	return l
}

func options64(c *traceConfig) *archive.Options[float64] {
	o := &archive.Options[float64]{Math: &wide, M: c.Codes, S: c.Scales, D: c.HeadDim, R: c.Rank, Decay: c.Decay, Scale: 1 / math.Sqrt(float64(c.HeadDim)),
		Lazy: c.Lazy, PerCode: !c.Global, SparsePer: c.Sparse == "per_code", Features: c.Kernel, LandmarkTemp: c.LandTemp}
	if !c.Explicit {
		f := c.config()
		o.Decay = f.Decays()
	}
	for _, r := range o.Decay {
		o.Gain = append(o.Gain, archive.Power(r, c.Window))
	}
	if c.Active != nil {
		o.Active = *c.Active
	}
	if c.Threshold != nil {
		o.Gate, o.Threshold = true, *c.Threshold
	}
	o.Landmarks = int(landmarkModes[c.config().Landmarks])
	return o
}

func initHead64(a *archive.Head[float64]) {
	o := a.Options
	a.Num, a.Den, a.Last = make([]float64, o.M*o.S*o.D), make([]float64, o.M*o.S), make([]float64, o.M)
	a.LandKey, a.LandValue, a.LandScore = make([]float64, o.M*o.D), make([]float64, o.M*o.D), make([]float64, o.M)
	a.Init()
}

func newTable64(o *archive.TableOptions[float64], codes []float64) *archive.Table[float64] {
	n := o.Sets * o.Ways
	t := &archive.Table[float64]{TableOptions: o, SetCodes: codes, Key: make([]float64, n*o.D), Value: make([]float64, n*o.D), Score: make([]float64, n), Age: make([]float64, n), Cursor: new(float64)}
	t.Init()
	return t
}

func (l *layer64) linear(x []float64, w, b string) []float64 {
	m := l.p[w].f64()
	y := make([]float64, len(m)/len(x))
	for i := range y {
		y[i] = wide.Dot(x, cut(m, i, len(x)))
	}
	if bias := l.p[b].f64(); bias != nil {
		for i := range y {
			y[i] += bias[i]
		}
	}
	return y
}

func (l *layer64) split(x []float64) [][]float64 {
	var h [][]float64
	for i := range l.c.NumHeads {
		h = append(h, cut(x, i, l.c.HeadDim))
	}
	return h
}

func (l *layer64) rotate(x [][]float64, pos int) [][]float64 {
	if l.c.RopeTheta == nil {
		return x
	}
	width := l.c.HeadDim &^ 1
	if l.c.RotaryDim != nil {
		width = *l.c.RotaryDim
	}
	cos, sin := make([]float64, width/2), make([]float64, width/2)
	for i := range cos {
		a := float64(pos) * math.Pow(*l.c.RopeTheta, -float64(i)/float64(width/2))
		cos[i], sin[i] = math.Cos(a)*l.c.RopeScaling, math.Sin(a)*l.c.RopeScaling
	}
	var y [][]float64
	for _, v := range x {
		r := make([]float64, len(v))
		wide.Rotate(r, v, cos, sin)
		y = append(y, r)
	}
	return y
}

// token is one step; hint is nil without lexical addressing.
func (l *layer64) token(x, hint []float64) []float64 {
	q, k, v := l.split(l.linear(x, "wq", "bq")), l.split(l.linear(x, "wk", "bk")), l.split(l.linear(x, "wv", "bv"))
	if l.c.ActiveQuery {
		for h := range q {
			l.heads[h].Correct(q[h], q[h])
		}
	}
	var gate []float64
	if l.p["wg"] != nil {
		gate = l.linear(x, "wg", "bg")
	}
	rq, rk := l.rotate(q, l.n), l.rotate(k, l.n)
	aq, raw := rq, rk
	if l.c.Invariant {
		aq, raw = q, k
	}
	if l.c.Lexical {
		aq, raw = l.split(hint), l.split(hint)
	}
	return l.linear(l.attend(rq, rk, v, aq, raw, gate), "wo", "bo")
}

// attend is a token of projected rows.
func (l *layer64) attend(q, k, v, aq, raw [][]float64, gate []float64) []float64 {
	c := l.c
	t := l.n
	l.k, l.v, l.raw = append(l.k, k), append(l.v, v), append(l.raw, raw)
	l.n++
	scale := 1 / math.Sqrt(float64(c.HeadDim))
	local, mass := make([][]float64, c.NumHeads), make([]float64, c.NumHeads)
	for h := range local {
		local[h] = make([]float64, c.HeadDim)
		mass[h] = wide.Attend(local[h], q[h], scale, t+1, func(j int) bool { return j > t-c.Window || j < c.Sinks },
			func(j int) []float64 { return l.k[j][h] }, func(j int) []float64 { return l.v[j][h] })
	}
	events := t + 1 - c.Window - c.Sinks
	if events > 0 && c.UseArchive {
		l.write(t-c.Window, events, q)
		local = l.mix(local, mass, q, aq, gate, events)
	}
	var out []float64
	for _, o := range local {
		out = append(out, o...)
	}
	return out
}

func (l *layer64) write(e, events int, q [][]float64) {
	c := l.c
	for h, a := range l.heads {
		v := l.v[e][h]
		if c.Lexical {
			v = l.raw[e][h]
		}
		a.Write(events-1, l.raw[e][h], v)
		if c.Exact == nil {
			continue
		}
		k, threshold := l.k[e][h], c.Exact.Threshold
		var score float64
		if c.Exact.QualityFirst {
			score, threshold = wide.Cosine(k, q[h]), -1e9
		} else {
			score = wide.Admit(l.raw[e][h], l.v[e][h], cut(l.p["adm_key"].f64(), h, c.HeadDim), cut(l.p["adm_value"].f64(), h, c.HeadDim), l.p["adm_bias"].f64()[h])
		}
		if score >= threshold {
			l.table[h].Write(k, l.v[e][h], score, float64(events))
		}
	}
}

func (l *layer64) read(aq [][]float64, events int) [][]float64 {
	c := l.c
	stride := max(1, c.Stride)
	reuse := !l.fresh && (c.Cosine != nil || stride > 1 && c.Stale)
	refresh := !reuse || l.response == nil || stride == 1 || (l.n-1)%stride == 0
	if reuse && refresh && c.Cosine != nil && l.query != nil {
		refresh = false
		for h := range aq {
			refresh = refresh || wide.Cosine(aq[h], l.query[h]) < *c.Cosine
		}
	}
	if refresh {
		l.reads++
		l.query, l.response = aq, nil
		for h, a := range l.heads {
			r := make([]float64, c.HeadDim)
			a.Read(r, aq[h], events)
			l.response = append(l.response, r)
		}
	}
	return l.response
}

func (l *layer64) mix(local [][]float64, mass []float64, q, aq [][]float64, gate []float64, events int) [][]float64 {
	c, scale := l.c, 1/math.Sqrt(float64(l.c.HeadDim))
	resp := l.read(aq, events)
	var out [][]float64
	for h := range local {
		r, promote, y := append([]float64(nil), resp[h]...), 0.0, make([]float64, c.HeadDim)
		if e := c.Exact; e != nil {
			if e.MassMerge {
				z := l.table[h].Attend(y, q[h], scale)
				wide.MassMerge(y, local[h], y, mass[h], z)
				out = append(out, y)
				continue
			}
			conf := l.table[h].Read(y, q[h])
			b := wide.Confidence(conf, l.p["exact_mix"].f64()[h], e.Confidence, e.Temp)
			wide.Blend(r, b, y, r)
			if e.QualityFirst {
				promote = b
			}
		}
		g, constant := 0.0, false
		switch {
		case c.Prefix:
			g, constant = 1, true
		case c.ArchiveMix != nil:
			g, constant = *c.ArchiveMix, true
		default:
			g = wide.Sigmoid(gate[h])
		}
		wide.Mix(y, local[h], r, g, promote, constant, c.NormGating)
		out = append(out, y)
	}
	return out
}
