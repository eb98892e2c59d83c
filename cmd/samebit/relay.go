package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"samebit"
	"samebit/rclc"
	"samebit/rclc/eval"
	"samebit/token/jinja"
)

// hop is what one agent of a relay passes on.
type hop struct {
	Document  int `json:"document_positions"`
	Inherited int `json:"inherited_positions"`
	Held      int `json:"positions"`
	Latent    int `json:"latent_positions_sent"`
	Bytes     int `json:"latent_payload_bytes"`
	Text      int `json:"text_positions_sent"`
}

// relayed is one relay, as relay --json prints it.
type relayed struct {
	Model         string   `json:"model"`
	Question      string   `json:"question"`
	Expected      []string `json:"expected"`
	Hops          []hop    `json:"hops"`
	LatentAnswer  string   `json:"latent_answer"`
	LatentRight   bool     `json:"latent_right"`
	LatentSeconds float64  `json:"latent_seconds"`
	TextAnswer    string   `json:"text_answer"`
	TextRight     bool     `json:"text_right"`
	TextSeconds   float64  `json:"text_seconds"`
}

func newRelay() *cobra.Command {
	var mf modelFlags
	var rf rclcFlags
	var gen eval.GenerateConfig
	var agents int
	var asJSON, noText bool
	c := &cobra.Command{
		Use:   "relay [flags]",
		Short: "Let agents read one document each and pass on what a question needs",
		Long: `A relay of four: three agents read one generated document each. The first passes a
part of its positions to the second, which ranks them anew together with those of
its own document, and so on; the last answers the question. The same is done with
text: each agent writes notes of at most as many tokens as the other relay passes on
positions. Both relays run one after the other, and both are timed.`,
		Example: `  samebit relay
  samebit relay --seed 3 --cases 5 --tokens 500
  samebit relay --no-text --json`,
		Args: noArgs,
	}
	mf.fetched = true // questions about documents of any kind are beyond the models in the program
	mf.register(c)
	f := c.Flags()
	f.IntVar(&mf.context, "context", 0, "at most `N` tokens in a sequence (0: what the model was made for)")
	f.IntVar(&gen.Cases, "cases", 1, "run `N` relays")
	f.IntVar(&agents, "readers", 3, "`N` agents that read a document")
	f.IntVar(&gen.Tokens, "tokens", 770, "documents of at most `N` tokens")
	f.Uint64Var(&gen.Seed, "seed", 1, "`N` that begins the random draws")
	rf.register(c, 24, 4)
	f.BoolVar(&noText, "no-text", false, "only the relay of positions")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per relay")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := mf.check(); err != nil {
			return err
		}
		cfg, err := rf.config(c)
		if err != nil {
			return err
		}
		if err := errors.Join(atLeast("cases", 1, gen.Cases), atLeast("readers", 1, agents), atLeast("tokens", 64, gen.Tokens)); err != nil {
			return err
		}
		gen.Documents = agents
		m, done, err := mf.open(c)
		if err != nil {
			return err
		}
		defer done()
		model, err := rclcModel(m)
		if err != nil {
			return err
		}
		cases, err := eval.Generate(m.Tokenizer, gen)
		if err != nil {
			return err
		}
		var latent, written int
		for i := range cases {
			r := relay{m: m, model: model, name: filepath.Base(resolveModel(mf.path)), cfg: cfg, most: rf.tokens, c: &cases[i]}
			res, err := r.run(c.Context(), !noText)
			if err != nil {
				return err
			}
			latent, written = latent+one(res.LatentRight), written+one(res.TextRight)
			if asJSON {
				err = printJSON(c.OutOrStdout(), res)
			} else {
				err = res.print(c.OutOrStdout(), !noText)
			}
			if err != nil {
				return err
			}
		}
		if len(cases) > 1 && !asJSON {
			fmt.Fprintf(c.OutOrStdout(), "right answers of %d: %d by positions", len(cases), latent)
			if !noText {
				fmt.Fprintf(c.OutOrStdout(), ", %d by text", written)
			}
			fmt.Fprintln(c.OutOrStdout())
		}
		return nil
	}
	return c
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// relay is one case under way.
type relay struct {
	m     *samebit.Model
	model *rclc.Model
	name  string
	cfg   rclc.Config
	most  int
	c     *eval.Case
}

func (r *relay) run(ctx context.Context, text bool) (*relayed, error) {
	res := &relayed{Model: r.name, Question: r.c.Question, Expected: r.c.Answers}
	start := time.Now()
	var err error
	if res.LatentAnswer, err = r.latent(ctx, res); err != nil {
		return nil, err
	}
	res.LatentSeconds, res.LatentRight = time.Since(start).Seconds(), r.c.Contains(res.LatentAnswer)
	if !text {
		return res, nil
	}
	start = time.Now()
	if res.TextAnswer, err = r.text(ctx, res); err != nil {
		return nil, err
	}
	res.TextSeconds, res.TextRight = time.Since(start).Seconds(), r.c.Contains(res.TextAnswer)
	return res, nil
}

// latent passes positions on.
func (r *relay) latent(ctx context.Context, res *relayed) (string, error) {
	var from rclc.Source // what the last agent has
	for i, d := range r.c.Documents {
		ids := r.model.Tokenizer.EncodePlain(nil, d)
		h := hop{Document: len(ids)}
		cfg := rclc.AgentConfig{MaxNewTokens: r.most}
		if i == 0 {
			cfg.IDs = ids
		}
		a, err := rclc.Bind(ctx, r.model, cfg)
		if err != nil {
			return "", err
		}
		defer a.Close()
		if i > 0 {
			if err := r.pass(ctx, from, a, rclc.Placement{}, &res.Hops[i-1]); err != nil {
				return "", err
			}
			// The document follows what came, in the place of a prompt.
			in, err := a.Pop(ctx, rclc.PopConfig{IDs: ids})
			if err != nil {
				return "", err
			}
			h.Inherited = in.Inherited
			if err := a.Update(ctx, in, rclc.Generation{}); err != nil {
				return "", err
			}
		}
		s, err := a.Sender(ctx)
		if err != nil {
			return "", err
		}
		h.Held = s.Len()
		s.Release()
		res.Hops = append(res.Hops, h)
		from = a
	}
	said := []jinja.Message{{Role: "system", Content: eval.System}}
	last, err := rclc.Bind(ctx, r.model, rclc.AgentConfig{History: func() []jinja.Message { return said }, MaxNewTokens: r.most})
	if err != nil {
		return "", err
	}
	defer last.Close()
	if err := r.pass(ctx, from, last, r.cfg.Placement, &res.Hops[len(res.Hops)-1]); err != nil {
		return "", err
	}
	in, err := last.Pop(ctx, rclc.PopConfig{})
	if err != nil {
		return "", err
	}
	_, answer, err := continueInputs(ctx, r.m, last, in, r.most)
	return answer, err
}

// pass transfers from one agent to the next and notes what went.
func (r *relay) pass(ctx context.Context, from rclc.Source, to rclc.Receiver, where rclc.Placement, h *hop) error {
	cfg := r.cfg
	cfg.Placement = where
	count := rclc.ReceiverFunc(func(_ context.Context, d rclc.Delivery) error {
		h.Latent, h.Bytes = d.Positions(), d.Bytes()
		return nil
	})
	return rclc.Transfer(ctx, []rclc.Source{from}, []rclc.Receiver{to, count}, []rclc.Request{{Text: r.c.Question}}, cfg)
}

// text passes notes on, none longer than what the other relay sent.
func (r *relay) text(ctx context.Context, res *relayed) (string, error) {
	notes := ""
	for i, d := range r.c.Documents {
		h := &res.Hops[i]
		said := []jinja.Message{
			{Role: "system", Content: "Copy from the notes and the text what helps to answer the question. Write nothing else."},
			{Role: "user", Content: "Notes:\n" + notes + "\nText:\n" + d + "\nQuestion: " + r.c.Question},
		}
		ids, err := r.say(ctx, said, h.Latent)
		if err != nil {
			return "", err
		}
		h.Text = len(ids)
		notes = strings.TrimSpace(r.m.Tokenizer.TextSkip(ids))
	}
	ids, err := r.say(ctx, []jinja.Message{
		{Role: "system", Content: eval.System},
		{Role: "user", Content: evidenceTurn.Before + notes + evidenceTurn.After + r.c.Question},
	}, r.most)
	return strings.TrimSpace(r.m.Tokenizer.TextSkip(ids)), err
}

// say answers messages greedily.
func (r *relay) say(ctx context.Context, said []jinja.Message, most int) ([]int32, error) {
	ids, _, err := r.model.Chat(said, true, "")
	if err != nil {
		return nil, err
	}
	a, err := rclc.Bind(ctx, r.model, rclc.AgentConfig{IDs: ids})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	in, err := a.Inputs(ctx, most)
	if err != nil {
		return nil, err
	}
	out, _, err := continueInputs(ctx, r.m, a, in, most)
	return out, err
}

func (res *relayed) print(out io.Writer, text bool) error {
	fmt.Fprintf(out, "%s (%s)\n", res.Question, strings.Join(res.Expected, "; "))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "agent\treads\tinherits\tholds\tpasses on\tbytes")
	if text {
		fmt.Fprintf(w, "\tnotes")
	}
	fmt.Fprintln(w)
	for i, h := range res.Hops {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d", i+1, h.Document, h.Inherited, h.Held, h.Latent, h.Bytes)
		if text {
			fmt.Fprintf(w, "\t%d", h.Text)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	verdict := map[bool]string{true: "right", false: "wrong"}
	_, err := fmt.Fprintf(out, "positions: %.2f s, %s: %s\n", res.LatentSeconds, verdict[res.LatentRight], res.LatentAnswer)
	if err == nil && text {
		_, err = fmt.Fprintf(out, "text:      %.2f s, %s: %s\n", res.TextSeconds, verdict[res.TextRight], res.TextAnswer)
	}
	return err
}
