package quant

import (
	"encoding/binary"
	"testing"

	"samebit/internal/blockq"
)

// Every finite scale of Q8_0, Q4_0 and Q5_0 with every code: one input is 1 and the others
// 0, so that Gemv gives the weight itself. Kernels form these weights in steps that are
// exact for each scale and code.
func TestEveryScale(t *testing.T) {
	const k, panels = 32, 1 << 16 / 32
	for ty, off := range map[blockq.Type]int{blockq.Q8_0: 128, blockq.Q4_0: 8, blockq.Q5_0: 16} {
		code := func(row, i int) int { return (row + i) % (2 * off) }
		stride := ty.RowBytes(k)
		src := make([]byte, panels*32*stride)
		for h := range panels * 32 {
			d := uint16(h)
			if d&0x7c00 == 0x7c00 {
				d = 0
			}
			row := src[h*stride:][:stride]
			binary.LittleEndian.PutUint16(row, d)
			low := row[stride-16:]
			for i := range k {
				q := code(h, i)
				if ty == blockq.Q8_0 {
					row[2+i] = byte(q - off)
					continue
				}
				low[i%16] |= byte(q & 15 << (i / 16 * 4))
				if ty == blockq.Q5_0 {
					row[2+i/8] |= byte(q >> 4 << (i % 8))
				}
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
				for r, got := range y {
					d := blockq.F16ToF32(binary.LittleEndian.Uint16(src[r*stride:]))
					q := code(r, i)
					if want := d*float32(q-off) + 0; bits(got) != bits(want) {
						t.Fatalf("%v %v: scale %x, code %d: %x, want %x", s, ty, d, q, got, want)
					}
				}
			}
		}
	}
}
