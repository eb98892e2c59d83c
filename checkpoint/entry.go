package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// Info describes a tensor without touching its bytes.
type Info struct {
	Name   string
	Type   Type
	Shape  []int  // row-major, last axis fastest, for both formats; do not modify
	File   string // base name of the file that holds it
	Offset int64  // of the first byte in that file
	Bytes  int64
}

// Entry is a tensor: what it is called and a view of its bytes.
type Entry struct {
	Name  string
	Type  Type
	Shape []int  // row-major, last axis fastest; [] is a scalar
	Data  []byte // little-endian, read-only (writing to a mapped file ends the program), valid until Set.Close
}

// Len returns the number of elements, the product of the shape.
func (e Entry) Len() int {
	n, ok := mulDims(e.Shape)
	if !ok || n > math.MaxInt {
		return 0
	}
	return int(n)
}

// check says whether Data has the size that Shape and Type ask for.
func (e Entry) check() error {
	n, ok := mulDims(e.Shape)
	if !ok {
		return fmt.Errorf("tensor %q: shape %v has a negative size or too many elements", clip(e.Name), e.Shape)
	}
	want, ok := e.Type.size(n)
	if !ok {
		return fmt.Errorf("tensor %q: shape %v cannot be stored as %v", clip(e.Name), e.Shape, e.Type)
	}
	if uint64(len(e.Data)) != want {
		return fmt.Errorf("tensor %q: %d bytes of data, shape %v of %v needs %d", clip(e.Name), len(e.Data), e.Shape, e.Type, want)
	}
	return nil
}

// Float32s returns a copy of an F32, F16 or BF16 tensor widened exactly to
// float32. Other types are refused; block types are decoded by the devices.
func (e Entry) Float32s() ([]float32, error) {
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("checkpoint: decode: %w", err)
	}
	out := make([]float32, e.Len())
	switch e.Type {
	case F32:
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(e.Data[4*i:]))
		}
	case BF16:
		for i := range out {
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(e.Data[2*i:])) << 16)
		}
	case F16:
		for i := range out {
			out[i] = widenHalf(binary.LittleEndian.Uint16(e.Data[2*i:]))
		}
	default:
		return nil, fmt.Errorf("checkpoint: decode tensor %q as float32: type is %v", clip(e.Name), e.Type)
	}
	return out, nil
}

// Float64s returns a copy of an F64, F32, F16 or BF16 tensor widened exactly to
// float64.
func (e Entry) Float64s() ([]float64, error) {
	if e.Type != F64 {
		narrow, err := e.Float32s()
		if err != nil {
			return nil, err
		}
		out := make([]float64, len(narrow))
		for i, v := range narrow {
			out[i] = float64(v)
		}
		return out, nil
	}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("checkpoint: decode: %w", err)
	}
	out := make([]float64, e.Len())
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(e.Data[8*i:]))
	}
	return out, nil
}

// Int64s returns a copy of an integer or BOOL tensor. A U64 value beyond int64
// is an error.
func (e Entry) Int64s() ([]int64, error) {
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("checkpoint: decode: %w", err)
	}
	out := make([]int64, e.Len())
	for i := range out {
		switch e.Type {
		case BOOL, U8:
			out[i] = int64(e.Data[i])
		case I8:
			out[i] = int64(int8(e.Data[i]))
		case U16:
			out[i] = int64(binary.LittleEndian.Uint16(e.Data[2*i:]))
		case I16:
			out[i] = int64(int16(binary.LittleEndian.Uint16(e.Data[2*i:])))
		case U32:
			out[i] = int64(binary.LittleEndian.Uint32(e.Data[4*i:]))
		case I32:
			out[i] = int64(int32(binary.LittleEndian.Uint32(e.Data[4*i:])))
		case I64, U64:
			out[i] = int64(binary.LittleEndian.Uint64(e.Data[8*i:]))
			if e.Type == U64 && out[i] < 0 {
				return nil, fmt.Errorf("checkpoint: decode tensor %q: element %d is %d, beyond int64", clip(e.Name), i, uint64(out[i]))
			}
		default:
			return nil, fmt.Errorf("checkpoint: decode tensor %q as integers: type is %v", clip(e.Name), e.Type)
		}
	}
	return out, nil
}

// widenHalf converts an IEEE half to float32, which is exact.
func widenHalf(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&0x3ff
	switch {
	case exp == 31:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case exp == 0: // zero or subnormal: frac · 2^-24, a product by a power of two
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// aligned returns data itself when its address suits the type, else a copy that
// does.
func aligned(data []byte, t Type) []byte {
	if len(data) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(data)))%uintptr(t.align()) == 0 {
		return data
	}
	words := make([]uint64, (len(data)+7)/8)
	out := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(data))
	copy(out, data)
	return out
}
