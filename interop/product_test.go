package interop

import (
	"testing"

	gtensor "gorgonia.org/tensor"
)

// Products of packed views are right. The numbers are small integers, all sums
// exact, so the tolerance is zero. That the views themselves give wrong products
// or none is logged, not demanded: a gorgonia that mends it is welcome.
func TestProductsOfPackedViews(t *testing.T) {
	for _, tt := range []struct {
		name string
		d    *gtensor.Dense
	}{
		{"column slice", slice(t, dense(), nil, gtensor.S(1, 4))},
		{"rows of transposed", slice(t, transposed(t, dense()), gtensor.S(1, 4))},
		{"columns of transposed", slice(t, transposed(t, dense()), nil, gtensor.S(1, 3))},
	} {
		r, c := tt.d.Shape()[0], tt.d.Shape()[1]
		b := gtensor.New(gtensor.WithShape(c, 2), gtensor.WithBacking(gtensor.Range(gtensor.Float32, 1, 1+2*c)))
		want := func(i, j int) (s float32) {
			for k := range c {
				s += at(t, tt.d, i, k) * at(t, b, k, j)
			}
			return s
		}
		wrong := func(a *gtensor.Dense) (n int, err error) {
			p, err := a.MatMul(b)
			if err != nil {
				return 0, err
			}
			coords([]int{r, 2}, func(i []int) {
				if at(t, p, i...) != want(i[0], i[1]) {
					n++
				}
			})
			return n, nil
		}
		a, err := PackDense(tt.d)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := wrong(a); n > 0 || err != nil {
			t.Errorf("%s, packed: %d of %d elements of the product are wrong, %v", tt.name, n, 2*r, err)
		}
		n, err := wrong(tt.d)
		t.Logf("%s, not packed: %d of %d elements of the product are wrong, %v", tt.name, n, 2*r, err)
	}
}
