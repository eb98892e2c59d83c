package backend

import "samebit/tensor"

// RowBlock is the number of rows whose contributions to the gradient of a weight
// form one chain (numerics.md 10).
const RowBlock = 128

// Grad is what a Stream offers besides if its device can train; ask for it by a
// type assertion. The ops are those of numerics.md 10.
//
// Every op adds to the gradients it is given, tensors that [Grad.Zero] cleared
// once: d… = d… + contribution. A gradient has the shape of what it belongs to,
// and overlaps no other operand. Where a comment says so an invalid gradient is
// left out. Rows are those of the plan: gradients of weights are sums over its
// rows in blocks of RowBlock, counted anew in every segment, so that neither the
// split of a batch into passes nor threads change a bit.
type Grad interface {
	// Zero writes +0 to a contiguous F32 tensor.
	Zero(dst tensor.Tensor)
	// Accumulate writes dst = dst + src, of equal shapes with two or three axes.
	Accumulate(dst, src tensor.Tensor)

	// LinearGrad adds the blocks of DOT over n (dy[r, n], w[n, k]) to dx, one by
	// one: dx [R, K], dy [R, N], w of N outputs and K inputs.
	LinearGrad(dx, dy tensor.Tensor, w Weight)
	// ProjectGrad is LinearGrad with an unpacked weight w [N, K].
	ProjectGrad(dx, dy, w tensor.Tensor)
	// WeightGrad adds to dw[n, k], block of rows by block of rows, the chains over
	// r of FMA(dy[r, n], x[r, k], acc): dw [N, K], dy [R, N], x [R, K].
	WeightGrad(dw, dy, x tensor.Tensor, p Plan)
	// BiasGrad adds to db[i], block by block, the chains of adds of dy[r, i].
	BiasGrad(db, dy tensor.Tensor, p Plan)
	// EmbedGrad adds dy[r] to row ids[r] of dtable [V, K], rows in order; rows with a
	// negative id are left out.
	EmbedGrad(dtable, dy, ids tensor.Tensor)
	// GatherGrad adds dy[i] to row rows[i] of dx, in order of i.
	GatherGrad(dx, dy, rows tensor.Tensor)

	// RMSNormGrad is the gradient of RMSNorm; dw may be invalid.
	RMSNormGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, p Plan)
	// LayerNormGrad is the gradient of LayerNorm; dw and db may be invalid.
	LayerNormGrad(dx, dw, db, dy, x, w tensor.Tensor, eps float32, p Plan)
	// SwiGLUGrad is the gradient of SwiGLU.
	SwiGLUGrad(dgate, dup, dy, gate, up tensor.Tensor)
	// SigmoidMulGrad is the gradient of SigmoidMul.
	SigmoidMulGrad(dx, dgate, dy, x, gate tensor.Tensor)
	// SoftmaxGrad is the gradient of Softmax; y is its result.
	SoftmaxGrad(dx, dy, y tensor.Tensor)

	// NormRoPEGrad is the gradient of NormRoPE; dw may be invalid, and is if w is.
	NormRoPEGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, rope *RoPE, p Plan)
	// AttentionGrad is the gradient of Attention over whole sequences: y is its
	// result, k and v [R, Hkv, D] are what PutKV stored in this pass; every segment
	// begins at slot 0.
	AttentionGrad(dq, dk, dv, dy, y, q, k, v tensor.Tensor, p Plan, scale float32, window int)

	// ConvGrad is the gradient of Conv; the history in ConvIn is constant; dw may
	// be invalid.
	ConvGrad(dx, dw, dy, x, w tensor.Tensor, p Plan, layer int)
	// L2NormGrad is the gradient of L2Norm.
	L2NormGrad(dx, dy, x tensor.Tensor, eps, scale float32)
	// DeltaGatesGrad is the gradient of DeltaGates with the results g and beta;
	// dAExp and dDTBias may be invalid.
	DeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias tensor.Tensor, p Plan)
	// GatedDeltaGrad is the gradient of GatedDelta; the state in DeltaIn is constant.
	GatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta tensor.Tensor, p Plan, layer int)
	// GatedRMSNormGrad is the gradient of GatedRMSNorm; dw may be invalid.
	GatedRMSNormGrad(dx, dz, dw, dy, x, z, w tensor.Tensor, eps float32, p Plan)

	// CrossEntropy writes loss[r] = (logsumexp(x[r]) - x[r, targets[r]])·weights[r]
	// and adds scale times its gradient to dx: x and dx [R, C], targets I32 [R],
	// weights [R], or invalid for ones. A negative target gives loss +0 and no
	// gradient, one that is no column makes the stream fail. An invalid dx is left
	// out.
	CrossEntropy(loss, dx, x, targets, weights tensor.Tensor, scale float32)
	// DistillKL writes the divergence KL(softmax(y/t) ‖ softmax(x/t))·t²·weights[r]
	// of each row and adds scale times its gradient to dx.
	DistillKL(loss, dx, x, y, weights tensor.Tensor, t, scale float32)
	// SquaredError writes mean_i (x[r, i] - y[r, i])²·weights[r] and adds scale
	// times its gradient to dx.
	SquaredError(loss, dx, x, y, weights tensor.Tensor, scale float32)
	// CosineError writes (1 - cos(x[r], y[r]))·weights[r] and adds scale times its
	// gradient to dx.
	CosineError(loss, dx, x, y, weights tensor.Tensor, scale float32)

	// SumSquares writes dst[0] = RSUM(x²) over all elements of a contiguous x.
	SumSquares(dst, x tensor.Tensor)
	// AdamW makes one step: w, m, v and g are contiguous and of one shape.
	AdamW(w, m, v, g tensor.Tensor, s AdamWStep)
	// Repack gives a weight that Pack made of float32 values new ones, in place:
	// values [N, K]. No product with it may be under way.
	Repack(w Weight, values tensor.Tensor)
}

// FirstGrad is what a Grad offers besides if it can begin a gradient without reading
// it; ask for it by a type assertion.
type FirstGrad interface {
	// First says that a contiguous F32 gradient holds nothing yet. The next Grad op,
	// one of LinearGrad, ProjectGrad, Accumulate, SwiGLUGrad, RMSNormGrad, LayerNormGrad,
	// NormRoPEGrad, AttentionGrad and CrossEntropy, adds to it, and writes +0 +
	// contribution: the bits that it would add to what Zero writes.
	First(dst tensor.Tensor)
}

// AdamWStep are the scalars of one step of AdamW, each formed in float64 and
// rounded once. Per element
//
//	g' = g·Clip
//	m  = m·Beta1 + g'·(1-Beta1)
//	v  = v·Beta2 + (g'·g')·(1-Beta2)
//	w  = w·Decay - (m / (√(v·Scale2) + Eps))·Rate
//
// every product, quotient and sum rounded by itself.
type AdamWStep struct {
	Beta1, Rest1 float32 // Rest1 = 1 - β1
	Beta2, Rest2 float32
	Scale2       float32 // 1/(1 - β2^t)
	Rate         float32 // learning rate/(1 - β1^t)
	Decay        float32 // 1 - learning rate · weight decay
	Eps          float32
	Clip         float32 // factor on the gradient
}
