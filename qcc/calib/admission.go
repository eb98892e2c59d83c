package calib

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"samebit/backend"
	"samebit/grad"
	"samebit/grad/journal"
	"samebit/internal/wholefile"
	"samebit/nn"
	"samebit/qcc"
	"samebit/tensor"
)

// AdmissionOptions say how an exact tier learns which events to keep. Begin with
// [DefaultAdmission]. The fields up to Save decide bits.
type AdmissionOptions struct {
	Steps   int     `json:"steps"`
	Layers  string  `json:"layers"` // see [ChooseLayers]
	Rate    float64 `json:"rate"`
	Decay   float64 `json:"decay"`
	Clip    float64 `json:"clip"`
	Queries int     `json:"queries"` // of a sequence, at most, that say which keys matter
	Top     int     `json:"top"`     // keys of a query that count
	Share   float64 `json:"share"`   // of the keys that should be kept

	Save     int                 `json:"-"` // steps between states in the directory
	Dir      string              `json:"-"` // where the files go; empty: none are kept
	Progress func(AdmissionStep) `json:"-"` // called after each step
	folder   wholefile.Folder
}

// DefaultAdmission are the published options.
func DefaultAdmission() AdmissionOptions {
	return AdmissionOptions{Steps: 100, Layers: "all", Rate: 0.02, Decay: 0.01, Clip: 1, Queries: 128, Top: 8, Share: 0.02, Save: 10}
}

// Check reports the first option that is wrong, with ErrOptions.
func (o *AdmissionOptions) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("calib: "+format+": %w", append(args, ErrOptions)...)
	}
	switch {
	case o.Steps < 1 || o.Steps > 1<<24:
		return bad("%d steps: want at least 1", o.Steps)
	case !(o.Rate > 0 && o.Rate < 1):
		return bad("learning rate %v: want it between 0 and 1", o.Rate)
	case !(o.Decay >= 0 && o.Decay < 1) || !(o.Clip >= 0) || math.IsInf(o.Clip, 1):
		return bad("weight decay %v, gradient clipped at %v: want 0 to 1, and a norm or 0 for none", o.Decay, o.Clip)
	case o.Queries < 1 || o.Top < 1:
		return bad("the %d largest weights of %d queries: want at least 1 of each", o.Top, o.Queries)
	case !(o.Share > 0 && o.Share <= 1):
		return bad("a share of %v of the keys: want it above 0 and at most 1", o.Share)
	case o.Save < 1:
		return bad("files are saved every %d steps: want at least 1", o.Save)
	}
	return nil
}

// AdmissionStep is what is known after a step.
type AdmissionStep struct {
	Step, Steps int
	Loss        float32
	Norm        float32 // of the gradient, before clipping
}

// Hits counts what an admission predictor at logit 0 would keep.
type Hits struct {
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F1        float64 `json:"f1"`
	Accuracy  float64 `json:"accuracy"`
	Keys      int     `json:"keys"`
}

// AdmissionReport is what a calibration of the admission made.
type AdmissionReport struct {
	RunID   string           `json:"run_id"`
	Model   string           `json:"model"`
	Steps   int              `json:"steps"`
	Layers  []int            `json:"calibrated_layers"`
	Train   int              `json:"num_train_chunks"`
	HeldOut int              `json:"num_held_out_chunks"`
	Skipped int              `json:"skipped_chunks"`
	Before  Hits             `json:"train_before"`
	After   Hits             `json:"train"`
	Held    *Hits            `json:"held_out,omitempty"`
	Hash    string           `json:"hash"`
	Options AdmissionOptions `json:"options"`
}

// WithExact is an adapter whose layers have an exact tier besides: what a has, and an
// admission that admits nothing yet.
func WithExact(dev backend.Device, d *nn.Decoder, a *qcc.Adapter, e *qcc.Exact) (*qcc.Adapter, error) {
	if a == nil || e == nil {
		return nil, fmt.Errorf("calib: an exact tier wants an adapter and what the tier is like: %w", ErrOptions)
	}
	c := a.Config
	c.Exact = e
	kv := qcc.KVRepeat
	if c.Share {
		kv = qcc.KVShare
	}
	n, err := qcc.NewAdapter(d, qcc.Retrofit{Layers: a.Layers, KV: kv, Config: c, ExactPrefill: a.ExactPrefill}, 0)
	if err != nil {
		return nil, err
	}
	p, err := qcc.Patch(dev, d, n)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if err := p.Set(a); err != nil {
		return nil, err
	}
	return p.Adapter(a.Manifest), nil
}

// RunAdmission teaches the exact tier of an adapter which events to keep: those that
// the teacher's later queries look at. It returns a new adapter with a report, and
// goes on from an interrupted one as [Run] does.
func RunAdmission(ctx context.Context, dev backend.Device, teacher *nn.Decoder, a *qcc.Adapter, data Data, o AdmissionOptions) (*qcc.Adapter, *AdmissionReport, error) {
	r := &admission{session: session{dev: dev, teacher: teacher, from: a}, o: o}
	defer r.close()
	if err := r.open(ctx, data); err != nil {
		return nil, nil, err
	}
	if err := r.train(ctx); err != nil {
		return nil, nil, err
	}
	return r.finish()
}

// notes are what one sequence teaches one layer.
type notes struct {
	keys, values [][][]float32 // unit vectors [key head][T][Dim]
	labels       [][]bool      // [head][T]
}

type admission struct {
	session
	o AdmissionOptions

	lessons [][]*notes // [sequence][chosen layer]
	heldOut [][]*notes
	before  Hits
}

func (r *admission) open(ctx context.Context, data Data) error {
	if r.dev == nil || r.teacher == nil || r.from == nil {
		return fmt.Errorf("calib: want a device, a model and an adapter: %w", ErrOptions)
	}
	if err := r.o.Check(); err != nil {
		return err
	}
	c := r.from.Config
	switch {
	case c.Exact == nil:
		return fmt.Errorf("calib: the adapter has no exact tier: add one with WithExact: %w", qcc.ErrUntrainable)
	case c.Exact.QualityFirst:
		return fmt.Errorf("calib: an exact tier that scores by the query of the moment has no admission to learn: %w", ErrNothing)
	}
	err := data.fit(r.teacher)
	if err != nil {
		return err
	}
	if r.chosen, err = ChooseLayers(r.o.Layers, len(r.from.Layers)); err != nil {
		return err
	}
	id, err := runID(r.teacher.ID, r.from, data, r.o)
	if err != nil {
		return err
	}
	if err := r.longer(&data, c.Window, 0); err != nil {
		return err
	}
	var p progress
	saved, err := r.openLog(&journal.Journal{Kind: "admission", Config: id, Columns: []string{"step", "loss", "norm"}, Required: 3, Dir: r.o.Dir, Folder: r.o.folder}, &p)
	if err != nil {
		return err
	}
	if saved != nil {
		defer saved.Close()
	}
	if r.stream, err = r.dev.NewStream(); err != nil {
		return fmt.Errorf("calib: %w", err)
	}
	if r.reader, err = newReader(r.dev, r.stream); err != nil {
		return err
	}
	if r.patched, err = qcc.Patch(r.dev, r.teacher, r.from); err != nil { // before layers of the teacher are watched that it may not have
		return err
	}
	if r.lessons, err = r.learn(ctx, data.Train); err != nil {
		return err
	}
	if r.heldOut, err = r.learn(ctx, data.HeldOut); err != nil {
		return err
	}
	if r.params, err = grad.NewParams(r.stream, r.dev); err != nil {
		return fmt.Errorf("calib: %w", err)
	}
	chosen := r.blocks()
	err = watchTrained(r.params, r.stream, r.patched, func(t qcc.Trained) bool {
		return slices.Contains(chosen, t.Layer) && (t.Name == "adm_key" || t.Name == "adm_value" || t.Name == "adm_bias")
	})
	if err != nil {
		return err
	}
	if r.adam, err = grad.NewAdamW(r.params, grad.AdamWConfig{Decay: r.o.Decay, Clip: r.o.Clip}); err != nil {
		return err
	}
	heads, err := r.predictors()
	if err != nil {
		return err
	}
	r.before = r.hits(heads, r.lessons)
	if saved == nil {
		return nil
	}
	return r.log.Resume(saved, &p, r.o.Steps, r.stream, r.params, r.adam)
}

// split reads [R, heads·Dim] as [head][R][Dim].
func split(c *nn.Ctx, x tensor.Tensor, heads int) [][][]float32 {
	v := make([]float32, x.Len())
	c.Stream.Read(tensor.AsBytes(v), x)
	out := make([][][]float32, heads)
	d := x.Dim(1) / heads
	for ; len(v) > 0; v = v[heads*d:] {
		for h := range heads {
			out[h] = append(out[h], v[h*d:(h+1)*d:(h+1)*d])
		}
	}
	return out
}

// learn runs sequences through the teacher and notes which keys its queries look at,
// by rotated or by plain coordinates, whichever is more.
func (r *admission) learn(ctx context.Context, list [][]int32) ([][]*notes, error) {
	c := &r.from.Config
	var out [][]*notes
	for _, tokens := range list {
		all := make([]*notes, len(r.chosen))
		blocks := r.blocks()
		seen := watch(r.teacher, blocks, func(i int, x *nn.Ctx, _, in tensor.Tensor) {
			a := r.teacher.Blocks[blocks[i]].Mix.(*nn.Attention)
			n := &notes{}
			var scores [][]float32
			for _, rope := range []*backend.RoPE{a.RoPE, nil} {
				q, k := split(x, queries(x, a, in, rope), a.Heads), split(x, keys(x, a, in, rope), a.KV)
				for h := range a.Heads {
					s := salience(q[h], k[h/(a.Heads/a.KV)], c.Window, r.o.Queries, r.o.Top)
					if len(scores) <= h {
						scores = append(scores, s)
						continue
					}
					for t := range s {
						scores[h][t] = max(scores[h][t], s[t])
					}
				}
				if (rope == nil) == c.PositionInvariant || a.RoPE == nil {
					n.keys = k
				}
			}
			for _, s := range scores {
				n.labels = append(n.labels, labels(s, r.o.Share))
			}
			n.values = split(x, linear(x, in, a.V, a.BV), a.KV)
			for _, heads := range [][][][]float32{n.keys, n.values} {
				for _, h := range heads {
					for _, v := range h {
						unit(v)
					}
				}
			}
			all[i] = n
		})
		if _, err := r.reader.final(ctx, seen, tokens, len(tokens)-1); err != nil {
			return nil, err
		}
		out = append(out, all)
	}
	return out, nil
}

// predictors reads those of every chosen layer and head.
func (r *admission) predictors() ([][]predictor, error) {
	values, err := readAll(r.params, r.stream)
	if err != nil {
		return nil, err
	}
	return r.cut(values), nil
}

// cut divides values by name among layers and heads, sharing their memory.
func (r *admission) cut(values map[string][]float32) [][]predictor {
	d := r.from.Config.Dim
	out := make([][]predictor, len(r.chosen))
	for i, l := range r.chosen {
		at := func(name string) []float32 { return values[fmt.Sprintf("layers.%d.%s", r.from.Layers[l], name)] }
		k, v, b := at("adm_key"), at("adm_value"), at("adm_bias")
		for h := range b {
			out[i] = append(out[i], predictor{k[h*d : (h+1)*d], v[h*d : (h+1)*d], b[h : h+1]})
		}
	}
	return out
}

// positives is how much a key counts that should be admitted.
func positives(labels [][]bool) float32 {
	yes, no := 0, 0
	for _, h := range labels {
		for _, y := range h {
			if y {
				yes++
			} else {
				no++
			}
		}
	}
	return float32(max(no, 1)) / float32(max(yes, 1))
}

// layer is the loss of one layer on one sequence, the mean over heads and rows; its
// gradient times scale is added to that of heads.
func layer(n *notes, heads, gradient []predictor, scale float32) float32 {
	pos := positives(n.labels)
	var losses []float32
	group := len(n.labels) / len(n.keys)
	total := float32(len(n.labels) * len(n.labels[0]))
	for h, yes := range n.labels {
		k, v := n.keys[h/group], n.values[h/group]
		slopes := make([]float32, len(yes))
		for t, y := range yes {
			l, s := entropy(heads[h].logit(k[t], v[t]), y, pos)
			losses = append(losses, l)
			slopes[t] = s * (scale / total)
		}
		if gradient != nil {
			gradient[h].add(slopes, k, v)
		}
	}
	return mean(losses)
}

func (r *admission) train(ctx context.Context) error {
	for n := r.adam.Steps + 1; n <= r.o.Steps; n++ {
		if err := ctx.Err(); err != nil {
			if failed := r.save(); failed != nil {
				return unsaved(r.adam.Steps, failed)
			}
			return fmt.Errorf("calib: %w", err)
		}
		heads, err := r.predictors()
		if err != nil {
			return err
		}
		gradient := map[string][]float32{}
		for x := range r.params.All() {
			gradient[x.Name] = make([]float32, x.Value.Len())
		}
		s := AdmissionStep{Step: n, Steps: r.o.Steps}
		scale := 1 / float32(len(r.chosen))
		cut := r.cut(gradient)
		for i, notes := range r.lessons[(n-1)%len(r.lessons)] {
			s.Loss += float32(layer(notes, heads[i], cut[i], scale) * scale)
		}
		if err := checkFinite(n, s.Loss); err != nil {
			return err
		}
		for x := range r.params.All() {
			r.stream.Write(x.Grad, tensor.AsBytes(gradient[x.Name]))
		}
		if s.Norm, err = r.adam.Step(r.o.Rate); err != nil {
			return errors.Join(checkFinite(n, s.Norm), err)
		}
		f := journal.Number
		r.log.Lines = append(r.log.Lines, []string{strconv.Itoa(n), f(float64(s.Loss), 32), f(float64(s.Norm), 32)})
		if n%r.o.Save == 0 || n == r.o.Steps {
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

func (r *admission) save() error {
	if r.o.Dir == "" {
		return nil
	}
	return r.log.Save(r.stream, r.adam, &progress{})
}

// hits counts what predictors admit.
func (r *admission) hits(heads [][]predictor, lessons [][]*notes) Hits {
	var right, found, yes, all int // admitted rightly, admitted, to be admitted
	same := 0
	for _, lesson := range lessons {
		for i, n := range lesson {
			group := len(n.labels) / len(n.keys)
			for h := range n.labels {
				for t, y := range n.labels[h] {
					got := heads[i][h].logit(n.keys[h/group][t], n.values[h/group][t]) >= 0
					all++
					if y {
						yes++
					}
					if got {
						found++
					}
					if got && y {
						right++
					}
					if got == y {
						same++
					}
				}
			}
		}
	}
	share := func(n, of int) float64 { return float64(n) / float64(max(1, of)) }
	return Hits{share(right, found), share(right, yes), share(2*right, found+yes), share(same, all), all}
}

func (r *admission) finish() (*qcc.Adapter, *AdmissionReport, error) {
	heads, err := r.predictors()
	if err != nil {
		return nil, nil, err
	}
	rep := &AdmissionReport{RunID: r.log.Config, Model: r.teacher.ID.String(), Steps: r.adam.Steps, Train: len(r.lessons), HeldOut: len(r.heldOut), Skipped: r.skipped,
		Before: r.before, After: r.hits(heads, r.lessons), Options: r.o}
	for _, l := range r.chosen {
		rep.Layers = append(rep.Layers, r.from.Layers[l])
	}
	if len(r.heldOut) > 0 {
		h := r.hits(heads, r.heldOut)
		rep.Held = &h
	}
	if rep.Hash, err = journal.Hash(r.stream, r.params); err != nil {
		return nil, nil, err
	}
	if err := r.patched.Pull(); err != nil {
		return nil, nil, err
	}
	m := r.from.Manifest
	m.RunID = rep.RunID
	m.Retrofit.Validation = maps.Clone(m.Retrofit.Validation)
	if m.Retrofit.Validation == nil {
		m.Retrofit.Validation = map[string]float64{}
	}
	judged := rep.After
	if rep.Held != nil {
		judged = *rep.Held
	}
	m.Retrofit.Validation["admission_precision"], m.Retrofit.Validation["admission_recall"] = judged.Precision, judged.Recall
	out := r.patched.Adapter(m)
	if r.o.Dir != "" {
		err = publish(r.log, out, rep)
	}
	return out, rep, err
}
