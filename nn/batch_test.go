package nn_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/state"
)

func openModel(t testing.TB, dev backend.Device, name string) *nn.Decoder {
	t.Helper()
	set, err := checkpoint.Open("../testdata/models/checkpoints/" + name)
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
	t.Cleanup(d.Close)
	return d
}

// logitsOf runs a text and returns the logits of the last prompt row and of each
// step.
func logitsOf(r *nn.Runner, prompt []state.Row, steps []int32) ([][]float32, error) {
	var all [][]float32
	keep := func() { all = append(all, append([]float32(nil), r.Logits()...)) }
	if err := r.Append(context.Background(), prompt); err != nil {
		return nil, err
	}
	keep()
	for _, id := range steps {
		if err := r.Step(context.Background(), id); err != nil {
			return nil, err
		}
		keep()
	}
	return all, nil
}

// Joining and leaving shared passes changes no bit: many runners with prompts of
// all lengths begin and end at different times.
func TestBatcherSameBits(t *testing.T) {
	for _, name := range []string{"qwen3-tied-fp32", "qwen35-8l-bf16"} {
		t.Run(name, func(t *testing.T) {
			dev, err := cpu.New(cpu.Config{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			d := openModel(t, dev, name)
			pool, err := state.NewPool(dev, 0)
			if err != nil {
				t.Fatal(err)
			}
			b, err := d.NewBatcher(dev, nn.BatcherConfig{Rows: 48})
			if err != nil {
				t.Fatal(err)
			}
			const seed = 5
			rnd := rand.New(rand.NewPCG(seed, 0))
			var wg sync.WaitGroup
			for i := range 12 {
				prompt := make([]state.Row, 1+rnd.IntN(90))
				for j := range prompt {
					prompt[j].Token = int32(rnd.IntN(d.Vocab))
				}
				steps := make([]int32, rnd.IntN(20))
				for j := range steps {
					steps[j] = int32(rnd.IntN(d.Vocab))
				}
				wg.Go(func() {
					s, err := dev.NewStream()
					if err != nil {
						t.Error(err)
						return
					}
					defer s.Close()
					run := func(cfg nn.RunnerConfig) [][]float32 {
						r, err := d.NewRunner(s, pool, cfg)
						if err != nil {
							t.Error(err)
							return nil
						}
						defer r.Close()
						l, err := logitsOf(r, prompt, steps)
						if err != nil {
							t.Error(err)
						}
						return l
					}
					want, got := run(nn.RunnerConfig{}), run(nn.RunnerConfig{Batcher: b})
					for k := range want {
						for v := range want[k] {
							if math.Float32bits(want[k][v]) != math.Float32bits(got[k][v]) {
								t.Errorf("seed %d, runner %d, row %d, logit %d: %08x, alone %08x", seed, i, k, v, math.Float32bits(got[k][v]), math.Float32bits(want[k][v]))
								return
							}
						}
					}
				})
			}
			wg.Wait()
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// One sequence without room fails alone; strangers in its pass do not notice.
func TestBatcherFaultStaysWithItsOwner(t *testing.T) {
	dev, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d := openModel(t, dev, "qwen3-tied-fp32")
	roomy, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	tight, err := state.NewPool(dev, 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.NewBatcher(dev, nn.BatcherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		pool := roomy
		if i%2 == 1 {
			pool = tight
		}
		wg.Go(func() {
			r, err := d.NewRunner(nil, pool, nn.RunnerConfig{Batcher: b})
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			for range 20 {
				err := r.Append(context.Background(), []state.Row{{Token: 1}, {Token: 2}})
				if pool == roomy && err != nil {
					t.Errorf("a stranger's want of room: %v", err)
				}
				if pool == tight && !errors.Is(err, state.ErrNoRoom) {
					t.Errorf("appending without room: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestBatcherCancelAndClose(t *testing.T) {
	dev, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d := openModel(t, dev, "qwen3-tied-fp32")
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.NewBatcher(dev, nn.BatcherConfig{Rows: 8})
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.NewRunner(nil, pool, nn.RunnerConfig{Batcher: b})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Append(ctx, []state.Row{{Token: 1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("append with a cancelled context: %v", err)
	}
	if r.Len() != 0 {
		t.Errorf("a cancelled append left %d rows", r.Len())
	}
	if err := r.Append(context.Background(), []state.Row{{Token: int32(d.Vocab)}}); err == nil {
		t.Error("a token outside the vocabulary was accepted")
	}
	closed := make(chan struct{})
	go func() {
		b.Close()
		b.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("Close hangs")
	}
	if err := r.Append(context.Background(), []state.Row{{Token: 1}}); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("append after Close: %v", err)
	}
	if _, err := d.NewBatcher(dev, nn.BatcherConfig{Rows: -1}); err == nil {
		t.Error(fmt.Errorf("passes of -1 rows were accepted"))
	}
}

// A batcher runs one decoder's passes; states of another would be read as its own.
func TestBatcherOfAnotherDecoder(t *testing.T) {
	dev, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d, other := openModel(t, dev, "qwen3-tied-fp32"), openModel(t, dev, "qwen3-tied-fp32")
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b, err := other.NewBatcher(dev, nn.BatcherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := d.NewRunner(nil, pool, nn.RunnerConfig{Batcher: b}); err == nil {
		t.Error("a runner took the batcher of another decoder")
	}
}

// A stream and a pool of devices that lay out pages differently do not mix.
func TestRunnerOfTwoDevices(t *testing.T) {
	dev, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d := openModel(t, dev, "qwen3-tied-fp32")
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pool, err := state.NewPool(ref.New(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.NewRunner(s, pool, nn.RunnerConfig{}); err == nil {
		t.Error("a cpu stream with a pool of ref was accepted")
	}
}
