package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"samebit"
	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
)

// modelFlags choose a model and where it runs.
type modelFlags struct {
	path    string
	device  string
	threads int
	context int
	chunk   int
}

func (f *modelFlags) register(c *cobra.Command) {
	c.Flags().StringVarP(&f.path, "model", "m", "", "model: a .gguf file or a Hugging Face directory (default: the model that scripts/fetch-weights.sh fetched)")
	c.Flags().StringVar(&f.device, "device", "cpu", "where to run: cpu, or ref (slow plain loops)")
	c.Flags().IntVar(&f.threads, "threads", 0, "threads of the cpu device (0: all processors); changes no bit")
	c.Flags().IntVar(&f.context, "context", 0, "limit of the sequence in tokens (0: what the model was made for)")
	c.Flags().IntVar(&f.chunk, "chunk", 0, "prompt tokens per pass (0: 512); changes no bit")
}

// defaultModel is the file that scripts/fetch-weights.sh keeps.
func defaultModel() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no model named and no cache folder (%w): give --model PATH", err)
	}
	path := filepath.Join(dir, "samebit", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no model named: give --model PATH (a .gguf file or a Hugging Face directory), or fetch a small one once with scripts/fetch-weights.sh (94 MiB, kept at %s)", path)
	}
	return path, nil
}

func (f *modelFlags) resolve() (string, error) {
	if f.path != "" {
		return f.path, nil
	}
	return defaultModel()
}

// newDevice opens a device by name. SAMEBIT_CPU chooses among the processor's
// kernels, for comparing them.
func newDevice(name string, threads int) (backend.Device, error) {
	switch {
	case threads < 0:
		return nil, usagef("--threads %d: want a positive number, or 0 for all processors", threads)
	case name == "cpu":
		return cpu.New(cpu.Config{Threads: threads, Impl: os.Getenv("SAMEBIT_CPU")})
	case name == "ref":
		return ref.New(), nil
	}
	return nil, usagef("--device %q: have cpu and ref", name)
}

// open opens the model on its device, with progress on a terminal.
func (f *modelFlags) open(c *cobra.Command) (*samebit.Model, func(), error) {
	path, err := f.resolve()
	if err != nil {
		return nil, nil, err
	}
	dev, err := newDevice(f.device, f.threads)
	if err != nil {
		return nil, nil, err
	}
	bar := newBar("loading "+filepath.Base(path), true)
	m, err := samebit.OpenContext(c.Context(), path, samebit.Config{Device: dev, Context: f.context, ChunkRows: f.chunk, Progress: bar.update})
	bar.finish()
	if err != nil {
		dev.Close()
		return nil, nil, err
	}
	return m, func() { m.Close(); dev.Close() }, nil
}

// bar shows progress on a terminal and nothing elsewhere.
type bar struct {
	what  string
	bytes bool
	bar   *progressbar.ProgressBar
}

func newBar(what string, bytes bool) *bar { return &bar{what: what, bytes: bytes} }

func (b *bar) update(done, total int64) {
	if b.bar == nil {
		if !term.IsTerminal(int(os.Stderr.Fd())) {
			return
		}
		b.bar = progressbar.NewOptions64(total, progressbar.OptionSetDescription(b.what), progressbar.OptionSetWriter(os.Stderr),
			progressbar.OptionShowBytes(b.bytes), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30), progressbar.OptionShowCount())
	}
	b.bar.Set64(done)
}

// rows is update for counts of rows.
func (b *bar) rows(done, total int) { b.update(int64(done), int64(total)) }

func (b *bar) finish() {
	if b.bar != nil {
		b.bar.Finish()
		b.bar = nil
	}
}

// text is the argument words joined, or standard input if there are none or "-".
func text(args []string) (string, error) {
	if len(args) > 0 && !(len(args) == 1 && args[0] == "-") {
		return strings.Join(args, " "), nil
	}
	if len(args) == 0 && term.IsTerminal(int(os.Stdin.Fd())) {
		return "", usagef("no text given: write it after the flags, or pipe it in")
	}
	return readAll(os.Stdin)
}
