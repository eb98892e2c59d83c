package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"samebit"
	"samebit/internal/wholefile"
	"samebit/rclc"
	"samebit/rclc/eval"
	"samebit/token/jinja"
)

// evalReport is what eval-selectors --json prints.
type evalReport struct {
	Model     string        `json:"model"`
	Revision  string        `json:"revision"`
	Device    string        `json:"device"`
	DType     string        `json:"dtype"`
	Version   string        `json:"version"`
	Cases     int           `json:"cases"`
	Ratios    []int         `json:"ratios"`
	MaxTokens int           `json:"max_new_tokens"`
	Placement string        `json:"placement"`
	Totals    []eval.Row    `json:"totals"`
	Results   []eval.Result `json:"results"`
}

func newEvalSelectors() *cobra.Command {
	var mf modelFlags
	var cfg eval.Config
	var gen eval.GenerateConfig
	var data, results, write, placement, part string
	var plots []string
	var asJSON, rowsOnly bool
	c := &cobra.Command{
		Use:   "eval-selectors [flags]",
		Short: "Compare what selectors keep and what a receiver answers",
		Long: `Ask questions over the documents of several senders: each method chooses what the
senders hand over, a receiver that sees nothing else answers. Cases are lines of
JSON with documents, question and answers, from --data; or made by --generate,
which knows where the evidence is, so that the evidence kept is counted too.

Selectors are cacheback (always there), qsnap, chunkkv, recent (the last rows),
random (random spans), text (as many tokens, written by the sender), full (all
documents in one prompt), evidence (nothing else) and none (the question alone).
Intervals are 95 % bootstraps. With --results each result is kept as it comes, and
the same command goes on where it was stopped.`,
		Example: `  samebit eval-selectors --generate 20 --ratios 4,16
  samebit eval-selectors --data cases.jsonl --selector qsnap,recent --json
  samebit eval-selectors --generate 200 --tokens 500 --ratios 2,4,8,16,32 --results out.jsonl --plot out.svg`,
		Args: noArgs,
	}
	mf.fetched = true // questions about documents of any kind are beyond the models in the program
	mf.register(c)
	f := c.Flags()
	f.IntVar(&mf.context, "context", 0, "at most `N` tokens in a sequence (0: what the model was made for)")
	f.StringVar(&data, "data", "", "`FILE` of cases, one JSON object per line (- for standard input)")
	f.IntVar(&gen.Cases, "generate", 0, "make `N` cases")
	f.IntVar(&gen.Tokens, "tokens", 500, "with --generate: documents of at most `N` tokens")
	f.IntVar(&gen.Documents, "documents", 3, "with --generate: `N` documents per case")
	f.IntVar(&gen.TwoFacts, "two-facts", 0, "with --generate: `N` of the cases ask for two facts of two documents")
	f.Uint64Var(&gen.Seed, "seed", 1, "`N` that begins all random draws")
	f.StringVar(&write, "write-cases", "", "keep the cases in `FILE`")
	f.StringSliceVar(&cfg.Methods, "selector", []string{eval.Recent}, "`LIST` of methods to compare with cacheback")
	f.IntSliceVar(&cfg.Ratios, "ratios", []int{4}, "`LIST` of ratios: one position sent of so many")
	f.IntSliceVar(&cfg.Answer, "answer", nil, "`LIST` of those ratios at which answers are made (default: all); evidence is counted at every ratio")
	f.StringVar(&placement, "placement", string(eval.BeforePrompt), "`PLACE` of received rows: before the prompt, or in the user's turn (before, turn)")
	f.IntVar(&cfg.MaxTokens, "max-new-tokens", 12, "at most `N` tokens of an answer")
	f.IntVar(&cfg.Span, "span", 16, "spans of `N` positions")
	f.IntVar(&cfg.TextCases, "text-cases", 0, "the method text for the first `N` cases only (0: all)")
	f.StringVar(&part, "part", "", "do only every n-th case, beginning with the i-th: `I/N`, counted from 0; several processes with a file each share a run")
	f.StringVar(&results, "results", "", "keep each result in `FILE`, and do not repeat what is in it")
	f.StringSliceVar(&plots, "plot", nil, "draw accuracy and evidence against the ratio into `FILES` (.svg, .png)")
	f.BoolVar(&rowsOnly, "no-answers", false, "choose only, do not answer")
	f.BoolVar(&asJSON, "json", false, "print one JSON object with totals and results")
	c.RunE = func(c *cobra.Command, _ []string) error {
		err := errors.Join(mf.check(), atLeast("ratios", 1, cfg.Ratios...), atLeast("max-new-tokens", 1, cfg.MaxTokens), atLeast("span", 1, cfg.Span),
			atLeast("text-cases", 0, cfg.TextCases), oneOf("placement", []string{"before", "turn"}, placement), oneOf("selector", eval.Methods, cfg.Methods...))
		switch {
		case err != nil:
			return usageError{err}
		case data == "" && gen.Cases == 0:
			return usagef("eval-selectors: no cases: name a file with --data, or make some with --generate N")
		case data != "" && gen.Cases != 0:
			return usagef("eval-selectors: --data and --generate exclude each other")
		case gen.Cases < 0:
			return usagef("--generate %d: want at least 1", gen.Cases)
		}
		if err := checkPlots(plots); err != nil {
			return err
		}
		if part != "" {
			if n, err := fmt.Sscanf(part, "%d/%d", &cfg.Part, &cfg.Parts); n != 2 || err != nil || cfg.Part < 0 || cfg.Parts < 1 || cfg.Part >= cfg.Parts {
				return usagef("--part %q: want I/N, such as 0/2 and 1/2", part)
			}
		}
		cfg.Placement, cfg.Seed = eval.Placement(placement), gen.Seed
		if rowsOnly {
			cfg.Answer = []int{}
		}
		if !slices.Contains(cfg.Methods, eval.CacheBack) {
			cfg.Methods = append(cfg.Methods, eval.CacheBack)
		}
		slices.SortFunc(cfg.Methods, func(a, b string) int { return slices.Index(eval.Methods, a) - slices.Index(eval.Methods, b) })
		cfg.Methods = slices.Compact(cfg.Methods)
		var cases []eval.Case
		if data != "" { // wrong cases are told before the model is loaded
			if cases, err = readCases(c, data); err != nil {
				return err
			}
		}
		m, done, err := mf.open(c)
		if err != nil {
			return err
		}
		defer done()
		if data == "" {
			if cases, err = eval.Generate(m.Tokenizer, gen); err != nil {
				return err
			}
		}
		if write != "" {
			if err := wholefile.Write(write, func(w io.Writer) error { return printLines(w, cases) }); err != nil {
				return err
			}
		}
		model, err := rclcModel(m)
		if err != nil {
			return err
		}
		if results != "" {
			have, emit, file, err := resumeResults("eval-selectors", results, eval.Read)
			if err != nil {
				return err
			}
			defer file.Close()
			cfg.Have, cfg.Emit = have, emit
		}
		bar := newBar("cases", false)
		cfg.Progress = bar.rows
		got, err := eval.Run(c.Context(), model, m.Tokenizer, cases, cfg)
		bar.finish()
		if err != nil {
			return err
		}
		rows := eval.Report(got, gen.Seed)
		for _, p := range plots {
			if err := plotKinds(p, rows); err != nil {
				return err
			}
		}
		if asJSON {
			info := m.Device().Info()
			return printJSON(c.OutOrStdout(), evalReport{Model: filepath.Base(resolveModel(mf.path)), Revision: m.Decoder.ID.String(), Device: info.Name + " " + info.Kernels, DType: "float32", Version: version(),
				Cases: len(cases), Ratios: cfg.Ratios, MaxTokens: cfg.MaxTokens, Placement: placement, Totals: rows, Results: got})
		}
		return eval.WriteTable(c.OutOrStdout(), rows)
	}
	return c
}

// plotKinds draws one file, or one per kind of case with the kind in its name.
func plotKinds(path string, rows []eval.Row) error {
	var kinds []string
	for _, r := range rows {
		if !slices.Contains(kinds, r.Kind) {
			kinds = append(kinds, r.Kind)
		}
	}
	for i, k := range kinds {
		p := path
		if i > 0 {
			ext := filepath.Ext(path)
			p = strings.TrimSuffix(path, ext) + "-" + strings.ReplaceAll(k, " ", "-") + ext
		}
		if err := plotRows(p, k, rows); err != nil {
			return err
		}
	}
	return nil
}

// readCases reads a file of cases.
func readCases(c *cobra.Command, path string) ([]eval.Case, error) {
	if path == "-" {
		s, err := text(c, []string{"-"})
		if err != nil {
			return nil, err
		}
		return eval.ReadCases(strings.NewReader(s))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("eval-selectors: %w: name a file with one JSON object per line, or make cases with --generate N", err)
	}
	defer f.Close()
	cases, err := eval.ReadCases(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cases, nil
}

func printLines[T any](w io.Writer, l []T) error {
	for _, v := range l {
		if err := printJSON(w, v); err != nil {
			return err
		}
	}
	return nil
}

// rclcModel is an opened model as senders and receivers see it. It has no name: what
// a file is called does not decide whether messages fit, the digest of its weights does.
func rclcModel(m *samebit.Model) (*rclc.Model, error) {
	var t *jinja.Template
	if m.Tokenizer.ChatTemplate == "" {
		t = jinja.ChatML()
	}
	chat, err := rclc.NewChat(m.Tokenizer, t)
	if err != nil {
		return nil, err
	}
	return rclc.NewModel(m.Decoder, m.Pool(), rclc.ModelConfig{ModelType: m.Shape.ModelType, Tokenizer: m.Tokenizer, Chat: chat})
}
