package driver

import (
	"encoding/binary"
	"math"
)

// Params lays out the parameters of a kernel as its parameter space has them:
// each at a multiple of its size, little-endian. The zero value is empty; Reset
// keeps the memory for the next launch.
type Params struct{ b []byte }

// Reset makes p empty.
func (p *Params) Reset() *Params { p.b = p.b[:0]; return p }

// Bytes are valid until the next Reset.
func (p *Params) Bytes() []byte { return p.b }

func (p *Params) align(n int) {
	for len(p.b)%n != 0 {
		p.b = append(p.b, 0)
	}
}

// Ptr appends an address (.u64).
func (p *Params) Ptr(v Ptr) *Params { return p.Uint64(uint64(v)) }

// Uint64 appends a .u64.
func (p *Params) Uint64(v uint64) *Params {
	p.align(8)
	p.b = binary.LittleEndian.AppendUint64(p.b, v)
	return p
}

// Uint32 appends a .u32.
func (p *Params) Uint32(v uint32) *Params {
	p.align(4)
	p.b = binary.LittleEndian.AppendUint32(p.b, v)
	return p
}

// Int32 appends a .s32 (an int of CUDA C).
func (p *Params) Int32(v int32) *Params { return p.Uint32(uint32(v)) }

// Float32 appends a .f32.
func (p *Params) Float32(v float32) *Params { return p.Uint32(math.Float32bits(v)) }
