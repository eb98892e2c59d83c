// Command samebit runs local language models whose results are the same to the
// last bit on every machine: samebit help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// usageError is wrong use of the command line: exit code 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errInterrupted is the cause when the user asked to stop: exit code 130.
var errInterrupted = errors.New("interrupted")

func main() { os.Exit(run(os.Args[1:])) }

// run is the program; it returns the exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	out := &sticky{w: os.Stdout}
	root := newRoot()
	root.SetOut(out)
	root.SetErr(os.Stderr)
	root.SetArgs(longFlags(root, args))
	c, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("writing standard output: %w", out.err)
	}
	var usage usageError
	var unreadable unreadableError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &unreadable):
		fmt.Fprintln(os.Stderr, message(err))
		return 2
	case errors.Is(err, errInterrupted), ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "samebit: interrupted")
		return 130
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, message(err))
		if c.Name() == "help" {
			c = root
		}
		fmt.Fprintf(os.Stderr, "Run '%s --help' for usage.\n", c.CommandPath())
		return 2
	}
	fmt.Fprintln(os.Stderr, message(err))
	return 1
}

// message is the one line that a user sees: the program's name once, then what
// the packages say.
func message(err error) string {
	s := strings.Join(strings.FieldsFunc(strings.TrimSpace(err.Error()), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	return "samebit: " + strings.TrimPrefix(s, "samebit: ")
}

// sticky remembers the first failed write, so that a full disk is not success.
type sticky struct {
	w   io.Writer
	err error
}

func (s *sticky) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "samebit",
		Short: "Run local language models with the same bits everywhere",
		Long: `Run local language models with the same bits everywhere: the same tokens give the
same numbers on every machine, at every number of threads, in every batch.

Begin with 'samebit doctor', which says what this machine can do and what is
missing. Long flags may be written with one dash, too: -seed 7. The environment
variable SAMEBIT_CPU chooses among the processor's kernels, which changes speed
alone. Exit codes: 0, 1 for a failure, 2 for wrong usage, 130 for an interrupt.`,
		DisableFlagsInUseLine: true,
		Version:               version(),
		SilenceErrors:         true,
		SilenceUsage:          true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(c, args[0])
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newRun(), newChat(), newInspect(), newTokenize(), newParity(), newDoctor(), newBench(), newTransfer(), newRelay(), newEvalSelectors(), newEvalMemory(), newTrain(), newJudge(), newCalibrate(), newGate())
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show how a command is used",
		RunE: func(c *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			for _, c := range root.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		wrongArgs(c)
	}
	return root
}

// wrongArgs makes wrong arguments of a command, and of those below it, wrong use.
func wrongArgs(c *cobra.Command) {
	if args := c.Args; args != nil {
		c.Args = func(c *cobra.Command, a []string) error {
			if err := args(c, a); err != nil {
				return usagef("%s: %w", c.Name(), err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrongArgs(sub)
	}
}

func unknownCommand(root *cobra.Command, name string) error {
	root.SuggestionsMinimumDistance = 2
	if s := root.SuggestionsFor(name); len(s) > 0 {
		return usagef("unknown command %q: did you mean %s?", name, strings.Join(s, " or "))
	}
	return usagef("unknown command %q: 'samebit help' lists them", name)
}
