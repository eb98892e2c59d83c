package lm_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/grad/lm"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// Kernels, threads and the number of sequences per micro-batch change no bit of
// weights and moments, of a dense and of a hybrid model.
func TestKernelsAndThreadsChangeNoBit(t *testing.T) {
	const rows = 140 // more than a block of rows
	for name, config := range models() {
		t.Run(name, func(t *testing.T) {
			var want map[string][]float32
			for _, impl := range cpu.Impls() {
				for i, threads := range []int{1, 2, 4, 8} {
					if testing.Short() && (threads != 2 || impl == "generic") {
						continue
					}
					dev, err := cpu.New(cpu.Config{Threads: threads, Impl: impl})
					if err != nil {
						t.Fatal(err)
					}
					cfg := lm.Config{MicroRows: rows * []int{1, 2, 4, 8}[i]}
					m := open(t, dev, config, cfg)
					t.Cleanup(func() { dev.Close() })
					for i := range 2 {
						m.step(toy(i, 8, rows, rows), 0.01)
					}
					if want == nil {
						want = m.values()
						continue
					}
					same(t, fmt.Sprintf("%s with %d threads, %+v", impl, threads, cfg), want, m.values())
				}
			}
		})
	}
}

// A device that begins gradients without reading them gives the bits of one that adds
// to zeros.
func TestFirstContributions(t *testing.T) {
	for name, config := range models() {
		t.Run(name, func(t *testing.T) {
			dev, err := cpu.New(cpu.Config{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { dev.Close() })
			var want map[string][]float32
			for _, d := range []backend.Device{withoutFirst{dev}, dev} {
				m := open(t, d, config, lm.Config{MicroRows: 300})
				for i := range 2 {
					m.step(toy(i, 3, 60, 150), 0.01)
				}
				if want == nil {
					want = m.values()
					continue
				}
				same(t, "first contributions", want, m.values())
			}
		})
	}
}

// withoutFirst hides that a device is a backend.FirstGrad.
type withoutFirst struct{ backend.Device }

func (d withoutFirst) NewStream() (backend.Stream, error) {
	s, err := d.Device.NewStream()
	if err != nil {
		return nil, err
	}
	return struct {
		backend.Stream
		backend.Grad
	}{s, s.(backend.Grad)}, nil
}

// The losses of training are those of the logits that inference gives, bit by bit.
func TestForwardIsInference(t *testing.T) {
	for name, config := range models() {
		for kind, dev := range devices(t) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				m := open(t, dev, config, lm.Config{})
				batch := toy(5, 1, 40, 40)
				losses, err := m.t.Backward(context.Background(), batch)
				if err != nil {
					t.Fatal(err)
				}
				again, err := m.t.Losses(context.Background(), batch)
				if err != nil {
					t.Fatal(err)
				}
				if d := tensortest.DiffBits(losses, again); d != "" {
					t.Errorf("losses with and without gradients:\n%s", d)
				}
				s, err := dev.NewStream()
				if err != nil {
					t.Fatal(err)
				}
				pool, err := state.NewPool(dev, 0)
				if err != nil {
					t.Fatal(err)
				}
				st, err := m.dec.NewState(pool)
				if err != nil {
					t.Fatal(err)
				}
				defer st.Release()
				var rows []state.Row
				for _, id := range batch[0].Tokens {
					rows = append(rows, state.Row{Token: id})
				}
				c := nn.NewCtx(s, dev)
				defer c.Close()
				seqs := []nn.Seq{{State: st, In: rows, Want: nn.WantAll}}
				if err := m.dec.Forward(context.Background(), c, seqs); err != nil {
					t.Fatal(err)
				}
				logits, _ := tensor.FromF32(seqs[0].Logits, len(rows), m.dec.Vocab)
				targets, _ := tensor.FromI32(batch[0].Targets, len(rows))
				all := make([]float32, len(rows))
				loss, _ := tensor.FromF32(all, len(rows))
				s.(backend.Grad).CrossEntropy(loss, tensor.Tensor{}, logits, targets, tensor.Tensor{}, 1)
				if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
				if d := tensortest.DiffBits(all[2:], losses); d != "" {
					t.Errorf("losses of inference and training (-want +got):\n%s", d)
				}
			})
		}
	}
}

// A training that is saved, made anew and continued goes on as it would have.
func TestResume(t *testing.T) {
	m := open(t, devices(t)["cpu"], hybrid, lm.Config{})
	const steps, at = 6, 3
	var saved map[string][]float32
	for i := range steps {
		if i == at {
			saved = m.values()
		}
		m.step(toy(i, 4, 5, 9), 0.01)
	}
	n := open(t, devices(t)["cpu"], hybrid, lm.Config{MicroRows: 12})
	n.step(toy(77, 2, 5, 9), 0.1) // something else
	s, err := n.dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range n.opt.Tensors() {
		s.Write(x, tensor.AsBytes(saved[name]))
	}
	n.opt.Steps = at
	if err := n.p.Refresh(); err != nil {
		t.Fatal(err)
	}
	for i := at; i < steps; i++ {
		n.step(toy(i, 4, 5, 9), 0.01)
	}
	same(t, "after resuming", m.values(), n.values())
}

// counting is a device that knows how much memory it has lent.
type counting struct {
	backend.Device
	bytes atomic.Int64
}

func (c *counting) Alloc(n int) (tensor.Buffer, error) {
	b, err := c.Device.Alloc(n)
	if err == nil {
		c.bytes.Add(int64(n))
	}
	return b, err
}

func (c *counting) Free(b tensor.Buffer) {
	c.bytes.Add(-int64(b.Len()))
	c.Device.Free(b)
}

var flatSteps = flag.Int("steps", 100, "steps of TestMemoryIsFlat; the full test has 10000")

// Memory on the device and in the heap does not grow with the number of steps, of
// batches that differ. Full: go test ./grad/lm -run Flat -steps 10000 -timeout 1h
func TestMemoryIsFlat(t *testing.T) {
	for name, config := range models() {
		for _, cfg := range []lm.Config{{MicroRows: 20}, {MicroRows: 20, Checkpoint: true}} {
			t.Run(fmt.Sprintf("%s/checkpoint=%v", name, cfg.Checkpoint), func(t *testing.T) {
				if testing.Short() && cfg.Checkpoint {
					t.Skip("short")
				}
				dev := &counting{Device: devices(t)["cpu"]}
				m := open(t, dev, config, cfg)
				heap := func() uint64 {
					runtime.GC()
					var s runtime.MemStats
					runtime.ReadMemStats(&s)
					return s.HeapAlloc
				}
				var device int64
				var before uint64
				for i := range *flatSteps {
					if i == *flatSteps/4 {
						device, before = dev.bytes.Load(), heap()
					}
					m.step(toy(i%50, 4, 3, 20), 0.001)
				}
				if got := dev.bytes.Load(); got > device {
					t.Errorf("device memory grows from %d to %d bytes", device, got)
				}
				if got := heap(); got > before+256<<10 {
					t.Errorf("the heap grows from %d to %d bytes", before, got)
				}
			})
		}
	}
}

// Recomputing needs less memory for activations: here, with three blocks instead of
// one at a time, under two thirds.
func TestCheckpointSavesMemory(t *testing.T) {
	config := map[string]any{}
	for k, v := range dense {
		config[k] = v
	}
	config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"] = 6, 96, 400
	sequences := 4
	if testing.Short() {
		sequences = 1
	}
	var bytes [2]int64
	for i := range bytes {
		dev := &counting{Device: devices(t)["cpu"]}
		m := open(t, dev, config, lm.Config{Checkpoint: i == 1})
		before := dev.bytes.Load()
		m.step(toy(1, sequences, 250, 250), 0.001)
		bytes[i] = dev.bytes.Load() - before
	}
	if bytes[1] > bytes[0]*2/3 {
		t.Errorf("a step keeps %d bytes, with recomputing %d", bytes[0], bytes[1])
	}
}

func TestRefusals(t *testing.T) {
	m := open(t, ref.New(), dense, lm.Config{})
	good := toy(1, 2, 5, 9)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		want  string
		ctx   context.Context
		batch []lm.Sequence
	}{
		{"without a target", context.Background(), nil},
		{"without a target", context.Background(), []lm.Sequence{{Tokens: []int32{1}, Targets: []int32{-1}}}},
		{"0 tokens", context.Background(), []lm.Sequence{{}}},
		{"2 tokens, 1 targets", context.Background(), []lm.Sequence{{Tokens: []int32{1, 2}, Targets: []int32{1}}}},
		{"1 weights", context.Background(), []lm.Sequence{{Tokens: []int32{1, 2}, Targets: []int32{1, 1}, Weights: []float32{1}}}},
		{"token 37", context.Background(), []lm.Sequence{{Tokens: []int32{37}, Targets: []int32{1}}}},
		{"target 37", context.Background(), []lm.Sequence{{Tokens: []int32{3}, Targets: []int32{37}}}},
		{"context canceled", cancelled, good},
	} {
		_, err := m.t.Backward(c.ctx, c.batch)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error that says %q, got %v", c.want, err)
		}
		if err := m.p.Zero(); err != nil {
			t.Fatal(err)
		}
	}
	m.step(good, 0.01)
	if _, err := lm.New(m.dev, m.dec, m.p, lm.Config{MicroRows: -1}); err == nil {
		t.Error("negative rows are accepted")
	}
	lower, _, err := m.dec.Split(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lm.New(m.dev, lower, m.p, lm.Config{}); err == nil {
		t.Error("a decoder without a head is accepted")
	}
	x, err := lm.New(m.dev, m.dec, m.p, lm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if _, err := x.Losses(context.Background(), good); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("a closed trainer gives %v, want ErrClosed", err)
		}
	}
}

// Weights scale losses and gradients: a batch with weights of 2 has twice the
// gradient, and rows of weight 0 none.
func TestWeights(t *testing.T) {
	grads := func(w float32) []float32 {
		m := open(t, ref.New(), dense, lm.Config{})
		batch := toy(1, 2, 6, 6)
		for range 6 {
			batch[1].Weights = append(batch[1].Weights, 0)
			if w != 1 {
				batch[0].Weights = append(batch[0].Weights, w)
			}
		}
		if _, err := m.t.Backward(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
		var all []float32
		s, err := m.dev.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		for p := range m.p.All() {
			v := make([]float32, p.Grad.Len())
			s.Read(tensor.AsBytes(v), p.Grad)
			all = append(all, v...)
		}
		return all
	}
	one, two := grads(1), grads(2)
	for i := range one {
		one[i] *= 2 // exact, and so is everything a factor of two passes through
	}
	if d := tensortest.DiffBits(one, two); d != "" {
		t.Error(d)
	}
}
