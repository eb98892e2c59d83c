// Command blas is a gonum program with exact kernels. It counts how many
// different answers one question gets, depending on where the numbers lie and
// what else is computed with them, and then measures a product:
//
//	go run ./examples/blas
//
// With gonum's own kernels a sum depends on the address of its terms, and a row
// of a matrix product is not the product of that row. After blas32.Use it does
// not, and is.
package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"samebit/gonumblas"
)

func main() {
	report(os.Stdout, "gonum")
	before := speed()
	blas32.Use(gonumblas.New(nil)) // once, before other goroutines use blas32
	report(os.Stdout, "samebit")
	fmt.Printf("512×512×512: %.1f GFLOP/s with gonum, %.1f with samebit\n", before, speed())
}

// report writes the two counts for the kernels installed at present.
func report(w io.Writer, name string) {
	fmt.Fprintf(w, "%s: %d different sums of the same 1000 products, %d of 6400 elements differ between Gemm and Gemv\n", name, sums(), elements())
}

// sums counts the results of one scalar product with its terms at 16 addresses.
func sums() int {
	const n = 1000
	r := rand.New(rand.NewPCG(1, 2))
	x, y := random(r, n, 1), random(r, n, 1)
	seen := map[float32]bool{}
	for off := range 16 {
		u := blas32.Vector{N: n, Inc: 1, Data: make([]float32, off+n)[off:]}
		v := blas32.Vector{N: n, Inc: 1, Data: make([]float32, 2*off+n)[2*off:]}
		copy(u.Data, x.Data)
		copy(v.Data, y.Data)
		seen[blas32.Dot(u, v)] = true
	}
	return len(seen)
}

// elements counts the elements of A·B that differ from A times a column of B.
func elements() int {
	r := rand.New(rand.NewPCG(3, 4))
	a, b, c := random(r, 80, 300), random(r, 300, 80), random(r, 80, 80)
	blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, a, b, 0, c)
	different := 0
	y := blas32.Vector{N: 80, Inc: 1, Data: make([]float32, 80)}
	for j := range b.Cols {
		column := blas32.Vector{N: b.Rows, Inc: b.Stride, Data: b.Data[j:]}
		blas32.Gemv(blas.NoTrans, 1, a, column, 0, y)
		for i, v := range y.Data {
			if v != c.Data[i*c.Stride+j] {
				different++
			}
		}
	}
	return different
}

// speed is that of the fastest of a few products.
func speed() float64 {
	const n = 512
	r := rand.New(rand.NewPCG(5, 6))
	a, b, c := random(r, n, n), random(r, n, n), random(r, n, n)
	best := time.Hour
	for range 5 {
		start := time.Now()
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, a, b, 0, c)
		best = min(best, time.Since(start))
	}
	return 2 * n * n * n / best.Seconds() / 1e9
}

func random(r *rand.Rand, rows, cols int) blas32.General {
	g := blas32.General{Rows: rows, Cols: cols, Stride: cols, Data: make([]float32, rows*cols)}
	for i := range g.Data {
		g.Data[i] = r.Float32() - 0.5
	}
	return g
}
