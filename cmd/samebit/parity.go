package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/parity"
	"samebit/qwen3"
)

func newParity() *cobra.Command {
	var path, expect string
	var cfg parity.Config
	var impls []string
	var asJSON, quick bool
	c := &cobra.Command{
		Use:   "parity [flags]",
		Short: "Show that every path gives the same bits",
		Long: `Run one text in many ways (thread counts, chunk sizes, batches with other
sequences, saved, forked, truncated and replayed states, every kernel this
machine has) and compare every logit of every row with ==. The hash at the end is
the same on every machine. Exit code 1 if a single bit differs.`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVarP(&path, "model", "m", "", "model file or directory (default: the model that scripts/fetch-weights.sh fetched)")
	f.IntVar(&cfg.Prompt, "prompt-tokens", 600, "rows of the prompt")
	f.IntVar(&cfg.Generate, "tokens", 64, "greedy tokens after it")
	f.StringSliceVar(&impls, "kernels", nil, "kernels to compare, comma separated (default: all of "+strings.Join(cpu.Impls(), ", ")+")")
	f.BoolVar(&quick, "quick", false, "a short text and few ways, about a minute")
	f.StringVar(&expect, "expect", "", "fail unless the hash is this one")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if cfg.Prompt < 1 || cfg.Generate < 1 {
			return usagef("parity: --prompt-tokens %d and --tokens %d: want at least 1", cfg.Prompt, cfg.Generate)
		}
		if path == "" {
			var err error
			if path, err = defaultModel(); err != nil {
				return err
			}
		}
		cfg.Impls = impls
		if quick {
			cfg.Prompt, cfg.Generate = min(cfg.Prompt, 70), min(cfg.Generate, 8)
			cfg.Threads, cfg.Chunks, cfg.Batches = []int{1, 3}, []int{1, 7}, []int{3}
		}
		if !asJSON {
			fmt.Printf("%-40s %14s %14s %9s\n", "path", "values", "differing", "seconds")
			cfg.Log = func(k parity.Case) {
				fmt.Printf("%-40s %14d %14d %9.1f\n", k.Name, k.Values, k.Differing, k.Seconds)
				if k.First != "" {
					fmt.Printf("    first: %s\n", k.First)
				}
			}
		}
		load := func(ctx context.Context, dev backend.Device) (*nn.Decoder, error) {
			set, err := checkpoint.Open(path)
			if err != nil {
				return nil, err
			}
			defer set.Close()
			shape, err := qwen3.FromSet(set)
			if err != nil {
				return nil, err
			}
			return qwen3.Load(ctx, dev, shape, set, qwen3.LoadOptions{})
		}
		rep, err := parity.Run(c.Context(), load, cfg)
		if err != nil {
			return err
		}
		if asJSON {
			if err := json.NewEncoder(os.Stdout).Encode(rep); err != nil {
				return err
			}
		} else {
			fmt.Printf("%d differing bit patterns among %d values\nhash of all logits of %d rows: %s\n", rep.Differing, rep.Values, rep.Rows, rep.Hash)
		}
		switch {
		case rep.Differing > 0:
			return fmt.Errorf("parity: %d of %d values differ", rep.Differing, rep.Values)
		case expect != "" && expect != rep.Hash:
			return fmt.Errorf("parity: the hash is %s, expected %s", rep.Hash, expect)
		}
		return nil
	}
	return c
}
