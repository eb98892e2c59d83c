package qcc

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
)

// lm64 is the small language model in float64.
type lm64 struct {
	c      traceConfig
	embed  []float64
	pos    []float64
	lnf    [2][]float64
	layers []lmLayer64
}

type lmLayer64 struct {
	attn           *layer64
	ln1, ln2       [2][]float64
	w1, b1, w2, b2 []float64
}

func layerNorm64(x []float64, w [2][]float64) []float64 {
	n := float64(len(x))
	mu := wide.Sum(x) / n
	c := make([]float64, len(x))
	for i := range x {
		c[i] = x[i] - mu
	}
	r := 1 / math.Sqrt(wide.SumSquares(c)/n+1e-5)
	for i := range c {
		c[i] = c[i]*r*w[0][i] + w[1][i]
	}
	return c
}

func apply64(x, w, b []float64) []float64 {
	y := make([]float64, len(b))
	for i := range y {
		y[i] = wide.Dot(x, cut(w, i, len(x))) + b[i]
	}
	return y
}

func add64(a, b []float64) []float64 {
	y := make([]float64, len(a))
	for i := range a {
		y[i] = a[i] + b[i]
	}
	return y
}

// token returns the logits after a token.
func (m *lm64) token(id, t int) []float64 {
	d := m.c.DModel
	hint := cut(m.embed, id, d)
	x := hint
	switch m.c.Position {
	case "learned":
		x = add64(x, cut(m.pos, t, d))
	case "sinusoidal":
		half := (d + 1) / 2
		p := make([]float64, 2*half)
		for i := range half {
			a := float64(t) * math.Exp(-math.Log(10000)*float64(i)/float64(half))
			p[i], p[half+i] = math.Sin(a), math.Cos(a)
		}
		x = add64(x, p[:d])
	}
	for _, l := range m.layers {
		x = add64(x, l.attn.token(layerNorm64(x, l.ln1), hint))
		u := apply64(layerNorm64(x, l.ln2), l.w1, l.b1)
		for i := range u {
			u[i] = wide.GELU(u[i])
		}
		x = add64(x, apply64(u, l.w2, l.b2))
	}
	return apply64(layerNorm64(x, m.lnf), m.embed, make([]float64, m.c.Vocab))
}

func TestModelTraces64(t *testing.T) {
	for _, tr := range readTraces(t, "lm") {
		var c traceConfig
		var p struct {
			Embed  *array
			Pos    *array `json:"pos_embed"`
			LnfW   *array `json:"lnf_w"`
			LnfB   *array `json:"lnf_b"`
			Layers []json.RawMessage
		}
		var in struct {
			IDs struct {
				Shape []int
				Data  []int
			} `json:"input_ids"`
		}
		var want struct {
			Logits *array
			Final  []stateFields `json:"final_states"`
		}
		tr.decode(t, tr.Config, &c)
		tr.decode(t, tr.Params, &p)
		tr.decode(t, tr.Inputs, &in)
		tr.decode(t, tr.Expected, &want)
		var got []float64
		for b := range in.IDs.Shape[0] {
			m := &lm64{c: c, embed: p.Embed.f64(), pos: p.Pos.f64(), lnf: [2][]float64{p.LnfW.f64(), p.LnfB.f64()}}
			for _, raw := range p.Layers {
				var l struct{ Attn fields }
				var f fields
				tr.decode(t, raw, &l)
				var all map[string]json.RawMessage
				tr.decode(t, raw, &all)
				f = fields{}
				for name, v := range all {
					if name != "attn" {
						f[name] = &array{}
						tr.decode(t, v, f[name])
					}
				}
				m.layers = append(m.layers, lmLayer64{attn: newLayer64(&c, l.Attn), ln1: [2][]float64{f["ln1_w"].f64(), f["ln1_b"].f64()}, ln2: [2][]float64{f["ln2_w"].f64(), f["ln2_b"].f64()},
					w1: f["w1"].f64(), b1: f["b1"].f64(), w2: f["w2"].f64(), b2: f["b2"].f64()})
			}
			rows := in.IDs.Shape[1]
			for i := range rows {
				got = append(got, m.token(in.IDs.Data[b*rows+i], i)...)
			}
			for i := range m.layers {
				checkHeads(t, fmt.Sprintf("%s layer %d", tr.ID, i), m.layers[i].attn.heads, &want.Final[i], b, tight)
			}
		}
		near(t, tr.ID+" logits", got, want.Logits.f64(), tight)
	}
}
