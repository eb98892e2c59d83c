package canon_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"samebit/internal/canon"
	"samebit/internal/canon/canontest"
)

func f(bits uint32) float32 { return math.Float32frombits(bits) }

func TestGoldensFMA(t *testing.T) {
	for _, c := range canontest.Cases(t, "fma") {
		a, b, z := c.In["a"].F32(), c.In["b"].F32(), c.In["c"].F32()
		got := make([]float32, len(a))
		for i := range a {
			got[i] = canon.FMA32(a[i], b[i], z[i])
		}
		if d := canontest.Diff(got, c.Out["r"].F32()); d != "" {
			t.Errorf("fma:\n%s", d)
		}
	}
}

var unary = map[string]func(float32) float32{
	"exp": canon.Exp, "sigmoid": canon.Sigmoid, "silu": canon.SiLU, "softplus": canon.Softplus,
	"log": canon.Log, "log1p01": canon.Log1p, "rsqrt": canon.Rsqrt,
}

func TestGoldensUnary(t *testing.T) {
	for op, fn := range unary {
		for _, c := range canontest.Cases(t, op) {
			x := c.In["x"].F32()
			got := make([]float32, len(x))
			for i := range x {
				got[i] = fn(x[i])
			}
			if d := canontest.Diff(got, c.Out["y"].F32()); d != "" {
				t.Errorf("%s:\n%s", op, d)
			}
		}
	}
}

// The worked examples of docs/numerics.md 14.
func TestWorkedExamples(t *testing.T) {
	for _, e := range [][4]uint32{
		{0x3f800001, 0x3f800001, 0xbf800002, 0x28800000},
		{0x33800800, 0x3f7ff001, 0x3f800000, 0x3f800001}, // a float64 FMA rounded again gives 3f800000
		{0x00000001, 0x3f000000, 0x00000001, 0x00000002},
		{0x00000001, 0x3f000000, 0, 0},
		{0x80000001, 0x3f000000, 0, 0x80000000},
		{0x7f7fffff, 0x40000000, 0xff7fffff, 0x7f7fffff},
		{0x3f800000, 0x80000000, 0, 0},
		{0x00000003, 0x3f000000, 0, 0x00000002}, // subnormals are numbers
	} {
		if got := canon.FMA32(f(e[0]), f(e[1]), f(e[2])); math.Float32bits(got) != e[3] {
			t.Errorf("FMA(%08x, %08x, %08x) = %08x, want %08x", e[0], e[1], e[2], math.Float32bits(got), e[3])
		}
	}
	check := func(op string, x, want uint32) {
		t.Helper()
		if got := math.Float32bits(unary[op](f(x))); got != want {
			t.Errorf("%s(%08x) = %08x, want %08x", op, x, got, want)
		}
	}
	for _, e := range [][5]uint32{
		{0x00000000, 0x3f800000, 0x3f000000, 0x00000000, 0x3f317218},
		{0x3f800000, 0x402df854, 0x3f3b26a8, 0x3f3b26a8, 0x3fa818f6},
		{0xbf800000, 0x3ebc5ab2, 0x3e89b2b1, 0xbe89b2b1, 0x3ea063d6},
		{0x40490fdb, 0x41b92024, 0x3f75653f, 0x4040bbb1, 0x404bc500},
		{0xc1200000, 0x383e6bce, 0x383e6997, 0xb9ee03fc, 0x383e6ab3},
		{0x42b17217, 0x7f7fff84, 0x3f800000, 0x42b17217, 0x42b17217},
		{0x42b17218, 0x7f800000, 0x3f800000, 0x42b17218, 0x42b17218},
		{0xc2aeac50, 0x007fffe6, 0x007fffe6, 0x83aeac2d, 0x007fffe6},
		{0xc2cff1b4, 0x00000001, 0x00000000, 0x80000000, 0x00000001},
		{0xc2cff1b5, 0x00000000, 0x00000000, 0x80000000, 0x00000000},
	} {
		for i, op := range []string{"exp", "sigmoid", "silu", "softplus"} {
			check(op, e[0], e[i+1])
		}
	}
	for x, want := range map[uint32]uint32{
		0x00000001: 0xc2ce8ed0, 0x00800000: 0xc2aeac50, 0x3f000000: 0xbf317218, 0x3f7fffff: 0xb3800000,
		0x3f800001: 0x33ffffff, 0x41200000: 0x40135d8e, 0x7f7fffff: 0x42b17218,
	} {
		check("log", x, want)
	}
	for x, want := range map[uint32]uint32{0x3dcccccd: 0x3dc331fc, 0x3f000000: 0x3ecf991f, 0x3f800000: 0x3f317218} {
		check("log1p01", x, want)
	}
	for i, want := range []uint32{0xbfb68000, 0xbffac000, 0x3fc10000, 0x3f798000} {
		if got := math.Float32bits(canontest.Gen(1, i)); got != want {
			t.Errorf("gen(1,%d) = %08x, want %08x", i, got, want)
		}
	}
}

// dot is numerics.md 2, written out for the worked examples.
func dot(x, y []float32, kb int) float32 {
	var total float32
	for b := 0; b < len(x); b += kb {
		var acc float32
		for k := b; k < min(b+kb, len(x)); k++ {
			acc = canon.FMA32(x[k], y[k], acc)
		}
		total += acc
	}
	return total
}

func TestWorkedDot(t *testing.T) {
	for k, want := range map[int][2]uint32{
		5: {0x3f803095, 0x3f803095}, 128: {0x418ca8ad, 0x418ca8ad}, 129: {0x4191b1e9, 0x4191b1e9},
		256: {0x420c4356, 0x420c4354}, 257: {0x420fcc74, 0x420fcc72}, 1000: {0x43064aa7, 0x43064a9d},
		4099: {0x4403f119, 0x4403f11d},
	} {
		x, y := make([]float32, k), make([]float32, k)
		for i := range x {
			x[i], y[i] = canontest.Gen(1, i)/3, canontest.Gen(2, i)
		}
		if got := math.Float32bits(dot(x, y, 128)); got != want[0] {
			t.Errorf("DOT K=%d: %08x, want %08x", k, got, want[0])
		}
		if got := math.Float32bits(canon.Dot(x, y)); got != want[0] {
			t.Errorf("canon.Dot K=%d: %08x, want %08x", k, got, want[0])
		}
		if got := math.Float32bits(dot(x, y, k)); got != want[1] {
			t.Errorf("unblocked chain K=%d: %08x, want %08x", k, got, want[1])
		}
	}
	tiny := []float32{0x1p-80, 0x1p-80, 0x1p-80}
	if got := dot(tiny, []float32{-0x1p-80, -0x1p-80, -0x1p-80}, 128); math.Float32bits(got) != 0 {
		t.Errorf("DOT of underflowing terms: %08x, want +0", math.Float32bits(got))
	}
}

// FMA32 against exact rationals, with sums built to lie near a tie.
func TestFMAExact(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 1))
	n := 60000
	if testing.Short() {
		n = 3000
	}
	for range n {
		a, b, c := hardFMA(r)
		got := canon.FMA32(a, b, c)
		want := exactFMA(a, b, c)
		if !canontest.Same(got, want) {
			t.Fatalf("seed %d: FMA(%08x, %08x, %08x) = %08x, want %08x", seed,
				math.Float32bits(a), math.Float32bits(b), math.Float32bits(c), math.Float32bits(got), math.Float32bits(want))
		}
	}
}

// exactFMA rounds a·b + c once, by math/big.
func exactFMA(a, b, c float32) float32 {
	for _, v := range []float32{a, b, c} {
		if v != v || math.IsInf(float64(v), 0) {
			return float32(math.FMA(float64(a), float64(b), float64(c)))
		}
	}
	x := func(v float32) *big.Float { return new(big.Float).SetPrec(700).SetFloat64(float64(v)) }
	s := x(a)
	s.Mul(s, x(b))
	s.Add(s, x(c))
	if s.Sign() == 0 {
		return float32(float64(a)*float64(b) + float64(c)) // zero: only its sign is left
	}
	y, _ := s.Float32()
	return y
}

// hardFMA draws operands: anything, or a product close to half a step of c.
func hardFMA(r *rand.Rand) (a, b, c float32) {
	a, b, c = f(r.Uint32()), f(r.Uint32()), f(r.Uint32())
	if r.IntN(3) == 0 {
		return
	}
	// c in [1,2), and a product of about ±2⁻²⁴, one rounding step's half.
	u := r.Uint32()
	a = f(0x33800000 | u&0xff<<r.IntN(16)&0x7fffff | r.Uint32()&1<<31)
	b = f(0x3f800000 - u>>24 + uint32(r.IntN(2))*uint32(r.IntN(64)))
	c = f(0x3f800000 | r.Uint32()&0x7fffff)
	e := int32(r.IntN(250) - 125)
	shift := func(v float32) float32 { return float32(math.Ldexp(float64(v), int(e))) }
	return shift(a), b, shift(c)
}

func BenchmarkFMA32(b *testing.B) {
	acc, x := float32(0.5), float32(0.999)
	for b.Loop() {
		for range 1000 {
			acc = canon.FMA32(acc, x, 0.25)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/FMA")
	sink = acc
}

func BenchmarkExp(b *testing.B) {
	for b.Loop() {
		for i := range 1000 {
			sink = canon.Exp(float32(i-500) / 50)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/exp")
}

var sink float32

// Power is within its rounding errors of the exact power, and follows its order.
func TestPower(t *testing.T) {
	for _, r := range []float64{0.25, 0.5, 0.85, float64(float32(0.9999)), 1 - 1.0/1024} {
		for n := 1; n < 3000; n += 1 + n/8 {
			got := canon.Power(r, n)
			want, _ := canon.BigPow(canon.Big(r), canon.Big(float64(n))).Float64()
			if e := math.Abs(got-want) / want; e > 4096*0x1p-53 && want > 0x1p-1000 {
				t.Fatalf("Power(%v, %d) = %v, want %v", r, n, got, want)
			}
		}
	}
	r := 0.3
	r2 := r * r
	if got, want := canon.Power(r, 5), r*(r2*r2); got != want {
		t.Errorf("Power(%v, 5) = %v, want %v", r, got, want)
	}
	if canon.Power(r, 0) != 1 {
		t.Error("the power of 0 is not 1")
	}
}
