package gemm

import (
	"math"
	"testing"

	"samebit/backend/cpu/internal/gemm/internal/golden"
	"samebit/backend/cpu/internal/isa"
)

func TestGoldenMatmul(t *testing.T) {
	for op, dt := range map[string]DType{"matmul_nt": F32, "matmul_nt_bf16w": BF16} {
		for _, c := range golden.Cases(t, "../../../../testdata/numerics", op) {
			m, n, k := c.Params["m"], c.Params["n"], c.Params["k"]
			size := 2
			if dt == F32 {
				size = 4
			}
			w := &matrix{dt: dt, rows: n, k: k, stride: k * size, raw: c.Bytes(t, "b")}
			a, want := c.Floats(t, "a"), c.Floats(t, "c")
			for _, s := range isa.Available() {
				got := product(t, s, a, k, m, k, w, n, 1)
				cod := Codec(s, dt)
				y := make([]float32, (n+width-1)/width*width)
				for i := range m {
					cod.Gemv(y, a[i*k:(i+1)*k], w.pack(&cod), k)
					for j := range n {
						if g := got[i*n+j]; !same(g, want[i*n+j]) || !same(y[j], want[i*n+j]) {
							t.Fatalf("%v %s %dx%dx%d: C[%d,%d] = %08x (tile), %08x (gemv), want %08x", s, op, m, n, k, i, j,
								math.Float32bits(g), math.Float32bits(y[j]), math.Float32bits(want[i*n+j]))
						}
					}
				}
			}
		}
	}
}

// The sums of a chain can end at -0; a DOT cannot.
func TestNeverMinusZero(t *testing.T) {
	tiny := float32(math.Ldexp(1, -80))
	for _, s := range isa.Available() {
		for _, dt := range []DType{F32, BF16} {
			w := &matrix{dt: dt, rows: 1, k: 3, stride: 12, raw: make([]byte, 12)}
			for i := range 3 {
				bits := math.Float32bits(-tiny)
				if dt == BF16 {
					w.raw[2*i], w.raw[2*i+1] = byte(bits>>16), byte(bits>>24)
				} else {
					w.raw[4*i], w.raw[4*i+1], w.raw[4*i+2], w.raw[4*i+3] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24)
				}
			}
			c := product(t, s, []float32{tiny, tiny, tiny}, 3, 1, 3, w, 1, 1)
			if math.Float32bits(c[0]) != 0 {
				t.Errorf("%v %v: %08x, want +0", s, dt, math.Float32bits(c[0]))
			}
		}
	}
}
