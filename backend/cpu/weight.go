package cpu

import (
	"fmt"
	"sync"

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
	d.narrowWeight(w, raw)
	w.size = w.codec.Bytes(w.k)
	mem, err := d.slabs.get(panel.Count(w.n) * w.size)
	if err != nil {
		return nil, err
	}
	w.mem, w.panels = mem, mem.b
	d.pool.Run(&packing{w: w, src: raw, stride: w.dt.Bytes(w.k)}, panel.Count(w.n))
	return w, nil
}

func (d *Device) Unpack(w backend.Weight) {
	if w, ok := w.(*weight); ok && w != nil && w.dev == d && w.panels != nil {
		w.panels = nil
		d.slabs.put(w.mem)
	}
}

type packing struct {
	w      *weight
	src    []byte
	stride int
	rows   sync.Pool // of []byte: narrowed rows
}

func (p *packing) half(n int) []byte {
	if b, ok := p.rows.Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return make([]byte, n, 2*panel.Width*p.w.k)
}

func (p *packing) Do(_, chunk int) {
	w, first := p.w, chunk*panel.Width
	src, stride, rows := p.src[first*p.stride:], p.stride, min(panel.Width, w.n-first)
	if w.narrowed {
		half := p.half(2 * rows * w.k)
		defer p.rows.Put(&half)
		halves(half, src, stride, rows, w.k)
		src, stride = half, 2*w.k
	}
	w.codec.Pack(w.panels[chunk*w.size:(chunk+1)*w.size], src, stride, rows, w.k)
}
