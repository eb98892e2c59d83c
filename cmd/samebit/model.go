package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"samebit"
	"samebit/backend"
	"samebit/cache"
	"samebit/checkpoint"
	"samebit/models"
	"samebit/nn"
	"samebit/qcc"
	"samebit/qwen3"
	"samebit/tensor"
)

const (
	modelHelp   = "`PATH` of the model: a .gguf file or a Hugging Face directory; tiny (default) and tiny-hybrid are in the program"
	fetchedHelp = "`PATH` of the model: a .gguf file or a Hugging Face directory (default: the one that scripts/fetch-weights.sh fetched)"
)

// modelFlags choose a model and where it runs.
type modelFlags struct {
	path    string
	fetched bool // without a path the fetched model is meant, not one of the program
	device  string
	kv      kvFlag
	threads int
	context int
	chunk   int
	cache   string

	bounded boundedFlags
}

// register adds the flags of commands that run the model on one device.
func (f *modelFlags) register(c *cobra.Command) {
	c.Flags().SortFlags = false // the order in which they are explained
	help := modelHelp
	if f.fetched {
		help = fetchedHelp
	}
	c.Flags().StringVarP(&f.path, "model", "m", "", help)
	f.registerDevice(c)
}

// registerDevice adds those that choose the device.
func (f *modelFlags) registerDevice(c *cobra.Command) {
	c.Flags().StringVar(&f.device, "device", "cpu", "`NAME` of where to run: "+deviceHelp)
	c.Flags().IntVar(&f.threads, "threads", 0, "`N` threads of the cpu device (0: all processors); changes no bit")
	// the only error is a flag that does not exist
	_ = c.RegisterFlagCompletionFunc("device", cobra.FixedCompletions(deviceNames(), cobra.ShellCompDirectiveNoFileComp))
}

// registerSequence adds the flags of commands that make text.
func (f *modelFlags) registerSequence(c *cobra.Command) {
	f.register(c)
	f.kv.register(c)
	c.Flags().IntVar(&f.context, "context", 0, "at most `N` tokens in the sequence (0: what the model was made for)")
	c.Flags().StringVar(&f.cache, "cache", "", "keep checkpoints of prompts in folder `DIR` and resume from them, also after a restart; changes no bit")
	c.Flags().IntVar(&f.chunk, "chunk", 0, "`N` prompt tokens per pass (0: 512); changes no bit")
	f.bounded.register(c)
	f.bounded.registerExact(c)
	f.bounded.registerSieve(c)
}

// check refuses values before anything is loaded.
func (f *modelFlags) check() error {
	if f.threads < 0 || f.threads > maxThreads {
		return usagef("--threads %d: want 1 to %d, or 0 for all processors", f.threads, maxThreads)
	}
	if f.context < 0 {
		return usagef("--context %d: want a number of tokens, or 0 for what the model was made for", f.context)
	}
	if f.chunk < 0 {
		return usagef("--chunk %d: want a number of tokens, or 0 for 512", f.chunk)
	}
	if err := f.bounded.check(f.cache != ""); err != nil {
		return err
	}
	if err := f.kv.check(&f.bounded); err != nil {
		return err
	}
	return checkDevice(f.device)
}

// maxThreads is what the cpu device accepts.
const maxThreads = 1024

// fetchedModelPath is where scripts/fetch-weights.sh keeps its file.
func fetchedModelPath() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: %w", err)
	}
	return filepath.Join(dir, "samebit", "models", "SmolLM2-135M-Instruct.Q4_1.gguf"), nil
}

// fetchedModel is the fetched model's path.
func fetchedModel() (string, error) {
	path, err := fetchedModelPath()
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("no model named: give --model PATH (a .gguf file or a Hugging Face directory), or fetch a small one once with scripts/fetch-weights.sh (94 MiB, kept at %s)", path)
	}
	return path, nil
}

// resolveModel is the path, or the name of the model in the program if there is none.
func resolveModel(path string) string {
	if path == "" {
		return models.Default
	}
	return path
}

// embedded is a model in the program, by name. A folder of the same name is ./name.
func embedded(path string) (fs.FS, bool) {
	if !slices.Contains(models.Names, path) {
		return nil, false
	}
	files, err := models.Open(path)
	return files, err == nil
}

// open opens the model on its device, with progress on a terminal.
func (f *modelFlags) open(c *cobra.Command) (*samebit.Model, func(), error) {
	if f.fetched && f.path == "" {
		var err error
		if f.path, err = fetchedModel(); err != nil {
			return nil, nil, err
		}
	}
	path := resolveModel(f.path)
	files, inside := embedded(path)
	if !inside {
		if err := checkPath(path); err != nil {
			return nil, nil, err
		}
	}
	if f.cache != "" {
		if err := checkFolder(f.cache); err != nil {
			return nil, nil, err
		}
	}
	dev, err := newDevice(f.device, f.threads)
	if err != nil {
		return nil, nil, err
	}
	bar := newBar("loading "+filepath.Base(path), true)
	cfg := samebit.Config{Device: dev, Context: f.context, ChunkRows: f.chunk, KV: f.kv.dtype(), Progress: bar.update}
	if f.bounded.wanted() {
		cfg.Adapter = f.bounded.adapter
	}
	if f.bounded.sieve != 0 {
		cfg.Sieve = &qcc.Sieve{Slots: f.bounded.sieve}
	}
	if f.cache != "" {
		cfg.Cache = &cache.Config{Dir: f.cache}
	}
	var m *samebit.Model
	if inside {
		m, err = samebit.OpenFS(c.Context(), path, files, cfg)
	} else {
		m, err = samebit.OpenContext(c.Context(), path, cfg)
	}
	bar.finish()
	if err != nil {
		dev.Close()
		return nil, nil, err
	}
	return m, func() { m.Close(); dev.Close() }, nil
}

// checkFolder makes the folder of a cache and a file in it, before a model is loaded.
func checkFolder(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = probeFolder(dir)
	}
	if err == nil {
		return nil
	}
	if p := new(os.PathError); errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("--cache %s: cannot be written: %w: name a folder that can, or leave the flag out", dir, err)
}

// probeFolder says why no file can be made in dir; it leaves none.
func probeFolder(dir string) error {
	t, err := os.CreateTemp(dir, ".samebit-*")
	if err != nil {
		if p := new(os.PathError); errors.As(err, &p) {
			err = p.Err // without the name that was tried
		}
		return err
	}
	return errors.Join(t.Close(), os.Remove(t.Name()))
}

// checkPath refuses what is clearly no model, with the remedy.
func checkPath(path string) error {
	const remedy = "name a .gguf file or a Hugging Face directory with config.json and safetensors files"
	i, err := os.Stat(path)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return fmt.Errorf("open model %s: %w: %s", path, err, remedy)
	}
	if i.IsDir() {
		if _, err := os.Stat(filepath.Join(path, "config.json")); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("open model %s: the folder has no config.json: %s", path, remedy)
		}
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open model: %w", err)
	}
	defer f.Close()
	var head [8]byte
	n, err := io.ReadFull(f, head[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("open model: %w", err)
	}
	ext := strings.ToLower(filepath.Ext(path))
	if ext != ".gguf" && ext != ".safetensors" && !strings.HasPrefix(string(head[:n]), "GGUF") && binary.LittleEndian.Uint64(head[:]) > uint64(i.Size()) {
		return fmt.Errorf("open model %s: the file is neither GGUF nor safetensors: %s", path, remedy)
	}
	return nil
}

// openSet opens the files of a model and reads its shape. The set is open also
// when only the shape is wrong.
func openSet(path string) (set *checkpoint.Set, shape qwen3.Config, err error) {
	if files, ok := embedded(path); ok {
		set, err = checkpoint.OpenFS(path, files)
	} else if err = checkPath(path); err == nil {
		set, err = checkpoint.Open(path)
	}
	if err != nil {
		return nil, qwen3.Config{}, err
	}
	shape, err = qwen3.FromSet(set)
	return set, shape, err
}

// loadDecoder loads weights without a tokenizer, for keys and values of a type.
func loadDecoder(ctx context.Context, dev backend.Device, path string, kv tensor.DType, progress func(done, total int64)) (*nn.Decoder, error) {
	set, shape, err := openSet(path)
	if set != nil {
		defer set.Close()
	}
	if err != nil {
		return nil, err
	}
	if err := backend.CheckPageType(dev, kv); err != nil {
		return nil, err
	}
	return qwen3.Load(ctx, dev, shape, set, qwen3.LoadOptions{Progress: progress, KV: kv})
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
			progressbar.OptionShowBytes(b.bytes), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond))
		b.bar.RenderBlank()
	}
	b.bar.Set64(done)
}

// rows is update for counts of rows.
func (b *bar) rows(done, total int) { b.update(int64(done), int64(total)) }

// longPrompt is a number of rows that is worth a bar.
const longPrompt = 256

// begin shows the bar before the first rows are done.
func (b *bar) begin(total int) {
	if total >= longPrompt {
		b.rows(0, total)
	}
}

// finish wipes the bar.
func (b *bar) finish() {
	if b.bar != nil {
		b.bar.Clear()
		b.bar = nil
	}
}

// maxInput bounds what is read from standard input.
const maxInput = 64 << 20

// text is the argument words joined, or standard input if there are none or "-".
func text(c *cobra.Command, args []string) (string, error) {
	if len(args) > 0 && !(len(args) == 1 && args[0] == "-") {
		return strings.Join(args, " "), nil
	}
	if len(args) == 0 && term.IsTerminal(int(os.Stdin.Fd())) {
		return "", usagef("%s: no text given: write it after the flags, or pipe it in", c.Name())
	}
	type result struct {
		b   []byte
		err error
	}
	read := make(chan result, 1)
	go func() { // a read cannot be interrupted; the program ends without it
		b, err := io.ReadAll(io.LimitReader(c.InOrStdin(), maxInput+1))
		read <- result{b, err}
	}()
	select {
	case <-c.Context().Done():
		return "", errInterrupted
	case r := <-read:
		if r.err != nil {
			return "", fmt.Errorf("%s: reading standard input: %w", c.Name(), r.err)
		}
		if len(r.b) > maxInput {
			return "", fmt.Errorf("%s: standard input is longer than %d MiB: give a shorter text", c.Name(), maxInput>>20)
		}
		return string(r.b), nil
	}
}

// printJSON prints v on one line; what is no number was kept out by the caller.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
