package qcc

import (
	"context"
	"testing"

	"samebit/backend/ref"
)

// What the traces call the gradients.
var gradNames = map[string]string{"codes": "codes", "mix_logits": "mix_logits", "corr_u": "corr_u", "corr_v": "corr_v", "corr_scale": "corr_scale", "wg": "gate.weight", "bg": "gate.bias"}

// zeros is a set of gradients to add to.
func zeros(c Config) *Params {
	p := &Params{}
	for _, f := range p.fields(c) {
		*f.v = make([]float32, f.size())
	}
	return p
}

func TestGradientTraces(t *testing.T) {
	for _, tr := range readTraces(t, "grad") {
		t.Run(tr.ID, func(t *testing.T) {
			var c traceConfig
			var p, in fields
			var want struct {
				Value float64
				Grads fields
			}
			tr.decode(t, tr.Config, &c)
			tr.decode(t, tr.Params, &p)
			tr.decode(t, tr.Inputs, &in)
			tr.decode(t, tr.Expected, &want)
			f := c.config()
			pr, params := traceParams(p)
			l, err := New(ref.New(), f, pr, params)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			d, x := zeros(f), in["hidden"].f32()
			dx := make([]float32, len(x))
			if err := l.Backward(context.Background(), d, Block{Hidden: dx}, Block{Hidden: x}, in["cotangent"].f32()); err != nil {
				t.Fatal(err)
			}
			near(t, tr.ID+" hidden", dx, want.Grads["hidden"].f64(), tr.Tolerance.Float32)
			of := map[string][]float32{}
			for _, f := range d.fields(f) {
				of[f.name] = *f.v
			}
			for name, w := range want.Grads {
				if name != "hidden" {
					near(t, tr.ID+" "+name, of[gradNames[name]], w.f64(), tr.Tolerance.Float32)
				}
			}
		})
	}
}
