package vec

import (
	"math"

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

// LogSumExp is max + log(RSUM(exp(x - max))). tmp is scratch of len(x) or more
// and may be x itself, which is then overwritten.
func (k *Kernels) LogSumExp(x, tmp []float32) float32 {
	m := k.max(x)
	tmp = tmp[:len(x)]
	k.expSub(tmp, x, m)
	return m + canon.Log(k.sum(tmp))
}

// WidenBF16 writes the exact values of bfloat16 numbers.
func (k *Kernels) WidenBF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	n := len(dst) &^ 15
	k.widenBF16(dst[:n], src[:n])
	for i := n; i < len(dst); i++ {
		dst[i] = math.Float32frombits(uint32(src[i]) << 16)
	}
}

// WidenF16 writes the exact values of IEEE half precision numbers.
func (k *Kernels) WidenF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	n := len(dst) &^ 15
	k.widenF16(dst[:n], src[:n])
	for i := n; i < len(dst); i++ {
		dst[i] = f16to32(src[i])
	}
}

// NarrowBF16 rounds to bfloat16, to nearest, ties to even; NaN stays NaN.
func (k *Kernels) NarrowBF16(dst []uint16, src []float32) {
	src = src[:len(dst)]
	n := len(dst) &^ 15
	k.narrowBF16(dst[:n], src[:n])
	for i := n; i < len(dst); i++ {
		dst[i] = bf16(src[i])
	}
}

// NarrowF16 rounds to IEEE half precision, to nearest, ties to even; NaN stays
// NaN and what is too large becomes an infinity.
func (k *Kernels) NarrowF16(dst []uint16, src []float32) {
	src = src[:len(dst)]
	n := len(dst) &^ 15
	k.narrowF16(dst[:n], src[:n])
	for i := n; i < len(dst); i++ {
		dst[i] = f16(src[i])
	}
}
