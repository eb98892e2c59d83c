package backendtest

import (
	"math"
	"slices"
	"testing"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// ArchiveGradCases is the table of the ops of backend.ArchiveGrad, for RunCases on a
// device whose streams have them.
func ArchiveGradCases() []Case {
	return slices.Concat(scanGradCases(), windowGradCases(), archiveRowGradCases())
}

func (e *Env) archiveGrad() backend.ArchiveGrad { return e.S.(backend.ArchiveGrad) }

// scanGrads are shapes and options of archives with gradients. past is not used.
var scanGrads = []archiveCase{
	{[]int{1}, nil, 1, 1, 1, 3, 1, 0, 1, 1, 0, false, nil, "no event"},
	{[]int{2}, nil, 1, 1, 1, 3, 1, 0, 1, 1, 0, false, nil, "the smallest event"},
	{[]int{7}, nil, 1, 2, 2, 5, 3, 0, 4, 2, 0, false, nil, "an odd size"},
	{[]int{9, 1, 14}, nil, 2, 2, 2, 7, 6, 2, 5, 3, 2, true, nil, "ragged, sinks, an archive per query head"},
	{[]int{25}, nil, 2, 4, 1, 9, 11, 0, 3, 3, 3, true, nil, "an archive shared by the queries of a key head"},
	{[]int{140, 128, 3}, nil, 1, 2, 1, 6, 4, 0, 5, 2, 2, true, nil, "several blocks of rows"},
	{[]int{150}, nil, 1, 1, 1, 32, 130, 0, 16, 4, 8, true, nil, "the first event in the second block, in the published shape"},
	{[]int{9}, nil, 1, 1, 1, 130, 4, 1, 3, 2, 129, false, nil, "sums of two blocks over components and rank"},
	{[]int{9}, nil, 2, 1, 1, 6, 4, 0, 133, 2, 2, false, nil, "more codes than a block"},
	{[]int{9}, nil, 1, 1, 1, 6, 4, 0, 2, 131, 2, false, nil, "more scales than a block"},
	{[]int{9}, nil, 1, 1, 1, 64, 4, 0, 64, 2, 2, false, nil, "whole registers"},
	{[]int{5}, nil, 1, 1, 1, 1, 2, 0, 40, 50, 1, false, nil, "many sums of one component"},
	{[]int{12}, nil, 2, 1, 1, 8, 4, 0, 7, 4, 2, false, func(w *backend.ArchiveParams) { w.PerCode = true }, "a division per code"},
	{[]int{12}, nil, 2, 1, 1, 8, 4, 0, 7, 4, 0, false, func(w *backend.ArchiveParams) { w.Gated, w.Threshold = true, 0.25 }, "a content gate"},
	{[]int{12}, nil, 2, 1, 1, 8, 4, 0, 7, 4, 0, true, func(w *backend.ArchiveParams) { w.Features = true }, "kernel features"},
	{[]int{12}, nil, 1, 1, 1, 8, 4, 0, 7, 4, 2, true, func(w *backend.ArchiveParams) { w.Features, w.Gated, w.PerCode = true, true, true }, "kernel features behind a gate, a division per code"},
	{[]int{12, 5}, nil, 2, 1, 1, 8, 4, 0, 7, 4, 2, true, func(w *backend.ArchiveParams) { w.Landmarks, w.LandmarkTemp = backend.PersistentLandmarks, 2 }, "landmarks"},
	{[]int{12}, nil, 2, 1, 1, 8, 4, 0, 3, 4, 2, true, func(w *backend.ArchiveParams) { w.Landmarks, w.LandmarkTemp = backend.PrefixLandmarks, 1 }, "the first events"},
	{[]int{12}, nil, 1, 2, 1, 8, 2, 0, 3, 4, 0, true, func(w *backend.ArchiveParams) { w.Landmarks, w.LandmarkTemp = backend.PairLandmarks, 1 }, "the first events in pairs"},
	{[]int{12}, nil, 2, 1, 1, 8, 4, 0, 7, 4, 0, false, func(w *backend.ArchiveParams) { w.Active = 7 }, "all codes active"},
}

func scanGradCases() []Case {
	var l []Case
	for _, z := range scanGrads {
		kinds := []tensortest.Kind{tensortest.Ordinary}
		if z.d == 8 {
			kinds = tensortest.Kinds()
		}
		for _, k := range kinds {
			l = append(l, Case{"ArchiveScanGrad", name("%v/heads=%d:%d:%d/d=%d/w=%d+%d/%dx%d/%s/%s", z.rows, z.kv, z.group, z.a, z.d, z.window, z.sinks, z.m, z.s, z.why, k), z.why,
				func(e *Env, r *tensortest.Rand) { z.runGrad(e, r, k) }})
		}
	}
	return l
}

// runGrad takes a pass of one layer back, with addresses of their own or with values
// that are the addresses.
func (z *archiveCase) runGrad(e *Env, r *tensortest.Rand, k tensortest.Kind) {
	w := z.params(e, r, k)
	p := e.S.Plan(segsOf(z.rows...))
	rows, hq := p.Rows(), z.kv*z.group
	in := func(heads int) tensor.Tensor { return e.In(r.F32(k, rows*heads*z.d), rows, heads, z.d) }
	out := func(what string, heads int) tensor.Tensor {
		return e.InOut(what, r.F32(k, rows*heads*z.d), rows, heads, z.d)
	}
	sum := func(what string, t tensor.Tensor) tensor.Tensor {
		if !t.Valid() {
			return t
		}
		return e.State(what, r.F32(k, t.Len()), t.Shape()...)
	}
	keys := in(z.kv)
	d := &backend.ArchiveGrads{Q: out("dq", hq), K: out("dk", z.kv), Codes: sum("codes", w.Codes), Mix: sum("mix", w.Mix),
		CorrV: sum("corrV", w.CorrV), CorrU: sum("corrU", w.CorrU), CorrScale: sum("corrScale", w.CorrScale)}
	if w.Landmarks == backend.PersistentLandmarks {
		d.LandmarkMix = sum("landmarkMix", w.LandmarkMix)
	}
	v := keys
	if d.V = d.K; z.raw {
		d.V, v = out("dv", z.kv), in(z.kv)
	}
	q, dy := in(hq), in(hq)
	e.archiveGrad().ArchiveScanGrad(d, dy, q, keys, v, p, w)
	few := &backend.ArchiveGrads{Q: out("dq alone", hq), K: out("dk alone", z.kv), V: out("dv alone", z.kv), CorrU: sum("corrU alone", w.CorrU)}
	e.archiveGrad().ArchiveScanGrad(few, dy, q, keys, v, p, w)
}

func windowGradCases() []Case {
	var l []Case
	for _, z := range []struct {
		rows          []int
		hq, hkv, d    int
		window, sinks int
		why           string
	}{
		{[]int{1}, 1, 1, 8, 1, 0, "one row sees itself"},
		{[]int{9, 3}, 2, 1, 7, 4, 2, "sinks leave the window within a block"},
		{[]int{135}, 1, 1, 5, 20, 3, "sinks that the window has left blocks ago"},
		{[]int{140, 1}, 2, 1, 5, 70, 66, "sinks of two blocks"},
		{[]int{130}, 1, 1, 3, 64, 64, "as many sinks as the window has rows"},
		{[]int{70}, 2, 1, 8, 100, 5, "a window that nothing leaves"},
	} {
		kinds := []tensortest.Kind{tensortest.Ordinary}
		if z.rows[0] < 10 {
			kinds = tensortest.Kinds()
		}
		for _, k := range kinds {
			l = append(l, Case{"WindowAttentionGrad", name("%v/heads=%d:%d/d=%d/w=%d+%d/%s", z.rows, z.hq, z.hkv, z.d, z.window, z.sinks, k), z.why, func(e *Env, r *tensortest.Rand) {
				p := e.S.Plan(segsOf(z.rows...))
				rows := p.Rows()
				in := func(h int) tensor.Tensor { return e.In(r.F32(k, rows*h*z.d), rows, h, z.d) }
				out := func(what string, h int) tensor.Tensor {
					return e.InOut(what, r.F32(k, rows*h*z.d), rows, h, z.d)
				}
				e.archiveGrad().WindowAttentionGrad(out("dq", z.hq), out("dk", z.hkv), out("dv", z.hkv), in(z.hq), in(z.hq), in(z.hq), in(z.hkv), in(z.hkv), p,
					backend.WindowParams{Scale: 0.3125, Window: z.window, Sinks: z.sinks})
			}})
		}
	}
	return l
}

func archiveRowGradCases() []Case {
	var l []Case
	for _, z := range headSizes {
		for _, k := range tensortest.Kinds() {
			n := z.r * z.h * z.d
			shape := name("%dx%dx%d/%s", z.r, z.h, z.d, k)
			in := func(e *Env, r *tensortest.Rand) tensor.Tensor { return e.In(r.F32(k, n), z.r, z.h, z.d) }
			out := func(e *Env, r *tensortest.Rand, what string) tensor.Tensor {
				return e.InOut(what, r.F32(k, n), z.r, z.h, z.d)
			}
			l = append(l,
				Case{"GateMixGrad", shape, z.why, func(e *Env, r *tensortest.Rand) {
					p := e.S.Plan(segsOf(cutRows(z.r)...))
					gate := e.In(r.F32(k, z.r*z.h), z.r, z.h)
					dy, local, remote := in(e, r), in(e, r), in(e, r)
					for _, w := range []backend.GateParams{{From: 1}, {Norm: true}, {From: 2, Remote: 0.125}, {Remote: 0.25, Norm: true}} {
						g, dg := gate, tensor.Tensor{}
						if w.Remote > 0 {
							g = tensor.Tensor{}
						} else {
							dg = e.InOut("dgate", r.F32(k, z.r*z.h), z.r, z.h)
						}
						e.archiveGrad().GateMixGrad(out(e, r, "dlocal"), out(e, r, "dremote"), dg, dy, local, remote, g, p, w)
					}
					zero := e.In(make([]float32, n), z.r, z.h, z.d)
					e.archiveGrad().GateMixGrad(out(e, r, "dlocal of zeros"), out(e, r, "dremote of zeros"), tensor.Tensor{}, dy, zero, zero, tensor.Tensor{}, p, backend.GateParams{Remote: 0.5, Norm: true})
				}},
				Case{"QueryCorrectionGrad", shape, z.why, func(e *Env, r *tensortest.Rand) {
					const rank = 3
					p := e.S.Plan(segsOf(cutRows(z.r)...))
					f := func() tensor.Tensor { return e.Flat(r.F32(k, z.h*z.d*rank), z.h, z.d, rank) }
					g := func() tensor.Tensor { return e.Flat(r.F32(k, z.h*z.d*rank), z.h, rank, z.d) }
					dy, q, v, u := in(e, r), in(e, r), f(), g()
					e.archiveGrad().QueryCorrectionGrad(out(e, r, "dq"), e.State("dv", r.F32(k, z.h*z.d*rank), z.h, z.d, rank), e.State("du", r.F32(k, z.h*z.d*rank), z.h, rank, z.d), dy, q, v, u, p)
					e.archiveGrad().QueryCorrectionGrad(out(e, r, "dq alone"), tensor.Tensor{}, tensor.Tensor{}, dy, q, v, u, p)
				}},
				Case{"GELUGrad", shape, z.why, func(e *Env, r *tensortest.Rand) {
					e.archiveGrad().GELUGrad(e.InOut("dx", r.F32(k, n), z.r, z.h*z.d), e.In(r.F32(k, n), z.r, z.h*z.d), e.In(r.F32(k, n), z.r, z.h*z.d))
				}})
		}
	}
	return l
}

// ArchiveGradErrors tests what the ops of backend.ArchiveGrad must refuse.
func ArchiveGradErrors(t *testing.T, dev backend.Device) {
	e := newEnv(t, dev)
	defer e.close()
	probe := e.In([]float32{1, 2}, 1, 2)
	r := tensortest.NewRand(Seed, "archive gradient errors")
	f := func(dim ...int) tensor.Tensor { return e.Flat(r.F32(tensortest.Ordinary, product(dim)), dim...) }
	p := func() backend.Plan { return e.S.Plan(segsOf(5)) }
	g := e.archiveGrad()
	window := backend.WindowParams{Scale: 0.5, Window: 2, Sinks: 1}
	params := func() *backend.ArchiveParams {
		return &backend.ArchiveParams{WindowParams: window, Codes: f(2, 3, 6), Mix: f(2, 3, 2), CorrV: f(2, 6, 2), CorrU: f(2, 2, 6), CorrScale: f(2, 2, 2), LandmarkMix: f(2),
			Decay: []float32{0.5, 0.75}, Gain: []float32{0.25, 0.5}, Landmarks: backend.PersistentLandmarks, LandmarkTemp: 1}
	}
	type T = []tensor.Tensor
	n := func(l ...string) []string { return l }
	heads := func(k int) (t T) {
		for range k {
			t = append(t, f(5, 2, 6))
		}
		return t
	}
	grads := func(t T) *backend.ArchiveGrads {
		return &backend.ArchiveGrads{Q: t[0], K: t[1], V: t[2], Codes: t[3], Mix: t[4], CorrV: t[5], CorrU: t[6], CorrScale: t[7], LandmarkMix: t[8]}
	}
	uses := []use{
		{"WindowAttentionGrad", n("dq", "dk", "dv", "dy", "y", "q", "k", "v"), heads(8), "", func(t T) { g.WindowAttentionGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], p(), window) }},
		{"ArchiveScanGrad", n("dq", "dk", "dv", "codes", "mix", "corrV", "corrU", "corrScale", "landmarkMix", "dy", "q", "k", "v"),
			append(append(heads(3), f(2, 3, 6), f(2, 3, 2), f(2, 6, 2), f(2, 2, 6), f(2, 2, 2), f(2)), heads(4)...), "",
			func(t T) { g.ArchiveScanGrad(grads(t), t[9], t[10], t[11], t[12], p(), params()) }},
		{"GateMixGrad", n("dlocal", "dremote", "dgate", "dy", "local", "remote", "gate"), append(append(heads(2), f(5, 2)), append(heads(3), f(5, 2))...), "",
			func(t T) { g.GateMixGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], p(), backend.GateParams{}) }},
		{"QueryCorrectionGrad", n("dq", "dv", "du", "dy", "q", "v", "u"), append(append(heads(1), f(2, 6, 3), f(2, 3, 6)), append(heads(2), f(2, 6, 3), f(2, 3, 6))...), "",
			func(t T) { g.QueryCorrectionGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], p()) }},
		{"GELUGrad", n("dx", "dy", "x"), T{f(5, 6), f(5, 6), f(5, 6)}, "", func(t T) { g.GELUGrad(t[0], t[1], t[2]) }},
	}
	mayLack := map[string][]string{"ArchiveScanGrad": {"codes", "mix", "corrV", "corrU", "corrScale", "landmarkMix"}, "QueryCorrectionGrad": {"dv", "du"}}
	refuseSpoilt(t, e, probe, uses, func(u *use, name, how string) bool { return how == "invalid" && slices.Contains(mayLack[u.op], name) })
	x := uses[1].operands
	scan := func(w *backend.ArchiveParams) { g.ArchiveScanGrad(grads(x), x[9], x[10], x[11], x[12], p(), w) }
	with := func(set func(w *backend.ArchiveParams)) *backend.ArchiveParams {
		w := params()
		set(w)
		return w
	}
	other := newEnv(t, dev)
	defer other.close()
	h := heads(4)
	for _, c := range []badCall{
		{"no parameters", func() { scan(nil) }},
		{"no gradients", func() { g.ArchiveScanGrad(nil, x[9], x[10], x[11], x[12], p(), params()) }},
		{"lazy decay", func() { scan(with(func(w *backend.ArchiveParams) { w.Lazy, w.Active = true, 3 })) }},
		{"sparse reads", func() { scan(with(func(w *backend.ArchiveParams) { w.Active = 2 })) }},
		{"a gradient of a correction that is not there", func() { scan(with(func(w *backend.ArchiveParams) { w.CorrV = tensor.Tensor{} })) }},
		{"no window", func() { scan(with(func(w *backend.ArchiveParams) { w.Window = 0 })) }},
		{"a window beyond all slots", func() { scan(with(func(w *backend.ArchiveParams) { w.Window = math.MaxInt })) }},
		{"a part of a sequence", func() {
			g.GateMixGrad(h[0], h[1], tensor.Tensor{}, h[2], h[3], h[3], tensor.Tensor{}, e.S.Plan([]backend.Seg{{Rows: 5, Slot: 64}}), backend.GateParams{})
		}},
		{"another stream's plan", func() {
			g.GateMixGrad(h[0], h[1], tensor.Tensor{}, h[2], h[3], h[3], tensor.Tensor{}, other.S.Plan(segsOf(5)), backend.GateParams{})
		}},
		{"no plan", func() {
			g.QueryCorrectionGrad(h[0], tensor.Tensor{}, tensor.Tensor{}, h[1], h[2], f(2, 6, 3), f(2, 3, 6), nil)
		}},
	} {
		c.call()
		refused(t, e, probe, "%s", c.what)
	}
}
