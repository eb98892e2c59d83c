package tensortest

import (
	"math"
	"slices"
	"strings"
	"testing"

	"samebit/tensor"
)

func TestDiffBits(t *testing.T) {
	nan, nan2 := float32(math.NaN()), math.Float32frombits(0xffc12345)
	zero, minus := float32(0), math.Float32frombits(1<<31)
	if d := DiffBits([]float32{1, nan, zero}, []float32{1, nan2, zero}); d != "" {
		t.Errorf("equal values differ: %s", d)
	}
	d := DiffBits([]float32{1, zero, 2, 3, 4, 5, nan}, []float32{1, minus, math.Nextafter32(2, 3), 4, 5, 6, 7})
	for _, s := range []string{"6 of 7", "[1] want 00000000", "got 80000000", "1 ulp", "[5]"} {
		if !strings.Contains(d, s) {
			t.Errorf("the report lacks %q:\n%s", s, d)
		}
	}
	if strings.Contains(d, "[6]") {
		t.Errorf("the report goes on after five places:\n%s", d)
	}
	if d := DiffBits([]float32{1}, nil); d == "" {
		t.Error("another length must differ")
	}
}

func TestGuarded(t *testing.T) {
	for _, dim := range [][]int{{5}, {3, 4}, {1, 1}, {2, 3, 4}, {0, 3}} {
		for pad := range 4 {
			g := NewGuarded(pad, dim...)
			x, err := g.On(tensor.Bytes(g.Raw()))
			if err != nil || !x.Valid() || x.Dims() != len(dim) {
				t.Fatalf("%v: %v, %v", dim, x, err)
			}
			want := NewRand(1).F32(Ordinary, x.Len())
			g.Set(want)
			if d := DiffBits(want, g.Values()); d != "" {
				t.Fatal(d)
			}
			var got []float32
			walk(x, func(v []float32) { got = append(got, v...) })
			if d := DiffBits(want, got); d != "" {
				t.Errorf("%v: the view sees other values: %s", dim, d)
			}
			if s := g.Check(); s != "" {
				t.Errorf("%v: %s", dim, s)
			}
			if pad > 0 && len(dim) > 1 && dim[0] > 1 {
				r := x
				for r.Dims() > 2 {
					r = r.Index(0)
				}
				if row := r.Row(0); row != nil {
					row[:len(row)+1][len(row)] = 0
					if s := g.Check(); s == "" {
						t.Errorf("%v: a write between rows was not noticed", dim)
					}
				}
			}
		}
	}
}

func walk(x tensor.Tensor, f func([]float32)) {
	if x.Dims() == 1 {
		v, _ := x.F32()
		f(v)
		return
	}
	for i := range x.Dim(0) {
		walk(x.Index(i), f)
	}
}

func TestRand(t *testing.T) {
	if a, b := NewRand(1, "x").F32(Wide, 50), NewRand(1, "x").F32(Wide, 50); !slices.Equal(a, b) {
		t.Error("equal seeds give different data")
	}
	r := NewRand(2)
	for range 1000 {
		if n := r.Between(3, 5); n < 3 || n > 5 {
			t.Fatalf("Between(3, 5) gave %d", n)
		}
		for _, v := range r.F32(Ordinary, 3) {
			if !(v >= -4 && v <= 4) {
				t.Fatalf("ordinary value %v", v)
			}
		}
	}
	seen := map[bool]int{}
	for _, v := range r.F32(MinusZeros, 300) {
		if v == 0 {
			seen[math.Signbit(float64(v))]++
		}
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Error("both zeros must occur")
	}
}
