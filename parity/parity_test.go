package parity_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/parity"
	"samebit/qwen3"
)

var update = flag.Bool("update", false, "rewrite testdata/parity.txt")

const (
	models = "../testdata/models"
	table  = "testdata/parity.txt"
)

// loader opens a checkpoint for every device that asks.
func loader(path string) parity.Loader {
	return func(ctx context.Context, dev backend.Device) (*nn.Decoder, error) {
		set, err := checkpoint.Open(path)
		if err != nil {
			return nil, err
		}
		defer set.Close()
		cfg, err := qwen3.FromSet(set)
		if err != nil {
			return nil, err
		}
		return qwen3.Load(ctx, dev, cfg, set, qwen3.LoadOptions{})
	}
}

// golden lists the small models, safetensors and GGUF.
func golden(t *testing.T) []string {
	t.Helper()
	a, err := filepath.Glob(filepath.Join(models, "checkpoints", "*"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := filepath.Glob(filepath.Join(models, "gguf", "*.gguf"))
	if err != nil || len(a) != 22 || len(b) != 6 {
		t.Fatalf("%d checkpoints and %d GGUF files, want 22 and 6 (%v)", len(a), len(b), err)
	}
	return append(a, b...)
}

var quick = parity.Config{Prompt: 70, Generate: 8, Threads: []int{1, 3}, Chunks: []int{1, 7, 64}, Batches: []int{1, 2, 5}}

func TestRun(t *testing.T) {
	for _, model := range []string{"qwen3-tied-fp32", "qwen35-8l-bf16"} {
		cfg := quick
		var logged []parity.Case
		cfg.Log = func(c parity.Case) { logged = append(logged, c) }
		rep, err := parity.Run(context.Background(), loader(filepath.Join(models, "checkpoints", model)), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Differing != 0 || rep.Rows != 78 || len(rep.Hash) != 64 {
			t.Errorf("%s: %+v", model, rep)
		}
		// every way sees all rows, or those after the place where it left the path
		cases := 1 + 3 + 3 + 4 + 2 + len(cpu.Impls())
		if len(rep.Cases) != cases || len(logged) != cases {
			t.Errorf("%s: %d cases, %d logged, want %d", model, len(rep.Cases), len(logged), cases)
		}
		var values int64
		for _, c := range rep.Cases[1:] {
			if c.Values == 0 || c.First != "" {
				t.Errorf("%s: case %+v", model, c)
			}
			values += c.Values
		}
		if values != rep.Values {
			t.Errorf("%s: %d values reported, the cases have %d", model, rep.Values, values)
		}
	}
}

// TestWrongLoader gives the later devices other weights than the first.
func TestWrongLoader(t *testing.T) {
	right, wrong := loader(filepath.Join(models, "checkpoints", "qwen3-tied-fp32")), loader(filepath.Join(models, "checkpoints", "qwen3-tied-bf16"))
	for _, from := range []int{1, 2, 4} { // the baseline is load 0, the ways load 1, threads and kernels the others
		loads := 0
		rep, err := parity.Run(context.Background(), func(ctx context.Context, dev backend.Device) (*nn.Decoder, error) {
			loads++
			if loads > from {
				return wrong(ctx, dev)
			}
			return right(ctx, dev)
		}, quick)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Differing == 0 {
			t.Errorf("other weights from load %d on were not noticed", from)
		}
		for _, c := range rep.Cases {
			if (c.Differing > 0) != strings.HasPrefix(c.First, "row ") {
				t.Errorf("case %+v does not say where it differs", c)
			}
		}
	}
}

func TestRunErrors(t *testing.T) {
	right := loader(filepath.Join(models, "checkpoints", "qwen3-tied-fp32"))
	broken := errors.New("no model today")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tt := range []struct {
		why  string
		ctx  context.Context
		load parity.Loader
		cfg  parity.Config
		want string
	}{
		{"more rows than the context", context.Background(), right, parity.Config{Prompt: 600, Generate: 8}, "context of 512"},
		{"negative rows", context.Background(), right, parity.Config{Prompt: -1}, "-1 prompt rows"},
		{"an empty batch", context.Background(), right, parity.Config{Prompt: 9, Generate: 1, Batches: []int{2, 0}}, "batch of 0"},
		{"no kernels", context.Background(), right, parity.Config{Impls: []string{}}, "no kernels"},
		{"unknown kernels", context.Background(), right, parity.Config{Prompt: 9, Generate: 1, Impls: []string{"mmx"}}, "mmx"},
		{"a loader that fails", context.Background(), func(context.Context, backend.Device) (*nn.Decoder, error) { return nil, broken }, quick, broken.Error()},
		{"a cancelled context", ctx, right, quick, "canceled"},
	} {
		if _, err := parity.Run(tt.ctx, tt.load, tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.why, err, tt.want)
		}
	}
}

// few are enough where time is short: every mixer, feed-forward part, rotation and
// kind of weight is among them.
var few = []string{"llama3-bf16", "qwen2-bf16", "qwen3-swa-bias-fp32", "qwen3-yarn-bf16", "qwen3next-moe-bf16", "qwen35-8l-fp32", "qwen2-f16.gguf", "qwen3-mixed.gguf"}

// TestHashes compares with hashes that every processor, instruction set and
// compiler setting must give. -update writes them anew, which is right only when
// the numerics contract or the goldens change.
func TestHashes(t *testing.T) {
	want := map[string]string{}
	if b, err := os.ReadFile(table); err == nil {
		for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
			if f := strings.Fields(sc.Text()); len(f) == 2 && f[0] != "#" {
				want[f[0]] = f[1]
			}
		}
	} else if !*update {
		t.Fatal(err)
	}
	var out bytes.Buffer
	fmt.Fprintln(&out, "# SHA-256 of the logits' bits of 70 seeded rows and 8 greedy ones: go test ./parity -run TestHashes -update")
	for _, path := range golden(t) {
		name := filepath.Base(path)
		if testing.Short() && !*update && !slices.Contains(few, name) {
			continue
		}
		rep, err := parity.Run(context.Background(), loader(path), parity.Config{Prompt: 70, Generate: 8, Threads: []int{}, Chunks: []int{}, Batches: []int{}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range rep.Cases {
			if c.Differing > 0 {
				t.Errorf("%s: %+v", name, c)
			}
		}
		fmt.Fprintln(&out, name, rep.Hash)
		if !*update && rep.Hash != want[name] {
			t.Errorf("%s: the logits' bits have SHA-256 %s, want %s", name, rep.Hash, want[name])
		}
	}
	if *update {
		if err := os.WriteFile(table, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The shortest text has all the ways too, and so has one that fills the context.
func TestShortTexts(t *testing.T) {
	small := func(rows int) parity.Loader {
		return func(ctx context.Context, dev backend.Device) (*nn.Decoder, error) {
			d, err := loader(filepath.Join(models, "checkpoints", "qwen3-tied-fp32"))(ctx, dev)
			if err == nil {
				d.Context = rows
			}
			return d, err
		}
	}
	for _, n := range []struct{ prompt, generate, context int }{{1, 1, 2}, {2, 1, 3}, {37, 3, 40}} {
		cfg := quick
		cfg.Prompt, cfg.Generate = n.prompt, n.generate
		rep, err := parity.Run(context.Background(), small(n.context), cfg)
		if err != nil || rep.Differing != 0 {
			t.Errorf("%+v: %d values differ, error %v", n, rep.Differing, err)
		}
	}
}

// Devices run in place of the processor's own ways, and what they cannot open or
// get wrong is told.
func TestDevices(t *testing.T) {
	load := loader(filepath.Join(models, "checkpoints", "qwen35-bf16"))
	cfg := quick
	cfg.Devices = []parity.Target{
		{Name: "ref", Open: func() (backend.Device, error) { return ref.New(), nil }},
		{Name: "another", Open: func() (backend.Device, error) { return cpu.New(cpu.Config{Threads: 1, Impl: "generic"}) }},
	}
	rep, err := parity.Run(context.Background(), load, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range rep.Cases {
		names = append(names, c.Name)
	}
	if rep.Differing != 0 || len(rep.Cases) != 7 || !slices.Contains(names, "another: state from cpu and back") {
		t.Errorf("%d differ in %q", rep.Differing, names)
	}
	cfg.Devices = []parity.Target{cfg.Devices[0], {Name: "none", Open: func() (backend.Device, error) { return nil, backend.ErrNoDevice }}}
	nothing := func(context.Context, backend.Device) (*nn.Decoder, error) {
		t.Error("the model is loaded before all devices are open")
		return nil, errors.New("too early")
	}
	if _, err := parity.Run(context.Background(), nothing, cfg); !errors.Is(err, backend.ErrNoDevice) || !strings.Contains(err.Error(), "none") {
		t.Errorf("a device that does not open gives %v", err)
	}
}
