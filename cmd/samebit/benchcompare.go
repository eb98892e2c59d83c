package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"samebit/bench"
	"samebit/cmd/internal/host"
)

// measurements are what a call of bench found, and where they go: to a file, or line by
// line to standard output.
type measurements struct {
	run  bench.Run
	file string // "" for none, "-" for standard output
	w    io.Writer
}

// newMeasurements refuses a file that could not be saved, before hours are measured.
func newMeasurements(c *cobra.Command, file string) (*measurements, error) {
	h := host.Read()
	m := &measurements{file: file, w: c.OutOrStdout(), run: bench.Run{Origin: bench.Origin{Version: version(), OS: h.OS, Arch: h.Arch,
		Processor: h.Processor, Usable: h.Processors, Args: os.Args[1:], Start: time.Now().UTC()}}}
	switch file {
	case "":
	case "-":
		return m, bench.WriteOrigin(m.w, m.run.Origin)
	default:
		if i, err := os.Stat(file); err == nil && i.IsDir() {
			return nil, usagef("bench: --json %s is a folder: name a file in it", file)
		}
		if err := probeFolder(filepath.Dir(file)); err != nil {
			return nil, fmt.Errorf("bench: --json %s: its folder cannot be written: %w", file, err)
		}
	}
	return m, nil
}

// add notes a result and prints it, or the text for it. The writer remembers its failure.
func (m *measurements) add(r bench.Result, format string, args ...any) {
	if m.file == "-" {
		bench.WriteResult(m.w, r)
		return
	}
	fmt.Fprintf(m.w, format+"\n", args...)
	m.run.Results = append(m.run.Results, r)
}

// save writes the file of a bench that ended with err: what was measured before is kept.
func (m *measurements) save(err error) error {
	if m.file == "" || m.file == "-" || err != nil && len(m.run.Results) == 0 {
		return err
	}
	bad := m.run.Save(m.file)
	switch {
	case bad == nil:
		return err
	case err != nil: // no context.Canceled, of which only the interrupt would be said
		return fmt.Errorf("bench: %v; --json: %w", err, bad)
	}
	return fmt.Errorf("bench: --json: %w", bad)
}

func newBenchCompare() *cobra.Command {
	return &cobra.Command{
		Use:   "compare A B",
		Short: "Tell how many times faster B is than A",
		Long: `Compare two files that 'samebit bench --json FILE' wrote: for every measurement that
both have, the median rates and how many times faster B is than A, by the clock and by
processor seconds, each with its 95 % interval (bootstrap of the repetitions; none for
a single one). An interval that holds 1 shows no difference. Repetitions of one file lie close
together in time: on a machine that others use, take turns and compare several pairs.`,
		Example: `  samebit bench -r 20 --json old.json
  samebit bench -r 20 --json new.json
  samebit bench compare old.json new.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("takes two files of samebit bench --json FILE, got %d", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			var run [2]*bench.Run
			for i := range run {
				var err error
				if run[i], err = bench.OpenRun(args[i]); err != nil {
					return err
				}
			}
			return printRatios(c.OutOrStdout(), run[0], run[1])
		},
	}
}

func printRatios(w io.Writer, a, b *bench.Run) error {
	both, onlyA, onlyB, err := bench.Compare(a, b)
	if err != nil {
		return err
	}
	for i, o := range []bench.Origin{a.Origin, b.Origin} {
		fmt.Fprintf(w, "%c  %s  %s, %d processors, %s/%s  samebit %s  %s\n", 'A'+i, o.Start.Format(time.RFC3339), o.Processor, o.Usable, o.OS, o.Arch,
			strings.Join(o.Args, " "), o.Version)
	}
	if a.Origin.Processor != b.Origin.Processor || a.Origin.Arch != b.Origin.Arch || a.Origin.Usable != b.Origin.Usable {
		fmt.Fprintln(w, "The machines differ: ratios are of machines, not of programs.")
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "measurement\tA\tB\t\tB/A by clock\tby processor seconds\trepetitions")
	for _, r := range both {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%s\t%v\t%v\t%d, %d\n", r.What, r.A, r.B, r.Unit, r.Wall, r.CPU, r.N[0], r.N[1])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, l := range [][]string{onlyA, onlyB} {
		for _, what := range l {
			fmt.Fprintf(w, "only in %c: %s\n", 'A'+i, what)
		}
	}
	return nil
}
