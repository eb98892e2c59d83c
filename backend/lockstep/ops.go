package lockstep

import (
	"fmt"
	"slices"

	"samebit/backend"
	"samebit/tensor"
)

// side is one of the two streams with its operands.
type side struct {
	backend.Stream
	first bool
	t     []tensor.Tensor
}

// weight picks the side's half of a weight.
func (x *side) weight(w backend.Weight) backend.Weight {
	a, b := both(w)
	if x.first {
		return a
	}
	return b
}

func (x *side) weights(l []backend.Weight) []backend.Weight {
	a, b := bothAll(l)
	if x.first {
		return a
	}
	return b
}

// run does one op on both sides and compares its outputs, the first outs of its
// operands. It reports whether all is well.
func (s *stream) run(op string, outs int, f func(x *side), operands ...tensor.Tensor) bool {
	if !s.unseen(op, outs, f, operands...) {
		return false
	}
	for i := range outs {
		what := "the result"
		if outs > 1 {
			what = fmt.Sprintf("output %d", i)
		}
		if !s.same(what, operands[i]) {
			return false
		}
	}
	return true
}

// unseen is run without a comparison.
func (s *stream) unseen(op string, outs int, f func(x *side), operands ...tensor.Tensor) bool {
	if !s.begin(op, operands...) || !s.writable(operands[:outs]...) {
		return false
	}
	a, b := side{Stream: s.a, first: true}, side{Stream: s.b}
	for _, t := range operands {
		x, y := split(t)
		a.t, b.t = append(a.t, x), append(b.t, y)
	}
	f(&a)
	f(&b)
	return s.end()
}

func (s *stream) Embed(dst tensor.Tensor, table backend.Weight, ids tensor.Tensor) {
	s.run("Embed", 1, func(x *side) { x.Embed(x.t[0], x.weight(table), x.t[1]) }, dst, ids)
}

func (s *stream) Linear(dst, x tensor.Tensor, w backend.Weight) {
	s.run("Linear", 1, func(x *side) { x.Linear(x.t[0], x.t[1], x.weight(w)) }, dst, x)
}

// Linears is that of each side that has one (backend.Products).
func (s *stream) Linears(dst []tensor.Tensor, x tensor.Tensor, w []backend.Weight) {
	operands := append(slices.Clone(dst), x)
	if err := backend.CheckLinears(dst, x, w); err != nil {
		if s.begin("Linears", operands...) {
			s.err = err
		}
		return
	}
	n := len(dst)
	s.run("Linears", n, func(x *side) { backend.Linears(x.Stream, x.t[:n], x.t[n], x.weights(w)) }, operands...)
}

func (s *stream) LinearRows(dst, x tensor.Tensor, w backend.Weight, rows tensor.Tensor) {
	s.run("LinearRows", 1, func(x *side) { x.LinearRows(x.t[0], x.t[1], x.weight(w), x.t[2]) }, dst, x, rows)
}

func (s *stream) Project(dst, x, w tensor.Tensor) {
	s.run("Project", 1, func(x *side) { x.Project(x.t[0], x.t[1], x.t[2]) }, dst, x, w)
}

func (s *stream) AddBias(dst, x, b tensor.Tensor) {
	s.run("AddBias", 1, func(x *side) { x.AddBias(x.t[0], x.t[1], x.t[2]) }, dst, x, b)
}

func (s *stream) Add(dst, a, b tensor.Tensor) {
	s.run("Add", 1, func(x *side) { x.Add(x.t[0], x.t[1], x.t[2]) }, dst, a, b)
}

func (s *stream) RMSNorm(dst, x, w tensor.Tensor, eps float32) {
	s.run("RMSNorm", 1, func(x *side) { x.RMSNorm(x.t[0], x.t[1], x.t[2], eps) }, dst, x, w)
}

func (s *stream) LayerNorm(dst, x, w, b tensor.Tensor, eps float32) {
	s.run("LayerNorm", 1, func(x *side) { x.LayerNorm(x.t[0], x.t[1], x.t[2], x.t[3], eps) }, dst, x, w, b)
}

func (s *stream) SwiGLU(dst, gate, up tensor.Tensor) {
	s.run("SwiGLU", 1, func(x *side) { x.SwiGLU(x.t[0], x.t[1], x.t[2]) }, dst, gate, up)
}

func (s *stream) SigmoidMul(dst, x, gate tensor.Tensor) {
	s.run("SigmoidMul", 1, func(x *side) { x.SigmoidMul(x.t[0], x.t[1], x.t[2]) }, dst, x, gate)
}

func (s *stream) Gather(dst, x, rows tensor.Tensor) {
	s.run("Gather", 1, func(x *side) { x.Gather(x.t[0], x.t[1], x.t[2]) }, dst, x, rows)
}

func (s *stream) SumRows(p backend.Plan, x tensor.Tensor) {
	if !s.unseen("SumRows", 0, func(d *side) { d.SumRows(d.plan(s, p), d.t[0]) }, x) {
		return
	}
	for i := range s.plan.segs {
		if !s.same(fmt.Sprintf("the sum of segment %d", i), s.plan.segs[i].SumOut) {
			return
		}
	}
}

func (s *stream) Copy(dst, src tensor.Tensor) {
	// Four axes may be a page, whose inner order is each device's affair.
	if s.unseen("Copy", 1, func(x *side) { x.Copy(x.t[0], x.t[1]) }, dst, src) && dst.Dims() < 4 {
		s.same("the result", dst)
	}
}

func (s *stream) ArgMax(dst, x tensor.Tensor) {
	s.run("ArgMax", 1, func(x *side) { x.ArgMax(x.t[0], x.t[1]) }, dst, x)
}

func (s *stream) Softmax(dst, x tensor.Tensor) {
	s.run("Softmax", 1, func(x *side) { x.Softmax(x.t[0], x.t[1]) }, dst, x)
}

// plan picks the side's half of a plan.
func (x *side) plan(s *stream, p backend.Plan) backend.Plan {
	a, b := s.plans(p)
	if x.first {
		return a
	}
	return b
}

func (s *stream) NormRoPE(dst, x, w tensor.Tensor, eps float32, rope *backend.RoPE, p backend.Plan) {
	s.run("NormRoPE", 1, func(x *side) { x.NormRoPE(x.t[0], x.t[1], x.t[2], eps, rope, x.plan(s, p)) }, dst, x, w)
}

func (s *stream) PutKV(p backend.Plan, layer int, k, v tensor.Tensor) {
	if !s.unseen("PutKV", 0, func(x *side) { x.PutKV(x.plan(s, p), layer, x.t[0], x.t[1]) }, k, v) {
		return
	}
	for i := range s.plan.segs {
		g := &s.plan.segs[i]
		for slot := g.Slot; slot < g.Slot+g.Rows; {
			b := slot / backend.Page
			end := min(g.Slot+g.Rows, (b+1)*backend.Page)
			if !s.samePage(fmt.Sprintf("what segment %d stored at slot %d", i, slot), g.KV[b], 2*layer, 2*layer+2, slot-b*backend.Page, end-b*backend.Page) {
				return
			}
			slot = end
		}
	}
}

// samePage compares slots [j0, j1) of planes [p0, p1) of a page, which may lie in
// another order on each device.
func (s *stream) samePage(what string, page tensor.Tensor, p0, p1, j0, j1 int) bool {
	rows, err := s.scratch(tensor.F32, page.Dim(0), page.Dim(1), j1, page.Dim(3))
	if err != nil {
		s.err = s.failure("comparing: %w", err)
		return false
	}
	ra, rb := split(rows)
	pa, pb := split(page)
	s.a.GetPage(ra, pa)
	s.b.GetPage(rb, pb)
	x, y, ok := s.fetch(rows)
	if !ok {
		return false
	}
	heads, row := page.Dim(1), 4*page.Dim(3)
	var u, v []byte
	for h := p0 * heads; h < p1*heads; h++ {
		u = append(u, x[(h*j1+j0)*row:(h+1)*j1*row]...)
		v = append(v, y[(h*j1+j0)*row:(h+1)*j1*row]...)
	}
	return s.compare(what, tensor.F32, []int{p1 - p0, heads, j1 - j0, page.Dim(3)}, u, v)
}

func (s *stream) Attention(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	s.run("Attention", 1, func(x *side) { x.Attention(x.t[0], x.t[1], x.plan(s, p), layer, scale, window) }, dst, q)
}

func (s *stream) AttnWeights(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	s.run("AttnWeights", 1, func(x *side) { x.AttnWeights(x.t[0], x.t[1], x.plan(s, p), layer, scale, window) }, dst, q)
}

func (s *stream) AttnScores(dst, q tensor.Tensor, p backend.Plan, layer int, scale float32, window int) {
	s.run("AttnScores", 1, func(x *side) { x.AttnScores(x.t[0], x.t[1], x.plan(s, p), layer, scale, window) }, dst, q)
}

func (s *stream) AttentionWeights(dst, w, q tensor.Tensor, p backend.Plan, first, layer int, scale float32, window int) {
	s.run("AttentionWeights", 2, func(x *side) {
		x.AttentionWeights(x.t[0], x.t[1], x.t[2], x.plan(s, p), first, layer, scale, window)
	}, dst, w, q)
}

func (s *stream) Moments(sum, square, w tensor.Tensor) {
	s.run("Moments", 2, func(x *side) { x.Moments(x.t[0], x.t[1], x.t[2]) }, sum, square, w)
}

func (s *stream) GetPage(dst, page tensor.Tensor) {
	s.unseen("GetPage", 1, func(x *side) { x.GetPage(x.t[0], x.t[1]) }, dst, page) // slots nobody wrote may hold anything
}

func (s *stream) PutPage(page, src tensor.Tensor) {
	if s.unseen("PutPage", 1, func(x *side) { x.PutPage(x.t[0], x.t[1]) }, page, src) && src.Dim(2) > 0 {
		s.samePage("the page", page, 0, page.Dim(0), 0, src.Dim(2))
	}
}

func (s *stream) Conv(dst, x, w tensor.Tensor, p backend.Plan, layer int) {
	if !s.run("Conv", 1, func(x *side) { x.Conv(x.t[0], x.t[1], x.t[2], x.plan(s, p), layer) }, dst, x, w) {
		return
	}
	for i := range s.plan.segs {
		if !s.same(fmt.Sprintf("the history of segment %d", i), s.plan.segs[i].ConvOut.Index(layer)) {
			return
		}
	}
}

func (s *stream) L2Norm(dst, x tensor.Tensor, eps, scale float32) {
	s.run("L2Norm", 1, func(x *side) { x.L2Norm(x.t[0], x.t[1], eps, scale) }, dst, x)
}

func (s *stream) DeltaGates(g, beta, a, b, aExp, dtBias tensor.Tensor) {
	s.run("DeltaGates", 2, func(x *side) { x.DeltaGates(x.t[0], x.t[1], x.t[2], x.t[3], x.t[4], x.t[5]) }, g, beta, a, b, aExp, dtBias)
}

func (s *stream) GatedDelta(dst, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if !s.run("GatedDelta", 1, func(x *side) {
		x.GatedDelta(x.t[0], x.t[1], x.t[2], x.t[3], x.t[4], x.t[5], x.plan(s, p), layer)
	}, dst, q, k, v, g, beta) {
		return
	}
	for i := range s.plan.segs {
		if !s.same(fmt.Sprintf("the state of segment %d", i), s.plan.segs[i].DeltaOut.Index(layer)) {
			return
		}
	}
}

func (s *stream) GatedRMSNorm(dst, x, z, w tensor.Tensor, eps float32) {
	s.run("GatedRMSNorm", 1, func(x *side) { x.GatedRMSNorm(x.t[0], x.t[1], x.t[2], x.t[3], eps) }, dst, x, z, w)
}

func (s *stream) Route(experts, weights, logits tensor.Tensor, k int, renorm bool) {
	s.run("Route", 2, func(x *side) { x.Route(x.t[0], x.t[1], x.t[2], k, renorm) }, experts, weights, logits)
}

func (s *stream) Experts(dst, x, experts, weights tensor.Tensor, gate, up, down []backend.Weight) {
	s.run("Experts", 1, func(x *side) {
		x.Experts(x.t[0], x.t[1], x.t[2], x.t[3], x.weights(gate), x.weights(up), x.weights(down))
	}, dst, x, experts, weights)
}

func (s *stream) AddGated(dst, y, x, gate tensor.Tensor) {
	s.run("AddGated", 1, func(x *side) { x.AddGated(x.t[0], x.t[1], x.t[2], x.t[3]) }, dst, y, x, gate)
}
