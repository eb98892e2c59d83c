package checkpoint

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"

	"samebit/tensor"
)

// Types of one name are one layout in both packages, and every type that opens
// and can be computed with has a view that shares the file's bytes.
func TestView(t *testing.T) {
	for typ := range typeCount {
		dt := typ.DType()
		if dt == tensor.Invalid {
			continue
		}
		values, bytes := typ.Block()
		if dt.String() != typ.String() || dt.BlockValues() != values || dt.BlockBytes() != bytes || !typ.Opens() {
			t.Errorf("%v (%d values, %d bytes) and tensor's %v (%d, %d) differ", typ, values, bytes, dt, dt.BlockValues(), dt.BlockBytes())
		}
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		_, err := Entry{"w", F32, []int{1}, make([]byte, 4)}.View()
		wantMessage(t, err, `"w"`, "little-endian")
		return
	}
	s := mustOpen(t, filepath.Join(testdata, "gguf/qwen3-mixed.gguf"))
	for _, e := range entries(t, s) {
		v, err := e.View()
		if err != nil {
			t.Fatal(err)
		}
		if v.Dims() != len(e.Shape) || v.Dim(0) != e.Shape[0] || v.DType() != e.Type.DType() {
			t.Errorf("%q: %v %v as %v with %d axes", e.Name, e.Type, e.Shape, v.DType(), v.Dims())
		}
	}
	if v, err := (Entry{"s", F32, nil, make([]byte, 4)}).View(); err != nil || v.Dims() != 1 || v.Len() != 1 {
		t.Errorf("scalar: %v, %v", v, err)
	}
	_, err := Entry{"d", F64, []int{1}, make([]byte, 8)}.View()
	wantMessage(t, err, `"d"`, "F64")
	_, err = Entry{"w", F32, []int{2}, make([]byte, 4)}.View()
	wantMessage(t, err, `"w"`, "needs 8")
	_, err = Entry{"w", F32, []int{1, 1, 1, 1, 1}, make([]byte, 4)}.View()
	wantMessage(t, err, `"w"`)
}

// What an entry of a tensor holds is what View gives back, of both types and in any
// shape, and no memory of the tensor's.
func TestFromTensor(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
		raw := make([]byte, dt.Bytes(2*3))
		for i := range raw {
			raw[i] = byte(37 * i)
		}
		x, err := tensor.New(tensor.Bytes(raw), 0, dt, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		e, err := FromTensor("x", x)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(raw)
		clear(raw)
		if v, err := e.View(); err == nil { // not on a machine of the other byte order
			if got, ok := v.Raw(); !ok || v.DType() != dt || !slices.Equal(v.Shape(), []int{2, 3}) || !slices.Equal(got, want) {
				t.Errorf("%v: got %v of %v, want %v", dt, got, v, want)
			}
		}
		if _, err := FromTensor("y", x.Cols(0, 1)); err == nil {
			t.Errorf("%v: an entry of a column", dt)
		}
	}
	x, _ := tensor.New(tensor.Bytes(make([]byte, 8)), 0, tensor.F16, 4)
	if _, err := FromTensor("half", x); err == nil {
		t.Error("an entry of an F16 tensor")
	}
}
