package checkpoint

import (
	"encoding/binary"
	"path/filepath"
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
