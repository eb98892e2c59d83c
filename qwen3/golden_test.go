package qwen3_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
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
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor"
)

const goldens = "../testdata/models"

// devices are the implementations that the model goldens run on.
func devices(t *testing.T) []backend.Device {
	c, err := cpu.New(cpu.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return []backend.Device{ref.New(), c}
}

func load(t testing.TB, dev backend.Device, path string) *nn.Decoder {
	t.Helper()
	set, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	d, err := qwen3.Load(context.Background(), dev, cfg, set, qwen3.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func runner(t testing.TB, dev backend.Device, d *nn.Decoder, cfg nn.RunnerConfig) *nn.Runner {
	t.Helper()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	p, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.NewRunner(s, p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return r
}

func rows(ids []int64) []state.Row {
	r := make([]state.Row, len(ids))
	for i, id := range ids {
		r[i].Token = int32(id)
	}
	return r
}

// logitBits are the hashes that an independent implementation of the contract
// found for every checkpoint and prompt.
func logitBits(t *testing.T) map[string]string {
	f, err := os.Open(filepath.Join(goldens, "logits-bits.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := map[string]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if f := strings.Fields(sc.Text()); len(f) >= 4 {
			m[f[0]+" "+f[1]] = f[3]
		}
	}
	return m
}

func TestCheckpointGoldens(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(goldens, "checkpoints", "*"))
	if err != nil || len(dirs) != 22 {
		t.Fatalf("found %d checkpoints, want 22 (%v)", len(dirs), err)
	}
	bits := logitBits(t)
	for _, dir := range dirs {
		for _, dev := range devices(t) {
			t.Run(filepath.Base(dir)+"/"+dev.Name(), func(t *testing.T) {
				t.Parallel()
				exp, err := checkpoint.Open(filepath.Join(dir, "expected.safetensors"))
				if err != nil {
					t.Fatal(err)
				}
				defer exp.Close()
				d := load(t, dev, dir)
				defer d.Close()
				for p := range 3 {
					if testing.Short() && (p == 2 || p == 1 && dev.Name() == "ref") {
						continue // the last prompt, and the second on the slowest device
					}
					checkPrompt(t, dev, d, exp, filepath.Base(dir), fmt.Sprintf("p%d", p), bits)
				}
			})
		}
	}
}

func TestGGUFGoldens(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(goldens, "gguf", "*.gguf"))
	if err != nil || len(files) != 6 {
		t.Fatalf("found %d files, want 6 (%v)", len(files), err)
	}
	for _, file := range files {
		for _, dev := range devices(t) {
			t.Run(filepath.Base(file)+"/"+dev.Name(), func(t *testing.T) {
				t.Parallel()
				exp, err := checkpoint.Open(strings.TrimSuffix(file, ".gguf") + ".expected.safetensors")
				if err != nil {
					t.Fatal(err)
				}
				defer exp.Close()
				d := load(t, dev, file)
				defer d.Close()
				for p := range 2 {
					if testing.Short() && p == 1 && dev.Name() == "ref" {
						continue
					}
					checkPrompt(t, dev, d, exp, "", fmt.Sprintf("p%d", p), nil)
				}
			})
		}
	}
}

// expected is one file of expected values.
type expected struct {
	*checkpoint.Set
	t *testing.T
}

func (e expected) ints(name string) []int64 {
	x, err := e.Tensor(name)
	if err != nil {
		e.t.Fatal(err)
	}
	v, err := x.Int64s()
	if err != nil {
		e.t.Fatal(err)
	}
	return v
}

func (e expected) floats(name string) []float64 {
	x, err := e.Tensor(name)
	if err != nil {
		e.t.Fatal(err)
	}
	v, err := x.Float64s()
	if err != nil {
		e.t.Fatal(err)
	}
	return v
}

func (e expected) has(name string) bool { _, ok := e.Info(name); return ok }

// near reports the largest difference; the tolerances are those that the goldens'
// maker measured for float32 against float64, with room.
func near(t *testing.T, what string, got []float32, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	worst, at := 0.0, -1
	for i := range got {
		if d := math.Abs(float64(got[i]) - want[i]); d > worst || d != d {
			worst, at = d, i
		}
	}
	if !(worst <= tol) {
		t.Errorf("%s: value %d is %v, want %v within %g", what, at, got[at], want[at], tol)
	}
}

const tolerance = 2e-4 // logits, likelihoods, margins, keys, values, states; hidden rows 5e-4

func checkPrompt(t *testing.T, dev backend.Device, d *nn.Decoder, set *checkpoint.Set, model, p string, bits map[string]string) {
	t.Helper()
	e := expected{set, t}
	ids := e.ints(p + ".ids")
	r := runner(t, dev, d, nn.RunnerConfig{ChunkRows: 64})
	var hidden [][]float32
	if e.has(p + ".hidden.0") {
		r.Ctx().Trace = func(c *nn.Ctx, i int, x tensor.Tensor) {
			v := make([]float32, x.Len())
			c.Stream.Read(bytesOf(v), x)
			hidden = append(hidden, v)
		}
	}
	hash := sha256.New()
	all := make([][]float32, len(ids))
	err := r.AppendAll(context.Background(), rows(ids), func(i int, l []float32) {
		all[i] = append([]float32(nil), l...)
		binary.Write(hash, binary.LittleEndian, l)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Ctx().Trace = nil
	var got []float32
	for _, i := range e.ints(p + ".positions") {
		got = append(got, all[i]...)
	}
	near(t, p+".logits", got, e.floats(p+".logits64"), tolerance)
	if want, ok := bits[model+" "+p]; ok {
		if sum := hex.EncodeToString(hash.Sum(nil)); sum != want {
			t.Errorf("%s: the logits' bits have SHA-256 %s, an independent implementation of the contract has %s", p, sum, want)
		}
	}
	if e.has(p + ".nll") {
		nll := make([]float32, len(ids)-1)
		for i := range nll {
			nll[i] = float32(-logProb(all[i], ids[i+1]))
		}
		near(t, p+".nll", nll, e.floats(p+".nll"), tolerance)
	}
	if hidden != nil {
		hidden = append(hidden, nil)
		for i, h := range hidden[:len(hidden)-1] {
			near(t, fmt.Sprintf("%s.hidden.%d", p, i), h, e.floats(fmt.Sprintf("%s.hidden.%d", p, i)), 5e-4)
		}
	}
	checkState(t, r, e, p, len(ids))

	greedy, margins := e.ints(p+".greedy"), e.floats(p+".greedy_margin")
	for i, want := range greedy {
		a, b := best2(r.Logits())
		if int64(a) != want {
			t.Fatalf("%s: greedy token %d is %d, want %d", p, i, a, want)
		}
		near(t, p+".greedy_margin", []float32{r.Logits()[a] - r.Logits()[b]}, margins[i:i+1], 2*tolerance)
		if err := r.Step(context.Background(), int32(a)); err != nil {
			t.Fatal(err)
		}
	}
}

// checkState compares what the sequence remembers after the prompt.
func checkState(t *testing.T, r *nn.Runner, e expected, p string, n int) {
	t.Helper()
	snap, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	attn, delta := 0, 0
	err = snap.Save(func(name string, x tensor.Tensor) error {
		for layer := 0; layer < 64; layer++ {
			k := fmt.Sprintf("%s.attn.%d.k", p, layer)
			if name == "kv.0" && e.has(k) {
				near(t, k, slots(x, 2*attn, n), e.floats(k), tolerance)
				v := fmt.Sprintf("%s.attn.%d.v", p, layer)
				near(t, v, slots(x, 2*attn+1, n), e.floats(v), tolerance)
				attn++
			}
			s := fmt.Sprintf("%s.gdn.%d.S", p, layer)
			if name == "delta" && e.has(s) {
				v, _ := x.Index(delta).F32()
				near(t, s, v, e.floats(s), tolerance)
				delta++
			}
			c := fmt.Sprintf("%s.gdn.%d.conv", p, layer)
			if name == "conv" && e.has(c) {
				v, _ := x.Index(delta).F32()
				near(t, c, v, e.floats(c), tolerance)
				delta++
			}
		}
		attn, delta = 0, 0
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// slots turns [heads, n, d] of a saved page into [n, heads, d].
func slots(page tensor.Tensor, i, n int) []float32 {
	x := page.Index(i)
	var out []float32
	for j := range n {
		for h := range x.Dim(0) {
			out = append(out, x.Index(h).Row(j)...)
		}
	}
	return out
}

func logProb(logits []float32, id int64) float64 {
	m := math.Inf(-1)
	for _, v := range logits {
		m = math.Max(m, float64(v))
	}
	s := 0.0
	for _, v := range logits {
		s += math.Exp(float64(v) - m)
	}
	return float64(logits[id]) - m - math.Log(s)
}

func best2(v []float32) (a, b int) {
	a, b = 0, -1
	for i := 1; i < len(v); i++ {
		switch {
		case v[i] > v[a]:
			a, b = i, a
		case b < 0 || v[i] > v[b]:
			b = i
		}
	}
	return a, b
}
