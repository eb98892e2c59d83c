package canon

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The fast path must agree with the 256-bit evaluation wherever it decides.
func TestSinCosCorrectlyRounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	n := 20000
	if testing.Short() {
		n = 2000
	}
	for range n {
		a := float32(math.Ldexp(r.Float64()*2-1, r.IntN(44)-24))
		s, c := SinCos(a)
		ws, wc := sinCosBig(a)
		if s != ws || c != wc {
			t.Fatalf("SinCos(%v [%08x]) = %08x %08x, want %08x %08x", a, math.Float32bits(a),
				math.Float32bits(s), math.Float32bits(c), math.Float32bits(ws), math.Float32bits(wc))
		}
	}
}

func TestInvFreqExamples(t *testing.T) {
	for _, tt := range []struct {
		theta float64
		d, i  int
		want  uint32
	}{
		{1e6, 128, 0, 0x3f800000}, {1e6, 128, 1, 0x3f4e4bad}, {1e6, 128, 2, 0x3f263de0}, {1e6, 128, 3, 0x3f05f6ef}, {1e6, 128, 63, 0x35a68e4c},
		{1e7, 64, 1, 0x3f1ab32b}, {1e7, 64, 2, 0x3ebaf81b}, {1e7, 64, 3, 0x3e61f835}, {1e7, 64, 31, 0x3431af44},
	} {
		if got := math.Float32bits(InvFreq(tt.theta, tt.i, tt.d)); got != tt.want {
			t.Errorf("InvFreq(%g, %d, %d) = %08x, want %08x", tt.theta, tt.i, tt.d, got, tt.want)
		}
	}
}

func BenchmarkSinCos(b *testing.B) {
	x := float32(1)
	for b.Loop() {
		s, _ := SinCos(x)
		x += 1 + s
		if x > 100000 {
			x = 1
		}
	}
}
