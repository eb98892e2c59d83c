package canon

import (
	"math"
	"testing"
)

// erfUlps is how far Erf is from the value at x, in units of the last place.
func erfUlps(x float32) float64 {
	want := math.Erf(float64(x))
	e := math.Ilogb(want)
	if want == 0 {
		return 0
	}
	return math.Abs(float64(Erf(x))-want) / math.Ldexp(1, max(e, -126)-23)
}

func TestErf(t *testing.T) {
	worst, at := 0.0, float32(0)
	step := uint32(1009)
	if testing.Short() {
		step = 65537
	}
	for b := uint32(0); b < 0x41000000; b += step { // to 8; beyond, erf is 1
		if u := erfUlps(math.Float32frombits(b)); u > worst {
			worst, at = u, math.Float32frombits(b)
		}
	}
	t.Logf("largest error %.3f ulp at %x", worst, at)
	if worst > 1.1 {
		t.Errorf("error of %.3f ulp at %x, want at most 1.1", worst, at)
	}
	for _, c := range []struct{ x, want float32 }{
		{0, 0}, {float32(math.Copysign(0, -1)), float32(math.Copysign(0, -1))},
		{float32(math.Inf(1)), 1}, {float32(math.Inf(-1)), -1}, {10, 1}, {-10, -1},
	} {
		if got := Erf(c.x); math.Float32bits(got) != math.Float32bits(c.want) {
			t.Errorf("Erf(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if x := Erf(float32(math.NaN())); x == x {
		t.Error("Erf(NaN) is a number")
	}
}

func TestGELU(t *testing.T) {
	for _, x := range []float64{-3, -1.5, -0.25, 0.125, 0.5, 1, 2.75, 6} {
		want := x / 2 * (1 + math.Erf(x/math.Sqrt2))
		if got := GELU(float32(x)); math.Abs(float64(got)-want) > 3e-7*(1+math.Abs(want)) {
			t.Errorf("GELU(%v) = %v, want %v", x, got, want)
		}
	}
	if got := GELU(20); got != 20 {
		t.Errorf("GELU(20) = %v", got)
	}
}
