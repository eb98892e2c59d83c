package opencl_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor/tensortest"
)

// lab is a model on a device.
type lab struct {
	t      *testing.T
	dec    *nn.Decoder
	pool   *state.Pool
	stream backend.Stream
}

func newLab(t *testing.T, dev backend.Device, path string) *lab {
	t.Helper()
	set, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	cfg, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t}
	if l.dec, err = qwen3.Load(context.Background(), dev, cfg, set, qwen3.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	if l.pool, err = state.NewPool(dev, 0); err != nil {
		t.Fatal(err)
	}
	if l.stream, err = dev.NewStream(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.dec.Close()
		if err := l.pool.Close(); err != nil {
			t.Error(err)
		}
		l.stream.Close()
	})
	return l
}

// part appends rows of a text to a saved state, none for an empty one, in passes of
// chunk rows. It returns their logits and the state after them.
func (l *lab) part(rows []state.Row, saved []byte, chunk int) (logits []float32, after []byte) {
	l.t.Helper()
	r, err := l.dec.NewRunner(l.stream, l.pool, nn.RunnerConfig{ChunkRows: chunk})
	if err != nil {
		l.t.Fatal(err)
	}
	defer r.Close()
	if saved != nil {
		if err := r.Load(bytes.NewReader(saved)); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := r.AppendAll(context.Background(), rows, func(_ int, v []float32) { logits = append(logits, v...) }); err != nil {
		l.t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.Save(&b); err != nil {
		l.t.Fatal(err)
	}
	return logits, b.Bytes()
}

// Whole models give the logits of the processor, at any cut, and a state that moves
// to the device in the middle of a text and back is the one that stayed.
func TestModels(t *testing.T) {
	models := []string{"checkpoints/llama3-bf16", "checkpoints/qwen3-swa-bias-bf16", "checkpoints/qwen35-fp32", "checkpoints/qwen3next-moe-bf16"}
	files, err := filepath.Glob("../../testdata/models/gguf/*.gguf")
	if err != nil || len(files) == 0 {
		t.Fatalf("no GGUF files (%v)", err)
	}
	for _, f := range files {
		models = append(models, "gguf/"+filepath.Base(f))
	}
	if testing.Short() {
		models = models[1:4]
	}
	dev := device(t)
	host, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	for _, m := range models {
		t.Run(m, func(t *testing.T) {
			path := filepath.Join("../../testdata/models", m)
			home, away := newLab(t, host, path), newLab(t, dev, path)
			r := tensortest.NewRand(5, m)
			n := 150
			if c := home.dec.Context; c > 0 {
				n = min(n, c)
			}
			rows := make([]state.Row, n)
			for i := range rows {
				rows[i].Token = int32(r.Intn(home.dec.Vocab))
			}
			want, saved := home.part(rows, nil, 64)
			for _, chunk := range []int{1, 33, 512} {
				got, after := away.part(rows, nil, chunk)
				if d := tensortest.DiffBits(want, got); d != "" {
					t.Errorf("chunks of %d (-cpu +opencl): %s", chunk, d)
				}
				if !bytes.Equal(after, saved) {
					t.Errorf("chunks of %d: the saved state is another", chunk)
				}
			}
			a, b := n/3, 2*n/3+1
			one, s := home.part(rows[:a], nil, 20)
			two, s := away.part(rows[a:b], s, 20)
			three, s := home.part(rows[b:], s, 20)
			if d := tensortest.DiffBits(want, append(append(one, two...), three...)); d != "" {
				t.Errorf("cpu, opencl, cpu: %s", d)
			}
			if !bytes.Equal(s, saved) {
				t.Error("a state that moved is another one")
			}
		})
	}
}
