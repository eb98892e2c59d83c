// Package samebit runs language models in pure Go with one promise: the same
// tokens give the same bits, whatever the batch, the chunking, the number of
// threads, the vector width or the processor.
//
//	m, err := samebit.Open("model.gguf", samebit.Config{})
//	if err != nil { … }
//	defer m.Close()
//	for tok, err := range m.Generate(ctx, "The capital of France is", samebit.Gen{MaxTokens: 16}) {
//		if err != nil { … }
//		fmt.Print(tok.Text)
//	}
package samebit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/cache"
	"samebit/checkpoint"
	"samebit/nn"
	"samebit/qcc"
	"samebit/qwen3"
	"samebit/state"
	"samebit/tensor"
	"samebit/token"
	"samebit/token/jinja"
)

// Config says how a model is opened. The zero value runs on all processors.
type Config struct {
	// Device is where the model runs; nil means the processor, with Threads
	// workers. A device given here is not closed with the model.
	Device  backend.Device
	Threads int // of the processor; 0 means GOMAXPROCS

	// Context limits the rows of a sequence; 0 means what the model was made for.
	Context int
	// ChunkRows is the number of prompt rows per pass; 0 means 512. It changes
	// speed and memory, never a bit.
	ChunkRows int
	// KV is how keys and values are stored: tensor.F32, which zero means too, or
	// tensor.BF16, which takes half the memory and is read faster at depth. It changes
	// what the model says; with either the same tokens give the same bits on every path.
	// It excludes an Adapter, and devices without such pages are refused.
	KV tensor.DType
	// StateBytes limits the memory of all sequences' states; 0 means no limit.
	StateBytes int64
	// Cache, if set, keeps checkpoints of prompts and answers, for all generations
	// and chats of the model, and resumes a prompt from the deepest that it shares;
	// with a Dir also across restarts. It changes time and memory, never a bit.
	Cache *cache.Config
	// Adapter, if set, gives the adapter by which the loaded model's full attention is
	// replaced: a window and an archive of fixed size (package qcc). It changes what the
	// model says. With ExactPrefill every prompt is run exactly from its beginning, which
	// goes without a Cache.
	Adapter func(d *nn.Decoder) (*qcc.Adapter, error)
	// Sieve, if set, bounds the caches of the loaded model's full attention to a fixed
	// number of rows. It changes what the model says, and excludes an Adapter.
	Sieve *qcc.Sieve
	// Progress, if set, is told how many bytes of the weights are loaded.
	Progress func(done, total int64)
}

// ErrClosed is the cause when a closed model is used.
var ErrClosed = errors.New("model is closed")

// Model is an opened model. It may be used by many goroutines at once, each
// generating its own text.
type Model struct {
	Tokenizer *token.Tokenizer
	Decoder   *nn.Decoder
	Shape     qwen3.Config

	cfg      Config
	dev      backend.Device
	ownsDev  bool
	pool     *state.Pool
	template *jinja.Template
	cache    *cache.Cache // nil: none
	patched  *qcc.Patched // nil: the model as it is

	mu     sync.Mutex
	users  int
	closed bool
	idle   chan struct{} // closed when the last user is gone after Close
}

// Open loads a model: a GGUF file, or a Hugging Face directory with config.json,
// tokenizer.json and safetensors files.
func Open(path string, cfg Config) (*Model, error) {
	return OpenContext(context.Background(), path, cfg)
}

// OpenContext is Open that gives up when the context ends.
func OpenContext(ctx context.Context, path string, cfg Config) (*Model, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("samebit: open model: %w: name a .gguf file or a directory with config.json and safetensors files", err)
	}
	set, err := checkpoint.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("samebit: open %s: %w: a model directory has config.json, tokenizer.json and safetensors files", path, err)
	}
	if err != nil {
		return nil, err
	}
	defer set.Close()
	return open(ctx, path, cfg, set, func() (*token.Tokenizer, error) { return openTokenizer(path, set) })
}

// OpenFS is OpenContext of a model directory that is the root of a file system, such
// as an embedded one; name stands for it in errors.
func OpenFS(ctx context.Context, name string, files fs.FS, cfg Config) (*Model, error) {
	set, err := checkpoint.OpenFS(name, files)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	return open(ctx, name, cfg, set, func() (*token.Tokenizer, error) { return token.OpenFS(name, files) })
}

// open loads the model of an opened checkpoint.
func open(ctx context.Context, path string, cfg Config, set *checkpoint.Set, tokenizer func() (*token.Tokenizer, error)) (*Model, error) {
	if cfg.Context < 0 || cfg.ChunkRows < 0 || cfg.StateBytes < 0 || cfg.Threads < 0 {
		return nil, fmt.Errorf("samebit: open %s: negative Context, ChunkRows, StateBytes or Threads", path)
	}
	shape, err := qwen3.FromSet(set)
	if err != nil {
		return nil, err
	}
	if cfg.Context > 0 {
		if cfg.Context > shape.Context {
			return nil, fmt.Errorf("samebit: open %s: a context of %d is more than the %d the model was made for: ask for at most that, or 0", path, cfg.Context, shape.Context)
		}
		shape.Context = cfg.Context
	}
	m := &Model{Shape: shape, cfg: cfg, dev: cfg.Device, idle: make(chan struct{})}
	if m.Tokenizer, err = tokenizer(); err != nil {
		return nil, err
	}
	if n := m.Tokenizer.Size(); n > shape.Vocab {
		return nil, fmt.Errorf("samebit: open %s: the tokenizer has %d ids, the embedding only %d rows: the files belong to different models", path, n, shape.Vocab)
	}
	m.Tokenizer.AddStops(shape.EOS...) // what the model's config alone names
	m.template = jinja.ChatML()
	if t := m.Tokenizer.ChatTemplate; t != "" {
		if m.template, err = jinja.Parse("chat template", t); err != nil {
			return nil, fmt.Errorf("samebit: open %s: %w", path, err)
		}
	}
	if m.dev == nil {
		if m.dev, err = cpu.New(cpu.Config{Threads: cfg.Threads}); err != nil {
			return nil, err
		}
		m.ownsDev = true
	}
	if cfg.KV == tensor.Invalid {
		m.cfg.KV = tensor.F32
	}
	if err = backend.CheckPageType(m.dev, m.cfg.KV); err != nil {
		err = fmt.Errorf("samebit: open %s: %w", path, err)
	}
	if err == nil {
		m.pool, err = state.NewPool(m.dev, cfg.StateBytes)
	}
	if err == nil {
		m.Decoder, err = qwen3.Load(ctx, m.dev, shape, set, qwen3.LoadOptions{Progress: cfg.Progress, KV: m.cfg.KV})
	}
	if err == nil {
		err = m.bound()
	}
	if err == nil && cfg.Cache != nil {
		m.cache, err = cache.New(m.pool, *cfg.Cache)
	}
	if err != nil {
		m.free()
		return nil, err
	}
	return m, nil
}

// bound replaces attention, or its caches, if the configuration says so.
func (m *Model) bound() error {
	if m.cfg.Sieve != nil {
		if m.cfg.Adapter != nil {
			return fmt.Errorf("samebit: a model has one bounded memory: open it with an Adapter or a Sieve")
		}
		s, err := qcc.Sieved(m.Decoder, *m.cfg.Sieve)
		if err != nil {
			return err
		}
		s.Closers = append(s.Closers, m.Decoder.Close)
		m.Decoder = s
		return nil
	}
	if m.cfg.Adapter == nil {
		return nil
	}
	a, err := m.cfg.Adapter(m.Decoder)
	if err != nil {
		return err
	}
	if a != nil && a.ExactPrefill && m.cfg.Cache != nil {
		return fmt.Errorf("samebit: prompts that are run exactly leave no checkpoint to resume from: open the model without a cache")
	}
	original := m.Decoder
	if m.patched, err = qcc.Patch(m.dev, original, a); err != nil {
		return err
	}
	m.Decoder = m.patched.Decoder
	m.Decoder.Closers = append(m.Decoder.Closers, m.patched.Close, original.Close)
	return nil
}

// openTokenizer reads the vocabulary of either format.
func openTokenizer(path string, set *checkpoint.Set) (*token.Tokenizer, error) {
	if set.Format() != checkpoint.GGUF {
		if i, err := os.Stat(path); err == nil && !i.IsDir() {
			return nil, fmt.Errorf("samebit: open %s: a single safetensors file has no tokenizer: open the model's directory", path)
		}
		return token.Open(path)
	}
	m := set.Meta
	v := token.Vocab{AddBOS: false}
	var err error
	get := func(f func() error) {
		if err == nil {
			err = f()
		}
	}
	get(func() (e error) { v.Model, e = m.String("tokenizer.ggml.model"); return })
	get(func() (e error) { v.Tokens, e = m.Strings("tokenizer.ggml.tokens"); return })
	get(func() (e error) { v.Merges, e = m.Strings("tokenizer.ggml.merges"); return })
	if err != nil {
		return nil, fmt.Errorf("samebit: open %s: the file has no complete tokenizer: %w", path, err)
	}
	if m.Has("tokenizer.ggml.pre") {
		get(func() (e error) { v.Pre, e = m.String("tokenizer.ggml.pre"); return })
	}
	if m.Has("tokenizer.ggml.token_type") {
		get(func() error {
			t, e := m.Ints("tokenizer.ggml.token_type")
			for _, x := range t {
				v.Types = append(v.Types, int32(x))
			}
			return e
		})
	}
	for key, dst := range map[string]*int32{"bos": &v.BOS, "eos": &v.EOS, "eot": &v.EOT, "padding": &v.Pad, "unknown": &v.Unknown} {
		*dst = token.NoToken
		if k := "tokenizer.ggml." + key + "_token_id"; m.Has(k) {
			get(func() error {
				n, e := m.Int(k)
				if e == nil && (n < 0 || n > math.MaxInt32) {
					e = fmt.Errorf("key %q is %d", k, n)
				}
				*dst = int32(n)
				return e
			})
		}
	}
	v.AddBOS = v.Pre == "llama-bpe"
	if k := "tokenizer.ggml.add_bos_token"; m.Has(k) {
		get(func() (e error) { v.AddBOS, e = m.Bool(k); return })
	}
	if k := "tokenizer.ggml.add_space_prefix"; m.Has(k) {
		get(func() (e error) { v.AddSpacePrefix, e = m.Bool(k); return })
	}
	if k := "tokenizer.chat_template"; m.Has(k) {
		get(func() (e error) { v.ChatTemplate, e = m.String(k); return })
	}
	if err != nil {
		return nil, fmt.Errorf("samebit: open %s: %w", path, err)
	}
	return token.FromVocab(v)
}

// Device is where the model runs.
func (m *Model) Device() backend.Device { return m.dev }

// Pool holds the memory of the model's sequences.
func (m *Model) Pool() *state.Pool { return m.pool }

// NewRunner returns an empty sequence for programs that work with rows and logits
// instead of text. Close it, and its stream, before the model.
func (m *Model) NewRunner() (*nn.Runner, backend.Stream, error) {
	done, err := m.use()
	if err != nil {
		return nil, nil, err
	}
	defer done()
	s, err := m.dev.NewStream()
	if err != nil {
		return nil, nil, err
	}
	r, err := m.Decoder.NewRunner(s, m.pool, nn.RunnerConfig{ChunkRows: m.cfg.ChunkRows})
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return r, s, nil
}

// Cache is the cache of Config.Cache, nil without one.
func (m *Model) Cache() *cache.Cache { return m.cache }

// use keeps the model open until the returned func is called.
func (m *Model) use() (func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("samebit: %w", ErrClosed)
	}
	m.users++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.users--; m.users == 0 && m.closed {
			close(m.idle)
		}
	}, nil
}

// Close waits for running generations and for open chats, and frees the model:
// called from the loop over a generation it would wait for itself. A second Close
// does nothing. Runners of the model must have been closed.
func (m *Model) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	busy := m.users > 0
	m.mu.Unlock()
	if busy {
		<-m.idle
	}
	return m.free()
}

func (m *Model) free() error {
	var errs []error
	if m.cache != nil {
		errs = append(errs, m.cache.Close(context.Background()))
	}
	if m.Decoder != nil {
		m.Decoder.Close()
	}
	if m.pool != nil {
		errs = append(errs, m.pool.Close())
	}
	if m.ownsDev {
		errs = append(errs, m.dev.Close())
	}
	return errors.Join(errs...)
}

// OpenTokenizer loads only the tokenizer of a model: of a GGUF file, or of a
// directory with tokenizer.json.
func OpenTokenizer(path string) (*token.Tokenizer, error) {
	i, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("samebit: open tokenizer: %w", err)
	}
	if i.IsDir() {
		return token.Open(path)
	}
	set, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	return openTokenizer(path, set)
}
