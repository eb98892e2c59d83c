package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"samebit"
	"samebit/internal/wholefile"
	"samebit/qcc"
	"samebit/qcc/calib"
	"samebit/train"
)

// calibrateFlags are those of calibrate.
type calibrateFlags struct {
	mf      modelFlags
	mode    string
	adapter string
	seed    uint64

	heldOut             []string
	rows, chunks, held  int
	tasks, heldTasks    int
	memory              string
	window, codes       int
	scales, rank, sinks int
	addressRank         int
	kv                  string
	bias                float64
	invariant           bool
	o                   calib.Options
	a                   calib.AdmissionOptions
	init                string
	sets, ways          int
	qualityFirst        bool
	plots               []string
	asJSON              bool
	expect              string
}

const calibrateModes = "layers, text or admission"

func newCalibrate() *cobra.Command {
	x := &calibrateFlags{o: calib.LayerOptions(), a: calib.DefaultAdmission()}
	c := &cobra.Command{
		Use:   "calibrate [flags] -o DIR [TEXT...]",
		Short: "Fit a memory of constant size to a model, with the same bits everywhere",
		Long: `Replace a model's full attention by an exact window and an archive of fixed size, or
with --memory delta a matrix per head that the gated delta rule writes, and train what
that adds until the model says what it said before. The model's own
weights stay as they are. The same command gives the same adapter to the last bit at
any number of threads, in micro-batches of any size, interrupted or not.

TEXT are files, of which the last twentieth is held out unless --held-out names
others; a name may begin with $GOROOT. --tasks adds generated questions. With held-out
text the parameters that were best there are kept, and the report has the adapter
before and after, and a bare window of the same bytes.

--mode layers trains on many sequences and also compares what the layers give; text
trains on the beginning of one text; admission teaches an exact tier, beside the
adapter given by --adapter, which rows to keep.

DIR gets adapter.safetensors, report.json, log.csv and the state that an interrupted
calibration goes on from: give the same command again.`,
		Example: `  samebit calibrate --rows 1024 --window 128 --tasks 16 --held-out-tasks 6 -o out
  samebit calibrate -m model.gguf --mode text --kv repeat -o out book.txt
  samebit calibrate --mode admission --adapter out/adapter.safetensors --tasks 4 -o exact`,
	}
	x.mf.register(c)
	f := c.Flags()
	f.StringVarP(&x.o.Dir, "out", "o", "", "`DIR` of the calibration; made if it is not there")
	f.StringVar(&x.mode, "mode", "layers", "`MODE` is "+calibrateModes)
	f.StringVar(&x.adapter, "adapter", "", "begin with the adapter in `FILE` instead of a new one")
	f.Uint64Var(&x.seed, "seed", 1, "`N` that begins new parameters and generated questions")
	f.StringSliceVar(&x.heldOut, "held-out", nil, "`FILES` of held-out text, instead of the end of TEXT")
	f.IntVar(&x.rows, "rows", 0, "sequences of `N` tokens (0: 1024, in mode text 2048)")
	f.IntVar(&x.chunks, "train-chunks", 8, "cut `N` sequences out of the text to train on")
	f.IntVar(&x.held, "held-out-chunks", 2, "cut `N` sequences out of the held-out text")
	f.IntVar(&x.tasks, "tasks", 0, "also train on `N` generated texts with questions (models of our own)")
	f.IntVar(&x.heldTasks, "held-out-tasks", 0, "also hold out `N` of them, with names of their own")
	f.StringVar(&x.memory, "memory", "archive", "what a layer has besides its window: `KIND` is archive or delta")
	f.IntVar(&x.window, "window", 0, "exact window of `N` tokens (0: 64, in modes text and admission 128)")
	f.IntVar(&x.codes, "codes", 0, "`N` codes per head (0: 32, in mode text 64)")
	f.IntVar(&x.scales, "scales", 4, "`N` time scales")
	f.IntVar(&x.rank, "rank", 8, "rank `N` of the query's correction (0: none)")
	f.IntVar(&x.addressRank, "address-rank", 0, "rank `N` of a trained map of the addresses that an archive is read with, or a delta memory is read and written with (0: none)")
	f.IntVar(&x.sinks, "sinks", 0, "the first `N` tokens stay exact for good")
	f.StringVar(&x.kv, "kv", "", "heads that share keys: `POLICY` is reject, repeat or share (default: repeat, in mode text reject)")
	f.Float64Var(&x.bias, "gate-bias", 2, "first logit of the window's weight next to the archive's")
	f.BoolVar(&x.invariant, "position-invariant", true, "the archive sees queries and keys before their rotation, which the window then keeps besides")
	f.IntVar(&x.o.Steps, "steps", 100, "make `N` steps")
	f.IntVar(&x.o.Chunks, "batch", 1, "`N` sequences of a step")
	f.Float64Var(&x.o.Rate, "rate", 0.02, "learning rate")
	f.IntVar(&x.o.Warmup, "warmup", 0, "the rate rises for `N` steps")
	f.Float64Var(&x.o.Floor, "floor", 1, "fraction of the rate that a cosine ends at (1: constant)")
	f.Float64Var(&x.o.Decay, "decay", 0.01, "weight decay")
	f.Float64Var(&x.o.Clip, "clip", 1, "largest norm of the gradient (0: any)")
	f.StringVar(&x.o.Layers, "layers", "all", "train `WHICH` layers: all, first-half, last-half, last-quarter, 2-5 or 0,3")
	f.StringVar(&x.init, "code-init", string(calib.KMeans), "codes begin as `WHAT`: kmeans or key-sample of the model's keys, whitened (kmeans as the keys' own covariance measures them, with maps of addresses that fit), or random")
	f.Float64Var(&x.o.CodeSpread, "code-spread", 0, "how far the scores of whitened codes spread about 0 (0: 2)")
	f.IntVar(&x.o.CodeTokens, "code-init-tokens", 256, "at most `N` keys of a sequence")
	f.Float32Var(&x.o.Weights.KL, "kl-weight", 0.5, "share of the divergence in the loss of logits; what the shares leave is squared error")
	f.Float32Var(&x.o.Weights.Cosine, "cosine-weight", 0, "share of 1 - cosine")
	f.Float32Var(&x.o.Weights.CE, "ce-weight", 0, "share of the cross-entropy of the model's first choice")
	f.Float32Var(&x.o.Weights.Margin, "margin-weight", 0, "share of what the first choice lacks before the second")
	f.Float32Var(&x.o.Weights.Gap, "margin", 0, "what the first choice should be ahead by")
	f.Float32Var(&x.o.Weights.Temperature, "temperature", 2, "of the divergence")
	f.Float32Var(&x.o.Attention, "attention-weight", 0.35, "share of the layers' outputs in the loss (in mode text 0)")
	f.IntVar(&x.o.AttentionRows, "attention-rows", 256, "compare them on at most `N` tokens of a sequence")
	f.BoolVar(&x.o.AllRows, "all-rows", false, "also learn from tokens that the window covers")
	f.IntVar(&x.o.Interval, "validation-interval", 10, "validate every `N` steps")
	f.IntVar(&x.o.Patience, "patience", 0, "end after `N` validations without improvement (0: never)")
	f.Float64Var(&x.o.Gate, "quality-gate", 0.99, "cosine and agreement that pass; the report says whether they were reached")
	f.IntVar(&x.o.MicroRows, "micro-rows", 0, "tokens of a micro-batch (0: 1024); changes memory and speed, no bit")
	f.IntVar(&x.o.Until, "until", 0, "stop after step `N` and go on the next time (0: at the end)")
	f.IntVar(&x.sets, "sets", 128, "mode admission: `N` sets of the exact tier")
	f.IntVar(&x.ways, "ways", 4, "mode admission: `N` rows of a set")
	f.BoolVar(&x.qualityFirst, "quality-first", false, "mode admission: score events by the query of the moment, which needs no learning")
	f.StringSliceVar(&x.plots, "plot", nil, "draw losses and held-out agreement into `FILES` (.svg, .png)")
	f.BoolVar(&x.asJSON, "json", false, "print the report as one JSON object")
	f.StringVar(&x.expect, "expect", "", "fail unless the hash of what was trained is `HASH`")
	c.RunE = x.run
	return c
}

// check refuses values before anything is loaded, and fills in what follows from the
// mode.
func (x *calibrateFlags) check(c *cobra.Command, args []string) error {
	x.o.CodeInit = calib.CodeInit(x.init)
	x.a.Steps, x.a.Rate, x.a.Decay, x.a.Clip, x.a.Layers, x.a.Dir = x.o.Steps, x.o.Rate, x.o.Decay, x.o.Clip, x.o.Layers, x.o.Dir
	if err := oneOf("mode", []string{"layers", "text", "admission"}, x.mode); err != nil {
		return err
	}
	or := func(v *int, usual int) {
		if *v == 0 {
			*v = usual
		}
	}
	if err := oneOf("memory", []string{"archive", "delta"}, x.memory); err != nil {
		return err
	}
	if x.memory == "delta" {
		if err := unused(c, "is of archives, and --memory delta has none", "codes", "scales", "rank", "code-spread"); err != nil {
			return err
		}
	}
	if x.adapter != "" {
		if err := unused(c, "is for new adapters: that of --adapter says itself", "memory", "address-rank", "window", "codes", "scales", "rank", "sinks", "kv", "gate-bias", "position-invariant"); err != nil {
			return err
		}
	}
	if x.mode == "admission" {
		if err := unused(c, "is for the calibration of logits: leave it out in --mode admission", "batch", "warmup", "floor", "code-init", "code-spread", "code-init-tokens",
			"kl-weight", "cosine-weight", "ce-weight", "margin-weight", "margin", "temperature", "attention-weight", "attention-rows", "all-rows",
			"validation-interval", "patience", "quality-gate", "micro-rows", "until", "plot"); err != nil {
			return err
		}
	} else if err := unused(c, "is for --mode admission", "sets", "ways", "quality-first"); err != nil {
		return err
	}
	if x.qualityFirst {
		if err := unused(c, "is about what was learned, and --quality-first learns nothing", "json", "expect", "steps", "rate", "decay", "clip"); err != nil {
			return err
		}
	}
	switch x.mode {
	case "text":
		or(&x.rows, 2048)
		or(&x.window, 128)
		or(&x.codes, 64)
		if !c.Flags().Changed("attention-weight") {
			x.o.Attention = 0
		}
	case "layers":
		or(&x.window, 64)
		fallthrough
	default:
		or(&x.rows, 1024)
		or(&x.window, 128)
		or(&x.codes, 32)
		if x.kv == "" {
			x.kv = string(qcc.KVRepeat)
		}
	}
	if x.kv == "" || x.kv == "reject" {
		x.kv = string(qcc.KVReject)
	} else if err := oneOf("kv", []string{"reject", string(qcc.KVRepeat), string(qcc.KVShare)}, x.kv); err != nil {
		return err
	}
	err := errors.Join(x.mf.check(), atLeast("rows", 2, x.rows), atLeast("train-chunks", 1, x.chunks), atLeast("held-out-chunks", 0, x.held), atLeast("tasks", 0, x.tasks, x.heldTasks),
		atLeast("window", 1, x.window), atLeast("codes", 1, x.codes), atLeast("scales", 1, x.scales), atLeast("rank", 0, x.rank), atLeast("address-rank", 0, x.addressRank), atLeast("sinks", 0, x.sinks),
		atLeast("sets", 1, x.sets), atLeast("ways", 1, x.ways), checkPlots(x.plots), x.o.Check(), x.a.Check())
	switch {
	case err != nil:
		return usageError{err}
	case x.o.Dir == "":
		return usagef("calibrate: no directory: say with -o DIR where the adapter goes")
	case x.mode == "text" && (len(args) != 1 || x.tasks+x.heldTasks > 0 || x.heldOut != nil):
		return usagef("calibrate: --mode text takes one file and nothing else to read")
	case len(args) == 0 && x.tasks == 0 && !x.qualityFirst:
		return usagef("calibrate: nothing to read: name text files, or give --tasks N")
	case x.mode == "admission" && x.adapter == "":
		return usagef("calibrate: --mode admission teaches beside a calibrated adapter: name it with --adapter")
	}
	return exactDevice("calibrate", x.mf.device)
}

func (x *calibrateFlags) run(c *cobra.Command, args []string) error {
	if err := x.check(c, args); err != nil {
		return err
	}
	m, done, err := x.mf.open(c)
	if err != nil {
		return err
	}
	defer done()
	data, err := x.data(m, args)
	if err != nil {
		return err
	}
	a, err := x.begin(m)
	if err != nil {
		return err
	}
	began := time.Now()
	if x.mode == "admission" {
		return x.admit(c, m, a, data, began)
	}
	show := newStepLine(c.ErrOrStderr(), x.o.Steps)
	x.o.Progress = func(s calib.Step) {
		left := show.made(s.Step)
		if h := s.HeldOut; h != nil {
			best := ""
			if s.Best {
				best = ", the best so far"
			}
			show.clear()
			fmt.Fprintf(show.w, "step %d/%d: loss %.4f; held out: cosine %.4f, same first choice %.1f %%, KL %.4f; %s left%s\n",
				s.Step, s.Steps, s.Loss, h.Cosine, 100*h.Top1, h.KL, left, best)
		}
		show.show("step %d/%d  loss %.4f  rate %.2g  %s left", s.Step, s.Steps, s.Loss, s.Rate, left)
	}
	_, rep, err := calib.Run(c.Context(), m.Device(), m.Decoder, a, data, x.o)
	show.clear()
	if err != nil && !(errors.Is(err, context.Canceled) && show.last > 0) {
		return err
	}
	for _, p := range x.plots {
		if err := plotCalibration(p, x.o.Dir); err != nil {
			return err
		}
	}
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "saved after step %d of %d; the same command goes on\n", show.last, x.o.Steps)
		return err
	}
	if x.asJSON {
		err = printJSON(c.OutOrStdout(), rep)
	} else {
		err = writeCalibration(c.OutOrStdout(), x.o.Dir, rep, time.Since(began))
	}
	return errors.Join(err, x.expected(rep.Hash))
}

// expected compares the hash of what was trained with the one that is asked for.
func (x *calibrateFlags) expected(hash string) error {
	if x.expect != "" && x.expect != hash {
		return fmt.Errorf("calibrate: the hash of what was trained is %s, expected %s", hash, x.expect)
	}
	return nil
}

// admit teaches the exact tier.
func (x *calibrateFlags) admit(c *cobra.Command, m *samebit.Model, a *qcc.Adapter, data calib.Data, began time.Time) error {
	e := qcc.DefaultExact()
	e.Sets, e.Ways, e.QualityFirst = x.sets, x.ways, x.qualityFirst
	a, err := calib.WithExact(m.Device(), m.Decoder, a, e)
	if err != nil {
		return err
	}
	if x.qualityFirst { // nothing to learn
		path := filepath.Join(x.o.Dir, calib.AdapterFile)
		if err := os.MkdirAll(x.o.Dir, 0o777); err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		err := wholefile.Write(path, func(w io.Writer) error {
			_, err := a.WriteTo(w)
			return err
		})
		if err == nil {
			_, err = fmt.Fprintf(c.OutOrStdout(), "adapter %s\n", path)
		}
		return err
	}
	show := newStepLine(c.ErrOrStderr(), x.a.Steps)
	x.a.Progress = func(s calib.AdmissionStep) {
		show.show("step %d/%d  loss %.4f  %s left", s.Step, s.Steps, s.Loss, show.made(s.Step))
	}
	_, rep, err := calib.RunAdmission(c.Context(), m.Device(), m.Decoder, a, data, x.a)
	show.clear()
	if err != nil {
		return err
	}
	if x.asJSON {
		return errors.Join(printJSON(c.OutOrStdout(), rep), x.expected(rep.Hash))
	}
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "rows to keep\tprecision\trecall\tF1\taccuracy\tkeys\t\n")
	line := func(name string, h calib.Hits) {
		fmt.Fprintf(t, "%s\t%.1f %%\t%.1f %%\t%.1f %%\t%.1f %%\t%d\t\n", name, 100*h.Precision, 100*h.Recall, 100*h.F1, 100*h.Accuracy, h.Keys)
	}
	line("before", rep.Before)
	line("trained on", rep.After)
	if rep.Held != nil {
		line("held out", *rep.Held)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "%d steps, %s\nadapter %s\nparameters %s\n", rep.Steps, time.Since(began).Round(time.Second), filepath.Join(x.o.Dir, calib.AdapterFile), rep.Hash)
	return x.expected(rep.Hash)
}

// data are the sequences to train on and those held out.
func (x *calibrateFlags) data(m *samebit.Model, args []string) (d calib.Data, err error) {
	t, err := train.NewTexts(m.Tokenizer, x.seed, args)
	if err != nil {
		return d, err
	}
	if x.mode == "text" {
		text := append(t.Prose, t.HeldOut...)
		d.Train = [][]int32{text[:min(len(text), x.rows)]}
		return d, nil
	}
	learn, held := t.Prose, t.HeldOut
	if x.heldOut != nil {
		learn = append(learn, held...)
		o, err := train.NewTexts(m.Tokenizer, x.seed, x.heldOut)
		if err != nil {
			return d, err
		}
		held = append(o.Prose, o.HeldOut...)
	}
	d.Train, d.HeldOut = calib.Windows(learn, x.rows, x.chunks), calib.Windows(held, x.rows, x.held)
	for _, part := range []struct {
		n    int
		held bool
		to   *[][]int32
	}{{x.tasks, false, &d.Train}, {x.heldTasks, true, &d.HeldOut}} {
		if part.n == 0 {
			continue
		}
		list, err := t.Tasks(part.n, x.rows, part.held)
		if err != nil {
			return d, err
		}
		*part.to = mixed(*part.to, list)
	}
	return d, nil
}

// mixed takes from both lists in turn, so that steps see both kinds.
func mixed(a, b [][]int32) (out [][]int32) {
	for i := range max(len(a), len(b)) {
		if i < len(a) {
			out = append(out, a[i])
		}
		if i < len(b) {
			out = append(out, b[i])
		}
	}
	return out
}

// begin is the adapter that the calibration begins with.
func (x *calibrateFlags) begin(m *samebit.Model) (*qcc.Adapter, error) {
	if x.adapter != "" {
		f, err := os.Open(x.adapter)
		if err != nil {
			return nil, fmt.Errorf("calibrate: --adapter: %w", err)
		}
		defer f.Close()
		a, err := qcc.ReadAdapter(f)
		if err != nil {
			return nil, fmt.Errorf("calibrate: %s: %w", x.adapter, err)
		}
		return a, nil
	}
	begin := qcc.ModelConfig
	if x.memory == "delta" {
		begin = qcc.DeltaConfig
	}
	c, err := begin(m.Decoder)
	if err != nil {
		return nil, err
	}
	c.Window, c.Sinks, c.GateBias, c.PositionInvariant, c.AddressRank = x.window, x.sinks, x.bias, x.invariant, x.addressRank
	if x.memory == "archive" {
		c.Codes, c.Scales, c.Rank = x.codes, x.scales, x.rank
	}
	a, err := qcc.NewAdapter(m.Decoder, qcc.Retrofit{KV: qcc.KVPolicy(x.kv), Config: c}, x.seed)
	if err != nil {
		return nil, err
	}
	a.Manifest.BaseModel = filepath.Base(resolveModel(x.mf.path))
	if n := parameters(m); n > 0 {
		a.Manifest.ParameterCount = n + int64(len(a.Layers)*a.Config.Count())
	}
	return a, nil
}

// parameters counts those of a model, 0 if that is not known.
func parameters(m *samebit.Model) (n int64) {
	list, err := m.Shape.Params(nil)
	if err != nil {
		return 0
	}
	for _, p := range list {
		size := int64(1)
		for _, d := range p.Shape {
			size *= int64(d)
		}
		n += size
	}
	return n
}

// writeCalibration says what a calibration made.
func writeCalibration(w io.Writer, dir string, rep *calib.Report, took time.Duration) error {
	early := ""
	if rep.Stopped {
		early = ", stopped for lack of improvement"
	}
	fmt.Fprintf(w, "%d steps%s on %d sequences, %d trained parameters in %d layers, %s\n", rep.Steps, early, rep.Train, rep.Trainable, len(rep.Trained), took.Round(time.Second))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "next to full attention\tsame first choice\tcosine of logits\tKL\tlargest difference\ttokens\t\n")
	line := func(name string, f *calib.Fidelity) {
		if f != nil {
			fmt.Fprintf(t, "%s\t%.1f %%\t%.4f\t%.4f\t%.3g\t%d\t\n", name, 100*f.Top1, f.Cosine, f.KL, f.Worst, f.Rows)
		}
	}
	line("held out: as it began", rep.Before)
	line(fmt.Sprintf("held out: bare window of %d tokens, in the same bytes", rep.WindowRows), rep.Window)
	line(fmt.Sprintf("held out: calibrated, step %d", rep.Selected), rep.After)
	line("trained on: calibrated", &rep.Training)
	if err := t.Flush(); err != nil {
		return err
	}
	gate := "passes"
	if !rep.Passed {
		gate = "does not pass"
	}
	_, err := fmt.Fprintf(w, "%s the quality gate of %g\nadapter %s\nparameters %s\n", gate, rep.Gate, filepath.Join(dir, calib.AdapterFile), rep.Hash)
	return err
}
