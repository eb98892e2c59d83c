package interop

import (
	"fmt"

	gtensor "gorgonia.org/tensor"

	"samebit/tensor"
)

// Pack copies the elements of t, float32 and addressable by this process, into
// new memory without gaps.
func Pack(t tensor.Tensor) (tensor.Tensor, error) {
	v, err := elements("Pack", t)
	if err != nil {
		return tensor.Tensor{}, err
	}
	dim := shape(t)
	return fromF32("Pack", gather(v, dim, strides(t)), dim)
}

// PackDense copies the elements of d, float32 and without a mask, into new
// memory in row-major order: those that d.At returns. It goes by the strides of
// d, since Materialize mixes up slices of transposed tensors. A Dense without
// axes becomes (1).
func PackDense(d *gtensor.Dense) (*gtensor.Dense, error) {
	v, dim, stride, err := layout("PackDense", d)
	if err != nil {
		return nil, err
	}
	last := 0 // element furthest from the first
	for i, n := range dim {
		if n == 0 {
			return nil, fmt.Errorf("interop: PackDense of shape %v: it has no elements, and gorgonia panics without any: leave it out", dim)
		}
		if stride[i] < 0 {
			return nil, fmt.Errorf("interop: PackDense of shape %v: stride %d of axis %d is negative", dim, stride[i], i)
		}
		last += (n - 1) * stride[i]
	}
	if last >= len(v) {
		return nil, fmt.Errorf("interop: PackDense of shape %v with strides %v: needs %d elements, the memory has %d: is it an empty slice?", dim, stride, last+1, len(v))
	}
	return gtensor.New(gtensor.WithShape(dim...), gtensor.WithBacking(gather(v, dim, stride))), nil
}

// gather lists the elements of a strided view in row-major order.
func gather(v []float32, dim, stride []int) []float32 {
	out := make([]float32, 0, length(dim))
	var walk func(axis, at int)
	walk = func(axis, at int) {
		for range dim[axis] {
			if axis == len(dim)-1 {
				out = append(out, v[at])
			} else {
				walk(axis+1, at)
			}
			at += stride[axis]
		}
	}
	if cap(out) > 0 {
		walk(0, 0)
	}
	return out
}
