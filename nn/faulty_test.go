package nn_test

import (
	"slices"

	"samebit/backend"
	"samebit/tensor"
)

// faulty is a stream whose left-th op from now fails; 0 means never.
type faulty struct {
	backend.Stream
	left int
}

// fails counts an op, and makes the stream fail when its time has come.
func (f *faulty) fails() bool {
	if f.left == 0 {
		return false
	}
	if f.left--; f.left > 0 {
		return false
	}
	f.Stream.Add(tensor.Tensor{}, tensor.Tensor{}, tensor.Tensor{})
	return true
}

func (f *faulty) Linear(dst, x tensor.Tensor, w backend.Weight) {
	if !f.fails() {
		f.Stream.Linear(dst, x, w)
	}
}

func (f *faulty) RMSNorm(dst, x, w tensor.Tensor, eps float32) {
	if !f.fails() {
		f.Stream.RMSNorm(dst, x, w, eps)
	}
}

func (f *faulty) Add(dst, a, b tensor.Tensor) {
	if !f.fails() {
		f.Stream.Add(dst, a, b)
	}
}

func (f *faulty) PutKV(p backend.Plan, layer int, k, v tensor.Tensor) {
	if !f.fails() {
		f.Stream.PutKV(p, layer, k, v)
	}
}

func (f *faulty) Attention(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	if !f.fails() {
		f.Stream.Attention(dst, q, p, layer, scale, window)
	}
}

func (f *faulty) Conv(dst, x, w tensor.Tensor, p backend.Plan, layer int) {
	if !f.fails() {
		f.Stream.Conv(dst, x, w, p, layer)
	}
}

func (f *faulty) GatedDelta(dst, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if !f.fails() {
		f.Stream.GatedDelta(dst, q, k, v, g, beta, p, layer)
	}
}

func (f *faulty) Read(dst []byte, src tensor.Tensor) {
	if !f.fails() {
		f.Stream.Read(dst, src)
	}
}

// recorder remembers what ops wrote, to see whether later ones leave it alone.
type recorder struct {
	backend.Stream
	op  []string
	dst []tensor.Tensor
	was [][]float32
}

func (r *recorder) note(op string, dst tensor.Tensor) {
	if v, ok := dst.F32(); ok {
		r.op, r.dst, r.was = append(r.op, op), append(r.dst, dst), append(r.was, slices.Clone(v))
	}
}

func (r *recorder) Linear(dst, x tensor.Tensor, w backend.Weight) {
	r.Stream.Linear(dst, x, w)
	r.note("Linear", dst)
}

func (r *recorder) AddBias(dst, x, b tensor.Tensor) {
	r.Stream.AddBias(dst, x, b)
	r.note("AddBias", dst)
}

func (r *recorder) Add(dst, a, b tensor.Tensor) {
	r.Stream.Add(dst, a, b)
	r.note("Add", dst)
}

func (r *recorder) RMSNorm(dst, x, w tensor.Tensor, eps float32) {
	r.Stream.RMSNorm(dst, x, w, eps)
	r.note("RMSNorm", dst)
}

func (r *recorder) SwiGLU(dst, gate, up tensor.Tensor) {
	r.Stream.SwiGLU(dst, gate, up)
	r.note("SwiGLU", dst)
}

func (r *recorder) Conv(dst, x, w tensor.Tensor, p backend.Plan, layer int) {
	r.Stream.Conv(dst, x, w, p, layer)
	r.note("Conv", dst)
}
