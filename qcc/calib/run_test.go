package calib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/grad/journal"
	"samebit/internal/wholefile/wholetest"
	"samebit/nn"
	"samebit/qcc"
	"samebit/qwen3"
)

// load loads a small model of random weights.
func load(t testing.TB, dev backend.Device, name string) *nn.Decoder {
	t.Helper()
	set, err := checkpoint.Open("../../testdata/models/checkpoints/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	c, err := qwen3.FromSet(set)
	if err != nil {
		t.Fatal(err)
	}
	d, err := qwen3.Load(t.Context(), dev, c, set, qwen3.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func device(t testing.TB, c cpu.Config) backend.Device {
	t.Helper()
	dev, err := cpu.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// portable are kernels written in Go, or in short tests, as under the race detector,
// which slows these many times, those of the machine.
func portable() string {
	if testing.Short() {
		return ""
	}
	return "generic"
}

// adapter begins a retrofit with a small window.
func adapter(t testing.TB, d *nn.Decoder, change func(c *qcc.Config)) *qcc.Adapter {
	t.Helper()
	c, err := qcc.ModelConfig(d)
	if err != nil {
		t.Fatal(err)
	}
	c.Window, c.Codes, c.Scales, c.Rank = 8, 3, 2, 2
	if change != nil {
		change(&c)
	}
	a, err := qcc.NewAdapter(d, qcc.Retrofit{Config: c, KV: qcc.KVRepeat}, 3)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// texts are random sequences with repetitions.
func texts(seed uint64, vocab, n, rows int) (out [][]int32) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		s := make([]int32, rows+r.IntN(9))
		for i := range s {
			s[i] = int32(r.IntN(vocab))
			if i > 20 && r.IntN(2) == 0 {
				s[i] = s[i-17]
			}
		}
		out = append(out, s)
	}
	return out
}

func few(steps int) Options {
	o := LayerOptions()
	o.Steps, o.Chunks, o.AttentionRows, o.CodeTokens, o.Interval, o.Save = steps, 2, 16, 20, 2, 2
	o.Weights = Weights{Cosine: 0.2, KL: 0.3, CE: 0.1, Margin: 0.1, Temperature: 2, Gap: 0.25}
	return o
}

const dense, hybrid = "qwen3-tied-fp32", "qwen35-8l-fp32"

// Calibration lowers the loss, and what it returns is what it measured.
func TestLossFalls(t *testing.T) {
	dev := device(t, cpu.Config{Threads: 2})
	for _, name := range []string{dense, hybrid} {
		d := load(t, dev, name)
		a := adapter(t, d, nil)
		o := few(30)
		o.Chunks, o.Interval, o.Weights = 1, 10, LayerOptions().Weights
		var first, last float32
		o.Progress = func(s Step) {
			if s.Step <= 3 {
				first += s.Loss
			}
			if s.Step > s.Steps-3 {
				last += s.Loss
			}
		}
		data := Data{texts(1, d.Vocab, 3, 60), texts(2, d.Vocab, 2, 60)}
		got, rep, err := Run(t.Context(), dev, d, a, data, o)
		if err != nil {
			t.Fatal(err)
		}
		if !(last < 0.8*first) {
			t.Errorf("%s: losses of three steps went from %v to %v", name, first, last)
		}
		if rep.Before == nil || rep.After == nil || rep.After.Score() < rep.Before.Score() || rep.Training.Rows == 0 || rep.Passed != (rep.After.Score() >= 0.99) || rep.WindowRows <= a.Config.Window || rep.Window == nil {
			t.Errorf("%s: report %+v", name, rep)
		}
		p, err := qcc.Patch(dev, d, got)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Compare(t.Context(), dev, d, p.Decoder, data.HeldOut, a.Config.From())
		p.Close()
		if err != nil || f != *rep.After {
			t.Errorf("%s: %v, %+v, the report says %+v", name, err, f, *rep.After)
		}
		if f, err := Compare(t.Context(), dev, d, d, data.HeldOut, 0); err != nil || math.Abs(f.Cosine-1) > 1e-6 || f.Top1 != 1 || f.KL != 0 || f.Worst != 0 {
			t.Errorf("%s: a model next to itself: %+v, %v", name, f, err)
		}
	}
}

// Neither workers, kernels, micro-batches nor interruptions change a bit of what is
// made.
func TestSameBitsWhatever(t *testing.T) {
	names := []string{hybrid, dense}
	if testing.Short() {
		names = names[:1]
	}
	for _, name := range names {
		run := func(ctx context.Context, dev backend.Device, o Options) (*Report, error) {
			d := load(t, dev, name)
			data := Data{texts(1, d.Vocab, 3, 50), texts(2, d.Vocab, 2, 40)}
			_, rep, err := Run(ctx, dev, d, adapter(t, d, nil), data, o)
			return rep, err
		}
		plain := few(7)
		plain.Dir = t.TempDir()
		want, err := run(t.Context(), device(t, cpu.Config{Threads: 1}), plain)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []struct {
			name  string
			dev   backend.Device
			micro int
		}{
			{"8 workers, a sequence at a time", device(t, cpu.Config{Threads: 8}), 1},
			{"3 workers, portable kernels", device(t, cpu.Config{Threads: 3, Impl: portable()}), 100},
		} {
			o := few(7)
			o.MicroRows = s.micro
			got, err := run(t.Context(), s.dev, o)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, s.name, err)
			}
			if got.Hash != want.Hash {
				t.Errorf("%s, %s: hash %s, not %s", name, s.name, got.Hash, want.Hash)
			}
		}
		r := rand.New(rand.NewPCG(4, 4))
		o := few(7)
		o.Dir = t.TempDir()
		for try := 0; ; try++ {
			ctx, cancel := context.WithCancel(t.Context())
			left := 1 + r.IntN(3)
			o.Progress = func(Step) {
				if left--; left == 0 {
					cancel()
				}
			}
			got, err := run(ctx, device(t, cpu.Config{Threads: 1 + try%3}), o)
			cancel()
			if err == nil {
				if got.Hash != want.Hash || got.Selected != want.Selected || *got.After != *want.After {
					t.Errorf("%s: interrupted: %+v, not %+v", name, got, want)
				}
				break
			}
			if !errors.Is(err, context.Canceled) || try > 20 {
				t.Fatal(err)
			}
		}
		for _, file := range []string{journal.LogFile, AdapterFile, ReportFile} {
			x, err := os.ReadFile(filepath.Join(plain.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			y, err := os.ReadFile(filepath.Join(o.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(x, y) {
				t.Errorf("%s: %s differs", name, file)
			}
		}
		if points, err := ReadLog(o.Dir); err != nil || len(points) != 7 || points[6].Step != 7 || !(points[1].Cosine > 0) || points[0].Cosine == points[0].Cosine {
			t.Errorf("%s: log %+v, %v", name, points, err)
		}
	}
}

// Wherever the process or the machine dies while it saves, the calibration goes on to
// the same bits.
func TestDeathWhileSaving(t *testing.T) {
	dev := device(t, cpu.Config{Threads: 1})
	d := load(t, dev, dense)
	data := Data{texts(1, d.Vocab, 2, 24), texts(2, d.Vocab, 1, 20)}
	a := adapter(t, d, func(c *qcc.Config) { c.Codes, c.Scales, c.Rank = 1, 1, 0 })
	o := few(4)
	o.Chunks, o.Layers, o.Attention = 1, "1", 0
	o.Weights = LayerOptions().Weights
	_, want, err := Run(t.Context(), dev, d, a, data, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range []bool{false, true} {
		for at := 0; ; at++ {
			o := o
			o.Dir = t.TempDir()
			f := wholetest.New(o.Dir, 1, at)
			f.Lost = lost
			o.folder = f
			_, _, err := Run(t.Context(), dev, d, a, data, o)
			f.Settle(t)
			o.folder = nil
			_, got, again := Run(t.Context(), dev, d, a, data, o)
			if again != nil || got.Hash != want.Hash {
				t.Fatalf("death at operation %d, machine too: %v: %v, %+v", at, lost, again, got)
			}
			if err == nil {
				break
			}
			if at > 100 {
				t.Fatal("saving never ends")
			}
		}
	}
}

// A cancelled calibration that cannot save does not look like one that did.
func TestCancelledUnsaved(t *testing.T) {
	dev := device(t, cpu.Config{Threads: 1})
	d := load(t, dev, dense)
	a := adapter(t, d, func(c *qcc.Config) { c.Codes, c.Scales, c.Rank = 1, 1, 0 })
	exact, err := WithExact(dev, d, a, &qcc.Exact{Sets: 2, Ways: 4, AdmissionWeight: 1})
	if err != nil {
		t.Fatal(err)
	}
	data := Data{Train: texts(1, d.Vocab, 1, 24)}
	full := errors.New("the disk is full")
	for name, run := range map[string]func(ctx context.Context, cancel func(), dir string, f *wholetest.Faulty) error{
		"calibration": func(ctx context.Context, cancel func(), dir string, f *wholetest.Faulty) error {
			o := few(3)
			o.Attention, o.Save, o.Dir, o.folder = 0, 100, dir, f
			o.Progress = func(Step) { cancel() }
			_, _, err := Run(ctx, dev, d, a, data, o)
			return err
		},
		"admission": func(ctx context.Context, cancel func(), dir string, f *wholetest.Faulty) error {
			o := DefaultAdmission()
			o.Steps, o.Save, o.Dir, o.folder = 3, 100, dir, f
			o.Progress = func(AdmissionStep) { cancel() }
			_, _, err := RunAdmission(ctx, dev, d, exact, data, o)
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		dir := t.TempDir()
		f := wholetest.New(dir, 1, 1)
		f.FailOn = full
		err := run(ctx, cancel, dir, f)
		cancel()
		if !errors.Is(err, full) || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stopped after step 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A loss that is no number ends the calibration, and leaves adapter and files alone.
func TestNonFinite(t *testing.T) {
	dev := device(t, cpu.Config{Threads: 1})
	d := load(t, dev, dense)
	a := adapter(t, d, func(c *qcc.Config) { c.Rank = 2 })
	for i := range a.Params[0].CorrU { // finite, and the products that it takes part in are not
		a.Params[0].CorrU[i] = 3e38
	}
	var before bytes.Buffer
	if _, err := a.WriteTo(&before); err != nil {
		t.Fatal(err)
	}
	data := Data{Train: texts(1, d.Vocab, 2, 40)}
	o := few(3)
	o.Dir, o.Save = t.TempDir(), 1
	if _, _, err := Run(t.Context(), dev, d, a, data, o); !errors.Is(err, ErrNonFinite) {
		t.Fatalf("no error for a loss that is no number: %v", err)
	}
	if names := wholetest.Names(t, o.Dir); len(names) != 0 {
		t.Errorf("files %v", names)
	}
	var after bytes.Buffer
	if _, err := a.WriteTo(&after); err != nil || !bytes.Equal(before.Bytes(), after.Bytes()) {
		t.Errorf("the adapter changed: %v", err)
	}

	// The same in the middle: what was saved stays, and can be gone on from.
	good := adapter(t, d, nil)
	o.Rate, o.Steps = 0.02, 4
	o.Until = 2
	if _, _, err := Run(t.Context(), dev, d, good, data, o); err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(filepath.Join(o.Dir, journal.StateFile))
	if err != nil {
		t.Fatal(err)
	}
	wrong := o
	wrong.Rate = 0.5
	if _, _, err := Run(t.Context(), dev, d, good, data, wrong); err == nil || !strings.Contains(err.Error(), "another config") {
		t.Errorf("a directory of other options: %v", err)
	}
	if now, err := os.ReadFile(filepath.Join(o.Dir, journal.StateFile)); err != nil || !bytes.Equal(now, was) {
		t.Errorf("the state changed: %v", err)
	}
}

func TestRunRefuses(t *testing.T) {
	dev := device(t, cpu.Config{Threads: 1})
	d := load(t, dev, dense)
	a := adapter(t, d, nil)
	data := Data{Train: texts(1, d.Vocab, 1, 30)}
	for says, run := range map[string]func() error{
		"want a device": func() error { _, _, err := Run(t.Context(), dev, d, nil, data, few(1)); return err },
		"the window covers 8 tokens, the longest sequence has 3: give a longer text, longer sequences of it, or a smaller window": func() error {
			_, _, err := Run(t.Context(), dev, d, a, Data{Train: [][]int32{{1, 2, 3}, {1}}, HeldOut: texts(1, d.Vocab, 1, 30)}, few(1))
			return err
		},
		"window and sinks cover 9 tokens, the longest sequence has 9: give": func() error {
			sinks := adapter(t, d, func(c *qcc.Config) { c.Sinks = 1 })
			_, _, err := Run(t.Context(), dev, d, sinks, Data{Train: [][]int32{make([]int32, 9)}}, few(1))
			return err
		},
		"the window covers 8 tokens, the longest sequence has 1: give": func() error {
			exact, err := WithExact(dev, d, a, &qcc.Exact{Sets: 2, Ways: 4, AdmissionWeight: 1})
			if err != nil {
				return err
			}
			o := DefaultAdmission()
			o.Dir = filepath.Join(t.TempDir(), "none")
			_, _, err = RunAdmission(t.Context(), dev, d, exact, Data{Train: [][]int32{{1}}}, o)
			if _, gone := os.Stat(o.Dir); gone == nil {
				t.Error("an admission with nothing to learn makes a directory")
			}
			return err
		},
		"context is": func() error {
			_, _, err := Run(t.Context(), dev, d, a, Data{Train: texts(1, d.Vocab, 1, 600)}, few(1))
			return err
		},
		"token -1": func() error {
			_, _, err := Run(t.Context(), dev, d, a, Data{Train: [][]int32{{1, -1}}}, few(1))
			return err
		},
		"layers \"9\"": func() error {
			o := few(1)
			o.Layers = "9"
			_, _, err := Run(t.Context(), dev, d, a, data, o)
			return err
		},
		"has no exact tier": func() error {
			_, _, err := RunAdmission(t.Context(), dev, d, a, data, DefaultAdmission())
			return err
		},
		"nothing to compare": func() error { _, err := Compare(t.Context(), dev, d, d, data.Train, 1000); return err },
		"from row -1":        func() error { _, err := Compare(t.Context(), dev, d, d, data.Train, -1); return err },
		"a window of 0":      func() error { _, err := Windowed(d, nil, 0); return err },
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), says) || !errors.Is(err, ErrOptions) && !errors.Is(err, ErrNothing) && !errors.Is(err, qcc.ErrUntrainable) {
			t.Errorf("%s: %v", says, err)
		}
	}
	other := *a
	other.Base[0]++
	if _, _, err := Run(t.Context(), dev, d, &other, data, few(1)); !errors.Is(err, qcc.ErrDigest) {
		t.Errorf("an adapter of another model: %v", err)
	}
	deeper := load(t, dev, hybrid)
	exact, err := WithExact(dev, deeper, adapter(t, deeper, nil), &qcc.Exact{Sets: 2, Ways: 4, AdmissionWeight: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := RunAdmission(t.Context(), dev, d, exact, data, DefaultAdmission()); !errors.Is(err, qcc.ErrDigest) {
		t.Errorf("an adapter of a deeper model: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Run(ctx, dev, d, a, data, few(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Without improvement a calibration ends early, and stays ended.
func TestPatience(t *testing.T) {
	dev := device(t, cpu.Config{Threads: 1})
	d := load(t, dev, dense)
	o := few(40)
	o.Chunks, o.Layers, o.Interval, o.Patience, o.Rate, o.Dir = 1, "0", 1, 2, 1e-8, t.TempDir()
	o.CodeInit = Random
	for range 2 {
		_, rep, err := Run(t.Context(), dev, d, adapter(t, d, nil), Data{texts(1, d.Vocab, 1, 30), texts(2, d.Vocab, 1, 30)}, o)
		if err != nil || !rep.Stopped || rep.Steps >= 40 {
			t.Fatalf("%+v, %v", rep, err)
		}
	}
}

// A window that covers the text is full attention.
func TestWindowed(t *testing.T) {
	dev := device(t, cpu.Config{Threads: 1})
	d := load(t, dev, dense)
	seqs := texts(5, d.Vocab, 2, 40)
	for w, same := range map[int]bool{60: true, 10: false} {
		x, err := Windowed(d, nil, w)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Compare(t.Context(), dev, d, x, seqs, 10)
		if err != nil || (f.Worst == 0) != same {
			t.Errorf("window %d: %+v, %v", w, f, err)
		}
	}
}

// The admission learns, the same way at any number of workers and when interrupted.
func TestAdmission(t *testing.T) {
	var want string
	for i, threads := range []int{1, 3} {
		dev := device(t, cpu.Config{Threads: threads})
		d := load(t, dev, dense)
		a, err := WithExact(dev, d, adapter(t, d, nil), &qcc.Exact{Sets: 2, Ways: 4, AdmissionWeight: 1, DiversityWeight: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		o := DefaultAdmission()
		o.Steps, o.Rate, o.Top, o.Share, o.Save = 40, 0.1, 2, 0.1, 5
		data := Data{texts(1, d.Vocab, 2, 60), texts(2, d.Vocab, 1, 50)}
		if i > 0 {
			o.Dir = t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			o.Progress = func(s AdmissionStep) {
				if s.Step == 13 {
					cancel()
				}
			}
			if _, _, err := RunAdmission(ctx, dev, d, a, data, o); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		var first, last float32
		o.Progress = func(s AdmissionStep) {
			if s.Step <= 2 {
				first += s.Loss
			}
			if s.Step > 38 {
				last += s.Loss
			}
		}
		got, rep, err := RunAdmission(t.Context(), dev, d, a, data, o)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 && !(last < 0.9*first) {
			t.Errorf("losses went from %v to %v", first, last)
		}
		if rep.Before.Recall != 0 || !(rep.After.Recall > 0.3) || rep.Held == nil || rep.Held.Keys == 0 {
			t.Errorf("report %+v", rep)
		}
		if want == "" {
			want = rep.Hash
		}
		if rep.Hash != want {
			t.Errorf("%d threads, interrupted: hash %s, not %s", threads, rep.Hash, want)
		}
		p, err := qcc.Patch(dev, d, got)
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		if fmt.Sprint(got.Params[0].Codes) != fmt.Sprint(a.Params[0].Codes) {
			t.Error("codes changed")
		}
	}
}
