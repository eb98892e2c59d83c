package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/bench/qccbench"
	"samebit/internal/wholefile"
)

// Trainings of the small language model, and the questions to what they made.

// toyFlags are the options of a training of the small model.
func toyFlags(c *cobra.Command, t *qccbench.Toy) {
	f := c.Flags()
	f.IntVar(&t.Steps, "steps", t.Steps, "make `N` steps")
	f.IntVar(&t.Batch, "batch", t.Batch, "`N` texts of a step")
	f.IntVar(&t.Window, "window-size", t.Window, "window of `N` rows")
	f.IntVar(&t.Codes, "num-codes", t.Codes, "`N` codes per head")
	f.Float64Var(&t.Rate, "lr", 0.003, "learning rate `X` of AdamW")
	f.Float64Var(&t.Decay, "weight-decay", 0.01, "weight decay `X` of AdamW")
	f.StringVar(&t.Position, "position", "sinusoidal", "`KIND` of positions: sinusoidal, learned, rope or none")
	f.IntVar(&t.MaxPosition, "max-position", 4096, "texts of up to `N` tokens; also the longest half-life")
}

// trainToy runs a training with a bar.
func trainToy[R any](c *cobra.Command, t *qccbench.Toy, run func(ctx context.Context) (R, error)) (R, error) {
	bar := newBar("training", false)
	defer bar.finish()
	t.Progress = bar.rows
	return run(c.Context())
}

func benchQCCSynthetic() *cobra.Command {
	cfg := qccbench.SyntheticConfig{Toy: qccbench.Toy{Shell: qccbench.Shell{Vocab: 32, Hidden: 32, Layers: 1, Heads: 4, Seed: 123}, Steps: 100, Batch: 16, Window: 8, Codes: 8}}
	c := qccCommand("synthetic-lm", "Train the small model, bounded and exact alike, to recall a value", `Train the small language model with window and archive, and with exact attention, on
the same texts from the same seed: a marker and a value begin each, and where the
marker comes again the value should follow. Losses and accuracy are those of texts that
neither was trained on; the same seed gives the same weights on any device.`,
		"  samebit bench qcc-synthetic-lm\n  samebit bench qcc-synthetic-lm --steps 400 --query-position 60",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			cfg.RunID = id
			return trainToy(c, &cfg.Toy, func(ctx context.Context) (qccbench.SyntheticResult, error) {
				return qccbench.RunSynthetic(ctx, dev, cfg)
			})
		})
	toyFlags(c, &cfg.Toy)
	f := c.Flags()
	f.IntVar(&cfg.Length, "length", 64, "texts of `N` tokens")
	f.IntVar(&cfg.Query, "query-position", 48, "the marker comes again at token `N`")
	shellFlags(c, &cfg.Shell)
	return c
}

func benchQCCShakespeare() *cobra.Command {
	cfg := qccbench.CharsConfig{Toy: qccbench.Toy{Shell: qccbench.Shell{Vocab: 1, Hidden: 64, Layers: 2, Heads: 4, Seed: 123}, Steps: 100, Batch: 8, Window: 32, Codes: 8}}
	var file string
	c := qccCommand("tiny-shakespeare", "Train the small model, bounded and exact alike, on the characters of a text", `Train the small language model with window and archive, and with exact attention, on
the same pieces of the first nine tenths of a text, and compare how well either foretells
the last tenth, every target the character that follows. The text is a file of yours, as
Tiny Shakespeare or any other in UTF-8; its characters are the vocabulary.`,
		"  samebit bench qcc-tiny-shakespeare --text input.txt\n  samebit bench qcc-tiny-shakespeare --text book.txt --steps 1000 --length 256",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			if file == "" {
				return nil, usagef("bench qcc-tiny-shakespeare: no text: give --text FILE")
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("bench qcc-tiny-shakespeare: --text: %w", err)
			}
			cfg.RunID, cfg.Text = id, string(text)
			return trainToy(c, &cfg.Toy, func(ctx context.Context) (qccbench.CharsResult, error) { return qccbench.RunChars(ctx, dev, cfg) })
		})
	f := c.Flags()
	f.StringVar(&file, "text", "", "`FILE` to learn")
	toyFlags(c, &cfg.Toy)
	f.IntVar(&cfg.Length, "length", 128, "pieces of `N` characters")
	f.IntVar(&cfg.EvalBatches, "eval-batches", 10, "judge by `N` batches of pieces")
	shellFlags(c, &cfg.Shell)
	f.MarkHidden("vocab") // the text's
	return c
}

func benchQCCTrainRetrieval() *cobra.Command {
	cfg := qccbench.LearnRetrievalConfig{Toy: qccbench.Toy{Shell: qccbench.Shell{Vocab: 32, Hidden: 32, Layers: 1, Heads: 4, Seed: 123}, Steps: 500, Batch: 32, Window: 16, Codes: 16}}
	var query int
	var threshold float64
	var path, data string
	c := qccCommand("train-synthetic-retrieval", "Train the small model to give back a value that has left its window", `Train the small language model, whose archive alone can know a value that has left the
window, on texts that a marker and the value begin and that ask for it by the marker. The
state of the batch with the lowest loss is kept and judged on texts of its own. --out
keeps it in a file and --dataset its questions, which qcc-evaluate-retrieval reads.`,
		`  samebit bench qcc-train-synthetic-retrieval -o toy.safetensors --dataset asked.jsonl
  samebit bench qcc-evaluate-retrieval --checkpoint toy.safetensors --dataset asked.jsonl --compare-full-kv`,
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			f := c.Flags()
			if f.Changed("query-position") && (f.Changed("query-min") || f.Changed("query-max")) || f.Changed("query-min") != f.Changed("query-max") {
				return nil, usagef("bench qcc-train-synthetic-retrieval: give --query-position, or --query-min and --query-max")
			}
			if !f.Changed("query-min") {
				cfg.QueryMin, cfg.QueryMax = query, query
			}
			if f.Changed("content-threshold") {
				cfg.Threshold = &threshold
			}
			for _, to := range []string{path, data} { // told before the training, not after it
				if _, err := os.Stat(filepath.Dir(to)); to != "" && err != nil {
					return nil, fmt.Errorf("bench qcc-train-synthetic-retrieval: no folder for %s: %w", to, err)
				}
			}
			var model, asked bytes.Buffer
			if path != "" {
				cfg.Checkpoint = &model
			}
			if data != "" {
				cfg.Examples = &asked
			}
			cfg.RunID = id
			r, err := trainToy(c, &cfg.Toy, func(ctx context.Context) (qccbench.LearnRetrievalResult, error) {
				return qccbench.RunLearnRetrieval(ctx, dev, cfg)
			})
			if err != nil {
				return nil, err
			}
			for to, from := range map[string]*bytes.Buffer{path: &model, data: &asked} {
				if to != "" {
					err = errors.Join(err, wholefile.Write(to, func(w io.Writer) error { _, err := from.WriteTo(w); return err }))
				}
			}
			if err != nil {
				printJSON(c.OutOrStdout(), r) // the writer remembers its failure
				return nil, fmt.Errorf("bench qcc-train-synthetic-retrieval: %w", err)
			}
			return r, nil
		})
	f := c.Flags()
	f.StringVarP(&path, "out", "o", "", "`FILE` for the kept model (default: none)")
	f.StringVar(&data, "dataset", "", "`FILE` for the records that it was judged on (default: none)")
	toyFlags(c, &cfg.Toy)
	f.IntVar(&cfg.Length, "train-length", 128, "texts of `N` tokens")
	f.IntVar(&query, "query-position", 96, "the marker comes again at token `N`")
	f.IntVar(&cfg.QueryMin, "query-min", 0, "with --query-max: at token `N` or later")
	f.IntVar(&cfg.QueryMax, "query-max", 0, "with --query-min: at token `N` or earlier")
	f.Float64Var(&threshold, "content-threshold", 0, "write only scores from `X` on (default: all)")
	f.IntSliceVar(&cfg.EvalLengths, "eval-lengths", []int{128, 512}, "`LIST` of lengths to judge by")
	f.IntVar(&cfg.EvalExamples, "eval-examples", 50, "`N` texts of each length")
	f.Float64Var(&cfg.QueryAt, "query-fraction", 0.75, "those ask at `X` of the length")
	shellFlags(c, &cfg.Shell)
	return c
}

// toyModel is a file of a training, and a way to ask it.
type toyModel struct {
	path        string
	maxPosition int
}

func (t *toyModel) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.path, "checkpoint", "", "`FILE` of qcc-train-synthetic-retrieval to ask instead of a retrofitted model")
	f.IntVar(&t.maxPosition, "max-position", 1000001, "with --checkpoint: texts of up to `N` tokens")
}

// check refuses what has no meaning without a file.
func (t *toyModel) check(c *cobra.Command) error {
	if t.path == "" && c.Flags().Changed("max-position") {
		return usagef("bench %s: --max-position is of the model of --checkpoint: give both or neither", c.Name())
	}
	return nil
}

// retrieve asks the model for the answers of records in a file.
func (t *toyModel) retrieve(ctx context.Context, dev backend.Device, dataset string, cfg qccbench.RetrievalConfig) (r qccbench.RetrievalResult, err error) {
	in, err := os.Open(dataset)
	if err != nil {
		return r, fmt.Errorf("--dataset: %w", err)
	}
	defer in.Close()
	file, err := os.Open(t.path)
	if err != nil {
		return r, fmt.Errorf("--checkpoint: %w", err)
	}
	defer file.Close()
	return qccbench.RunToyRetrieval(ctx, dev, file, t.maxPosition, in, cfg)
}
