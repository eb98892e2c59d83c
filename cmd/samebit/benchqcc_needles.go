package main

import (
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

func makeQCCNeedles() *cobra.Command {
	var cfg qccbench.ManifestConfig
	var path, text string
	c := &cobra.Command{Use: "qcc-make-real-retrieval-1m [flags] --text FILE -o FILE", Short: "Lay down what qcc-retrieval-1m will ask for", Args: noArgs,
		Long: `Write a manifest of trials: sentences that give keys numbers of eight digits, hidden at
random depths, from 0.01 to 0.97, of contexts of exactly so many tokens of a text. All
needles of a trial are asked for; distractors share a word of their key with one. The
manifest names the text by its SHA-256, and holds no tokens: any model can run it.`,
		Example: "  samebit bench qcc-make-real-retrieval-1m --text book.txt -o manifest.json\n  samebit bench qcc-make-real-retrieval-1m --text book.txt --trials 20 --context-tokens 4096 -o small.json"}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&text, "text", "", "`FILE` of the text that needles are hidden in")
	f.StringVarP(&path, "out", "o", "", "`FILE` to write")
	f.IntVar(&cfg.Trials, "trials", 1000, "`N` texts")
	f.IntVar(&cfg.Context, "context-tokens", 1000000, "`N` tokens of each, before the question")
	f.IntVar(&cfg.Needles, "needles", 4, "`N` needles in each")
	f.IntVar(&cfg.Distractors, "distractors", 12, "`N` distractors in each, at most four for a needle")
	f.Uint64Var(&cfg.Seed, "seed", 1, "`N` that begins all random draws")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch {
		case text == "":
			return usagef("bench qcc-make-real-retrieval-1m: no text: give --text FILE")
		case path == "":
			return usagef("bench qcc-make-real-retrieval-1m: nowhere to write: give -o FILE")
		}
		data, err := os.ReadFile(text)
		var m qccbench.Manifest
		if err == nil {
			m, err = qccbench.NewManifest(data, cfg)
		}
		if err == nil {
			err = wholefile.Write(path, func(w io.Writer) error { return qccbench.WriteManifest(w, m) })
		}
		if err != nil {
			return fmt.Errorf("bench qcc-make-real-retrieval-1m: %w", err)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%d trials in %s\n", len(m.Trials), filepath.Base(path))
		return err
	}
	return c
}

func benchQCCNeedles() *cobra.Command {
	var af answerFlags
	var cfg qccbench.NeedlesConfig
	var manifest, textFile, results string
	c := qccCommand("retrieval-1m", "Find hidden numbers with a bounded memory and with the full cache", `Run a manifest of qcc-make-real-retrieval-1m with a model and with the same one of
bounded memory: either reads a context once and is asked for each needle behind it; the
first number of eight digits that it says is its answer. A trial succeeds if all its
needles are found. With --results each trial is kept in a file when it is done, and a
run of the same --run-id goes on where that ends. Fewer than 1,000 trials, or contexts
of less than a million tokens, are no evidence: not_evidence says so.
Without --adapter, --window and --sieve the window is 4,096 tokens.`,
		`  samebit bench qcc-retrieval-1m -m MODEL --text book.txt --manifest manifest.json --run-id a1 --results a1.jsonl
  samebit bench qcc-retrieval-1m --text book.txt --manifest small.json --sieve 256 --min-native-context 0`,
		func(c *cobra.Command, dev backend.Device, id string) (_ any, err error) {
			switch {
			case manifest == "" || textFile == "":
				return nil, usagef("bench qcc-retrieval-1m: nothing to run: give --manifest FILE and the --text FILE that it was made for")
			case results != "" && !c.Flags().Changed("run-id"):
				return nil, usagef("bench qcc-retrieval-1m: --results goes with --run-id: a run is gone on with by its name")
			}
			if err := af.check(c); err != nil {
				return nil, err
			}
			data, err := os.ReadFile(manifest)
			if err != nil {
				return nil, fmt.Errorf("bench qcc-retrieval-1m: --manifest: %w", err)
			}
			text, err := os.ReadFile(textFile)
			if err != nil {
				return nil, fmt.Errorf("bench qcc-retrieval-1m: --text: %w", err)
			}
			full, own, answers, close, err := af.open(c, dev)
			if err != nil {
				return nil, err
			}
			defer close()
			if results != "" {
				var file io.Closer
				cfg.Have, cfg.Emit, file, err = resumeResults("bench qcc-retrieval-1m", results, qccbench.ReadNeedles)
				if err != nil {
					return nil, err
				}
				defer func() { err = errors.Join(err, file.Close()) }()
			}
			cfg.RunID, cfg.Memory, cfg.Generated = id, af.memory, af.generated
			bar := newBar("asking", false)
			cfg.Progress = bar.rows
			r, err := qccbench.RunNeedles(c.Context(), dev, full, own, answers, data, text, cfg)
			bar.finish()
			if err == nil && r.Errors == r.Trials {
				printJSON(c.OutOrStdout(), r) // the writer remembers its failure
				err = fmt.Errorf("none of the %d trials could be run: %s", r.Trials, r.FirstError)
			}
			if err != nil {
				return nil, fmt.Errorf("bench qcc-retrieval-1m: %w", err)
			}
			return r, nil
		})
	f := c.Flags()
	f.StringVar(&manifest, "manifest", "", "`FILE` of qcc-make-real-retrieval-1m")
	f.StringVar(&textFile, "text", "", "`FILE` that it was made for")
	f.StringVar(&results, "results", "", "keep trials in `FILE`, and go on where it ends (default: do not)")
	af.register(c)
	f.IntVar(&cfg.Tokens, "max-new-tokens", 32, "answers of up to `N` tokens")
	f.IntVar(&cfg.MinNative, "min-native-context", 1000000, "refuse a model whose context is below `N` tokens")
	f.IntVar(&cfg.Chunk, "prefill-chunk-size", 512, "`N` rows of a pass")
	return c
}
