package qwen3

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"samebit/backend"
	"samebit/checkpoint"
	"samebit/internal/canon"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// LoadOptions steer Load. The zero value is fine.
type LoadOptions struct {
	// Progress, if set, is told how many bytes of weights are done.
	Progress func(done, total int64)

	// KV is how keys and values are stored, see [nn.Decoder.WithKV]; zero means F32.
	KV tensor.DType
}

// Load builds the decoder on a device. The set may be closed afterwards unless
// the device reads weights where they lie (backend.Weight.Aliases). Missing, unexpected
// and mis-shaped tensors are reported by name.
func Load(ctx context.Context, dev backend.Device, cfg Config, set *checkpoint.Set, opt LoadOptions) (*nn.Decoder, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := &loader{ctx: ctx, dev: dev, cfg: &cfg, set: set, opt: opt, gguf: set.Format() == checkpoint.GGUF, used: map[string]bool{}, counted: map[string]bool{}}
	for _, i := range set.Infos() {
		l.total += i.Bytes
		l.wrapped = l.wrapped || strings.HasPrefix(i.Name, wrapped)
	}
	l.add, l.packAdded = packers(dev)
	d, err := l.load()
	if err != nil {
		l.close()
		return nil, err
	}
	d.Closers = append(d.Closers, l.close)
	return d, nil
}

type loader struct {
	ctx           context.Context
	dev           backend.Device
	cfg           *Config
	set           *checkpoint.Set
	opt           LoadOptions
	gguf, wrapped bool
	total, done   int64

	used    map[string]bool
	counted map[string]bool // in done
	errs    []error
	digest  []byte // names, shapes and checksums of what was read
	weights []backend.Weight
	bufs    []tensor.Buffer
	slab    tensor.Buffer
	at      int
	stream  backend.Stream

	add       func(t tensor.Tensor, use backend.Use, read func(i, j int)) (backend.Weight, error)
	packAdded func() error
	last      string   // name of what was added
	packed    []func() // what to do when packAdded is done
}

func (l *loader) close() {
	for _, w := range l.weights {
		l.dev.Unpack(w)
	}
	for _, b := range l.bufs {
		l.dev.Free(b)
	}
	l.weights, l.bufs = nil, nil
}

func (l *loader) load() (*nn.Decoder, error) {
	c := l.cfg
	s, err := l.dev.NewStream()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	l.stream = s

	var divisors []float32
	if l.gguf {
		if _, ok := l.set.Info("rope_freqs.weight"); ok {
			divisors = l.floats("rope_freqs.weight", c.Rotary/2)
		}
	}
	rope, err := backend.NewRoPE(c.Theta, c.Rotary, c.Scaling, divisors)
	if err != nil {
		return nil, err
	}

	d := &nn.Decoder{Config: nn.Config{Hidden: c.Hidden, Vocab: c.Vocab, Context: c.Context, Eps: float32(c.Eps)}}
	if c.Tied {
		d.Embed = l.matrix(l.name(embedTokens, 0), c.Vocab, c.Hidden, backend.UseEmbed|backend.UseLinear)
		d.Head = d.Embed
		l.used[l.name(lmHead, 0)] = true
	} else {
		d.Embed = l.matrix(l.name(embedTokens, 0), c.Vocab, c.Hidden, backend.UseEmbed)
		d.Head = l.matrix(l.name(lmHead, 0), c.Vocab, c.Hidden, backend.UseLinear)
	}
	l.flush()
	d.Norm = l.norm(finalNorm, 0, c.Hidden)
	var attn, delta int
	for i := range c.Layers {
		b := nn.Block{Norm1: l.norm(norm1, i, c.Hidden), Norm2: l.norm(norm2, i, c.Hidden)}
		if c.LayerType[i] == LinearAttention {
			b.Mix = l.delta(i, delta)
			delta++
		} else {
			b.Mix = l.attention(i, attn, rope)
			attn++
		}
		if c.moe(i) {
			b.FFN = l.moe(i)
		} else {
			b.FFN = l.ffn(i)
		}
		d.Blocks = append(d.Blocks, b)
		l.flush()
		if err := l.failed(); err != nil {
			return nil, err
		}
	}
	l.unexpected()
	if err := l.failed(); err != nil {
		return nil, err
	}
	if l.opt.Progress != nil && l.done < l.total { // what was left alone, or is read where it lies
		l.opt.Progress(l.total, l.total)
	}
	decides := *c
	decides.Context, decides.EOS = 0, nil // limits and ends of texts change no bit
	if decides.Scaling.Type == "default" {
		decides.Scaling = backend.Scaling{}
	}
	conf, err := json.Marshal(decides)
	if err != nil {
		return nil, fmt.Errorf("qwen3: %w", err)
	}
	id := append(append(l.digest, conf...), canon.Version)
	d.ID = sha256.Sum256(append(id, l.dev.Info().Inexact...)) // states of exact and other devices must not meet
	d.Shapes = c.shapes(attn, delta)
	d.NewState = d.Shapes.NewState(d.ID)
	return d.WithKV(l.opt.KV)
}

// shapes are the states of a model with so many attention and delta layers.
func (c *Config) shapes(attn, delta int) nn.Shapes {
	return nn.Shapes{
		KV: state.KVShape{Layers: attn, Heads: c.KVHeads, Dim: c.HeadDim},
		Delta: state.DeltaShape{Layers: delta, Heads: c.ValueHeads, DK: c.KeyHeadDim, DV: c.ValueDim,
			Taps: c.ConvKernel, Channels: c.channels()},
	}
}

// failed joins what went wrong so far.
func (l *loader) failed() error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	if len(l.errs) == 0 {
		return nil
	}
	return fmt.Errorf("qwen3: %s does not fit its config: %w", l.set.Path(), errors.Join(l.errs...))
}

func (l *loader) fail(format string, args ...any) {
	if len(l.errs) < 10 {
		l.errs = append(l.errs, fmt.Errorf(format, args...))
	}
}

// unexpected reports tensors that nothing used.
func (l *loader) unexpected() {
next:
	for _, n := range l.set.Names() {
		if l.used[n] {
			continue
		}
		for _, p := range ignorable {
			if strings.HasPrefix(n, p) {
				continue next
			}
		}
		if strings.HasSuffix(n, ".rotary_emb.inv_freq") || l.skippedBlock(n) {
			continue
		}
		l.fail("tensor %q is not part of a %s model", n, l.cfg.ModelType)
	}
}

// skippedBlock reports a block of a GGUF file beyond the layers: multi-token
// prediction, which decoding does not use.
func (l *loader) skippedBlock(n string) bool {
	var b int
	if _, err := fmt.Sscanf(n, "blk.%d.", &b); !l.gguf || err != nil {
		return false
	}
	return b >= l.cfg.Layers
}

var dtypes = func() map[string]tensor.DType {
	m := map[string]tensor.DType{}
	for d := tensor.F32; d <= tensor.Q6_K; d++ {
		m[d.String()] = d
	}
	return m
}()

// entry finds a tensor, checks its shape and notes its digest, to which the caller
// adds the checksums before the next one.
func (l *loader) entry(name string, dim ...int) (checkpoint.Entry, tensor.DType, bool) {
	l.used[name] = true
	if len(l.errs) > 0 || l.ctx.Err() != nil {
		return checkpoint.Entry{}, 0, false // one report is enough
	}
	e, err := l.set.Tensor(name)
	if errors.Is(err, checkpoint.ErrNoTensor) {
		l.fail("tensor %q is missing", name)
		return e, 0, false
	}
	if err != nil {
		l.fail("%w", err)
		return e, 0, false
	}
	ok := len(e.Shape) == len(dim)
	for i := 0; ok && i < len(dim); i++ {
		ok = e.Shape[i] == dim[i]
	}
	if !ok {
		l.fail("tensor %q has shape %v, want %v", name, e.Shape, dim)
		return e, 0, false
	}
	dt, ok := dtypes[e.Type.String()]
	if !ok {
		l.fail("tensor %q has type %v, which cannot hold weights", name, e.Type)
		return e, 0, false
	}
	l.digest = append(l.digest, name...)
	l.digest = append(l.digest, byte(dt))
	for _, d := range dim {
		l.digest = binary.LittleEndian.AppendUint64(l.digest, uint64(d))
	}
	return e, dt, true
}

// sum notes the checksums of an entry.
func (l *loader) sum(e checkpoint.Entry) {
	c := newChecksums(e.Data)
	c.all()
	l.digest = c.appendTo(l.digest)
}

func (l *loader) release(e checkpoint.Entry) {
	l.set.Release(e)
	if l.counted[e.Name] { // one tensor may hold several weights
		return
	}
	l.counted[e.Name] = true
	l.done += int64(len(e.Data))
	if l.opt.Progress != nil {
		l.opt.Progress(l.done, l.total)
	}
}

// matrix adds an [out, in] weight.
func (l *loader) matrix(name string, out, in int, use backend.Use) backend.Weight {
	return l.ordered(name, out, in, use, nil)
}

// ordered is matrix after the rows were put in the order order()[i] = file row,
// which is asked for only when the file has a tensor of that size.
func (l *loader) ordered(name string, out, in int, use backend.Use, order func() []int) backend.Weight {
	e, dt, ok := l.entry(name, out, in)
	if !ok {
		return nil
	}
	data := e.Data
	var read func(i, j int)
	if order == nil {
		sums, at := newChecksums(data), len(l.digest)
		l.digest = sums.appendTo(l.digest) // zeros yet
		l.packed = append(l.packed, func() { sums.appendTo(l.digest[:at]) })
		read = sums.part
	} else {
		l.sum(e)
		rows, n := order(), len(data)/out
		data = make([]byte, 0, len(rows)*n)
		for _, r := range rows {
			data = append(data, e.Data[r*n:(r+1)*n]...)
		}
		out = len(rows)
	}
	w := l.pack(name, data, dt, out, in, use, read)
	if w == nil {
		return nil
	}
	l.packed = append(l.packed, func() {
		if !w.Aliases() {
			l.release(e)
		}
	})
	return w
}

// pack adds a weight, which flush packs.
func (l *loader) pack(name string, data []byte, dt tensor.DType, out, in int, use backend.Use, read func(i, j int)) backend.Weight {
	t, err := tensor.New(tensor.Bytes(data), 0, dt, out, in)
	if err == nil {
		var w backend.Weight
		if w, err = l.add(t, use, read); err == nil {
			l.weights, l.last = append(l.weights, w), name
			return w
		}
	}
	l.fail("tensor %q: %w", name, err)
	return nil
}

// flush packs the weights that were added.
func (l *loader) flush() {
	if len(l.errs) > 0 || l.ctx.Err() != nil {
		return
	}
	if err := l.packAdded(); err != nil {
		l.fail("tensors up to %q: %w", l.last, err)
		return
	}
	for _, f := range l.packed {
		f()
	}
	l.packed = nil
}

// floats reads a vector or a small tensor as float32.
func (l *loader) floats(name string, dim ...int) []float32 {
	e, _, ok := l.entry(name, dim...)
	if !ok {
		return nil
	}
	l.sum(e)
	v, err := e.Float32s()
	if err != nil {
		l.fail("%w", err)
	}
	l.release(e)
	return v
}

// upload puts values into device memory; many small tensors share one buffer.
func (l *loader) upload(v []float32, dim ...int) tensor.Tensor {
	if v == nil {
		return tensor.Tensor{}
	}
	const slabBytes = 1 << 20
	n := (4*len(v) + 255) &^ 255
	if l.slab == nil || l.slab.Len()-l.at < n {
		b, err := l.dev.Alloc(max(n, slabBytes))
		if err != nil {
			l.fail("%w", err)
			return tensor.Tensor{}
		}
		l.bufs = append(l.bufs, b)
		l.slab, l.at = b, 0
	}
	t, err := tensor.New(l.slab, l.at, tensor.F32, dim...)
	if err != nil {
		l.fail("%w", err)
		return t
	}
	l.at += n
	l.stream.Write(t, tensor.AsBytes(v))
	if err := l.stream.Sync(); err != nil {
		l.fail("%w", err)
	}
	return t
}

func (l *loader) vector(p part, layer, n int) tensor.Tensor {
	return l.upload(l.floats(l.name(p, layer), n), n)
}

// norm is a norm's multiplier. Zero-centred weights become 1 + w, which a GGUF
// file already holds.
func (l *loader) norm(p part, layer, n int) tensor.Tensor {
	v := l.floats(l.name(p, layer), n)
	if l.cfg.ZeroCentred && !l.gguf {
		for i := range v {
			v[i] = 1 + v[i]
		}
	}
	return l.upload(v, n)
}

// stacked cuts [experts, rows, in] into one weight per expert: its rows
// [first, first+out).
func (l *loader) stacked(list []backend.Weight, name string, rows, first, out, in int) []backend.Weight {
	e, dt, ok := l.entry(name, l.cfg.Experts, rows, in)
	if !ok {
		return nil
	}
	l.sum(e)
	row := len(e.Data) / (l.cfg.Experts * rows)
	for x := range l.cfg.Experts {
		at := (x*rows + first) * row
		w := l.pack(name, e.Data[at:at+out*row], dt, out, in, backend.UseLinear, nil)
		if w == nil {
			return nil
		}
		list = append(list, w)
	}
	l.packed = append(l.packed, func() { l.release(e) })
	return list
}

// packFloats packs values that were read already.
func (l *loader) packFloats(name string, v []float32, out, in int) backend.Weight {
	return l.pack(name, tensor.AsBytes(v), tensor.F32, out, in, backend.UseLinear, nil)
}
