package backend_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/internal/canon"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

const unitDir = "../testdata/models/unit"

// unitTolerance times 1 + |want| is what the goldens' makers allow float32 against
// their float64 results.
const unitTolerance = 4e-6

// params are the parameters of a case; absent ones are zero.
type params struct {
	Eps, Scale, QScale     float64
	ZeroCentred            bool `json:"zero_centred"`
	Past, Kernel           int
	Window                 *int
	QHeads                 int     `json:"q_heads"`
	KVHeads                int     `json:"kv_heads"`
	KHeads                 int     `json:"k_heads"`
	VHeads                 int     `json:"v_heads"`
	L2Eps                  float64 `json:"l2_eps"`
	DeltaScale             float64 `json:"q_scale"`
	TopK                   int     `json:"top_k"`
	Norm                   bool    `json:"norm_topk_prob"`
	RopeType               string  `json:"rope_type"`
	Theta                  float64 `json:"rope_theta"`
	Factor                 float64
	Low                    float64 `json:"low_freq_factor"`
	High                   float64 `json:"high_freq_factor"`
	Original               float64 `json:"original_max_position_embeddings"`
	BetaFast               float64 `json:"beta_fast"`
	BetaSlow               float64 `json:"beta_slow"`
	AttentionFactor        float64 `json:"attention_factor"`
	HeadDim                int     `json:"head_dim"`
	RotaryDim              int     `json:"rotary_dim"`
	AttentionFactorApplied float64 `json:"attention_factor_applied"`
	Tensors                []string
}

// unit is one case on one device.
type unit struct {
	params
	t    *testing.T
	s    backend.Stream
	dev  backend.Device
	set  *checkpoint.Set
	name string
}

// units runs the cases of an operation on the reference and on the processor.
func units(t *testing.T, op string, f func(u *unit)) {
	raw, err := os.ReadFile(filepath.Join(unitDir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Ops map[string]struct {
			File  string
			Cases map[string]params
		}
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}
	o, ok := index.Ops[op]
	if !ok || len(o.Cases) == 0 {
		t.Fatalf("there are no goldens of %q", op)
	}
	set, err := checkpoint.Open(filepath.Join(unitDir, o.File))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	c, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, dev := range []backend.Device{ref.New(), c} {
		for name, p := range o.Cases {
			t.Run(op+"/"+name+"/"+dev.Name(), func(t *testing.T) {
				s, err := dev.NewStream()
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				u := &unit{p, t, s, dev, set, name}
				f(u)
				if err := s.Sync(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func (u *unit) entry(name string) checkpoint.Entry {
	u.t.Helper()
	x, err := u.set.Tensor(u.name + "." + name)
	if err != nil {
		u.t.Fatal(err)
	}
	return x
}

func (u *unit) has(name string) bool { _, ok := u.set.Info(u.name + "." + name); return ok }

// in is an input with its shape; dims may say another one.
func (u *unit) in(name string, dim ...int) tensor.Tensor {
	u.t.Helper()
	x := u.entry(name)
	v, err := x.Float32s()
	if err != nil {
		u.t.Fatal(err)
	}
	if dim == nil {
		dim = x.Shape
	}
	return u.wrap(v, dim...)
}

func (u *unit) wrap(v []float32, dim ...int) tensor.Tensor {
	u.t.Helper()
	t, err := tensor.FromF32(v, dim...)
	if err != nil {
		u.t.Fatal(err)
	}
	return t
}

// like is an output of NaN with the shape of x.
func (u *unit) like(x tensor.Tensor) tensor.Tensor {
	dim := make([]int, x.Dims())
	for i := range dim {
		dim[i] = x.Dim(i)
	}
	return u.out(dim...)
}

func (u *unit) out(dim ...int) tensor.Tensor {
	n := 1
	for _, d := range dim {
		n *= d
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.NaN())
	}
	return u.wrap(v, dim...)
}

func (u *unit) want(name string) []float64 {
	u.t.Helper()
	v, err := u.entry(name).Float64s()
	if err != nil {
		u.t.Fatal(err)
	}
	return v
}

// near compares with the tolerance of the goldens.
func (u *unit) near(name string, got tensor.Tensor) {
	u.t.Helper()
	v, ok := got.F32()
	if !ok {
		u.t.Fatalf("%s: no values", name)
	}
	if d := tensortest.Near(u.want(name), v, unitTolerance); d != "" {
		u.t.Errorf("%s: %s", name, d)
	}
}

func (u *unit) linear(x, w tensor.Tensor) tensor.Tensor {
	u.t.Helper()
	p, err := u.dev.Pack(w, backend.UseLinear)
	if err != nil {
		u.t.Fatal(err)
	}
	defer u.dev.Unpack(p)
	y := u.out(x.Dim(0), w.Dim(0))
	u.s.Linear(y, x, p)
	return y
}

func TestUnitNorms(t *testing.T) {
	units(t, "rmsnorm", func(u *unit) {
		x, w := u.in("x"), u.in("w")
		if u.ZeroCentred {
			v, _ := w.F32()
			for i := range v {
				v[i] = 1 + v[i]
			}
		}
		y := u.like(x)
		u.s.RMSNorm(y, x, w, float32(u.Eps))
		u.near("y", y)
	})
	units(t, "gated_rmsnorm", func(u *unit) {
		x := u.in("x")
		r, c := x.Dim(0), x.Dim(1)
		y := u.out(r, 1, c)
		u.s.GatedRMSNorm(y, x.Reshape(r, 1, c), u.in("z", r, 1, c), u.in("w"), float32(u.Eps))
		u.near("y", y)
	})
}

func TestUnitActivations(t *testing.T) {
	units(t, "activations", func(u *unit) {
		if u.name == "swiglu_mlp" {
			x := u.in("x")
			h := u.linear(x, u.in("gate"))
			u.s.SwiGLU(h, h, u.linear(x, u.in("up")))
			u.near("y", u.linear(h, u.in("down")))
			return
		}
		n := u.entry("x").Len()
		x, up, one := u.in("x", 1, n), u.in("up", 1, n), u.out(1, n)
		v, _ := one.F32()
		for i := range v {
			v[i] = 1
		}
		y := u.out(1, n)
		u.s.SwiGLU(y, x, up)
		u.near("swiglu", y)
		u.s.SwiGLU(y, x, one)
		u.near("silu", y)
		u.s.SigmoidMul(y, one, x)
		u.near("sigmoid", y)
		// exp and softplus have no op of their own: DeltaGates gives exp(-softplus).
		for name, f := range map[string]func(float32) float32{"exp": canon.Exp, "softplus": canon.Softplus} {
			xs, _ := x.F32()
			ys, _ := y.F32()
			for i := range xs {
				ys[i] = f(xs[i])
			}
			u.near(name, y)
		}
	})
}

func TestUnitLinear(t *testing.T) {
	units(t, "linear", func(u *unit) {
		y := u.linear(u.in("x"), u.in("w"))
		if u.has("b") {
			u.s.AddBias(y, y, u.in("b"))
		}
		u.near("y", y)
	})
}

func TestUnitSoftmax(t *testing.T) {
	units(t, "softmax", func(u *unit) {
		x := u.in("x")
		y := u.like(x)
		u.s.Softmax(y, x)
		u.near("y", y)
	})
}

// pages are poisoned pages of one layer.
func (u *unit) pages(heads, slots, d int) []tensor.Tensor {
	var l []tensor.Tensor
	for range (slots + backend.Page - 1) / backend.Page {
		l = append(l, u.out(2, heads, backend.Page, d))
	}
	return l
}

func TestUnitAttention(t *testing.T) {
	units(t, "attention", func(u *unit) {
		q, k, v := u.in("q"), u.in("k"), u.in("v")
		window := 0
		if u.Window != nil {
			window = *u.Window
		}
		n, all := q.Dim(0), k.Dim(0)
		if all != u.Past+n {
			t.Fatalf("%d keys for %d rows after %d", all, n, u.Past)
		}
		pages := u.pages(k.Dim(1), all, k.Dim(2))
		if u.Past > 0 {
			p := u.s.Plan([]backend.Seg{{Rows: u.Past, KV: pages}})
			u.s.PutKV(p, 0, k.Rows(0, u.Past), v.Rows(0, u.Past))
		}
		p := u.s.Plan([]backend.Seg{{Rows: n, Slot: u.Past, Pos: u.Past, KV: pages}})
		u.s.PutKV(p, 0, k.Rows(u.Past, all), v.Rows(u.Past, all))
		y := u.like(q)
		u.s.Attention(y, q, p, 0, float32(u.Scale), window)
		u.near("y", y)

		// The log mass from the scores, and weights that sum to one.
		s, w := u.out(n, q.Dim(1), all), u.out(n, q.Dim(1), all)
		u.s.AttnScores(s, q, p, 0, float32(u.Scale), window)
		u.s.AttnWeights(w, q, p, 0, float32(u.Scale), window)
		lse := make([]float32, 0, n*q.Dim(1))
		for r := range n {
			for h := range q.Dim(1) {
				m, l, sum := math.Inf(-1), 0.0, 0.0
				for _, x := range s.Vec(r, h) {
					m = math.Max(m, float64(x))
				}
				for i, x := range s.Vec(r, h) {
					l += math.Exp(float64(x) - m)
					sum += float64(w.Vec(r, h)[i])
				}
				lse = append(lse, float32(m+math.Log(l)))
				if math.Abs(sum-1) > 1e-5 {
					u.t.Errorf("row %d, head %d: the weights' sum is %v", r, h, sum)
				}
			}
		}
		u.near("lse", u.wrap(lse, n, q.Dim(1)))
	})
}

func TestUnitConv(t *testing.T) {
	units(t, "causal_conv", func(u *unit) {
		x, w := u.in("x"), u.in("w")
		c, taps := w.Dim(0), w.Dim(1)
		turned := u.out(taps, c)
		for i := range c {
			for j := range taps {
				turned.Row(j)[i] = w.Row(i)[j]
			}
		}
		y, out := u.like(x), u.out(1, taps-1, c)
		p := u.s.Plan([]backend.Seg{{Rows: x.Dim(0), ConvIn: u.in("state_in", 1, taps-1, c), ConvOut: out}})
		u.s.Conv(y, x, turned, p, 0)
		u.near("y_silu", y)
		state, _ := out.F32()
		want, _ := u.in("state_out").F32()
		if d := tensortest.DiffBits(want, state); d != "" {
			u.t.Errorf("state_out: %s", d)
		}
	})
}

func TestUnitGates(t *testing.T) {
	units(t, "gdn_gates", func(u *unit) {
		if u.name == "l2norm" {
			x := u.in("x")
			y := u.out(x.Dim(0), 1, x.Dim(1))
			u.s.L2Norm(y, x.Reshape(x.Dim(0), 1, x.Dim(1)), float32(u.Eps), 1)
			u.near("y", y)
			return
		}
		a, aExp := u.in("a"), u.in("A_log")
		v, _ := aExp.F32()
		for i := range v {
			v[i] = canon.Exp(v[i])
		}
		g, beta := u.like(a), u.like(a)
		u.s.DeltaGates(g, beta, a, u.in("b"), aExp, u.in("dt_bias"))
		u.near("decay", g)
		u.near("beta", beta)
	})
}

func TestUnitDelta(t *testing.T) {
	units(t, "gated_delta_rule", func(u *unit) {
		q, k, v, g := u.in("q"), u.in("k"), u.in("v"), u.in("g")
		u.s.L2Norm(q, q, float32(u.L2Eps), float32(u.DeltaScale))
		u.s.L2Norm(k, k, float32(u.L2Eps), 1)
		x, _ := g.F32()
		for i := range x {
			x[i] = canon.Exp(x[i])
		}
		dk, dv := q.Dim(2), v.Dim(2)
		if q.Dim(1) != u.KHeads || v.Dim(1) != u.VHeads {
			u.t.Fatalf("heads %d and %d, want %d and %d", q.Dim(1), v.Dim(1), u.KHeads, u.VHeads)
		}
		in, out := u.in("S0", 1, u.VHeads, dk, dv), u.out(1, u.VHeads, dk, dv)
		y := u.like(v)
		p := u.s.Plan([]backend.Seg{{Rows: v.Dim(0), DeltaIn: in, DeltaOut: out}})
		u.s.GatedDelta(y, q, k, v, g, u.in("beta"), p, 0)
		u.near("o", y)
		u.near("S", out)
		if !u.has("S_steps") {
			return
		}
		steps := u.out(v.Dim(0), u.VHeads*dk*dv)
		for r := range v.Dim(0) {
			p := u.s.Plan([]backend.Seg{{Rows: 1, Slot: r, Pos: r, DeltaIn: in, DeltaOut: out}})
			u.s.GatedDelta(y.Rows(r, r+1), q.Rows(r, r+1), k.Rows(r, r+1), v.Rows(r, r+1), g.Rows(r, r+1), u.in("beta").Rows(r, r+1), p, 0)
			s, _ := out.F32()
			copy(steps.Row(r), s)
			in, out = out, in
		}
		u.near("S_steps", steps)
	})
}

func TestUnitRouter(t *testing.T) {
	units(t, "moe_router", func(u *unit) {
		x := u.in("logits")
		n, k := x.Dim(0), u.TopK
		ids := make([]int32, n*k)
		e, err := tensor.FromI32(ids, n, k)
		if err != nil {
			u.t.Fatal(err)
		}
		w := u.out(n, k)
		u.s.Route(e, w, x, k, u.Norm)
		want, err := u.entry("experts").Int64s()
		if err != nil {
			u.t.Fatal(err)
		}
		weights := u.want("weights")
		for r := range n { // the goldens list the largest weight first
			byID := map[int32]float64{}
			for i := r * k; i < (r+1)*k; i++ {
				byID[int32(want[i])] = weights[i]
			}
			for i, id := range ids[r*k : (r+1)*k] {
				if i > 0 && ids[r*k+i-1] >= id {
					u.t.Errorf("row %d: experts %v are not ascending", r, ids[r*k:(r+1)*k])
				}
				v, ok := byID[id]
				if d := tensortest.Near([]float64{v}, w.Row(r)[i:i+1], unitTolerance); !ok || d != "" {
					u.t.Errorf("row %d: expert %d (chosen: %v): %s", r, id, ok, d)
				}
			}
		}
	})
}

// The goldens' rotary tables are float64; the tolerance of frequency and angle in
// float32 grows with the position. A band that interpolates (llama3) doubles the
// two roundings of a frequency.
func TestUnitRoPE(t *testing.T) {
	units(t, "rope", func(u *unit) {
		rope := u.rope()
		for i, w := range u.want("inv_freq") {
			if d := math.Abs(float64(rope.Inv[i]) - w); !(d <= 0x1p-22*math.Abs(w)) {
				u.t.Errorf("frequency %d is %v, want %v", i, rope.Inv[i], w)
			}
		}
		if d := math.Abs(float64(rope.Factor) - u.AttentionFactorApplied); d > 1e-7 {
			u.t.Errorf("factor %v, want %v", rope.Factor, u.AttentionFactorApplied)
		}
		pos, err := u.entry("positions").Int64s()
		if err != nil {
			u.t.Fatal(err)
		}
		h := len(rope.Inv)
		cos, sin := make([]float32, h), make([]float32, h)
		wc, ws := u.want("cos"), u.want("sin")
		x, want := u.in("x"), u.want("y")
		y := u.like(x)
		heads, d := x.Dim(1), x.Dim(2)
		for r, p := range pos {
			tol := 0x1p-24 * float64(2*p+2) * u.AttentionFactorApplied
			rope.Angles(cos, sin, int(p))
			for i := range h {
				if math.Abs(float64(cos[i])-wc[r*h+i]) > tol || math.Abs(float64(sin[i])-ws[r*h+i]) > tol {
					u.t.Fatalf("position %d, pair %d: %v, %v, want %v, %v", p, i, cos[i], sin[i], wc[r*h+i], ws[r*h+i])
				}
			}
			pl := u.s.Plan([]backend.Seg{{Rows: 1, Pos: int(p)}})
			u.s.NormRoPE(y.Rows(r, r+1), x.Rows(r, r+1), tensor.Tensor{}, 0, rope, pl)
			for j := range heads {
				in, out := x.Vec(r, j), y.Vec(r, j)
				for i := range d {
					w, size := want[(r*heads+j)*d+i], 0.0
					if i < 2*h {
						size = math.Abs(float64(in[i%h])) + math.Abs(float64(in[i%h+h]))
					}
					if diff := math.Abs(float64(out[i]) - w); !(diff <= tol*size+0x1p-22*size) {
						u.t.Fatalf("position %d, head %d, component %d is %v, want %v", p, j, i, out[i], w)
					}
				}
			}
		}
	})
}

func (u *unit) rope() *backend.RoPE {
	u.t.Helper()
	r, err := backend.NewRoPE(u.Theta, u.RotaryDim, backend.Scaling{
		Type: u.RopeType, Factor: u.Factor, LowFreqFactor: u.Low, HighFreqFactor: u.High, Original: u.Original,
		BetaFast: u.BetaFast, BetaSlow: u.BetaSlow, AttentionFactor: u.AttentionFactor,
	}, nil)
	if err != nil {
		u.t.Fatal(err)
	}
	return r
}
