// Package tensortest compares float32 results by their bits, guards outputs with
// canaries and makes seeded test data.
package tensortest

import (
	"fmt"
	"math"
	"strings"
)

// places is how many differences a report lists.
const places = 5

// DiffBits reports where got differs from want, with all NaNs equal: the number
// of places and, for the first five, the index, both bit patterns, both values
// and their distance in units in the last place. It returns "" for equal bits.
func DiffBits(want, got []float32) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%d values, want %d", len(got), len(want))
	}
	var b strings.Builder
	n := 0
	for i, w := range want {
		g := got[i]
		if Same(w, g) {
			continue
		}
		if n++; n <= places {
			fmt.Fprintf(&b, "  [%d] want %08x (%v) got %08x (%v), %s\n", i, math.Float32bits(w), w, math.Float32bits(g), g, ulps(w, g))
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d values differ:\n%s", n, len(want), b.String())
}

// DiffI32 is DiffBits for integers.
func DiffI32(want, got []int32) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%d values, want %d", len(got), len(want))
	}
	var b strings.Builder
	n := 0
	for i, w := range want {
		if w == got[i] {
			continue
		}
		if n++; n <= places {
			fmt.Fprintf(&b, "  [%d] want %d got %d\n", i, w, got[i])
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d values differ:\n%s", n, len(want), b.String())
}

// Same reports whether a and b have the same bits or are both NaN.
func Same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func ulps(a, b float32) string {
	if a != a || b != b {
		return "one is NaN"
	}
	d := order(a) - order(b)
	return fmt.Sprintf("%d ulp", max(d, -d))
}

// order numbers the floats from -Inf to +Inf; -0 lies one below +0.
func order(x float32) int64 {
	if u := int64(math.Float32bits(x)); u < 1<<31 {
		return u
	} else {
		return 1<<31 - 1 - u
	}
}

// Near reports where got lies farther than tol·(1 + |want|) from want, for
// oracles in float64. A want beyond float32 is met by the infinity of its sign,
// a NaN by NaN.
func Near(want []float64, got []float32, tol float64) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%d values, want %d", len(got), len(want))
	}
	worst, at := 0.0, -1
	for i, w := range want {
		g := float64(got[i])
		if w != w && g != g || float32(w) == got[i] {
			continue
		}
		d := math.Abs(g-w) / (1 + math.Abs(w))
		if d != d {
			d = math.Inf(1)
		}
		if d > worst {
			worst, at = d, i
		}
	}
	if worst <= tol {
		return ""
	}
	return fmt.Sprintf("value %d is %v, want %v: off by %.3g·(1+|want|), tolerance %.3g", at, got[at], want[at], worst, tol)
}
