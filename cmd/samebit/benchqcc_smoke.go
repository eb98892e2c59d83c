package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"samebit/bench/qccbench"
	"samebit/internal/wholefile"
)

// runSelf runs this program with arguments. What it prints goes to a new file, too.
func runSelf(dir string) func(ctx context.Context, log string, args []string) ([]byte, int, error) {
	return func(ctx context.Context, log string, args []string) (stdout []byte, code int, err error) {
		program, err := os.Executable()
		if err != nil {
			return nil, -1, err
		}
		file, err := os.Create(filepath.Join(dir, log))
		if err != nil {
			return nil, -1, err
		}
		var out bytes.Buffer
		p := exec.CommandContext(ctx, program, args...)
		p.Stdout, p.Stderr = io.MultiWriter(&out, file), file
		p.Cancel = func() error { return p.Process.Signal(os.Interrupt) } // it closes its device
		p.WaitDelay = 10 * time.Second
		err = p.Run()
		if failed := new(exec.ExitError); errors.As(err, &failed) {
			err = nil
		}
		if e := file.Close(); err == nil {
			err = e
		}
		if p.ProcessState == nil {
			return nil, -1, err
		}
		return out.Bytes(), p.ProcessState.ExitCode(), err
	}
}

func benchQCCSmoke() *cobra.Command {
	var cfg qccbench.SmokeConfig
	var dir string
	var long []int
	var runLong bool
	c := &cobra.Command{Use: "qcc-gpu-smoke [flags] -o DIR", Short: "Run texts on a device, each length in a process of its own", Args: noArgs,
		Long: `Run texts of random weights on a device, one process of this program and one log a
length: with bounded memory (qcc-long-context --run), with --compare-full beside a full
cache (qcc-decode), and with --run-long long ones with bounded memory alone. A length that
fails does not stop the others. DIR gets the logs and audit.json, which is written again
after every length: the arguments, return code, time and result of each, and a status,
complete if all ended well, else partial. Exit code 1 if it is partial. Any device will
do; the name is that of the published script.`,
		Example: "  samebit bench qcc-gpu-smoke --device cuda:0 --compare-full --run-long -o smoke\n  samebit bench qcc-gpu-smoke --lengths 64,128 -o smoke"}
	mf := modelFlags{}
	mf.registerDevice(c)
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.RunID, "run-id", "", "`TEXT` that names the run in its result (default: the time)")
	f.StringVarP(&dir, "out", "o", "", "`DIR` for the logs and the audit; it may not have an audit yet")
	f.IntSliceVar(&cfg.Lengths, "lengths", []int{256, 512, 1024, 2048}, "`LIST` of lengths")
	f.BoolVar(&cfg.CompareFull, "compare-full", false, "time the full cache beside it")
	f.BoolVar(&runLong, "run-long", false, "run the long lengths, too")
	f.IntSliceVar(&long, "long-lengths", []int{128000}, "with --run-long: `LIST` of lengths")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if dir == "" {
			return usagef("bench qcc-gpu-smoke: nowhere to write: give -o DIR")
		}
		if c.Flags().Changed("long-lengths") && !runLong {
			return usagef("bench qcc-gpu-smoke: --long-lengths goes with --run-long")
		}
		if err := mf.check(); err != nil {
			return err
		}
		if cfg.RunID == "" {
			cfg.RunID = newRunID()
		}
		if runLong {
			cfg.LongLengths = long
		}
		audit := filepath.Join(dir, "audit.json")
		if _, err := os.Lstat(audit); err == nil {
			return usagef("bench qcc-gpu-smoke: %s is there already: name another folder", audit)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("bench qcc-gpu-smoke: -o: %w", err)
		}
		cfg.Device, cfg.Threads, cfg.Run = mf.device, mf.threads, runSelf(dir)
		cfg.Save = func(r qccbench.SmokeResult) error {
			return wholefile.Write(audit, func(w io.Writer) error { return printJSON(w, r) })
		}
		r, err := qccbench.RunSmoke(c.Context(), cfg)
		if err != nil {
			return fmt.Errorf("bench qcc-gpu-smoke: %w", err)
		}
		if err := printJSON(c.OutOrStdout(), r); err != nil {
			return err
		}
		for _, x := range r.Lengths {
			if x.Error != "" {
				return fmt.Errorf("bench qcc-gpu-smoke: a text of %d tokens: %s (%s)", x.Length, x.Error, filepath.Join(dir, x.Log))
			}
		}
		return nil
	}
	return c
}
