package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"samebit"
)

func newChat() *cobra.Command {
	var mf modelFlags
	var gf genFlags
	var system string
	var think, noThink bool
	c := &cobra.Command{
		Use:   "chat [flags]",
		Short: "Talk with a model, line by line",
		Long: `Talk with a model. Each line is a turn; a line that ends with \ goes on in the
next one. An interrupt (Ctrl-C) stops the answer, not the program; Ctrl-D or
/exit ends it. /reset forgets the conversation. Without a terminal every line of
standard input is a turn.`,
		Args: cobra.NoArgs,
	}
	mf.register(c)
	gf.register(c, 0.7)
	c.Flags().StringVar(&system, "system", "", "system message")
	c.Flags().BoolVar(&think, "think", false, "ask the template for thinking, where it knows the option")
	c.Flags().BoolVar(&noThink, "no-think", false, "ask the template for no thinking")
	c.RunE = func(c *cobra.Command, _ []string) error {
		gen, err := gf.gen()
		if err != nil {
			return err
		}
		cfg := samebit.ChatConfig{System: system, Now: time.Now()}
		switch {
		case think && noThink:
			return usagef("--think and --no-think exclude each other")
		case think, noThink:
			cfg.Thinking = &think
		}
		m, done, err := mf.open(c)
		if err != nil {
			return err
		}
		defer done()
		return talk(c.Context(), m, cfg, gen)
	}
	return c
}

// talk is the conversation loop.
func talk(ctx context.Context, m *samebit.Model, cfg samebit.ChatConfig, gen samebit.Gen) error {
	chat, err := m.NewChat(cfg)
	if err != nil {
		return err
	}
	defer func() { chat.Close() }()
	in := newLines()
	for turn := uint64(0); ; turn++ {
		line, err := in.read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case strings.TrimSpace(line) == "":
			continue
		case line == "/exit" || line == "/quit":
			return nil
		case line == "/reset":
			chat.Close()
			if chat, err = m.NewChat(cfg); err != nil {
				return err
			}
			continue
		}
		gen.Sequence = turn
		if err := answer(ctx, chat, line, gen); err != nil {
			return err
		}
	}
}

// answer streams one answer; an interrupt ends it.
func answer(ctx context.Context, chat *samebit.Chat, line string, gen samebit.Gen) error {
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt)
	defer stop()
	defer fmt.Println()
	for tok, err := range chat.Send(ctx, line, gen) {
		if ctx.Err() != nil {
			fmt.Print(" [stopped]")
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Print(tok.Text)
	}
	return nil
}

// lines reads turns, with line editing and history on a terminal.
type lines struct {
	scan *bufio.Reader
	term *term.Terminal
}

func newLines() *lines {
	l := &lines{scan: bufio.NewReaderSize(os.Stdin, 1<<16)}
	if term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
		l.term = term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{os.Stdin, os.Stdout}, "> ")
	}
	return l
}

// read returns one turn; lines that end with a backslash are joined.
func (l *lines) read() (string, error) {
	var turn strings.Builder
	for {
		line, err := l.line()
		if err != nil {
			if errors.Is(err, io.EOF) && turn.Len()+len(line) > 0 {
				return turn.String() + line, nil
			}
			return "", err
		}
		rest, more := strings.CutSuffix(line, `\`)
		turn.WriteString(rest)
		if !more {
			return turn.String(), nil
		}
		turn.WriteByte('\n')
	}
}

func (l *lines) line() (string, error) {
	if l.term == nil {
		line, err := l.scan.ReadString('\n')
		if err == io.EOF && line != "" {
			err = nil
		}
		return strings.TrimRight(line, "\r\n"), err
	}
	// Raw mode only while editing: during an answer Ctrl-C must be a signal.
	old, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return "", fmt.Errorf("reading the terminal: %w", err)
	}
	defer term.Restore(int(os.Stdin.Fd()), old)
	if w, h, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		l.term.SetSize(w, h)
	}
	line, err := l.term.ReadLine()
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	return line, err
}
