package tensor

import "fmt"

// DType is the storage type of a tensor's elements. Arithmetic is float32;
// every other type is storage that ops widen exactly (numerics.md 9).
type DType uint8

const (
	Invalid DType = iota
	F32
	BF16
	F16
	I32
	I8
	U8
	// Block-quantised weights: rows of whole blocks, only ever read as matrices
	// by Device.Pack.
	Q8_0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
)

var dtypes = [...]struct {
	name          string
	values, bytes int
}{
	Invalid: {"invalid", 1, 0},
	F32:     {"F32", 1, 4},
	BF16:    {"BF16", 1, 2},
	F16:     {"F16", 1, 2},
	I32:     {"I32", 1, 4},
	I8:      {"I8", 1, 1},
	U8:      {"U8", 1, 1},
	Q8_0:    {"Q8_0", 32, 34},
	Q4_0:    {"Q4_0", 32, 18},
	Q4_1:    {"Q4_1", 32, 20},
	Q5_0:    {"Q5_0", 32, 22},
	Q5_1:    {"Q5_1", 32, 24},
	Q2_K:    {"Q2_K", 256, 84},
	Q3_K:    {"Q3_K", 256, 110},
	Q4_K:    {"Q4_K", 256, 144},
	Q5_K:    {"Q5_K", 256, 176},
	Q6_K:    {"Q6_K", 256, 210},
}

func (d DType) String() string {
	if int(d) < len(dtypes) {
		return dtypes[d].name
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// BlockValues is the number of values stored together: 1 unless quantised.
func (d DType) BlockValues() int {
	if int(d) >= len(dtypes) {
		return 1
	}
	return dtypes[d].values
}

// BlockBytes is the size of BlockValues values; 0 for the invalid type.
func (d DType) BlockBytes() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].bytes
}

// Quantised reports whether the type stores blocks of values.
func (d DType) Quantised() bool { return d.BlockValues() > 1 }

// Bytes returns the size of n consecutive values, n a multiple of BlockValues.
func (d DType) Bytes(n int) int { return n / d.BlockValues() * d.BlockBytes() }

// align is the alignment of an element in bytes; blocks need none.
func (d DType) align() int {
	if d.Quantised() {
		return 1
	}
	return max(d.BlockBytes(), 1)
}
