package blockq

import (
	"encoding/binary"
	"fmt"
	"math"

	"samebit/tensor"
)

// Of returns the block type of a tensor type, false for types without blocks.
func Of(dt tensor.DType) (Type, bool) {
	for _, t := range Types() {
		if t.String() == dt.String() {
			return t, true
		}
	}
	return 0, false
}

// Widen writes the float32 values of little-endian storage of any weight type
// (numerics.md 9); src holds exactly len(dst) values.
func Widen(dst []float32, src []byte, dt tensor.DType) error {
	if len(src) != dt.Bytes(len(dst)) || len(dst)%dt.BlockValues() != 0 {
		return fmt.Errorf("blockq: %d bytes of %v for %d values", len(src), dt, len(dst))
	}
	switch dt {
	case tensor.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case tensor.BF16:
		for i := range dst {
			dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case tensor.F16:
		for i := range dst {
			dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	default:
		t, ok := Of(dt)
		if !ok {
			return fmt.Errorf("blockq: type %v holds no weights", dt)
		}
		Dequant(dst, src, t)
	}
	return nil
}
