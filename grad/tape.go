// Package grad differentiates passes and trains: a [Tape] is a stream around a
// stream that remembers its ops, [Params] are values that may change, [AdamW]
// changes them.
//
// A model runs on a Tape as it does on any stream, with the bits of inference.
// Gradients have one meaning as well, docs/numerics.md 10: the same batch gives
// the same bits whatever the micro-batches, threads and device.
package grad

import (
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

// Tape is a backend.Stream that runs each op on another stream and remembers it,
// until Backward takes the pass back. It belongs to one goroutine.
//
// A pass keeps what it computes: every op writes to memory of its own
// (nn.Ctx.Keep), and nothing of it is written again, freed or replanned before
// Backward. Sequences are whole: every segment begins at slot 0; keys and values
// reach their gradients through PutKV and Attention, or PutWindow and ArchiveScan, of the same pass. Recurrent
// states and the history of a convolution that a segment brings along are
// constants, and must last as long as the pass. What has no gradient (LinearRows,
// AttentionWeights, SumRows, PutPage, mixtures of experts, parts of
// sequences) makes the tape fail; ArgMax, AttnWeights, AttnScores, Moments, GetPage
// and Read only look.
//
// The gradient of a tensor lies at the same place of a shadow of its buffer.
// Contributions of several uses are added to +0, the last use first.
type Tape struct {
	inner  backend.Stream
	g      backend.Grad
	dev    backend.Device
	params *Params

	ops     []func()
	plan    backend.Plan
	kv      map[int][2]tensor.Tensor // by layer: what PutKV stored in this pass
	windows map[int]windowRows       // by layer: what PutWindow did
	embeds  []embed
	shadows map[any]*shadow // by buffer
	done    bool            // the gradients of the last pass are still there
	err     error
}

// embed is an Embed of the pass, whose rows may be overwritten by continuous ones.
type embed struct{ dst, ids tensor.Tensor }

var _ backend.Stream = (*Tape)(nil)

// NewTape returns a tape around s, whose device is dev. It watches the parameters
// in p, which may be nil. It fails with backend.ErrUnsupported if the device cannot
// train. Closing the tape leaves s open.
func NewTape(s backend.Stream, dev backend.Device, p *Params) (*Tape, error) {
	g, ok := s.(backend.Grad)
	if !ok {
		return nil, fmt.Errorf("grad: device %s has no gradients: %w", dev.Name(), backend.ErrUnsupported)
	}
	if p == nil {
		p = &Params{}
	}
	return &Tape{inner: s, g: g, dev: dev, params: p, kv: map[int][2]tensor.Tensor{}, windows: map[int]windowRows{}, shadows: map[any]*shadow{}}, nil
}

// Device is where the tape's memory lies.
func (t *Tape) Device() backend.Device { return t.dev }

// Grad is the gradient of an activation of the last pass, valid until the next op;
// +0 where the pass did not use it.
func (t *Tape) Grad(x tensor.Tensor) tensor.Tensor { return t.grad(x) }

// grad is the gradient of x, +0 at first.
func (t *Tape) grad(x tensor.Tensor) tensor.Tensor {
	s, off := t.shadow(x)
	if s == nil || t.fail(s.clear(t, off, off+extent(x))) {
		return tensor.Tensor{}
	}
	return x.On(s.buf)
}

// into is grad for an op that comes next and adds to it, one that backend.FirstGrad
// names: what the op writes first need not be cleared. The other gradients that it
// adds to belong to others.
func (t *Tape) into(x tensor.Tensor, others ...tensor.Tensor) tensor.Tensor {
	f, ok := t.inner.(backend.FirstGrad)
	s, off := t.shadow(x)
	if !ok || s == nil || !x.Contiguous() {
		return t.grad(x)
	}
	for _, o := range others {
		if at := placeOf(o); at.buf == placeOf(x).buf && at.off < off+extent(x) && off < at.off+extent(o) {
			return t.grad(x)
		}
	}
	d := x.On(s.buf)
	if !s.first(off, off+extent(x)) {
		return t.grad(x)
	}
	f.First(d)
	return d
}

// fail records err and reports whether the tape has failed.
func (t *Tape) fail(err error) bool {
	if t.err == nil {
		t.err = err
	}
	return t.err != nil
}

// refuse fails for an op without a gradient.
func (t *Tape) refuse(op, remedy string) {
	t.fail(fmt.Errorf("grad: %s has no gradient: %s: %w", op, remedy, backend.ErrUnsupported))
}

// writes notes that an op writes dst. It reports false if the tape has failed, and
// fails it if the pass needs what is there.
func (t *Tape) writes(op string, dst tensor.Tensor) bool {
	if t.Err() != nil {
		return false
	}
	t.begin()
	s, off := t.shadow(dst)
	if s == nil {
		return false
	}
	if !s.write(off, off+extent(dst), !dst.Contiguous()) {
		t.fail(fmt.Errorf("grad: %s writes %v, which the pass wrote before: keep every result (nn.Ctx.Keep)", op, dst))
		return false
	}
	return true
}

// begin starts a pass if the last one is over.
func (t *Tape) begin() {
	if t.done {
		t.done = false
		for _, s := range t.shadows {
			s.spans = s.spans[:0]
		}
	}
}

// record remembers how to take an op back.
func (t *Tape) record(f func()) {
	if t.Err() == nil {
		t.ops = append(t.ops, f)
	}
}

// forget drops the recorded pass.
func (t *Tape) forget() {
	clear(t.ops)
	t.ops, t.embeds = t.ops[:0], t.embeds[:0]
	clear(t.kv)
	clear(t.windows)
}

// Seed adds dy to the gradient of y: where Backward begins besides losses.
func (t *Tape) Seed(y, dy tensor.Tensor) {
	if t.Err() != nil {
		return
	}
	t.begin()
	if d := t.grad(y); t.err == nil {
		t.g.Accumulate(d, dy)
	}
}

// Backward takes the pass back: it adds to the gradients of the watched
// parameters, and leaves those of activations until the next op. The tape is then
// ready for another pass.
func (t *Tape) Backward() error {
	for i := len(t.ops) - 1; i >= 0 && t.Err() == nil; i-- {
		t.ops[i]()
	}
	t.forget()
	t.done = true
	// Shadows of buffers that the pass did not use belong to memory that is gone.
	for b, s := range t.shadows {
		if len(s.spans) == 0 {
			t.dev.Free(s.buf)
			delete(t.shadows, b)
		}
	}
	return t.Sync()
}

// Plan begins a pass on the inner stream. It fails while another one is recorded.
func (t *Tape) Plan(segs []backend.Seg) backend.Plan {
	if len(t.ops) > 0 {
		t.fail(fmt.Errorf("grad: a pass of %d ops is still recorded: call Backward or Reset before the next Plan", len(t.ops)))
	}
	for i := range segs {
		if segs[i].Slot != 0 {
			t.fail(fmt.Errorf("grad: segment %d begins at slot %d: only whole sequences have gradients, from slot 0 on in one pass", i, segs[i].Slot))
		}
	}
	t.plan = t.inner.Plan(segs)
	clear(t.kv)
	clear(t.windows)
	return t.plan
}

func (t *Tape) Read(dst []byte, src tensor.Tensor) {
	if t.Err() == nil {
		t.inner.Read(dst, src)
	}
}

// Write stores bytes. Rows of an Embed that it overwrites, as continuous rows are,
// no longer belong to the table.
func (t *Tape) Write(dst tensor.Tensor, src []byte) {
	if t.Err() != nil {
		return
	}
	t.inner.Write(dst, src)
	if dst.DType() != tensor.F32 {
		return
	}
	b, off := dst.Buffer()
	for _, e := range t.embeds {
		eb, at := e.dst.Buffer()
		if identity(eb) != identity(b) || off < at {
			continue
		}
		row := 4 * e.dst.Stride(0)
		for r := (off - at) / row; r < e.dst.Dim(0) && at+r*row < off+len(src); r++ {
			t.inner.Write(e.ids.Rows(r, r+1), tensor.AsBytes([]int32{-1}))
		}
	}
}

// Err is the first failure of the tape or its stream.
func (t *Tape) Err() error {
	if t.err != nil {
		return t.err
	}
	return t.inner.Err()
}

func (t *Tape) Sync() error {
	if t.err != nil {
		return t.err
	}
	return t.inner.Sync()
}

// Reset forgets a failure and the recorded pass.
func (t *Tape) Reset() {
	t.forget()
	t.err, t.done = nil, true
	t.inner.Reset()
}

// Close frees the gradients of activations.
func (t *Tape) Close() error {
	t.forget()
	for b, s := range t.shadows {
		t.dev.Free(s.buf)
		delete(t.shadows, b)
	}
	t.fail(fmt.Errorf("grad: tape %w", backend.ErrClosed))
	return nil
}
