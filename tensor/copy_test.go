package tensor

import (
	"slices"
	"testing"
)

// Copy goes between views of any strides and touches nothing between them.
func TestCopyBetweenViews(t *testing.T) {
	a, b := make([]float32, 60), make([]float32, 84)
	for i := range a {
		a[i] = float32(i + 1)
	}
	src, err := FromF32(a, 5, 12)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := FromF32(b, 6, 14)
	if err != nil {
		t.Fatal(err)
	}
	from, to := src.Rows(1, 4).Cols(2, 9), dst.Rows(2, 5).Cols(5, 12)
	if !slices.Equal(from.Shape(), []int{3, 7}) {
		t.Fatalf("shape %v, want [3 7]", from.Shape())
	}
	Copy(to, from)
	for r := range 6 {
		for c := range 14 {
			want := float32(0)
			if r >= 2 && r < 5 && c >= 5 && c < 12 {
				want = a[(r-1)*12+c-3]
			}
			if b[r*14+c] != want {
				t.Errorf("element %d, %d is %v, want %v", r, c, b[r*14+c], want)
			}
		}
	}
	if n := len(AsBytes(a)); n != 240 {
		t.Errorf("60 floats have %d bytes", n)
	}
}
