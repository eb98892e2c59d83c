package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/bench/qccbench"
	"samebit/nn"
	"samebit/qcc"
	"samebit/tensor"
)

// Answers in words of a model with its full cache, and with a bounded one.

// answerFlags choose a model and its bounded memory: an adapter, a sieve, or a window
// with an archive of so many codes.
type answerFlags struct {
	retrofitFlags
	codes, sinks       int
	mix                float64
	exact, quality     bool
	exactSet, exactWay int
}

func (f *answerFlags) register(c *cobra.Command) {
	f.retrofitFlags.register(c)
	f.bounded.registerSieve(c)
	c.Flags().Lookup("window").Usage = "window of `N` tokens with an archive that nobody trained (without --adapter and --sieve: 4096)"
	p := c.Flags()
	p.IntVar(&f.codes, "num-codes", 64, "with a window: `N` codes per head")
	p.IntVar(&f.sinks, "sinks", 0, "with a window: the first `N` rows stay exact")
	p.Float64Var(&f.mix, "archive-mix", 0, "with a window: constant weight `X` of the archive (default: a gate)")
	p.BoolVar(&f.exact, "exact", false, "with a window: a table of original keys and values, too")
	p.IntVar(&f.exactSet, "exact-sets", 128, "with --exact: `N` sets")
	p.IntVar(&f.exactWay, "exact-ways", 4, "with --exact: `N` slots in a set")
	p.BoolVar(&f.quality, "quality-first", false, "with --exact: admit every row and score it by the query of the moment")
}

// check refuses flags that have no effect.
func (f *answerFlags) check(c *cobra.Command) error {
	if !f.bounded.wanted() && f.bounded.sieve == 0 {
		f.bounded.window = 4096
	}
	if err := f.bounded.check(false); err != nil {
		return err
	}
	if f.bounded.window == 0 {
		if err := unused(c, "goes with a window: an adapter and a sieve say themselves what they keep", "num-codes", "sinks", "archive-mix", "exact"); err != nil {
			return err
		}
	}
	if f.exact {
		return nil
	}
	return unused(c, "goes with --exact", "exact-sets", "exact-ways", "quality-first")
}

// open loads the model, and makes the same one of bounded memory. Both, and text, hold
// until close is called.
func (f *answerFlags) open(c *cobra.Command, dev backend.Device) (full, own *nn.Decoder, text qccbench.Text, close func(), err error) {
	path := resolveModel(f.path)
	t, err := openTokenizer(path)
	if err != nil {
		return nil, nil, text, nil, err
	}
	set, shape, err := openSet(path)
	if set != nil {
		set.Close()
	}
	if err != nil {
		return nil, nil, text, nil, err
	}
	t.AddStops(shape.EOS...)
	text = qccbench.Text{Size: t.Size(), Decode: t.TextSkip,
		Encode: func(s string) []int32 { return t.EncodeSpecial(nil, s) },
		Plain:  func(s string) []int32 { return t.EncodePlain(nil, s) },
		Stop:   t.IsStop}
	if full, err = loadDecoder(c.Context(), dev, path, tensor.F32, nil); err != nil {
		return nil, nil, text, nil, err
	}
	if own, close, err = f.bound(c, dev, full); err != nil {
		full.Close()
		return nil, nil, text, nil, err
	}
	return full, own, text, close, nil
}

// bound makes the model of bounded memory; close closes both.
func (f *answerFlags) bound(c *cobra.Command, dev backend.Device, d *nn.Decoder) (own *nn.Decoder, close func(), err error) {
	if f.bounded.sieve != 0 {
		s, err := qcc.Sieved(d, qcc.Sieve{Slots: f.bounded.sieve})
		if err != nil {
			return nil, nil, err
		}
		f.memory = fmt.Sprintf("sieve of %d rows", f.bounded.sieve)
		if f.generated, err = generatedModel(c.Context(), dev, resolveModel(f.path), d); err != nil {
			s.Close()
			return nil, nil, err
		}
		return s, func() { s.Close(); d.Close() }, nil
	}
	a, err := f.bounded.adapterWith(d, func(cfg *qcc.Config) {
		cfg.Codes, cfg.Sinks = f.codes, f.sinks
		if c.Flags().Changed("archive-mix") {
			cfg.Remote = &f.mix
		}
		if f.exact {
			cfg.Exact = qcc.DefaultExact()
			cfg.Exact.Sets, cfg.Exact.Ways, cfg.Exact.QualityFirst = f.exactSet, f.exactWay, f.quality
		}
	})
	if err != nil {
		return nil, nil, err
	}
	if err := f.name(c.Context(), dev, d, a); err != nil {
		return nil, nil, err
	}
	p, err := qcc.Patch(dev, d, a)
	if err != nil {
		return nil, nil, err
	}
	return p.Decoder, func() { p.Close(); d.Close() }, nil
}

// unanswered prints a result without an answer and says why there is none.
func unanswered(c *cobra.Command, result any, why string) error {
	printJSON(c.OutOrStdout(), result) // the writer remembers its failure
	return fmt.Errorf("no row could be answered: %s", why)
}

// rulerTask is the task of a file: RULER writes TASK/validation.jsonl.
func rulerTask(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	if name == "validation" || name == "test" {
		if full, err := filepath.Abs(path); err == nil {
			return filepath.Base(filepath.Dir(full))
		}
	}
	return name
}

func benchQCCRuler() *cobra.Command {
	var af answerFlags
	var cfg qccbench.RulerConfig
	var files []string
	c := qccCommand("ruler", "Answer rows of RULER with a bounded memory and with the full cache", `Answer rows that RULER's scripts wrote ({"index", "input", "outputs", "length"}, one
JSON object a line; the file's name, or the folder of a validation.jsonl, is the task)
with a model and with the same one of bounded memory, by the likeliest tokens. The
score of an answer is the share of the references that it contains, in any case; 0 if
it does not end within --max-new-tokens or fails. Scores and ratios are by task and
length; a ratio is null where the full cache scores 0. full_suite is always false.
Without --adapter, --window and --sieve the window is 4,096 tokens.`,
		"  samebit bench qcc-ruler -m MODEL --ruler-jsonl niah_single_1/validation.jsonl\n  samebit bench qcc-ruler -m MODEL --sieve 4096 --min-native-context 32768 --ruler-jsonl vt/validation.jsonl,cwe/validation.jsonl",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			if len(files) == 0 {
				return nil, usagef("bench qcc-ruler: no rows: give --ruler-jsonl FILE")
			}
			if err := af.check(c); err != nil {
				return nil, err
			}
			var records []qccbench.RulerRecord
			for _, name := range files {
				in, err := os.Open(name)
				if err != nil {
					return nil, fmt.Errorf("bench qcc-ruler: --ruler-jsonl: %w", err)
				}
				l, err := qccbench.ReadRuler(in, rulerTask(name))
				in.Close()
				if err != nil {
					return nil, fmt.Errorf("bench qcc-ruler: %s: %w", name, err)
				}
				records = append(records, l...)
			}
			full, own, text, close, err := af.open(c, dev)
			if err != nil {
				return nil, err
			}
			defer close()
			cfg.RunID, cfg.Memory, cfg.Generated = id, af.memory, af.generated
			bar := newBar("answering", false)
			cfg.Progress = bar.rows
			r, err := qccbench.RunRuler(c.Context(), dev, full, own, text, records, cfg)
			bar.finish()
			if err == nil && r.Errors == 2*len(r.Records) {
				err = unanswered(c, r, r.Records[0].Full.Error)
			}
			if err != nil {
				return nil, fmt.Errorf("bench qcc-ruler: %w", err)
			}
			return r, nil
		})
	f := c.Flags()
	f.StringSliceVar(&files, "ruler-jsonl", nil, "`FILES` of rows")
	af.register(c)
	f.IntVar(&cfg.Max, "max-examples", 0, "answer `N` rows (0: all)")
	f.IntVar(&cfg.Skip, "skip-examples", 0, "leave out the first `N` rows")
	f.IntVar(&cfg.Tokens, "max-new-tokens", 128, "answers of up to `N` tokens")
	f.IntVar(&cfg.MinNative, "min-native-context", 128000, "refuse a model whose context is below `N` tokens")
	f.IntVar(&cfg.Chunk, "prefill-chunk-size", 512, "`N` rows of a pass")
	return c
}
