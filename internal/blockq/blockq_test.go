package blockq

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand"
	"os"
	"strings"
	"testing"
)

// goldens reads the raw bytes of every tensor of a safetensors file.
func goldens(t *testing.T) map[string][]byte {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/models/gguf/dequant.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(raw)
	var head map[string]struct {
		Off [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(raw[8:8+n], &head); err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for k, v := range head {
		out[k] = raw[8+n:][v.Off[0]:v.Off[1]]
	}
	return out
}

func floats(b []byte) []float32 {
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}

func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func TestDequantGoldens(t *testing.T) {
	g := goldens(t)
	for _, ty := range Types() {
		raw, want := g[ty.String()+".raw"], floats(g[ty.String()+".values"])
		if len(raw) == 0 || len(raw) != ty.RowBytes(len(want)) {
			t.Fatalf("%v: %d bytes for %d values", ty, len(raw), len(want))
		}
		got := make([]float32, len(want))
		Dequant(got, raw, ty)
		for i := range want {
			if !same(got[i], want[i]) {
				t.Fatalf("%v[%d] = %x, want %x", ty, i, got[i], want[i])
			}
		}
	}
}

func TestHalfGoldens(t *testing.T) {
	g := goldens(t)
	for name, to := range map[string]func(uint16) float32{"F16": F16ToF32, "BF16": BF16ToF32} {
		raw, want := g[name+".raw"], floats(g[name+".values"])
		for i := range want {
			if got := to(binary.LittleEndian.Uint16(raw[2*i:])); !same(got, want[i]) {
				t.Fatalf("%s[%d] = %x, want %x", name, i, got, want[i])
			}
		}
	}
	for name, to := range map[string]func(float32) uint16{"F16": F32ToF16, "BF16": F32ToBF16} {
		x, raw := floats(g["quant."+name+".x"]), g["quant."+name+".raw"]
		for i := range x {
			if got, want := to(x[i]), binary.LittleEndian.Uint16(raw[2*i:]); got != want {
				t.Fatalf("%s(%x) = %#04x, want %#04x", name, x[i], got, want)
			}
		}
	}
}

func TestQuantizeGoldens(t *testing.T) {
	g := goldens(t)
	for _, ty := range []Type{Q8_0, Q4_0, Q4_1, Q5_0, Q5_1} {
		x, want := floats(g["quant."+ty.String()+".x"]), g["quant."+ty.String()+".raw"]
		got := make([]byte, len(want))
		if err := Quantize(got, x, ty); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%v: byte %d (block %d) = %#x, want %#x", ty, i, i/ty.BlockBytes(), got[i], want[i])
				}
			}
		}
	}
}

// Every half comes back, and the middle between two halves goes to the even one.
func TestHalfRoundTrip(t *testing.T) {
	for h := range 1 << 16 {
		h := uint16(h)
		f := F16ToF32(h)
		if f == f && F32ToF16(f) != h {
			t.Fatalf("half %#04x -> %x -> %#04x", h, f, F32ToF16(f))
		}
		if b := BF16ToF32(h); b == b && F32ToBF16(b) != h {
			t.Fatalf("bf16 %#04x -> %x -> %#04x", h, b, F32ToBF16(b))
		}
		if h&0x7fff < 0x7bff {
			mid := (f + F16ToF32(h+1)) / 2
			if got := F32ToF16(mid); got != (h+1)&^1 {
				t.Fatalf("middle above %#04x -> %#04x", h, got)
			}
		}
	}
	for _, c := range []struct {
		f float32
		h uint16
	}{{65519.996, 0x7bff}, {65520, 0x7c00}, {-1e10, 0xfc00}, {0x1p-25, 0}, {0x1.000002p-25, 1}} {
		if got := F32ToF16(c.f); got != c.h {
			t.Errorf("F32ToF16(%x) = %#04x, want %#04x", c.f, got, c.h)
		}
	}
}

// A value that a block can represent exactly survives; NaN and Inf do not trap.
func TestQuantizeLaws(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	for _, ty := range []Type{Q8_0, Q4_0, Q4_1, Q5_0, Q5_1} {
		for range 200 {
			x := make([]float32, 64)
			s := math.Ldexp(1, rng.Intn(14)-4) // scales stay normal halves
			for i := range x {
				x[i] = float32((rng.Float64()*2 - 1) * s)
			}
			raw, back := make([]byte, ty.RowBytes(64)), make([]float32, 64)
			if err := Quantize(raw, x, ty); err != nil {
				t.Fatal(err)
			}
			Dequant(back, raw, ty)
			for i := range x {
				// half a step, plus the half-precision scale and offset
				tol := map[Type]float64{Q8_0: .0046, Q4_0: .14, Q4_1: .08, Q5_0: .07, Q5_1: .04}[ty] * s
				if e := math.Abs(float64(x[i] - back[i])); e > tol+1e-7 {
					t.Fatalf("%v: %g came back as %g (scale %g)", ty, x[i], back[i], s)
				}
			}
		}
		odd := make([]float32, 32)
		odd[0], odd[5], odd[6] = float32(math.NaN()), float32(math.Inf(1)), 0x1p-149
		if err := Quantize(make([]byte, 34), odd, ty); err != nil {
			t.Fatal(err)
		}
	}
}

func TestQuantizeErrors(t *testing.T) {
	for _, c := range []struct {
		dst, src int
		t        Type
		want     string
	}{
		{84, 256, Q2_K, "no encoder"},
		{34, 31, Q8_0, "not a multiple"},
		{33, 32, Q8_0, "34 are needed"},
		{33, 32, Type(99), "Type(99)"},
	} {
		err := Quantize(make([]byte, c.dst), make([]float32, c.src), c.t)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v does not say %q", c.t, err, c.want)
		}
	}
}
