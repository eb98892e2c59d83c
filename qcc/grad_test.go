package qcc

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/grad"
	"samebit/nn"
	"samebit/tensor"
)

// What the traces call the gradients.
var gradNames = map[string]string{"codes": "codes", "mix_logits": "mix_logits", "corr_u": "corr_u", "corr_v": "corr_v", "corr_scale": "corr_scale", "wg": "gate.weight", "bg": "gate.bias"}

// zeros is a set of gradients to add to.
func zeros(c Config) *Params {
	p := &Params{}
	for _, f := range p.Named(c) {
		*f.Values = make([]float32, f.Size())
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
			for _, f := range d.Named(f) {
				of[f.Name] = *f.Values
			}
			for name, w := range want.Grads {
				if name != "hidden" {
					near(t, tr.ID+" "+name, of[gradNames[name]], w.f64(), tr.Tolerance.Float32)
				}
			}
		})
	}
}

func TestGradientTraces64(t *testing.T) {
	for _, tr := range readTraces(t, "grad") {
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
		x, dy := in["hidden"].f64(), in["cotangent"].f64()
		near(t, tr.ID+" value", []float64{value64(&c, p, x, nil, dy)}, []float64{want.Value}, tight)
		g := back64(&c, p, x, nil, dy)
		g.params["hidden"] = g.hidden
		for name, w := range want.Grads {
			near(t, tr.ID+" "+name, g.params[name], w.f64(), tight)
		}
	}
}

// value64 is the sum of a layer's outputs times their gradients.
func value64(c *traceConfig, p fields, x, hint, dy []float64) float64 {
	l, s := newLayer64(c, p), 0.0
	for i := range len(x) / c.DModel {
		var h []float64
		if c.Lexical {
			h = cut(hint, i, c.DModel)
		}
		s += wide.Dot(l.token(cut(x, i, c.DModel), h), cut(dy, i, c.DModel))
	}
	return s
}

// lesson is a layer's configuration in the words of the traces, with parameters,
// rows and gradients of its outputs.
type lesson struct {
	c           traceConfig
	p           fields
	x, hint, dy []float64
}

func newLesson(r *rand.Rand) *lesson {
	z := &lesson{c: traceConfig{NumHeads: 1 + r.IntN(2), HeadDim: 2 + r.IntN(3), Window: 1 + r.IntN(4), Codes: 1 + r.IntN(4), Scales: 1 + r.IntN(3), MaxPosition: 50,
		UseArchive: true, RopeScaling: 1, Global: r.IntN(2) == 0, Rank: r.IntN(3), LandTemp: 1.5}}
	c := &z.c
	yes := func(n int) bool { return r.IntN(n) == 0 }
	c.DModel = c.NumHeads * c.HeadDim
	c.Sparse = "global"
	if yes(2) {
		c.RopeTheta = ptr(100.0)
	}
	c.Invariant, c.Lexical, c.Kernel, c.NormGating = yes(2), yes(3), yes(4), yes(3)
	c.ActiveQuery = c.Rank > 0 && yes(2)
	if yes(3) {
		c.Sinks = r.IntN(c.Window + 1)
	}
	if yes(4) {
		c.ArchiveMix = ptr(0.25)
	}
	switch r.IntN(6) {
	case 0:
		c.Persistent = true
	case 1:
		c.Persistent, c.Prefix = true, true
	case 2:
		c.Persistent, c.Prefix, c.Pair = true, true, true
	}
	rows := c.Window + c.Sinks + 1 + r.IntN(6)
	draw := func(dim ...int) *array {
		a := &array{Shape: dim}
		n := 1
		for _, d := range dim {
			n *= d
		}
		for range n { // exact in float32
			a.Data = append(a.Data, ptr(math.Round(r.NormFloat64()*512)/1024))
		}
		return a
	}
	h, d, m, s, k := c.NumHeads, c.HeadDim, c.Codes, c.Scales, c.Rank
	z.p = fields{"codes": draw(h, m, d), "mix_logits": draw(h, m, s)}
	for _, w := range []string{"q", "k", "v", "o"} {
		z.p["w"+w], z.p["b"+w] = draw(c.DModel, c.DModel), draw(c.DModel)
	}
	if c.ArchiveMix == nil {
		z.p["wg"], z.p["bg"] = draw(h, c.DModel), draw(h)
	}
	if k > 0 {
		z.p["corr_v"], z.p["corr_u"], z.p["corr_scale"] = draw(h, d, k), draw(h, k, d), draw(h, k, s)
	}
	if c.Persistent && !c.Prefix {
		z.p["landmark_mix"] = draw(h)
	}
	z.x, z.hint, z.dy = draw(rows, c.DModel).f64(), draw(rows, c.DModel).f64(), draw(rows, c.DModel).f64()
	return z
}

// The gradients of the float64 layer are the slopes of its outputs, for every
// parameter and every row. Landmarks are constants, so that rows and what makes keys
// of them have other slopes there.
func TestGradientsAreSlopes(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		z := newLesson(rand.New(rand.NewPCG(seed, 72)))
		g := back64(&z.c, z.p, z.x, z.hint, z.dy)
		loss := func() float64 { return value64(&z.c, z.p, z.x, z.hint, z.dy) }
		check := func(what string, x []*float64, d []float64) {
			const h = 0x1p-16
			slopes, most := make([]float64, len(x)), 0.0
			for i, v := range x {
				was := *v
				var y [5]float64
				for n := range y {
					*v = was + float64(n-2)*h
					y[n] = loss()
				}
				*v = was
				slopes[i] = (y[0] - y[4] + 8*(y[3]-y[1])) / (12 * h)
				most = max(most, math.Abs(slopes[i]))
			}
			for i, s := range slopes {
				if !(math.Abs(d[i]-s) <= 1e-7*most+1e-9) {
					t.Fatalf("seed %d (%+v): gradient of %s at %d is %v, central differences give %v", seed, z.c, what, i, d[i], s)
				}
			}
		}
		of := func(v []float64) (l []*float64) {
			for i := range v {
				l = append(l, &v[i])
			}
			return l
		}
		for name, a := range z.p {
			if !z.c.Persistent || name != "wk" && name != "wv" && name != "bk" && name != "bv" {
				check(name, a.Data, g.params[name])
			}
		}
		if !z.c.Persistent {
			check("hidden", of(z.x), g.hidden)
			if z.c.Lexical {
				check("hint", of(z.hint), g.hint)
			}
		}
	}
}

func float32s(v []float64) []float32 {
	w := make([]float32, len(v))
	for i, x := range v {
		w[i] = float32(x)
	}
	return w
}

// Layer.Backward gives the gradients of the float64 layer within the tolerance of
// the traces, and adds to what is there.
func TestBackwardFollowsFloat64(t *testing.T) {
	for seed := range uint64(30) {
		z := newLesson(rand.New(rand.NewPCG(seed, 73)))
		want := back64(&z.c, z.p, z.x, z.hint, z.dy)
		c := z.c.config()
		pr, p := traceParams(z.p)
		l, err := New(ref.New(), c, pr, p)
		if err != nil {
			t.Fatal(err)
		}
		in, d := Block{Hidden: float32s(z.x)}, zeros(c)
		dIn := Block{Hidden: make([]float32, len(z.x))}
		if z.c.Lexical {
			in.Hint, dIn.Hint = float32s(z.hint), make([]float32, len(z.x))
		}
		if err := l.Backward(context.Background(), d, dIn, in, float32s(z.dy)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		what := fmt.Sprintf("seed %d ", seed)
		near(t, what+"hidden", dIn.Hidden, want.hidden, 2e-3)
		if z.c.Lexical {
			near(t, what+"hint", dIn.Hint, want.hint, 2e-3)
		}
		names := map[string]string{"landmark_mix": "landmark_mix"}
		for a, b := range gradNames {
			names[b] = a
		}
		for _, f := range d.Named(c) {
			near(t, what+f.Name, *f.Values, want.params[names[f.Name]], 2e-3)
		}
		l.Close()
	}
}

// course is a batch of texts of one layer.
type course struct {
	c     Config
	pr    *Projections
	p     *Params
	texts []Block
	dy    [][]float32
}

func newCourse(t *testing.T, r *rand.Rand) *course {
	t.Helper()
	z := &course{}
	for {
		if z.c = randomConfig(r); z.c.Trainable() == nil && !z.c.Reuses() {
			break
		}
	}
	if r.IntN(3) == 0 {
		z.c = randomDelta(r)
	}
	z.c.ActiveCodes = 0
	z.pr, z.p = randomLayer(t, r, z.c)
	for range 1 + r.IntN(4) {
		n := 1 + r.IntN(z.c.Window+z.c.Sinks+20)
		if r.IntN(4) == 0 {
			n += 130
		}
		b := Block{Hidden: noise(r, n*z.c.Hidden)}
		if z.c.NoArchive {
			b.Hidden = b.Hidden[:min(n, z.c.Window)*z.c.Hidden]
		}
		if z.c.Lexical && r.IntN(2) == 0 {
			b.Hint = noise(r, len(b.Hidden))
		}
		z.texts, z.dy = append(z.texts, b), append(z.dy, noise(r, len(b.Hidden)))
	}
	return z
}

// run takes the batch in passes of so many texts each and returns the outputs, the
// gradients of the rows and those of the parameters, in order of name.
func (z *course) run(t *testing.T, dev backend.Device, per []int) [][]float32 {
	t.Helper()
	l, err := New(dev, z.c, z.pr, z.p)
	if err != nil {
		t.Fatalf("%+v: %v", z.c, err)
	}
	defer l.Close()
	tr := &l.trainer
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatalf("%+v: %v", z.c, err)
		}
	}
	must(tr.open(l))
	must(tr.params.Zero())
	s, err := dev.NewStream()
	must(err)
	defer s.Close()
	tape, err := grad.NewTape(s, dev, tr.params)
	must(err)
	defer tape.Close()
	var out, dx [][]float32
	at := 0
	for _, n := range per {
		c := nn.NewCtx(tape, dev)
		c.Keep = true
		var segs []backend.Seg
		var x, hint, dy []float32
		rows := 0
		for i := at; i < at+n; i++ {
			st, err := l.NewState()
			must(err)
			defer st.Release()
			seg := backend.Seg{Row: rows, Rows: len(z.dy[i]) / z.c.Hidden}
			must(st.Begin(&seg, seg.Rows))
			segs, rows = append(segs, seg), rows+seg.Rows
			h := z.texts[i].Hint
			if h == nil {
				h = z.texts[i].Hidden
			}
			x, hint, dy = append(x, z.texts[i].Hidden...), append(hint, h...), append(dy, z.dy[i]...)
		}
		at += n
		c.Plan = tape.Plan(segs)
		xt, ht, y := put(c, x, rows, z.c.Hidden), put(c, hint, rows, z.c.Hidden), c.Tmp(rows, z.c.Hidden)
		tr.mixer.MixHint(c, y, xt, ht)
		tape.Seed(y, put(c, dy, rows, z.c.Hidden))
		must(tape.Backward())
		for _, v := range []struct {
			of tensor.Tensor
			to *[][]float32
		}{{y, &out}, {tape.Grad(xt), &dx}, {tape.Grad(ht), &dx}} {
			w := make([]float32, rows*z.c.Hidden)
			s.Read(tensor.AsBytes(w), v.of)
			must(s.Sync())
			*v.to = append(*v.to, w)
		}
		c.Close()
	}
	must(tr.params.Finish())
	var all [][]float32
	for i, l := range [][][]float32{out, dx} { // rows in the order of the batch
		for k := range i + 1 {
			var v []float32
			for n := k; n < len(l); n += i + 1 {
				v = append(v, l[n]...)
			}
			all = append(all, v)
		}
	}
	for p := range tr.params.All() {
		v := make([]float32, p.Grad.Len())
		s.Read(tensor.AsBytes(v), p.Grad)
		all = append(all, v)
	}
	must(s.Sync())
	return all
}

// The gradients of a batch do not depend on how it is cut into passes, on threads
// or kernels, and a pass that learns has the bits of one that does not.
func TestGradientBits(t *testing.T) {
	trials := 16
	if testing.Short() {
		trials = 2
	}
	var devs []backend.Device
	for _, impl := range cpu.Impls() {
		for _, threads := range []int{1, 3} {
			d, err := cpu.New(cpu.Config{Threads: threads, Impl: impl})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			devs = append(devs, d)
		}
	}
	for seed := range uint64(trials) {
		r := rand.New(rand.NewPCG(seed, 74))
		z := newCourse(t, r)
		n := len(z.texts)
		want := z.run(t, ref.New(), []int{n})
		var plain []float32
		l, err := New(devs[0], z.c, z.pr, z.p)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range z.texts {
			plain = append(plain, forward(t, l, b.Hidden, b.Hint)...)
		}
		l.Close()
		sameBits(t, fmt.Sprintf("seed %d: the outputs of a pass that learns", seed), want[0], plain)
		for _, d := range devs {
			var per []int
			for left := n; left > 0; {
				k := 1 + r.IntN(left)
				per, left = append(per, k), left-k
			}
			for i, v := range z.run(t, d, per) {
				sameBits(t, fmt.Sprintf("seed %d (%+v): part %d on %s in passes of %v", seed, z.c, i, d.Name(), per), v, want[i])
			}
			if t.Failed() {
				return
			}
		}
	}
}
