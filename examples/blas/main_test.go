package main

import (
	"strings"
	"testing"

	"gonum.org/v1/gonum/blas/blas32"

	"samebit/gonumblas"
)

func TestReport(t *testing.T) {
	before := blas32.Implementation()
	defer blas32.Use(before)
	blas32.Use(gonumblas.New(nil))
	var b strings.Builder
	report(&b, "samebit")
	const want = "samebit: 1 different sums of the same 1000 products, 0 of 6400 elements differ between Gemm and Gemv\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
