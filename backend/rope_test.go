package backend_test

import (
	"math"
	"slices"
	"testing"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor/tensortest"
)

func newRoPE(t testing.TB, theta float64, width int, s backend.Scaling, div []float32) *backend.RoPE {
	t.Helper()
	r, err := backend.NewRoPE(theta, width, s, div)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Engines disagree about the factor of yarn when mscale and mscale_all_dim are
// both 1; the choice here is that of transformers.
func TestYarnFactor(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    backend.Scaling
		want float64
	}{
		{"the pair, both 1", backend.Scaling{MScale: 1, MScaleAllDim: 1}, 1},
		{"without the pair", backend.Scaling{}, 1.2772588722239782},
		{"mscale alone", backend.Scaling{MScale: 1}, 1.2772588722239782},
		{"a pair that differs", backend.Scaling{MScale: 1, MScaleAllDim: 0.5}, 1.2772588722239782 / 1.138629436111989},
		{"attention_factor", backend.Scaling{AttentionFactor: 0.75}, 0.75},
		{"attention_factor beside the pair", backend.Scaling{AttentionFactor: 0.75, MScale: 1, MScaleAllDim: 1}, 0.75},
	} {
		tt.s.Type, tt.s.Factor, tt.s.Original = "yarn", 16, 4096
		if got := newRoPE(t, 1e4, 64, tt.s, nil).Factor; got != float32(tt.want) {
			t.Errorf("%s: factor %v, want %v", tt.name, got, float32(tt.want))
		}
	}
	s := backend.Scaling{Type: "yarn", Factor: 1, Original: 4096}
	if got := newRoPE(t, 1e4, 64, s, nil).Factor; got != 1 {
		t.Errorf("yarn by 1 has factor %v", got)
	}
}

// The factor counts, whatever the ratio of the two lengths in a config
// says: 131072/32768 = 4 agrees with the factor, 40960/32768 does not, and
// neither is looked at.
func TestYarnFactorDecides(t *testing.T) {
	yarn := func(f float64) *backend.RoPE {
		return newRoPE(t, 1e6, 128, backend.Scaling{Type: "yarn", Factor: f, Original: 32768}, nil)
	}
	four, plain := yarn(4), newRoPE(t, 1e6, 128, backend.Scaling{}, nil)
	last := len(four.Inv) - 1
	if four.Inv[0] != plain.Inv[0] {
		t.Errorf("the fastest frequency is %v, want it untouched: %v", four.Inv[0], plain.Inv[0])
	}
	if four.Inv[last] != plain.Inv[last]/4 {
		t.Errorf("the slowest frequency is %v, want a quarter of %v", four.Inv[last], plain.Inv[last])
	}
	if d := tensortest.DiffBits(four.Inv, yarn(1.25).Inv); d == "" {
		t.Error("the factor changes nothing")
	}
}

// No table may come from memory that nobody filled: frequencies are
// positive, fall strictly, and agree with a second evaluation in float64, but for the
// exponent that numerics.md 6 rounds to float32.
func TestFrequencies(t *testing.T) {
	for _, theta := range []float64{1e4, 5e5, 1e6, 5e6, 1e7} {
		for _, width := range []int{2, 16, 32, 64, 96, 128, 256} {
			r := newRoPE(t, theta, width, backend.Scaling{}, nil)
			if len(r.Inv) != width/2 || r.Inv[0] != 1 || r.Factor != 1 {
				t.Fatalf("theta %g, width %d: %d frequencies from %v, factor %v", theta, width, len(r.Inv), r.Inv[0], r.Factor)
			}
			for i, f := range r.Inv {
				want := math.Pow(theta, -float64(2*i)/float64(width))
				if i > 0 && !(f < r.Inv[i-1]) || !(math.Abs(float64(f)-want) < 1e-6*want) {
					t.Errorf("theta %g, width %d: frequency %d is %v, want about %v", theta, width, i, f, want)
				}
			}
		}
	}
}

// A factor of one, and a band that a formula leaves alone, keep their bits.
func TestScalingByOne(t *testing.T) {
	plain := newRoPE(t, 5e5, 128, backend.Scaling{}, nil)
	ones := slices.Repeat([]float32{1}, 64)
	for name, r := range map[string]*backend.RoPE{
		"linear":   newRoPE(t, 5e5, 128, backend.Scaling{Type: "linear", Factor: 1}, nil),
		"yarn":     newRoPE(t, 5e5, 128, backend.Scaling{Type: "yarn", Factor: 1, Original: 8192}, nil),
		"llama3":   newRoPE(t, 5e5, 128, backend.Scaling{Type: "llama3", Factor: 1, LowFreqFactor: 1, HighFreqFactor: 4, Original: 8192}, nil),
		"divisors": newRoPE(t, 5e5, 128, backend.Scaling{}, ones),
		"default":  newRoPE(t, 5e5, 128, backend.Scaling{Type: "default"}, nil),
	} {
		if d := tensortest.DiffBits(plain.Inv, r.Inv); d != "" {
			t.Errorf("%s by 1 changes frequencies: %s", name, d)
		}
	}
	three := slices.Repeat([]float32{3}, 64)
	for i, f := range newRoPE(t, 5e5, 128, backend.Scaling{}, three).Inv {
		if f != plain.Inv[i]/3 {
			t.Errorf("divisor 3: frequency %d is %v, want %v", i, f, plain.Inv[i]/3)
		}
	}
}

func TestAngles(t *testing.T) {
	r := newRoPE(t, 1e6, 64, backend.Scaling{Type: "yarn", Factor: 4, Original: 32768}, nil)
	cos, sin := make([]float32, 32), make([]float32, 32)
	r.Angles(cos, sin, 0)
	for i := range cos {
		if cos[i] != r.Factor || sin[i] != 0 {
			t.Errorf("position 0, pair %d: %v, %v", i, cos[i], sin[i])
		}
	}
	r.Angles(cos, sin, 12345)
	for i, f := range r.Inv {
		s, c := canon.SinCos(12345 * f)
		if cos[i] != c*r.Factor || sin[i] != s*r.Factor {
			t.Errorf("pair %d: %v, %v", i, cos[i], sin[i])
		}
	}
}

// Positions up to 2^24 are allowed, and the first pair turns by one radian each.
func TestFarAngles(t *testing.T) {
	r := newRoPE(t, 1e4, 8, backend.Scaling{}, nil)
	cos, sin := make([]float32, 4), make([]float32, 4)
	for _, p := range []int{1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20, 1<<24 - 1} {
		r.Angles(cos, sin, p)
		for i, f := range r.Inv {
			a := float64(float32(p) * f)
			// math.Sin may be off by some 2^-53; float32 has 2^-24.
			if d := math.Abs(float64(sin[i]) - math.Sin(a)); d > 0x1.01p-25 {
				t.Errorf("position %d, pair %d: sine %v, want %v", p, i, sin[i], math.Sin(a))
			}
			if d := math.Abs(float64(cos[i]) - math.Cos(a)); d > 0x1.01p-25 {
				t.Errorf("position %d, pair %d: cosine %v, want %v", p, i, cos[i], math.Cos(a))
			}
		}
	}
}

func TestNewRoPERefuses(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for i, tt := range []struct {
		theta float64
		width int
		s     backend.Scaling
		div   []float32
	}{
		{theta: 1e4, width: 0}, {theta: 1e4, width: -2}, {theta: 1e4, width: 7}, {theta: 1e4, width: 1 << 17},
		{theta: 0, width: 8}, {theta: -1, width: 8}, {theta: inf, width: 8}, {theta: nan, width: 8}, {theta: 1e300, width: 64}, {theta: 1e-300, width: 64},
		{theta: 1e4, width: 8, div: []float32{1, 1, 1}}, {theta: 1e4, width: 8, div: []float32{1, 0, 1, 1}}, {theta: 1e4, width: 8, div: []float32{1, 1, 1, float32(nan)}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "dynamic", Factor: 2}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "linear"}}, {theta: 1e4, width: 8, s: backend.Scaling{Type: "linear", Factor: 0.5}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "linear", Factor: nan}}, {theta: 1e4, width: 8, s: backend.Scaling{Type: "linear", Factor: inf}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 1, Original: 8192}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: inf, Original: 8192}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "yarn", Factor: 8}},
		{theta: 1, width: 8, s: backend.Scaling{Type: "yarn", Factor: 8, Original: 4096}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "yarn", Factor: 8, Original: inf}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "yarn", Factor: 8, Original: 4096, BetaFast: -1}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "yarn", Factor: 8, Original: 4096, MScale: nan, MScaleAllDim: 1}},
		{theta: 1e4, width: 8, s: backend.Scaling{Type: "yarn", Factor: 8, Original: 4096, AttentionFactor: nan}},
	} {
		if r, err := backend.NewRoPE(tt.theta, tt.width, tt.s, tt.div); err == nil || r != nil {
			t.Errorf("case %d, %+v: got %v, %v", i, tt, r, err)
		}
	}
}

func FuzzNewRoPE(f *testing.F) {
	f.Add(1e4, 8, uint8(0), 4.0, 1.0, 4.0, 4096.0, 32.0, 1.0, 0.0)
	f.Add(1e6, 64, uint8(3), 4.0, 1.0, 4.0, 32768.0, 32.0, 1.0, 1.0)
	f.Add(1.0000001, 2, uint8(3), 1.0, 1e-30, 1e30, 1e-30, 1e-30, 1e30, 1e30)
	f.Fuzz(func(t *testing.T, theta float64, width int, kind uint8, factor, low, high, orig, fast, slow, m float64) {
		if width > 64 {
			width = width%64 + 2
		}
		s := backend.Scaling{Type: []string{"", "linear", "llama3", "yarn"}[kind%4], Factor: factor, LowFreqFactor: low, HighFreqFactor: high,
			Original: orig, BetaFast: fast, BetaSlow: slow, MScale: m, MScaleAllDim: high}
		r, err := backend.NewRoPE(theta, width, s, nil)
		if err != nil {
			if r != nil {
				t.Fatal("a table in spite of an error")
			}
			return
		}
		for i, v := range append(r.Inv, r.Factor) {
			if v != v || v < 0 || v > math.MaxFloat32 {
				t.Fatalf("%+v of base %v, width %d: entry %d is %v", s, theta, width, i, v)
			}
		}
	})
}

// Frequencies whose angles leave the range of a float32, or of an exact reduction,
// are refused when the table is made: the angles of a pass must not fail.
func TestRoPEFrequencies(t *testing.T) {
	for _, c := range []struct {
		theta   float64
		divisor float32
	}{{1e-38, 1}, {1e-8, 1}, {1e4, 1e-30}, {1e4, 0x1p-21}} {
		if _, err := backend.NewRoPE(c.theta, 128, backend.Scaling{}, slices.Repeat([]float32{c.divisor}, 64)); err == nil {
			t.Errorf("base %v with divisors %v is accepted", c.theta, c.divisor)
		}
	}
	r, err := backend.NewRoPE(1e4, 128, backend.Scaling{}, slices.Repeat([]float32{0x1p-20}, 64))
	if err != nil {
		t.Fatal(err)
	}
	var cos, sin [64]float32
	r.Angles(cos[:], sin[:], 1<<24-1)
	for i := range cos {
		if s := float64(cos[i])*float64(cos[i]) + float64(sin[i])*float64(sin[i]); !(math.Abs(s-1) < 1e-6) {
			t.Errorf("pair %d: cos %v, sin %v", i, cos[i], sin[i])
		}
	}
}
