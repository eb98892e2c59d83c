package lm

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/grad"
	"samebit/qcc"
	"samebit/tensor"
)

// kinds are small models that train.
func kinds() map[string]Config {
	small := func(set func(*Config)) Config {
		c := DefaultConfig(11)
		c.Layer = qcc.DefaultConfig(12, 2)
		c.Layer.Window, c.Layer.Codes, c.Layer.Rank, c.Layers, c.MaxPosition = 4, 3, 2, 2, 20
		set(&c)
		return c
	}
	return map[string]Config{
		"archive": small(func(*Config) {}),
		"learned": small(func(c *Config) { c.Position = Learned }),
		"lexical": small(func(c *Config) {
			c.Layer.Lexical, c.Layer.ActiveQuery, c.Position, c.Layer.RoPE = true, true, None, &qcc.RoPE{Theta: 1e6}
		}),
		"full": small(func(c *Config) { c.Layer.NoArchive, c.Layer.Window = true, c.MaxPosition }),
	}
}

// texts are seeded ones of several lengths, some of whose rows count.
func texts(c Config, seed uint64, lengths ...int) []Text {
	r := rand.New(rand.NewPCG(seed, 1))
	var l []Text
	for _, n := range lengths {
		x := Text{make([]int32, n), make([]int32, n)}
		for i := range n {
			x.IDs[i], x.Targets[i] = int32(r.IntN(c.Vocab)), int32(r.IntN(c.Vocab+2)-2)
		}
		x.Targets[n-1] = 1
		l = append(l, x)
	}
	return l
}

func host(t *testing.T, threads int) backend.Device {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

func trainer(t *testing.T, dev backend.Device, c Config, p *Params) *Trainer {
	t.Helper()
	x, err := NewTrainer(dev, c, p, grad.AdamWConfig{Decay: 0.01, Clip: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func first(t *testing.T, c Config, seed uint64) *Params {
	t.Helper()
	p, err := NewParams(c, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Along its gradient, and along any line, the loss changes as the gradient says, for
// every parameter by itself. The loss is a float32, so a tenth of it must not be asked
// for: the law of every op in float64 is that of the suite of devices.
func TestGradient(t *testing.T) {
	ctx := context.Background()
	dev := host(t, 2)
	for name, c := range kinds() {
		t.Run(name, func(t *testing.T) {
			p := first(t, c, 3)
			for i := range p.Layers { // zeros hide what follows them
				for _, f := range p.Layers[i].Params.Named(c.Layer) {
					qcc.Normal(*f.Values, uint64(i), f.Name, 0.3)
				}
			}
			batch := texts(c, 5, 20, 13, 17)
			x := trainer(t, dev, c, p)
			if _, err := x.Backward(ctx, batch); err != nil {
				t.Fatal(err)
			}
			if err := x.params.Finish(); err != nil {
				t.Fatal(err)
			}
			grads, value := map[string][]float32{}, map[string]tensor.Tensor{}
			for q := range x.params.All() {
				v := make([]float32, q.Grad.Len())
				x.stream.Read(tensor.AsBytes(v), q.Grad)
				grads[q.Name], value[q.Name] = v, q.Value
			}
			if err := x.stream.Sync(); err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(9, 9))
			for _, f := range p.fields(c) {
				g := grads[f.Name]
				norm := 0.0
				for _, v := range g {
					norm += float64(v) * float64(v)
				}
				if norm = math.Sqrt(norm); norm < 1e-5 {
					if c.Layer.NoArchive && strings.HasSuffix(f.Name, ".bk") { // which moves all scores of a row alike
						continue
					}
					t.Errorf("%s has a gradient of norm %g", f.Name, norm)
					continue
				}
				for _, line := range []string{"its gradient", "another line"} {
					way := make([]float64, len(g))
					slope := 0.0
					for i, v := range g {
						way[i] = float64(v) / norm
						if line == "another line" {
							way[i] += 2 * r.NormFloat64() / math.Sqrt(float64(len(g)))
						}
						slope += way[i] * float64(v)
					}
					step := 4e-3 / norm
					if step = min(step, 0.1); line == "another line" {
						step /= 2
					}
					at := func(by float64) float64 {
						old := *f.Values
						moved := make([]float32, len(old))
						for i := range old {
							moved[i] = old[i] + float32(by*way[i])
						}
						x.stream.Write(value[f.Name], tensor.AsBytes(moved))
						err := x.params.Refresh()
						s, e := x.Score(ctx, batch)
						x.stream.Write(value[f.Name], tensor.AsBytes(old))
						if err = errors.Join(err, e, x.params.Refresh()); err != nil {
							t.Fatal(err)
						}
						return float64(s.Loss)
					}
					got := (at(step) - at(-step)) / (2 * step)
					if e := math.Abs(got - slope); e > 0.02*norm+3e-7/step {
						t.Errorf("%s along %s: the loss rises by %g, the gradient says %g (norm %g)", f.Name, line, got, slope, norm)
					}
				}
			}
		})
	}
}

// The same batches give the same weights on any device, at any number of threads and in
// passes of any size.
func TestTrainingBits(t *testing.T) {
	ctx := context.Background()
	for name, c := range kinds() {
		t.Run(name, func(t *testing.T) {
			var want string
			var score Score
			for micro, dev := range []backend.Device{ref.New(), host(t, 1), host(t, 3)} {
				x := trainer(t, dev, c, first(t, c, 3))
				x.micro = []int{microRows, 1, 30}[micro]
				var s Score
				for i := range 3 {
					var err error
					if s, err = x.Backward(ctx, texts(c, uint64(i), 20, 7, 19)); err != nil {
						t.Fatal(err)
					}
					again, err := x.Score(ctx, texts(c, uint64(i), 20, 7, 19))
					if err != nil || again != s {
						t.Fatalf("%s: scores %+v and, without learning, %+v, %v", dev.Name(), s, again, err)
					}
					if err := x.Step(0.01); err != nil {
						t.Fatal(err)
					}
				}
				p, err := x.Params()
				if err != nil {
					t.Fatal(err)
				}
				hash, err := p.Hash(c)
				if err != nil {
					t.Fatal(err)
				}
				if want == "" {
					want, score = hash, s
				}
				if hash != want || s != score {
					t.Errorf("%s: weights %s, last score %+v; ref has %s, %+v", dev.Name(), hash, s, want, score)
				}
				// The model that is trained is the model of these parameters.
				m, err := New(dev, c, p)
				if err != nil {
					t.Fatal(err)
				}
				ids := texts(c, 8, 15)[0].IDs
				a, b := make([]float32, 15*c.Vocab), make([]float32, 15*c.Vocab)
				if err := errors.Join(m.Forward(ctx, a, ids), x.Model().Forward(ctx, b, ids), m.Close()); err != nil {
					t.Fatal(err)
				}
				same(t, dev.Name()+" trained", b, a)
			}
		})
	}
}

// A small model learns what follows what.
func TestLearns(t *testing.T) {
	c := kinds()["archive"]
	x := trainer(t, host(t, 2), c, first(t, c, 1))
	text := Text{}
	for i := range 20 {
		text.IDs, text.Targets = append(text.IDs, int32(i*i%11)), append(text.Targets, int32((i+1)*(i+1)%11))
	}
	var s Score
	for range 60 {
		var err error
		if s, err = x.Backward(context.Background(), []Text{text}); err == nil {
			err = x.Step(0.01)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if s.Rows != 20 || s.Accuracy() != 1 || !(s.Loss < 0.1) {
		t.Errorf("after 60 steps %+v", s)
	}
}

func TestTrainerErrors(t *testing.T) {
	dev, c := ref.New(), kinds()["archive"]
	p := first(t, c, 1)
	for what, set := range map[string]func(*qcc.Config){
		"lazy decay":    func(c *qcc.Config) { c.LazyDecay, c.ActiveCodes = true, 2 },
		"sparse reads":  func(c *qcc.Config) { c.ActiveCodes = 2 },
		"an exact tier": func(c *qcc.Config) { c.Exact = qcc.DefaultExact() },
	} {
		bad := c
		set(&bad.Layer)
		if _, err := NewTrainer(dev, bad, p, grad.AdamWConfig{}); !errors.Is(err, qcc.ErrUntrainable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	x := trainer(t, dev, c, p)
	ctx, cancel := context.WithCancel(context.Background())
	for what, batch := range map[string][]Text{
		"no texts": nil, "no tokens": {{}}, "no targets": {{IDs: []int32{1}}}, "nothing counts": {{[]int32{1}, []int32{-1}}},
		"too long": {{make([]int32, 21), make([]int32, 21)}},
	} {
		if _, err := x.Backward(ctx, batch); !errors.Is(err, qcc.ErrShape) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := x.Backward(ctx, []Text{{[]int32{99}, []int32{1}}}); err == nil {
		t.Error("a token outside the vocabulary was taken")
	}
	cancel()
	if _, err := x.Backward(ctx, texts(c, 1, 9)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := x.Backward(context.Background(), texts(c, 1, 9)); err != nil {
		t.Errorf("after errors: %v", err)
	}
}

// A file gives back what was written; damage is noticed.
func TestFile(t *testing.T) {
	for name, c := range kinds() {
		p := first(t, c, 4)
		var b bytes.Buffer
		if err := Write(&b, c, p, []byte(`{"steps": 3}`)); err != nil {
			t.Fatal(err)
		}
		got, q, about, err := Read(bytes.NewReader(b.Bytes()))
		if err != nil || !reflect.DeepEqual(got, c) || string(about) != `{"steps": 3}` {
			t.Fatalf("%s: %+v, %s, %v, want %+v", name, got, about, err, c)
		}
		want, _ := p.Hash(c)
		if h, err := q.Hash(got); err != nil || h != want || got.Layer.Digest() != c.Layer.Digest() {
			t.Errorf("%s: %s, %v, want %s", name, h, err, want)
		}
		p.Layers[0].B1 = p.Layers[0].B1[1:]
		if err := Write(&b, c, p, nil); !errors.Is(err, qcc.ErrShape) {
			t.Errorf("%s: a short bias: %v", name, err)
		}
		if _, _, _, err := Read(bytes.NewReader(b.Bytes()[:b.Len()/2])); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("%s: half a file: %v", name, err)
		}
	}
	var b bytes.Buffer
	if err := checkpoint.Write(&b, nil, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := Read(&b); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("a foreign file: %v", err)
	}
}
