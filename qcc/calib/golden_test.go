package calib

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/tensor"
)

// array is a tensor of a trace.
type array struct {
	Shape []int
	Data  []float32
}

// vectors cuts an array into its last axis, and those by the first.
func (a array) vectors() (out [][][]float32) {
	d := a.Shape[len(a.Shape)-1]
	per := 1
	for _, n := range a.Shape[1 : len(a.Shape)-1] {
		per *= n
	}
	v := a.Data
	for range a.Shape[0] {
		var l [][]float32
		for range per {
			l = append(l, v[:d:d])
			v = v[d:]
		}
		out = append(out, l)
	}
	return out
}

func golden(t *testing.T, name string, to any) {
	t.Helper()
	b, err := os.ReadFile("../../testdata/qcc/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// tolerance is that of the traces for float32: |got - want| <= tol·(1 + |want|).
const tolerance = 2e-4

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*(1+math.Abs(want))) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestCodesAreThoseOfTheTraces(t *testing.T) {
	for _, name := range []string{"cal01_kmeans", "cal02_kmeans_few_tokens", "cal03_key_sample"} {
		var g struct {
			Config   struct{ Strategy CodeInit }
			Inputs   struct{ Keys, Old_codes array }
			Expected struct{ Codes array }
		}
		golden(t, name, &g)
		got, keys := g.Inputs.Old_codes.vectors(), g.Inputs.Keys.vectors()
		for h := range got {
			codes(g.Config.Strategy, got[h], keys[h])
		}
		for i, x := range g.Inputs.Old_codes.Data { // which the vectors share
			near(t, name, float64(x), float64(g.Expected.Codes.Data[i]))
		}
	}
}

// Codes that are to stay do, and so do all without keys.
func TestCodesStay(t *testing.T) {
	for _, init := range []CodeInit{Random, KMeans, KeySample} {
		c := [][]float32{{1, 2}, {3, 4}}
		keys := [][]float32{{1, 0}}
		if init != Random {
			keys = nil
		}
		codes(init, c, keys)
		if c[0][0] != 1 || c[1][1] != 4 {
			t.Errorf("%s: codes %v", init, c)
		}
	}
}

// testHead is a head on a device without a model.
func testHead(t *testing.T, dev backend.Device) *head {
	t.Helper()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHead(dev, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.close(); s.Close() })
	return h
}

func devices(t *testing.T) map[string]backend.Device {
	c, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return map[string]backend.Device{"ref": ref.New(), "cpu": c}
}

// put copies rows to a device.
func put(h *head, v []float32, rows int) tensor.Tensor {
	x := h.c.Tmp(rows, len(v)/rows)
	h.stream.Write(x, tensor.AsBytes(v))
	return x
}

func TestLossesAreThoseOfTheTraces(t *testing.T) {
	for _, name := range []string{"cal04_losses_kl", "cal05_losses_all", "cal06_losses_mse"} {
		var g struct {
			Config struct {
				Temperature, Margin float32
				Weights             map[string]float32
			}
			Inputs struct {
				Student, Teacher, Hidden_student, Hidden_teacher array
			}
			Expected struct {
				Terms         map[string]float64
				Total, Hidden float64
			}
		}
		golden(t, name, &g)
		set := g.Config.Weights
		w := Weights{set["cosine_weight"], set["kl_weight"], set["ce_weight"], set["margin_weight"], g.Config.Temperature, g.Config.Margin}
		n := g.Inputs.Student.Shape[0]
		for dev, d := range devices(t) {
			h := testHead(t, d)
			s, y := put(h, g.Inputs.Student.Data, n), put(h, g.Inputs.Teacher.Data, n)
			var l, all terms
			if err := h.distil(&l, s, y, w, 1); err != nil {
				t.Fatal(err)
			}
			near(t, name+" on "+dev+": total", float64(l.total(w)), g.Expected.Total)
			w := Weights{0.2, 0.2, 0.2, 0.2, g.Config.Temperature, g.Config.Margin} // every term, whatever it weighs in the trace
			if err := h.distil(&all, s, y, w, 1); err != nil {
				t.Fatal(err)
			}
			for term, x := range map[string][]float32{"mse": all.squared, "kl": all.kl, "ce": all.ce, "margin": all.margin} {
				near(t, name+" on "+dev+": "+term, float64(mean(x)), g.Expected.Terms[term])
			}
			near(t, name+" on "+dev+": cosine", 1-float64(mean(all.cosine)), g.Expected.Terms["cosine"])
			squared, cosine := outputs(h.c, h.tape, put(h, g.Inputs.Hidden_student.Data, n), g.Inputs.Hidden_teacher.Data, 1)
			near(t, name+" on "+dev+": hidden", float64(half(squared, cosine)), g.Expected.Hidden)
			if err := h.tape.Backward(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The gradient of the loss is what differences of it say, the margin's included.
func TestLossGradient(t *testing.T) {
	dev := devices(t)["cpu"]
	h := testHead(t, dev)
	const n, v = 3, 7
	student, teacher := make([]float32, n*v), make([]float32, n*v)
	for i := range student {
		student[i], teacher[i] = float32((i*37)%19)/8-1, float32((i*53)%23)/8-1
	}
	w := Weights{0.25, 0.25, 0.125, 0.25, 2, 0.5}
	at := func(d []float32) (float32, []float32) {
		defer h.c.Release(h.c.Mark())
		s, y := put(h, student, n), put(h, teacher, n)
		var l terms
		if err := h.distil(&l, s, y, w, 1.0/n); err != nil {
			t.Fatal(err)
		}
		if err := h.tape.Backward(); err != nil {
			t.Fatal(err)
		}
		if d != nil {
			h.stream.Read(tensor.AsBytes(d), h.tape.Grad(s))
			if err := h.stream.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		return l.total(w), d
	}
	_, d := at(make([]float32, n*v))
	for i := range student {
		const e = 1.0 / 256 // losses of about 1 are rounded by 1e-7: differences are good to 1e-4
		was := student[i]
		student[i] = was + e
		up, _ := at(nil)
		student[i] = was - e
		down, _ := at(nil)
		student[i] = was
		if got, want := float64(d[i]), float64(up-down)/(2*e); math.Abs(got-want) > 3e-4 {
			t.Errorf("gradient %d is %v, differences say %v", i, got, want)
		}
	}
}

func TestTopTwo(t *testing.T) {
	for _, c := range []struct {
		x             []float32
		first, second int
	}{{[]float32{3}, 0, 0}, {[]float32{1, 2}, 1, 0}, {[]float32{2, 2}, 0, 1}, {[]float32{1, 3, 2}, 1, 2}, {[]float32{1, 1, 5, 5, 4}, 2, 3}, {[]float32{5, 1, 4, 4}, 0, 2}} {
		if a, b := topTwo(c.x); a != c.first || b != c.second {
			t.Errorf("%v: %d and %d, want %d and %d", c.x, a, b, c.first, c.second)
		}
	}
}

func TestAdmissionIsThatOfTheTraces(t *testing.T) {
	for _, name := range []string{"cal07_admission", "cal08_admission_short"} {
		var g struct {
			Config struct {
				Window      int
				Num_queries int
				Topk        int
				Share       float64 `json:"positive_fraction"`
			}
			Params struct {
				Key   array `json:"adm_key"`
				Value array `json:"adm_value"`
				Bias  array `json:"adm_bias"`
			}
			Inputs   struct{ Queries, Keys, Values array }
			Expected struct {
				Salience, Labels, Logits array
				Loss                     float64
			}
		}
		golden(t, name, &g)
		q, k, v := g.Inputs.Queries.vectors(), g.Inputs.Keys.vectors(), g.Inputs.Values.vectors()
		n := &notes{keys: k, values: v}
		var heads []predictor
		at := 0
		for h := range q {
			s := salience(q[h], k[h], g.Config.Window, g.Config.Num_queries, g.Config.Topk)
			yes := labels(s, g.Config.Share)
			n.labels = append(n.labels, yes)
			d := len(q[h][0])
			heads = append(heads, predictor{g.Params.Key.Data[h*d : (h+1)*d], g.Params.Value.Data[h*d : (h+1)*d], g.Params.Bias.Data[h : h+1]})
			for i := range s {
				near(t, name+": salience", float64(s[i]), float64(g.Expected.Salience.Data[at+i]))
				if yes[i] != (g.Expected.Labels.Data[at+i] == 1) {
					t.Errorf("%s: label %d of head %d is %v", name, i, h, yes[i])
				}
				unit(k[h][i])
				unit(v[h][i])
				near(t, name+": logit", float64(heads[h].logit(k[h][i], v[h][i])), float64(g.Expected.Logits.Data[at+i]))
			}
			at += len(s)
		}
		near(t, name+": loss", float64(layer(n, heads, nil, 1)), g.Expected.Loss)

		// The gradient is what differences of the loss say.
		gradient := make([]predictor, len(heads))
		for h := range gradient {
			gradient[h] = predictor{make([]float32, len(heads[h].key)), make([]float32, len(heads[h].value)), make([]float32, 1)}
		}
		layer(n, heads, gradient, 1)
		for h := range heads {
			for i, p := range []*float32{&heads[h].key[1], &heads[h].value[2], &heads[h].bias[0]} {
				const e = 1.0 / 256
				was := *p
				*p = was + e
				up := layer(n, heads, nil, 1)
				*p = was - e
				down := layer(n, heads, nil, 1)
				*p = was
				got := []float32{gradient[h].key[1], gradient[h].value[2], gradient[h].bias[0]}[i]
				if want := float64(up-down) / (2 * e); math.Abs(float64(got)-want) > 3e-4 {
					t.Errorf("%s: gradient of parameter %d of head %d is %v, differences say %v", name, i, h, got, want)
				}
			}
		}
	}
}
