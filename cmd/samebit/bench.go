package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/bench"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qwen3"
)

func newBench() *cobra.Command {
	var mf modelFlags
	var cfg bench.ModelConfig
	var loads int
	var asJSON bool
	c := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure a model's speed",
		Long: `Measure loading, prompts and decoding, each several times after a warm-up, and
print best and median rates. bench/peers measures other engines the same way.`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVarP(&mf.path, "model", "m", "", "model file or directory (default: the model that scripts/fetch-weights.sh fetched)")
	f.StringVar(&mf.device, "device", "cpu", "where to run")
	f.IntVar(&mf.threads, "threads", 0, "threads of the cpu device (0: all processors)")
	f.IntSliceVarP(&cfg.Prompts, "prompts", "p", []int{128, 512}, "prompt lengths")
	f.IntVarP(&cfg.Decode, "tokens", "n", 32, "tokens to decode")
	f.IntSliceVarP(&cfg.Depths, "depths", "d", []int{0}, "rows in the sequence before decoding")
	f.IntSliceVar(&cfg.Seqs, "seqs", nil, "sequences that decode together")
	f.IntVarP(&cfg.Repeat, "repeat", "r", 5, "counted repetitions")
	f.IntVar(&loads, "loads", 1, "times to load the model")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per measurement")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if cfg.Repeat < 1 || cfg.Decode < 1 || loads < 1 {
			return usagef("bench: --repeat, --tokens and --loads must be at least 1")
		}
		for _, l := range [][]int{cfg.Prompts, cfg.Seqs} {
			for _, n := range l {
				if n < 1 {
					return usagef("bench: %d: lengths and counts must be at least 1", n)
				}
			}
		}
		path, err := mf.resolve()
		if err != nil {
			return err
		}
		dev, err := newDevice(mf.device, mf.threads)
		if err != nil {
			return err
		}
		defer dev.Close()
		cfg.Name = filepath.Base(path)
		emit := func(r bench.Result) {
			if asJSON {
				json.NewEncoder(os.Stdout).Encode(r)
				return
			}
			fmt.Printf("%-28s %-8s n %-5d depth %-6d seqs %-3d %9.2f %s best, %9.2f median, peak %d MiB\n", r.Model, r.Test, r.N, r.Depth, max(r.Seqs, 1), r.Best, r.Unit, r.Median, r.PeakMiB)
		}
		dec, err := loadBench(c.Context(), dev, path, loads, emit)
		if err != nil {
			return err
		}
		defer dec.Close()
		return bench.Model(c.Context(), dev, dec, cfg, emit)
	}
	return c
}

// loadBench loads a model several times and keeps the last.
func loadBench(ctx context.Context, dev backend.Device, path string, loads int, emit func(bench.Result)) (*nn.Decoder, error) {
	var dec *nn.Decoder
	var bytes int64
	open := func() (func(), error) {
		set, err := checkpoint.Open(path)
		if err != nil {
			return nil, err
		}
		defer set.Close()
		bytes = set.Summary().Bytes
		shape, err := qwen3.FromSet(set)
		if err != nil {
			return nil, err
		}
		if dec != nil {
			dec.Close()
		}
		dec, err = qwen3.Load(ctx, dev, shape, set, qwen3.LoadOptions{})
		return func() {}, err
	}
	if set, err := checkpoint.Open(path); err == nil {
		bytes = set.Summary().Bytes
		set.Close()
	}
	r, err := bench.Load(filepath.Base(path), loads, bytes, open)
	if err != nil {
		return nil, err
	}
	emit(r)
	return dec, nil
}
