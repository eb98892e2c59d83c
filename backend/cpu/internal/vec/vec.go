// Package vec holds the row kernels of the cpu backend: elementwise steps,
// sums of one vector, norms, gates, softmax, rotation, the gradients of these
// and the 16-bit formats, for every instruction set and with the same bits from
// each (docs/numerics.md 1, 3 to 6, 10, 11).
package vec

//go:generate go -C ../../../../internal/gen run ./vec -pkg vec -out ../../backend/cpu/internal/vec/vec_avx2_amd64.s -stubs ../../backend/cpu/internal/vec/vec_avx2_amd64.go
//go:generate go -C ../../../../internal/gen run ./vec -avx512 -pkg vec -out ../../backend/cpu/internal/vec/vec_avx512_amd64.s -stubs ../../backend/cpu/internal/vec/vec_avx512_amd64.go
//go:generate go -C ../../../../internal/gen run ./vec -neon ../../backend/cpu/internal/vec/vec_neon_arm64.s

import "samebit/backend/cpu/internal/isa"

// Kernels are the row kernels of one instruction set. Get them from [For].
//
// Every method is single-threaded and allocates nothing. The first slice gives
// the length; the others must be at least as long (a shorter one panics: that
// is a bug of the caller, not of a user). Nothing outside the slices is read.
// An output may be the same slice as an input, but may not overlap one partly.
type Kernels struct {
	// Set is the instruction set these kernels use.
	Set isa.Set

	add, sub, mul    func(dst, a, b []float32)
	scale, addScalar func(dst, x []float32, s float32)
	divide           func(dst, x []float32, s float32) // x / s
	fmaScalar        func(y, x []float32, s float32)   // y = FMA(s, x, y)
	fma              func(y, a, b []float32)           // y = FMA(a, b, y)
	mixRows          func(dst, w, x []float32)         // at most 128 rows; nil: by fmaScalar

	scaleMul     func(dst, x, w []float32, r float32)    // (x·r)·w
	scaleMulAdd  func(dst, x, w, b []float32, r float32) // ((x·r)·w) + b
	scaleMulSiLU func(dst, x, w, z []float32, r float32) // ((x·r)·w)·silu(z)

	exp, sigmoid, silu, softplus func(dst, x []float32)
	expSub                       func(dst, x []float32, m float32) // exp(x - m)
	swiglu                       func(dst, g, u []float32)         // silu(g)·u
	sigmoidMul                   func(dst, x, z []float32)         // x·sigmoid(z)

	rotate    func(lo, hi, a, b, c, s []float32)
	conv4SiLU func(dst, x0, x1, x2, x3, w0, w1, w2, w3 []float32)

	// y = y + t·t, t = s·max(x0 … x6), the max from -Inf, NaN never winning
	addSquareMax7 func(y, x0, x1, x2, x3, x4, x5, x6 []float32, s float32)

	sum, sumSquares, max func(x []float32) float32
	index                func(x []float32, v float32) int // first x[i] == v, else -1

	// of gradients, see grad.go; nil: step by step
	softmaxGrad                           func(p, d []float32, m, c, s float32)
	swigluGrad, swigluGradFirst           func(dg, du, dy, g, u []float32)
	normGrad, normGradFirst               func(dx, dy, x, w []float32, r, c float32)
	normGradSum                           func(dy, x, w []float32, r float32) float32
	normGradSumPart                       func(dy, x, w, part []float32, r float32) float32
	softmaxLossGrad, softmaxLossGradFirst func(d, e []float32, inv, s float32)
	expSum                                func(x []float32, m float32) float32
	adamW                                 func(w, m, v, g []float32, clip, beta1, rest1, beta2, rest2, scale2, eps, rate, decay float32)
}

// For returns the kernels of an available set ([isa.Available]); a set without
// kernels of its own on this build gets the portable ones.
func For(s isa.Set) *Kernels {
	if k := native(s); k != nil {
		return k
	}
	return &generic
}

// Add writes a[i] + b[i].
func (k *Kernels) Add(dst, a, b []float32) { k.add(dst, a[:len(dst)], b[:len(dst)]) }

// Sub writes a[i] - b[i].
func (k *Kernels) Sub(dst, a, b []float32) { k.sub(dst, a[:len(dst)], b[:len(dst)]) }

// Mul writes a[i]·b[i].
func (k *Kernels) Mul(dst, a, b []float32) { k.mul(dst, a[:len(dst)], b[:len(dst)]) }

// Scale writes x[i]·s.
func (k *Kernels) Scale(dst, x []float32, s float32) { k.scale(dst, x[:len(dst)], s) }

// Divide writes x[i] / s.
func (k *Kernels) Divide(dst, x []float32, s float32) { k.divide(dst, x[:len(dst)], s) }

// AddSquareMax7 adds t·t to y[i], t = s·max(x[i : i+7]): the square of the largest of
// seven neighbours (numerics.md 7). len(x) >= len(y) + 6.
func (k *Kernels) AddSquareMax7(y, x []float32, s float32) {
	n := len(y)
	k.addSquareMax7(y, x[:n], x[1:n+1], x[2:n+2], x[3:n+3], x[4:n+4], x[5:n+5], x[6:n+6], s)
}

// AddScalar writes x[i] + s.
func (k *Kernels) AddScalar(dst, x []float32, s float32) { k.addScalar(dst, x[:len(dst)], s) }

// FMAScalar updates y[i] = FMA(a, x[i], y[i]), one rounding.
func (k *Kernels) FMAScalar(y []float32, a float32, x []float32) { k.fmaScalar(y, x[:len(y)], a) }

// MixRows writes dst[i] = DOT over k of (w[k], x[k·len(dst) + i]) (numerics.md 2): a
// weighted sum of rows, lanes running over i. len(x) is at least len(w)·len(dst).
func (k *Kernels) MixRows(dst, w, x []float32) {
	const block = 128
	x = x[:len(w)*len(dst)]
	if len(w) <= block && k.mixRows != nil {
		k.mixRows(dst, w, x)
		return
	}
	if len(w) <= block {
		clear(dst)
		for i, a := range w {
			k.fmaScalar(dst, x[i*len(dst):(i+1)*len(dst)], a)
		}
		k.addScalar(dst, dst, 0) // a chain may end at -0
		return
	}
	acc := make([]float32, len(dst))
	clear(dst)
	for b := 0; b < len(w); b += block {
		end := min(b+block, len(w))
		k.MixRows(acc, w[b:end], x[b*len(dst):])
		k.add(dst, dst, acc)
	}
}

// FMA updates y[i] = FMA(a[i], b[i], y[i]), one rounding.
func (k *Kernels) FMA(y, a, b []float32) { k.fma(y, a[:len(y)], b[:len(y)]) }

// SumRows adds rows vectors of length len(dst), row r at x[r*stride:], onto
// dst: one chain of adds per element, in row order, from the value dst has.
func (k *Kernels) SumRows(dst, x []float32, stride, rows int) {
	for r := range rows {
		k.add(dst, dst, x[r*stride:][:len(dst)])
	}
}

// Exp writes eˣ in the form of numerics.md 4.1.
func (k *Kernels) Exp(dst, x []float32) { k.exp(dst, x[:len(dst)]) }

// ExpSub writes exp(x[i] - m), the numerators of a softmax.
func (k *Kernels) ExpSub(dst, x []float32, m float32) { k.expSub(dst, x[:len(dst)], m) }

// Sigmoid writes 1/(1+e⁻ˣ).
func (k *Kernels) Sigmoid(dst, x []float32) { k.sigmoid(dst, x[:len(dst)]) }

// SiLU writes x/(1+e⁻ˣ).
func (k *Kernels) SiLU(dst, x []float32) { k.silu(dst, x[:len(dst)]) }

// Softplus writes ln(1+eˣ) in the form of numerics.md 4.3.
func (k *Kernels) Softplus(dst, x []float32) { k.softplus(dst, x[:len(dst)]) }

// SwiGLU writes silu(gate[i])·up[i].
func (k *Kernels) SwiGLU(dst, gate, up []float32) { k.swiglu(dst, gate[:len(dst)], up[:len(dst)]) }

// SigmoidMul writes x[i]·sigmoid(gate[i]).
func (k *Kernels) SigmoidMul(dst, x, gate []float32) {
	k.sigmoidMul(dst, x[:len(dst)], gate[:len(dst)])
}

// Conv4SiLU writes silu(DOT(taps)) for one row of a depthwise convolution of width 4:
// x and w hold the four input rows and the four weight rows, oldest first, each as long
// as dst (numerics.md 8).
func (k *Kernels) Conv4SiLU(dst []float32, x, w *[4][]float32) {
	n := len(dst)
	k.conv4SiLU(dst, x[0][:n], x[1][:n], x[2][:n], x[3][:n], w[0][:n], w[1][:n], w[2][:n], w[3][:n])
}

// Rotate turns the pairs (i, i+h), h = len(cos), of the leading 2h components
// and copies the others (numerics.md 6):
//
//	dst[i]   = FMA(x[i],   cos[i], -(x[i+h]·sin[i]))
//	dst[i+h] = FMA(x[i+h], cos[i],   x[i]·sin[i])
//
// len(x) >= len(dst) >= 2h.
func (k *Kernels) Rotate(dst, x, cos, sin []float32) {
	h, n := len(cos), len(dst)
	k.rotate(dst[:h], dst[h:2*h], x[:h], x[h:2*h], cos, sin[:h])
	copy(dst[2*h:], x[2*h:n])
}
