package cuda_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cpu"
	"samebit/backend/cuda/emu"
	"samebit/grad"
	"samebit/qcc"
	"samebit/qcc/lm"
	"samebit/tensor/tensortest"
)

// Windows and archives have the bits of package ref.
func TestArchive(t *testing.T) {
	backendtest.RunCases(t, open(t, emu.Config{}), backendtest.ArchiveCases())
}

func TestArchiveErrors(t *testing.T) { backendtest.ArchiveErrors(t, open(t, emu.Config{})) }

func TestArchiveGrad(t *testing.T) {
	backendtest.RunCases(t, open(t, emu.Config{}), backendtest.ArchiveGradCases())
}

func TestArchiveGradErrors(t *testing.T) { backendtest.ArchiveGradErrors(t, open(t, emu.Config{})) }

// A model of attention over windows and archives gives the processor's logits and, after
// a step of training, its weights.
func TestArchiveModel(t *testing.T) {
	c := lm.DefaultConfig(23)
	c.Layer = qcc.DefaultConfig(20, 4)
	c.Layer.Window, c.Layers, c.MaxPosition = 5, 2, 40
	p, err := lm.NewParams(c, 7)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, c.MaxPosition)
	for i := range ids {
		ids[i] = int32(r.IntN(c.Vocab))
	}
	host, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	logits := func(dev backend.Device) []float32 {
		m, err := lm.New(dev, c, p)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(ids)*c.Vocab)
		if err := m.Forward(context.Background(), got, ids); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		return append(got, trained(t, dev, c, p, ids)...)
	}
	dev, _ := watched(t) // nothing leaks
	if d := tensortest.DiffBits(logits(host), logits(dev)); d != "" {
		t.Errorf("(-cpu +cuda:emu): %s", d)
	}
}

// trained is the embedding of a model that has learned which token follows which, for a
// step.
func trained(t *testing.T, dev backend.Device, c lm.Config, p *lm.Params, ids []int32) []float32 {
	x, err := lm.NewTrainer(dev, c, p, grad.AdamWConfig{Clip: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := len(ids) - 1
	_, err = x.Backward(context.Background(), []lm.Text{{IDs: ids[:n], Targets: ids[1:]}, {IDs: ids[5:n], Targets: ids[6:]}})
	if err == nil {
		err = x.Step(0.01)
	}
	q, e := x.Params()
	if err = errors.Join(err, e, x.Close()); err != nil {
		t.Fatal(err)
	}
	return q.Embed
}
