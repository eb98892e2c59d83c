package cpu

import (
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
	q := packQueue{dev: d}
	w, err := q.add(t, use, nil)
	if err == nil {
		err = q.pack()
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (d *Device) Unpack(w backend.Weight) {
	if w, ok := w.(*weight); ok && w != nil && w.dev == d {
		w.free()
	}
}

func (w *weight) free() {
	if w.panels != nil {
		w.panels = nil
		w.dev.slabs.put(w.mem)
	}
}
