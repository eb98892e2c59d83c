package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/bench/qccbench"
	"samebit/internal/wholefile"
	"samebit/models"
	"samebit/nn"
	"samebit/qcc"
	"samebit/tensor"
)

// Measurements of a model beside its retrofit.

// retrofitFlags choose a model and how its memory is bounded.
type retrofitFlags struct {
	path      string
	bounded   boundedFlags
	memory    string // how it is bounded, from open on
	generated bool   // the project made the model, from open on
}

func (f *retrofitFlags) register(c *cobra.Command) {
	c.Flags().StringVarP(&f.path, "model", "m", "", modelHelp)
	f.bounded.register(c)
	w := c.Flags().Lookup("window")
	w.Usage = "window of `N` tokens with an archive that nobody trained (without --adapter: 128)"
}

// open loads the model and its adapter. Without flags the window is 128.
func (f *retrofitFlags) open(c *cobra.Command, dev backend.Device) (*nn.Decoder, *qcc.Adapter, error) {
	if !f.bounded.wanted() {
		f.bounded.window = 128
	}
	if err := f.bounded.check(false); err != nil {
		return nil, nil, err
	}
	d, err := loadDecoder(c.Context(), dev, resolveModel(f.path), tensor.F32, nil)
	if err != nil {
		return nil, nil, err
	}
	a, err := f.bounded.adapter(d)
	if err == nil {
		err = f.name(c.Context(), dev, d, a)
	}
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return d, a, nil
}

// name fills in memory and generated.
func (f *retrofitFlags) name(ctx context.Context, dev backend.Device, d *nn.Decoder, a *qcc.Adapter) (err error) {
	h := sha256.New() // a file's name is not enough: results are joined, and gone on with, by it
	if _, err := a.WriteTo(h); err != nil {
		return err
	}
	f.memory = fmt.Sprintf("window of %d rows, adapter sha256 %x", a.Config.Window, h.Sum(nil))
	f.generated, err = generatedModel(ctx, dev, resolveModel(f.path), d)
	return err
}

// generatedModel reports whether a model is one that is in the program, by its name or,
// in a file, by its weights. What else a file holds, nothing here can know.
func generatedModel(ctx context.Context, dev backend.Device, path string, d *nn.Decoder) (bool, error) {
	if _, inside := embedded(path); inside {
		return true, nil
	}
	for _, name := range models.Names {
		set, shape, err := openSet(name)
		if set != nil {
			set.Close()
		}
		if err != nil {
			return false, err
		}
		if shape.Hidden != d.Hidden || shape.Vocab != d.Vocab || shape.Layers != len(d.Blocks) {
			continue
		}
		own, err := loadDecoder(ctx, dev, name, tensor.F32, nil)
		if err != nil {
			return false, err
		}
		same := own.ID == d.ID
		own.Close()
		if same {
			return true, nil
		}
	}
	return false, nil
}

// given are the tokens of the text that is measured, none without a file.
func (f *retrofitFlags) given(file string) ([]int32, error) {
	if file == "" {
		return nil, nil
	}
	texts, err := f.tokens([]string{file}, 0)
	if err == nil && len(texts[0]) == 0 {
		err = fmt.Errorf("text %s has no tokens: give another one, or leave --text out", file)
	}
	if err != nil {
		return nil, err
	}
	return texts[0], nil
}

// givenHelp is the flag of such a text.
const givenHelp = "read the beginning of `FILE` (default: random tokens, and the result is synthetic)"

// tokens are those of text files, one list for each.
func (f *retrofitFlags) tokens(files []string, most int) ([][]int32, error) {
	t, err := openTokenizer(resolveModel(f.path))
	if err != nil {
		return nil, err
	}
	var l [][]int32
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("text: %w", err)
		}
		ids := t.EncodePlain(nil, string(data))
		if most > 0 {
			ids = ids[:min(most, len(ids))]
		}
		l = append(l, ids)
	}
	return l, nil
}

func benchQCCRetrofit() *cobra.Command {
	var rf retrofitFlags
	cfg := qccbench.RetrofitConfig{}
	var files []string
	var most int
	c := qccCommand("retrofit", "Compare the logits of a retrofitted model with its own", `Read texts with a model and with its retrofit and compare every row of logits, and
by themselves those beyond the window, which alone can differ. It passes if cosine
and top-1 agreement beyond the window both reach the gate; read the divergence (KL)
and the top-1 agreement, the cosine alone says little.`,
		"  samebit bench qcc-retrofit --window 64 --text book.txt --max-tokens 1024\n  samebit bench qcc-retrofit --adapter out/adapter.safetensors --text book.txt",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			if len(files) == 0 {
				return nil, usagef("bench qcc-retrofit: no text: give --text FILE")
			}
			texts, err := rf.tokens(files, most)
			if err != nil {
				return nil, err
			}
			d, a, err := rf.open(c, dev)
			if err != nil {
				return nil, err
			}
			cfg.RunID, cfg.Synthetic = id, rf.generated
			return qccbench.RunRetrofit(c.Context(), dev, d, a, texts, cfg)
		})
	rf.register(c)
	f := c.Flags()
	f.StringSliceVar(&files, "text", nil, "`FILES` to read")
	f.IntVar(&most, "max-tokens", 2048, "read `N` tokens of each (0: all)")
	f.IntVar(&cfg.Chunk, "forward-chunk-size", 256, "`N` rows of a pass")
	f.Float64Var(&cfg.Gate, "quality-gate", 0.99, "cosine and agreement `X` to reach")
	return c
}

func benchQCCPerplexity() *cobra.Command {
	var rf retrofitFlags
	var cfg qccbench.PerplexityConfig
	var file string
	c := qccCommand("perplexity", "Compare how well a retrofitted model and its own predict a text", `Read a text as one sequence with a model and with its retrofit, in chunks whose
borders drop no token, and print the mean negative log-likelihood of either. A score
is 1/perplexity, a task a quarter of the text. A text of PG-19 is one only if you say
so, by --benchmark pg19; full_suite is always false: one text is no suite.`,
		"  samebit bench qcc-perplexity --window 256 --text book.txt --max-tokens 4096\n  samebit bench qcc-perplexity -m MODEL --adapter out/adapter.safetensors --text pg19/10146.txt --benchmark pg19 --max-tokens 0",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			if file == "" {
				return nil, usagef("bench qcc-perplexity: no text: give --text FILE")
			}
			if cfg.Benchmark != "" {
				if err := oneOf("benchmark", []string{"pg19"}, cfg.Benchmark); err != nil {
					return nil, err
				}
			}
			texts, err := rf.tokens([]string{file}, cfg.Max)
			if err != nil {
				return nil, err
			}
			d, a, err := rf.open(c, dev)
			if err != nil {
				return nil, err
			}
			cfg.RunID, cfg.Memory, cfg.Generated = id, rf.memory, rf.generated
			return qccbench.RunPerplexity(c.Context(), dev, d, a, texts[0], cfg)
		})
	rf.register(c)
	f := c.Flags()
	f.StringVar(&file, "text", "", "`FILE` to read")
	f.IntVar(&cfg.Max, "max-tokens", 4096, "read `N` tokens (0: all)")
	f.IntVar(&cfg.Chunk, "chunk-tokens", 512, "`N` rows of a pass")
	f.StringVar(&cfg.Benchmark, "benchmark", "", "`NAME` of what the text is of, which is yours to say: pg19 (default: none)")
	f.IntVar(&cfg.MinNative, "min-native-context", 0, "refuse a model whose context is below `N` tokens (0: none)")
	return c
}

func benchQCCLatency() *cobra.Command {
	var rf retrofitFlags
	var cfg qccbench.LatencyConfig
	var file string
	c := qccCommand("latency", "Compare first and later tokens of a retrofitted model with its own", `Time prompts and the tokens after them with a model and with its retrofit, in turn:
means and quantiles, interpolated linearly. Tokens are random ones, or with --text
those of a text.`,
		"  samebit bench qcc-latency --length 2048 --repeats 5\n  samebit bench qcc-latency --length 2048 --repeats 5 --text book.txt",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			var err error
			if cfg.Text, err = rf.given(file); err != nil {
				return nil, err
			}
			d, a, err := rf.open(c, dev)
			if err != nil {
				return nil, err
			}
			cfg.RunID, cfg.Memory, cfg.Generated = id, rf.memory, rf.generated
			return qccbench.RunLatency(c.Context(), dev, d, a, cfg)
		})
	rf.register(c)
	f := c.Flags()
	f.StringVar(&file, "text", "", givenHelp)
	f.IntVar(&cfg.Length, "length", 1024, "prompt of `N` tokens")
	f.IntVar(&cfg.Repeats, "repeats", 1, "`N` prompts that count")
	f.IntVar(&cfg.Warmup, "warmup", 0, "`N` prompts before")
	f.IntVar(&cfg.Tokens, "decode-steps", 8, "`N` tokens after each")
	f.IntVar(&cfg.Chunk, "chunk", 512, "`N` rows of a pass")
	return c
}

func benchQCCConcurrency() *cobra.Command {
	var rf retrofitFlags
	var cfg qccbench.ConcurrencyConfig
	var mib int
	var file string
	c := qccCommand("concurrency", "Decode batches with a retrofitted model and with its own", `Decode batches of sequences together, each behind a context, with a model and with
its retrofit. With a budget, batches whose states do not fit are reported as oom.`,
		"  samebit bench qcc-concurrency --length 2048 --batch-sizes 1,2,4,8 --budget 64",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			if err := atLeast("budget", 0, mib); err != nil {
				return nil, err
			}
			var err error
			if cfg.Text, err = rf.given(file); err != nil {
				return nil, err
			}
			d, a, err := rf.open(c, dev)
			if err != nil {
				return nil, err
			}
			cfg.RunID, cfg.Memory, cfg.Generated, cfg.BudgetBytes = id, rf.memory, rf.generated, int64(mib)<<20
			return qccbench.RunConcurrency(c.Context(), dev, d, a, cfg)
		})
	rf.register(c)
	f := c.Flags()
	f.StringVar(&file, "text", "", givenHelp)
	f.IntVar(&cfg.Length, "length", 1024, "`N` tokens before those that are timed")
	f.IntVar(&cfg.Tokens, "tokens", 16, "decode `N` tokens of each sequence")
	f.IntSliceVar(&cfg.Batches, "batch-sizes", []int{1, 2, 4, 8}, "`LIST` of sequences that decode together")
	f.IntVar(&cfg.Chunk, "chunk", 512, "`N` rows of a pass")
	f.IntVar(&mib, "budget", 0, "`N` MiB for the states of a batch (0: no limit)")
	return c
}

func benchQCCRetrieval() *cobra.Command {
	var rf retrofitFlags
	var cfg qccbench.RetrievalConfig
	var file string
	var toy toyModel
	c := qccCommand("evaluate-retrieval", "Ask a retrofitted or trained small model for tokens that its context gave", `Read records {"input_ids": [...], "target_position": N, "answers": [...]}, one JSON
object a line, with a retrofitted model, or with a small one that
qcc-train-synthetic-retrieval made, and count those whose likeliest token at the target
is an answer. Exit code 1 below the target.`,
		`  samebit bench qcc-make-strict-retrieval --lengths 512,1024 -o strict.jsonl
  samebit bench qcc-evaluate-retrieval --dataset strict.jsonl --compare-full-kv
  samebit bench qcc-evaluate-retrieval --checkpoint toy.safetensors --dataset strict.jsonl`,
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			if err := toy.check(c); err != nil {
				return nil, err
			}
			if toy.path != "" && (c.Flags().Changed("model") || rf.bounded.wanted()) {
				return nil, usagef("bench qcc-evaluate-retrieval: --checkpoint names the model to ask: leave --model, --adapter and --window out")
			}
			cfg.RunID = id
			ask := func() (qccbench.RetrievalResult, error) {
				if toy.path != "" {
					return toy.retrieve(c.Context(), dev, file, cfg)
				}
				in, err := os.Open(file)
				if err != nil {
					return qccbench.RetrievalResult{}, fmt.Errorf("--dataset: %w", err)
				}
				defer in.Close()
				d, a, err := rf.open(c, dev)
				if err != nil {
					return qccbench.RetrievalResult{}, err
				}
				return qccbench.RunRetrieval(c.Context(), dev, d, a, in, cfg)
			}
			r, err := ask()
			if err != nil {
				return nil, fmt.Errorf("bench qcc-evaluate-retrieval: %w", err)
			}
			if !r.Passed {
				printJSON(c.OutOrStdout(), r) // the writer remembers its failure
				err = fmt.Errorf("bench qcc-evaluate-retrieval: %d of %d records are right, %g of them are required", r.Correct, r.Records, cfg.Target)
			}
			return r, err
		})
	rf.register(c)
	f := c.Flags()
	f.StringVar(&file, "dataset", "", "`FILE` of records")
	toy.register(c)
	f.IntVar(&cfg.Chunk, "chunk-size", 256, "`N` rows of a pass")
	f.Float64Var(&cfg.Target, "target", 0.98, "share `X` of records to reach")
	f.BoolVar(&cfg.CompareFull, "compare-full-kv", false, "ask the model with its full cache, too")
	f.IntVar(&cfg.Max, "max-examples", 0, "read `N` records (0: all)")
	return c
}

func makeQCCStrict() *cobra.Command {
	var cfg qccbench.StrictConfig
	var path string
	c := &cobra.Command{Use: "qcc-make-strict-retrieval [flags] -o FILE", Short: "Write records for qcc-evaluate-retrieval", Args: noArgs,
		Long: `Write one record for each length and value: a marker and the value begin it, and
near the end the marker comes again, behind which the value should follow.`,
		Example: "  samebit bench qcc-make-strict-retrieval --lengths 1024 --vocab 64 -o strict.jsonl"}
	f := c.Flags()
	f.SortFlags = false
	f.StringVarP(&path, "out", "o", "", "`FILE` to write")
	f.IntSliceVar(&cfg.Lengths, "lengths", []int{128000, 1000000}, "`LIST` of lengths")
	f.IntVar(&cfg.Vocab, "vocab", 32, "vocabulary of `N` tokens")
	f.Float64Var(&cfg.QueryAt, "query-fraction", 0.9, "the query is at `X` of the length")
	f.Uint64Var(&cfg.Seed, "seed", 1, "`N` that begins all random draws")
	f.BoolVar(&cfg.RandomMarker, "random-marker", false, "another marker in each record")
	f.BoolVar(&cfg.RandomFiller, "random-filler", false, "random tokens between")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if path == "" {
			return usagef("bench qcc-make-strict-retrieval: nowhere to write: give -o FILE")
		}
		var n int
		err := wholefile.Write(path, func(w io.Writer) (err error) {
			n, err = qccbench.WriteStrict(w, cfg)
			return err
		})
		if err != nil {
			err = fmt.Errorf("bench qcc-make-strict-retrieval: %w", err)
		}
		if err == nil {
			_, err = fmt.Fprintf(c.OutOrStdout(), "%d records in %s\n", n, filepath.Base(path))
		}
		return err
	}
	return c
}
