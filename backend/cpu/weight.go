package cpu

import (
	"fmt"
	"sync/atomic"

	"samebit/backend"
	"samebit/backend/cpu/internal/gemm"
	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
	"samebit/backend/cpu/internal/quant"
	"samebit/internal/blockq"
	"samebit/tensor"
)

// weight is a matrix in panels of 32 outputs, in its storage type.
type weight struct {
	dev    *Device
	mem    piece
	panels []byte
	codec  panel.Codec
	size   int // bytes of a panel
	n, k   int
	dt     tensor.DType

	narrowed bool // float32 values kept as bf16, which they are
}

func (w *weight) Out() int            { return w.n }
func (w *weight) In() int             { return w.k }
func (w *weight) DType() tensor.DType { return w.dt }
func (w *weight) Bytes() int64        { return int64(len(w.mem.b)) }
func (w *weight) Aliases() bool       { return false }

// row writes the float32 weights of output n.
func (w *weight) row(dst []float32, n int) {
	p := n / panel.Width
	w.codec.Row(dst, w.panels[p*w.size:(p+1)*w.size], n%panel.Width, w.k)
}

func codec(s isa.Set, dt tensor.DType) (panel.Codec, bool) {
	switch dt {
	case tensor.F32:
		return gemm.Codec(s, gemm.F32), true
	case tensor.BF16:
		return gemm.Codec(s, gemm.BF16), true
	case tensor.F16:
		return gemm.Codec(s, gemm.F16), true
	}
	if t, ok := blockq.Of(dt); ok {
		return quant.Codec(s, t), true
	}
	return panel.Codec{}, false
}

// Pack lays the matrix out in panels; the workers share the work.
func (d *Device) Pack(t tensor.Tensor, use backend.Use) (backend.Weight, error) {
	return d.PackRead(t, use, nil)
}

// PackRead is Pack that calls read, unless it is nil, for parts [i, j) of t's bytes
// that together are all of them, each once, from several workers side by side, right
// after they packed that part: what else must be computed of the bytes, such as a
// checksum, then finds them in the cache. After an error parts may be missing.
func (d *Device) PackRead(t tensor.Tensor, use backend.Use, read func(i, j int)) (backend.Weight, error) {
	if err := backend.CheckPack(t, use); err != nil {
		return nil, err
	}
	if d.closed.Load() {
		return nil, fmt.Errorf("cpu: Pack: device %w", backend.ErrClosed)
	}
	raw, ok := t.Raw()
	if !ok {
		return nil, fmt.Errorf("cpu: Pack: %v is not in this process's memory", t)
	}
	w := &weight{dev: d, n: t.Dim(0), k: t.Dim(1), dt: t.DType()}
	if w.codec, ok = codec(d.set, w.dt); !ok {
		return nil, fmt.Errorf("cpu: Pack: weights of type %v: %w", w.dt, backend.ErrUnsupported)
	}
	p := &packing{w: w, src: raw, stride: w.dt.Bytes(w.k), read: read}
	p.per = max(1, readBytes/(panel.Width*p.stride))
	narrowed, err := d.packNarrow(w, p)
	if err == nil && !narrowed {
		err = d.lay(w, p)
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// lay gives w memory for panels of its codec and packs them.
func (d *Device) lay(w *weight, p *packing) error {
	w.size = w.codec.Bytes(w.k)
	mem, err := d.slabs.get(panel.Count(w.n) * w.size)
	if err != nil {
		return err
	}
	w.mem, w.panels = mem, mem.b
	d.touch(mem.b)
	d.pool.Run(p, (panel.Count(w.n)+p.per-1)/p.per)
	return nil
}

func (d *Device) Unpack(w backend.Weight) {
	if w, ok := w.(*weight); ok && w != nil && w.dev == d && w.panels != nil {
		w.panels = nil
		d.slabs.put(w.mem)
	}
}

// readBytes is about how much of the source a worker reads at a time.
const readBytes = 64 << 10

// packing is a pool.Task that fills a weight's panels.
type packing struct {
	w      *weight
	src    []byte
	stride int
	per    int            // panels of a chunk; 0 means 1
	read   func(i, j int) // of PackRead

	narrow func(dst, src []byte, stride, rows, k int) bool // gemm.Narrower; nil: the codec packs
	wide   atomic.Bool                                     // narrow met another value
}

func (p *packing) Do(_, chunk int) {
	w, per := p.w, max(1, p.per)
	first, last := chunk*per, min((chunk+1)*per, panel.Count(w.n))
	for i := first; i < last; i++ {
		dst, src := w.panels[i*w.size:(i+1)*w.size], p.src[i*panel.Width*p.stride:]
		rows := min(panel.Width, w.n-i*panel.Width)
		switch {
		case p.narrow == nil:
			w.codec.Pack(dst, src, p.stride, rows, w.k)
		case !p.wide.Load() && !p.narrow(dst, src, p.stride, rows, w.k):
			p.wide.Store(true)
		}
	}
	if p.read != nil { // after the packing, whose many streams memory serves faster than one
		p.read(first*panel.Width*p.stride, min(last*panel.Width, w.n)*p.stride)
	}
}
