// Package blockq says what the bytes of GGUF block-quantised weights mean: the
// exact float32 value of every weight (docs/numerics.md 9) in portable Go. Fast
// kernels keep other layouts but must give these bits.
package blockq

import "fmt"

// Type is a block format, numbered as in GGUF files.
type Type uint8

// The block formats. QN_0 and QN_1 hold 32 values per block, the K formats 256.
const (
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q2_K Type = 10
	Q3_K Type = 11
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
)

// Types lists every format of this package in rising number.
func Types() []Type { return []Type{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K} }

type shape struct {
	name          string
	values, bytes int
}

func (t Type) shape() shape {
	switch t {
	case Q4_0:
		return shape{"Q4_0", 32, 18}
	case Q4_1:
		return shape{"Q4_1", 32, 20}
	case Q5_0:
		return shape{"Q5_0", 32, 22}
	case Q5_1:
		return shape{"Q5_1", 32, 24}
	case Q8_0:
		return shape{"Q8_0", 32, 34}
	case Q2_K:
		return shape{"Q2_K", 256, 84}
	case Q3_K:
		return shape{"Q3_K", 256, 110}
	case Q4_K:
		return shape{"Q4_K", 256, 144}
	case Q5_K:
		return shape{"Q5_K", 256, 176}
	case Q6_K:
		return shape{"Q6_K", 256, 210}
	}
	return shape{}
}

// Valid reports whether t is a format of this package.
func (t Type) Valid() bool { return t.shape().values != 0 }

// BlockValues returns the number of weights in a block, 0 for an unknown type.
func (t Type) BlockValues() int { return t.shape().values }

// BlockBytes returns the size of a block in bytes, 0 for an unknown type.
func (t Type) BlockBytes() int { return t.shape().bytes }

// RowBytes returns the size of a row of k weights, k a multiple of BlockValues.
func (t Type) RowBytes(k int) int {
	s := t.shape()
	return k / s.values * s.bytes
}

func (t Type) String() string {
	if n := t.shape().name; n != "" {
		return n
	}
	return fmt.Sprintf("blockq.Type(%d)", uint8(t))
}
