package interop

import (
	"errors"
	"fmt"
	"runtime"

	gtensor "gorgonia.org/tensor"

	"samebit/tensor"
)

// ErrGaps is the cause when elements do not follow each other in row-major
// order, so that memory cannot be shared; [Pack] and [PackDense] copy them.
var ErrGaps = errors.New("elements do not lie one after the other in row-major order")

// ToGorgonia returns a Dense of the same shape that shares the elements of t:
// float32, addressable by this process, without gaps, at least one. Neither
// side copies; the Dense keeps the memory of a Go slice alive, but not that of a
// mapped file, which must stay open (and, if it is mapped for reading only, must
// not be written) while the Dense is in use.
//
// A view with gaps gives [ErrGaps].
func ToGorgonia(t tensor.Tensor) (*gtensor.Dense, error) {
	v, err := elements("ToGorgonia", t)
	if err != nil {
		return nil, err
	}
	if t.Len() == 0 {
		return nil, fmt.Errorf("interop: ToGorgonia of %v: it has no elements, and gorgonia's Data, WriteNpy and printing panic without any: leave it out", t)
	}
	if !t.Contiguous() {
		return nil, fmt.Errorf("interop: ToGorgonia of %v with strides %v: %w: Pack it first", t, strides(t), ErrGaps)
	}
	d := gtensor.New(gtensor.WithShape(shape(t)...), gtensor.WithBacking(v))
	runtime.KeepAlive(v) // on its way through gorgonia the address is an integer for a while
	return d, nil
}

// FromGorgonia returns a tensor of the same shape that shares the elements of d:
// float32, in Go's memory, one to four axes, row-major without gaps, no mask. A
// Dense without axes becomes [1]. Gorgonia's Slice drops axes of length one, so
// row i of an [R, C] Dense arrives as [C]; Reshape gives the axis back.
//
// A view with gaps gives [ErrGaps]. Gorgonia gives the empty slice i:i the shape
// of one element: where there is no element to go with it, it is refused, and
// elsewhere it cannot be told from i:i+1.
func FromGorgonia(d *gtensor.Dense) (tensor.Tensor, error) {
	v, dim, stride, err := layout("FromGorgonia", d)
	if err != nil {
		return tensor.Tensor{}, err
	}
	n := length(dim)
	if !rowMajor(dim, stride) {
		return tensor.Tensor{}, fmt.Errorf("interop: FromGorgonia of shape %v with strides %v: %w: PackDense it first", dim, stride, ErrGaps)
	}
	if len(v) != n {
		// Seen for slices with a step, whose shapes gorgonia gets wrong.
		return tensor.Tensor{}, fmt.Errorf("interop: FromGorgonia of shape %v: the shape has %d elements, the memory %d: slice without a step, or PackDense it", dim, n, len(v))
	}
	return fromF32("FromGorgonia", v, dim)
}

func fromF32(what string, v []float32, dim []int) (tensor.Tensor, error) {
	t, err := tensor.FromF32(v, dim...)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("interop: %s of shape %v: %w", what, dim, err)
	}
	return t, nil
}

// elements checks what sharing and copying of t have in common and returns the
// elements from first to last, gaps included.
func elements(what string, t tensor.Tensor) ([]float32, error) {
	v, ok := t.F32()
	switch {
	case !t.Valid():
		return nil, fmt.Errorf("interop: %s: the tensor is invalid: look at the slicing that made it", what)
	case t.DType() != tensor.F32:
		return nil, fmt.Errorf("interop: %s of %v: only F32 goes over: widen it first", what, t)
	case !ok:
		return nil, fmt.Errorf("interop: %s of %v: its bytes are not addressable by this process: read them into host memory first", what, t)
	}
	return v, nil
}

// layout checks what sharing and copying of d have in common and returns its
// elements from first to last, its shape and its strides.
func layout(what string, d *gtensor.Dense) (v []float32, dim, stride []int, err error) {
	fail := func(format string, a ...any) ([]float32, []int, []int, error) {
		return nil, nil, nil, fmt.Errorf("interop: "+what+format, a...)
	}
	if d == nil {
		return fail(": no Dense")
	}
	dim, stride = d.Shape(), d.Strides()
	switch {
	case d.Dtype() != gtensor.Float32:
		return fail(" of shape %v: its type is %v, only float32 goes over: convert it first", dim, d.Dtype())
	case !d.IsNativelyAccessible():
		return fail(" of shape %v: its memory is not addressable by this process: copy it to the host first", dim)
	case d.IsMasked() && d.Len() > 0: // no mask covers all of no elements
		return fail(" of shape %v: it has a mask, for which there is no counterpart: fill the masked elements first", dim)
	case len(dim) > tensor.MaxDims:
		return fail(" of shape %v: it has %d axes, at most %d go over: Reshape it first", dim, len(dim), tensor.MaxDims)
	case len(stride) != len(dim):
		return fail(" of shape %v: it has %d strides", dim, len(stride))
	}
	v = d.Float32s()
	if len(dim) == 0 {
		return v, []int{1}, []int{1}, nil
	}
	return v, dim, stride, nil
}

// rowMajor reports whether neighbours in row-major order are neighbours in
// memory. Strides of axes of length one do not matter.
func rowMajor(dim, stride []int) bool {
	s := 1
	for i := len(dim) - 1; i >= 0; i-- {
		if dim[i] == 0 {
			return true
		}
		if dim[i] != 1 && stride[i] != s {
			return length(dim) == 0
		}
		s *= dim[i]
	}
	return true
}

func length(dim []int) int {
	n := 1
	for _, d := range dim {
		n *= d
	}
	return n
}

func shape(t tensor.Tensor) []int {
	d := make([]int, t.Dims())
	for i := range d {
		d[i] = t.Dim(i)
	}
	return d
}

func strides(t tensor.Tensor) []int {
	s := make([]int, t.Dims())
	for i := range s {
		s[i] = t.Stride(i)
	}
	return s
}
