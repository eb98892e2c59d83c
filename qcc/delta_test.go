package qcc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/nn"
)

// deltaSmall is a layer with a gated-delta memory: two key heads, each with two
// query heads.
func deltaSmall() Config {
	return Config{Memory: MemoryDelta, Hidden: 12, Heads: 4, KV: 2, Dim: 3, Window: 4, Sinks: 1, MaxPosition: 64, AddressRank: 2, GateBias: 1}
}

// randomDelta draws a configuration with a gated-delta memory.
func randomDelta(r *rand.Rand) Config {
	pick := func(l ...int) int { return l[r.IntN(len(l))] }
	kv := pick(1, 2, 3)
	c := Config{Memory: MemoryDelta, KV: kv, Heads: kv * pick(1, 1, 2), Dim: pick(2, 3, 5, 8, 17), Hidden: pick(4, 7, 16),
		Window: pick(1, 2, 5, 70), MaxPosition: pick(1, 64, 4096), AddressRank: pick(0, 1, 3), PositionInvariant: r.IntN(2) == 0, NormGating: r.IntN(4) == 0}
	if r.IntN(3) == 0 {
		c.Sinks = r.IntN(c.Window + 1)
	}
	if r.IntN(2) == 0 {
		c.RoPE = &RoPE{Theta: 10000, Dim: c.Dim &^ 1}
	}
	if r.IntN(4) == 0 {
		c.Remote = ptr(0.25)
	}
	return c
}

// A gated-delta memory obeys the laws of archives.
func TestDeltaLaws(t *testing.T) {
	fast, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Close()
	for seed := range 30 {
		r := rand.New(rand.NewPCG(uint64(seed), 43))
		c := randomDelta(r)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("%+v", c)
				}
			}()
			lawsOf(t, r, c, fast)
		})
		if !ok {
			break
		}
	}
}

// delta64 is a layer with a gated-delta memory in float64: parameters and
// projections by name.
type delta64 struct {
	c Config
	p map[string][]float64
}

func newDelta64(c Config, lists ...[]Named) *delta64 {
	l := &delta64{c, map[string][]float64{}}
	for _, list := range lists {
		for _, f := range list {
			v := make([]float64, len(*f.Values))
			for i, x := range *f.Values {
				v[i] = float64(x)
			}
			l.p[f.Name] = v
		}
	}
	return l
}

// product is w·x, w [out, in].
func product(w, x []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for i := range y {
		for j, v := range x {
			y[i] += w[i*len(x)+j] * v
		}
	}
	return y
}

// address is head h of x, moved by a map and of length 1.
func (l *delta64) address(x []float64, h, at int, name string) []float64 {
	d, n := l.c.Dim, l.c.AddressRank
	y := slices.Clone(x[h*d : (h+1)*d])
	v, u := l.p[name+"_v"], l.p[name+"_u"]
	for r := range n {
		z := 0.0
		for i := range d {
			z += x[h*d+i] * v[(at*d+i)*n+r]
		}
		for i := range d {
			y[i] += z * u[(at*n+r)*d+i]
		}
	}
	sum := 0.0
	for _, v := range y {
		sum += v * v
	}
	for i := range y {
		y[i] /= math.Sqrt(sum + 1e-6)
	}
	return y
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// forward are the outputs of a whole text.
func (l *delta64) forward(x []float64) (out []float64) {
	c, p := l.c, l.p
	d, group := c.Dim, c.Heads/c.KV
	memory := make([][]float64, c.Heads)
	for h := range memory {
		memory[h] = make([]float64, d*d)
	}
	var ks, vs [][]float64
	for t := range len(x) / c.Hidden {
		row := x[t*c.Hidden : (t+1)*c.Hidden]
		q, k, v := product(p["q"], row), product(p["k"], row), product(p["v"], row)
		for i, b := range p["bk"] {
			k[i] += b
		}
		ks, vs = append(ks, k), append(vs, v)
		gate, beta, decay := product(p["gate.weight"], row), product(p["beta.weight"], row), product(p["decay.weight"], row)
		var heads []float64
		for h := range c.Heads {
			kv := h / group
			local, total := make([]float64, d), 0.0
			for j := range ks {
				if j <= t-c.Window && j >= c.Sinks {
					continue
				}
				s := 0.0
				for i := range d {
					s += q[h*d+i] * ks[j][kv*d+i] / math.Sqrt(float64(d))
				}
				total += math.Exp(s)
				for i := range d {
					local[i] += math.Exp(s) * vs[j][kv*d+i]
				}
			}
			s, kx, qx := memory[h], l.address(k, kv, kv, "write"), l.address(q, h, h, "read")
			keep, write := logistic(-decay[h]-p["decay.bias"][h]), logistic(beta[h]+p["beta.bias"][h])
			read := make([]float64, d)
			for j := range d {
				held := 0.0
				for i := range d {
					s[i*d+j] *= keep
					held += s[i*d+j] * kx[i]
				}
				for i := range d {
					s[i*d+j] += kx[i] * write * (v[kv*d+j] - held)
					read[j] += s[i*d+j] * qx[i]
				}
			}
			g := 1.0
			if t >= c.From() {
				g = logistic(gate[h] + p["gate.bias"][h])
			}
			for i := range d {
				heads = append(heads, g*local[i]/total+(1-g)*read[i])
			}
		}
		out = append(out, product(p["o"], heads)...)
	}
	return out
}

// The layer is that of the formula, and its gradients are the slopes of that.
func TestDeltaMeaning(t *testing.T) {
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 44))
		c := deltaSmall()
		pr, p := randomLayer(t, r, c)
		l, err := New(ref.New(), c, pr, p)
		if err != nil {
			t.Fatal(err)
		}
		const rows = 11
		x, dy := noise(r, rows*c.Hidden), noise(r, rows*c.Hidden)
		wide := newDelta64(c, p.Named(c), pr.named(c), []Named{{"x", &x, nil}})
		// float32 of sums of some ten terms of order 1
		near(t, fmt.Sprintf("seed %d: outputs", seed), forward(t, l, x, nil), wide.forward(wide.p["x"]), 1e-5)

		d, dx := backward(t, l, x, dy)
		loss := func() float64 {
			s := 0.0
			for i, y := range wide.forward(wide.p["x"]) {
				s += y * float64(dy[i])
			}
			return s
		}
		for _, f := range append(d.Named(c), Named{"x", &dx, nil}) {
			slopes := make([]float64, len(*f.Values))
			for i := range slopes {
				const h = 0x1p-13
				v := &wide.p[f.Name][i]
				was := *v
				*v = was + h
				up := loss()
				*v = was - h
				slopes[i] = (up - loss()) / (2 * h)
				*v = was
			}
			near(t, fmt.Sprintf("seed %d: gradient of %s", seed, f.Name), *f.Values, slopes, 2e-4)
			if !slices.ContainsFunc(slopes, func(x float64) bool { return x != 0 }) {
				t.Errorf("seed %d: %s has no slope anywhere", seed, f.Name)
			}
		}
		l.Close()
	}
}

// A key that comes back finds its value, however long ago it was.
func TestDeltaRecalls(t *testing.T) {
	c := Config{Memory: MemoryDelta, Hidden: 8, Heads: 1, Dim: 8, Window: 2, MaxPosition: 1 << 20, Remote: ptr(1.0)}
	p, err := NewParams(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	fill(p.BetaBias, 20)   // what is written is written wholly,
	fill(p.DecayBias, -40) // and stays
	unit := func(shift int) []float32 {
		m := make([]float32, 64)
		for i := range 8 {
			m[i*8+(i+shift)%8] = 1
		}
		return m
	}
	l, err := New(ref.New(), c, &Projections{Q: unit(0), K: unit(0), V: unit(3), O: unit(0)}, p)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	x := make([]float32, 9*8)
	for i := range 8 {
		x[i*8+i] = 1
	}
	x[8*8] = 1
	y := forward(t, l, x, nil)
	want := make([]float64, 8)
	want[5] = 1 // the value of component 0: V moves components down by three
	near(t, "what came with the first row", y[8*8:], want, 1e-5)
}

// A retrofit with a gated-delta memory: files of a kind of their own, bytes to the
// letter, exact prompts, and an error on models that have recurrent layers.
func TestDeltaPatch(t *testing.T) {
	ctx := context.Background()
	d, pool, runner := model(t, "qwen2-fp32")
	c, err := DeltaConfig(d)
	if err != nil {
		t.Fatal(err)
	}
	c.Window = 20
	a, err := NewAdapter(d, Retrofit{Config: c, KV: KVRepeat, ExactPrefill: true}, 5)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := a.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	b, err := ReadAdapter(bytes.NewReader(file.Bytes()))
	if err != nil || b.Config.Digest() != a.Config.Digest() || b.Manifest.Format != deltaFormat {
		t.Fatalf("read back: %+v, %v", b, err)
	}
	for what, change := range map[string]func(meta map[string]string){
		"called an archive's": func(meta map[string]string) {
			meta["format"] = adapterFormat
			meta["qcc"] = strings.Replace(meta["qcc"], deltaFormat, adapterFormat, 1)
		},
		"another kind in the manifest": func(meta map[string]string) {
			meta["qcc"] = strings.Replace(meta["qcc"], deltaFormat, adapterFormat, 1)
		},
	} {
		bad := edited(t, file.Bytes(), func(list []checkpoint.Entry, meta map[string]string) []checkpoint.Entry {
			change(meta)
			return list
		})
		if _, err := ReadAdapter(bytes.NewReader(bad)); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		}
	}
	without := edited(t, file.Bytes(), func(list []checkpoint.Entry, _ map[string]string) []checkpoint.Entry {
		return slices.DeleteFunc(list, func(e checkpoint.Entry) bool { return strings.HasSuffix(e.Name, "beta.bias") })
	})
	if _, err := ReadAdapter(bytes.NewReader(without)); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("without a bias: %v, want ErrCorrupt", err)
	}

	b.ExactPrefill = true
	p, err := Patch(pool.Device(), d, b)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	before := pool.Bytes()
	st, err := p.Decoder.NewState(pool)
	if err != nil {
		t.Fatal(err)
	}
	cx := nn.NewCtx(mustStream(t, pool.Device()), pool.Device())
	defer cx.Stream.Close()
	defer cx.Close()
	rows := tokens(4, 300, d.Vocab)
	for at := range 3 { // from the third pass on the zeros are given back
		if err := p.Decoder.Forward(ctx, cx, []nn.Seq{{State: st, In: rows[100*at : 100*(at+1)]}}); err != nil {
			t.Fatal(err)
		}
	}
	window, memory := p.Config.Bytes(len(p.Layers), 300)
	acc := st.(*State).Account()
	if want := 2 * 4 * int64(len(p.Layers)*c.Heads*c.Dim*c.Dim); memory != want || acc.Parts["memory"] != want/2 {
		t.Errorf("a memory of %d bytes, the account says %d, want %d", memory, acc.Parts["memory"], want)
	}
	if acc.Window != window || acc.Archive < memory || st.Bytes() != acc.Window+acc.Archive || pool.Bytes()-before != st.Bytes() {
		t.Errorf("%d + %d bytes by the configuration, the account has %d + %d, the pool %d", window, memory, acc.Window, acc.Archive, pool.Bytes()-before)
	}
	st.Release()

	prompt, more := tokens(3, 70, d.Vocab), tokens(4, 9, d.Vocab)
	want := appendAll(t, runner(d), prompt)
	var next [][]float32
	for _, chunk := range []int{512, 1} {
		r := runner(p.Decoder)
		if err := p.Prefill(ctx, pool, r, prompt, nn.RunnerConfig{ChunkRows: chunk}); err != nil {
			t.Fatal(err)
		}
		sameBits(t, "an exact prompt", r.Logits(), want)
		next = append(next, appendAll(t, r, more, chunk))
	}
	sameBits(t, "after an exact prompt", next[1], next[0])

	hybrid, _, _ := model(t, "qwen35-8l-fp32")
	c, err = DeltaConfig(hybrid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewAdapter(hybrid, Retrofit{Config: c, KV: KVRepeat}, 1); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "recurrent layers") {
		t.Errorf("a model with recurrent layers: %v", err)
	}
	if _, err := NewAdapter(d, Retrofit{Config: p.Config, KV: KVShare}, 1); !errors.Is(err, ErrConfig) {
		t.Errorf("shared: %v", err)
	}
	if _, err := NewRegistry(ref.New(), deltaSmall(), nil); !errors.Is(err, ErrConfig) {
		t.Errorf("a registry: %v", err)
	}
}

// A map of addresses moves what the archive is read with, and nothing else.
func TestAddressMap(t *testing.T) {
	c := RegistryConfig(2, 4)
	c.Window, c.Codes, c.PositionInvariant = 3, 5, true
	p, err := NewParams(c, 2)
	if err != nil {
		t.Fatal(err)
	}
	moved := c
	moved.AddressRank = 4
	q := *p
	q.ReadV, q.ReadU = make([]float32, 2*4*4), make([]float32, 2*4*4)
	for h := range 2 { // the identity: twice the query
		for i := range 4 {
			q.ReadV[h*16+5*i], q.ReadU[h*16+5*i] = 1, 1
		}
	}
	r := rand.New(rand.NewPCG(1, 45))
	in := Projected{Q: noise(r, 20*8), K: noise(r, 20*8), V: noise(r, 20*8), RawQ: noise(r, 20*8), RawK: noise(r, 20*8)}
	run := func(c Config, p *Params, in Projected) []float32 {
		g, err := NewRegistry(ref.New(), c, p)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		y, err := g.Forward(context.Background(), "one", in)
		if err != nil {
			t.Fatal(err)
		}
		g.Drop("one")
		return y
	}
	got := run(moved, &q, in)
	twice := in
	twice.RawQ = slices.Clone(in.RawQ)
	for i := range twice.RawQ {
		twice.RawQ[i] *= 2
	}
	sameBits(t, "a map by two", got, run(c, p, twice))
	if slicesEqual(got, run(c, p, in)) {
		t.Error("the map changes nothing")
	}
}
