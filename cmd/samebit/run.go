package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"samebit"
	"samebit/sample"
)

// genFlags say how text is generated.
type genFlags struct {
	tokens      int
	temperature float32
	topK        int
	topP        float32
	minP        float32
	repeat      float32
	presence    float32
	frequency   float32
	seed        uint64
	stop        []string
	ignoreEnd   bool
}

func (f *genFlags) register(c *cobra.Command, temperature float32) {
	c.Flags().IntVarP(&f.tokens, "tokens", "n", 256, "at most `N` tokens of text")
	c.Flags().Float32Var(&f.temperature, "temp", temperature, "temperature `T`; 0 always takes the likeliest token")
	c.Flags().IntVar(&f.topK, "top-k", 40, "draw from the `K` likeliest tokens (0: all)")
	c.Flags().Float32Var(&f.topP, "top-p", 0.95, "draw from the likeliest tokens that make up the probability `P` (1: all)")
	c.Flags().Float32Var(&f.minP, "min-p", 0.05, "drop tokens less likely than the fraction `P` of the likeliest (0: none)")
	c.Flags().Float32Var(&f.repeat, "repeat-penalty", 1, "weaken tokens that occurred by `X` (1 or 0: off)")
	c.Flags().Float32Var(&f.presence, "presence-penalty", 0, "subtract `X` from the logits of tokens that occurred")
	c.Flags().Float32Var(&f.frequency, "frequency-penalty", 0, "subtract `X` per occurrence")
	c.Flags().Uint64Var(&f.seed, "seed", 0, "`N` that begins the random draws: the same gives the same text everywhere")
	c.Flags().StringArrayVar(&f.stop, "stop", nil, "end the text before `TEXT` (may be repeated)")
	c.Flags().BoolVar(&f.ignoreEnd, "ignore-end", false, "go on after an end-of-text token")
}

// gen checks the values, before anything is loaded.
func (f *genFlags) gen() (samebit.Gen, error) {
	if err := atLeast("tokens", 1, f.tokens); err != nil {
		return samebit.Gen{}, err
	}
	if _, err := sample.NewStopMatcher(f.stop); err != nil {
		return samebit.Gen{}, usageError{err}
	}
	topP := f.topP
	g := samebit.Gen{MaxTokens: f.tokens, Stop: f.stop, Ignore: f.ignoreEnd, Sample: sample.Config{
		Temperature: f.temperature, TopK: f.topK, TopP: &topP, MinP: f.minP, RepetitionPenalty: f.repeat,
		PresencePenalty: f.presence, FrequencyPenalty: f.frequency, Seed: f.seed,
	}}
	if _, err := sample.New(g.Sample, 1); err != nil {
		return samebit.Gen{}, usageError{err}
	}
	return g, nil
}

// dateFlag is what chat templates that ask for the date get. Not the clock's by default:
// the same command gives the same text on any day.
type dateFlag struct{ text string }

func (f *dateFlag) register(c *cobra.Command) {
	c.Flags().StringVar(&f.text, "date", "", "`DATE`, as 2026-12-31, for chat templates that ask for it, or today; without it they do without, and a text is the same every day")
}

// time is the date, the zero time without one.
func (f *dateFlag) time() (time.Time, error) {
	switch f.text {
	case "":
		return time.Time{}, nil
	case "today":
		return time.Now(), nil
	}
	t, err := time.Parse(time.DateOnly, f.text)
	if err != nil {
		return t, usagef("--date %q: want a date, as 2026-12-31, or today", f.text)
	}
	return t, nil
}

// runResult is what run -json prints.
type runResult struct {
	Model          string  `json:"model"`
	Device         string  `json:"device"`
	Kernels        string  `json:"kernels"`
	Threads        int     `json:"threads"`
	Seed           uint64  `json:"seed"`
	Text           string  `json:"text"`
	IDs            []int32 `json:"ids"`
	PromptTokens   int     `json:"prompt_tokens"`
	Tokens         int     `json:"tokens"`
	Reason         string  `json:"reason"`
	LoadSeconds    float64 `json:"load_seconds"`
	PrefillSeconds float64 `json:"prefill_seconds"`
	DecodeSeconds  float64 `json:"decode_seconds"`
	Reused         int     `json:"reused_tokens"`
	PrefillRate    float64 `json:"prefill_tokens_per_second"`
	DecodeRate     float64 `json:"decode_tokens_per_second"`
}

func newRun() *cobra.Command {
	var mf modelFlags
	var gf genFlags
	var asJSON, asChat, quiet bool
	var date dateFlag
	c := &cobra.Command{
		Use:   "run [flags] [PROMPT | -]",
		Short: "Continue a prompt and stream the text",
		Long: `Continue a prompt and stream the text to standard output. The prompt is the
arguments, or standard input taken as it is, its last newline too. A prompt that
begins with a dash goes after --. Timings go to standard error, or with --json
into one JSON object together with the text and its token ids.`,
		Example: `  samebit run "The capital of France is"
  samebit run -m model.gguf -n 64 -seed 7 -temp 0.8 "Once upon a time"
  samebit run --chat "What is the capital of Norway?"
  samebit run -m model.gguf --sieve 256 < notes.txt
  printf 'def fib(n):' | samebit run -q`,
		Args: cobra.ArbitraryArgs,
	}
	mf.registerSequence(c)
	gf.register(c, 0)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object with the text and timings")
	c.Flags().BoolVar(&asChat, "chat", false, "render the prompt as a user's turn with the model's chat template")
	date.register(c)
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "no timings on standard error")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := mf.check(); err != nil {
			return err
		}
		gen, err := gf.gen()
		if err != nil {
			return err
		}
		now, err := date.time()
		if err != nil {
			return err
		}
		if !now.IsZero() && !asChat {
			return usagef("run: --date goes with --chat")
		}
		prompt, err := text(c, args)
		if err != nil {
			return err
		}
		start := time.Now()
		m, done, err := mf.open(c)
		if err != nil {
			return err
		}
		defer done()
		info := m.Device().Info()
		res := runResult{Model: m.Shape.ModelType, Device: info.Name, Kernels: info.Kernels, Threads: info.Threads, Seed: gf.seed, LoadSeconds: time.Since(start).Seconds()}

		ids, err := encode(m, prompt, asChat, now)
		if err != nil {
			return err
		}
		var stream io.Writer = c.OutOrStdout()
		if asJSON {
			stream = io.Discard
		}
		progress := newBar("reading the prompt", false)
		gen.Prefill = progress.rows
		progress.begin(len(ids))
		err = generate(c.Context(), m, ids, gen, stream, progress.finish, &res)
		stopped := errors.Is(err, context.Canceled)
		if err != nil && !stopped {
			return err
		}
		switch {
		case asJSON:
			if err := printJSON(c.OutOrStdout(), res); err != nil {
				return err
			}
		case !quiet:
			reused := ""
			if res.Reused > 0 {
				reused = fmt.Sprintf(" (%d from the cache)", res.Reused)
			}
			fmt.Fprintf(c.ErrOrStderr(), "%s: load %.2f s; prompt %d tokens%s, %.1f/s; text %d tokens, %.1f/s (%s)\n", where(&res),
				res.LoadSeconds, res.PromptTokens, reused, res.PrefillRate, res.Tokens, res.DecodeRate, res.Reason)
		}
		return err
	}
	return c
}

// encode makes the ids of a prompt, as a turn of a chat at that date.
func encode(m *samebit.Model, prompt string, asChat bool, now time.Time) ([]int32, error) {
	if asChat {
		return m.EncodeChat([]samebit.Message{{Role: "user", Content: prompt}}, samebit.ChatConfig{Now: now})
	}
	ids := m.Tokenizer.EncodeSpecial(nil, prompt)
	if len(ids) == 0 && prompt != "" {
		return nil, fmt.Errorf("run: the model's vocabulary has no token for any of the prompt's %d bytes, and none that begins a text: is it text in UTF-8?", len(prompt))
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("run: the prompt is empty, and this model has no token that begins a text: give it some text")
	}
	return ids, nil
}

// generate streams the text to w and fills in the result, also when it fails.
// started is called when the prompt has been read.
func generate(ctx context.Context, m *samebit.Model, ids []int32, gen samebit.Gen, w io.Writer, started func(), res *runResult) (err error) {
	var rep samebit.Report
	gen.Report = &rep
	var out strings.Builder
	res.IDs = []int32{}
	for tok, terr := range m.GenerateIDs(ctx, ids, gen) {
		started()
		if terr != nil {
			err = terr
			break
		}
		res.IDs = append(res.IDs, tok.ID)
		out.WriteString(tok.Text)
		if _, werr := io.WriteString(w, tok.Text); werr != nil {
			return fmt.Errorf("run: writing the text: %w", werr)
		}
	}
	started()
	if s := out.String(); s != "" && !strings.HasSuffix(s, "\n") {
		io.WriteString(w, "\n") // the writer remembers its failure
	}
	res.Text, res.PromptTokens, res.Tokens, res.Reason = out.String(), rep.PromptTokens, rep.Tokens, rep.Reason
	res.PrefillSeconds, res.DecodeSeconds = rep.Prefill.Seconds(), rep.Decode.Seconds()
	res.Reused = rep.Reused
	res.PrefillRate, res.DecodeRate = rate(rep.PromptTokens-rep.Reused, rep.Prefill), rate(rep.Tokens-1, rep.Decode)
	return err
}

// where names what ran the model.
func where(r *runResult) string {
	s := r.Device
	if r.Kernels != "" && r.Kernels != r.Device {
		s += " " + r.Kernels
	}
	if r.Threads > 0 {
		s += fmt.Sprintf(", %d threads", r.Threads)
	}
	return s
}

// rate is n per second; the first generated token belongs to the prompt's pass.
func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
