package nn_test

import (
	"testing"

	"samebit/nn"
	"samebit/tensor"
)

// TestResumeAt goes on from a snapshot and a final row with the bits of the sequence
// that they are from, and runs no row for it.
func TestResumeAt(t *testing.T) {
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			g := newRig(t, model, 0)
			s := g.scripts(model)[0]
			a, b := g.runner(33), g.runner(5)
			g.must(a.Append(bg, s.rows[:77]))
			snap, err := a.Snapshot()
			g.must(err)
			defer snap.Release()
			g.must(b.Append(bg, s.rows[:9]))
			passes := 0
			b.Ctx().Trace = func(*nn.Ctx, int, tensor.Tensor) { passes++ }
			g.must(b.ResumeAt(s.rows[:77], snap, a.Hidden()))
			g.same("resumed", b.Logits(), s.logits[76])
			g.same("the hidden row", b.Hidden(), a.Hidden())
			if passes != 0 || b.Len() != 77 {
				t.Errorf("%d rows, %d blocks ran", b.Len(), passes)
			}
			b.Ctx().Trace = nil
			g.must(b.Rewind(bg, 77)) // the logits are here
			g.same("rewound to the end", b.Logits(), s.logits[76])
			g.must(b.Append(bg, s.rows[77:80]))
			g.same("and on", b.Logits(), s.logits[79])

			// What fails leaves the sequence as it was.
			for _, err := range []error{b.ResumeAt(s.rows[:77], snap, nil), b.ResumeAt(s.rows[:76], snap, a.Hidden()), b.ResumeAt(nil, nil, a.Hidden())} {
				if err == nil || b.Len() != 80 {
					t.Errorf("%v, %d rows", err, b.Len())
				}
			}
			g.same("after failures", b.Logits(), s.logits[79])
			b.Close()
			if b.ResumeAt(s.rows[:77], snap, a.Hidden()) == nil {
				t.Error("a closed runner resumes")
			}
		})
	}
	g := newRig(t, models[0], 0)
	batcher, err := g.dec.NewBatcher(g.dev, nn.BatcherConfig{})
	g.must(err)
	defer batcher.Close()
	r, err := g.dec.NewRunner(nil, g.pool, nn.RunnerConfig{Batcher: batcher})
	g.must(err)
	defer r.Close()
	g.must(r.Append(bg, g.scripts(models[0])[0].rows[:3]))
	snap, err := r.Snapshot()
	g.must(err)
	defer snap.Release()
	if r.ResumeAt(r.History(), snap, r.Hidden()) == nil {
		t.Error("a runner without a stream computed logits")
	}
	if _, err := r.Decide(bg, tokens(4), []nn.Question{{Options: []int32{1, 2}}}); err == nil || r.Len() != 3 {
		t.Errorf("a runner without a stream decided: %v, %d rows", err, r.Len())
	}
}
