package nn_test

import (
	"bytes"
	"errors"
	"testing"

	"samebit/backend"
	"samebit/nn"
	"samebit/tensor"
)

// TestClosedRunner: nothing runs on, or is taken from, memory that was given back.
func TestClosedRunner(t *testing.T) {
	g := newRig(t, models[0], 0)
	r := g.runner(7)
	g.must(r.Append(bg, tokens(1, 2, 3)))
	snap, err := r.Snapshot()
	g.must(err)
	defer snap.Release()
	file := g.saved(r)
	r.Close()
	r.Close()
	for what, f := range map[string]func() error{
		"Step":         func() error { return r.Step(bg, 4) },
		"Append":       func() error { return r.Append(bg, tokens(4)) },
		"AppendAll":    func() error { return r.AppendAll(bg, tokens(4), func(int, []float32) {}) },
		"AppendHidden": func() error { return r.AppendHidden(bg, tokens(4), func(int, []float32) {}) },
		"Decide": func() error {
			_, err := r.Decide(bg, tokens(4), []nn.Question{{At: 0, Options: []int32{1, 2}}})
			return err
		},
		"Ask":      func() error { _, err := r.Ask(nil); return err },
		"Snapshot": func() error { _, err := r.Snapshot(); return err },
		"Fork":     func() error { _, err := r.Fork(); return err },
		"Resume":   func() error { return r.Resume(tokens(1, 2, 3), snap) },
		"Truncate": func() error { return r.Truncate(bg, 0) },
		"Rewind":   func() error { return r.Rewind(bg, 0) },
		"Reset":    r.Reset,
		"Save":     func() error { return r.Save(new(bytes.Buffer)) },
		"Load":     func() error { return r.Load(bytes.NewReader(file)) },
		"Adopt": func() error {
			return r.Adopt(nil, func(string) (tensor.Tensor, error) { return tensor.Tensor{}, nil })
		},
	} {
		if err := f(); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%s of a closed runner: %v", what, err)
		}
	}
	if r.Len() != 0 || r.Logits() != nil || r.Hidden() != nil {
		t.Errorf("a closed runner has %d rows, %d logits", r.Len(), len(r.Logits()))
	}
}

// TestNothingGiven: what is missing is said, not dereferenced.
func TestNothingGiven(t *testing.T) {
	g := newRig(t, models[0], 0)
	var none nn.Decoder
	for what, f := range map[string]func() error{
		"decoder":  func() error { _, err := none.NewRunner(g.stream, g.pool, nn.RunnerConfig{}); return err },
		"stream":   func() error { _, err := g.dec.NewRunner(nil, g.pool, nn.RunnerConfig{}); return err },
		"pool":     func() error { _, err := g.dec.NewRunner(g.stream, nil, nn.RunnerConfig{}); return err },
		"device":   func() error { _, err := g.dec.NewBatcher(nil, nn.BatcherConfig{}); return err },
		"snapshot": func() error { return g.runner(0).Resume(nil, nil) },
		"runner":   func() error { return new(nn.Runner).Step(bg, 1) },
		"asker":    func() error { _, err := new(nn.Runner).Ask(nil); return err },
	} {
		if err := f(); err == nil {
			t.Errorf("no %s: no error", what)
		}
	}
	new(nn.Runner).Close()
}
