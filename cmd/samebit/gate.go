package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"samebit/qcc/gate"
)

// mostEvidence bounds a file of evidence.
const mostEvidence = 64 << 20

func newGate() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "gate [flags] FILE",
		Short: "Audit evidence for the claims of constant-memory attention",
		Long: `Audit a JSON file of measurements against fixed thresholds (docs/qcc.md): quality
on official benchmarks, latency, memory, retrieval at a million tokens and more,
all of one run and model. It fails closed: what is missing or of another type is a
failure. FILE may be - for standard input. Exit codes: 0 if the evidence passes, 1
if it fails, 2 if it cannot be read.`,
		Example: `  samebit gate evidence.json
  samebit gate --json - < evidence.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one file of evidence, or - for standard input, got %d", len(args))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.RunE = func(c *cobra.Command, args []string) error {
		data, err := readEvidence(c, args[0])
		var r gate.Result
		if err == nil {
			r, err = gate.Audit(data)
		}
		if err != nil {
			return unreadableError{fmt.Errorf("gate: %s: %w", args[0], err)}
		}
		if asJSON {
			err = printJSON(c.OutOrStdout(), r)
		} else {
			_, err = fmt.Fprintln(c.OutOrStdout(), strings.Join(append(r.Failures, verdict(r)), "\n"))
		}
		if err == nil && !r.Passed {
			err = fmt.Errorf("gate: %s does not pass: %d failures", args[0], len(r.Failures))
		}
		return err
	}
	return c
}

func verdict(r gate.Result) string {
	if r.Passed {
		return "passed"
	}
	return fmt.Sprintf("failed: %d", len(r.Failures))
}

// unreadableError is evidence that cannot be read: exit code 2, as wrong use.
type unreadableError struct{ error }

func (e unreadableError) Unwrap() error { return e.error }

func readEvidence(c *cobra.Command, path string) ([]byte, error) {
	r := c.InOrStdin()
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, mostEvidence+1))
	if err == nil && len(data) > mostEvidence {
		err = errors.New("more than 64 MiB")
	}
	return data, err
}
