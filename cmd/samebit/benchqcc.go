package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"samebit/backend"
	"samebit/bench/qccbench"
	"samebit/qcc"
	"samebit/tensor"
)

// newBenchQCC are the measurements of attention of constant memory. Each prints one
// JSON object.
func newBenchQCC() []*cobra.Command {
	return []*cobra.Command{benchQCCDecode(), benchQCCScaling(), benchQCCSpeed(), benchQCCTradeoff(), benchQCCLong(), benchQCCAudit(),
		benchQCCFullKV(), benchQCCLearn(), benchQCCSynthetic(), benchQCCShakespeare(), benchQCCTrainRetrieval(), benchQCCAssociative(), makeQCCStrict(), benchQCCRetrieval(), benchQCCRetrofit(), benchQCCPerplexity(), benchQCCRuler(), benchQCCLongBench(), makeQCCNeedles(), benchQCCNeedles(), makeQCCEvidence(),
		benchQCCLatency(), benchQCCConcurrency(), benchQCCStreaming(), benchQCCSmoke()}
}

// qccCommand makes a command whose run prints a result.
func qccCommand(name, short, long, example string, run func(c *cobra.Command, dev backend.Device, id string) (any, error)) *cobra.Command {
	var id string
	c := &cobra.Command{Use: "qcc-" + name + " [flags]", Short: short, Long: long, Example: example, Args: noArgs}
	c.Flags().SortFlags = false
	mf := modelFlags{}
	mf.registerDevice(c)
	c.Flags().StringVar(&id, "run-id", "", "`TEXT` that names the run in its result (default: the time)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := mf.check(); err != nil {
			return err
		}
		if id == "" {
			id = newRunID()
		}
		dev, err := newDevice(mf.device, mf.threads)
		if err != nil {
			return err
		}
		defer dev.Close()
		r, err := run(c, dev, id)
		if err != nil {
			return err
		}
		return printJSON(c.OutOrStdout(), r)
	}
	return c
}

// newRunID names a run that nobody named.
func newRunID() string { return time.Now().UTC().Format("20060102T150405Z") }

// qccShellFlags are options of the models of random weights.
func qccShellFlags(c *cobra.Command, cfg *qccbench.DecodeConfig, mode *string) {
	cfg.Shell = qccbench.Published
	f := c.Flags()
	f.StringVar(mode, "mode", "decode", "`MODE` is decode (token by token) or prefill (in chunks)")
	f.IntVar(&cfg.Warmup, "warmup", 1, "`N` runs before those that count")
	f.IntVar(&cfg.Steps, "steps", 3, "`N` runs of either model, in turn; medians count")
	f.IntVar(&cfg.Chunk, "chunk-size", 512, "`N` rows of a pass of a prefill")
	f.IntVar(&cfg.Window, "window-size", 0, "window of `N` rows (0: 128, or one less than the text)")
	f.IntVar(&cfg.Codes, "num-codes", 16, "`N` codes per head")
	f.IntVar(&cfg.Active, "active-codes", 0, "read and, with lazy decay, write `N` codes (0: all)")
	f.BoolVar(&cfg.Lazy, "lazy-decay", false, "decay codes when they are used")
	f.IntVar(&cfg.Stride, "archive-read-stride", 1, "read every `N`th token and use the last read between")
}

func benchQCCDecode() *cobra.Command {
	var cfg qccbench.DecodeConfig
	var mode string
	var length int
	c := qccCommand("decode", "Time a text with a bounded state and with a full cache", `Time one text with a model of random weights (2 layers, 256 wide, 8 heads, 4,096
tokens) and with its retrofit, in turn. Times are of the whole text.`,
		"  samebit bench qcc-decode --length 4096\n  samebit bench qcc-decode --length 16384 --mode prefill",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			cfg.RunID, cfg.Mode = id, qccbench.Mode(mode)
			return qccbench.RunDecode(c.Context(), dev, length, cfg)
		})
	c.Flags().IntVar(&length, "length", 512, "text of `N` tokens")
	qccShellFlags(c, &cfg, &mode)
	return c
}

func benchQCCScaling() *cobra.Command {
	var cfg qccbench.DecodeConfig
	var mode string
	var lengths []int
	c := qccCommand("scaling", "Time texts of several lengths", `Time texts of several lengths as qcc-decode does, and fit the slope of the
logarithm of the time over that of the length: 1 is linear.`,
		"  samebit bench qcc-scaling --mode prefill --lengths 1024,2048,4096",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			cfg.RunID, cfg.Mode = id, qccbench.Mode(mode)
			return qccbench.RunScaling(c.Context(), dev, lengths, cfg)
		})
	c.Flags().IntSliceVar(&lengths, "lengths", []int{256, 512, 1024, 2048}, "`LIST` of lengths")
	qccShellFlags(c, &cfg, &mode)
	return c
}

func benchQCCSpeed() *cobra.Command {
	cfg := qccbench.SpeedConfig{Shell: qccbench.Published}
	var decode, prefill []float64
	c := qccCommand("speed", "Compare decoding behind long contexts, and prompts, with a full cache", `Compare a retrofit of the published shape (2 layers, 256 wide, 8 heads, 4,096
tokens, window 128, 16 codes, 4 scales) with the model of random weights that it was
made of: single tokens behind contexts, and whole prompts, in turn. With --require
and --require-prefill a smaller speedup is a failure.`,
		"  samebit bench qcc-speed --require 1,3,10 --require-prefill 1.5",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			if len(decode) > 0 && len(decode) != len(cfg.Contexts) || len(prefill) > 0 && len(prefill) != len(cfg.Prompts) {
				return nil, usagef("bench qcc-speed: give a speedup to require for each context, and for each prompt")
			}
			cfg.RunID = id
			bar := newBar("measuring", false)
			r, err := qccbench.RunSpeed(c.Context(), dev, cfg, bar.rows)
			bar.finish()
			if err != nil {
				return nil, err
			}
			for _, part := range []struct {
				what  string
				least []float64
				got   []qccbench.SpeedPoint
			}{{"decoding behind", decode, r.Decode}, {"a prompt of", prefill, r.Prefill}} {
				for i, least := range part.least {
					if p := part.got[i]; p.Speedup < least {
						printJSON(c.OutOrStdout(), r) // the writer remembers its failure
						return nil, fmt.Errorf("bench qcc-speed: %s %d tokens is %.2f times as fast as with a full cache, %.2f are required", part.what, p.Length, p.Speedup, least)
					}
				}
			}
			return r, nil
		})
	f := c.Flags()
	f.IntSliceVar(&cfg.Contexts, "contexts", []int{4096, 16384, 65536}, "`LIST` of rows before the tokens that are decoded")
	f.IntVarP(&cfg.Tokens, "tokens", "n", 64, "decode `N` tokens behind each")
	f.IntSliceVar(&cfg.Prompts, "prompts", []int{16384}, "`LIST` of lengths of prompts")
	f.IntVar(&cfg.Repeat, "repeat", 3, "run each prompt `N` times")
	f.IntVar(&cfg.Chunk, "chunk-size", 512, "`N` rows of a pass of a prefill")
	f.Float64SliceVar(&decode, "require", nil, "`LIST` of speedups of decoding, one for each context")
	f.Float64SliceVar(&prefill, "require-prefill", nil, "`LIST` of speedups of prompts, one for each")
	return c
}

func benchQCCStreaming() *cobra.Command {
	var cfg qccbench.StreamConfig
	var rf retrofitFlags
	var file string
	var window, codes int
	var growth float64
	c := qccCommand("streaming-memory", "Watch memory while a long text flows through a retrofitted model", `Retrofit a model, stream random tokens, or with --text those of a text, through it
and compare the memory of its state, after every pass, with what the configuration
says, and the memory of the process with what it was once the window was full. A state
that differs by a byte is a failure, and with --growth so is a process that grows by
more.`,
		"  samebit bench qcc-streaming-memory --total-tokens 1000000 --growth 1",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			if rf.bounded.file != "" && (c.Flags().Changed("window-size") || c.Flags().Changed("num-codes")) {
				return nil, usagef("bench qcc-streaming-memory: --adapter says itself how wide its window is and how many codes it has: leave --window-size and --num-codes out")
			}
			if err := cfg.Check(); err != nil {
				return nil, usagef("bench qcc-streaming-memory: --total-tokens %d --chunk %d: %v", cfg.Total, cfg.Chunk, err)
			}
			var err error
			if cfg.Text, err = rf.given(file); err != nil {
				return nil, err
			}
			d, err := loadDecoder(c.Context(), dev, resolveModel(rf.path), tensor.F32, nil)
			if err != nil {
				return nil, err
			}
			rf.bounded.window = window
			a, err := rf.bounded.adapterWith(d, func(q *qcc.Config) { q.Codes = codes })
			if err == nil {
				err = rf.name(c.Context(), dev, d, a)
			}
			if err != nil {
				d.Close()
				return nil, err
			}
			cfg.RunID, cfg.Memory, cfg.Generated = id, rf.memory, rf.generated
			bar := newBar("streaming", false)
			cfg.Progress = bar.rows
			r, err := qccbench.RunStream(c.Context(), dev, d, a, cfg)
			bar.finish()
			if err != nil {
				return nil, err
			}
			if r.Mismatch > 0 || growth > 0 && (r.Filled == 0 || 100*r.Growth > growth) {
				printJSON(c.OutOrStdout(), r) // the writer remembers its failure
				return nil, fmt.Errorf("bench qcc-streaming-memory: %d passes left a state of another size than accounted; the process grew by %.2f %%", r.Mismatch, 100*r.Growth)
			}
			return r, nil
		})
	f := c.Flags()
	f.StringVarP(&rf.path, "model", "m", "", modelHelp)
	f.StringVar(&rf.bounded.file, "adapter", "", "bound the model's memory by the adapter in `FILE`, made by calibrate")
	f.StringVar(&file, "text", "", givenHelp)
	f.IntVar(&cfg.Total, "total-tokens", 131072, "stream `N` tokens")
	f.IntVar(&cfg.Chunk, "chunk", 512, "`N` rows of a pass")
	f.IntVar(&window, "window-size", 128, "without --adapter: window of `N` rows")
	f.IntVar(&codes, "num-codes", 16, "without --adapter: `N` codes per head")
	f.Float64Var(&growth, "growth", 0, "fail if the process grows by more than `P` percent after the window is full (0: never)")
	return c
}

func benchQCCLong() *cobra.Command {
	cfg := qccbench.LongConfig{Shell: qccbench.Published}
	var run bool
	c := qccCommand("long-context", "Count the state of a long text, and run it", `Count the state of a long text beside an exact cache, by the published formula and
in bytes as they are. With --run, stream the text through a model of random weights
and time the tokens after it.`,
		"  samebit bench qcc-long-context --length 1000000\n  samebit bench qcc-long-context --length 128000 --run",
		func(c *cobra.Command, dev backend.Device, id string) (any, error) {
			cfg.RunID, cfg.StateOnly = id, !run
			bar := newBar("streaming", false)
			cfg.Progress = bar.rows
			r, err := qccbench.RunLong(c.Context(), dev, cfg)
			bar.finish()
			return r, err
		})
	f := c.Flags()
	f.IntVar(&cfg.Length, "length", 128000, "text of `N` tokens")
	f.IntVar(&cfg.Chunk, "chunk-size", 256, "`N` rows of a pass")
	f.IntVar(&cfg.Window, "window-size", 128, "window of `N` rows")
	f.IntVar(&cfg.Codes, "num-codes", 16, "`N` codes per head")
	f.BoolVar(&cfg.Lexical, "lexical-landmark", false, "address the archive by the layer's input")
	f.BoolVar(&run, "run", false, "run the text, too")
	f.IntVar(&cfg.Tokens, "tokens", 16, "with --run: time `N` tokens after it")
	return c
}
