package gonumblas

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// A program written against blas32, with and without these kernels.
func TestUse(t *testing.T) {
	before := blas32.Implementation()
	defer blas32.Use(before)
	r := rand.New(rand.NewPCG(41, 1))
	a, b := blas32.General{Rows: 50, Cols: 300, Stride: 300, Data: random(r, 15000)}, blas32.General{Rows: 300, Cols: 70, Stride: 70, Data: random(r, 21000)}
	x := blas32.Vector{N: 70, Inc: 1, Data: random(r, 70)}
	program := func() ([]float32, float32) { // A·B, and the size of A·(B·x) - (A·B)·x
		ab := blas32.General{Rows: 50, Cols: 70, Stride: 70, Data: make([]float32, 3500)}
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, a, b, 0, ab)
		bx, y := blas32.Vector{N: 300, Inc: 1, Data: make([]float32, 300)}, blas32.Vector{N: 50, Inc: 1, Data: make([]float32, 50)}
		blas32.Gemv(blas.NoTrans, 1, b, x, 0, bx)
		blas32.Gemv(blas.NoTrans, 1, a, bx, 0, y)
		blas32.Gemv(blas.NoTrans, 1, ab, x, -1, y)
		return ab.Data, blas32.Nrm2(y)
	}
	theirs, _ := program()
	for _, impl := range []*Implementation{New(nil), fastest().b} {
		blas32.Use(impl)
		ours, rest := program()
		if rest > 1e-2 {
			t.Errorf("A·(B·x) and (A·B)·x differ by %g", rest)
		}
		for i := range ours {
			if d := ours[i] - theirs[i]; d > 1e-3 || d < -1e-3 { // 300 terms of size about 1: 300·2⁻²⁴·Σ|a||b| < 1e-2
				t.Fatalf("element %d: %g, gonum %g", i, ours[i], theirs[i])
			}
		}
	}
	// The zero value serves as well, and by value.
	blas32.Use(Implementation{})
	if again, _ := program(); !same(again[0], fastest().b.Sdot(300, a.Data, 1, b.Data, 70)) {
		t.Error("zero value gives other bits")
	}
}

// Many goroutines on one implementation, with small and large operations.
func TestConcurrent(t *testing.T) {
	const seed = 42
	for _, v := range variants[len(variants)-4:] {
		var wg sync.WaitGroup
		for id := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(id)))
				for range 6 {
					m, n, k := 1+r.IntN(90), 1+r.IntN(90), 1+r.IntN(300)
					a, b, c := random(r, m*k), random(r, k*n), make([]float32, m*n)
					v.b.Sgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, a, k, b, n, 0, c, n)
					i, j := r.IntN(m), r.IntN(n)
					if want := v.b.Sdot(k, a[i*k:], 1, b[j:], n); !same(c[i*n+j], want) {
						t.Errorf("%s seed %d: element %d,%d of %dx%dx%d is %x, alone %x", v.name, seed, i, j, m, n, k, c[i*n+j], want)
					}
				}
			})
		}
		wg.Wait()
	}
}

// After the first calls scratch memory is there. (With many threads a worker may
// get its first chunk, and its scratch memory, late.)
func TestAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool forget")
	}
	a, c := make([]float32, 200*200), make([]float32, 200*200)
	for _, v := range []variant{fastest()} {
		n := testing.AllocsPerRun(20, func() {
			v.b.Sgemm(blas.NoTrans, blas.Trans, 100, 90, 80, 2, a, 200, a, 200, 1, c, 200)
			v.b.Sgemv(blas.Trans, 100, 100, 1, a, 200, a, 2, 0, c, 3)
			v.b.Sgemv(blas.NoTrans, 200, 200, 1, a, 200, a, 1, 0, c, 1)
			v.b.Sger(150, 150, 1, a, 3, a, 2, c, 200)
			v.b.Saxpy(100, 1, a, 3, c, 2)
			v.b.Ssyrk(blas.Upper, blas.NoTrans, 50, 60, 1, a, 200, 1, c, 200)
		})
		if n >= 1 { // the pool may lose one to the collector now and then
			t.Errorf("%s: %v allocations per run", v.name, n)
		}
	}
}

// A system solved by conjugate gradients: every step has the same bits on every
// machine.
func Example() {
	before := blas32.Implementation()
	defer blas32.Use(before)
	blas32.Use(New(nil)) // for the whole program

	const n = 5
	a := blas32.General{Rows: n, Cols: n, Stride: n, Data: make([]float32, n*n)}
	for i := range n {
		for j := range n {
			a.Data[i*n+j] = 1 / float32(i+j+1) // a Hilbert matrix
		}
		a.Data[i*n+i]++
	}
	b := blas32.Vector{N: n, Inc: 1, Data: []float32{1, 2, 3, 4, 5}}
	x := blas32.Vector{N: n, Inc: 1, Data: make([]float32, n)}
	r := blas32.Vector{N: n, Inc: 1, Data: append([]float32(nil), b.Data...)}
	p := blas32.Vector{N: n, Inc: 1, Data: append([]float32(nil), b.Data...)}
	ap := blas32.Vector{N: n, Inc: 1, Data: make([]float32, n)}
	for rr := blas32.Dot(r, r); rr > 1e-10; {
		blas32.Gemv(blas.NoTrans, 1, a, p, 0, ap)
		step := rr / blas32.Dot(p, ap)
		blas32.Axpy(step, p, x)
		blas32.Axpy(-step, ap, r)
		next := blas32.Dot(r, r)
		blas32.Scal(next/rr, p)
		blas32.Axpy(1, r, p)
		rr = next
	}
	fmt.Printf("%.6f\n", x.Data)
	// Output:
	// [-0.668582 0.499618 1.706178 2.872183 4.002916]
}
