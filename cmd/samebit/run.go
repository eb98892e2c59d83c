package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"samebit"
	"samebit/sample"
)

// maxInput bounds what is read from standard input.
const maxInput = 64 << 20

func readAll(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return "", fmt.Errorf("reading standard input: %w", err)
	}
	if len(b) > maxInput {
		return "", fmt.Errorf("standard input is longer than %d MiB", maxInput>>20)
	}
	return string(b), nil
}

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
	c.Flags().IntVarP(&f.tokens, "tokens", "n", 256, "most tokens to generate")
	c.Flags().Float32Var(&f.temperature, "temp", temperature, "temperature; 0 always takes the likeliest token")
	c.Flags().IntVar(&f.topK, "top-k", 40, "draw from the K likeliest tokens (0: all)")
	c.Flags().Float32Var(&f.topP, "top-p", 0.95, "draw from the likeliest tokens that make up this probability (1: all)")
	c.Flags().Float32Var(&f.minP, "min-p", 0.05, "drop tokens less likely than this fraction of the likeliest (0: none)")
	c.Flags().Float32Var(&f.repeat, "repeat-penalty", 1, "weaken tokens that occurred (1: off)")
	c.Flags().Float32Var(&f.presence, "presence-penalty", 0, "subtract from the logits of tokens that occurred")
	c.Flags().Float32Var(&f.frequency, "frequency-penalty", 0, "subtract per occurrence")
	c.Flags().Uint64Var(&f.seed, "seed", 0, "seed of the random draws: the same seed gives the same text everywhere")
	c.Flags().StringArrayVar(&f.stop, "stop", nil, "end the text before this string (may be repeated)")
	c.Flags().BoolVar(&f.ignoreEnd, "ignore-end", false, "go on after an end-of-text token")
}

func (f *genFlags) gen() (samebit.Gen, error) {
	if f.tokens < 1 {
		return samebit.Gen{}, usagef("--tokens %d: want at least 1", f.tokens)
	}
	topP := f.topP
	return samebit.Gen{MaxTokens: f.tokens, Stop: f.stop, Ignore: f.ignoreEnd, Sample: sample.Config{
		Temperature: f.temperature, TopK: f.topK, TopP: &topP, MinP: f.minP, RepetitionPenalty: f.repeat,
		PresencePenalty: f.presence, FrequencyPenalty: f.frequency, Seed: f.seed,
	}}, nil
}

// runResult is what run -json prints.
type runResult struct {
	Model          string  `json:"model"`
	Device         string  `json:"device"`
	Kernels        string  `json:"kernels"`
	Threads        int     `json:"threads"`
	Text           string  `json:"text"`
	IDs            []int32 `json:"ids"`
	PromptTokens   int     `json:"prompt_tokens"`
	Tokens         int     `json:"tokens"`
	Reason         string  `json:"reason"`
	LoadSeconds    float64 `json:"load_seconds"`
	PrefillSeconds float64 `json:"prefill_seconds"`
	DecodeSeconds  float64 `json:"decode_seconds"`
	PrefillRate    float64 `json:"prefill_tokens_per_second"`
	DecodeRate     float64 `json:"decode_tokens_per_second"`
}

func newRun() *cobra.Command {
	var mf modelFlags
	var gf genFlags
	var asJSON, asChat, quiet bool
	c := &cobra.Command{
		Use:   "run [flags] [PROMPT | -]",
		Short: "Continue a prompt and stream the text",
		Long: `Continue a prompt and stream the text to standard output. The prompt is the
arguments, or standard input. Timings go to standard error, or with --json into
one JSON object together with the text.`,
		Example: `  samebit run "The capital of France is"
  samebit run -m model.gguf -n 64 -seed 7 -temp 0.8 "Once upon a time"
  samebit run --chat "What is the capital of Norway?"`,
		Args: cobra.ArbitraryArgs,
	}
	mf.register(c)
	gf.register(c, 0)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object with the text and timings")
	c.Flags().BoolVar(&asChat, "chat", false, "render the prompt as a user's turn with the model's chat template")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "no timings on standard error")
	c.RunE = func(c *cobra.Command, args []string) error {
		gen, err := gf.gen()
		if err != nil {
			return err
		}
		prompt, err := text(args)
		if err != nil {
			return err
		}
		start := time.Now()
		m, done, err := mf.open(c)
		if err != nil {
			return err
		}
		defer done()
		load := time.Since(start)

		ids := m.Tokenizer.EncodeSpecial(nil, prompt)
		if asChat {
			p, err := m.RenderChat([]samebit.Message{{Role: "user", Content: prompt}}, samebit.ChatConfig{Now: time.Now()})
			if err != nil {
				return err
			}
			ids = m.Tokenizer.Encode(nil, p)
		}
		var rep samebit.Report
		gen.Report = &rep
		progress := newBar("reading the prompt", false)
		gen.Prefill = progress.rows
		var out strings.Builder
		res := runResult{IDs: []int32{}}
		for tok, err := range m.GenerateIDs(c.Context(), ids, gen) {
			progress.finish()
			if err != nil {
				if !asJSON && out.Len() > 0 {
					fmt.Println()
				}
				return err
			}
			res.IDs = append(res.IDs, tok.ID)
			out.WriteString(tok.Text)
			if !asJSON {
				if _, err := io.WriteString(os.Stdout, tok.Text); err != nil {
					return fmt.Errorf("writing the text: %w", err)
				}
			}
		}
		info := m.Device().Info()
		if asJSON {
			res.Model, res.Device, res.Kernels, res.Threads = m.Shape.ModelType, info.Name, info.Kernels, info.Threads
			res.Text, res.PromptTokens, res.Tokens, res.Reason = out.String(), rep.PromptTokens, rep.Tokens, rep.Reason
			res.LoadSeconds, res.PrefillSeconds, res.DecodeSeconds = load.Seconds(), rep.Prefill.Seconds(), rep.Decode.Seconds()
			res.PrefillRate, res.DecodeRate = rate(rep.PromptTokens, rep.Prefill), rate(rep.Tokens-1, rep.Decode)
			return json.NewEncoder(os.Stdout).Encode(res)
		}
		if !strings.HasSuffix(out.String(), "\n") {
			fmt.Println()
		}
		if !quiet {
			fmt.Fprintf(os.Stderr, "%s, %s, %d threads: load %.2f s; prompt %d tokens, %.1f/s; text %d tokens, %.1f/s (%s)\n", info.Name, info.Kernels, info.Threads,
				load.Seconds(), rep.PromptTokens, rate(rep.PromptTokens, rep.Prefill), rep.Tokens, rate(rep.Tokens-1, rep.Decode), rep.Reason)
		}
		return nil
	}
	return c
}

// rate is n per second; the first generated token belongs to the prompt's pass.
func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
