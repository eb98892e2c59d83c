package interop

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	gtensor "gorgonia.org/tensor"

	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// All comparisons in this package are of bits: conversions do no arithmetic, so
// the tolerance is zero.

const seed = 20240607

// random returns a tensor with every kind of float32, NaN and -0 among them, and
// a view of the memory it lies in.
func random(t testing.TB, dim ...int) (tensor.Tensor, []float32) {
	t.Helper()
	v := tensortest.NewRand(seed, t.Name()).F32(tensortest.Specials, length(dim))
	x, err := tensor.FromF32(v, dim...)
	if err != nil {
		t.Fatal(err)
	}
	return x, v
}

// coords calls visit with every index of a shape, in row-major order.
func coords(dim []int, visit func(at []int)) {
	if slices.Contains(dim, 0) {
		return
	}
	at := make([]int, len(dim))
	for {
		visit(at)
		i := len(dim) - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < dim[i] {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// at reads one element of d by the function that gorgonia gets right everywhere.
func at(t testing.TB, d *gtensor.Dense, i ...int) float32 {
	t.Helper()
	v, err := d.At(i...)
	if err != nil {
		t.Fatalf("At(%v) of shape %v: %v", i, d.Shape(), err)
	}
	return v.(float32)
}

// elem reads one element of a tensor by Index.
func elem(x tensor.Tensor, i ...int) float32 {
	for _, k := range i[:len(i)-1] {
		x = x.Index(k)
	}
	v, _ := x.F32()
	return v[i[len(i)-1]]
}

// same compares shape and, through At, every element.
func same(t testing.TB, name string, x tensor.Tensor, d *gtensor.Dense) {
	t.Helper()
	if !slices.Equal(shape(x), d.Shape()) {
		t.Errorf("%s: shape %v became %v", name, shape(x), d.Shape())
		return
	}
	coords(d.Shape(), func(i []int) {
		if w, g := elem(x, i...), at(t, d, i...); math.Float32bits(w) != math.Float32bits(g) {
			t.Errorf("%s: element %v is %08x here, %08x there (seed %d)", name, i, math.Float32bits(w), math.Float32bits(g), seed)
		}
	})
}

func TestToGorgonia(t *testing.T) {
	x, _ := random(t, 7, 6, 5)
	m, _ := random(t, 9, 12)
	for _, tt := range []struct {
		name string
		x    tensor.Tensor
		gaps bool
	}{
		{"three axes", x, false},
		{"one axis", x.Index(3).Index(2), false},
		{"four axes", x.Reshape(7, 3, 2, 5), false},
		{"one element", m.Rows(4, 5).Cols(7, 8), false},
		{"rows", m.Rows(2, 7), false},
		{"one-row slice keeps its axis", m.Rows(8, 9), false},
		{"part of one row", m.Rows(3, 4).Cols(5, 8), false},
		{"heads", m.Heads(4, 3), false},
		{"column slice", m.Cols(2, 7), true},
		{"one column", m.Cols(11, 12), true},
		{"part of heads", m.Heads(4, 3).Cols(1, 3), true},
		{"one row of part of heads", m.Heads(4, 3).Cols(1, 3).Rows(5, 6), true},
	} {
		d, err := ToGorgonia(tt.x)
		if errors.Is(err, ErrGaps) != tt.gaps || (err == nil) == tt.gaps {
			t.Errorf("%s: error %v, want gaps refused: %v", tt.name, err, tt.gaps)
			continue
		}
		if !tt.gaps {
			same(t, tt.name, tt.x, d)
		}
		p, err := Pack(tt.x)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if d, err = ToGorgonia(p); err != nil {
			t.Errorf("%s, packed: %v", tt.name, err)
			continue
		}
		same(t, tt.name+", packed", tt.x, d)
	}
}

func TestToGorgoniaRefuses(t *testing.T) {
	ints, err := tensor.FromI32(make([]int32, 6), 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := random(t, 4, 3)
	for _, tt := range []struct {
		name string
		x    tensor.Tensor
		word string
	}{
		{"zero value", tensor.Tensor{}, "invalid"},
		{"integers", ints, "F32"},
		{"not in this process", x.On(far(48)), "addressable"},
		{"shape (0, n)", x.Rows(4, 4), "no elements"},
		{"shape (n, 0)", x.Cols(1, 1), "no elements"},
	} {
		if d, err := ToGorgonia(tt.x); err == nil || d != nil || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: %v, error %v, want one about %q", tt.name, d, err, tt.word)
		}
	}
	for _, v := range []tensor.Tensor{x.Rows(4, 4), x.Cols(1, 1)} {
		if p, err := Pack(v); err != nil || p.String() != v.String() {
			t.Errorf("Pack of %v gives %v, %v", v, p, err)
		}
	}
	if _, err := Pack(ints); err == nil {
		t.Error("Pack takes integers for float32")
	}
}

// far is a buffer on some device.
type far int

func (f far) Len() int     { return int(f) }
func (f far) Host() []byte { return nil }

// dense returns 4×5 numbers i.j as 10·i + j.
func dense() *gtensor.Dense {
	v := make([]float32, 20)
	for i := range v {
		v[i] = float32(10*(i/5) + i%5)
	}
	return gtensor.New(gtensor.WithShape(4, 5), gtensor.WithBacking(v))
}

func slice(t testing.TB, d *gtensor.Dense, s ...gtensor.Slice) *gtensor.Dense {
	t.Helper()
	v, err := d.Slice(s...)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*gtensor.Dense)
}

func transposed(t testing.TB, d *gtensor.Dense, axes ...int) *gtensor.Dense {
	t.Helper()
	if err := d.T(axes...); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestFromGorgonia(t *testing.T) {
	S := gtensor.S
	cube := gtensor.New(gtensor.WithShape(2, 3, 4), gtensor.WithBacking(gtensor.Range(gtensor.Float32, 0, 24)))
	moved := transposed(t, dense())
	if err := moved.Transpose(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		d    *gtensor.Dense
		want []float32 // by hand, where the shape is small
		gaps bool
	}{
		{"whole", dense(), nil, false},
		{"three axes", cube, nil, false},
		{"rows", slice(t, dense(), S(1, 3)), nil, false},
		{"one-row slice", slice(t, dense(), S(2)), []float32{20, 21, 22, 23, 24}, false},
		{"part of a row", slice(t, dense(), S(3), S(1, 4)), []float32{31, 32, 33}, false},
		{"one row of a column slice", slice(t, slice(t, dense(), nil, S(1, 3)), S(2)), []float32{21, 22}, false},
		{"column slice", slice(t, dense(), nil, S(1, 3)), []float32{1, 2, 11, 12, 21, 22, 31, 32}, true},
		{"one column", slice(t, dense(), nil, S(4)), []float32{4, 14, 24, 34}, true},
		{"columns of a cube", slice(t, cube, nil, nil, S(1, 3)), nil, true},
		{"transposed", transposed(t, dense()), nil, true},
		{"rows of transposed", slice(t, transposed(t, dense()), S(1, 3)), []float32{1, 11, 21, 31, 2, 12, 22, 32}, true},
		{"columns of transposed", slice(t, transposed(t, dense()), nil, S(2, 4)), []float32{20, 30, 21, 31, 22, 32, 23, 33, 24, 34}, true},
		{"one column of transposed is a row", slice(t, transposed(t, dense()), nil, S(3)), []float32{30, 31, 32, 33, 34}, false},
		{"one row of transposed is a column", slice(t, transposed(t, dense()), S(3)), []float32{3, 13, 23, 33}, true},
		{"axes exchanged", transposed(t, cube.Clone().(*gtensor.Dense), 1, 0, 2), nil, true},
		{"moved by Transpose", moved, nil, false},
		{"column-major", gtensor.New(gtensor.WithShape(2, 3), gtensor.AsFortran([]float32{1, 2, 3, 4, 5, 6})), nil, true},
		{"(n, 1)", gtensor.New(gtensor.WithShape(3, 1), gtensor.WithBacking([]float32{1, 2, 3})), []float32{1, 2, 3}, false},
		{"(n, 1) transposed", transposed(t, gtensor.New(gtensor.WithShape(3, 1), gtensor.WithBacking([]float32{1, 2, 3}))), []float32{1, 2, 3}, false},
	} {
		x, err := FromGorgonia(tt.d)
		if errors.Is(err, ErrGaps) != tt.gaps || (err == nil) == tt.gaps {
			t.Errorf("%s: error %v, want gaps refused: %v", tt.name, err, tt.gaps)
			continue
		}
		if !tt.gaps {
			same(t, tt.name, x, tt.d)
		}
		p, err := PackDense(tt.d)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if x, err = FromGorgonia(p); err != nil {
			t.Errorf("%s, packed: %v", tt.name, err)
			continue
		}
		same(t, tt.name+", packed", x, tt.d)
		if v, _ := x.F32(); tt.want != nil && !slices.Equal(v, tt.want) {
			t.Errorf("%s, packed: %v, want %v", tt.name, v, tt.want)
		}
	}
}

func TestFromGorgoniaWithoutAxes(t *testing.T) {
	for _, d := range []*gtensor.Dense{gtensor.New(gtensor.FromScalar(float32(23))), slice(t, dense(), gtensor.S(2), gtensor.S(3))} {
		x, err := FromGorgonia(d)
		if err != nil || !slices.Equal(shape(x), []int{1}) || elem(x, 0) != 23 {
			t.Errorf("shape %v became %v, %v", d.Shape(), x, err)
		}
	}
}

func TestFromGorgoniaEmpty(t *testing.T) {
	for _, dim := range [][]int{{0, 5}, {3, 0}, {0}} {
		d := gtensor.New(gtensor.WithShape(dim...), gtensor.WithBacking([]float32{}))
		x, err := FromGorgonia(d)
		if err != nil {
			t.Errorf("%v: %v", dim, err)
			continue
		}
		same(t, "empty", x, d)
		if _, err := d.At(make([]int, len(dim))...); err == nil {
			t.Errorf("%v: At finds an element", dim)
		}
		if _, err := PackDense(d); err == nil {
			t.Errorf("%v: PackDense makes a Dense without elements", dim)
		}
	}
}

func TestFromGorgoniaRefuses(t *testing.T) {
	masked := dense()
	if err := masked.MaskedEqual(float32(11)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		d    *gtensor.Dense
		word string
	}{
		{"nil", nil, "no Dense"},
		{"float64", gtensor.New(gtensor.WithShape(2), gtensor.WithBacking([]float64{1, 2})), "float64"},
		{"masked", masked, "mask"},
		{"five axes", gtensor.New(gtensor.WithShape(1, 2, 1, 1, 2), gtensor.WithBacking(make([]float32, 4))), "5 axes"},
		{"zero value", new(gtensor.Dense), "type"},
	} {
		if x, err := FromGorgonia(tt.d); err == nil || x.Valid() || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("FromGorgonia of %s: %v, error %v, want one about %q", tt.name, x, err, tt.word)
		}
		if d, err := PackDense(tt.d); tt.name != "five axes" && (err == nil || d != nil || !strings.Contains(err.Error(), tt.word)) {
			t.Errorf("PackDense of %s: error %v, want one about %q", tt.name, err, tt.word)
		}
	}
	// Shapes that gorgonia gets wrong: an empty slice is given the shape of one
	// row, a slice with a step that does not divide loses rows.
	for _, d := range []*gtensor.Dense{slice(t, dense(), gtensor.S(2, 2)), slice(t, dense(), gtensor.S(0, 4, 3))} {
		if x, err := FromGorgonia(d); err == nil {
			t.Errorf("shape %v with %d elements in memory became %v", d.Shape(), d.DataSize(), x)
		}
	}
	if d, err := PackDense(slice(t, dense(), gtensor.S(2, 2))); err == nil {
		t.Errorf("an empty slice was packed as %v", d.Shape())
	}
}

// What one side writes the other reads, in both directions and for views.
func TestShared(t *testing.T) {
	x, v := random(t, 5, 6)
	rows := x.Rows(1, 4)
	d, err := ToGorgonia(rows)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetAt(float32(-7), 2, 4); err != nil {
		t.Fatal(err)
	}
	if v[3*6+4] != -7 {
		t.Error("SetAt of the Dense does not reach the slice")
	}
	v[6] = 42
	if at(t, d, 0, 0) != 42 {
		t.Error("a write to the slice does not reach the Dense")
	}
	before := slices.Clone(v)
	if _, err := gtensor.Add(d, d, gtensor.UseUnsafe()); err != nil {
		t.Fatal(err)
	}
	for i, b := range before {
		if 6 <= i && i < 24 {
			b += b
		}
		if !tensortest.Same(b, v[i]) {
			t.Errorf("after adding in place element %d is %v, want %v", i, v[i], b)
		}
	}

	g := dense()
	y, err := FromGorgonia(slice(t, g, gtensor.S(2, 4)))
	if err != nil {
		t.Fatal(err)
	}
	y.Row(1)[3] = 5.5
	if at(t, g, 3, 3) != 5.5 {
		t.Error("a write to the tensor does not reach the Dense")
	}
	if err := g.SetAt(float32(6.5), 2, 0); err != nil {
		t.Fatal(err)
	}
	if y.Row(0)[0] != 6.5 {
		t.Error("SetAt of the Dense does not reach the tensor")
	}

	p, err := Pack(x)
	if err != nil {
		t.Fatal(err)
	}
	q, err := PackDense(g)
	if err != nil {
		t.Fatal(err)
	}
	p.Row(0)[0], v[0] = 1, 2
	if err := q.SetAt(float32(3), 0, 0); err != nil {
		t.Fatal(err)
	}
	if p.Row(0)[0] != 1 || at(t, g, 0, 0) != 0 {
		t.Error("copies share memory with what they were made from")
	}
}

// There and back is the same memory.
func TestThereAndBack(t *testing.T) {
	x, v := random(t, 3, 1, 7)
	d, err := ToGorgonia(x)
	if err != nil {
		t.Fatal(err)
	}
	y, err := FromGorgonia(d)
	if err != nil {
		t.Fatal(err)
	}
	w, _ := y.F32()
	if &w[0] != &v[0] || len(w) != len(v) || y.String() != x.String() {
		t.Errorf("%v came back as %v", x, y)
	}
}

// The other side alone must keep the memory alive.
func TestKeepsAlive(t *testing.T) {
	make1 := func(k int) (*gtensor.Dense, tensor.Tensor) {
		v := make([]float32, 1000)
		for i := range v {
			v[i] = float32(k + i)
		}
		x, err := tensor.FromF32(v, 10, 100)
		if err != nil {
			t.Fatal(err)
		}
		d, err := ToGorgonia(x)
		if err != nil {
			t.Fatal(err)
		}
		y, err := FromGorgonia(gtensor.New(gtensor.WithShape(1000), gtensor.WithBacking(slices.Clone(v))))
		if err != nil {
			t.Fatal(err)
		}
		return d, y
	}
	var ds []*gtensor.Dense
	var ys []tensor.Tensor
	for k := range 64 {
		d, y := make1(k)
		ds, ys = append(ds, d), append(ys, y)
		if k%16 == 0 {
			runtime.GC()
		}
	}
	for k := range ds {
		for i := range 1000 {
			if at(t, ds[k], i/100, i%100) != float32(k+i) || elem(ys[k], i) != float32(k+i) {
				t.Fatalf("tensor %d: element %d was overwritten", k, i)
			}
		}
	}
}
