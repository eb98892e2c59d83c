package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"samebit/models"
	"samebit/qcc"
	"samebit/qcc/eval"
)

// memoryReport is what eval-memory --json prints.
type memoryReport struct {
	Model    string       `json:"model"`
	Revision string       `json:"revision"`
	Device   string       `json:"device"`
	Version  string       `json:"version"`
	Wording  eval.Wording `json:"wording"`
	Seed     uint64       `json:"seed"`
	Totals   []eval.Total `json:"totals"`
	Rows     []eval.Row   `json:"rows"`
	Breaks   []eval.Break `json:"breaks"`
}

func newEvalMemory() *cobra.Command {
	var mf modelFlags
	var cfg eval.Config
	var taskNames, plots, adapters []string
	var wording, text, results string
	var asJSON, asMarkdown bool
	c := &cobra.Command{
		Use:   "eval-memory [flags]",
		Short: "Compare memories of constant size by the bytes they hold",
		Long: `A model reads generated texts with memories of constant size and answers questions
about them; the same model with its full cache stands beside. An answer is right if
every token of it is the model's first choice. Budgets are rows of keys and values:
each memory spends the bytes of so many rows, and what it really holds is counted.

Memories are full (everything), window (the last rows), sinks (the first four and the
last), sieve (qcc.Sieve: the first, the last and those that are least like the
others), table (window and exact tier, joined by mass), archive (as published, without
training) and compile (rows chosen by the question, which the others do not know when
they read). Each --adapter is a memory of its own size, named after its file (after its
directory if the file is adapter.safetensors) or as NAME=FILE says; beside it stands a
bare window of the same bytes.

Tasks are those of training (keyvalue, facts, documents, table), which only the models
in the program know, and recall (--pairs of them), single, multikey, variables (a chain
of three) and words (which one occurs most), in the wording that fits the model. With
--text, held-out text is read as well: perplexity, and how near the predictions are to
those of the full cache.

Intervals are 95 % bootstraps over texts. A memory breaks at the shortest length, in
recall also at the fewest pairs, where the interval of what it lacks beside the full
cache lies above 0; this takes five texts of each kind. With --results each result is
kept as it comes, and the same command goes on where it was stopped; a command that
asks for more adds to it, and reports all that is there.`,
		Example: `  samebit eval-memory
  samebit eval-memory --budgets 128,256,512 --rows 512,1024,2048 --contexts 40 --plot memory.svg
  samebit eval-memory --memories window,sieve --adapter out/adapter.safetensors --adapter short=out2/adapter.safetensors
  samebit eval-memory -m model.gguf --memories window,sinks,sieve,compile --pairs 4,16,64 --text book.txt --results out.jsonl`,
		Args: noArgs,
	}
	mf.register(c)
	f := c.Flags()
	f.StringSliceVar(&cfg.Methods, "memories", eval.Streaming, "`LIST` of memories to compare")
	f.IntSliceVar(&cfg.Budgets, "budgets", []int{128, 256}, "`LIST` of budgets, rows of keys and values, multiples of 64")
	f.StringSliceVar(&taskNames, "tasks", nil, "`LIST` of tasks (default: those that fit the model)")
	f.IntSliceVar(&cfg.Lengths, "rows", []int{512}, "`LIST` of lengths of the texts, in tokens, about")
	f.IntSliceVar(&cfg.Pairs, "pairs", []int{16}, "`LIST` of numbers of pairs of the task recall")
	f.IntVar(&cfg.Contexts, "contexts", 8, "`N` texts for each task and length")
	f.IntVar(&cfg.Questions, "questions", 8, "at most `N` questions about each text")
	f.Uint64Var(&cfg.Seed, "seed", 1, "`N` that begins all random draws")
	f.StringVar(&wording, "wording", "", "`WORDING` of the tasks that all models are asked: english or register (default: register for the models in the program)")
	f.StringVar(&text, "text", "", "held-out text in `FILE`")
	f.IntVar(&cfg.TextRows, "text-rows", 0, "read it in sequences of `N` tokens (0: the longest of --rows)")
	f.StringArrayVar(&adapters, "adapter", nil, "a memory made by calibrate, in `FILE`, or NAME=FILE; can be given several times")
	f.StringVar(&results, "results", "", "keep each result in `FILE`, and do not repeat what is in it")
	f.StringSliceVar(&plots, "plot", nil, "draw right answers against bytes into `FILES` (.svg, .png)")
	f.BoolVar(&asMarkdown, "markdown", false, "print tables in Markdown")
	f.BoolVar(&asJSON, "json", false, "print one JSON object, with every cell")
	c.RunE = func(c *cobra.Command, _ []string) error {
		err := errors.Join(mf.check(), oneOf("memories", eval.Methods, cfg.Methods...), oneOf("tasks", words(append(slices.Clone(eval.Forms), eval.Worded...)), taskNames...),
			atLeast("budgets", 64, cfg.Budgets...), atLeast("rows", 32, cfg.Lengths...), atLeast("pairs", 1, cfg.Pairs...),
			atLeast("contexts", 1, cfg.Contexts), atLeast("questions", 1, cfg.Questions), checkPlots(plots))
		if err == nil && wording != "" {
			err = oneOf("wording", words(eval.Wordings), wording)
		}
		if err == nil && cfg.TextRows != 0 {
			err = atLeast("text-rows", 32, cfg.TextRows)
		}
		if err != nil {
			return usageError{err}
		}
		if asJSON && asMarkdown {
			return usagef("--json and --markdown exclude each other")
		}
		for _, b := range cfg.Budgets {
			if b%64 != 0 {
				return usagef("--budgets %d: want multiples of 64", b)
			}
		}
		// wrong names are told of before the model is loaded
		var book []byte
		if text != "" {
			if book, err = os.ReadFile(text); err != nil {
				return fmt.Errorf("eval-memory: %w", err)
			}
		}
		for _, a := range adapters {
			v, err := readAdapter(a)
			if err != nil {
				return fmt.Errorf("eval-memory: %w", err)
			}
			cfg.Adapters = append(cfg.Adapters, v)
		}
		m, done, err := mf.open(c)
		if err != nil {
			return err
		}
		defer done()
		for _, t := range taskNames {
			cfg.Tasks = append(cfg.Tasks, eval.Task(t))
		}
		if cfg.Wording = eval.Wording(wording); wording == "" && !slices.Contains(models.Names, resolveModel(mf.path)) {
			cfg.Wording = eval.English
		}
		if book != nil {
			cfg.Text = m.Tokenizer.EncodePlain(nil, string(book))
		}
		if results != "" {
			have, emit, file, err := resumeResults("eval-memory", results, eval.Read)
			if err != nil {
				return err
			}
			defer file.Close()
			cfg.Have, cfg.Emit = have, emit
		}
		bar := newBar("contexts", false)
		cfg.Progress = bar.rows
		got, err := eval.Run(c.Context(), eval.Model{Decoder: m.Decoder, Device: m.Device(), Pool: m.Pool(), Tokenizer: m.Tokenizer}, cfg)
		bar.finish()
		if errors.Is(err, qcc.ErrDigest) {
			return fmt.Errorf("%w; make one for this model with samebit calibrate", err)
		}
		if err != nil {
			return err
		}
		for _, p := range plots {
			if err := plotMemory(p, eval.Totals(got, cfg.Seed)); err != nil {
				return err
			}
		}
		if asJSON {
			info := m.Device().Info()
			return printJSON(c.OutOrStdout(), memoryReport{Model: filepath.Base(resolveModel(mf.path)), Revision: m.Decoder.ID.String(), Device: info.Name + " " + info.Kernels, Version: version(),
				Wording: cfg.Wording, Seed: cfg.Seed, Totals: eval.Totals(got, cfg.Seed), Rows: eval.Rows(got, cfg.Seed), Breaks: eval.Breaks(got, cfg.Seed)})
		}
		if asMarkdown {
			return eval.WriteMarkdown(c.OutOrStdout(), got, cfg.Seed)
		}
		return eval.WriteTable(c.OutOrStdout(), got, cfg.Seed)
	}
	return c
}

// readAdapter reads FILE or NAME=FILE.
func readAdapter(arg string) (eval.Adapter, error) {
	name, path, named := strings.Cut(arg, "=")
	if !named {
		path = arg
		if name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)); name == "adapter" {
			if dir, err := filepath.Abs(filepath.Dir(path)); err == nil {
				name = filepath.Base(dir)
			}
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return eval.Adapter{}, fmt.Errorf("adapter: %w", err)
	}
	a, err := qcc.ReadAdapter(bytes.NewReader(b))
	if err != nil {
		return eval.Adapter{}, fmt.Errorf("adapter %s: %w", path, err)
	}
	return eval.Adapter{Name: name, Adapter: a}, nil
}

func words[S ~string](l []S) []string {
	out := make([]string, len(l))
	for i, t := range l {
		out[i] = string(t)
	}
	return out
}
