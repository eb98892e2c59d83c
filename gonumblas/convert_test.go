package gonumblas

import (
	"strings"
	"testing"

	"gonum.org/v1/gonum/blas/blas32"

	"samebit/tensor"
)

func numbered(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i)
	}
	return v
}

func TestGeneralOfViews(t *testing.T) {
	v := numbered(20)
	whole, err := tensor.FromF32(v, 4, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		t          tensor.Tensor
		rows, cols int
		first      float32
	}{
		{"whole", whole, 4, 5, 0},
		{"columns", whole.Cols(1, 4), 4, 3, 1},
		{"rows", whole.Rows(1, 3), 2, 5, 5},
		{"one row", whole.Rows(2, 3).Cols(1, 3), 1, 2, 11},
		{"corner", whole.Rows(2, 4).Cols(3, 5), 2, 2, 13},
		{"no rows", whole.Rows(4, 4), 0, 5, 0},
		{"no columns", whole.Cols(2, 2), 4, 0, 0},
	} {
		g, err := General(c.t)
		if err != nil || g.Rows != c.rows || g.Cols != c.cols || g.Stride < max(1, g.Cols) {
			t.Errorf("%s: %+v, %v", c.name, g, err)
			continue
		}
		for i := range g.Rows {
			for j := range g.Cols {
				if got, want := g.Data[i*g.Stride+j], c.first+float32(5*i+j); got != want {
					t.Errorf("%s: element %d,%d is %g, want %g", c.name, i, j, got, want)
				}
			}
		}
		back, err := Tensor(g)
		if err != nil || back.Dims() != 2 || back.Dim(0) != c.rows || back.Dim(1) != c.cols {
			t.Errorf("%s: back %v, %v", c.name, back, err)
			continue
		}
		for i := range c.rows {
			for j, got := range back.Row(i) {
				if want := c.first + float32(5*i+j); got != want {
					t.Errorf("%s: back element %d,%d is %g, want %g", c.name, i, j, got, want)
				}
			}
		}
	}
}

// Both ways the memory is shared.
func TestConversionsShareMemory(t *testing.T) {
	g := blas32.General{Rows: 3, Cols: 2, Stride: 4, Data: numbered(10)} // ends with its last element
	x, err := Tensor(g)
	if err != nil {
		t.Fatal(err)
	}
	x.Row(2)[1] = 99
	if g.Data[9] != 99 {
		t.Error("Tensor copied the matrix")
	}
	h, err := General(x)
	if err != nil {
		t.Fatal(err)
	}
	h.Data[0] = 98
	if g.Data[0] != 98 || h.Stride != 4 {
		t.Errorf("General copied the tensor: %+v", h)
	}
	column, err := Vector(x.Cols(1, 2))
	if err != nil || column.N != 3 || column.Inc != 4 {
		t.Fatalf("column: %+v, %v", column, err)
	}
	if got := fastest().b.Sdot(3, column.Data, column.Inc, []float32{1, 1, 1}, 1); got != 1+5+99 {
		t.Errorf("sum of a column is %g", got)
	}
}

func TestConversionErrors(t *testing.T) {
	ids, err := tensor.FromI32(make([]int32, 4), 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	cube, err := tensor.FromF32(make([]float32, 8), 2, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]tensor.Tensor{"invalid": {}, "integers": ids, "three axes": cube} {
		if g, err := General(x); err == nil || !strings.HasPrefix(err.Error(), "gonumblas: ") {
			t.Errorf("General of %s: %+v, %v", name, g, err)
		}
		if v, err := Vector(x); err == nil || !strings.HasPrefix(err.Error(), "gonumblas: ") {
			t.Errorf("Vector of %s: %+v, %v", name, v, err)
		}
	}
	for name, g := range map[string]blas32.General{
		"negative rows": {Rows: -1, Cols: 2, Stride: 2},
		"short stride":  {Rows: 2, Cols: 2, Stride: 1, Data: make([]float32, 4)},
		"short data":    {Rows: 2, Cols: 2, Stride: 3, Data: make([]float32, 4)},
		"zero stride":   {},
	} {
		if x, err := Tensor(g); err == nil || !strings.HasPrefix(err.Error(), "gonumblas: ") {
			t.Errorf("Tensor of %s: %v, %v", name, x, err)
		}
	}
}
