package grad_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/grad"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// rig is a tape on a device.
type rig struct {
	testing.TB
	dev backend.Device
	s   backend.Stream
	p   *grad.Params
	t   *grad.Tape
}

func newRig(t testing.TB, dev backend.Device) *rig {
	t.Helper()
	r := &rig{TB: t, dev: dev}
	var err error
	r.s, err = dev.NewStream()
	r.must(err)
	r.p, err = grad.NewParams(r.s, dev)
	r.must(err)
	r.t, err = grad.NewTape(r.s, dev, r.p)
	r.must(err)
	t.Cleanup(func() {
		r.t.Close()
		r.p.Close()
		r.s.Close()
	})
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// new is device memory with values; nil for zeros.
func (r *rig) new(v []float32, dim ...int) tensor.Tensor {
	r.Helper()
	n := 1
	for _, d := range dim {
		n *= d
	}
	b, err := r.dev.Alloc(4 * n)
	r.must(err)
	r.Cleanup(func() { r.dev.Free(b) })
	t, err := tensor.New(b, 0, tensor.F32, dim...)
	r.must(err)
	if v != nil {
		r.s.Write(t, tensor.AsBytes(v))
	}
	return t
}

func (r *rig) ints(v ...int32) tensor.Tensor {
	r.Helper()
	b, err := r.dev.Alloc(4 * len(v))
	r.must(err)
	r.Cleanup(func() { r.dev.Free(b) })
	t, err := tensor.New(b, 0, tensor.I32, len(v))
	r.must(err)
	r.s.Write(t, tensor.AsBytes(v))
	return t
}

func (r *rig) read(t tensor.Tensor) []float32 {
	r.Helper()
	v := make([]float32, t.Len())
	r.s.Read(tensor.AsBytes(v), t)
	r.must(r.s.Sync())
	return v
}

func (r *rig) weight(v []float32, n, k int) backend.Weight {
	r.Helper()
	t, err := tensor.FromF32(v, n, k)
	r.must(err)
	w, err := r.dev.Pack(t, backend.UseLinear|backend.UseEmbed)
	r.must(err)
	r.Cleanup(func() { r.dev.Unpack(w) })
	return w
}

func (r *rig) equal(what string, got tensor.Tensor, want ...float32) {
	r.Helper()
	if d := tensortest.DiffBits(want, r.read(got)); d != "" {
		r.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func (r *rig) plan(rows ...int) backend.Plan {
	var segs []backend.Seg
	at := 0
	for _, n := range rows {
		segs = append(segs, backend.Seg{Row: at, Rows: n})
		at += n
	}
	return r.t.Plan(segs)
}

// y = x·w + x, whose gradients are known in small integers: every contribution
// arrives, frozen weights have none, and the tape is free for another pass.
func TestContributions(t *testing.T) {
	r := newRig(t, ref.New())
	trained, frozen := r.weight([]float32{1, 2, 3, 4}, 2, 2), r.weight([]float32{5, 6, 7, 8}, 2, 2)
	p, err := r.p.AddWeight("w", trained, []float32{1, 2, 3, 4})
	r.must(err)
	for pass := range 2 {
		x := r.new([]float32{1, 10, 2, 20, 3, 30}, 3, 2)
		a, b, y, z := r.new(nil, 3, 2), r.new(nil, 3, 2), r.new(nil, 3, 2), r.new(nil, 3, 2)
		r.plan(2, 1)
		r.t.Linear(a, x, trained)
		r.t.Linear(b, x, frozen)
		r.t.Add(y, a, b)
		r.t.Add(z, y, x)
		r.equal("the result", z, 21+65+1, 43+87+10, 42+130+2, 86+174+20, 63+195+3, 129+261+30)
		r.t.Seed(z, r.new([]float32{1, 0, 0, 1, 1, 1}, 3, 2))
		r.must(r.t.Backward())
		// dy·(w + frozen) + dy
		r.equal("the gradient of x", r.t.Grad(x), 6+1, 8, 10, 12+1, 16+1, 20+1)
		n := float32(pass + 1)
		r.equal("the gradient of w", p.Grad, n*(1+3), n*(10+30), n*(2+3), n*(20+30))
	}
}

// Rows that Write puts over an embedding's are no longer the table's.
func TestContinuousRows(t *testing.T) {
	for _, dev := range []backend.Device{ref.New(), open(t)} {
		r := newRig(t, dev)
		v := []float32{1, 2, 3, 4, 5, 6}
		w := r.weight(v, 3, 2)
		p, err := r.p.AddWeight("table", w, v)
		r.must(err)
		x := r.new(nil, 4, 2)
		r.plan(4)
		r.t.Embed(x, w, r.ints(2, 0, 2, 0))
		r.t.Write(x.Rows(1, 2), tensor.AsBytes([]float32{7, 7}))
		r.t.Write(x.Rows(2, 3), tensor.AsBytes([]float32{8, 8}))
		r.t.Seed(x, r.new([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2))
		r.must(r.t.Backward())
		r.must(r.p.Finish())
		r.equal("the gradient of the table", p.Grad, 7, 8, 0, 0, 1, 2)
		r.equal("the gradient of the rows", r.t.Grad(x), 1, 2, 3, 4, 5, 6, 7, 8)
	}
}

func open(t testing.TB) backend.Device {
	d, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// What cannot be differentiated is refused by name, and Reset makes the tape usable.
func TestRefusals(t *testing.T) {
	r := newRig(t, ref.New())
	v := []float32{1, 2, 3, 4}
	w := r.weight(v, 2, 2)
	_, err := r.p.AddWeight("w", w, v)
	r.must(err)
	x, y := r.new(v, 2, 2), r.new(nil, 2, 2)
	h := r.new(v, 2, 1, 2)
	for _, c := range []struct {
		want string
		call func()
	}{
		{"LinearRows has no gradient", func() { r.t.LinearRows(y, x, w, r.ints(0, 1)) }},
		{"SumRows has no gradient", func() { r.t.SumRows(r.plan(2), x) }},
		{"PutPage has no gradient", func() { r.t.PutPage(x, y) }},
		{"Route has no gradient", func() { r.t.Route(x, x, x, 1, true) }},
		{"Experts has no gradient", func() { r.t.Experts(y, x, x, x, nil, nil, nil) }},
		{"AddGated has no gradient", func() { r.t.AddGated(y, x, x, x) }},
		{"AttentionWeights has no gradient", func() { r.t.AttentionWeights(h, h, h, r.plan(2), 0, 0, 1, 0) }},
		{"begins at slot 3", func() { r.t.Plan([]backend.Seg{{Rows: 1, Slot: 3}}) }},
		{"Linear of 2 rows with parameter w", func() { r.plan(3); r.t.Linear(y, x, w) }},
		{"keep every result", func() { r.plan(2); r.t.Linear(y, x, w); r.t.Linear(y, x, w) }},
		{"keep every result", func() { r.plan(2); r.t.Linear(y, x, w); r.t.Add(y.Rows(1, 2), x.Rows(0, 1), x.Rows(0, 1)) }},
		{"call Backward or Reset", func() { r.plan(2); r.t.Linear(y, x, w); r.plan(2) }},
		{"without its PutKV", func() {
			p := r.t.Plan([]backend.Seg{{Rows: 2, KV: []tensor.Tensor{r.new(nil, 2, 1, 64, 2)}}})
			r.t.Attention(r.new(nil, 2, 1, 2), h, p, 0, 1, 0)
		}},
		{"stored twice", func() {
			p := r.t.Plan([]backend.Seg{{Rows: 2, KV: []tensor.Tensor{r.new(nil, 2, 1, 64, 2)}}})
			r.t.PutKV(p, 0, h, h)
			r.t.PutKV(p, 0, h, h)
		}},
		{"PutKV into pages of BF16 has no gradient: train with keys and values in F32", func() {
			buf, at := r.new(nil, 1, 1, 64, 2).Buffer()
			page, err := tensor.New(buf, at, tensor.BF16, 2, 1, 64, 2)
			r.must(err)
			p := r.t.Plan([]backend.Seg{{Rows: 2, KV: []tensor.Tensor{page}}})
			r.t.PutKV(p, 0, h, h)
		}},
		{"want f32 values in memory", func() { r.t.Seed(r.ints(1, 2), x) }},
	} {
		c.call()
		if err := r.t.Sync(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error that says %q, got %v", c.want, err)
		}
		if err := r.t.Backward(); err == nil {
			t.Errorf("%s: Backward goes on", c.want)
		}
		r.t.Reset()
	}
	r.plan(2)
	r.t.Linear(y, x, w)
	r.t.Seed(y, x)
	r.must(r.t.Backward())
}

// Every op of a stream is the tape's own, so that none runs without being recorded,
// looked at or refused.
func TestEveryOpIsKnown(t *testing.T) {
	own := map[string]bool{}
	for _, name := range []string{"tape.go", "ops.go", "archive.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				if s, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok && s.X.(*ast.Ident).Name == "Tape" {
					own[fn.Name.Name] = true
				}
			}
		}
	}
	for _, all := range []reflect.Type{reflect.TypeFor[backend.Stream](), reflect.TypeFor[backend.Archive]()} {
		for i := range all.NumMethod() {
			if n := all.Method(i).Name; !own[n] {
				t.Errorf("the tape passes %s through", n)
			}
		}
	}
}

// A device that cannot train says so.
func TestNoGrad(t *testing.T) {
	dev := ref.New()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	plain := struct{ backend.Stream }{s}
	if _, err := grad.NewTape(plain, dev, nil); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("a tape without gradients: %v, want ErrUnsupported", err)
	}
	if _, err := grad.NewParams(plain, dev); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("parameters without gradients: %v, want ErrUnsupported", err)
	}
}

func TestParamsRefuse(t *testing.T) {
	r := newRig(t, ref.New())
	v := []float32{1, 2, 3, 4}
	w, x := r.weight(v, 2, 2), r.new(v, 4)
	_, err := r.p.AddWeight("a", w, v)
	r.must(err)
	_, err = r.p.AddTensor("b", x, grad.Plain, v)
	r.must(err)
	for what, f := range map[string]func() error{
		"a weight twice":      func() error { _, err := r.p.AddWeight("c", w, v); return err },
		"a tensor twice":      func() error { _, err := r.p.AddTensor("c", x, grad.Plain, v); return err },
		"a name twice":        func() error { _, err := r.p.AddTensor("a", r.new(v, 4), grad.Plain, v); return err },
		"too few values":      func() error { _, err := r.p.AddTensor("c", r.new(v, 4), grad.Plain, v[:3]); return err },
		"a nil weight":        func() error { _, err := r.p.AddWeight("c", nil, v); return err },
		"an invalid tensor":   func() error { _, err := r.p.AddTensor("c", tensor.Tensor{}, grad.Plain, v); return err },
		"an unknown form":     func() error { _, err := r.p.AddTensor("c", r.new(v, 4), 7, v); return err },
		"negative decay":      func() error { _, err := grad.NewAdamW(r.p, grad.AdamWConfig{Decay: -1}); return err },
		"a beta of one":       func() error { _, err := grad.NewAdamW(r.p, grad.AdamWConfig{Beta2: 1}); return err },
		"clipping to nothing": func() error { _, err := grad.NewAdamW(r.p, grad.AdamWConfig{Clip: math.NaN()}); return err },
	} {
		if f() == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	if r.p.Len() != 8 {
		t.Errorf("%d values are trained, want 8", r.p.Len())
	}
}

// Forms: what ops read is 1 + value or exp(value), and the chain rule is applied.
func TestForms(t *testing.T) {
	for _, dev := range []backend.Device{ref.New(), open(t)} {
		r := newRig(t, dev)
		one, exp := r.new(nil, 2), r.new(nil, 1)
		p1, err := r.p.AddTensor("one", one, grad.OnePlus, []float32{0.5, -0.25})
		r.must(err)
		pe, err := r.p.AddTensor("exp", exp, grad.Exp, []float32{0})
		r.must(err)
		r.equal("1 + value", one, 1.5, 0.75)
		r.equal("exp(value)", exp, 1)
		r.s.Write(pe.Value, tensor.AsBytes([]float32{1}))
		r.must(r.p.Refresh())
		r.equal("exp(value)", exp, math.Float32frombits(0x402df854))
		r.s.Write(pe.Grad, tensor.AsBytes([]float32{2}))
		r.s.Write(p1.Grad, tensor.AsBytes([]float32{2, 3}))
		r.must(r.p.Finish())
		r.equal("the gradient of the exponent", pe.Grad, math.Float32frombits(0x40adf854))
		r.equal("the gradient of a norm", p1.Grad, 2, 3)
	}
}

// number is a tensor of a golden.
type number struct {
	Shape []int
	Data  []float64
}

func (n number) f32() []float32 {
	v := make([]float32, len(n.Data))
	for i, x := range n.Data {
		v[i] = float32(x)
	}
	return v
}

func golden(t *testing.T, name string, to any) {
	t.Helper()
	raw, err := os.ReadFile("../testdata/qcc/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}

// AdamW with clipping and decay against float64 figures of another implementation,
// within the tolerance that their file states for float32.
func TestAdamWGolden(t *testing.T) {
	var g struct {
		Tolerance struct{ Float32 float64 }
		Config    struct {
			LR, Beta1, Beta2, Eps, Clip float64
			Decay                       float64 `json:"weight_decay"`
		}
		Params   map[string]number
		Inputs   struct{ Grads []map[string]number }
		Expected struct {
			After []map[string]number `json:"params_after"`
			Norms number              `json:"grad_norms"`
		}
	}
	golden(t, "cal09_adamw", &g)
	for _, dev := range []backend.Device{ref.New(), open(t)} {
		r := newRig(t, dev)
		ps := map[string]*grad.Param{}
		for _, name := range slices.Sorted(maps.Keys(g.Params)) {
			v := g.Params[name]
			p, err := r.p.AddTensor(name, r.new(nil, v.Shape...), grad.Plain, v.f32())
			r.must(err)
			p.NoDecay = false
			ps[name] = p
		}
		o, err := grad.NewAdamW(r.p, grad.AdamWConfig{Beta1: g.Config.Beta1, Beta2: g.Config.Beta2, Eps: g.Config.Eps, Decay: g.Config.Decay, Clip: g.Config.Clip})
		r.must(err)
		if len(g.Inputs.Grads) == 0 {
			t.Fatal("no steps")
		}
		for i, step := range g.Inputs.Grads {
			for name, v := range step {
				r.s.Write(ps[name].Grad, tensor.AsBytes(v.f32()))
			}
			norm, err := o.Step(g.Config.LR)
			r.must(err)
			if s := tensortest.Near([]float64{g.Expected.Norms.Data[i]}, []float32{norm}, g.Tolerance.Float32); s != "" {
				t.Errorf("%s: norm of step %d: %s", dev.Name(), i, s)
			}
			for name, v := range g.Expected.After[i] {
				if s := tensortest.Near(v.Data, r.read(ps[name].Value), g.Tolerance.Float32); s != "" {
					t.Errorf("%s: %s after step %d: %s", dev.Name(), name, i, s)
				}
			}
			r.equal("a gradient after a step", ps["b"].Grad, 0, 0, 0, 0, 0)
		}
	}
}

// The distillation losses against float64 figures of another implementation.
func TestLossGoldens(t *testing.T) {
	for _, name := range []string{"cal04_losses_kl", "cal05_losses_all", "cal06_losses_mse"} {
		var g struct {
			Tolerance struct{ Float32 float64 }
			Config    struct{ Temperature float64 }
			Inputs    struct{ Student, Teacher number }
			Expected  struct {
				Terms struct{ MSE, Cosine, KL float64 }
			}
		}
		golden(t, name, &g)
		for _, dev := range []backend.Device{ref.New(), open(t)} {
			r := newRig(t, dev)
			rows, v := g.Inputs.Student.Shape[0], g.Inputs.Student.Shape[1]
			x, y := r.new(g.Inputs.Student.f32(), rows, v), r.new(g.Inputs.Teacher.f32(), rows, v)
			r.plan(rows)
			none := tensor.Tensor{}
			for what, c := range map[string]struct {
				want float64
				call func(loss tensor.Tensor)
			}{
				"kl":     {g.Expected.Terms.KL, func(l tensor.Tensor) { r.t.DistillKL(l, x, y, none, float32(g.Config.Temperature), 1) }},
				"mse":    {g.Expected.Terms.MSE, func(l tensor.Tensor) { r.t.SquaredError(l, x, y, none, 1) }},
				"cosine": {1 - g.Expected.Terms.Cosine, func(l tensor.Tensor) { r.t.CosineError(l, x, y, none, 1) }},
			} {
				loss := r.new(nil, rows)
				c.call(loss)
				if s := tensortest.Near([]float64{c.want}, []float32{grad.Mean(r.read(loss))}, g.Tolerance.Float32); s != "" {
					t.Errorf("%s on %s, %s: %s", name, dev.Name(), what, s)
				}
			}
			r.must(r.t.Backward())
		}
	}
}

// A gradient that is no number stops the training before it harms anything.
func TestStepRefusesNaN(t *testing.T) {
	r := newRig(t, ref.New())
	p, err := r.p.AddTensor("x", r.new(nil, 2), grad.Plain, []float32{1, 2})
	r.must(err)
	o, err := grad.NewAdamW(r.p, grad.AdamWConfig{})
	r.must(err)
	r.s.Write(p.Grad, tensor.AsBytes([]float32{1, float32(math.NaN())}))
	if _, err := o.Step(1); err == nil || o.Steps != 0 {
		t.Errorf("a gradient of NaN: %v, %d steps", err, o.Steps)
	}
	r.equal("the values", p.Value, 1, 2)
	r.equal("the gradient", p.Grad, 0, 0)
}

// Steps may be set back: the scalars depend on the number alone.
func TestStepsSetBack(t *testing.T) {
	r := newRig(t, ref.New())
	p, err := r.p.AddTensor("x", r.new(nil, 1), grad.Plain, []float32{1})
	r.must(err)
	o, err := grad.NewAdamW(r.p, grad.AdamWConfig{})
	r.must(err)
	run := func() []float32 {
		r.s.Write(p.Value, tensor.AsBytes([]float32{1}))
		r.s.Write(p.M, tensor.AsBytes([]float32{0}))
		r.s.Write(p.V, tensor.AsBytes([]float32{0}))
		o.Steps = 3
		var l []float32
		for range 3 {
			r.s.Write(p.Grad, tensor.AsBytes([]float32{0.3}))
			_, err := o.Step(0.1)
			r.must(err)
			l = append(l, r.read(p.Value)[0])
		}
		return l
	}
	if d := tensortest.DiffBits(run(), run()); d != "" {
		t.Error(d)
	}
}

func TestSchedule(t *testing.T) {
	s := grad.Schedule{Peak: 1, Warmup: 4, Total: 12, Floor: 0.25}
	for n, want := range map[int]float64{1: 0.25, 4: 1, 8: 0.625, 12: 0.25, 100: 0.25} {
		if got := s.At(n); math.Abs(got-want) > 1e-7 {
			t.Errorf("rate of step %d is %v, want %v", n, got, want)
		}
	}
	for n := 5; n < 12; n++ {
		if !(s.At(n) < s.At(n-1)) {
			t.Errorf("the rate does not fall at step %d", n)
		}
	}
	if got := (grad.Schedule{Peak: 3}).At(1); got != 0 {
		t.Errorf("a schedule without steps has rate %v", got)
	}
}

func TestMean(t *testing.T) {
	if got := grad.Mean(nil); got != 0 {
		t.Errorf("the mean of nothing is %v", got)
	}
	v := tensortest.NewRand(1).F32(tensortest.Ordinary, 2500)
	sum := 0.0
	for _, x := range v {
		sum += float64(x)
	}
	if s := tensortest.Near([]float64{sum / 2500}, []float32{grad.Mean(v)}, 1e-6); s != "" {
		t.Error(s)
	}
}
