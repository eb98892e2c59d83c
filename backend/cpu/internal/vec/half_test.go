package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"samebit/internal/canon/canontest"
)

// All 16-bit patterns widen alike and come back; narrowing rounds alike, to
// the nearest of all halves.
func TestHalf(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		h := make([]uint16, 1<<16)
		for i := range h {
			h[i] = uint16(i)
		}
		x, want := make([]float32, len(h)), make([]float32, len(h))
		back := make([]uint16, len(h))
		k.WidenBF16(x, h)
		generic.WidenBF16(want, h)
		if d := canontest.Diff(x, want); d != "" {
			t.Errorf("WidenBF16:\n%s", d)
		}
		k.NarrowBF16(back, x)
		for i := range h {
			if back[i] != h[i] && x[i] == x[i] {
				t.Fatalf("bf16 %04x comes back as %04x", h[i], back[i])
			}
		}
		k.WidenF16(x, h)
		generic.WidenF16(want, h)
		if d := canontest.Diff(x, want); d != "" {
			t.Errorf("WidenF16:\n%s", d)
		}
		k.NarrowF16(back, x)
		for i := range h {
			if back[i] != h[i] && x[i] == x[i] {
				t.Fatalf("f16 %04x comes back as %04x", h[i], back[i])
			}
		}
		// between two halves: nearest, ties to even
		for i := range 0x7c00 - 1 {
			lo, hi := f16to32(uint16(i)), f16to32(uint16(i+1))
			mid := lo + (hi-lo)/2
			tie := uint16(i + i&1)
			for _, c := range []struct {
				x    float32
				want uint16
			}{{mid, tie}, {math.Nextafter32(mid, lo), uint16(i)}, {math.Nextafter32(mid, hi), uint16(i + 1)}} {
				if got := f16(c.x); got != c.want {
					t.Fatalf("f16(%08x) = %04x, want %04x", math.Float32bits(c.x), got, c.want)
				}
			}
		}
		const seed = 23
		r := rand.New(rand.NewPCG(seed, 3))
		for n := range 70 {
			x := fenced(t, n)
			fill(r, x)
			for i := range x {
				if r.IntN(2) == 0 { // halves' range and ties
					x[i] = math.Float32frombits(r.Uint32N(0x1f)<<23 + 0x33000000 | r.Uint32()&0x80001fff | r.Uint32()&0x7fe000)
				}
			}
			a, b := make([]uint16, n), make([]uint16, n)
			for name, f := range map[string]func(k *Kernels, dst []uint16, x []float32){
				"NarrowBF16": (*Kernels).NarrowBF16, "NarrowF16": (*Kernels).NarrowF16,
			} {
				f(k, a, x)
				f(&generic, b, x)
				if fmt.Sprint(a) != fmt.Sprint(b) {
					t.Fatalf("%s n=%d seed %d: %x, want %x of %x", name, n, seed, a, b, x)
				}
			}
		}
	})
}
