package rclc

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
	"samebit/token/jinja"
)

// Tokenizer is what this package needs of one; *token.Tokenizer is one. It may be
// used by many goroutines at once.
type Tokenizer interface {
	// Encode appends the ids of text without adding special tokens; control tokens
	// that the text spells become their ids, as in a rendered chat.
	Encode(dst []int32, text string) []int32
	// EncodePlain is Encode of text from outside: control tokens are characters.
	EncodePlain(dst []int32, text string) []int32
	// Text is the text of ids, special tokens included.
	Text(ids []int32) string
	// Size is the number of ids, and TokenBytes what one of them stands for.
	Size() int
	TokenBytes(id int32) []byte
}

// ChatFunc renders messages with the model's chat template, thinking disabled, and
// encodes them; reply adds the beginning of the assistant's turn. cut, unless it is
// empty, is a text that one message contains, once: before and after are the ids on
// its two sides. Otherwise all ids are in before. See [NewChat].
type ChatFunc func(messages []jinja.Message, reply bool, cut string) (before, after []int32, err error)

// Digest is a SHA-256.
type Digest = [sha256.Size]byte

// Kinds of layers in [Info.LayerTypes].
const (
	FullLayer    = "full_attention"
	SlidingLayer = "sliding_attention"
	LinearLayer  = "linear_attention"
	OtherLayer   = "other"
)

// Info describes a model. Equal models have equal geometry, names where both know
// them, and vocabularies where both have one.
type Info struct {
	ModelType  string // such as "qwen3"
	Checkpoint string // name; "" for unknown
	Revision   string // "" for unknown

	Hidden, Vocab, Layers   int
	LayerTypes              []string // by layer
	Heads, KVHeads, HeadDim int      // of the attention layers; 0 without one
	KV                      string   // storage type of keys and values, such as BF16; "" for F32
	Context                 int      // largest number of rows; 0 for no limit
	ID                      state.ID // of weights, config without the limits of texts, adapters and numerics
	Tokens                  Digest   // of the vocabulary; zero without a tokenizer
}

// ModelConfig is what a decoder does not know about itself.
type ModelConfig struct {
	ModelType  string // such as "qwen3"
	Checkpoint string // name, "" for unknown
	Revision   string // "" for unknown

	Tokenizer Tokenizer // nil: ids only
	Chat      ChatFunc  // nil: no histories
	ChunkRows int       // rows per pass; 0 means 512
}

// Model is a decoder with what senders and receivers need around it. It is safe for
// concurrent use; the decoder and the pool must outlive it, and all senders made
// with it must be released before the pool is closed.
type Model struct {
	Info      Info
	Tokenizer Tokenizer // nil: ids only
	Chat      ChatFunc  // nil: no histories

	dec    *nn.Decoder
	pool   *state.Pool
	chunk  int
	full   []bool        // by ordinal of the attention layer: scored
	serial chan struct{} // held during calls of selectors from outside
	norm   meanNorm      // see latent.go
}

// NewModel describes a loaded decoder whose states live in pool.
func NewModel(dec *nn.Decoder, pool *state.Pool, cfg ModelConfig) (*Model, error) {
	if dec == nil || pool == nil {
		return nil, fail(ErrOption, "model", "a model needs a decoder and a pool")
	}
	if dec.Embed == nil || !dec.Norm.Valid() {
		return nil, fail(ErrOption, "model", "the decoder is half of one: give the whole, with embedding and last norm")
	}
	if cfg.ChunkRows < 0 {
		return nil, fail(ErrOption, "model", "chunks of %d rows: want a positive number, or 0 for 512", cfg.ChunkRows)
	}
	m := &Model{
		Tokenizer: cfg.Tokenizer, Chat: cfg.Chat, dec: dec, pool: pool, chunk: cfg.ChunkRows, serial: make(chan struct{}, 1),
		Info: Info{
			ModelType: cfg.ModelType, Checkpoint: cfg.Checkpoint, Revision: cfg.Revision,
			Hidden: dec.Hidden, Vocab: dec.Vocab, Layers: len(dec.Blocks), Context: dec.Context, ID: dec.ID,
		},
	}
	if dt := dec.Shapes.KV.Stored(); dt != tensor.F32 {
		m.Info.KV = dt.String()
	}
	for i := range dec.Blocks {
		kind := OtherLayer
		switch l := dec.Blocks[i].Mix.(type) {
		case *nn.Attention:
			if kind = FullLayer; l.Window > 0 {
				kind = SlidingLayer
			}
			for len(m.full) <= l.Layer {
				m.full = append(m.full, false)
			}
			m.full[l.Layer] = kind == FullLayer
			m.Info.Heads, m.Info.KVHeads, m.Info.HeadDim = l.Heads, l.KV, l.Dim
		case *nn.GatedDelta:
			kind = LinearLayer
		}
		m.Info.LayerTypes = append(m.Info.LayerTypes, kind)
	}
	if t := cfg.Tokenizer; t != nil {
		if n := t.Size(); n > dec.Vocab {
			return nil, fail(ErrOption, "model", "the tokenizer has %d ids, the embedding only %d rows: they belong to different models", n, dec.Vocab)
		}
		m.Info.Tokens = vocabulary(t)
	}
	return m, nil
}

// vocabulary digests what every id stands for.
func vocabulary(t Tokenizer) (d Digest) {
	h := sha256.New()
	var n [4]byte
	for id := range int32(t.Size()) {
		b := t.TokenBytes(id)
		binary.LittleEndian.PutUint32(n[:], uint32(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	h.Sum(d[:0])
	return d
}

// Decoder is what runs the model's rows, and Pool where its states live.
func (m *Model) Decoder() *nn.Decoder { return m.dec }
func (m *Model) Pool() *state.Pool    { return m.pool }

// NewRunner returns an empty sequence of the model on a stream of its own. Close
// the runner, then the stream.
func (m *Model) NewRunner() (*nn.Runner, backend.Stream, error) {
	return m.runner(context.Background(), m.chunk)
}

// solo is the key of a context whose passes keep to one processor if they can, since
// as many others run.
type solo struct{}

// runner is NewRunner with so many rows per pass.
func (m *Model) runner(ctx context.Context, chunk int) (*nn.Runner, backend.Stream, error) {
	open := m.pool.Device().NewStream
	if d, ok := m.pool.Device().(backend.Solo); ok && ctx.Value(solo{}) != nil {
		open = d.NewSoloStream
	}
	s, err := open()
	if err != nil {
		return nil, nil, err
	}
	r, err := m.dec.NewRunner(s, m.pool, nn.RunnerConfig{ChunkRows: chunk})
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return r, s, nil
}

// scratch calls f with an empty sequence that lasts as long as the call.
func (m *Model) scratch(f func(r *nn.Runner) error) error {
	r, s, err := m.NewRunner()
	if err != nil {
		return err
	}
	defer s.Close()
	defer r.Close()
	return f(r)
}

// Row returns the input row [Hidden] of a token: the embedding's, widened exactly.
func (m *Model) Row(id int32) ([]float32, error) { return m.EmbedRows([]int32{id}) }

// EmbedRows returns the input rows [len(ids), Hidden] of tokens.
func (m *Model) EmbedRows(ids []int32) ([]float32, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	for i, id := range ids {
		if id < 0 || int(id) >= m.Info.Vocab {
			return nil, fail(ErrState, "vocab_range", "id %d of row %d is outside the vocabulary of %d", id, i, m.Info.Vocab)
		}
	}
	dev, n := m.pool.Device(), len(ids)
	s, err := dev.NewStream()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	mem, err := dev.Alloc(4 * n * (1 + m.Info.Hidden))
	if err != nil {
		return nil, fmt.Errorf("rclc: rows of %d tokens: %w", n, err)
	}
	defer dev.Free(mem)
	at, err := tensor.New(mem, 4*n*m.Info.Hidden, tensor.I32, n)
	if err != nil {
		return nil, err
	}
	x, err := tensor.New(mem, 0, tensor.F32, n, m.Info.Hidden)
	if err != nil {
		return nil, err
	}
	out := make([]float32, n*m.Info.Hidden)
	s.Write(at, tensor.AsBytes(ids))
	s.Embed(x, m.dec.Embed, at)
	s.Read(tensor.AsBytes(out), x)
	if err := s.Sync(); err != nil {
		return nil, fmt.Errorf("rclc: rows of %d tokens: %w", n, err)
	}
	return out, nil
}
