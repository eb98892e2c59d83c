package vec

import (
	"samebit/internal/canon"
)

// Sum is RSUM of x (numerics.md 3): 32 lanes in blocks of 1024.
func (k *Kernels) Sum(x []float32) float32 { return k.sum(x) }

// SumSquares is RSUM of the squares of x, each fused into its lane.
func (k *Kernels) SumSquares(x []float32) float32 { return k.sumSquares(x) }

// Max is the largest number in x. NaN is passed over, a zero comes out as +0,
// and without any number the result is -Inf.
func (k *Kernels) Max(x []float32) float32 { return k.max(x) }

// ArgMax is the index of the largest number in x, of equal ones (+0 = -0) the
// lowest. It is -1 when x holds nothing but NaN.
func (k *Kernels) ArgMax(x []float32) int { return k.index(x, k.max(x)) }

// RMSNorm writes (x[i]·r)·w[i] with r = 1/√(RSUM(x²)/len + eps); a nil w
// stands for ones.
func (k *Kernels) RMSNorm(dst, x, w []float32, eps float32) {
	x = x[:len(dst)]
	r := canon.Rsqrt(k.sumSquares(x)/float32(len(x)) + eps)
	if w == nil {
		k.scale(dst, x, r)
		return
	}
	k.scaleMul(dst, x, w[:len(dst)], r)
}

// GatedRMSNorm writes ((x[i]·r)·w[i])·silu(z[i]) with the r of [Kernels.RMSNorm].
func (k *Kernels) GatedRMSNorm(dst, x, z, w []float32, eps float32) {
	x = x[:len(dst)]
	r := canon.Rsqrt(k.sumSquares(x)/float32(len(x)) + eps)
	k.scaleMulSiLU(dst, x, w[:len(dst)], z[:len(dst)], r)
}

// L2Norm writes (x[i]·r)·scale with r = 1/√(RSUM(x²) + eps). A scale of 1
// leaves the bits of the plain l2norm.
func (k *Kernels) L2Norm(dst, x []float32, eps, scale float32) {
	x = x[:len(dst)]
	k.scale(dst, x, canon.Rsqrt(k.sumSquares(x)+eps))
	if scale != 1 {
		k.scale(dst, dst, scale)
	}
}

// LayerNorm writes ((c[i]·r)·w[i]) + b[i], c = x - mean(x) and
// r = 1/√(RSUM(c²)/len + eps). w and b may be nil.
func (k *Kernels) LayerNorm(dst, x, w, b []float32, eps float32) {
	x = x[:len(dst)]
	n := float32(len(x))
	k.addScalar(dst, x, -(k.sum(x) / n))
	r := canon.Rsqrt(k.sumSquares(dst)/n + eps)
	switch {
	case w != nil && b != nil:
		k.scaleMulAdd(dst, dst, w[:len(dst)], b[:len(dst)], r)
		return
	case w != nil:
		k.scaleMul(dst, dst, w[:len(dst)], r)
		return
	}
	k.scale(dst, dst, r)
	if b != nil {
		k.add(dst, dst, b[:len(dst)])
	}
}

// Softmax writes exp(x[i] - max)·(1/s), s = RSUM of the exponentials
// (numerics.md 5). A NaN or a +Inf in x, or -Inf throughout, makes every
// output NaN.
func (k *Kernels) Softmax(dst, x []float32) {
	k.expSub(dst, x[:len(dst)], k.max(x[:len(dst)]))
	k.scale(dst, dst, 1/k.sum(dst))
}
