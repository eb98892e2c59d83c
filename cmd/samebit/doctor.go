package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"samebit/backend/cpu"
	"samebit/bench"
	"samebit/cmd/internal/host"
)

// diagnosis is what doctor finds; -json prints it.
type diagnosis struct {
	Version   string        `json:"version"`
	Host      host.Facts    `json:"host"`
	Kernels   []string      `json:"kernels"` // available, the fastest last
	InUse     string        `json:"kernels_in_use"`
	Problem   string        `json:"device_problem,omitempty"` // why nothing can run
	Threads   int           `json:"threads"`
	Subnormal bool          `json:"subnormals_exact"`
	Checks    []selfCheck   `json:"self_check"`
	Devices   []accelerator `json:"devices"` // beside the processor
	ReadRate  float64       `json:"read_bytes_per_second"`
	FMARate   float64       `json:"float_operations_per_second"`
	Cache     string        `json:"model_folder"`
	Model     *fit          `json:"model,omitempty"`
	ModelErr  string        `json:"model_problem,omitempty"`
	Advice    []string      `json:"advice"`
}

func newDoctor() *cobra.Command {
	var mf modelFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Say what this machine can do, and what to do about the rest",
		Long: `Look at the processor, its kernels, the memory and the model: run a few ops of
every set of kernels against the plain reference (each bit must be equal), list the
other devices and probe their roundings, measure how fast memory is read and products
are made, and say how much context fits and
how fast the model can be at best. The advice comes last. Exit code 1 if a bit
differs, or if the model that was named cannot be used.`,
		Example: `  samebit doctor
  samebit doctor -m model.gguf -threads 4
  samebit doctor --json`,
		Args: noArgs,
	}
	c.Flags().SortFlags = false
	c.Flags().StringVarP(&mf.path, "model", "m", "", modelHelp)
	c.Flags().IntVar(&mf.threads, "threads", 0, "`N` threads to look at (0: all processors)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.RunE = func(c *cobra.Command, _ []string) error {
		mf.device = "cpu"
		if err := mf.check(); err != nil {
			return err
		}
		d := &diagnosis{Version: version(), Host: host.Read(), Kernels: cpu.Impls(), Checks: []selfCheck{}, Advice: []string{}}
		bad := d.examine(c.Context(), &mf)
		if err := c.Context().Err(); err != nil {
			return err
		}
		d.advise(&mf)
		var err error
		if asJSON {
			err = printJSON(c.OutOrStdout(), d)
		} else {
			err = d.print(c.OutOrStdout())
		}
		return errors.Join(bad, err)
	}
	return c
}

// examine fills in the diagnosis. The error is what makes the command fail.
func (d *diagnosis) examine(ctx context.Context, mf *modelFlags) (bad error) {
	dev, err := newDevice("cpu", mf.threads)
	if err != nil {
		bad, d.Problem = err, err.Error()
	} else {
		defer dev.Close()
		info := dev.Info()
		d.InUse, d.Threads, d.Subnormal = info.Kernels, info.Threads, true // New checks them
		checks, err := selfChecks(ctx, info.Threads)
		if err != nil {
			return err
		}
		d.Checks = checks
		for _, k := range checks {
			if k.Differing > 0 || k.Problem != "" {
				bad = fmt.Errorf("doctor: kernels %s are not exact on this machine: %s", k.Kernels, k.First+k.Problem)
			}
		}
		const each = 300 * time.Millisecond
		if d.ReadRate, err = bench.ReadRate(ctx, info.Threads, each); err != nil {
			return err
		}
		if d.FMARate, err = bench.ProductRate(ctx, dev, each); err != nil {
			return err
		}
	}
	d.Devices = accelerators()
	d.Cache, _ = fetchedModelPath() // models need no such folder
	if d.Model, err = fitOf(resolveModel(mf.path), d.Host.Usable(), d.ReadRate); err != nil {
		d.ModelErr = strings.TrimPrefix(message(err), "samebit: ")
		if bad == nil {
			bad = err
		}
	}
	return bad
}

func (d *diagnosis) advise(mf *modelFlags) {
	say := func(format string, args ...any) { d.Advice = append(d.Advice, fmt.Sprintf(format, args...)) }
	if d.Problem != "" {
		if impl := os.Getenv("SAMEBIT_CPU"); impl != "" {
			say("SAMEBIT_CPU=%s: unset it, or choose one of %s", impl, strings.Join(d.Kernels, ", "))
		} else {
			say("nothing can run on the cpu device here: %s", d.Problem)
		}
	}
	for _, k := range d.Checks {
		if k.Differing > 0 || k.Problem != "" {
			say("do not use the kernels %s: choose others with SAMEBIT_CPU, and report the first difference above", k.Kernels)
		}
	}
	if len(d.Kernels) == 1 {
		say("only the portable kernels work here and they are slow: use a processor with AVX2 and FMA, or with ASIMD, and a build without the tag noasm")
	} else if best := d.Kernels[len(d.Kernels)-1]; d.InUse != "" && d.InUse != best {
		say("SAMEBIT_CPU chooses the kernels %s: unset it, %s is faster", d.InUse, best)
	}
	h := &d.Host
	switch {
	case d.Threads > h.Processors:
		say("%d threads on %d processors wait for each other: use --threads %d", d.Threads, h.Processors, h.Processors)
	case h.Quota > 0 && float64(d.Threads) > h.Quota+0.99:
		say("%d threads, but the container may use the time of %.1f processors: use --threads %d", d.Threads, h.Quota, max(int(h.Quota), 1))
	case h.Installed > h.Processors:
		say("this process may use %d of %d processors: give it more (taskset, container settings) for speed", h.Processors, h.Installed)
	}
	if p, err := fetchedModelPath(); err == nil && !writable(p) {
		say("the model folder %s cannot be written: set XDG_CACHE_HOME to a folder that can, or name a model with --model", parent(p))
	}
	if d.ModelErr != "" {
		say("choose another model: %s", d.ModelErr)
	}
	if d.Model != nil {
		d.Advice = append(d.Advice, d.Model.advice(h.Usable())...)
	}
	if len(d.Advice) == 0 {
		say("nothing is in the way: samebit run \"Mira is red. Q: What colour is Mira?\"")
	}
}

func (d *diagnosis) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	h := &d.Host
	fmt.Fprintf(w, "samebit\t%s, %s/%s\n", d.Version, h.OS, h.Arch)
	fmt.Fprintf(w, "processor\t%s\n", known(h.Processor))
	fmt.Fprintf(w, "features\t%s\n", known(strings.Join(h.Features, " ")))
	if d.InUse != "" {
		fmt.Fprintf(w, "kernels\t%s in use, of %s\n", d.InUse, strings.Join(d.Kernels, ", "))
	} else {
		fmt.Fprintf(w, "kernels\t%s\n", d.Problem)
	}
	procs := fmt.Sprintf("%d on %d processors", d.Threads, h.Processors)
	if d.Threads == 0 {
		procs = fmt.Sprintf("none, on %d processors", h.Processors)
	}
	if h.Installed > h.Processors {
		procs += fmt.Sprintf(" of %d", h.Installed)
	}
	if h.Quota > 0 {
		procs += fmt.Sprintf(", limited to the time of %.2g", h.Quota)
	}
	fmt.Fprintf(w, "threads\t%s\n", procs)
	mem := "unknown"
	if h.Memory > 0 {
		mem = size(h.Memory)
		if h.Available > 0 {
			mem += fmt.Sprintf(", %s available", size(h.Available))
		}
	}
	if h.MemoryLimit > 0 {
		mem += fmt.Sprintf(", limited to %s of which %s are left", size(h.MemoryLimit), size(h.LimitLeft))
	}
	fmt.Fprintf(w, "memory\t%s\n", mem)
	if d.InUse != "" {
		fmt.Fprintf(w, "subnormals\t%s\n", map[bool]string{true: "exact", false: "flushed"}[d.Subnormal])
	}
	for _, k := range d.Checks {
		verdict := fmt.Sprintf("%d ops, %d values, %d differing bit patterns", k.Ops, k.Values, k.Differing)
		if k.Problem != "" {
			verdict = k.Problem
		} else if k.First != "" {
			verdict += ": " + k.First
		}
		fmt.Fprintf(w, "self-check %s\t%s\n", k.Kernels, verdict)
	}
	printAccelerators(w, d.Devices)
	if d.ReadRate > 0 {
		fmt.Fprintf(w, "reads memory\t%.1f GB/s with %d threads\n", d.ReadRate/1e9, d.Threads)
		fmt.Fprintf(w, "products\t%.0f GFLOP/s (float32, 256 rows)\n", d.FMARate/1e9)
	}
	fmt.Fprintln(w)
	if d.Model != nil {
		d.Model.print(w)
	} else {
		fmt.Fprintf(w, "model\t%s\n", d.ModelErr)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nWhat to do:")
	for _, a := range d.Advice {
		if _, err := fmt.Fprintf(out, "- %s\n", a); err != nil {
			return err
		}
	}
	return nil
}

func known(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// writable says whether files could be put beside path, without leaving any.
func writable(path string) bool {
	for dir := parent(path); ; dir = parent(dir) {
		if i, err := os.Stat(dir); err == nil {
			if !i.IsDir() {
				return false
			}
			return probeFolder(dir) == nil
		} else if !errors.Is(err, os.ErrNotExist) || parent(dir) == dir {
			return false
		}
	}
}
