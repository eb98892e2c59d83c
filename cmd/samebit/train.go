package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"samebit/train"
)

func newTrain() *cobra.Command {
	var mf modelFlags
	var opt train.Options
	var dir, expect string
	var plots []string
	c := &cobra.Command{
		Use:   "train [flags] CONFIG.json -o DIR",
		Short: "Train a small language model, with the same bits everywhere",
		Long: `Train a small language model from a config file: vocabulary, data, model, stages and
optimiser. The same file gives the same weights to the last bit at any number of
threads, on any device, in micro-batches of any size, interrupted or not.

DIR gets the model that was best (model/), the log (log.csv) and the state that an
interrupted training goes on from: give the same command again.

With --changed a training goes on with another config, if that would have made the
same steps so far: later stages may be changed, added or left out. The bits are then
those of the new config from its beginning. A stage in progress may only change where
its rates up to now stay the same; the cosine schedule, which stages without rates
follow, depends on the number of all steps. Only the first such command needs the
flag.`,
		Example: `  samebit train models/tiny.json -o out
  samebit train models/tiny.json -o out --plot out/loss.png,out/loss.svg
  samebit run -m out/model "Q: What colour is the tower?"`,
		Args: cobra.ExactArgs(1),
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVarP(&dir, "out", "o", "", "`DIR` of the training; made if it is not there")
	mf.registerDevice(c)
	f.IntVar(&opt.MicroRows, "micro-rows", 0, "rows of a micro-batch (0: 1024); changes memory and speed, no bit")
	f.BoolVar(&opt.Recompute, "recompute", false, "keep less and compute it again: less memory, a third more work, no bit changed")
	f.StringSliceVar(&plots, "plot", nil, "draw losses and recall into `FILES` (.svg, .png)")
	f.BoolVar(&opt.Changed, "changed", false, "go on with a config that was changed in what is still to come")
	f.IntVar(&opt.Until, "until", 0, "stop after step `N` and go on the next time (0: at the end)")
	f.StringVar(&expect, "expect", "", "fail unless the hash of the weights is `HASH`")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := errors.Join(mf.check(), atLeast("micro-rows", 0, opt.MicroRows), atLeast("until", 0, opt.Until), checkPlots(plots)); err != nil {
			return usageError{err}
		}
		if dir == "" {
			return usagef("train: no directory: say with -o DIR where the training goes")
		}
		if err := exactDevice("train", mf.device); err != nil {
			return err
		}
		cfg, err := train.ReadConfig(args[0])
		if err != nil {
			return err
		}
		dev, err := newDevice(mf.device, mf.threads)
		if err != nil {
			return err
		}
		defer dev.Close()
		opt.Device = dev
		show := newTrainProgress(c.ErrOrStderr(), cfg.Steps())
		opt.Progress = show.step
		began := time.Now()
		res, err := train.Run(c.Context(), cfg, dir, opt)
		show.clear()
		if err != nil && !(errors.Is(err, context.Canceled) && show.last > 0) {
			return err
		}
		for _, p := range plots {
			if err := plotTraining(p, dir); err != nil {
				return err
			}
		}
		if err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "saved after step %d of %d; to go on: samebit train %s -o %s\n", show.last, cfg.Steps(), args[0], dir)
			return err
		}
		if err := trainReport(c.OutOrStdout(), &cfg, dir, &res, time.Since(began)); err != nil {
			return err
		}
		if expect != "" && expect != res.Hash {
			return fmt.Errorf("train: the hash of the weights is %s, expected %s", res.Hash, expect)
		}
		return nil
	}
	return c
}

// trainReport says what a training made.
func trainReport(w io.Writer, cfg *train.Config, dir string, res *train.Result, took time.Duration) error {
	early := ""
	if res.Stopped {
		early = ", stopped for lack of improvement"
	}
	of := ""
	if res.Steps < cfg.Steps() {
		of = fmt.Sprintf(" of %d", cfg.Steps())
	}
	fmt.Fprintf(w, "%s: %d steps%s%s, %d parameters, %s\n", cfg.Name, res.Steps, of, early, res.Params, took.Round(time.Second))
	if res.Best != nil {
		fmt.Fprintf(w, "validation of step %d, whose weights are kept:\n", res.BestAt)
		if err := writeJudgement(w, res.Best); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "model %s\nweights %s\n", filepath.Join(dir, "model"), res.Hash)
	return nil
}

// trainProgress shows a line that changes on a terminal, and one for each validation.
type trainProgress struct {
	*stepLine
	rows int // of this process
	loss float64
}

func newTrainProgress(w io.Writer, total int) *trainProgress {
	return &trainProgress{stepLine: newStepLine(w, total)}
}

func (p *trainProgress) step(s train.Step) {
	if p.first == 0 {
		p.loss = float64(s.Answers)
	}
	left := p.made(s.Step)
	p.rows += s.Rows
	p.loss += 0.05 * (float64(s.Answers) - p.loss)
	speed := float64(p.rows) / time.Since(p.began).Seconds()
	if j := s.Judgement; j != nil {
		p.clear()
		prose, best := "", ""
		if j.Prose > 0 {
			prose = fmt.Sprintf(", prose perplexity %.1f", j.Perplexity())
		}
		if s.Best {
			best = ", the best so far"
		}
		fmt.Fprintf(p.w, "step %d/%d: loss %.4f, recall %.1f %%, answer loss %.4f%s; %.0f tokens/s, %s left%s\n",
			s.Step, s.Steps, p.loss, 100*j.Share(0), j.Loss, prose, speed, left, best)
	}
	p.show("step %d/%d  loss %.4f  rate %.2g  %.0f tokens/s  %s left", s.Step, s.Steps, p.loss, s.Rate, speed, left)
}

// checkPlots refuses names of files that no plot can be written to.
func checkPlots(paths []string) error {
	for _, p := range paths {
		if e := strings.ToLower(filepath.Ext(p)); e != ".svg" && e != ".png" {
			return usagef("--plot %q: want a file that ends in .svg or .png", p)
		}
	}
	return nil
}
