package vec

import "samebit/internal/canon"

// The kernels of gradients (numerics.md 10) are several steps in one pass over a row.
// Instruction sets that have none of them take the steps one by one. Where first is
// set, what a gradient is added to holds nothing yet and counts as +0.

// SoftmaxGrad turns scores p and their gradients' products d into p = exp(p - m) and
// d = (p·(d - c))·s.
func (k *Kernels) SoftmaxGrad(p, d []float32, m, c, s float32) {
	d = d[:len(p)]
	if k.softmaxGrad != nil {
		k.softmaxGrad(p, d, m, c, s)
		return
	}
	k.expSub(p, p, m)
	k.addScalar(d, d, -c)
	k.mul(d, p, d)
	k.scale(d, d, s)
}

// ExpSum is RSUM of exp(x[i] - m). tmp is scratch of len(x) or more.
func (k *Kernels) ExpSum(x []float32, m float32, tmp []float32) float32 {
	if k.expSum != nil {
		return k.expSum(x, m)
	}
	tmp = tmp[:len(x)]
	k.expSub(tmp, x, m)
	return k.sum(tmp)
}

// SwiGLUGrad adds dy·silu(gate) to dup and (dy·up)·slope to dgate, slope that of SiLU
// at gate. tmp is scratch of three rows.
func (k *Kernels) SwiGLUGrad(dgate, dup, dy, gate, up, tmp []float32, first bool) {
	n := len(dgate)
	dup, dy, gate, up = dup[:n], dy[:n], gate[:n], up[:n]
	switch {
	case k.swigluGrad != nil && first:
		k.swigluGradFirst(dgate, dup, dy, gate, up)
		return
	case k.swigluGrad != nil:
		k.swigluGrad(dgate, dup, dy, gate, up)
		return
	case first:
		clear(dgate)
		clear(dup)
	}
	sg, a, t := tmp[:n], tmp[n:2*n], tmp[2*n:3*n]
	k.sigmoid(sg, gate)
	k.silu(a, gate)
	k.mul(t, dy, a)
	k.add(dup, dup, t)
	k.SiLUSlope(sg, a, t)
	k.mul(t, dy, up)
	k.mul(t, t, sg)
	k.add(dgate, dgate, t)
}

// SiLUSlope turns sg = sigmoid(x) into the derivative of SiLU at x, whose value there
// is a: FMA(a, 1 - sg, sg). tmp is scratch of a row.
func (k *Kernels) SiLUSlope(sg, a, tmp []float32) {
	k.Scale(tmp, sg, -1)
	k.AddScalar(tmp, tmp, 1)
	k.FMA(sg, a, tmp)
}

// RMSNormGrad adds the gradient of one row of RMSNorm to dx; part, if not nil, takes
// the row's step in the chains of the weight's gradient. tmp is scratch of three rows.
func (k *Kernels) RMSNormGrad(dx, part, dy, x, w, tmp []float32, eps float32, first bool) {
	n := len(dx)
	dy, x, w = dy[:n], x[:n], w[:n]
	r := canon.Rsqrt(k.sumSquares(x)/float32(n) + eps)
	if k.normGrad == nil {
		g, xh := tmp[:n], tmp[n:2*n]
		k.scale(xh, x, r)
		if part != nil {
			k.fma(part, dy, xh)
		}
		k.mul(g, dy, w)
		k.NormGrad(dx, g, xh, tmp[2*n:], r, float32(n), first)
		return
	}
	var c float32
	if part != nil {
		c = k.normGradSumPart(dy, x, w, part[:n], r)
	} else {
		c = k.normGradSum(dy, x, w, r)
	}
	c /= float32(n)
	if first {
		k.normGradFirst(dx, dy, x, w, r, c)
	} else {
		k.normGrad(dx, dy, x, w, r, c)
	}
}

// LayerNormGrad is RMSNormGrad for LayerNorm. dw and db, if not nil, take the row's
// step in the chains of the gradients of weight and bias.
func (k *Kernels) LayerNormGrad(dx, dw, db, dy, x, w, tmp []float32, eps float32, first bool) {
	dy, x, w = dy[:len(dx)], x[:len(dx)], w[:len(dx)]
	g, xh, n := tmp[:len(dx)], tmp[len(dx):2*len(dx)], float32(len(dx))
	k.addScalar(xh, x, -(k.sum(x) / n))
	r := canon.Rsqrt(k.sumSquares(xh)/n + eps)
	k.scale(xh, xh, r)
	if dw != nil {
		k.fma(dw, dy, xh)
	}
	if db != nil {
		k.add(db, db, dy)
	}
	k.mul(g, dy, w)
	k.addScalar(g, g, -(k.sum(g) / n))
	k.NormGrad(dx, g, xh, tmp[2*len(dx):], r, n, first)
}

// NormGrad is the gradient of one row of xh = x·r, given g, that of xh, which is
// overwritten: dx += FMA(-c, xh, g)·r with c = RSUM(g·xh)/n. tmp is scratch of a row.
func (k *Kernels) NormGrad(dx, g, xh, tmp []float32, r, n float32, first bool) {
	t, g, xh := tmp[:len(dx)], g[:len(dx)], xh[:len(dx)]
	k.mul(t, g, xh)
	c := k.sum(t)
	if n != 1 {
		c /= n
	}
	k.fmaScalar(g, xh, -c)
	k.scale(g, g, r)
	if first {
		k.addScalar(dx, g, 0)
	} else {
		k.add(dx, dx, g)
	}
}

// SoftmaxLossGrad adds (e[i]·inv - [i = target])·s to d; e, the numerators of the
// softmax, may be overwritten.
func (k *Kernels) SoftmaxLossGrad(d, e []float32, inv float32, target int, s float32, first bool) {
	e = e[:len(d)]
	var old float32
	if !first {
		old = d[target]
	}
	at := old + float32((float32(e[target]*inv)-1)*s)
	switch {
	case k.softmaxLossGrad != nil && first:
		k.softmaxLossGradFirst(d, e, inv, s)
	case k.softmaxLossGrad != nil:
		k.softmaxLossGrad(d, e, inv, s)
	default:
		k.scale(e, e, inv)
		k.scale(e, e, s)
		if first {
			k.addScalar(d, e, 0)
		} else {
			k.add(d, d, e)
		}
	}
	d[target] = at
}

// AdamWStep are the factors of a step of AdamW.
type AdamWStep struct {
	Beta1, Rest1, Beta2, Rest2, Scale2, Rate, Decay, Eps, Clip float32
}

// AdamW makes a step: it updates values and moments.
func (k *Kernels) AdamW(w, m, v, g []float32, c *AdamWStep) {
	m, v, g = m[:len(w)], v[:len(w)], g[:len(w)]
	if k.adamW != nil {
		k.adamW(w, m, v, g, c.Clip, c.Beta1, c.Rest1, c.Beta2, c.Rest2, c.Scale2, c.Eps, c.Rate, c.Decay)
		return
	}
	for i := range w {
		x := float32(g[i] * c.Clip)
		mi := float32(m[i]*c.Beta1) + float32(x*c.Rest1)
		vi := float32(v[i]*c.Beta2) + float32(float32(x*x)*c.Rest2)
		m[i], v[i] = mi, vi
		w[i] = float32(w[i]*c.Decay) - float32(mi/(canon.Sqrt(float32(vi*c.Scale2))+c.Eps)*c.Rate)
	}
}
