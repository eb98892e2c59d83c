package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/bench/qccbench"
)

// Measurements of random weights, and of no weights at all.

func shellFlags(c *cobra.Command, s *qccbench.Shell) {
	f := c.Flags()
	f.IntVar(&s.Vocab, "vocab", s.Vocab, "vocabulary of `N` tokens")
	f.IntVar(&s.Hidden, "d-model", s.Hidden, "rows of `N` values")
	f.IntVar(&s.Layers, "layers", s.Layers, "`N` layers")
	f.IntVar(&s.Heads, "heads", s.Heads, "`N` heads")
	f.Uint64Var(&s.Seed, "seed", s.Seed, "`N` that begins all random draws")
}

func benchQCCTradeoff() *cobra.Command {
	cfg := qccbench.TradeoffConfig{Shell: qccbench.Shell{Vocab: 1024, Hidden: 128, Layers: 2, Heads: 4, Seed: 123}}
	c := qccCommand("tradeoff", "Compare reads that are used again with reads of every token", `Decode a text token by token with a model of random weights whose archive is read
every few tokens, or when the query has turned, and compare time and logits with
those of reads for every token.`,
		"  samebit bench qcc-tradeoff --query-thresholds 0.5,0.9",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			cfg.RunID = id
			return qccbench.RunTradeoff(c.Context(), dev, cfg)
		})
	f := c.Flags()
	f.IntVar(&cfg.Length, "length", 1024, "text of `N` tokens")
	f.IntVar(&cfg.Window, "window-size", 32, "window of `N` rows")
	f.IntVar(&cfg.Codes, "num-codes", 512, "`N` codes per head")
	f.IntVar(&cfg.Active, "active-codes", 4, "read and write `N` codes, with lazy decay (0: all, without)")
	f.IntSliceVar(&cfg.Strides, "strides", []int{1, 2, 4, 8}, "`LIST` of tokens from one read to the next")
	f.Float64SliceVar(&cfg.Closeness, "query-thresholds", nil, "`LIST` of cosines of queries from which a read is used again")
	f.BoolVar(&cfg.RepeatToken, "repeat-token", false, "a text of one token")
	shellFlags(c, &cfg.Shell)
	return c
}

func benchQCCLearn() *cobra.Command {
	var cfg qccbench.LearnConfig
	c := qccCommand("archive-quality", "Train the codes of an archive to stand for softmax attention", `Train the codes of an archive of one head, on random rows, to give what softmax
attention over the past gives whose weights decay alike, and compare the squared
error before and after on rows of its own. The decayed mean of the values, which looks
at no key, stands beside: an archive that is no better has learned nothing.`,
		"  samebit bench qcc-archive-quality --steps 1000 --num-codes 64",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			cfg.RunID = id
			return qccbench.RunLearn(c.Context(), dev, cfg)
		})
	f := c.Flags()
	f.IntVar(&cfg.Steps, "steps", 200, "make `N` steps")
	f.IntVar(&cfg.Batch, "batch", 8, "`N` texts of a step")
	f.IntVar(&cfg.Length, "length", 64, "texts of `N` tokens")
	f.IntVar(&cfg.Dim, "dim", 16, "a head of `N` values")
	f.IntVar(&cfg.Codes, "num-codes", 8, "`N` codes")
	f.IntVar(&cfg.Window, "window-size", 8, "window of `N` rows")
	f.Float64Var(&cfg.Decay, "decay", 0.94, "factor `X` of a token's age")
	f.Float64Var(&cfg.Rate, "lr", 0.03, "learning rate `X` of Adam")
	f.Uint64Var(&cfg.Seed, "seed", 123, "`N` that begins all random draws")
	return c
}

func benchQCCFullKV() *cobra.Command {
	cfg := qccbench.RandomConfig{Shell: qccbench.Shell{Vocab: 64, Hidden: 32, Layers: 1, Heads: 4, Seed: 123}}
	c := qccCommand("fullkv-quality", "Repeat the published logit fidelity of random weights", `Compare the logits of the small language model of random weights with those under
full attention. A bare window, and no attention at all, stand beside them: a target
that they reach too says nothing, and the result says so. This is no measure of
quality.`,
		"  samebit bench qcc-fullkv-quality",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			cfg.RunID = id
			return qccbench.RunRandomFidelity(c.Context(), dev, cfg)
		})
	f := c.Flags()
	f.IntSliceVar(&cfg.Lengths, "lengths", []int{64, 128, 256}, "`LIST` of lengths")
	f.IntVar(&cfg.Batch, "batch", 2, "`N` texts of each length")
	f.IntVar(&cfg.Window, "window-size", 8, "window of `N` rows")
	f.IntVar(&cfg.Codes, "num-codes", 16, "`N` codes per head")
	f.Float64Var(&cfg.Target, "target", 0.99, "mean cosine `X` to reach")
	shellFlags(c, &cfg.Shell)
	return c
}

func benchQCCAudit() *cobra.Command {
	cfg := qccbench.AuditConfig{Shell: qccbench.Published}
	var full, compare bool
	var toy toyModel
	var data string
	most := 4096
	c := qccCommand("audit-targets", "Judge in one report what random weights can judge", `Count states beside exact caches, and judge them with what random weights can tell
besides: each target has a value, a threshold and a status, which is missing where
nothing was measured. Quality is that of random weights and is marked as such;
retrieval needs a trained model: --checkpoint, one of qcc-train-synthetic-retrieval, and
--dataset, records to ask it.`,
		"  samebit bench qcc-audit-targets --state-only\n  samebit bench qcc-audit-targets --lengths 4096,128000 --compare-full",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			if err := toy.check(c); err != nil {
				return nil, err
			}
			if (toy.path == "") != (data == "") {
				return nil, usagef("bench qcc-audit-targets: --checkpoint and --dataset belong together")
			}
			if cfg.RunID = id; full {
				cfg.FullMax = most
			}
			if toy.path != "" {
				cfg.Retrieve = func(ctx context.Context) (qccbench.RetrievalResult, error) {
					return toy.retrieve(ctx, dev, data, qccbench.RetrievalConfig{RunID: id, Chunk: 256, Target: cfg.RetrievalTarget, CompareFull: compare})
				}
			}
			bar := newBar("measuring", false)
			cfg.Progress = bar.rows
			r, err := qccbench.RunAudit(c.Context(), dev, cfg)
			bar.finish()
			return r, err
		})
	f := c.Flags()
	f.IntSliceVar(&cfg.Lengths, "lengths", []int{128000, 1000000, 4000000}, "`LIST` of lengths whose state is counted")
	f.IntSliceVar(&cfg.QualityLengths, "quality-lengths", []int{1024, 2048}, "`LIST` of lengths of random weights' fidelity")
	f.IntVar(&cfg.Window, "window-size", 128, "window of `N` rows")
	f.IntVar(&cfg.Codes, "num-codes", 16, "`N` codes per head")
	f.Float64Var(&cfg.QualityTarget, "quality-target", 0.99, "mean cosine `X` to reach")
	f.BoolVar(&cfg.RunLatency, "run-latency", false, "stream every length, and time single tokens behind it")
	f.BoolVar(&full, "compare-full", false, "compare the time per token with a full cache")
	f.IntVar(&most, "full-max-length", most, "with --compare-full: up to `N` tokens")
	f.BoolVar(&cfg.StateOnly, "state-only", false, "count states, and run nothing")
	toy.register(c)
	f.StringVar(&data, "dataset", "", "with --checkpoint: `FILE` of records to ask it")
	f.Float64Var(&cfg.RetrievalTarget, "retrieval-target", 0.98, "share `X` of records to reach")
	f.BoolVar(&compare, "compare-full-retrieval", false, "ask the trained model with exact attention, too, and be as good")
	shellFlags(c, &cfg.Shell)
	return c
}

func benchQCCAssociative() *cobra.Command {
	var cfg qccbench.AssociativeConfig
	c := qccCommand("associative-retrieval", "Try the exact table with an oracle that says what to keep", `Store needles among distractors in the exact table of a layer and ask for them with
noisy queries. Keys and values are drawn and an oracle tells the table what to keep:
an upper bound, which no deployed admission reaches. Exit code 1 if it is missed.`,
		"  samebit bench qcc-associative-retrieval",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			if cfg.Trials < 1000 {
				return nil, usagef("bench qcc-associative-retrieval: --trials %d: want at least 1000", cfg.Trials)
			}
			cfg.RunID = id
			bar := newBar("trying", false)
			cfg.Progress = bar.rows
			r, err := qccbench.RunAssociative(c.Context(), dev, cfg)
			bar.finish()
			if err == nil && !r.Passed {
				printJSON(c.OutOrStdout(), r) // the writer remembers its failure
				err = fmt.Errorf("bench qcc-associative-retrieval: the table solves %.3f of the trials, and %.3f of those that a full search solves", r.Table, r.Ratio)
			}
			return r, err
		})
	f := c.Flags()
	f.IntVar(&cfg.Trials, "trials", 1000, "`N` trials, at least 1000")
	f.IntVar(&cfg.Context, "context-tokens", 1000000, "`N` tokens that needles are spread over")
	f.IntVar(&cfg.Needles, "needles", 8, "`N` needles")
	f.IntVar(&cfg.Near, "near-distractors", 8, "`N` distractors near each needle")
	f.Float64Var(&cfg.NearNoise, "near-noise", 0.1, "how far `X` those are from it")
	f.IntVar(&cfg.Random, "random-distractors", 64, "`N` other ones")
	f.IntVar(&cfg.Dim, "dim", 32, "keys of `N` values")
	f.IntVar(&cfg.Sets, "sets", 32, "table of `N` sets")
	f.IntVar(&cfg.Ways, "ways", 4, "`N` slots in a set")
	f.Float64Var(&cfg.QueryNoise, "query-noise", 0.02, "how far `X` queries are from needles")
	f.Float64Var(&cfg.RequireRate, "require-rate", 0.99, "fail below `X` of all trials")
	f.Float64Var(&cfg.RequireRatio, "require-ratio", 0.99, "fail below `X` of those that a full search solves")
	f.Uint64Var(&cfg.Seed, "seed", 1, "`N` that begins all random draws")
	return c
}
