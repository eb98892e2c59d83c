package quant

import (
	"encoding/binary"
	"testing"

	"samebit/internal/blockq"
)

// Every finite scale of Q4_0 with every code: one input is 1 and the others 0,
// so that Gemv gives the weight itself.
func TestEveryScaleQ4_0(t *testing.T) {
	const k, panels = 32, 1 << 16 / 32
	ty := blockq.Q4_0
	stride := ty.RowBytes(k)
	src := make([]byte, panels*32*stride)
	for h := range panels * 32 {
		d := uint16(h)
		if d&0x7c00 == 0x7c00 {
			d = 0
		}
		row := src[h*stride:]
		binary.LittleEndian.PutUint16(row, d)
		for i := range 16 {
			row[2+i] = byte(i | (15-i)<<4) // inputs i and i+16
		}
	}
	x, y := make([]float32, k), make([]float32, panels*32)
	for _, s := range impls()[1:] {
		c := s.codec(ty)
		size := c.Bytes(k)
		packed := make([]byte, panels*size)
		for p := range panels {
			c.Pack(packed[p*size:][:size], src[p*32*stride:], stride, 32, k)
		}
		for i := range x {
			clear(x)
			x[i] = 1
			c.Gemv(y, x, packed, k)
			q := i
			if i >= 16 {
				q = 31 - i
			}
			for r, got := range y {
				d := blockq.F16ToF32(binary.LittleEndian.Uint16(src[r*stride:]))
				if want := d*float32(q-8) + 0; bits(got) != bits(want) {
					t.Fatalf("%v: scale %x, code %d: %x, want %x", s, d, q, got, want)
				}
			}
		}
	}
}
