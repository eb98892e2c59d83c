package cpu

import (
	"encoding/binary"
	"math"
	"testing"

	"samebit/backend"
	"samebit/tensor"
)

// A float32 weight that holds bf16 values takes half the memory and gives the
// same bits; one other value anywhere keeps it in float32.
func TestNarrowing(t *testing.T) {
	d, err := New(Config{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range []struct{ n, k int }{{1, 1}, {33, 7}, {64, 129}, {95, 260}, {160, 64}} {
		raw := make([]byte, 4*c.n*c.k)
		for i := range c.n * c.k {
			binary.LittleEndian.PutUint16(raw[4*i+2:], uint16(0x3f80+i*37%200-i%3<<15))
		}
		pack := func() *weight {
			w, err := tensor.New(tensor.Bytes(raw), 0, tensor.F32, c.n, c.k)
			if err != nil {
				t.Fatal(err)
			}
			p, err := d.Pack(w, backend.UseLinear|backend.UseEmbed)
			if err != nil {
				t.Fatal(err)
			}
			return p.(*weight)
		}
		w := pack()
		if !w.narrowed || w.dt != tensor.F32 {
			t.Errorf("%dx%d of bf16 values: narrowed %v, type %v", c.n, c.k, w.narrowed, w.dt)
		}
		row := make([]float32, c.k)
		for n := range c.n {
			w.row(row, n)
			for i, v := range row {
				if want := binary.LittleEndian.Uint32(raw[4*(n*c.k+i):]); math.Float32bits(v) != want {
					t.Fatalf("%dx%d: weight [%d, %d] is %08x, want %08x", c.n, c.k, n, i, math.Float32bits(v), want)
				}
			}
		}
		d.Unpack(w)
		for _, at := range []int{0, c.n * c.k / 2, c.n*c.k - 1} {
			raw[4*at] = 1
			if w := pack(); w.narrowed {
				t.Errorf("%dx%d: value %d is no bf16, the weight was narrowed", c.n, c.k, at)
			}
			raw[4*at] = 0
		}
	}
}
