package cpu

import (
	"fmt"

	"samebit/backend"
	"samebit/backend/cpu/internal/gemm/blas1"
	"samebit/internal/canon"
	"samebit/tensor"
)

func (s *stream) RMSNormGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckRMSNormGrad(dx, dw, dy, x, w, p)) || dw.Valid() && !s.current(p) {
		return
	}
	s.load(dx, dy, x)
	o := &s.grad
	o.vec[0], o.eps = s.vector(w), eps
	s.firsts(o.m[0])
	s.eachVector(dw, x.Dim(0), 3*x.Dim(1), func(s *stream, worker, lo, hi int, part []float32) {
		o := &s.grad
		tmp := s.tmp(worker, 3*o.m[2].cols)
		for r := lo; r < hi; r++ {
			s.dev.vec.RMSNormGrad(o.m[0].row(r), part, o.m[1].row(r), o.m[2].row(r), o.vec[0], tmp, o.eps, o.fresh[0])
		}
	})
}

func (s *stream) LayerNormGrad(dx, dw, db, dy, x, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckLayerNormGrad(dx, dw, db, dy, x, w, p)) || (dw.Valid() || db.Valid()) && !s.current(p) {
		return
	}
	s.load(dx, dy, x)
	o := &s.grad
	o.vec[0], o.eps = s.vector(w), eps
	s.firsts(o.m[0])
	s.eachPair(dw, db, x.Dim(1), x.Dim(0), 4*x.Dim(1), func(s *stream, worker, lo, hi int, part []float32) {
		o := &s.grad
		n := o.m[2].cols
		tmp := s.tmp(worker, 3*n)
		var dw, db []float32
		if part != nil {
			dw, db = part[:n], part[n:]
		}
		for r := lo; r < hi; r++ {
			s.dev.vec.LayerNormGrad(o.m[0].row(r), dw, db, o.m[1].row(r), o.m[2].row(r), o.vec[0], tmp, o.eps, o.fresh[0])
		}
	})
}

// into is row r of gradient i of the op under way, of +0 if it holds nothing yet.
func (o *gradOp) into(i, r int) []float32 {
	d := o.m[i].row(r)
	if o.fresh[i] {
		clear(d)
	}
	return d
}

func (s *stream) NormRoPEGrad(dx, dw, dy, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckNormRoPEGrad(dx, dw, dy, x, w, rope, p)) || !s.current(p) {
		return
	}
	s.load(dx, dy, x)
	o := &s.grad
	o.vec[0], o.eps, o.angles = nil, eps, nil
	if w.Valid() {
		o.vec[0] = s.vector(w)
	}
	if rope != nil {
		o.angles = s.turn(rope)
	}
	s.firsts(o.m[0])
	s.eachVector(dw, x.Dim(0), 3*x.Dim(1)*x.Dim(2), func(s *stream, worker, lo, hi int, part []float32) {
		o := &s.grad
		heads, d := o.m[2].heads, o.m[2].cols
		tmp := s.tmp(worker, 5*d)
		back, sin := tmp[3*d:4*d], tmp[4*d:]
		for r := lo * heads; r < hi*heads; r++ {
			g := o.m[1].row(r)
			if a := o.angles; a != nil {
				h := len(a.rope.Inv)
				at := r / heads * h
				if r%heads == 0 {
					s.dev.vec.Scale(sin[:h], a.sin[at:at+h], -1) // the turn back
				}
				s.dev.vec.Rotate(back, g, a.cos[at:at+h], sin[:h])
				g = back
			}
			if o.vec[0] == nil {
				dx := o.into(0, r)
				s.dev.vec.Add(dx, dx, g)
				continue
			}
			s.dev.vec.RMSNormGrad(o.m[0].row(r), part, g, o.m[2].row(r), o.vec[0], tmp, o.eps, o.fresh[0])
		}
	})
}

func (s *stream) SwiGLUGrad(dgate, dup, dy, gate, up tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SwiGLUGrad", dgate, dup, dy, gate, up)) {
		return
	}
	s.load(dgate, dup, dy, gate, up)
	s.firsts(s.grad.m[0], s.grad.m[1])
	s.eachRow(dy.Dim(0), 4*dy.Dim(1), func(s *stream, worker, lo, hi int) {
		o, m := &s.grad, &s.grad.m
		tmp := s.tmp(worker, 3*m[2].cols)
		both := o.fresh[0] && o.fresh[1]
		for r := lo; r < hi; r++ {
			dg, du := m[0].row(r), m[1].row(r)
			if !both {
				dg, du = o.into(0, r), o.into(1, r)
			}
			s.dev.vec.SwiGLUGrad(dg, du, m[2].row(r), m[3].row(r), m[4].row(r), tmp, both)
		}
	})
}

// sigmoidSlope turns sg = sigmoid(x) into its derivative sg·(1 - sg).
func (s *stream) sigmoidSlope(sg, t []float32) {
	v := s.dev.vec
	v.Scale(t, sg, -1)
	v.AddScalar(t, t, 1)
	v.Mul(sg, sg, t)
}

func (s *stream) SigmoidMulGrad(dx, dgate, dy, x, gate tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckSame("SigmoidMulGrad", dx, dgate, dy, x, gate)) {
		return
	}
	s.load(dx, dgate, dy, x, gate)
	m := &s.grad.m[0]
	s.eachRow(m.rows, 4*m.cols, func(s *stream, worker, lo, hi int) {
		v, m := s.dev.vec, &s.grad.m
		n := m[0].cols
		tmp := s.tmp(worker, 2*n)
		sg, t := tmp[:n], tmp[n:]
		for r := lo; r < hi; r++ {
			dx, dg, dy, x := m[0].row(r), m[1].row(r), m[2].row(r), m[3].row(r)
			v.Sigmoid(sg, m[4].row(r))
			v.Mul(t, dy, sg)
			v.Add(dx, dx, t)
			s.sigmoidSlope(sg, t)
			v.Mul(t, dy, x)
			v.Mul(t, t, sg)
			v.Add(dg, dg, t)
		}
	})
}

func (s *stream) SoftmaxGrad(dx, dy, y tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("SoftmaxGrad", dx, dy, y)) {
		return
	}
	s.load(dx, dy, y)
	s.eachRow(y.Dim(0), 3*y.Dim(1), func(s *stream, worker, lo, hi int) {
		v, m := s.dev.vec, &s.grad.m
		t := s.tmp(worker, m[0].cols)
		for r := lo; r < hi; r++ {
			dx, dy, y := m[0].row(r), m[1].row(r), m[2].row(r)
			v.Mul(t, dy, y)
			v.AddScalar(t, dy, -v.Sum(t))
			v.Mul(t, t, y)
			v.Add(dx, dx, t)
		}
	})
}

func (s *stream) L2NormGrad(dx, dy, x tensor.Tensor, eps, scale float32) {
	if s.err != nil || s.fails(backend.CheckHeads("L2NormGrad", dx, dy, x)) {
		return
	}
	s.load(dx, dy, x)
	s.grad.eps, s.grad.scale = eps, scale
	m := &s.grad.m[0]
	s.eachRow(m.rows, 3*m.cols, func(s *stream, worker, lo, hi int) {
		v, o := s.dev.vec, &s.grad
		n := o.m[0].cols
		tmp := s.tmp(worker, 3*n)
		g, xh, t := tmp[:n], tmp[n:2*n], tmp[2*n:]
		for row := lo; row < hi; row++ {
			x := o.m[2].row(row)
			r := canon.Rsqrt(v.SumSquares(x) + o.eps)
			v.Scale(xh, x, r)
			if copy(g, o.m[1].row(row)); o.scale != 1 {
				v.Scale(g, g, o.scale)
			}
			v.NormGrad(o.m[0].row(row), g, xh, t, r, 1, false)
		}
	})
}

func (s *stream) GatedRMSNormGrad(dx, dz, dw, dy, x, z, w tensor.Tensor, eps float32, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckGatedRMSNormGrad(dx, dz, dw, dy, x, z, w, p)) || dw.Valid() && !s.current(p) {
		return
	}
	s.load(dx, dz, dy, x, z)
	s.grad.vec[0], s.grad.eps = s.vector(w), eps
	s.eachVector(dw, x.Dim(0), 5*x.Dim(1)*x.Dim(2), func(s *stream, worker, lo, hi int, part []float32) {
		v, o := s.dev.vec, &s.grad
		n, heads := o.m[3].cols, o.m[3].heads
		tmp := s.tmp(worker, 7*n)
		y, sg, a, t := tmp[3*n:4*n], tmp[4*n:5*n], tmp[5*n:6*n], tmp[6*n:]
		for r := lo * heads; r < hi*heads; r++ {
			dz, dy, x, z := o.m[1].row(r), o.m[2].row(r), o.m[3].row(r), o.m[4].row(r)
			v.RMSNorm(y, x, o.vec[0], o.eps)
			v.Sigmoid(sg, z)
			v.SiLU(a, z)
			v.Mul(y, dy, y)
			v.SiLUSlope(sg, a, t)
			v.Mul(y, y, sg)
			v.Add(dz, dz, y)
			v.Mul(y, dy, a) // the gradient of the norm's result
			v.RMSNormGrad(o.m[0].row(r), part, y, x, o.vec[0], tmp, o.eps, false)
		}
	})
}

// losses runs f over the rows of a loss with the gradient's row, nil for none (that of
// a CrossEntropy may hold nothing yet), and the row's weight, and stores what it returns.
func (s *stream) losses(loss, dx, x, y, weights tensor.Tensor, scratch int, f func(s *stream, r int, d, x, y, tmp []float32, w float32) float32) {
	s.load(dx, x, y)
	o := &s.grad
	s.firsts(o.m[0])
	out := s.vector(loss)
	o.vec[0] = out
	o.vec[1] = nil
	if weights.Valid() {
		o.vec[1] = s.vector(weights)
	}
	n := x.Dim(1) * scratch
	s.eachRow(x.Dim(0), x.Dim(1), func(s *stream, worker, lo, hi int) {
		o := &s.grad
		tmp := s.tmp(worker, n)
		for r := lo; r < hi; r++ {
			w := float32(1)
			if o.vec[1] != nil {
				w = o.vec[1][r]
			}
			var d, y []float32
			if o.m[0].v != nil {
				d = o.m[0].row(r)
			}
			if o.m[2].v != nil {
				y = o.m[2].row(r)
			}
			o.vec[0][r] = f(s, r, d, o.m[1].row(r), y, tmp, w)
		}
	})
}

// logSumExp writes the numerators of a softmax; see package ref.
func (s *stream) logSumExp(e, x []float32) (inv, lse float32) {
	m := s.dev.vec.Max(x)
	s.dev.vec.ExpSub(e, x, m)
	n := s.dev.vec.Sum(e)
	return 1 / n, m + canon.Log(n)
}

func (s *stream) CrossEntropy(loss, dx, x, targets, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckCrossEntropy(loss, dx, x, targets, weights)) || s.away(targets) {
		return
	}
	s.grad.ids, _ = targets.I32()
	for r, t := range s.grad.ids {
		if int(t) >= x.Dim(1) {
			s.fails(fmt.Errorf("cpu: CrossEntropy: target %d of row %d is outside %d classes", t, r, x.Dim(1)))
			return
		}
	}
	s.grad.scale = scale
	s.losses(loss, dx, x, tensor.Tensor{}, weights, 1, func(s *stream, r int, d, x, _, e []float32, w float32) float32 {
		o := &s.grad
		t := int(o.ids[r])
		if t < 0 {
			if d != nil && o.fresh[0] {
				clear(d)
			}
			return 0
		}
		inv, lse := s.logSumExp(e, x)
		if d != nil {
			s.dev.vec.SoftmaxLossGrad(d, e, inv, t, float32(w*o.scale), o.fresh[0])
		}
		return float32((lse - x[t]) * w)
	})
}

func (s *stream) DistillKL(loss, dx, x, y, weights tensor.Tensor, t, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("DistillKL", loss, dx, x, y, weights)) {
		return
	}
	s.grad.temp, s.grad.scale = t, scale
	s.losses(loss, dx, x, y, weights, 4, func(s *stream, _ int, d, x, y, tmp []float32, w float32) float32 {
		v, n, temp := s.dev.vec, len(x), s.grad.temp
		a, b, ea, eb := tmp[:n], tmp[n:2*n], tmp[2*n:3*n], tmp[3*n:]
		for i := range a {
			a[i], b[i] = y[i]/temp, x[i]/temp
		}
		ia, la := s.logSumExp(ea, a)
		ib, lb := s.logSumExp(eb, b)
		v.Scale(ea, ea, ia)
		if d != nil {
			v.Scale(eb, eb, ib)
			v.Sub(eb, eb, ea)
			v.Scale(eb, eb, float32(float32(temp*w)*s.grad.scale))
			v.Add(d, d, eb)
		}
		v.AddScalar(a, a, -la)
		v.AddScalar(b, b, -lb)
		v.Sub(a, a, b)
		v.Mul(a, ea, a)
		return float32(float32(v.Sum(a)*float32(temp*temp)) * w)
	})
}

func (s *stream) SquaredError(loss, dx, x, y, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("SquaredError", loss, dx, x, y, weights)) {
		return
	}
	s.grad.scale = scale
	s.losses(loss, dx, x, y, weights, 1, func(s *stream, _ int, d, x, y, e []float32, w float32) float32 {
		v, n := s.dev.vec, float32(len(x))
		v.Sub(e, x, y)
		sum := v.SumSquares(e)
		if d != nil {
			v.Scale(e, e, float32(float32(2/n*w)*s.grad.scale))
			v.Add(d, d, e)
		}
		return float32(sum / n * w)
	})
}

func (s *stream) CosineError(loss, dx, x, y, weights tensor.Tensor, scale float32) {
	if s.err != nil || s.fails(backend.CheckDistance("CosineError", loss, dx, x, y, weights)) {
		return
	}
	s.grad.scale = scale
	s.losses(loss, dx, x, y, weights, 1, func(s *stream, _ int, d, x, y, e []float32, w float32) float32 {
		v := s.dev.vec
		xx := v.SumSquares(x)
		den := float32(canon.Sqrt(xx) * canon.Sqrt(v.SumSquares(y)))
		fixed := !(den > 1e-12)
		if fixed {
			den = 1e-12
		}
		cos := blas1.Dot(s.dev.set, x, y) / den
		if d != nil {
			a, b := 1/den, float32(0)
			if !fixed {
				b = cos / xx
			}
			v.Scale(e, y, a)
			v.Scale(e, e, -1)
			v.FMAScalar(e, b, x)
			v.Scale(e, e, float32(w*s.grad.scale))
			v.Add(d, d, e)
		}
		return float32((1 - cos) * w)
	})
}
