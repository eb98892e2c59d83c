package lm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/grad"
	"samebit/grad/lm"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// model is a tiny model with random weights and its trainer.
type model struct {
	testing.TB
	dev backend.Device
	dec *nn.Decoder
	p   *grad.Params
	opt *grad.AdamW
	t   *lm.Trainer
}

var dense = map[string]any{
	"model_type": "qwen3", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
	"num_key_value_heads": 2, "head_dim": 10, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 512, "rope_theta": 10000.0,
}

var hybrid = map[string]any{
	"model_type": "qwen3_5_text", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
	"num_key_value_heads": 2, "head_dim": 12, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "max_position_embeddings": 512,
	"rope_parameters":        map[string]any{"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
	"linear_num_key_heads":   2,
	"linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6, "linear_conv_kernel_dim": 4,
	"layer_types": []string{"linear_attention", "full_attention", "linear_attention"}, "attn_output_gate": true,
}

// open makes the model anew: the same weights every time.
func open(t testing.TB, dev backend.Device, config map[string]any, cfg lm.Config) *model {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	raw, err := json.Marshal(config)
	must(err)
	must(os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o666))
	c, err := qwen3.ParseConfig(raw, nil)
	must(err)
	specs, err := c.Params(nil)
	must(err)
	r := tensortest.NewRand(7, "weights")
	values := map[string][]float32{}
	var entries []checkpoint.Entry
	for _, s := range specs {
		n := 1
		for _, d := range s.Shape {
			n *= d
		}
		v := r.F32(tensortest.Ordinary, n)
		for i := range v {
			v[i] *= 0.125
			switch {
			case len(s.Shape) == 1 && s.Stored == qwen3.AsIs:
				v[i]++
			case s.Stored == qwen3.Transposed || strings.Contains(s.Name, "in_proj_qkv"): // away from the zero of the norms, where everything bends
				v[i] *= 6
			}
		}
		values[s.Name] = v
		entries = append(entries, checkpoint.Entry{Name: s.Name, Type: checkpoint.F32, Shape: s.Shape, Data: tensor.AsBytes(v)})
	}
	var b bytes.Buffer
	must(checkpoint.Write(&b, entries, nil))
	must(os.WriteFile(filepath.Join(dir, "model.safetensors"), b.Bytes(), 0o666))
	set, err := checkpoint.Open(dir)
	must(err)
	defer set.Close()
	m := &model{TB: t, dev: dev}
	m.dec, err = qwen3.Load(context.Background(), dev, c, set, qwen3.LoadOptions{})
	must(err)
	s, err := dev.NewStream()
	must(err)
	m.p, err = grad.NewParams(s, dev)
	must(err)
	specs, err = c.Params(m.dec)
	must(err)
	for _, x := range specs {
		v := values[x.Name]
		switch {
		case x.Weight != nil:
			_, err = m.p.AddWeight(x.Name, x.Weight, v)
		case x.Stored == qwen3.Transposed:
			_, err = m.p.AddTensor(x.Name, x.Tensor, grad.Plain, transpose(v, x.Shape[0]))
		default:
			_, err = m.p.AddTensor(x.Name, x.Tensor, map[qwen3.Stored]grad.Form{qwen3.LessOne: grad.OnePlus, qwen3.Logarithm: grad.Exp}[x.Stored], v)
		}
		must(err)
	}
	m.opt, err = grad.NewAdamW(m.p, grad.AdamWConfig{Decay: 0.01, Clip: 1})
	must(err)
	m.t, err = lm.New(dev, m.dec, m.p, cfg)
	must(err)
	t.Cleanup(func() {
		must(m.t.Close())
		m.p.Close()
		m.dec.Close()
		must(s.Close())
	})
	return m
}

func transpose(v []float32, n int) []float32 {
	m, t := len(v)/n, make([]float32, len(v))
	for i := range n {
		for j := range m {
			t[j*n+i] = v[i*m+j]
		}
	}
	return t
}

// toy is a batch of texts that repeat a random start of three tokens.
func toy(seed, n, least, most int) []lm.Sequence {
	r := tensortest.NewRand(uint64(seed), "toy")
	var batch []lm.Sequence
	for range n {
		rows := r.Between(least, most)
		start := r.I32(3, 37)
		q := lm.Sequence{}
		for i := range rows {
			q.Tokens = append(q.Tokens, start[i%3])
			target := start[(i+1)%3]
			if i < 2 {
				target = -1
			}
			q.Targets = append(q.Targets, target)
		}
		batch = append(batch, q)
	}
	return batch
}

func (m *model) step(batch []lm.Sequence, rate float64) float32 {
	m.Helper()
	losses, err := m.t.Backward(context.Background(), batch)
	if err != nil {
		m.Fatal(err)
	}
	if _, err := m.opt.Step(rate); err != nil {
		m.Fatal(err)
	}
	return grad.Mean(losses)
}

// values are all trained values, by name.
func (m *model) values() map[string][]float32 {
	m.Helper()
	s, err := m.dev.NewStream()
	if err != nil {
		m.Fatal(err)
	}
	defer s.Close()
	all := map[string][]float32{}
	for name, x := range m.opt.Tensors() {
		v := make([]float32, x.Len())
		s.Read(tensor.AsBytes(v), x)
		if err := s.Sync(); err != nil {
			m.Fatal(err)
		}
		all[name] = v
	}
	return all
}

func same(t *testing.T, what string, want, got map[string][]float32) {
	t.Helper()
	for name, w := range want {
		if d := tensortest.DiffBits(w, got[name]); d != "" {
			t.Fatalf("%s: %s differs:\n%s", what, name, d)
		}
	}
}

func devices(t *testing.T) map[string]backend.Device {
	c, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return map[string]backend.Device{"ref": ref.New(), "cpu": c}
}

func models() map[string]map[string]any {
	return map[string]map[string]any{"dense": dense, "hybrid": hybrid}
}

// A model that is shown the same texts again and again learns them.
func TestLossFalls(t *testing.T) {
	for name, config := range models() {
		t.Run(name, func(t *testing.T) {
			m := open(t, devices(t)["cpu"], config, lm.Config{})
			var first, last float32
			for i := range 30 {
				last = m.step(toy(1, 4, 6, 12), 0.01)
				if i == 0 {
					first = last
				}
			}
			if !(first > 3 && last < 0.3*first) {
				t.Errorf("the loss falls from %v to %v only", first, last)
			}
		})
	}
}

// The gradient of the whole model against central differences of its loss, in a few
// values of every parameter. Losses are float32: with a step of 2⁻⁹ they err by about
// 2⁻²⁴·4·2⁹ = 1e-4 through rounding, and where the function bends more than h⁴ allows
// by some hundredths: this test is about the wiring, the ops have their own.
func TestGradientOfModel(t *testing.T) {
	for name, config := range models() {
		t.Run(name, func(t *testing.T) {
			m := open(t, devices(t)["cpu"], config, lm.Config{})
			batch := toy(3, 2, 5, 9)
			if _, err := m.t.Backward(context.Background(), batch); err != nil {
				t.Fatal(err)
			}
			s, err := m.dev.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			loss := func() float64 {
				if err := m.p.Refresh(); err != nil {
					t.Fatal(err)
				}
				l, err := m.t.Losses(context.Background(), batch)
				if err != nil {
					t.Fatal(err)
				}
				sum := 0.0
				for _, x := range l {
					sum += float64(x)
				}
				return sum / float64(len(l))
			}
			if err := m.p.Finish(); err != nil {
				t.Fatal(err)
			}
			for x := range m.p.All() {
				g, v := make([]float32, x.Value.Len()), make([]float32, x.Value.Len())
				s.Read(tensor.AsBytes(g), x.Grad)
				s.Read(tensor.AsBytes(v), x.Value)
				most, at := float32(0), 0
				for i, d := range g {
					if d < 0 {
						d = -d
					}
					if d > most {
						most, at = d, i
					}
				}
				for _, i := range []int{at, len(g) / 3} {
					const h = 0x1p-9
					old := v[i]
					var f [5]float64
					for k := range f {
						v[i] = old + float32(k-2)*h
						s.Write(x.Value, tensor.AsBytes(v))
						f[k] = loss()
					}
					v[i] = old
					s.Write(x.Value, tensor.AsBytes(v))
					want := (f[0] - f[4] + 8*(f[3]-f[1])) / (12 * h)
					if d := math.Abs(want - float64(g[i])); d > 3e-4+0.03*math.Abs(float64(most)) {
						t.Errorf("%s[%d]: gradient %v, central differences give %v", x.Name, i, g[i], want)
					}
				}
			}
		})
	}
}

// Neither the cut into micro-batches nor recomputing changes a bit of weights and
// moments, nor does the device.
func TestSplitsChangeNoBit(t *testing.T) {
	steps, batch := 3, func(i int) []lm.Sequence { return toy(i, 8, 3, 20) }
	if testing.Short() {
		steps, batch = 2, func(i int) []lm.Sequence { return toy(i, 4, 3, 12) }
	}
	for name, config := range models() {
		t.Run(name, func(t *testing.T) {
			var want map[string][]float32
			for kind, dev := range devices(t) {
				for _, cfg := range []lm.Config{{}, {MicroRows: 1}, {MicroRows: 40}, {MicroRows: 70, Checkpoint: true}, {Checkpoint: true}} {
					m := open(t, dev, config, cfg)
					for i := range steps {
						m.step(batch(i), 0.01)
					}
					if want == nil {
						want = m.values()
						continue
					}
					same(t, fmt.Sprintf("%s %+v", kind, cfg), want, m.values())
				}
			}
		})
	}
}
