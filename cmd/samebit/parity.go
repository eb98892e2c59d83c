package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/nn"
	"samebit/parity"
)

func newParity() *cobra.Command {
	var path, expect, device string
	var bounded boundedFlags
	var kv kvFlag
	var cfg parity.Config
	var impls []string
	var asJSON, quick bool
	var opRows int
	c := &cobra.Command{
		Use:   "parity [flags]",
		Short: "Show that every path gives the same bits",
		Long: `Run one text in many ways (thread counts, chunk sizes, batches with other
sequences, saved, forked, truncated and replayed states, every kernel this
machine has) and compare every logit of every row with ==. Before that, run a few
rows on the plain reference and on the fastest kernels at once and compare what
every op writes; the reference keeps its weights as float32. The hash at the end
is the same on every machine. Exit code 1 if a single bit differs.

With --device the text runs on that device instead of in the processor's many
ways, alone, with others, and with a state that moves there and back; its logits
must be those of the processor.`,
		Example: `  samebit parity --quick
  samebit parity -m model.gguf --kernels generic,avx2
  samebit parity --json > report.json`,
		Args: noArgs,
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVarP(&path, "model", "m", "", modelHelp)
	bounded.register(c)
	bounded.registerSieve(c)
	f.StringVar(&device, "device", "cpu", "compare the processor with `NAME`: "+deviceHelp)
	_ = c.RegisterFlagCompletionFunc("device", cobra.FixedCompletions(deviceNames(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	kv.register(c)
	f.IntVar(&cfg.Prompt, "prompt-tokens", 600, "prompt of `N` rows")
	f.IntVar(&cfg.Generate, "tokens", 64, "then `N` greedy tokens")
	f.StringSliceVar(&impls, "kernels", nil, "`LIST` of kernels to compare (default: all of "+strings.Join(cpu.Impls(), ", ")+")")
	f.BoolVar(&quick, "quick", false, "a short text and few ways, about a minute; op by op only with --ops")
	f.IntVar(&opRows, "ops", 8, "compare `N` rows of the prompt op by op with the reference (0: none)")
	f.StringVar(&expect, "expect", "", "fail unless the hash is `HASH`")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := errors.Join(atLeast("prompt-tokens", 1, cfg.Prompt), atLeast("tokens", 1, cfg.Generate), atLeast("ops", 0, opRows), oneOf("kernels", cpu.Impls(), impls...), checkDevice(device), exactDevice("parity", device), bounded.check(false), kv.check(&bounded)); err != nil {
			return err
		}
		path = resolveModel(path)
		cfg.Impls = impls
		kernels := cpu.Impls()
		if len(impls) > 0 {
			kernels = impls
		}
		open := func() (backend.Device, error) {
			return cpu.New(cpu.Config{Impl: kernels[len(kernels)-1], Threads: 2})
		}
		if device != "cpu" {
			open = func() (backend.Device, error) { return newDevice(device, 0) }
			cfg.Devices = []parity.Target{{Name: device, Open: open}}
		}
		if quick {
			cfg.Prompt, cfg.Generate = min(cfg.Prompt, 70), min(cfg.Generate, 8)
			if !f.Changed("ops") {
				opRows = 0
			}
			cfg.Threads, cfg.Chunks, cfg.Batches = []int{1, 3}, []int{1, 7}, []int{3}
		}
		if err := fitParity(&cfg, path, &opRows, f.Changed("prompt-tokens") || f.Changed("tokens")); err != nil {
			return err
		}
		out := c.OutOrStdout()
		var rep parityReport
		var differs error // what op differs
		if opRows > 0 {
			dev, err := open()
			if err != nil {
				return fmt.Errorf("parity: %s: %w", device, err)
			}
			bar := newBar("loading "+filepath.Base(path)+" twice", true)
			rep.Ops, differs = compareOps(c.Context(), path, &bounded, &kv, dev, opRows, bar.update)
			bar.finish()
			if c.Context().Err() != nil {
				return differs
			}
			if differs != nil {
				rep.OpProblem = differs.Error()
			}
			if !asJSON {
				printOps(out, rep.Ops)
			}
		}
		if !asJSON {
			fmt.Fprintf(out, "%-40s %14s %14s %9s\n", "path", "values", "differing", "seconds")
			cfg.Log = func(k parity.Case) {
				fmt.Fprintf(out, "%-40s %14d %14d %9.1f\n", k.Name, k.Values, k.Differing, k.Seconds)
				if k.First != "" {
					fmt.Fprintf(out, "    first: %s\n", k.First)
				}
			}
		}
		load := func(ctx context.Context, dev backend.Device) (*nn.Decoder, error) {
			return bounded.load(ctx, dev, &kv, path, nil)
		}
		var err error
		if rep.Report, err = parity.Run(c.Context(), load, cfg); err != nil {
			return err
		}
		if asJSON {
			if err := printJSON(out, rep); err != nil {
				return err
			}
		} else {
			fmt.Fprintf(out, "%d differing bit patterns among %d values\nhash of all logits of %d rows: %s\n", rep.Differing, rep.Values, rep.Rows, rep.Hash)
		}
		switch {
		case differs != nil:
			return fmt.Errorf("parity: op by op: %w", differs)
		case rep.Differing > 0:
			return fmt.Errorf("parity: %d of %d values differ", rep.Differing, rep.Values)
		case expect != "" && expect != rep.Hash:
			return fmt.Errorf("parity: the hash is %s, expected %s", rep.Hash, expect)
		}
		return nil
	}
	return c
}

// parityReport is what parity -json prints.
type parityReport struct {
	parity.Report
	Ops       []opCount `json:"ops,omitempty"` // compared with the reference
	OpProblem string    `json:"ops_problem,omitempty"`
}

// fitParity shortens the usual text for models with a small context.
func fitParity(cfg *parity.Config, path string, opRows *int, chosen bool) error {
	set, shape, err := openSet(path)
	if set != nil {
		defer set.Close()
	}
	if err != nil {
		return err
	}
	*opRows = min(*opRows, shape.Context-1)
	if cfg.Prompt+cfg.Generate <= shape.Context {
		return nil
	}
	if chosen || shape.Context < 2 {
		return fmt.Errorf("parity: %d prompt rows and %d more exceed the model's context of %d: give smaller --prompt-tokens or --tokens", cfg.Prompt, cfg.Generate, shape.Context)
	}
	cfg.Generate = min(cfg.Generate, max(shape.Context/8, 1))
	cfg.Prompt = shape.Context - cfg.Generate
	return nil
}
