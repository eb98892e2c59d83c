// Package backendtest is one suite for every device: each op against the plain
// loops of package ref, bit by bit, and the laws that no device may break.
package backendtest

import (
	"math"
	"testing"
	"unsafe"

	"samebit/backend"
	"samebit/internal/blockq"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// Env runs ops on one device. Operands live in the device's memory between NaN
// canaries; what an op wrote is read back through the stream.
type Env struct {
	T   testing.TB
	Dev backend.Device
	S   backend.Stream

	shared  bool // the stream outlives the Env
	pad     int  // floats between rows of the operands made from now on
	half    bool // pages made from now on are BF16
	outs    []*out
	bufs    []tensor.Buffer
	weights []backend.Weight
}

// out is an output with its guards.
type out struct {
	name string
	g    *tensortest.Guarded
	t    tensor.Tensor
	all  tensor.Tensor // the buffer with its canaries, one axis
	i32  bool
}

func newEnv(t testing.TB, dev backend.Device) *Env {
	t.Helper()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	return &Env{T: t, Dev: dev, S: s, pad: 3}
}

// close frees the operands.
func (e *Env) close() {
	if e.shared {
		e.S.Reset()
	} else if err := e.S.Close(); err != nil {
		e.T.Error(err)
	}
	for _, w := range e.weights {
		e.Dev.Unpack(w)
	}
	for _, b := range e.bufs {
		e.Dev.Free(b)
	}
}

func (e *Env) must(err error) {
	e.T.Helper()
	if err != nil {
		e.T.Fatal(err)
	}
}

func bytesOf[E any](v []E) []byte {
	var x E
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(x)))
}

// alloc puts bytes into new device memory.
func (e *Env) alloc(b []byte) tensor.Buffer {
	e.T.Helper()
	buf, err := e.Dev.Alloc(len(b))
	e.must(err)
	e.bufs = append(e.bufs, buf)
	t, err := tensor.New(buf, 0, tensor.U8, len(b))
	e.must(err)
	e.S.Write(t, b)
	return buf
}

// guarded puts values of a shape between canaries.
func (e *Env) guarded(g *tensortest.Guarded) *out {
	e.T.Helper()
	buf := e.alloc(g.Raw())
	t, err := g.On(buf)
	e.must(err)
	all, err := tensor.New(buf, 0, tensor.F32, g.Bytes()/4)
	e.must(err)
	return &out{g: g, t: t, all: all}
}

// In is an input with canaries around its rows.
func (e *Env) In(v []float32, dim ...int) tensor.Tensor {
	e.T.Helper()
	return e.guarded(tensortest.NewGuarded(e.pad, dim...).Set(v)).t
}

// Flat is an input without gaps.
func (e *Env) Flat(v []float32, dim ...int) tensor.Tensor {
	e.T.Helper()
	return e.guarded(tensortest.NewGuarded(0, dim[0], product(dim[1:])).Set(v)).t.Reshape(dim...)
}

func product(dim []int) int {
	n := 1
	for _, d := range dim {
		n *= d
	}
	return n
}

// Ints is an I32 input.
func (e *Env) Ints(v []int32, dim ...int) tensor.Tensor {
	e.T.Helper()
	t, err := tensor.New(e.alloc(bytesOf(v)), 0, tensor.I32, dim...)
	e.must(err)
	return t
}

// Out is an output that holds NaN between canaries. Results compares it.
func (e *Env) Out(name string, dim ...int) tensor.Tensor {
	e.T.Helper()
	return e.InOut(name, nil, dim...)
}

// InOut is an output that begins with the given values.
func (e *Env) InOut(name string, v []float32, dim ...int) tensor.Tensor {
	e.T.Helper()
	pad := e.pad
	if len(dim) > 3 {
		pad, dim = 0, append([]int{product(dim[:len(dim)-1])}, dim[len(dim)-1])
	}
	g := tensortest.NewGuarded(pad, dim...)
	if v != nil {
		g.Set(v)
	}
	o := e.guarded(g)
	o.name = name
	e.outs = append(e.outs, o)
	return o.t
}

// State is an output without gaps, as recurrent states must be.
func (e *Env) State(name string, v []float32, dim ...int) tensor.Tensor {
	e.T.Helper()
	pad := e.pad
	e.pad = 0
	t := e.InOut(name, v, dim[0], product(dim[1:]))
	e.pad = pad
	return t.Reshape(dim...)
}

// OutInts is an I32 output.
func (e *Env) OutInts(name string, dim ...int) tensor.Tensor {
	e.T.Helper()
	g := tensortest.NewGuarded(0, product(dim))
	o := e.guarded(g)
	buf, off := o.t.Buffer()
	t, err := tensor.New(buf, off, tensor.I32, dim...)
	e.must(err)
	o.name, o.i32 = name, true
	e.outs = append(e.outs, o)
	return t
}

// Result is what an op wrote.
type Result struct {
	Name string
	F32  []float32
	I32  []int32
}

// Results reads all outputs back and checks their guards. The stream must not
// have failed.
func (e *Env) Results() []Result {
	e.T.Helper()
	for _, o := range e.outs {
		e.S.Read(o.g.Raw(), o.all)
	}
	e.must(e.S.Sync())
	var l []Result
	for _, o := range e.outs {
		if s := o.g.Check(); s != "" {
			e.T.Errorf("%s: %s: %s", e.Dev.Name(), o.name, s)
		}
		r := Result{Name: o.name, F32: o.g.Values()}
		if o.i32 {
			v := r.F32
			r.I32, r.F32 = make([]int32, len(v)), nil
			copy(bytesOf(r.I32), bytesOf(v))
		}
		l = append(l, r)
	}
	return l
}

// diff compares the results of two runs of the same case.
func diff(want, got []Result) string {
	for i := range want {
		d := tensortest.DiffBits(want[i].F32, got[i].F32)
		if want[i].I32 != nil {
			d = tensortest.DiffI32(want[i].I32, got[i].I32)
		}
		if d != "" {
			return want[i].Name + ": " + d
		}
	}
	return ""
}

// Pack packs a matrix of random values of a storage type.
func (e *Env) Pack(r *tensortest.Rand, k tensortest.Kind, dt tensor.DType, n, kk int) backend.Weight {
	e.T.Helper()
	return e.PackBytes(Weights(r, k, dt, n*kk), dt, n, kk)
}

// PackBytes packs a matrix in storage form. The bytes are dropped afterwards, as
// the contract allows.
func (e *Env) PackBytes(raw []byte, dt tensor.DType, n, k int) backend.Weight {
	e.T.Helper()
	raw = append([]byte(nil), raw...)
	t, err := tensor.New(tensor.Bytes(raw), 0, dt, n, k)
	e.must(err)
	w, err := e.Dev.Pack(t, backend.UseLinear|backend.UseEmbed)
	e.must(err)
	if w.Out() != n || w.In() != k || w.DType() != dt {
		e.T.Errorf("%s: weight of %v[%d %d] says %v[%d %d]", e.Dev.Name(), dt, n, k, w.DType(), w.Out(), w.In())
	}
	if !w.Aliases() {
		for i := range raw {
			raw[i] = 0xff
		}
	}
	e.weights = append(e.weights, w)
	return w
}

// Dtypes lists the storage types of weights.
func Dtypes() []tensor.DType {
	l := []tensor.DType{tensor.F32, tensor.BF16, tensor.F16}
	for dt := tensor.Q8_0; dt <= tensor.Q6_K; dt++ {
		l = append(l, dt)
	}
	return l
}

// Weights returns n values of a storage type: rounded ones of a kind for the
// float types, random codes with scales of every size for the block types.
func Weights(r *tensortest.Rand, k tensortest.Kind, dt tensor.DType, n int) []byte {
	if dt == tensor.F32 {
		return bytesOf(r.F32(k, n))
	}
	if !dt.Quantised() {
		h := make([]uint16, n)
		for i, v := range r.F32(k, n) {
			if dt == tensor.BF16 {
				h[i] = blockq.F32ToBF16(v)
			} else {
				h[i] = blockq.F32ToF16(v)
			}
		}
		return bytesOf(h)
	}
	raw := r.Bytes(dt.Bytes(n))
	for b := 0; b < len(raw); b += dt.BlockBytes() {
		for _, at := range scalesAt(dt) {
			h := blockq.F32ToF16(r.F32(tensortest.Ordinary, 1)[0] * 0x1p-6)
			switch r.Intn(24) {
			case 0:
				h = uint16(r.Intn(4)) | uint16(r.Intn(2))<<15 // zeros of both signs and the smallest subnormals
			case 1:
				h = uint16(r.Intn(1024)) // subnormal
			}
			raw[b+at], raw[b+at+1] = byte(h), byte(h>>8)
		}
	}
	return raw
}

// scalesAt is where a block keeps its float16 scales.
func scalesAt(dt tensor.DType) []int {
	switch dt {
	case tensor.Q4_1, tensor.Q5_1, tensor.Q4_K, tensor.Q5_K:
		return []int{0, 2}
	case tensor.Q2_K:
		return []int{80, 82}
	case tensor.Q3_K:
		return []int{108}
	case tensor.Q6_K:
		return []int{208}
	}
	return []int{0}
}

func addr(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func inf() float64 { return math.Inf(1) }
