package backendtest

import (
	"testing"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// Op is a call that may be repeated.
type Op struct {
	Name string
	Run  func()
	Err  func() error
}

// Decode returns every op with the shapes of one decoded token of a small model,
// for counting allocations and for timing.
func Decode(t testing.TB, dev backend.Device) []Op {
	e := newEnv(t, dev)
	t.Cleanup(e.close)
	e.pad = 0
	r := tensortest.NewRand(Seed, "decode")
	f := func(dim ...int) tensor.Tensor { return e.Flat(r.F32(tensortest.Ordinary, product(dim)), dim...) }
	const (
		c, hidden, vocab = 256, 512, 600
		hq, hkv, d       = 4, 2, 64
		hk, hv, dk, dv   = 2, 4, 32, 32
		past             = 600
	)
	pack := func(dt tensor.DType, n, k int) backend.Weight { return e.Pack(r, tensortest.Ordinary, dt, n, k) }
	table, small, quant := pack(tensor.BF16, vocab, c), pack(tensor.F32, hidden, c), pack(tensor.Q4_K, hidden, c)
	gate, up, down := experts(e, r, tensortest.Ordinary, tensor.BF16, 4, c, 64)
	rope, err := backend.NewRoPE(1e6, d, backend.Scaling{}, nil)
	e.must(err)
	seg := []backend.Seg{{Rows: 1, Slot: past, Pos: past, KV: e.cache(r, tensortest.Ordinary, 1, hkv, d, part{past, 1}),
		DeltaIn: f(1, hv, dk, dv), DeltaOut: f(1, hv, dk, dv), ConvIn: f(1, 3, c), ConvOut: f(1, 3, c)}}
	s := e.S
	p := s.Plan(seg)
	id := e.Ints([]int32{7}, 1)
	chosen := e.Ints([]int32{1, 3}, 1, 2)
	x, y, z, w, h, u := f(1, c), f(1, c), f(1, c), f(c), f(1, hidden), f(1, hidden)
	logits, best := f(1, vocab), e.Ints([]int32{0}, 1)
	q, q2, k, v, wd := f(1, hq, d), f(1, hq, d), f(1, hkv, d), f(1, hkv, d), f(d)
	rows, moments, moments2 := f(1, hq, past+1), f(hkv, past+1), f(hkv, past+1)
	dq, dkey, dval, o, wv := f(1, hk, dk), f(1, hk, dk), f(1, hv, dv), f(1, hv, dv), f(dv)
	g, beta, a, b, ae := f(1, hv), f(1, hv), f(1, hv), f(1, hv), f(hv)
	taps, router, weights, one, proj := f(4, c), f(1, 4), f(1, 2), f(1, 1), f(8, c)
	page, pageRows := seg[0].KV[0], f(2, hkv, 64, d)
	out8, list := f(1, 8), e.Ints(r.I32(8, vocab), 8)
	raw := make([]byte, 4*c)
	e.must(s.Sync())
	var l []Op
	add := func(name string, run func()) { l = append(l, Op{name, run, s.Err}) }
	add("Plan", func() { p = s.Plan(seg) })
	add("Write", func() { s.Write(x, raw) })
	add("Read", func() { s.Read(raw, x) })
	add("Embed", func() { s.Embed(x, table, id) })
	add("Linear bf16", func() { s.Linear(logits, x, table) })
	add("Linear f32", func() { s.Linear(h, x, small) })
	add("Linear Q4_K", func() { s.Linear(h, x, quant) })
	add("LinearRows", func() { s.LinearRows(out8, x, table, list) })
	add("Project", func() { s.Project(out8, x, proj) })
	add("AddBias", func() { s.AddBias(y, x, w) })
	add("Add", func() { s.Add(y, x, z) })
	add("RMSNorm", func() { s.RMSNorm(y, x, w, 1e-6) })
	add("LayerNorm", func() { s.LayerNorm(y, x, w, w, 1e-6) })
	add("SwiGLU", func() { s.SwiGLU(h, h, u) })
	add("SigmoidMul", func() { s.SigmoidMul(y, x, z) })
	add("Gather", func() { s.Gather(x, logits.Reshape(1, vocab).Cols(0, c).Rows(0, 1), best) })
	add("Copy", func() { s.Copy(y, x) })
	add("ArgMax", func() { s.ArgMax(best, logits) })
	add("Softmax", func() { s.Softmax(logits, logits) })
	add("NormRoPE", func() { s.NormRoPE(q2, q, wd, 1e-6, rope, p) })
	add("PutKV", func() { s.PutKV(p, 0, k, v) })
	add("Attention", func() { s.Attention(q, q2, p, 0, 0.125, 0) })
	if dev.Info().BF16Pages {
		e.half = true
		halves := []backend.Seg{{Rows: 1, Slot: past, Pos: past, KV: e.cache(r, tensortest.Ordinary, 1, hkv, d, part{past, 1})}}
		e.half = false
		var ph backend.Plan
		add("Plan of bf16 pages", func() { ph = s.Plan(halves) })
		add("PutKV to bf16 pages", func() { s.PutKV(ph, 0, k, v) })
		add("Attention over bf16 pages", func() { s.Attention(q, q2, ph, 0, 0.125, 0) })
		add("Plan", func() { p = s.Plan(seg) })
	}
	add("Attention with a window", func() { s.Attention(q, q2, p, 0, 0.125, 100) })
	add("AttnWeights", func() { s.AttnWeights(rows, q, p, 0, 0.125, 0) })
	add("AttnScores", func() { s.AttnScores(rows, q, p, 0, 0.125, 0) })
	add("AttentionWeights", func() { s.AttentionWeights(q2, rows, q, p, 0, 0, 0.125, 0) })
	add("Moments", func() { s.Moments(moments, moments2, rows) })
	add("GetPage", func() { s.GetPage(pageRows, page) })
	add("PutPage", func() { s.PutPage(page, pageRows) })
	add("Conv", func() { s.Conv(y, x, taps, p, 0) })
	add("L2Norm", func() { s.L2Norm(dq, dkey, 1e-6, 0.25) })
	add("DeltaGates", func() { s.DeltaGates(g, beta, a, b, ae, ae) })
	add("GatedDelta", func() { s.GatedDelta(o, dq, dkey, dval, g, beta, p, 0) })
	add("GatedRMSNorm", func() { s.GatedRMSNorm(o, dval, dval, wv, 1e-6) })
	add("Route", func() { s.Route(chosen, weights, router, 2, true) })
	add("Experts", func() { s.Experts(y, x, chosen, weights, gate, up, down) })
	add("AddGated", func() { s.AddGated(y, x, z, one) })
	return l
}
