// Command samebit runs local language models whose results are the same to the
// last bit on every machine: samebit help.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is wrong use of the command line: exit code 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() { os.Exit(run(os.Args[1:])) }

// run is the program; it returns the exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(longFlags(root, args))
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "samebit: interrupted")
		return 130
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command"):
		fmt.Fprintf(os.Stderr, "samebit: %v\nRun 'samebit help' for usage.\n", err)
		return 2
	}
	fmt.Fprintln(os.Stderr, message(err))
	return 1
}

// message is the one line that a user sees: the program's name once, then what
// the packages say.
func message(err error) string {
	s := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	if strings.HasPrefix(s, "samebit: ") {
		return s
	}
	return "samebit: " + s
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "samebit",
		Short:         "Run local language models with the same bits everywhere",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newRun(), newChat(), newInspect(), newTokenize(), newParity(), newDoctor(), newBench())
	for _, c := range root.Commands() {
		if args := c.Args; args != nil {
			c.Args = func(c *cobra.Command, a []string) error {
				if err := args(c, a); err != nil {
					return usagef("%s: %w", c.Name(), err)
				}
				return nil
			}
		}
	}
	return root
}

// longFlags lets long flags be written with one dash, as Go programs do.
func longFlags(root *cobra.Command, args []string) []string {
	known := map[string]bool{"help": true}
	for _, c := range root.Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	}
	out := make([]string, 0, len(args))
	for i, a := range args {
		if a == "--" {
			return append(out, args[i:]...)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "-"), "=")
		if strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && len(name) > 1 && known[name] {
			a = "-" + a
		}
		out = append(out, a)
	}
	return out
}
