package backendtest

import (
	"slices"
	"testing"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// gradUses is a valid call of every op of backend.Grad, and which of its operands
// may be left out.
func gradUses(e *Env) (l []use, mayLack map[string][]string) {
	r := tensortest.NewRand(Seed, "grad errors")
	f := func(dim ...int) tensor.Tensor { return e.Flat(r.F32(tensortest.Ordinary, product(dim)), dim...) }
	i := func(limit int, dim ...int) tensor.Tensor { return e.Ints(r.I32(product(dim), limit), dim...) }
	w := e.Pack(r, tensortest.Ordinary, tensor.F32, 5, 6)
	rope, err := backend.NewRoPE(1e4, 6, backend.Scaling{}, nil)
	e.must(err)
	seg := backend.Seg{Rows: 3, DeltaIn: f(1, 2, 4, 5), DeltaOut: f(1, 2, 4, 5), ConvIn: f(1, 3, 6), ConvOut: f(1, 3, 6)}
	p := func() backend.Plan { return e.S.Plan([]backend.Seg{seg}) }
	g := e.grad()
	type T = []tensor.Tensor
	n := func(l ...string) []string { return l }
	rows := func(k int) (t T) {
		for range k {
			t = append(t, f(3, 6))
		}
		return t
	}
	heads := func(k int) (t T) {
		for range k {
			t = append(t, f(3, 2, 6))
		}
		return t
	}
	l = []use{
		{"Accumulate", n("dst", "src"), rows(2), "", func(t T) { g.Accumulate(t[0], t[1]) }},
		{"LinearGrad", n("dx", "dy"), T{f(3, 6), f(3, 5)}, "", func(t T) { g.LinearGrad(t[0], t[1], w) }},
		{"ProjectGrad", n("dx", "dy", "w"), T{f(3, 6), f(3, 5), f(5, 6)}, "", func(t T) { g.ProjectGrad(t[0], t[1], t[2]) }},
		{"WeightGrad", n("dw", "dy", "x"), T{f(5, 6), f(3, 5), f(3, 6)}, "", func(t T) { g.WeightGrad(t[0], t[1], t[2], p()) }},
		{"BiasGrad", n("db", "dy"), T{f(6), f(3, 6)}, "", func(t T) { g.BiasGrad(t[0], t[1], p()) }},
		{"EmbedGrad", n("dtable", "dy", "ids"), T{f(5, 6), f(3, 6), i(5, 3)}, "", func(t T) { g.EmbedGrad(t[0], t[1], t[2]) }},
		{"GatherGrad", n("dx", "dy", "rows"), T{f(5, 6), f(3, 6), i(5, 3)}, "", func(t T) { g.GatherGrad(t[0], t[1], t[2]) }},
		{"RMSNormGrad", n("dx", "dw", "dy", "x", "w"), T{f(3, 6), f(6), f(3, 6), f(3, 6), f(6)}, "", func(t T) { g.RMSNormGrad(t[0], t[1], t[2], t[3], t[4], 1e-6, p()) }},
		{"LayerNormGrad", n("dx", "dw", "db", "dy", "x", "w"), T{f(3, 6), f(6), f(6), f(3, 6), f(3, 6), f(6)}, "",
			func(t T) { g.LayerNormGrad(t[0], t[1], t[2], t[3], t[4], t[5], 1e-6, p()) }},
		{"SwiGLUGrad", n("dgate", "dup", "dy", "gate", "up"), rows(5), "", func(t T) { g.SwiGLUGrad(t[0], t[1], t[2], t[3], t[4]) }},
		{"SigmoidMulGrad", n("dx", "dgate", "dy", "x", "gate"), heads(5), "", func(t T) { g.SigmoidMulGrad(t[0], t[1], t[2], t[3], t[4]) }},
		{"SoftmaxGrad", n("dx", "dy", "y"), rows(3), "", func(t T) { g.SoftmaxGrad(t[0], t[1], t[2]) }},
		{"NormRoPEGrad", n("dx", "dw", "dy", "x", "w"), T{f(3, 2, 6), f(6), f(3, 2, 6), f(3, 2, 6), f(6)}, "", func(t T) { g.NormRoPEGrad(t[0], t[1], t[2], t[3], t[4], 1e-6, rope, p()) }},
		{"AttentionGrad", n("dq", "dk", "dv", "dy", "y", "q", "k", "v"), heads(8), "", func(t T) { g.AttentionGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], p(), 1, 0) }},
		{"ConvGrad", n("dx", "dw", "dy", "x", "w"), T{f(3, 6), f(4, 6), f(3, 6), f(3, 6), f(4, 6)}, "", func(t T) { g.ConvGrad(t[0], t[1], t[2], t[3], t[4], p(), 0) }},
		{"L2NormGrad", n("dx", "dy", "x"), heads(3), "", func(t T) { g.L2NormGrad(t[0], t[1], t[2], 1e-6, 1) }},
		{"DeltaGatesGrad", n("da", "db", "dAExp", "dDTBias", "dg", "dbeta", "g", "beta", "a", "aExp", "dtBias"),
			T{f(3, 6), f(3, 6), f(6), f(6), f(3, 6), f(3, 6), f(3, 6), f(3, 6), f(3, 6), f(6), f(6)}, "",
			func(t T) {
				g.DeltaGatesGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], p())
			}},
		{"GatedDeltaGrad", n("dq", "dk", "dv", "dg", "dbeta", "dy", "q", "k", "v", "g", "beta"),
			T{f(3, 2, 4), f(3, 2, 4), f(3, 2, 5), f(3, 2), f(3, 2), f(3, 2, 5), f(3, 2, 4), f(3, 2, 4), f(3, 2, 5), f(3, 2), f(3, 2)}, "",
			func(t T) {
				g.GatedDeltaGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], p(), 0)
			}},
		{"GatedRMSNormGrad", n("dx", "dz", "dw", "dy", "x", "z", "w"), T{f(3, 2, 6), f(3, 2, 6), f(6), f(3, 2, 6), f(3, 2, 6), f(3, 2, 6), f(6)}, "",
			func(t T) { g.GatedRMSNormGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], 1e-6, p()) }},
		{"CrossEntropy", n("loss", "dx", "x", "targets", "weights"), T{f(3), f(3, 6), f(3, 6), i(6, 3), f(3)}, "", func(t T) { g.CrossEntropy(t[0], t[1], t[2], t[3], t[4], 1) }},
		{"DistillKL", n("loss", "dx", "x", "y", "weights"), T{f(3), f(3, 6), f(3, 6), f(3, 6), f(3)}, "", func(t T) { g.DistillKL(t[0], t[1], t[2], t[3], t[4], 2, 1) }},
		{"SquaredError", n("loss", "dx", "x", "y", "weights"), T{f(3), f(3, 6), f(3, 6), f(3, 6), f(3)}, "", func(t T) { g.SquaredError(t[0], t[1], t[2], t[3], t[4], 1) }},
		{"CosineError", n("loss", "dx", "x", "y", "weights"), T{f(3), f(3, 6), f(3, 6), f(3, 6), f(3)}, "", func(t T) { g.CosineError(t[0], t[1], t[2], t[3], t[4], 1) }},
		{"SumSquares", n("dst"), T{f(1)}, "", func(t T) { g.SumSquares(t[0], f(6)) }},
		{"AdamW", n("w", "m", "v", "g"), rows(4), "", func(t T) { g.AdamW(t[0], t[1], t[2], t[3], backend.AdamWStep{}) }},
		{"Repack", n("values"), T{f(5, 6)}, "", func(t T) { g.Repack(w, t[0]) }},
	}
	return l, map[string][]string{
		"RMSNormGrad": {"dw"}, "LayerNormGrad": {"dw", "db"}, "NormRoPEGrad": {"dw"}, "ConvGrad": {"dw"}, "GatedRMSNormGrad": {"dw"}, "DeltaGatesGrad": {"dAExp", "dDTBias"},
		"CrossEntropy": {"dx", "weights"}, "DistillKL": {"dx", "weights"}, "SquaredError": {"dx", "weights"}, "CosineError": {"dx", "weights"},
	}
}

// GradErrors tests what the ops of backend.Grad must refuse.
func GradErrors(t *testing.T, dev backend.Device) {
	e := newEnv(t, dev)
	defer e.close()
	probe := e.In([]float32{1, 2}, 1, 2)
	all, mayLack := gradUses(e)
	refuseSpoilt(t, e, probe, all, func(u *use, name, how string) bool { return how == "invalid" && slices.Contains(mayLack[u.op], name) })
	f := func(dim ...int) tensor.Tensor { return e.Flat(make([]float32, product(dim)), dim...) }
	ids := func(v ...int32) tensor.Tensor { return e.Ints(v, len(v)) }
	w := e.Pack(tensortest.NewRand(1), tensortest.Ordinary, tensor.F32, 5, 6)
	half := e.Pack(tensortest.NewRand(1), tensortest.Ordinary, tensor.BF16, 5, 6)
	other := newEnv(t, dev)
	foreign := other.S.Plan([]backend.Seg{{Rows: 1}})
	one := func() backend.Plan { return e.S.Plan([]backend.Seg{{Rows: 1}}) }
	g, none := e.grad(), tensor.Tensor{}
	for _, c := range []badCall{
		{"an id behind the table", func() { g.EmbedGrad(f(5, 6), f(1, 6), ids(5)) }},
		{"a negative row", func() { g.GatherGrad(f(5, 6), f(1, 6), ids(-1)) }},
		{"a row behind dx", func() { g.GatherGrad(f(5, 6), f(1, 6), ids(5)) }},
		{"a target behind the classes", func() { g.CrossEntropy(f(1), f(1, 6), f(1, 6), ids(6), none, 1) }},
		{"no plan for WeightGrad", func() { g.WeightGrad(f(5, 6), f(1, 5), f(1, 6), nil) }},
		{"another stream's plan for WeightGrad", func() { g.WeightGrad(f(5, 6), f(1, 5), f(1, 6), foreign) }},
		{"a plan of other rows for WeightGrad", func() { g.WeightGrad(f(5, 6), f(2, 5), f(2, 6), one()) }},
		{"another stream's plan for BiasGrad", func() { g.BiasGrad(f(6), f(1, 6), foreign) }},
		{"no plan for a norm's weight", func() { g.RMSNormGrad(f(1, 6), f(6), f(1, 6), f(1, 6), f(6), 1, nil) }},
		{"another stream's plan for a norm's weight", func() { g.RMSNormGrad(f(1, 6), f(6), f(1, 6), f(1, 6), f(6), 1, foreign) }},
		{"no plan for a norm's bias", func() { g.LayerNormGrad(f(1, 6), none, f(6), f(1, 6), f(1, 6), f(6), 1, nil) }},
		{"another stream's plan for a norm's bias", func() { g.LayerNormGrad(f(1, 6), none, f(6), f(1, 6), f(1, 6), f(6), 1, foreign) }},
		{"no plan for NormRoPEGrad", func() { g.NormRoPEGrad(f(1, 1, 6), none, f(1, 1, 6), f(1, 1, 6), none, 1, nil, nil) }},
		{"a gradient of no weight", func() { g.NormRoPEGrad(f(1, 1, 6), f(6), f(1, 1, 6), f(1, 1, 6), none, 1, nil, one()) }},
		{"heads that do not divide", func() {
			g.AttentionGrad(f(1, 3, 6), f(1, 2, 6), f(1, 2, 6), f(1, 3, 6), f(1, 3, 6), f(1, 3, 6), f(1, 2, 6), f(1, 2, 6), one(), 1, 0)
		}},
		{"a part of a sequence", func() {
			x := f(1, 1, 6)
			g.AttentionGrad(f(1, 1, 6), f(1, 1, 6), f(1, 1, 6), x, x, x, x, x, e.S.Plan([]backend.Seg{{Rows: 1, Slot: 1}}), 1, 0)
		}},
		{"a plan without history", func() { g.ConvGrad(f(1, 6), none, f(1, 6), f(1, 6), f(4, 6), one(), 0) }},
		{"a nil weight", func() { g.LinearGrad(f(1, 6), f(1, 5), nil) }},
		{"a foreign weight", func() { g.LinearGrad(f(1, 6), f(1, 5), alien{5, 6}) }},
		{"new values for a nil weight", func() { g.Repack(nil, f(5, 6)) }},
		{"new values for a foreign weight", func() { g.Repack(alien{5, 6}, f(5, 6)) }},
		{"new values for a weight of another type", func() { g.Repack(half, f(5, 6)) }},
		{"new values of another shape", func() { g.Repack(w, f(6, 5)) }},
		{"new values with gaps", func() { g.Repack(w, f(5, 7).Cols(0, 6)) }},
		{"zeros with gaps", func() { g.Zero(f(5, 7).Cols(0, 6)) }},
		{"zeros nowhere", func() { g.Zero(none) }},
		{"moments of another shape", func() { g.AdamW(f(6), f(6), f(5), f(6), backend.AdamWStep{}) }},
	} {
		c.call()
		refused(t, e, probe, "%s", c.what)
	}
}
