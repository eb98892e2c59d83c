package tensor_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"samebit/tensor"
)

// count returns 0, 1, 2, … viewed with the given shape.
func count(t testing.TB, dim ...int) tensor.Tensor {
	t.Helper()
	n := 1
	for _, d := range dim {
		n *= d
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i)
	}
	x, err := tensor.FromF32(v, dim...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// values lists the elements in order, whatever the strides.
func values(t tensor.Tensor) []float32 {
	if t.Dims() > 1 {
		var v []float32
		for i := range t.Dim(0) {
			v = append(v, values(t.Index(i))...)
		}
		return v
	}
	v, _ := t.F32()
	return slices.Clone(v)
}

func seq(at ...int) []float32 {
	v := make([]float32, len(at))
	for i := range v {
		v[i] = float32(at[i])
	}
	return v
}

func TestTensorIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(tensor.Tensor{}); n > 64 {
		t.Errorf("a Tensor has %d bytes, want at most 64: it is passed by value everywhere", n)
	}
}

func TestViews(t *testing.T) {
	x := count(t, 3, 8)
	for _, tt := range []struct {
		name string
		got  tensor.Tensor
		want []float32
		str  string
		flat bool
	}{
		{"rows", x.Rows(1, 3), seq(8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23), "F32[2 8]", true},
		{"no rows", x.Rows(3, 3), seq(), "F32[0 8]", true},
		{"cols", x.Cols(2, 4), seq(2, 3, 10, 11, 18, 19), "F32[3 2]", false},
		{"one row of cols", x.Cols(2, 4).Rows(1, 2), seq(10, 11), "F32[1 2]", true},
		{"query half of gated heads", x.Heads(2, 4).Cols(0, 2), seq(0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21), "F32[3 2 2]", false},
		{"gate half of gated heads", x.Heads(2, 4).Cols(2, 4), seq(2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23), "F32[3 2 2]", false},
		{"heads of cols", x.Cols(4, 8).Heads(2, 2), seq(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23), "F32[3 2 2]", false},
		{"index of gated heads", x.Heads(2, 4).Cols(0, 2).Index(1), seq(8, 9, 12, 13), "F32[2 2]", false},
		{"index twice", x.Heads(2, 4).Index(2).Index(1), seq(20, 21, 22, 23), "F32[4]", true},
		{"reshape", x.Rows(1, 3).Reshape(2, 2, 4).Index(1), seq(16, 17, 18, 19, 20, 21, 22, 23), "F32[2 4]", true},
	} {
		if got := values(tt.got); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if got := tt.got.String(); got != tt.str {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.str)
		}
		if got := tt.got.Contiguous(); got != tt.flat {
			t.Errorf("%s: contiguous is %v, want %v", tt.name, got, tt.flat)
		}
		if _, ok := tt.got.Raw(); ok != tt.flat {
			t.Errorf("%s: Raw says %v, want %v", tt.name, ok, tt.flat)
		}
	}
	if got := x.Heads(2, 4).Cols(2, 4).Vec(2, 1); !slices.Equal(got, seq(22, 23)) {
		t.Errorf("Vec(2, 1) is %v", got)
	}
	if got := x.Cols(2, 4).Row(2); !slices.Equal(got, seq(18, 19)) {
		t.Errorf("Row(2) is %v", got)
	}
	x.Cols(7, 8).Row(2)[0] = -1
	if got := x.Row(2)[7]; got != -1 {
		t.Error("a view must share the elements")
	}
}

func TestOutOfRangeGivesInvalid(t *testing.T) {
	x := count(t, 3, 8)
	q, err := tensor.New(tensor.Bytes(make([]byte, 2*34*3)), 0, tensor.Q8_0, 3, 64)
	if err != nil {
		t.Fatal(err)
	}
	one := count(t, 4)
	var zero tensor.Tensor
	for i, v := range []tensor.Tensor{
		x.Rows(-1, 2), x.Rows(2, 1), x.Rows(0, 4), x.Rows(4, 4), x.Cols(-1, 2), x.Cols(5, 4), x.Cols(0, 9),
		x.Heads(3, 3), x.Heads(-2, -4), x.Heads(0, 8), x.Heads(math.MaxInt, 8), x.Heads(2, 4).Heads(2, 2), one.Heads(2, 2),
		x.Index(-1), x.Index(3), one.Index(0), x.Reshape(5, 5), x.Reshape(), x.Reshape(-3, -8), x.Reshape(2, 3, 2, 2, 1),
		x.Cols(0, 4).Reshape(12), x.Reshape(math.MaxInt32, math.MaxInt32, 4, 6), q.Cols(0, 32), q.Heads(2, 32), q.Reshape(192),
		zero.Rows(0, 0), zero.Cols(0, 0), zero.Heads(0, 0), zero.Index(0), zero.Reshape(0), zero.On(tensor.Bytes(nil)),
		x.On(nil), x.On(tensor.Bytes(make([]byte, 95))), q.Index(0).Rows(0, 1),
	} {
		if v.Valid() {
			t.Errorf("case %d gives %v, want an invalid tensor", i, v)
		}
	}
	if _, ok := zero.F32(); ok || zero.Len() != 0 || zero.Row(0) != nil || zero.Vec(0, 0) != nil || zero.String() != "invalid tensor" {
		t.Error("the zero Tensor must be invalid")
	}
	for _, r := range [][]float32{x.Row(-1), x.Row(3), x.Vec(0, 1), x.Vec(3, 0), x.Heads(2, 4).Vec(0, 2), x.Heads(2, 4).Row(0)} {
		if r != nil {
			t.Errorf("a row that does not exist is %v", r)
		}
	}
}

func TestQuantised(t *testing.T) {
	for dt := tensor.Q8_0; dt <= tensor.Q6_K; dt++ {
		bv, bb := dt.BlockValues(), dt.BlockBytes()
		x, err := tensor.New(tensor.Bytes(make([]byte, 1+6*bb)), 1, dt, 3, 2*bv)
		if err != nil {
			t.Errorf("%v: %v", dt, err)
			continue
		}
		if _, off := x.Rows(1, 3).Buffer(); off != 1+2*bb {
			t.Errorf("%v: row 1 begins at byte %d, want %d", dt, off, 1+2*bb)
		}
		if b, ok := x.Index(2).Raw(); !ok || len(b) != 2*bb {
			t.Errorf("%v: row 2 has %d bytes, want %d", dt, len(b), 2*bb)
		}
		if _, ok := x.F32(); ok {
			t.Errorf("%v: blocks are no float32 values", dt)
		}
		if _, err := tensor.New(tensor.Bytes(make([]byte, 6*bb)), 0, dt, 3, 2*bv-1); err == nil {
			t.Errorf("%v: a row of %d values was accepted", dt, 2*bv-1)
		}
		if _, err := tensor.New(tensor.Bytes(make([]byte, 6*bb-1)), 0, dt, 3, 2*bv); err == nil {
			t.Errorf("%v: a buffer that is one byte short was accepted", dt)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	b := tensor.Bytes(make([]byte, 64))
	for i, tt := range []struct {
		buf tensor.Buffer
		off int
		dt  tensor.DType
		dim []int
		why string
	}{
		{nil, 0, tensor.F32, []int{1}, "no buffer"},
		{b, 0, tensor.Invalid, []int{1}, "no type"},
		{b, 0, tensor.DType(200), []int{1}, "unknown type"},
		{b, 0, tensor.F32, nil, "no axes"},
		{b, 0, tensor.F32, []int{1, 1, 1, 1, 1}, "five axes"},
		{b, 0, tensor.F32, []int{17}, "too long"},
		{b, 4, tensor.F32, []int{16}, "too long from there"},
		{b, -4, tensor.F32, []int{1}, "before the buffer"},
		{b, 68, tensor.F32, []int{0}, "begins behind the buffer"},
		{b, 2, tensor.F32, []int{1}, "misaligned"},
		{b, 1, tensor.BF16, []int{1}, "misaligned"},
		{b, 0, tensor.F32, []int{-1}, "negative"},
		{b, 0, tensor.F32, []int{-2, -2}, "negative twice"},
		{b, 0, tensor.U8, []int{1 << 20, 1 << 20, 1 << 20, 1 << 20}, "product beyond 2^63 wraps to 0"},
		{b, 0, tensor.F32, []int{math.MaxInt32, math.MaxInt32}, "bytes beyond 2^63"},
		{b, 0, tensor.U8, []int{0, math.MaxInt32, math.MaxInt32}, "stride beyond 2^31 of an empty tensor"},
	} {
		if x, err := tensor.New(tt.buf, tt.off, tt.dt, tt.dim...); err == nil || x.Valid() {
			t.Errorf("case %d (%s) was accepted as %v", i, tt.why, x)
		}
	}
	raw := make([]byte, 65)
	if _, err := tensor.New(tensor.Bytes(raw[1:]), 0, tensor.F32, 1); err == nil {
		if _, err := tensor.New(tensor.Bytes(raw), 0, tensor.F32, 1); err == nil {
			t.Error("a misaligned address was accepted")
		}
	}
}

func TestEmpty(t *testing.T) {
	for _, dim := range [][]int{{0}, {0, 5}, {3, 0}, {2, 0, 4}, {0, 0}} {
		x, err := tensor.FromF32(nil, dim...)
		if err != nil {
			t.Errorf("%v: %v", dim, err)
			continue
		}
		if b, ok := x.Raw(); !ok || len(b) != 0 || !x.Contiguous() || x.Len() != 0 {
			t.Errorf("%v: Raw gives %d bytes, %v", dim, len(b), ok)
		}
		if v, ok := x.F32(); !ok || len(v) != 0 {
			t.Errorf("%v: F32 gives %d values, %v", dim, len(v), ok)
		}
		if y := x.Reshape(7, 0); !y.Valid() {
			t.Errorf("%v: cannot be reshaped to [7 0]", dim)
		}
	}
	if v, ok := count(t, 4, 4).Rows(4, 4).F32(); !ok || len(v) != 0 {
		t.Errorf("rows behind the last: %v, %v", v, ok)
	}
}

func TestOn(t *testing.T) {
	a, b := count(t, 4, 6), count(t, 4, 6)
	buf, _ := b.Buffer()
	v := a.Heads(2, 3).Cols(1, 3).Rows(1, 4).On(buf)
	v.Vec(0, 1)[1] = -5
	if b.Row(1)[5] != -5 || a.Row(1)[5] != 11 {
		t.Error("On must view the same range of the other buffer")
	}
}

func FuzzNew(f *testing.F) {
	f.Add(uint8(1), 0, 2, 3, -1, 4)
	f.Add(uint8(8), 1, 2, 64, 7, 7)
	f.Add(uint8(1), 0, 1<<31-1, 1<<31-1, 1<<31-1, 0)
	f.Fuzz(func(t *testing.T, dt uint8, off, a, b, c, d int) {
		buf := tensor.Bytes(make([]byte, 4096))
		for n := 1; n <= 4; n++ {
			dim := []int{a, b, c, d}[:n]
			x, err := tensor.New(buf, off, tensor.DType(dt), dim...)
			if err != nil {
				if x.Valid() {
					t.Fatalf("%v: valid in spite of %v", dim, err)
				}
				continue
			}
			raw, ok := x.Raw()
			if !ok || len(raw) != x.DType().Bytes(x.Len()) || off+len(raw) > 4096 {
				t.Fatalf("%v at %d: Raw gives %d bytes, %v", x, off, len(raw), ok)
			}
			walk(t, x, a, b)
		}
	})
}

// walk takes views with unreasonable arguments; none may reach outside.
func walk(t *testing.T, x tensor.Tensor, i, j int) {
	for _, v := range []tensor.Tensor{x.Rows(i, j), x.Cols(i, j), x.Heads(i, j), x.Index(i), x.Reshape(i, j), x.Cols(0, 1).Rows(0, 1)} {
		if v.Len() < 0 || v.Len() > 4096*2 {
			t.Fatalf("view %v of %v", v, x)
		}
		if f, ok := v.F32(); ok && len(f) > 0 {
			_ = fmt.Sprint(f[0], f[len(f)-1])
		}
	}
}
