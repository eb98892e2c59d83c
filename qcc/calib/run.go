package calib

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"samebit/backend"
	"samebit/checkpoint"
	"samebit/grad"
	"samebit/grad/journal"
	"samebit/grad/lm"
	"samebit/nn"
	"samebit/qcc"
	"samebit/tensor"
)

// Data are sequences of tokens. Those that the window covers are left out.
type Data struct {
	Train, HeldOut [][]int32
}

// fit refuses sequences that a model cannot read.
func (d Data) fit(m *nn.Decoder) error {
	for _, list := range [][][]int32{d.Train, d.HeldOut} {
		for _, s := range list {
			if m.Context > 0 && len(s) > m.Context {
				return fmt.Errorf("calib: a sequence of %d tokens, the model's context is %d: cut shorter ones: %w", len(s), m.Context, ErrOptions)
			}
			for _, id := range s {
				if id < 0 || int(id) >= m.Vocab {
					return fmt.Errorf("calib: a sequence has token %d, the model's vocabulary has %d: %w", id, m.Vocab, ErrOptions)
				}
			}
		}
	}
	return nil
}

// Run calibrates an adapter of a model, the teacher, and returns a new one with a
// report. With held-out sequences it keeps the parameters that were best there, those
// that it began with among them; without, the last. A directory that holds a
// calibration of the same model, adapter, data and options is gone on from, with the
// bits of one that nothing interrupted; a cancelled context saves what was done.
// After an error a and the files are as they were, or as the last step saved them.
//
// It fails with ErrOptions, ErrNothing, ErrNonFinite, qcc.ErrUntrainable, and with
// backend.ErrUnsupported on devices that cannot train.
func Run(ctx context.Context, dev backend.Device, teacher *nn.Decoder, a *qcc.Adapter, data Data, o Options) (*qcc.Adapter, *Report, error) {
	r := &run{session: session{dev: dev, teacher: teacher, from: a}, o: o}
	defer r.close()
	if err := r.open(ctx, data); err != nil {
		return nil, nil, err
	}
	if err := r.train(ctx); err != nil {
		return nil, nil, err
	}
	return r.finish(ctx)
}

// run is a calibration under way.
type run struct {
	session
	o Options

	first   int // first row beyond the window
	lessons []*lesson
	heldOut []*lesson

	head *head
	lm   *lm.Trainer

	now *watching // the pass that is seen

	before *Fidelity
	best   *Fidelity
	bestAt int
	bad    int // validations since
	kept   map[string][]float32
}

func (r *run) open(ctx context.Context, data Data) error {
	if r.dev == nil || r.teacher == nil || r.from == nil || r.teacher.Head == nil {
		return fmt.Errorf("calib: want a device, a model with a head and an adapter: %w", ErrOptions)
	}
	if err := r.o.Check(); err != nil {
		return err
	}
	dense := *r.from
	var err error
	if dense.Config, err = trainable(dense.Config); err != nil {
		return err
	}
	if r.chosen, err = ChooseLayers(r.o.Layers, len(r.from.Layers)); err != nil {
		return err
	}
	if err := data.fit(r.teacher); err != nil {
		return err
	}
	id, err := runID(r.teacher.ID, r.from, data, r.o)
	if err != nil {
		return err
	}
	r.first = dense.Config.From()
	if err := r.longer(&data, dense.Config.Window, dense.Config.Sinks); err != nil {
		return err
	}
	var p progress
	saved, err := r.openLog(&journal.Journal{Kind: "calibration", Config: id, Columns: columns, Required: required, Dir: r.o.Dir, Folder: r.o.folder}, &p)
	if err != nil {
		return err
	}
	if saved != nil {
		defer saved.Close()
	}
	if r.stream, err = r.dev.NewStream(); err != nil {
		return fmt.Errorf("calib: %w", err)
	}
	if r.head, err = newHead(r.dev, r.stream, r.teacher); err != nil {
		return err
	}
	if r.reader, err = newReader(r.dev, r.stream); err != nil {
		return err
	}
	if r.patched, err = qcc.Patch(r.dev, r.teacher, &dense); err != nil {
		return err
	}
	if r.heldOut, _, err = r.learn(ctx, data.HeldOut, false); err != nil {
		return err
	}
	if saved == nil && len(r.heldOut) > 0 {
		f, err := r.evaluate(ctx, r.patched.Decoder, r.heldOut)
		if err != nil {
			return err
		}
		r.before, r.best = &f, &f
	}
	if err := r.watchParams(); err != nil {
		return err
	}
	if saved == nil && r.best != nil {
		if r.kept, err = readAll(r.params, r.stream); err != nil {
			return err
		}
	}
	var found [][][]float32
	if r.lessons, found, err = r.learn(ctx, data.Train, true); err != nil {
		return err
	}
	if err := r.firstCodes(found); err != nil {
		return err
	}
	student := r.patched.Decoder
	if r.o.Attention > 0 {
		student = watch(student, r.blocks(), r.see)
	}
	if r.lm, err = lm.New(r.dev, student, r.params, lm.Config{MicroRows: r.o.MicroRows}); err != nil {
		return err
	}
	if saved == nil {
		return nil
	}
	if err := r.log.Resume(saved, &p, r.o.Steps, r.stream, r.params, r.adam); err != nil {
		return err
	}
	r.before, r.best, r.bestAt, r.bad = p.Before, p.Best, p.BestAt, p.Bad
	if r.best == nil {
		return nil
	}
	r.kept = map[string][]float32{}
	for x := range r.params.All() {
		if r.kept[x.Name], err = r.log.Vector(saved, "best."+x.Name, x.Value.Len()); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) close() {
	if r.lm != nil {
		r.lm.Close()
	}
	if r.head != nil {
		r.head.close()
	}
	r.session.close()
}

// learn runs sequences through the teacher. Of those to train on it also keeps what
// the chosen layers gave, and returns, for each chosen layer and key head, keys that
// codes can be made from.
func (r *run) learn(ctx context.Context, list [][]int32, train bool) ([]*lesson, [][][]float32, error) {
	c := &r.from.Config
	heads := c.KV
	if heads == 0 {
		heads = c.Heads
	}
	found := make([][][]float32, len(r.chosen)*heads) // [layer·heads][T][Dim]
	var out []*lesson
	for _, tokens := range list {
		l := &lesson{tokens: tokens, from: r.first}
		if r.o.AllRows {
			l.from = 0
		}
		outputs := train && r.o.Attention > 0
		if outputs {
			l.at = rows(l.from, len(tokens)-1, r.o.AttentionRows)
			l.outs = make([][]float32, len(r.chosen))
		}
		var failed error
		teacher := r.teacher
		if train {
			teacher = watch(teacher, r.blocks(), func(i int, c *nn.Ctx, dst, x tensor.Tensor) {
				if outputs {
					v, err := picked(c, dst, l.at)
					failed = errors.Join(failed, err)
					l.outs[i] = v
				}
				if r.o.CodeInit == Random {
					return
				}
				a := r.teacher.Blocks[r.from.Layers[r.chosen[i]]].Mix.(*nn.Attention)
				v, err := picked(c, keys(c, a, x, r.keyRotation(a)), rows(0, len(tokens)-1, r.o.CodeTokens))
				failed = errors.Join(failed, err)
				for ; len(v) > 0; v = v[heads*a.Dim:] {
					for h := range heads {
						found[i*heads+h] = append(found[i*heads+h], slices.Clone(v[h*a.Dim:(h+1)*a.Dim]))
					}
				}
			})
		}
		var err error
		if l.final, err = r.reader.final(ctx, teacher, tokens, l.from); err == nil {
			err = failed
		}
		if err != nil {
			return nil, nil, err
		}
		out = append(out, l)
	}
	return out, found, nil
}

// keyRotation is that of the keys that codes are made from: whitened ones are what
// the memory sees, the others directions before any rotation.
func (r *run) keyRotation(a *nn.Attention) *backend.RoPE {
	if r.o.CodeInit == Whitened && !r.from.Config.PositionInvariant {
		return a.RoPE
	}
	return nil
}

// watchParams makes the chosen layers' parameters trainable.
func (r *run) watchParams() (err error) {
	if r.params, err = grad.NewParams(r.stream, r.dev); err != nil {
		return fmt.Errorf("calib: %w", err)
	}
	blocks := r.blocks()
	if err := watchTrained(r.params, r.stream, r.patched, func(t qcc.Trained) bool { return slices.Contains(blocks, t.Layer) }); err != nil {
		return err
	}
	r.adam, err = grad.NewAdamW(r.params, grad.AdamWConfig{Decay: r.o.Decay, Clip: r.o.Clip})
	return err
}

// watchTrained adds those parameters of a retrofit that are wanted, with weight decay
// on all.
func watchTrained(params *grad.Params, s backend.Stream, p *qcc.Patched, want func(qcc.Trained) bool) error {
	for _, t := range p.Trained() {
		if !want(t) {
			continue
		}
		v := make([]float32, t.Tensor.Len())
		s.Read(tensor.AsBytes(v), t.Tensor)
		if err := s.Sync(); err != nil {
			return fmt.Errorf("calib: %w", err)
		}
		x, err := params.AddTensor(fmt.Sprintf("layers.%d.%s", t.Layer, t.Name), t.Tensor, grad.Plain, v)
		if err != nil {
			return fmt.Errorf("calib: %w", err)
		}
		x.NoDecay = false
	}
	return nil
}

// readAll reads what parameters have become, by name.
func readAll(params *grad.Params, s backend.Stream) (map[string][]float32, error) {
	out := map[string][]float32{}
	for x := range params.All() {
		v := make([]float32, x.Value.Len())
		s.Read(tensor.AsBytes(v), x.Value)
		out[x.Name] = v
	}
	return out, s.Sync()
}

// firstCodes makes the codes that the training begins with from the teacher's keys.
func (r *run) firstCodes(found [][][]float32) error {
	c := &r.from.Config
	heads := len(found) / len(r.chosen)
	values, err := readAll(r.params, r.stream)
	if err != nil {
		return err
	}
	for i, block := range r.blocks() {
		if r.o.CodeInit == Whitened {
			r.whitened(values, block, found[i*heads:(i+1)*heads])
			continue
		}
		if c.Memory == qcc.MemoryDelta { // which has no codes
			continue
		}
		name := fmt.Sprintf("layers.%d.codes", block)
		all := values[name]
		per := c.Codes * c.Dim
		archives := len(all) / per
		for h := range archives {
			old := make([][]float32, c.Codes)
			for m := range old {
				at := h*per + m*c.Dim
				old[m] = all[at : at+c.Dim]
			}
			own := found[i*heads+h/(archives/heads)] // an archive may have its key head's neighbours
			keys := make([][]float32, len(own))
			for k := range own {
				keys[k] = slices.Clone(own[k])
			}
			codes(r.o.CodeInit, old, keys)
		}
	}
	return r.set(values)
}

// set writes values by name.
func (r *run) set(values map[string][]float32) error {
	for x := range r.params.All() {
		r.stream.Write(x.Value, tensor.AsBytes(values[x.Name]))
	}
	return r.params.Refresh()
}

// evaluate measures a student as it is, the mean over sequences.
func (r *run) evaluate(ctx context.Context, student *nn.Decoder, list []*lesson) (Fidelity, error) {
	var sum Fidelity
	for _, l := range list {
		final, err := r.reader.final(ctx, student, l.tokens, r.first)
		if err != nil {
			return sum, err
		}
		f, err := compare(r.head, r.head, final, l.final[(r.first-l.from)*r.teacher.Hidden:])
		if err != nil {
			return sum, err
		}
		sum.add(f)
	}
	sum.mean(len(list))
	return sum, checkFinite(r.steps(), float32(sum.Cosine), float32(sum.KL))
}

// steps is the number of steps made.
func (r *run) steps() int {
	if r.adam == nil {
		return 0
	}
	return r.adam.Steps
}

func (r *run) train(ctx context.Context) error {
	schedule := grad.Schedule{Peak: r.o.Rate, Warmup: r.o.Warmup, Total: r.o.Steps, Floor: r.o.Floor}
	last := r.o.Steps
	if r.o.Until > 0 {
		last = min(last, r.o.Until)
	}
	for n := r.adam.Steps + 1; n <= last && !r.stopped(); n++ {
		s, err := r.step(ctx, n, schedule.At(n))
		if err != nil {
			err = errors.Join(err, r.params.Zero())
			if ctx.Err() != nil {
				if failed := r.save(); failed != nil {
					return unsaved(r.adam.Steps, failed)
				}
			}
			return err
		}
		if len(r.heldOut) > 0 && (n%r.o.Interval == 0 || n == r.o.Steps) {
			// A cancelled calibration waits for it, or what is saved would lack it.
			if err := r.validate(context.WithoutCancel(ctx), &s); err != nil {
				return err
			}
		}
		r.log.Lines = append(r.log.Lines, s.line())
		if n%r.o.Save == 0 || n == last || r.stopped() {
			if err := r.save(); err != nil {
				return err
			}
		}
		if r.o.Progress != nil {
			r.o.Progress(s)
		}
	}
	return nil
}

// unsaved is the error of a cancelled calibration that could not save what was done. It
// is not context.Canceled, after which a caller takes that for saved.
func unsaved(steps int, err error) error {
	return fmt.Errorf("calib: stopped after step %d, and saving it failed: %w", steps, err)
}

// stopped reports whether the calibration is over for lack of improvement.
func (r *run) stopped() bool { return r.o.Patience > 0 && r.bad >= r.o.Patience }

func (r *run) validate(ctx context.Context, s *Step) error {
	f, err := r.evaluate(ctx, r.patched.Decoder, r.heldOut)
	if err != nil {
		return err
	}
	s.HeldOut = &f
	if f.Score() <= r.best.Score() {
		r.bad++
		return nil
	}
	if r.kept, err = readAll(r.params, r.stream); err != nil {
		return err
	}
	s.Best = true
	r.best, r.bestAt, r.bad = &f, s.Step, 0
	return nil
}

func (r *run) save() error {
	if r.o.Dir == "" {
		return nil
	}
	return r.log.Save(r.stream, r.adam, &progress{Before: r.before, Best: r.best, BestAt: r.bestAt, Bad: r.bad}, r.keptEntries()...)
}

// keptEntries hold the parameters kept so far.
func (r *run) keptEntries() []checkpoint.Entry {
	var l []checkpoint.Entry
	for _, name := range slices.Sorted(maps.Keys(r.kept)) {
		l = append(l, journal.Entry("best."+name, r.kept[name]))
	}
	return l
}
