package checkpoint

import (
	"encoding/binary"
	"fmt"
	"slices"

	"samebit/tensor"
)

// DType returns the tensor type of the same name and layout, tensor.Invalid for
// types that only exist in files (F64, I64, BOOL, ...).
func (t Type) DType() tensor.DType {
	switch t {
	case F32:
		return tensor.F32
	case BF16:
		return tensor.BF16
	case F16:
		return tensor.F16
	case I32:
		return tensor.I32
	case I8:
		return tensor.I8
	case U8:
		return tensor.U8
	case Q8_0:
		return tensor.Q8_0
	case Q4_0:
		return tensor.Q4_0
	case Q4_1:
		return tensor.Q4_1
	case Q5_0:
		return tensor.Q5_0
	case Q5_1:
		return tensor.Q5_1
	case Q2_K:
		return tensor.Q2_K
	case Q3_K:
		return tensor.Q3_K
	case Q4_K:
		return tensor.Q4_K
	case Q5_K:
		return tensor.Q5_K
	case Q6_K:
		return tensor.Q6_K
	}
	return tensor.Invalid
}

// View returns e as a tensor over the same bytes, a scalar as shape [1]. It fails
// for types without a DType, more axes than a tensor has, and on big-endian
// machines, where the bytes of the file are not the machine's numbers.
func (e Entry) View() (tensor.Tensor, error) {
	dt := e.Type.DType()
	if dt == tensor.Invalid {
		return tensor.Tensor{}, fmt.Errorf("checkpoint: view tensor %q: type %v has no tensor form", clip(e.Name), e.Type)
	}
	if bigEndian && dt != tensor.I8 && dt != tensor.U8 {
		return tensor.Tensor{}, fmt.Errorf("checkpoint: view tensor %q: %v bytes are little-endian and this machine is not: decode with Float32s", clip(e.Name), e.Type)
	}
	if err := e.check(); err != nil {
		return tensor.Tensor{}, fmt.Errorf("checkpoint: view: %w", err)
	}
	shape := e.Shape
	if len(shape) == 0 {
		shape = []int{1}
	}
	t, err := tensor.New(tensor.Bytes(e.Data), 0, dt, shape...)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("checkpoint: view tensor %q: %w", clip(e.Name), err)
	}
	return t, nil
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// LittleEndian is v as files have it, without a copy where the machine has it so.
func LittleEndian[E float32 | int32 | uint32 | uint16](v []E) []byte {
	b := tensor.AsBytes(v)
	if !bigEndian || len(v) == 0 {
		return b
	}
	b = slices.Clone(b)
	for i, size := 0, len(b)/len(v); i < len(b); i += size {
		slices.Reverse(b[i : i+size])
	}
	return b
}

// FromTensor is an entry with a copy of t's values, the reverse of [Entry.View]. It
// takes contiguous tensors of F32 and BF16 in this process's memory.
func FromTensor(name string, t tensor.Tensor) (Entry, error) {
	e := Entry{Name: name, Type: F32, Shape: t.Shape()}
	half, ok := t.Halves()
	if ok = ok && t.DType() == tensor.BF16; ok {
		e.Type, e.Data = BF16, LittleEndian(half)
	} else if v, f32 := t.F32(); f32 {
		ok, e.Data = true, LittleEndian(v)
	}
	if !ok || !t.Contiguous() {
		return Entry{}, fmt.Errorf("checkpoint: tensor %q: %v is not contiguous host memory of F32 or BF16", clip(name), t)
	}
	e.Data = slices.Clone(e.Data)
	return e, nil
}
