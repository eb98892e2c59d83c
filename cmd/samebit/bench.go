package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/bench"
	"samebit/nn"
	"samebit/tensor"
)

func newBench() *cobra.Command {
	var mf modelFlags
	var cfg bench.ModelConfig
	var loads int
	var file string
	var only string
	var tests []string
	var kc bench.KernelConfig
	var rc bench.ResumeConfig
	var tc bench.TransferConfig
	c := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure a model's speed, or that of single ops",
		Long: `Measure loading, prompts and decoding, each several times after a warm-up, and
print best and median rates. bench/peers measures other engines the same way.
'samebit bench compare' tells how two files of --json differ.`,
		Example: `  samebit bench
  samebit bench -m model.gguf -p 64,512 -d 0,4096 -n 64 -r 10
  samebit bench --seqs 4,16 --json new.json
  samebit bench --resume 4200 --shared 4000 --stride 256
  samebit bench --transfer 1000 --request 32 --senders 4
  samebit bench --kernels all --threads 1`,
		Args: noArgs,
	}
	mf.register(c)
	mf.kv.register(c)
	f := c.Flags()
	f.IntSliceVarP(&cfg.Prompts, "prompts", "p", []int{128, 512}, "`LIST` of prompt lengths in tokens")
	f.IntVarP(&cfg.Decode, "tokens", "n", 32, "decode `N` tokens")
	f.IntSliceVarP(&cfg.Depths, "depths", "d", []int{0}, "`LIST` of tokens in the sequence before decoding; from the 513th on it holds copies of earlier ones")
	f.IntSliceVar(&cfg.Seqs, "seqs", nil, "`LIST` of numbers of sequences that decode together")
	f.StringSliceVar(&tests, "tests", []string{"prefill", "decode", "batch"}, "`LIST` of what to measure of a model")
	f.IntVarP(&cfg.Repeat, "repeat", "r", 5, "repeat `N` times, after a warm-up")
	f.IntVar(&loads, "loads", 1, "load the model `N` times")
	f.StringVar(&file, "json", "", "write the measurements to `FILE`, one JSON object per line after one about the machine (-: print them)")
	f.StringVar(&only, "kernels", "", "measure ops instead of a model: `PART` is gemm, gemv, attention, delta or all")
	f.IntVar(&rc.Rows, "resume", 0, "measure prompts of `N` tokens that begin like a cached one, cold and resumed")
	f.IntVar(&rc.Shared, "shared", 0, "with --resume: `N` tokens in common")
	f.IntVar(&rc.First, "first", 0, "with --resume: the cached prompt has `N` tokens (0: as many as the other)")
	f.IntVar(&rc.Stride, "stride", 0, "with --resume: `N` tokens between checkpoints (0: 2048)")
	f.IntVar(&tc.Rows, "transfer", 0, "measure a selection from `N` tokens beside a forward of its request, and a transfer")
	f.IntVar(&tc.Request, "request", 32, "with --transfer: `N` tokens of the request")
	f.IntVar(&tc.Senders, "senders", 4, "with --transfer: `N` senders")
	f.IntVar(&tc.At, "at-once", 0, "with --transfer: work on `N` senders at once (0: one per thread)")
	f.Float64Var(&kc.Seconds, "seconds", 1, "measure each op for `N` seconds")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := errors.Join(mf.check(), atLeast("repeat", 1, cfg.Repeat), atLeast("tokens", 1, cfg.Decode), atLeast("loads", 1, loads),
			atLeast("prompts", 1, cfg.Prompts...), atLeast("seqs", 1, cfg.Seqs...), atLeast("depths", 0, cfg.Depths...)); err != nil {
			return err
		}
		if err := checkBench(c, only != "", rc.Rows, tc.Rows); err != nil {
			return err
		}
		if err := onlyTests(&cfg, tests); err != nil {
			return err
		}
		out, err := newMeasurements(c, file)
		if err != nil {
			return err
		}
		if only != "" {
			return out.save(benchKernels(c, &mf, only, kc, out))
		}
		path := resolveModel(mf.path)
		dev, err := newDevice(mf.device, mf.threads)
		if err != nil {
			return err
		}
		defer dev.Close()
		cfg.Name = filepath.Base(path)
		bar := newBar("loading "+cfg.Name, true)
		emit := func(r bench.Result) {
			bar.finish()
			out.add(r, "%-28s %-8s n %-5d depth %-6d seqs %-3d %9.2f %s best, %9.2f median, peak %d MiB%s", r.Model, r.Test, r.N, r.Depth, max(r.Seqs, 1), r.Best, r.Unit, r.Median, r.PeakMiB, notExact(&r))
		}
		dec, err := loadBench(c.Context(), dev, path, mf.kv.dtype(), loads, bar.update, emit)
		if err != nil {
			return err
		}
		defer dec.Close()
		if rc.Rows > 0 {
			rc.Name, rc.Repeat = cfg.Name, cfg.Repeat
			return out.save(bench.Resume(c.Context(), dev, dec, rc, emit))
		}
		if tc.Rows > 0 {
			tc.Name, tc.Repeat = cfg.Name, cfg.Repeat
			return out.save(bench.Transfer(c.Context(), dev, dec, tc, emit))
		}
		return out.save(bench.Model(c.Context(), dev, dec, cfg, emit))
	}
	c.AddCommand(newBenchCompare(), newBenchPlot())
	c.AddCommand(newBenchQCC()...)
	return c
}

// checkBench refuses flags that what is measured has no use for.
func checkBench(c *cobra.Command, kernels bool, resume, transfer int) error {
	lengths := []string{"prompts", "tokens", "depths", "seqs", "tests"}
	var err error
	if kernels {
		err = unused(c, "and --kernels exclude each other", append(lengths, "model", "repeat", "loads", "resume", "transfer")...)
	} else {
		err = unused(c, "goes with --kernels", "seconds")
	}
	if c.Flags().Changed("resume") {
		err = errors.Join(err, atLeast("resume", 1, resume), unused(c, "and --resume exclude each other", append(lengths, "transfer")...))
	} else {
		err = errors.Join(err, unused(c, "goes with --resume", "shared", "first", "stride"))
	}
	if c.Flags().Changed("transfer") {
		err = errors.Join(err, atLeast("transfer", 1, transfer), unused(c, "and --transfer exclude each other", lengths...))
	} else {
		err = errors.Join(err, unused(c, "goes with --transfer", "request", "senders", "at-once"))
	}
	return err
}

// onlyTests leaves out of cfg what tests does not name.
func onlyTests(cfg *bench.ModelConfig, tests []string) error {
	for _, t := range tests {
		if !slices.Contains([]string{"prefill", "decode", "batch"}, t) {
			return usagef("bench: --tests %q: have prefill, decode and batch", t)
		}
	}
	for name, list := range map[string]*[]int{"prefill": &cfg.Prompts, "decode": &cfg.Depths, "batch": &cfg.Seqs} {
		if !slices.Contains(tests, name) {
			*list = []int{}
		}
	}
	if len(cfg.Prompts)+len(cfg.Depths)+len(cfg.Seqs) == 0 {
		return usagef("bench: --tests %s: nothing to measure: name lengths with --prompts, --depths or --seqs", strings.Join(tests, ","))
	}
	return nil
}

// notExact ends the line of a result whose device is not exact, or slow.
func notExact(r *bench.Result) (s string) {
	if r.Inexact != "" {
		s = ", not bit-exact"
	}
	if r.Slow != "" {
		s += " (" + r.Slow + ")"
	}
	return s
}

// benchKernels measures single ops.
func benchKernels(c *cobra.Command, mf *modelFlags, only string, cfg bench.KernelConfig, out *measurements) error {
	switch only {
	case "all":
	case "gemm", "gemv", "attention", "delta":
		cfg.Only = only
	default:
		return usagef("bench: --kernels %q: have gemm, gemv, attention, delta and all", only)
	}
	if !(cfg.Seconds > 0) || cfg.Seconds > 3600 {
		return usagef("bench: --seconds %v: want a positive number up to 3600", cfg.Seconds)
	}
	if name, _ := withoutFast(mf.device); name == "cuda:emu" {
		return usagef("bench: --kernels on %s: its shapes are those of large models, which take an emulator hours, and its time says nothing about a GPU; go test ./backend/cuda -run TestCounts -v prints what it counts", mf.device)
	}
	dev, err := newDevice(mf.device, mf.threads)
	if err != nil {
		return err
	}
	defer dev.Close()
	cfg.KV = mf.kv.dtype()
	return bench.Kernels(c.Context(), dev, cfg, func(r bench.Result) {
		out.add(r, "%-18s %-44s %9.2f %s best, %9.2f median%s", r.Test, r.Shape, r.Best, r.Unit, r.Median, notExact(&r))
	})
}

// loadBench loads a model several times and keeps the last.
func loadBench(ctx context.Context, dev backend.Device, path string, kv tensor.DType, loads int, progress func(done, total int64), emit func(bench.Result)) (dec *nn.Decoder, err error) {
	set, _, err := openSet(path)
	if set != nil {
		defer set.Close()
	}
	if err != nil {
		return nil, err
	}
	left := loads
	r, err := bench.Load(filepath.Base(path), loads, set.Summary().Bytes, func() (func(), error) {
		var err error
		dec, err = loadDecoder(ctx, dev, path, kv, progress)
		left--
		return func() {
			if left > 0 {
				dec.Close()
			}
		}, err
	})
	if err != nil {
		return nil, err
	}
	emit(r)
	return dec, nil
}
