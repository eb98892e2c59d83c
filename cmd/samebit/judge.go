package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"samebit/train"
	"samebit/train/tasks"
)

// judgeReport is what judge --json prints.
type judgeReport struct {
	Model      string         `json:"model"`
	Samples    int            `json:"samples"` // per length
	Seed       uint64         `json:"seed"`
	Shares     []lengthShare  `json:"shares"`
	Perplexity float64        `json:"perplexity,omitempty"`
	Loss       float64        `json:"loss"`
	Recall     []train.Recall `json:"recall"`
}

type lengthShare struct {
	Rows  int     `json:"rows"`
	Share float64 `json:"share"`
}

func newJudge() *cobra.Command {
	var mf modelFlags
	var cfg train.JudgeConfig
	var require []int
	var plots []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "judge [flags]",
		Short: "Ask a model questions whose answers stand in its context",
		Long: `Ask a model generated questions whose answers stand in the text before them, with
names that no training has seen, and count the answers that are right to the last
token. Recall is what all kinds but arithmetic ask for. With --prose, the
perplexity of the held-out end of text files is measured, too.`,
		Example: `  samebit judge -m out/model
  samebit judge --rows 512,2048 --samples 1000 --prose '$GOROOT/src/testdata/Isaac.Newton-Opticks.txt'`,
		Args: noArgs,
	}
	mf.register(c)
	mf.bounded.register(c)
	mf.bounded.registerSieve(c)
	f := c.Flags()
	f.IntSliceVar(&cfg.Lengths, "rows", []int{512, 2048}, "`LIST` of lengths of the text, in tokens, about")
	f.IntVar(&cfg.Samples, "samples", 500, "`N` questions for each length")
	f.Uint64Var(&cfg.Seed, "seed", 1, "`N` that begins all random draws")
	f.StringSliceVar(&cfg.Prose, "prose", nil, "`FILES` whose last twentieth is read for perplexity")
	f.IntSliceVar(&require, "require", nil, "`LIST` of percentages of recall, one for each length: less is a failure")
	f.StringSliceVar(&plots, "plot", nil, "draw right answers against the length into `FILES` (.svg, .png)")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := errors.Join(mf.check(), atLeast("rows", 32, cfg.Lengths...), atLeast("samples", 1, cfg.Samples), checkPlots(plots)); err != nil {
			return usageError{err}
		}
		if len(require) > 0 && len(require) != len(cfg.Lengths) {
			return usagef("--require has %d percentages, --rows %d lengths: give one for each", len(require), len(cfg.Lengths))
		}
		m, done, err := mf.open(c)
		if err != nil {
			return err
		}
		defer done()
		bar := newBar("asking", false)
		cfg.Progress = bar.rows
		j, err := train.Judge(c.Context(), m.Device(), m.Decoder, m.Tokenizer, cfg)
		bar.finish()
		if err != nil {
			return err
		}
		for _, p := range plots {
			if err := plotJudgement(p, j); err != nil {
				return err
			}
		}
		if asJSON {
			r := judgeReport{Model: m.Decoder.ID.String(), Samples: cfg.Samples, Seed: cfg.Seed, Loss: j.Loss, Recall: j.Recall}
			for _, n := range cfg.Lengths {
				r.Shares = append(r.Shares, lengthShare{n, j.Share(n)})
			}
			if j.Prose > 0 {
				r.Perplexity = j.Perplexity()
			}
			err = printJSON(c.OutOrStdout(), r)
		} else {
			err = writeJudgement(c.OutOrStdout(), j)
		}
		if err != nil {
			return err
		}
		for i, least := range require {
			if got := 100 * j.Share(cfg.Lengths[i]); got < float64(least) {
				return fmt.Errorf("judge: recall is %.1f %% at %d tokens: %d %% are required", got, cfg.Lengths[i], least)
			}
		}
		return nil
	}
	return c
}

// writeJudgement writes recall per kind and length as a table.
func writeJudgement(w io.Writer, j *train.Judgement) error {
	var lengths []int
	byKind := map[tasks.Kind]map[int]train.Recall{}
	for _, r := range j.Recall {
		if byKind[r.Kind] == nil {
			byKind[r.Kind] = map[int]train.Recall{}
		}
		byKind[r.Kind][r.Rows] = r
		if r.Kind == tasks.Kinds[0] {
			lengths = append(lengths, r.Rows)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "right answers\t")
	for _, n := range lengths {
		fmt.Fprintf(t, "%d tokens\t", n)
	}
	fmt.Fprintln(t)
	for _, k := range tasks.Kinds {
		fmt.Fprintf(t, "%s\t", k)
		for _, n := range lengths {
			r := byKind[k][n]
			fmt.Fprintf(t, "%.1f %% of %d\t", 100*float64(r.Right)/float64(max(1, r.Questions)), r.Questions)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprint(t, "recall\t")
	for _, n := range lengths {
		fmt.Fprintf(t, "%.1f %%\t", 100*j.Share(n))
	}
	fmt.Fprintln(t)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "answer tokens: loss %.4f\n", j.Loss)
	if err == nil && j.Prose > 0 {
		_, err = fmt.Fprintf(w, "held-out prose: perplexity %.1f per token\n", j.Perplexity())
	}
	return err
}
