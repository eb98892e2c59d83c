// Package tensor describes typed, strided views of bytes that lie somewhere: in
// a Go slice, in a mapped file, on a device. It does no arithmetic and owns
// nothing; whoever allocated a buffer frees it.
package tensor

import (
	"fmt"
	"math"
	"unsafe"
)

// MaxDims is the largest number of axes.
const MaxDims = 4

// Buffer is a range of bytes. Host is nil when the bytes are not addressable by
// this process.
type Buffer interface {
	Len() int
	Host() []byte
}

// Tensor is a view: a value of 64 bytes that may be copied freely. Axes are
// row-major, the last one contiguous, earlier ones may be strided. The zero
// Tensor is invalid; an op that is given one makes its stream fail.
type Tensor struct {
	buf    Buffer
	off    int // bytes
	dim    [MaxDims]int32
	stride [MaxDims]int32 // elements
	dt     DType
	nd     uint8
}

// New views len = Π dim elements of buf from byte off on. It fails when the
// range or the alignment does not fit.
func New(buf Buffer, off int, dt DType, dim ...int) (Tensor, error) {
	// Errors print a copy of dim, so that the callers' arguments stay on the stack.
	if buf == nil || dt == Invalid || int(dt) >= len(dtypes) {
		return Tensor{}, fmt.Errorf("tensor: view of type %v: no buffer or unknown type", dt)
	}
	if len(dim) == 0 || len(dim) > MaxDims {
		return Tensor{}, fmt.Errorf("tensor: view with %d axes: want 1 to %d", len(dim), MaxDims)
	}
	t := Tensor{buf: buf, off: off, dt: dt, nd: uint8(len(dim))}
	n := 1
	for i, d := range dim {
		if d < 0 || d > math.MaxInt32 || (d > 0 && n > math.MaxInt/d) {
			return Tensor{}, fmt.Errorf("tensor: view %v: axis %d out of range", list(dim), i)
		}
		t.dim[i] = int32(d)
		n *= d
	}
	s := 1
	for i := len(dim) - 1; i >= 0; i-- {
		if s > math.MaxInt32 {
			return Tensor{}, fmt.Errorf("tensor: view %v: stride of axis %d exceeds 2^31", list(dim), i)
		}
		t.stride[i] = int32(s)
		s *= max(dim[i], 1)
	}
	if bv := dt.BlockValues(); dim[len(dim)-1]%bv != 0 {
		return Tensor{}, fmt.Errorf("tensor: view %v of %v: last axis is no multiple of %d", list(dim), dt, bv)
	}
	if n/dt.BlockValues() > math.MaxInt/max(dt.BlockBytes(), 1) {
		return Tensor{}, fmt.Errorf("tensor: view %v: size overflows", list(dim))
	}
	if size := dt.Bytes(n); off < 0 || off > buf.Len() || size > buf.Len()-off {
		return Tensor{}, fmt.Errorf("tensor: view %v of %v at byte %d: needs %d bytes, the buffer has %d", list(dim), dt, off, size, buf.Len())
	}
	if a := dt.align(); a > 1 {
		at := uintptr(off)
		if h := buf.Host(); len(h) > 0 {
			at += uintptr(unsafe.Pointer(unsafe.SliceData(h)))
		}
		if at%uintptr(a) != 0 {
			return Tensor{}, fmt.Errorf("tensor: view %v of %v at byte %d: the address is no multiple of %d", list(dim), dt, off, a)
		}
	}
	return t, nil
}

// list copies dimensions for a message. slices.Clone would let its argument escape.
func list(dim []int) []int { return append([]int(nil), dim...) }

// slice is the buffer of a Go slice.
type slice []byte

func (s slice) Len() int { return len(s) }

func (s slice) Host() []byte {
	if s == nil {
		return []byte{} // no bytes, but addressable
	}
	return s
}

// Bytes wraps b as a Buffer.
func Bytes(b []byte) Buffer { return slice(b) }

// AsBytes views the memory of v, which it shares, as bytes.
func AsBytes[E float32 | int32 | uint32 | uint16](v []E) []byte {
	var e E
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), int(unsafe.Sizeof(e))*len(v))
}

// Copy copies src to dst, of equal shape and type and any strides, both in this
// process's memory.
func Copy(dst, src Tensor) {
	if d, ok := dst.Raw(); ok {
		if v, ok := src.Raw(); ok {
			copy(d, v)
			return
		}
	}
	if dst.Dims() <= 1 {
		return // one axis is always contiguous
	}
	for i := range dst.Dim(0) {
		Copy(dst.Index(i), src.Index(i))
	}
}

// FromF32 views v, which the tensor shares, as a tensor of the given shape.
func FromF32(v []float32, dim ...int) (Tensor, error) {
	b := AsBytes(v)
	return New(slice(b), 0, F32, dim...)
}

// FromI32 views v, which the tensor shares, as a tensor of the given shape.
func FromI32(v []int32, dim ...int) (Tensor, error) {
	b := AsBytes(v)
	return New(slice(b), 0, I32, dim...)
}

// Valid reports whether t views anything.
func (t Tensor) Valid() bool { return t.buf != nil }

// DType is the storage type.
func (t Tensor) DType() DType { return t.dt }

// Dims is the number of axes.
func (t Tensor) Dims() int { return int(t.nd) }

// Dim is the length of axis i; axes that do not exist have length 1.
func (t Tensor) Dim(i int) int {
	if i < 0 || i >= int(t.nd) {
		return 1
	}
	return int(t.dim[i])
}

// Stride is the distance of neighbours along axis i in elements.
func (t Tensor) Stride(i int) int {
	if i < 0 || i >= int(t.nd) {
		return 0
	}
	return int(t.stride[i])
}

// Shape is the lengths of all axes.
func (t Tensor) Shape() []int {
	dim := make([]int, t.nd)
	for i := range dim {
		dim[i] = int(t.dim[i])
	}
	return dim
}

// Len is the number of elements.
func (t Tensor) Len() int {
	if t.buf == nil {
		return 0
	}
	n := 1
	for i := range int(t.nd) {
		n *= int(t.dim[i])
	}
	return n
}

// Contiguous reports whether the elements lie without gaps.
func (t Tensor) Contiguous() bool {
	s := 1
	for i := int(t.nd) - 1; i >= 0; i-- {
		if t.dim[i] == 0 {
			return true
		}
		if t.dim[i] != 1 && int(t.stride[i]) != s {
			return t.Len() == 0
		}
		s *= int(t.dim[i])
	}
	return true
}

// Buffer returns the viewed buffer and the byte at which the view begins.
func (t Tensor) Buffer() (Buffer, int) { return t.buf, t.off }

// On is the view of the same range of another buffer; a buffer that is nil or of
// another length gives the invalid Tensor.
func (t Tensor) On(b Buffer) Tensor {
	if t.buf == nil || b == nil || b.Len() != t.buf.Len() {
		return Tensor{}
	}
	t.buf = b
	return t
}

// Rows is the view of indices [i, j) of the first axis; out of range gives the
// invalid Tensor.
func (t Tensor) Rows(i, j int) Tensor {
	if t.buf == nil || i < 0 || j < i || j > int(t.dim[0]) || (t.dt.Quantised() && t.nd < 2) {
		return Tensor{}
	}
	t.off += t.dt.Bytes(i * int(t.stride[0]))
	t.dim[0] = int32(j - i)
	return t
}

// Cols is the view of indices [i, j) of the last axis; out of range, or inside
// a quantised block, gives the invalid Tensor.
func (t Tensor) Cols(i, j int) Tensor {
	if t.buf == nil {
		return Tensor{}
	}
	l := int(t.nd) - 1
	if i < 0 || j < i || j > int(t.dim[l]) || t.dt.Quantised() {
		return Tensor{}
	}
	t.off += t.dt.Bytes(i)
	t.dim[l] = int32(j - i)
	return t
}

// Heads views [R, h·d] as [R, h, d]; other shapes, and quantised types, give the
// invalid Tensor.
func (t Tensor) Heads(h, d int) Tensor {
	if t.buf == nil || t.nd != 2 || h < 0 || d < 0 || int64(h)*int64(d) != int64(t.dim[1]) || max(h, d) > math.MaxInt32 || t.dt.Quantised() {
		return Tensor{}
	}
	t.nd = 3
	t.dim[1], t.dim[2] = int32(h), int32(d)
	t.stride[1], t.stride[2] = int32(d), 1
	return t
}

// Index drops the first axis by fixing its index; out of range, or of a tensor
// with one axis, gives the invalid Tensor.
func (t Tensor) Index(i int) Tensor {
	if t.buf == nil || t.nd < 2 || i < 0 || i >= int(t.dim[0]) {
		return Tensor{}
	}
	t.off += t.dt.Bytes(i * int(t.stride[0]))
	copy(t.dim[:], t.dim[1:t.nd])
	copy(t.stride[:], t.stride[1:t.nd])
	t.nd--
	t.dim[t.nd], t.stride[t.nd] = 0, 0
	return t
}

// Reshape views a contiguous tensor with other axes of the same total length.
func (t Tensor) Reshape(dim ...int) Tensor {
	if t.buf == nil || !t.Contiguous() || t.dt.Quantised() {
		return Tensor{}
	}
	off := t.off
	if t.Len() == 0 {
		off = 0 // a view without elements may begin behind its buffer
	}
	u, err := New(t.buf, off, t.dt, dim...)
	if err != nil || u.Len() != t.Len() {
		return Tensor{}
	}
	return u
}

// host returns the bytes from the first element on, or nil.
func (t Tensor) host() []byte {
	if t.buf == nil {
		return nil
	}
	h := t.buf.Host()
	if h == nil {
		return nil
	}
	return h[min(t.off, len(h)):] // a view without elements may begin behind the end
}

// span is the number of elements from the first to the last, gaps included.
func (t Tensor) span() int {
	n := 1
	for i := range int(t.nd) {
		if t.dim[i] == 0 {
			return 0
		}
		n += int(t.dim[i]-1) * int(t.stride[i])
	}
	return n
}

// F32 returns the elements from the first to the last, gaps of strided axes
// included. It reports false for other types, for bytes that are not
// addressable here and for misaligned views.
func (t Tensor) F32() ([]float32, bool) {
	h, n := t.host(), 0
	if t.dt != F32 || h == nil {
		return nil, false
	}
	n = t.span()
	p := unsafe.Pointer(unsafe.SliceData(h))
	if 4*n > len(h) || uintptr(p)%4 != 0 {
		return nil, false
	}
	return unsafe.Slice((*float32)(p), n), true
}

// I32 is F32 for 32-bit integers.
func (t Tensor) I32() ([]int32, bool) {
	h, n := t.host(), 0
	if t.dt != I32 || h == nil {
		return nil, false
	}
	n = t.span()
	p := unsafe.Pointer(unsafe.SliceData(h))
	if 4*n > len(h) || uintptr(p)%4 != 0 {
		return nil, false
	}
	return unsafe.Slice((*int32)(p), n), true
}

// Halves is F32 for the bits of BF16 and F16 values.
func (t Tensor) Halves() ([]uint16, bool) {
	h, n := t.host(), 0
	if t.dt != BF16 && t.dt != F16 || h == nil {
		return nil, false
	}
	n = t.span()
	p := unsafe.Pointer(unsafe.SliceData(h))
	if 2*n > len(h) || uintptr(p)%2 != 0 {
		return nil, false
	}
	return unsafe.Slice((*uint16)(p), n), true
}

// Raw returns the bytes of a contiguous tensor of any type.
func (t Tensor) Raw() ([]byte, bool) {
	h := t.host()
	if h == nil || !t.Contiguous() {
		return nil, false
	}
	n := t.dt.Bytes(t.Len())
	if n > len(h) {
		return nil, false
	}
	return h[:n], true
}

// Row returns row i of a two-axis float32 tensor, nil where F32 has nothing to
// return and for a row that does not exist.
func (t Tensor) Row(i int) []float32 {
	v, ok := t.F32()
	if !ok || t.nd != 2 || i < 0 || i >= int(t.dim[0]) || len(v) == 0 {
		return nil
	}
	o := i * int(t.stride[0])
	return v[o : o+int(t.dim[1])]
}

// Vec returns the last axis at [i, j] of a three-axis float32 tensor, or at [i]
// of a two-axis one with j = 0; nil as for Row.
func (t Tensor) Vec(i, j int) []float32 {
	v, ok := t.F32()
	if !ok || t.nd < 2 || t.nd > 3 || i < 0 || i >= int(t.dim[0]) || len(v) == 0 || j < 0 || j >= t.heads() {
		return nil
	}
	o := i * int(t.stride[0])
	if t.nd == 3 {
		o += j * int(t.stride[1])
	}
	return v[o : o+int(t.dim[t.nd-1])]
}

// heads is the length of the middle axis of three, 1 for two axes.
func (t Tensor) heads() int {
	if t.nd == 3 {
		return int(t.dim[1])
	}
	return 1
}

func (t Tensor) String() string {
	if t.buf == nil {
		return "invalid tensor"
	}
	return fmt.Sprintf("%v%v", t.dt, t.Shape())
}
