// Package gonumblas lends the exact kernels of the cpu backend to gonum: an
// [Implementation] is a blas.Float32 that a program may install with
//
//	blas32.Use(gonumblas.New(nil))
//
// (this package never does: blas32.Use changes the whole process, without a
// lock). Beside speed it gives every number a meaning of its own: a result is
// the same float32, bit for bit, whatever the shape of the matrices around it,
// their strides, storage order and addresses, the number of threads and the
// instruction set. Gonum's own kernels begin their sums at a 16-byte boundary,
// so there the same numbers at another address may give another result.
//
// These routines are overridden, all others are gonum's:
//
//	Sdot    DOT(x, y)
//	Snrm2   √RSUM(x²), scaled by a power of two if that sum leaves [2⁻¹⁰⁰, Inf)
//	Saxpy   y[i] = FMA(alpha, x[i], y[i])
//	Sscal   x[i] = alpha·x[i]
//	Sger    A[i,j] = FMA(RN(alpha·x[i]), y[j], A[i,j])
//	Sgemv   y[i]   = FMA(beta, y[i],   RN(alpha·DOT(A[i,:], x)))
//	Sgemm   C[i,j] = FMA(beta, C[i,j], RN(alpha·DOT(A[i,:], B[:,j])))
//	Ssyrk   as Sgemm with B = Aᵀ, on one triangle
//
// DOT is the chain of FMAs in blocks of 128 and RSUM the sum in 32 lanes of
// docs/numerics.md 2 and 3; RN rounds to float32. With beta = 0 the result is
// RN(alpha·DOT) and what y or C held is not read; with alpha = 0 or k = 0 it is
// RN(beta·C) (+0 for beta = 0), and A, B and x are not read. With alpha = 0
// Saxpy and Sger change nothing and Sscal writes +0. Elements that are zero are
// not skipped: a NaN or an infinity in the other operand is seen. Which NaN a
// NaN result is, is not fixed.
//
// Wrong arguments panic with gonum's messages, since that is the convention of
// the interface; the functions that convert return errors instead.
package gonumblas

import (
	"fmt"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"samebit/backend/cpu"
)

// Implementation is a blas.Float32 on a cpu device. It may be copied and used
// by any number of goroutines; large products share the device's workers. The
// zero value works on a device of all processors that is made on first use and
// lives as long as the process.
type Implementation struct {
	gonum.Implementation
	kernels *cpu.BLAS
}

var _ blas.Float32 = Implementation{}

// shared is the device behind New(nil) and the zero value.
var shared = sync.OnceValue(func() *cpu.BLAS {
	dev, err := cpu.New(cpu.Config{})
	if err != nil { // only a processor that flushes subnormal numbers
		panic(fmt.Sprintf("gonumblas: default device: %v", err))
	}
	return dev.BLAS()
})

// New returns an implementation on dev, which stays the caller's: once it is
// closed the implementation works on one thread. A nil dev means one device of
// all processors that all implementations of this process share, made on first
// use.
func New(dev *cpu.Device) *Implementation {
	if dev == nil {
		return &Implementation{}
	}
	return &Implementation{kernels: dev.BLAS()}
}

func (b Implementation) blas() *cpu.BLAS {
	if b.kernels == nil {
		return shared()
	}
	return b.kernels
}
