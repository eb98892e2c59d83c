package qcc

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestOracleSalience(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	const n, d = 9, 3
	k, q := noise(r, n*d), noise(r, n*d)
	copy(k[2*d:3*d], q[8*d:]) // asked for by the last query
	all, err := OracleSalience(q, k, d, n)
	if err != nil || math.Abs(all[2]-1) > 1e-12 {
		t.Fatalf("%v, %v", all, err)
	}
	for i := range n {
		want := -1.0
		for j := i; j < n; j++ {
			want = max(want, cosine(q[j*d:(j+1)*d], k[i*d:(i+1)*d]))
		}
		if all[i] != want {
			t.Errorf("key %d: %v, want %v", i, all[i], want)
		}
	}
	three, _ := OracleSalience(q, k, d, 3) // queries 0, 4 and 8
	for i, x := range three {
		if x > all[i] || i > 4 && x != cosine(q[8*d:], k[i*d:(i+1)*d]) {
			t.Errorf("key %d of three samples: %v of %v", i, x, all[i])
		}
	}
	if one, _ := OracleSalience(q, k, d, 1); one[8] != cosine(q[8*d:], k[8*d:]) {
		t.Errorf("one sample is not the last query: %v", one)
	}
	if many, _ := OracleSalience(q, k, d, 100); !slices.Equal(many, all) {
		t.Error("more samples than queries")
	}
	for _, f := range []func() ([]float64, error){
		func() ([]float64, error) { return OracleSalience(q, k[1:], d, 3) },
		func() ([]float64, error) { return OracleSalience(q, k, d, 0) },
		func() ([]float64, error) { return OracleSalience(nil, nil, d, 3) },
		func() ([]float64, error) { return OracleSalience(q[:3], k, d, 3) },
	} {
		if _, err := f(); !errors.Is(err, ErrShape) {
			t.Errorf("bad rows: %v", err)
		}
	}
}
