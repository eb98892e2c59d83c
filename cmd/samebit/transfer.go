package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"samebit"
	"samebit/internal/wholefile"
	"samebit/nn"
	"samebit/rclc"
	"samebit/rclc/eval"
	"samebit/sample"
	"samebit/token/jinja"
)

// rclcFlags say what travels.
type rclcFlags struct {
	ratio, budget, span int
	selector, placement string
	ids                 bool
	tokens              int
}

func (f *rclcFlags) register(c *cobra.Command, tokens, span int) {
	c.Flags().IntVar(&f.ratio, "ratio", 0, "send one position of `N` (0: 4, unless --budget is given)")
	c.Flags().IntVar(&f.budget, "budget", 0, "send at most `N` positions per sender")
	c.Flags().StringVar(&f.selector, "selector", "cacheback", "`NAME` of what chooses positions: cacheback, qsnap, chunkkv")
	c.Flags().IntVar(&f.span, "span", span, "choose spans of `N` positions")
	c.Flags().StringVar(&f.placement, "placement", "turn", "`PLACE` of received rows: in the user's turn, or before the prompt (turn, before)")
	c.Flags().BoolVar(&f.ids, "ids", false, "send token ids in the place of vectors: smaller, the same bits for the receiver")
	c.Flags().IntVar(&f.tokens, "max-new-tokens", tokens, "at most `N` tokens of an answer")
}

// selecting are flags of transfer that say what is sent, and how.
var selecting = []string{"ratio", "budget", "selector", "span", "placement", "ids", "latent", "system"}

// config checks the values, before anything is loaded.
func (f *rclcFlags) config(c *cobra.Command) (rclc.Config, error) {
	cfg := rclc.Config{Ratio: f.ratio, Budget: f.budget, Record: true}
	err := errors.Join(atLeast("span", 1, f.span), atLeast("max-new-tokens", 1, f.tokens), oneOf("placement", []string{"turn", "before"}, f.placement),
		oneOf("selector", []string{"cacheback", "qsnap", "chunkkv"}, f.selector))
	for _, name := range []string{"ratio", "budget"} {
		if v := map[string]int{"ratio": f.ratio, "budget": f.budget}[name]; c.Flags().Changed(name) && v < 1 {
			err = errors.Join(err, fmt.Errorf("--%s %d: want at least 1", name, v))
		}
	}
	if f.ratio != 0 && f.budget != 0 {
		err = errors.Join(err, errors.New("--ratio and --budget exclude each other"))
	}
	if err != nil {
		return cfg, usageError{err}
	}
	switch f.selector {
	case "qsnap":
		cfg.Selector = rclc.QSnap{Span: f.span}
	case "chunkkv":
		cfg.Selector = rclc.ChunkKV{Chunk: f.span}
	default:
		cfg.Selector = rclc.CacheBack{Span: f.span}
	}
	if f.placement == "turn" {
		cfg.Placement = evidenceTurn
	}
	if f.ids {
		cfg.Form = rclc.TokenIDs
	}
	return cfg, nil
}

// evidenceTurn shows received rows between two words of the user's turn.
var evidenceTurn = rclc.Placement{InTurn: true, Before: "Evidence:\n", After: "\nQuestion: "}

// sent is what a sender did, as transfer --json prints it.
type sent struct {
	Name    string  `json:"name"`
	Kept    int     `json:"retained_positions"`
	Total   int     `json:"source_positions"`
	Bytes   int     `json:"payload_bytes"`
	Prefill float64 `json:"prefill_seconds"`
}

// transferred is what transfer --json prints.
type transferred struct {
	Model    string  `json:"model"`
	Device   string  `json:"device"`
	Selector string  `json:"selector"`
	Question string  `json:"question"`
	Senders  []sent  `json:"senders"`
	Kept     int     `json:"retained_positions"`
	Total    int     `json:"source_positions"`
	Bytes    int     `json:"payload_bytes"`
	Transfer float64 `json:"transfer_seconds"`
	Answered float64 `json:"generation_seconds"`
	Answer   string  `json:"answer"`
	IDs      []int32 `json:"ids"`
}

func newTransfer() *cobra.Command {
	var mf modelFlags
	var rf rclcFlags
	var documents []string
	var question, questionFile, system, html, out, verify, sender string
	var latent int
	var asJSON, check bool
	c := &cobra.Command{
		Use:   "transfer [flags] [FILE ...]",
		Short: "Hand documents that agents have read to one that answers a question",
		Long: `Each document is read by a sender of its own. The positions that the model's
attention to the question chooses travel as input rows, and a receiver that sees
nothing else of the documents answers. Documents are files, or texts in --document.

--out DIR keeps what was sent: message-N.safetensors, with the receipt of the
selection, and sender-N.safetensors, what it was chosen from. --verify repeats a
selection from those two files and says whether every bit is equal.`,
		Example: `  samebit transfer --question "Who owns project Lumen?" notes.txt plan.txt
  samebit transfer --document "The code is 4471." --question "What is the code?" --ratio 2
  samebit transfer --question "When is the launch?" --html view.html --out sent *.txt
  samebit transfer --verify sent/message-1.safetensors`,
		Args: cobra.ArbitraryArgs,
	}
	mf.fetched = true // questions about documents of any kind are beyond the models in the program
	mf.register(c)
	f := c.Flags()
	f.IntVar(&mf.context, "context", 0, "at most `N` tokens in a sequence (0: what the model was made for)")
	f.StringArrayVar(&documents, "document", nil, "`TEXT` of a document (may be repeated; after the files)")
	f.StringVarP(&question, "question", "q", "", "`TEXT` of the question")
	f.StringVar(&questionFile, "question-file", "", "read the question from `FILE` (- for standard input)")
	f.StringVar(&system, "system", eval.System, "system message `TEXT` of the receiver")
	rf.register(c, 64, 16)
	f.IntVar(&latent, "latent", 0, "let each sender go on for `N` latent rows before the selection")
	f.StringVar(&html, "html", "", "show what was kept in the page `FILE`")
	f.StringVar(&out, "out", "", "keep messages and senders in folder `DIR`")
	f.StringVar(&verify, "verify", "", "repeat the selection of message `FILE` and compare bits")
	f.StringVar(&sender, "sender", "", "with --verify: `FILE` of the sender (default: sender-N beside message-N)")
	f.BoolVar(&check, "check", false, "say whether the model can send and receive, and --out be written; send nothing")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := mf.check(); err != nil {
			return err
		}
		if check {
			if len(args)+len(documents) > 0 || verify != "" {
				return usagef("transfer: --check takes a model and nothing to send")
			}
			if err := errors.Join(atLeast("max-new-tokens", 1, rf.tokens), unused(c, "is for sending, and --check sends nothing",
				append(selecting, "question", "question-file", "html", "sender")...)); err != nil {
				return usageError{err}
			}
			return checkTransfer(c, &mf, rf.tokens, out)
		}
		if verify != "" {
			if len(args)+len(documents) > 0 || question != "" || questionFile != "" {
				return usagef("transfer: --verify takes a message's file and nothing else to send")
			}
			if err := unused(c, "is for sending: --verify repeats what the message says", append(selecting, "max-new-tokens", "html", "out")...); err != nil {
				return err
			}
			return verifyMessage(c, &mf, verify, sender, asJSON)
		}
		if sender != "" {
			return usagef("transfer: --sender goes with --verify")
		}
		cfg, err := rf.config(c)
		if err != nil {
			return err
		}
		if err := atLeast("latent", 0, latent); err != nil {
			return err
		}
		if latent > 0 {
			cfg.Reason = rclc.Latent{Steps: latent}
		}
		if question, err = oneQuestion(c, question, questionFile); err != nil {
			return err
		}
		texts, names, err := readDocuments(args, documents)
		if err != nil {
			return err
		}
		m, done, err := mf.open(c)
		if err != nil {
			return err
		}
		defer done()
		return transfer(c, m, &mf, cfg, rf.tokens, texts, names, question, system, html, out, asJSON)
	}
	return c
}

// oneQuestion is the question of either flag.
func oneQuestion(c *cobra.Command, q, file string) (string, error) {
	switch {
	case q != "" && file != "":
		return "", usagef("%s: --question and --question-file exclude each other", c.Name())
	case file == "-":
		var err error
		if q, err = text(c, []string{"-"}); err != nil {
			return "", err
		}
	case file != "":
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("%s: question: %w: name a text file", c.Name(), err)
		}
		q = string(b)
	}
	if q = strings.TrimSpace(q); q == "" {
		return "", usagef("%s: no question: give --question TEXT or --question-file FILE", c.Name())
	}
	return q, nil
}

// readDocuments are the texts of files, then those of flags.
func readDocuments(files, more []string) (texts, names []string, err error) {
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, fmt.Errorf("transfer: document: %w: name text files", err)
		}
		texts, names = append(texts, string(b)), append(names, filepath.Base(path))
	}
	for i, t := range more {
		texts, names = append(texts, t), append(names, fmt.Sprintf("document %d", i+1))
	}
	if len(texts) == 0 {
		return nil, nil, usagef("transfer: no documents: name text files, or give --document TEXT")
	}
	for i, t := range texts {
		if strings.TrimSpace(t) == "" {
			return nil, nil, fmt.Errorf("transfer: %s is empty: leave it out", names[i])
		}
	}
	return texts, names, nil
}

// transfer runs the senders, the transfer and the receiver.
func transfer(c *cobra.Command, m *samebit.Model, mf *modelFlags, cfg rclc.Config, most int, texts, names []string, question, system, html, out string, asJSON bool) error {
	ctx := c.Context()
	model, err := rclcModel(m)
	if err != nil {
		return err
	}
	info := m.Device().Info()
	res := transferred{Model: filepath.Base(resolveModel(mf.path)), Device: info.Name, Question: question}
	if n, ok := cfg.Selector.(rclc.Namer); ok {
		res.Selector = n.Name()
	}
	bar := newBar("reading documents", false)
	var sources []rclc.Source
	for i, t := range texts {
		bar.rows(i, len(texts))
		start := time.Now()
		s, err := rclc.FromText(ctx, model, t)
		if err != nil {
			bar.finish()
			return fmt.Errorf("%s: %w", names[i], err)
		}
		defer s.Release()
		sources = append(sources, s)
		res.Senders = append(res.Senders, sent{Name: names[i], Total: s.Len(), Prefill: time.Since(start).Seconds()})
	}
	bar.finish()
	var history []jinja.Message
	if system != "" {
		history = append(history, jinja.Message{Role: "system", Content: system})
	}
	receiver, err := rclc.Bind(ctx, model, rclc.AgentConfig{History: func() []jinja.Message { return history }, MaxNewTokens: most})
	if err != nil {
		return err
	}
	defer receiver.Close()
	var got rclc.Delivery
	record := rclc.ReceiverFunc(func(_ context.Context, d rclc.Delivery) error { got = d; return nil })
	start := time.Now()
	if err := rclc.Transfer(ctx, sources, []rclc.Receiver{receiver, record}, []rclc.Request{{Text: question}}, cfg); err != nil {
		return err
	}
	res.Transfer = time.Since(start).Seconds()
	for i, msg := range got.Messages {
		s := &res.Senders[i]
		s.Kept, s.Bytes = msg.Positions(), msg.Bytes()
		res.Kept, res.Total, res.Bytes = res.Kept+s.Kept, res.Total+s.Total, res.Bytes+s.Bytes
	}
	if html != "" {
		if err := wholefile.Write(html, got.WriteHTML); err != nil {
			return err
		}
	}
	if out != "" {
		if err := keepSent(ctx, out, got, sources); err != nil {
			return err
		}
	}
	start = time.Now()
	in, err := receiver.Pop(ctx, rclc.PopConfig{})
	if err != nil {
		return err
	}
	if res.IDs, res.Answer, err = continueInputs(ctx, m, receiver, in, most); err != nil {
		return err
	}
	res.Answered = time.Since(start).Seconds()
	if asJSON {
		return printJSON(c.OutOrStdout(), res)
	}
	return res.print(c.OutOrStdout())
}

func (r *transferred) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "sender\tkept / positions\tbytes\treading s\n")
	for _, s := range r.Senders {
		fmt.Fprintf(w, "%s\t%d / %d\t%d\t%.2f\n", s.Name, s.Kept, s.Total, s.Bytes, s.Prefill)
	}
	fmt.Fprintf(w, "all\t%d / %d\t%d\n", r.Kept, r.Total, r.Bytes)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s: transfer %.2f s, answer of %d tokens %.2f s\n\n%s\n", r.Selector, r.Transfer, len(r.IDs), r.Answered, r.Answer)
	return err
}

// keepSent writes the messages and the senders.
func keepSent(ctx context.Context, dir string, d rclc.Delivery, sources []rclc.Source) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("transfer: --out: %w: name a folder that can be written", err)
	}
	for i, msg := range d.Messages {
		err := wholefile.Write(filepath.Join(dir, fmt.Sprintf("message-%d.safetensors", i+1)), func(w io.Writer) error {
			_, err := msg.WriteTo(w)
			return err
		})
		if err != nil {
			return err
		}
		s, err := sources[i].Sender(ctx)
		if err != nil {
			return err
		}
		err = s.Save(ctx, filepath.Join(dir, fmt.Sprintf("sender-%d.safetensors", i+1)))
		s.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// continueInputs answers greedily and records the answer with the agent.
func continueInputs(ctx context.Context, m *samebit.Model, a *rclc.Agent, in *rclc.Inputs, most int) (ids []int32, answer string, err error) {
	r, s, err := in.Runner(ctx)
	if err != nil {
		return nil, "", err
	}
	defer s.Close()
	defer r.Close()
	if ids, err = greedy(ctx, m, r, most); err != nil {
		return nil, "", err
	}
	snap, err := r.Snapshot()
	if err != nil {
		return nil, "", err
	}
	defer snap.Release()
	if err := a.Update(ctx, in, rclc.Generation{IDs: ids, Snap: snap}); err != nil {
		return nil, "", err
	}
	return ids, strings.TrimSpace(m.Tokenizer.TextSkip(ids)), nil
}

// greedy continues a sequence that has logits.
func greedy(ctx context.Context, m *samebit.Model, r *nn.Runner, most int) ([]int32, error) {
	draw, err := sample.New(sample.Config{}, m.Tokenizer.Size())
	if err != nil {
		return nil, err
	}
	ids := []int32{}
	for len(ids) < most {
		id, err := draw.Next(r.Logits(), nil, 0, uint64(len(ids)))
		if err != nil {
			return nil, err
		}
		if m.Tokenizer.IsStop(id) {
			break
		}
		ids = append(ids, id)
		if len(ids) < most {
			if err := r.Step(ctx, id); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

// verified is what transfer --verify --json prints.
type verified struct {
	Message     string   `json:"message"`
	Sender      string   `json:"sender"`
	Selector    string   `json:"selector"`
	Source      int      `json:"source_positions"`
	Kept        int      `json:"retained_positions"`
	Scored      bool     `json:"scores_compared"`
	Equal       bool     `json:"equal"`
	Differences []string `json:"differences,omitempty"`
}

// verifyMessage repeats a selection. Exit code 1 if a bit differs.
func verifyMessage(c *cobra.Command, mf *modelFlags, message, sender string, asJSON bool) error {
	if sender == "" {
		dir, name := filepath.Split(message)
		if !strings.Contains(name, "message") {
			return usagef("transfer: --verify %s: name the sender's file with --sender", message)
		}
		sender = filepath.Join(dir, strings.Replace(name, "message", "sender", 1))
	}
	for _, path := range []string{message, sender} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("transfer: --verify: %w: name files that transfer --out wrote, the sender's with --sender", err)
		}
	}
	m, done, err := mf.open(c)
	if err != nil {
		return err
	}
	defer done()
	model, err := rclcModel(m)
	if err != nil {
		return err
	}
	f, err := os.Open(message)
	if err != nil {
		return err
	}
	defer f.Close()
	msg, err := rclc.ReadMessage(f, model, rclc.Limits{})
	if err != nil {
		return fmt.Errorf("%s: %w", message, err)
	}
	s, err := rclc.LoadSender(c.Context(), model, sender, rclc.LoadConfig{})
	if err != nil {
		return err
	}
	defer s.Release()
	v, err := rclc.Verify(c.Context(), s, msg, nil)
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(c.OutOrStdout(), verified{message, sender, v.Selector, v.Source, v.Kept, v.Scored, v.Equal(), v.Differences})
	} else {
		what := "positions and rows"
		if v.Scored {
			what = "scores, positions and rows"
		}
		if v.Equal() {
			_, err = fmt.Fprintf(c.OutOrStdout(), "equal: %s, %d of %d positions: %s have the same bits\n", v.Selector, v.Kept, v.Source, what)
		}
		for _, d := range v.Differences {
			_, err = fmt.Fprintf(c.OutOrStdout(), "differs: %s\n", d)
		}
	}
	if err == nil && !v.Equal() {
		err = fmt.Errorf("transfer: %s is not what its selector takes from %s: %d differences", message, sender, len(v.Differences))
	}
	return err
}
