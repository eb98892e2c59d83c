package lockstep_test

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cpu"
	"samebit/backend/lockstep"
	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor"
)

func openCPU(t testing.TB) *cpu.Device {
	t.Helper()
	c, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// some leaves short tests a third of cases: the processor is judged by its own.
func some(cases []backendtest.Case) []backendtest.Case {
	if !testing.Short() {
		return cases
	}
	var l []backendtest.Case
	for i := 0; i < len(cases); i += 3 {
		l = append(l, cases[i])
	}
	return l
}

// The suite runs on the pair as on any device, so every op is compared twice:
// here and by the pair itself.
func TestSuite(t *testing.T) {
	if !testing.Short() {
		backendtest.Run(t, func(t *testing.T) backend.Device { return lockstep.New(ref.New(), openCPU(t)) })
		return
	}
	dev := lockstep.New(ref.New(), openCPU(t))
	backendtest.RunCases(t, dev, some(backendtest.CasesOf(dev)))
	backendtest.Laws(t, dev, 0, 1)
}

// model decodes some tokens of a golden model on a device.
func model(t *testing.T, dev backend.Device, name string) ([]int32, error) {
	t.Helper()
	set, err := checkpoint.Open(filepath.Join("../../testdata/models/checkpoints", name))
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
	defer d.Close()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r, err := d.NewRunner(s, p, nn.RunnerConfig{ChunkRows: 24})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 70
	if testing.Short() {
		n = 35 // in two chunks still
	}
	rows := make([]state.Row, n)
	for i := range rows {
		rows[i].Token = int32(i*i*7+i) % 200
	}
	if err := r.Append(context.Background(), rows); err != nil {
		return nil, err
	}
	var out []int32
	for range 4 {
		best := 0
		for i, v := range r.Logits() {
			if v > r.Logits()[best] {
				best = i
			}
		}
		out = append(out, int32(best))
		if err := r.Step(context.Background(), int32(best)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func TestModels(t *testing.T) {
	for name, ops := range map[string][]string{
		"qwen3-tied-fp32":      {"Attention", "Embed", "Linear", "Linears", "NormRoPE", "PutKV", "RMSNorm", "SwiGLU"},
		"qwen35-fp32":          {"Attention", "Conv", "DeltaGates", "GatedDelta", "GatedRMSNorm", "L2Norm", "SigmoidMul"},
		"qwen3next-moe-bf16":   {"AddGated", "Experts", "Route"},
		"llama-mha-bias-bf16":  {"AddBias"},
		"qwen3-swa-bias-fp32":  {"Attention"},
		"qwen3-untied-bf16":    {"Linear"},
		"qwen3next-dense-bf16": {"GatedDelta"},
	} {
		if testing.Short() && !strings.HasSuffix(name, "fp32") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dev := lockstep.New(ref.New(), openCPU(t))
			got, err := model(t, dev, name)
			if err != nil {
				t.Fatal(err)
			}
			want, err := model(t, ref.New(), name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("tokens %v, want %v", got, want)
					break
				}
			}
			counts := map[string]lockstep.Count{}
			for _, c := range dev.Counts() {
				counts[c.Op] = c
			}
			for _, op := range ops {
				if c := counts[op]; c.Ops == 0 || c.Values == 0 || c.Differing != 0 {
					t.Errorf("%s: %+v, want calls and no difference", op, c)
				}
			}
		})
	}
}

// broken is a device with one wrong op: the n-th call of it flips the last bit
// of one value.
type broken struct {
	backend.Device
	op string
	n  int
}

type brokenStream struct {
	backend.Stream
	d     *broken
	calls int
}

func (d *broken) NewStream() (backend.Stream, error) {
	s, err := d.Device.NewStream()
	return &brokenStream{Stream: s, d: d}, err
}

func (s *brokenStream) now(op string) bool {
	if op != s.d.op {
		return false
	}
	s.calls++
	return s.calls == s.d.n
}

// flip changes the last bit of value i of a tensor in host memory.
func flip(t tensor.Tensor, i int) {
	v, _ := t.F32()
	v[i] = math.Float32frombits(math.Float32bits(v[i]) ^ 1)
}

func (s *brokenStream) SwiGLU(dst, gate, up tensor.Tensor) {
	s.Stream.SwiGLU(dst, gate, up)
	if s.now("SwiGLU") {
		flip(dst, dst.Stride(0)+3)
	}
}

func (s *brokenStream) PutKV(p backend.Plan, layer int, k, v tensor.Tensor) {
	if s.now("PutKV") {
		flip(v, 5)
		defer flip(v, 5)
	}
	s.Stream.PutKV(p, layer, k, v)
}

func (s *brokenStream) GatedDelta(dst, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	s.Stream.GatedDelta(dst, q, k, v, g, beta, p, layer)
	if s.now("GatedDelta") {
		flip(p.Segs()[0].DeltaOut.Index(layer), 7)
	}
}

func (s *brokenStream) Softmax(dst, x tensor.Tensor) { s.Stream.Softmax(dst.Rows(0, 1), x) }

func TestBrokenOpIsNamed(t *testing.T) {
	for _, tt := range []struct {
		model, op string
		n         int
		where     []string
	}{
		{"qwen3-tied-fp32", "SwiGLU", 2, []string{"row 1, index 3", "in 1 of", "ref has", "cpu has"}},
		{"qwen3-tied-fp32", "PutKV", 3, []string{"segment 0", "plane 1, head 0, row 0, index 5"}},
		{"qwen35-fp32", "GatedDelta", 4, []string{"the state of segment 0", "index 7"}},
	} {
		t.Run(tt.op, func(t *testing.T) {
			dev := lockstep.New(ref.New(), &broken{openCPU(t), tt.op, tt.n})
			_, err := model(t, dev, tt.model)
			if err == nil {
				t.Fatal("nothing was noticed")
			}
			for _, w := range append(tt.where, tt.op+"(F32[", "lockstep: ") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error lacks %q: %v", w, err)
				}
			}
			for _, c := range dev.Counts() {
				want := int64(0)
				if c.Op == tt.op {
					want = 1
				}
				if c.Differing != want {
					t.Errorf("%+v, want %d differing", c, want)
				}
			}
		})
	}
}

// A device that alone refuses an op is a difference as well.
func TestOneFails(t *testing.T) {
	dev := lockstep.New(ref.New(), &broken{Device: openCPU(t)})
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	buf, err := dev.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := tensor.New(buf, 0, tensor.F32, 4, 4)
	s.Softmax(x, x)
	if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "Softmax(F32[4 4], F32[4 4])") || !strings.Contains(err.Error(), "cpu fails") {
		t.Errorf("got %v", err)
	}
	s.Reset()
	host, _ := tensor.FromF32(make([]float32, 16), 4, 4)
	s.Add(x, host, host)
	if err := s.Sync(); err != nil {
		t.Errorf("inputs in host memory: %v", err)
	}
	s.Add(host, x, x)
	if err := s.Sync(); err == nil {
		t.Error("an output that both would write is accepted")
	}
}
