package gradcheck

import (
	"math"
	"reflect"
	"strings"
	"testing"

	gtensor "gorgonia.org/tensor"
)

// seeds is how many draws of the inputs each test sees.
const seeds = 12

// each calls f with every case of every seed.
func each(t *testing.T, f func(t *testing.T, seed uint64, c *Case)) {
	n := uint64(seeds)
	if testing.Short() {
		n = 2
	}
	for seed := range n {
		cs := Cases(seed)
		for i := range cs {
			t.Run(cs[i].Name, func(t *testing.T) { f(t, seed, &cs[i]) })
		}
	}
}

// The two sources agree. See Tol64 and Tol32 for why they do so that far; values
// in float64 are a few roundings of 1.1e-16 apart, at most 4.4e-16 over 300 seeds.
func TestSourcesAgree(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, c *Case) {
		want := c.Central()
		g64, err := c.Gorgonia(gtensor.Float64)
		if err != nil {
			t.Fatal(err)
		}
		g32, err := c.Gorgonia(gtensor.Float32)
		if err != nil {
			t.Fatal(err)
		}
		if d := distance(want.Out, g64.Out); !(d <= 4e-15) {
			t.Errorf("seed %d: values in float64 are off by %.3g, tolerance 4e-15", seed, d)
		}
		if s := c.Diff(want, g64, Tol64); s != "" {
			t.Errorf("seed %d, central differences against gorgonia in float64:\n%s", seed, s)
		}
		if s := c.Diff(g64, g32, Tol32); s != "" {
			t.Errorf("seed %d, gorgonia in float64 against float32:\n%s", seed, s)
		}
	})
}

// One element that is off by 1e-8 of the largest, ten times Tol64, is noticed in
// every gradient, and so are NaN and gradients that are missing.
func TestFaultsAreNoticed(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, c *Case) {
		want := c.Central()
		for i, in := range c.In {
			if in.Fixed {
				if want.Grad[i] != nil {
					t.Errorf("seed %d: labels have a gradient", seed)
				}
				continue
			}
			scale := 0.0
			for _, v := range want.Grad[i] {
				scale = max(scale, math.Abs(v))
			}
			k := (7 * i) % len(in.Data)
			for _, bad := range []func(g []float64) []float64{
				func(g []float64) []float64 { g[k] += 1e-8 * scale; return g },
				func(g []float64) []float64 { g[k] = math.NaN(); return g },
				func(g []float64) []float64 { return g[1:] },
				func([]float64) []float64 { return nil },
			} {
				got := Result{want.Out, append([][]float64(nil), want.Grad...)}
				got.Grad[i] = bad(append([]float64(nil), want.Grad[i]...))
				if s := c.Diff(want, got, Tol64); !strings.Contains(s, "gradient of "+in.Name+" ") || strings.Count(s, "\n") != 1 {
					t.Errorf("seed %d: a fault in the gradient of %s is reported as %q", seed, in.Name, s)
				}
			}
		}
	})
}

// How a reverse mode is tested: its own gradients at the same point from the
// same seed. Here by loops in float64, where products and sums of such inputs are
// exact: gorgonia must agree in every bit, central differences within Tol64.
func TestMatMulByHand(t *testing.T) {
	c := Cases(3)[0]
	x, a, s := c.In[0].Data, c.In[1].Data, c.Seed
	hand := Result{c.At(nil), [][]float64{make([]float64, rows*width), make([]float64, width*inner)}}
	for r := range rows {
		for i := range width {
			for j := range inner {
				hand.Grad[0][r*width+i] += s[r*inner+j] * a[i*inner+j]
				hand.Grad[1][i*inner+j] += x[r*width+i] * s[r*inner+j]
			}
		}
	}
	g, err := c.Gorgonia(gtensor.Float64)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Diff(g, hand, 0); s != "" {
		t.Error(s)
	}
	if s := c.Diff(c.Central(), hand, Tol64); s != "" {
		t.Error(s)
	}
}

// Inputs are the same whenever they are drawn, fill their shapes and are float32.
func TestInputs(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, c *Case) {
		for _, again := range Cases(seed) {
			if again.Name == c.Name && !reflect.DeepEqual(again.In, c.In) {
				t.Errorf("seed %d: inputs differ from one draw to the next", seed)
			}
		}
		for _, in := range c.In {
			n := 1
			for _, d := range in.Dim {
				n *= d
			}
			if n != len(in.Data) {
				t.Errorf("%s has shape %v and %d elements", in.Name, in.Dim, len(in.Data))
			}
			for _, v := range in.Data {
				if float64(float32(v)) != v {
					t.Errorf("seed %d: %s holds %v, which is no float32", seed, in.Name, v)
				}
			}
		}
		if n := len(c.At(nil)); n != len(c.Seed) {
			t.Errorf("the result has %d elements, the seed %d", n, len(c.Seed))
		}
	})
}

// A type that gorgonia cannot differentiate is an error, no panic.
func TestUnknownType(t *testing.T) {
	if _, err := Cases(1)[0].Gorgonia(gtensor.Int); err == nil {
		t.Error("integers were differentiated")
	}
}
