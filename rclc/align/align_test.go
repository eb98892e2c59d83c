package align_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"samebit/rclc/align"
)

func table(r *rand.Rand, n, h int) []float32 {
	v := make([]float32, n*h)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// The solution satisfies the normal equations, which a QR of the stacked system
// [Out; √λ I] gives by another way.
func TestRidge(t *testing.T) {
	for _, c := range []struct {
		vocab, hidden int
		lambda        float64
	}{{1, 1, 0}, {300, 7, 0}, {513, 33, 0.5}, {5, 9, 0.25}} {
		r := rand.New(rand.NewPCG(3, uint64(c.vocab)))
		out, in := table(r, c.vocab, c.hidden), table(r, c.vocab, c.hidden)
		got, err := align.Ridge(c.vocab, c.hidden, c.lambda, func(i int) ([]float32, []float32, error) {
			return out[i*c.hidden : (i+1)*c.hidden], in[i*c.hidden : (i+1)*c.hidden], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		lambda := c.lambda
		if lambda == 0 {
			lambda = align.Lambda
		}
		n := c.vocab + c.hidden
		a, b := mat.NewDense(n, c.hidden, nil), mat.NewDense(n, c.hidden, nil)
		for i := range out {
			a.Set(i/c.hidden, i%c.hidden, float64(out[i]))
			b.Set(i/c.hidden, i%c.hidden, float64(in[i]))
		}
		for i := range c.hidden {
			a.Set(c.vocab+i, i, math.Sqrt(lambda))
		}
		var qr mat.QR
		qr.Factorize(a)
		var want mat.Dense
		if err := qr.SolveTo(&want, false, b); err != nil {
			t.Fatal(err)
		}
		for i := range c.hidden {
			for o := range c.hidden {
				// 2⁻²⁴ of rounding to float32, and the square of the condition number
				// (below 1e3 here) times 2⁻⁵³.
				if g, w := float64(got[o*c.hidden+i]), want.At(i, o); math.Abs(g-w) > 1e-7*max(1, math.Abs(w)) {
					t.Fatalf("%d × %d: M[%d, %d] is %v, want %v", c.vocab, c.hidden, i, o, g, w)
				}
			}
		}
	}
}

// Tied embeddings of full rank need no map.
func TestTied(t *testing.T) {
	const h = 12
	out := table(rand.New(rand.NewPCG(1, 2)), 400, h)
	got, err := align.Ridge(400, h, 0, func(i int) ([]float32, []float32, error) { return out[i*h : (i+1)*h], nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		want := 0.0
		if i/h == i%h {
			want = 1
		}
		if math.Abs(float64(v)-want) > 1e-6 {
			t.Errorf("element %d, %d is %v", i/h, i%h, v)
		}
	}
}

func TestWrong(t *testing.T) {
	boom := errors.New("boom")
	row := func(v ...float32) func(int) ([]float32, []float32, error) {
		return func(int) ([]float32, []float32, error) { return v, nil, nil }
	}
	for _, c := range []struct {
		name          string
		vocab, hidden int
		lambda        float64
		rows          func(int) ([]float32, []float32, error)
		want          string
	}{
		{"no rows", 0, 2, 0, row(1, 2), "0 × 2"},
		{"negative ridge", 1, 2, -1, row(1, 2), "ridge -1"},
		{"NaN ridge", 1, 2, math.NaN(), row(1, 2), "ridge NaN"},
		{"short row", 1, 2, 0, row(1), "1 and 1 values, want 2"},
		{"not finite", 3, 2, 0, row(1, float32(math.Inf(1))), "row 0, column 1"},
		{"dependent", 3, 2, 1e-300, row(1, 1), "use a larger one"},
		{"failing reader", 1, 1, 0, func(int) ([]float32, []float32, error) { return nil, nil, boom }, "boom"},
	} {
		if _, err := align.Ridge(c.vocab, c.hidden, c.lambda, c.rows); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
