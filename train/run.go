package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"samebit/backend"
	"samebit/checkpoint"
	"samebit/grad"
	"samebit/grad/journal"
	"samebit/grad/lm"
	"samebit/internal/wholefile"
	"samebit/nn"
	"samebit/qwen3"
	"samebit/tensor"
)

// Options steer a run. None of them changes a bit of the weights.
type Options struct {
	Device    backend.Device
	MicroRows int  // rows of a micro-batch; 0 means 1024
	Recompute bool // run blocks again in the backward pass instead of keeping what they computed
	Until     int  // stop after this step, with what was done saved; 0 means after the last
	Changed   bool // go on with a training of another config if this one would have made its steps
	// Progress, if set, is called after every step.
	Progress func(Step)
	// Folder replaces the directory's file system; nil means the operating system's.
	folder wholefile.Folder
}

// Step is what is known after a step of the training.
type Step struct {
	Step, Steps int
	Rows        int     // of the batch
	Loss        float32 // mean over the batch's rows, weighted
	Answers     float32 // mean over answer tokens
	Norm        float32 // of the gradient, before clipping
	Rate        float64
	Judgement   *Judgement // where the model was validated after this step
	Best        bool       // and is the best so far
}

// Result is what a training made.
type Result struct {
	Steps   int
	Params  int        // trained values
	Hash    string     // SHA-256 of the last values, float32, in order of name
	Best    *Judgement // of the model that was kept; nil without validation
	BestAt  int
	Stopped bool // early, for lack of improvement
}

// modelDir is a directory in that of a training, which samebit opens.
const modelDir = "model"

// Run trains in a directory, which it makes, and goes on there if a training of the
// same config was interrupted, with the bits of one that was not. A cancelled
// context saves what was done and is returned. It fails without changing the
// directory's files if they belong to another config, or the prose is not the text that
// the steps so far were made with.
//
// With Options.Changed it also goes on with a training of another config, if a training
// of this one would have come to the same state: equal are then the vocabulary, the
// model, the seed, the prose, the optimiser's constants, the data and the rate of every
// step that was made, and how a validation is made if there was one. The directory
// belongs to this config from then on.
func Run(ctx context.Context, cfg Config, dir string, opt Options) (Result, error) {
	if opt.Device == nil {
		return Result{}, errors.New("train: no device")
	}
	if err := cfg.check(); err != nil {
		return Result{}, fmt.Errorf("train: %w: %w", ErrConfig, err)
	}
	for _, d := range []string{dir, filepath.Join(dir, modelDir)} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			return Result{}, fmt.Errorf("train: %w", err)
		}
	}
	if opt.folder == nil {
		opt.folder = wholefile.OS(dir)
	}
	r := &run{cfg: cfg, dir: dir, opt: opt}
	if err := r.open(ctx); err != nil {
		r.close()
		return Result{}, err
	}
	defer r.close()
	return r.train(ctx)
}

// run is a training under way.
type run struct {
	cfg Config
	dir string
	opt Options

	prose  []string // SHA-256 of each prose file's text
	data   *data
	shape  qwen3.Config
	stream backend.Stream
	dec    *nn.Decoder
	params *grad.Params
	adam   *grad.AdamW
	lm     *lm.Trainer

	log    *journal.Journal
	best   *Judgement
	bestAt int
	bad    int // validations since
}

func (r *run) open(ctx context.Context) error {
	r.log = r.journal()
	var progress progress
	saved, changed, err := r.openState(&progress)
	if err != nil {
		return err
	}
	if saved != nil {
		defer saved.Close()
	}
	prose, sums, err := readProse(r.cfg.Prose)
	if err != nil {
		return err
	}
	r.prose = sums
	if err := r.sameProse(&progress); err != nil {
		return err
	}
	tok, err := r.tokenizer(ctx, prose, saved != nil)
	if err != nil {
		return err
	}
	if r.data, err = newData(&r.cfg, tok, prose); err != nil {
		return err
	}
	var config []byte
	if r.shape, config, err = r.cfg.shape(tok.Size()); err != nil {
		return err
	}
	if err := r.describe(config); err != nil {
		return err
	}
	dev := r.opt.Device
	values := map[string][]float32{}
	r.dec, err = load(ctx, dev, r.shape, func(p qwen3.Param) ([]float32, error) {
		values[p.Name] = first(&r.cfg, &r.shape, p)
		return values[p.Name], nil
	}, checkpoint.F32)
	if err != nil {
		return err
	}
	if r.stream, err = dev.NewStream(); err != nil {
		return err
	}
	if r.params, err = grad.NewParams(r.stream, dev); err != nil {
		return err
	}
	if err := watch(r.params, &r.shape, r.dec, func(p qwen3.Param) []float32 { return values[p.Name] }); err != nil {
		return err
	}
	o := r.cfg.Optimiser
	if r.adam, err = grad.NewAdamW(r.params, grad.AdamWConfig{Beta2: o.Beta2, Decay: o.Decay, Clip: o.Clip}); err != nil {
		return err
	}
	if r.lm, err = lm.New(dev, r.dec, r.params, lm.Config{MicroRows: r.opt.MicroRows, Checkpoint: r.opt.Recompute}); err != nil {
		return err
	}
	if saved == nil {
		return nil
	}
	if err := r.resume(saved, progress); err != nil || !changed {
		return err
	}
	return r.save()
}

func (r *run) close() {
	if r.lm != nil {
		r.lm.Close()
	}
	if r.params != nil {
		r.params.Close()
	}
	if r.dec != nil {
		r.dec.Close()
	}
	if r.stream != nil {
		r.stream.Close()
	}
}

func (r *run) train(ctx context.Context) (Result, error) {
	every := r.cfg.Save
	if every == 0 {
		every = 100
	}
	v := r.cfg.Validation
	stopped := v.Patience > 0 && r.bad >= v.Patience
	last := r.cfg.Steps()
	if r.opt.Until > 0 {
		last = min(last, r.opt.Until)
	}
	for n := r.adam.Steps + 1; n <= last && !stopped; n++ {
		s, err := r.step(ctx, n)
		if err != nil {
			if ctx.Err() != nil {
				// A failed save is no context.Canceled, after which a caller takes the steps for saved.
				if failed := r.save(); failed != nil {
					return Result{}, fmt.Errorf("train: stopped after step %d, and saving it failed: %w", r.adam.Steps, failed)
				}
			}
			return Result{}, err
		}
		if r.cfg.judged(n) {
			// A cancelled training waits for it, or what is saved would lack it.
			if err := r.validate(context.WithoutCancel(ctx), &s); err != nil {
				return Result{}, err
			}
			stopped = v.Patience > 0 && r.bad >= v.Patience
		}
		r.log.Lines = append(r.log.Lines, s.line())
		if n%every == 0 || n == last || stopped {
			if err := r.save(); err != nil {
				return Result{}, err
			}
		}
		if r.opt.Progress != nil {
			r.opt.Progress(s)
		}
	}
	if r.best == nil {
		if err := r.export(); err != nil {
			return Result{}, err
		}
	}
	hash, err := journal.Hash(r.stream, r.params)
	return Result{r.adam.Steps, r.params.Len(), hash, r.best, r.bestAt, stopped}, err
}

func (r *run) step(ctx context.Context, n int) (Step, error) {
	batch := r.data.batch(n)
	losses, err := r.lm.Backward(ctx, batch)
	if err != nil {
		return Step{}, errors.Join(err, r.params.Zero())
	}
	rate := r.cfg.rate(n)
	norm, err := r.adam.Step(rate)
	if err != nil {
		return Step{}, fmt.Errorf("train: step %d: %w: a lower rate or more warmup may help", n, err)
	}
	s := Step{Step: n, Steps: r.cfg.Steps(), Loss: grad.Mean(losses), Norm: norm, Rate: rate}
	var answers []float32
	at := 0
	for _, q := range batch {
		s.Rows += len(q.Tokens)
		for i, t := range q.Targets {
			if t < 0 {
				continue
			}
			if q.Weights != nil && q.Weights[i] == 1 {
				answers = append(answers, losses[at])
			}
			at++
		}
	}
	s.Answers = grad.Mean(answers)
	return s, nil
}

func (r *run) validate(ctx context.Context, s *Step) error {
	v := &r.cfg.Validation
	j, err := r.data.judge(ctx, r.opt.Device, r.dec, forValidation, v.Lengths, v.samples(), 8192, nil)
	if err != nil {
		return err
	}
	s.Judgement = j
	if r.best != nil && !j.better(r.best) {
		r.bad++
		return nil
	}
	s.Best = true
	r.best, r.bestAt, r.bad = j, s.Step, 0
	return r.export()
}

// values reads what a parameter has become, as files store it.
func (r *run) values(p *grad.Param) ([]float32, error) {
	v := make([]float32, p.Value.Len())
	r.stream.Read(tensor.AsBytes(v), p.Value)
	return v, r.stream.Sync()
}
