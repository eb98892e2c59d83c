package ref_test

import (
	"slices"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/ref"
	"samebit/tensor"
)

// The suite compares package ref with itself here: what is tested are the laws,
// the guards and what must be refused.
func TestRef(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backend.Device { return ref.New() })
}

func TestGoldens(t *testing.T) {
	backendtest.Goldens(t, ref.New(), "../../testdata/numerics")
	backendtest.Worked(t, ref.New())
}

// Two rows of a group of two heads over nine positions, worked by hand: the means
// are {.375 .375 .25 0 …} and {.5 0 … 0 .5}, and the max reaches three positions.
func TestMomentsByHand(t *testing.T) {
	w := make([]float32, 2*2*9)
	copy(w[0:], []float32{.5, .25, .25})
	copy(w[9:], []float32{.25, .5, .25})
	w[18], w[35] = 1, 1
	sum, square := make([]float32, 9), make([]float32, 9)
	view := func(v []float32, dim ...int) tensor.Tensor {
		x, err := tensor.FromF32(v, dim...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	s, err := ref.New().NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Moments(view(sum, 1, 9), view(square, 1, 9), view(w, 2, 2, 9))
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	const a, b = 96 * 96, 128 * 128 // 256·.375 and 256·.5, squared
	if want := []float32{.875, .375, .25, 0, 0, 0, 0, 0, .5}; !slices.Equal(sum, want) {
		t.Errorf("sum is %v, want %v", sum, want)
	}
	if want := []float32{a + b, a + b, a + b, a + b, a, 64*64 + b, b, b, b}; !slices.Equal(square, want) {
		t.Errorf("square is %v, want %v", square, want)
	}
}
