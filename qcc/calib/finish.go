package calib

import (
	"context"
	"maps"

	"samebit/grad/journal"
	"samebit/qcc"
)

// finish takes the parameters that are kept and says what became of it all.
func (r *run) finish(ctx context.Context) (*qcc.Adapter, *Report, error) {
	rep := &Report{RunID: r.log.Config, Model: r.teacher.ID.String(), Steps: r.adam.Steps, Selected: r.adam.Steps, Stopped: r.stopped(),
		Layers: r.from.Layers, Trained: r.blocks(), Train: len(r.lessons), HeldOut: len(r.heldOut), Skipped: r.skipped, Trainable: r.params.Len(),
		Before: r.before, After: r.best, Gate: r.o.Gate, Options: r.o}
	if r.best != nil {
		rep.Selected = r.bestAt
		if err := r.set(r.kept); err != nil {
			return nil, nil, err
		}
	}
	var err error
	if rep.Training, err = r.evaluate(ctx, r.patched.Decoder, r.lessons); err != nil {
		return nil, nil, err
	}
	judged := &rep.Training
	if r.best != nil {
		judged = r.best
		rep.WindowRows = WindowRows(r.from.Config)
		bare, err := Windowed(r.teacher, r.from.Layers, rep.WindowRows)
		if err != nil {
			return nil, nil, err
		}
		f, err := r.evaluate(ctx, bare, r.heldOut)
		if err != nil {
			return nil, nil, err
		}
		rep.Window = &f
	}
	rep.Passed = judged.Score() >= r.o.Gate
	if rep.Hash, err = journal.Hash(r.stream, r.params); err != nil {
		return nil, nil, err
	}
	if err := r.patched.Pull(); err != nil {
		return nil, nil, err
	}
	out := r.patched.Adapter(r.manifest(rep, judged))
	out.Config, out.ExactPrefill = r.from.Config, r.from.ExactPrefill
	if n := out.Manifest.ParameterCount; n > 0 {
		rep.Fraction = float64(rep.Trainable) / float64(n)
	}
	if r.o.Dir != "" {
		err = publish(r.log, out, rep)
	}
	return out, rep, err
}

// manifest is what the adapter's file says of its calibration.
func (r *run) manifest(rep *Report, f *Fidelity) qcc.Manifest {
	m := r.from.Manifest
	m.RunID = rep.RunID
	t := &m.Retrofit
	t.Calibrated, t.TrainChunks, t.HeldOutChunks = rep.Trained, rep.Train, rep.HeldOut
	t.CodeInit, t.CodeInitTokens = string(r.o.CodeInit), r.o.CodeTokens
	t.AttentionWeight, t.LongRangeOnly = float64(r.o.Attention), !r.o.AllRows
	t.Validation = maps.Clone(t.Validation)
	if t.Validation == nil {
		t.Validation = map[string]float64{}
	}
	maps.Copy(t.Validation, map[string]float64{"mean_logit_cosine": f.Cosine, "top1_agreement": f.Top1, "kl": f.KL, "max_abs_logit_diff": float64(f.Worst), "step": float64(rep.Selected)})
	return m
}
