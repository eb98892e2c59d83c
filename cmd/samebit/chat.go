package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"samebit"
)

func newChat() *cobra.Command {
	var mf modelFlags
	var gf genFlags
	var system string
	var date dateFlag
	var think, noThink bool
	c := &cobra.Command{
		Use:   "chat [flags]",
		Short: "Talk with a model, line by line",
		Long: `Talk with a model. Each line is a turn; a line that ends with \ goes on in the
next one, and a pasted text is one turn. An interrupt (Ctrl-C) stops the answer,
not the program; Ctrl-D or /exit ends it. /reset forgets the conversation, /help
lists the commands. Without a terminal every line of standard input is a turn.`,
		Example: `  samebit chat
  samebit chat -m model.gguf -system "Answer briefly." -seed 7`,
		Args: noArgs,
	}
	mf.registerSequence(c)
	gf.register(c, 0.7)
	c.Flags().StringVar(&system, "system", "", "system message `TEXT`")
	date.register(c)
	c.Flags().BoolVar(&think, "think", false, "ask the template for thinking, where it knows the option")
	c.Flags().BoolVar(&noThink, "no-think", false, "ask the template for no thinking")
	c.RunE = func(c *cobra.Command, _ []string) error {
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
		cfg := samebit.ChatConfig{System: system, Now: now}
		switch {
		case think && noThink:
			return usagef("chat: --think and --no-think exclude each other")
		case think, noThink:
			cfg.Thinking = &think
		}
		m, done, err := mf.open(c)
		if err != nil {
			return err
		}
		defer done()
		return talk(c, m, cfg, gen)
	}
	return c
}

const chatHelp = `/reset  forget the conversation
/exit   leave (also /quit, Ctrl-D)
/help   this list
Ctrl-C stops an answer or drops the line; a line that ends with \ goes on in the next one.
`

// talk is the conversation loop.
func talk(c *cobra.Command, m *samebit.Model, cfg samebit.ChatConfig, gen samebit.Gen) error {
	// From here on an interrupt is for the answer alone; the context of the
	// command ends when the program is asked to terminate.
	signal.Reset(os.Interrupt)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)

	chat, err := m.NewChat(cfg)
	if err != nil {
		return err
	}
	defer func() { chat.Close() }()
	out := c.OutOrStdout()
	in := newLines(os.Stdin, os.Stdout)
	if in.terminal() {
		i := m.Device().Info()
		fmt.Fprintf(out, "%s on %s. /help lists what else there is.\n", m.Shape.ModelType, where(&runResult{Device: i.Name, Kernels: i.Kernels, Threads: i.Threads}))
	}
	for turn := uint64(0); ; {
		line, err := in.read(c.Context(), interrupts)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case strings.TrimSpace(line) == "":
			continue
		case line == "/exit" || line == "/quit":
			return nil
		case line == "/help":
			io.WriteString(out, chatHelp)
			continue
		case line == "/reset":
			chat.Close()
			if chat, err = m.NewChat(cfg); err != nil {
				return err
			}
			if in.terminal() {
				io.WriteString(out, "The conversation is forgotten.\n")
			}
			continue
		}
		gen.Sequence = turn
		turn++
		err = answer(c, chat, line, gen, interrupts)
		if err == nil {
			continue
		}
		if !in.terminal() || errors.Is(err, context.Canceled) {
			return err
		}
		// The conversation is as it was before the line: go on with another one.
		fmt.Fprintln(c.ErrOrStderr(), message(err))
	}
}

// answer streams one answer; an interrupt ends it.
func answer(c *cobra.Command, chat *samebit.Chat, line string, gen samebit.Gen, interrupts <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(c.Context())
	done := make(chan struct{})
	watched := make(chan bool, 1)
	go func() {
		select {
		case <-interrupts:
			cancel()
			watched <- true
		case <-done:
			watched <- false
		}
	}()
	out := c.OutOrStdout()
	progress := newBar("reading", false)
	gen.Prefill = progress.rows
	var failed error
	var last string
	for tok, err := range chat.Send(ctx, line, gen) {
		progress.finish()
		if err != nil {
			failed = err
			break
		}
		if tok.Text != "" {
			last = tok.Text
		}
		if _, err := io.WriteString(out, tok.Text); err != nil {
			failed = fmt.Errorf("chat: writing the answer: %w", err)
			break
		}
	}
	progress.finish()
	close(done)
	stopped := <-watched
	cancel()
	if stopped {
		if c.Context().Err() != nil {
			return errInterrupted
		}
		io.WriteString(out, " [stopped]\n")
		return nil
	}
	if last != "" && !strings.HasSuffix(last, "\n") || failed == nil && last == "" {
		io.WriteString(out, "\n")
	}
	return failed
}
