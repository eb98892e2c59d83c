package samebit_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"samebit"
	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/cache"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qcc"
	"samebit/tensor"
)

// tiny is a model of random weights with a vocabulary of 512 and a ChatML
// template; hybrid one with recurrent layers.
const (
	tiny   = "testdata/models/gguf/qwen3-bf16.gguf"
	hybrid = "testdata/models/gguf/qwen35-f32.gguf"
)

var bg = context.Background()

func open(t testing.TB, path string, cfg samebit.Config) *samebit.Model {
	t.Helper()
	if cfg.Device == nil && cfg.Threads == 0 {
		cfg.Threads = 2
	}
	m, err := samebit.Open(path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// generate collects a text.
func generate(t testing.TB, m *samebit.Model, prompt string, g samebit.Gen) string {
	t.Helper()
	var b strings.Builder
	for tok, err := range m.Generate(bg, prompt, g) {
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(tok.Text)
	}
	return b.String()
}

// directory makes a complete Hugging Face model directory.
func directory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for from, names := range map[string][]string{
		"testdata/models/checkpoints/qwen3-tied-fp32": {"config.json", "generation_config.json", "model.safetensors"},
		"testdata/models/tokenizers/bpe-512":          {"tokenizer.json", "tokenizer_config.json"},
	} {
		for _, n := range names {
			b, err := os.ReadFile(filepath.Join(from, n))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, n), b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestOneText: devices, threads, chunks and formats change nothing.
func TestOneText(t *testing.T) {
	dev := ref.New()
	for _, path := range []string{tiny, hybrid, directory(t)} {
		want := generate(t, open(t, path, samebit.Config{}), "Hello world", samebit.Gen{MaxTokens: 24})
		if want == "" {
			t.Errorf("%s generates nothing", path)
		}
		for _, cfg := range []samebit.Config{{Threads: 1}, {Threads: 3, ChunkRows: 1}, {ChunkRows: 3}, {Context: 40}, {Device: dev, ChunkRows: 5}} {
			if got := generate(t, open(t, path, cfg), "Hello world", samebit.Gen{MaxTokens: 24}); got != want {
				t.Errorf("%s with %+v: text %q, want %q", path, cfg, got, want)
			}
		}
	}
	if s, err := dev.NewStream(); err != nil {
		t.Errorf("a model closed a device that was given to it: %v", err)
	} else {
		s.Close()
	}
}

// A model directory in any file system is the one on disk, and what is wrong with it
// is told by name.
func TestOpenFS(t *testing.T) {
	dir := directory(t)
	want := generate(t, open(t, dir, samebit.Config{}), "Hello world", samebit.Gen{MaxTokens: 24})
	files := fstest.MapFS{}
	for _, name := range []string{"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: b}
	}
	m, err := samebit.OpenFS(bg, "inside", files, samebit.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := generate(t, m, "Hello world", samebit.Gen{MaxTokens: 24}); got != want {
		t.Errorf("text %q, from disk %q", got, want)
	}
	for name, b := range map[string][]byte{"config.json": []byte("{"), "model.safetensors": files["model.safetensors"].Data[:1000], "tokenizer.json": []byte("[]"), "generation_config.json": []byte("{")} {
		torn := maps.Clone(files)
		torn[name] = &fstest.MapFile{Data: b}
		if m, err := samebit.OpenFS(bg, "inside", torn, samebit.Config{}); err == nil || !strings.Contains(err.Error(), "inside") {
			m.Close()
			t.Errorf("torn %s: %v", name, err)
		}
		delete(torn, name)
		m, err := samebit.OpenFS(bg, "inside", torn, samebit.Config{})
		if name == "generation_config.json" {
			if err != nil {
				t.Errorf("without %s: %v", name, err)
				continue
			}
			m.Close()
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if _, err := samebit.OpenFS(bg, "inside", files, samebit.Config{Context: -1}); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("a negative context: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	foreign := func(kv ...checkpoint.KV) []byte {
		var b bytes.Buffer
		if err := checkpoint.WriteGGUF(&b, nil, kv); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	model, err := os.ReadFile(tiny)
	if err != nil {
		t.Fatal(err)
	}
	whole := directory(t)
	small := directory(t)
	cfg, err := os.ReadFile(filepath.Join(small, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(small, "config.json"), bytes.Replace(cfg, []byte(`"vocab_size": 512`), []byte(`"vocab_size": 500`), 1), 0o644)
	bare := directory(t)
	os.Remove(filepath.Join(bare, "tokenizer.json"))
	unconfigured := directory(t)
	os.Remove(filepath.Join(unconfigured, "config.json"))
	weightless := directory(t)
	os.Remove(filepath.Join(weightless, "model.safetensors"))
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why, path string
		cfg       samebit.Config
		want      []string
	}{
		{"no such file", filepath.Join(dir, "nothing.gguf"), samebit.Config{}, []string{"nothing.gguf", ".gguf file or a directory"}},
		{"an empty name", "", samebit.Config{}, []string{"directory with config.json"}},
		{"a text file", write("notes.txt", []byte("dear diary, today I downloaded a model")), samebit.Config{}, []string{"notes.txt"}},
		{"an empty file", write("empty.gguf", nil), samebit.Config{}, []string{"empty.gguf"}},
		{"an empty directory", filepath.Join(dir, "empty"), samebit.Config{}, []string{"empty", "config.json", "safetensors files"}},
		{"another architecture", write("mamba.gguf", foreign(checkpoint.KV{Key: "general.architecture", Value: "mamba"})), samebit.Config{}, []string{"mamba.gguf", `"mamba"`, "qwen3"}},
		{"no architecture", write("none.gguf", foreign()), samebit.Config{}, []string{"general.architecture"}},
		{"half a file", write("half.gguf", model[:len(model)/2]), samebit.Config{}, []string{"half.gguf"}},
		{"a file without its last bytes", write("cut.gguf", model[:len(model)-40]), samebit.Config{}, []string{"cut.gguf"}},
		{"a lone safetensors file", filepath.Join(whole, "model.safetensors"), samebit.Config{}, []string{"model.safetensors", "directory"}},
		{"a directory without a tokenizer", bare, samebit.Config{}, []string{"tokenizer.json"}},
		{"a directory without a config", unconfigured, samebit.Config{}, []string{"config.json", "a model directory has"}},
		{"a directory without weights", weightless, samebit.Config{}, []string{"model.safetensors", "a model directory has"}},
		{"a tokenizer of another model", small, samebit.Config{}, []string{"512 ids", "500 rows"}},
		{"too long a context", tiny, samebit.Config{Context: 4096}, []string{"4096", "512"}},
		{"a negative context", tiny, samebit.Config{Context: -1}, []string{"negative"}},
		{"negative chunks", tiny, samebit.Config{ChunkRows: -1}, []string{"negative"}},
		{"negative threads", tiny, samebit.Config{Threads: -1}, []string{"negative"}},
	} {
		m, err := samebit.Open(tt.path, tt.cfg)
		if err == nil {
			m.Close()
			t.Errorf("%s: no error", tt.why)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q, want %q in it", tt.why, err, w)
			}
		}
	}
	for n := 0; n < len(model); n += 1 + len(model)/60 { // never a panic, wherever it was cut
		if m, err := samebit.Open(write("t.gguf", model[:n]), samebit.Config{Threads: 1}); err == nil {
			m.Close()
			t.Errorf("a model cut to %d of %d bytes was opened", n, len(model))
		}
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if _, err := samebit.OpenContext(ctx, tiny, samebit.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("opened with a cancelled context: %v", err)
	}
	if _, err := samebit.OpenTokenizer(filepath.Join(dir, "nothing")); err == nil {
		t.Error("a tokenizer of nothing was opened")
	}
	for _, path := range []string{tiny, whole} {
		if tok, err := samebit.OpenTokenizer(path); err != nil || tok.Size() != 512 {
			t.Errorf("tokenizer of %s: %v", path, err)
		}
	}
}

func TestUseAfterClose(t *testing.T) {
	dev, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, d := range []backend.Device{nil, dev} { // own and borrowed
		m, err := samebit.Open(tiny, samebit.Config{Device: d, Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		c, err := m.NewChat(samebit.ChatConfig{})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		c.Close()
		for range 2 {
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for _, err := range m.Generate(bg, "Hello", samebit.Gen{}) {
			if n++; !errors.Is(err, samebit.ErrClosed) {
				t.Errorf("Generate of a closed model: %v", err)
			}
		}
		for _, err := range c.Send(bg, "Hello", samebit.Gen{}) {
			if n++; err == nil {
				t.Error("a closed chat answers")
			}
		}
		if n != 2 {
			t.Errorf("%d tokens from closed things, want an error each", n)
		}
		if _, err := m.NewChat(samebit.ChatConfig{}); !errors.Is(err, samebit.ErrClosed) {
			t.Errorf("NewChat of a closed model: %v", err)
		}
		if _, _, err := m.NewRunner(); !errors.Is(err, samebit.ErrClosed) {
			t.Errorf("NewRunner of a closed model: %v", err)
		}
		if _, err := m.RenderChat([]samebit.Message{{Role: "user", Content: "x"}}, samebit.ChatConfig{}); err != nil {
			t.Errorf("rendering needs no weights: %v", err)
		}
	}
}

// TestCloseUnderRunner: what runs on a closed model fails; the process goes on.
func TestCloseUnderRunner(t *testing.T) {
	m, err := samebit.Open(tiny, samebit.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	r, s, err := m.NewRunner()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer r.Close()
	if err := r.Step(bg, 5); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err == nil {
		t.Error("a model was closed under a runner: no error")
	}
	if err := r.Step(bg, 5); err == nil {
		t.Error("a runner goes on without its model")
	}
	if r.Len() != 1 {
		t.Errorf("%d rows after a step that failed, want 1", r.Len())
	}
	new(samebit.Chat).Close()
}

// TestCloseWaits closes a model while it generates elsewhere.
func TestCloseWaits(t *testing.T) {
	m, err := samebit.Open(tiny, samebit.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	want := generate(t, m, "Hello world", samebit.Gen{MaxTokens: 30})
	begun, text, closed := make(chan bool), make(chan string), make(chan error, 1)
	go func() {
		var b strings.Builder
		n := 0
		for tok, err := range m.Generate(bg, "Hello world", samebit.Gen{MaxTokens: 30}) {
			if err != nil {
				t.Error(err)
			}
			b.WriteString(tok.Text)
			if n++; n == 3 {
				begun <- true
				begun <- true
			}
		}
		text <- b.String()
	}()
	<-begun
	go func() { closed <- m.Close() }()
	for { // until Close has begun
		var err error
		for _, err = range m.Generate(bg, "x", samebit.Gen{MaxTokens: 1}) {
		}
		if errors.Is(err, samebit.ErrClosed) {
			break
		}
		runtime.Gosched()
	}
	select {
	case err := <-closed:
		t.Fatalf("Close did not wait for a generation: %v", err)
	default:
	}
	<-begun
	if got := <-text; got != want {
		t.Errorf("text %q while closing, want %q", got, want)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestOpenCloseMemory opens and closes a model again and again.
func TestOpenCloseMemory(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 60
	}
	goroutines := runtime.NumGoroutine()
	round := func() {
		m, err := samebit.Open(tiny, samebit.Config{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range m.Generate(bg, "Hello", samebit.Gen{MaxTokens: 2}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		round()
	}
	heap, rss := memory(t)
	for range rounds {
		round()
	}
	heap2, rss2 := memory(t)
	if heap2 > heap+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes over %d models", heap, heap2, rounds)
	}
	if rss2 > rss+16<<20 {
		t.Errorf("resident memory grew from %d to %d bytes over %d models", rss, rss2, rounds)
	}
	settle(t, goroutines)
}

// memory is the live heap and, where the system says, resident memory.
func memory(t *testing.T) (heap, resident int64) {
	t.Helper()
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			resident = pages * int64(os.Getpagesize())
		}
	}
	return int64(s.HeapAlloc), resident
}

// settle waits until no more goroutines run than before.
func settle(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
			return
		}
		runtime.Gosched()
	}
}

// A sieve makes another model whose texts do not depend on chunks or on a cache, and
// releases everything when it is closed.
func TestSieve(t *testing.T) {
	prompt := strings.Repeat("Once upon a time, there was a small bird that sang. ", 12)
	sieve := &qcc.Sieve{Slots: 64}
	g := samebit.Gen{MaxTokens: 20, Ignore: true}
	for _, path := range []string{tiny, hybrid} {
		whole, small := open(t, path, samebit.Config{}), open(t, path, samebit.Config{Sieve: sieve})
		text := generate(t, small, prompt, g)
		if text == generate(t, whole, prompt, g) || small.Decoder.ID == whole.Decoder.ID {
			t.Errorf("%s: a sieve of 64 rows says %q, as the whole model does", path, text)
		}
		if got := generate(t, open(t, path, samebit.Config{Sieve: sieve, ChunkRows: 7}), prompt, g); got != text {
			t.Errorf("%s: %q in chunks, %q else", path, got, text)
		}
		cached := open(t, path, samebit.Config{Sieve: sieve, Cache: &cache.Config{}})
		for range 2 {
			if got := generate(t, cached, prompt, g); got != text {
				t.Errorf("%s: %q with a cache, %q else", path, got, text)
			}
		}
		if cached.Cache().Stats().Checkpoints == 0 {
			t.Errorf("%s: the cache was not used", path)
		}
	}
	adapter := func(*nn.Decoder) (*qcc.Adapter, error) { return nil, nil }
	if _, err := samebit.Open(tiny, samebit.Config{Sieve: sieve, Adapter: adapter}); err == nil {
		t.Error("a sieve goes with an adapter")
	}
	if _, err := samebit.Open(tiny, samebit.Config{Sieve: &qcc.Sieve{Slots: 65}}); !errors.Is(err, qcc.ErrConfig) {
		t.Errorf("a sieve of 65 rows: %v", err)
	}
}

// TestKV: keys and values in bf16 give a text of their own, the same on every path, and
// checkpoints that a model with float32 ones does not take.
func TestKV(t *testing.T) {
	prompt := strings.Repeat("Once upon a time, there was a small bird that sang. ", 8)
	g := samebit.Gen{MaxTokens: 40, Ignore: true}
	half := func(c samebit.Config) samebit.Config {
		c.KV = tensor.BF16
		return c
	}
	for _, path := range []string{tiny, hybrid} {
		whole, m := open(t, path, samebit.Config{KV: tensor.F32}), open(t, path, half(samebit.Config{}))
		want := generate(t, m, prompt, g)
		if plain := generate(t, whole, prompt, g); plain != generate(t, open(t, path, samebit.Config{}), prompt, g) || whole.Decoder.ID == m.Decoder.ID {
			t.Errorf("%s: float32 named and not named differ, or bf16 has its ID", path)
		}
		for _, cfg := range []samebit.Config{{Threads: 1}, {Threads: 3, ChunkRows: 1}, {ChunkRows: 65}, {Device: ref.New(), ChunkRows: 50}} {
			if got := generate(t, open(t, path, half(cfg)), prompt, g); got != want {
				t.Errorf("%s with %+v: text %q, want %q", path, cfg, got, want)
			}
		}
		dir := t.TempDir()
		for i, c := range []struct {
			cfg    samebit.Config
			reused bool
		}{{samebit.Config{}, false}, {half(samebit.Config{}), false}, {half(samebit.Config{}), true}, {samebit.Config{}, true}} {
			c.cfg.Cache = &cache.Config{Dir: dir, Policy: cache.Policy{MinPrefix: 8}}
			m, err := samebit.Open(path, c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			text := generate(t, m, prompt, g)
			s := m.Cache().Stats()
			if c.cfg.KV == tensor.BF16 && text != want || s.TokensReused > 0 != c.reused || s.StoreFault > 0 {
				t.Errorf("%s, run %d with %v: text %q, %d rows reused, %d faults", path, i, c.cfg.KV, text, s.TokensReused, s.StoreFault)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
		sieve := &qcc.Sieve{Slots: 64}
		text := generate(t, open(t, path, half(samebit.Config{Sieve: sieve})), prompt, g)
		if got := generate(t, open(t, path, half(samebit.Config{Sieve: sieve, ChunkRows: 7, Device: ref.New()})), prompt, g); got != text {
			t.Errorf("%s behind a sieve: %q in chunks on ref, %q else", path, got, text)
		}
	}
	adapter := func(d *nn.Decoder) (*qcc.Adapter, error) {
		c, err := qcc.ModelConfig(d)
		if err != nil {
			return nil, err
		}
		c.Window = 16
		return qcc.NewAdapter(d, qcc.Retrofit{Config: c, KV: qcc.KVRepeat}, 0)
	}
	if _, err := samebit.Open(tiny, half(samebit.Config{Adapter: adapter})); !errors.Is(err, qcc.ErrConfig) || !strings.Contains(err.Error(), "keys and values in F32") {
		t.Errorf("bf16 with an adapter: %v, want ErrConfig and the remedy", err)
	}
	if _, err := samebit.Open(tiny, samebit.Config{KV: tensor.Q8_0}); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("keys and values in Q8_0: %v, want ErrUnsupported", err)
	}
}

// A model of bounded memory is another model: its own texts, from any chunks, and with
// an exact prompt the first token of the whole model.
func TestAdapter(t *testing.T) {
	const prompt = "Once upon a time, there was a small bird that sang"
	bounded := func(window int, exact bool) func(d *nn.Decoder) (*qcc.Adapter, error) {
		return func(d *nn.Decoder) (*qcc.Adapter, error) {
			c, err := qcc.ModelConfig(d)
			if err != nil {
				return nil, err
			}
			c.Window = window
			return qcc.NewAdapter(d, qcc.Retrofit{Config: c, KV: qcc.KVRepeat, ExactPrefill: exact}, 0)
		}
	}
	for _, path := range []string{tiny, hybrid} {
		g := samebit.Gen{MaxTokens: 20, Ignore: true}
		whole := open(t, path, samebit.Config{})
		text := generate(t, whole, prompt, g)
		small := open(t, path, samebit.Config{Adapter: bounded(8, false)})
		short := generate(t, small, prompt, g)
		if short == text || small.Decoder.ID == whole.Decoder.ID {
			t.Errorf("%s: a window of 8 rows says %q, as the whole model does", path, short)
		}
		if got := generate(t, open(t, path, samebit.Config{Adapter: bounded(8, false), ChunkRows: 3}), prompt, g); got != short {
			t.Errorf("%s: %q in chunks, %q else", path, got, short)
		}
		if got := generate(t, open(t, path, samebit.Config{Adapter: bounded(400, true)}), prompt, g); got != text {
			t.Errorf("%s: a window that covers the text says %q, the model %q", path, got, text)
		}
		exact := open(t, path, samebit.Config{Adapter: bounded(8, true)})
		g.MaxTokens = 1
		if got, want := generate(t, exact, prompt, g), generate(t, whole, prompt, g); got != want {
			t.Errorf("%s: after an exact prompt %q, the model says %q", path, got, want)
		}
		chat, err := exact.NewChat(samebit.ChatConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for _, err := range chat.Send(bg, "Hello", g) {
				if err != nil {
					t.Error(path, err)
				}
			}
		}
		chat.Close()
	}
	_, err := samebit.Open(tiny, samebit.Config{Adapter: bounded(8, true), Cache: &cache.Config{}})
	if err == nil {
		t.Error("exact prompts go with a cache")
	}
	broken := errors.New("no adapter")
	_, err = samebit.Open(tiny, samebit.Config{Adapter: func(*nn.Decoder) (*qcc.Adapter, error) { return nil, broken }})
	if !errors.Is(err, broken) {
		t.Errorf("an adapter that cannot be read: %v", err)
	}
	_, err = samebit.Open(tiny, samebit.Config{Adapter: func(*nn.Decoder) (*qcc.Adapter, error) { return nil, nil }})
	if err == nil {
		t.Error("no adapter was taken for one")
	}
}
