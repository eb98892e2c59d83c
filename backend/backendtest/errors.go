package backendtest

import (
	"errors"
	"math"
	"testing"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// use is one valid call of an op, its operands by name.
type use struct {
	op       string
	names    []string
	operands []tensor.Tensor
	optional string // operand that may be invalid
	call     func(t []tensor.Tensor)
}

// far is memory of nowhere.
type far struct{ n int }

func (f far) Len() int     { return f.n }
func (f far) Host() []byte { return nil }

// alien is a weight that no device packed.
type alien struct{ out, in int }

func (a alien) Out() int            { return a.out }
func (a alien) In() int             { return a.in }
func (a alien) DType() tensor.DType { return tensor.F32 }
func (a alien) Bytes() int64        { return 0 }
func (a alien) Aliases() bool       { return false }

// uses is a valid call of every op.
func uses(e *Env) []use {
	r := tensortest.NewRand(Seed, "errors")
	f := func(dim ...int) tensor.Tensor { return e.Flat(r.F32(tensortest.Ordinary, product(dim)), dim...) }
	i := func(limit int, dim ...int) tensor.Tensor { return e.Ints(r.I32(product(dim), limit), dim...) }
	w := e.Pack(r, tensortest.Ordinary, tensor.F32, 5, 6)
	g := []backend.Weight{e.Pack(r, tensortest.Ordinary, tensor.F32, 4, 6), e.Pack(r, tensortest.Ordinary, tensor.F32, 4, 6)}
	d := []backend.Weight{e.Pack(r, tensortest.Ordinary, tensor.F32, 6, 4), e.Pack(r, tensortest.Ordinary, tensor.F32, 6, 4)}
	pages := e.pages(1, 2, 6, 3)
	page := pages[0]
	rope, err := backend.NewRoPE(1e4, 6, backend.Scaling{}, nil)
	e.must(err)
	seg := backend.Seg{Rows: 3, KV: pages,
		DeltaIn: f(1, 2, 4, 5), DeltaOut: f(1, 2, 4, 5), ConvIn: f(1, 3, 6), ConvOut: f(1, 3, 6), SumIn: f(6), SumOut: f(6)}
	plan := func() backend.Plan { return e.S.Plan([]backend.Seg{seg}) }
	s := e.S
	type T = []tensor.Tensor
	n := func(l ...string) []string { return l }
	return []use{
		{"Embed", n("dst", "ids"), T{f(3, 6), i(5, 3)}, "", func(t T) { s.Embed(t[0], w, t[1]) }},
		{"Linear", n("dst", "x"), T{f(3, 5), f(3, 6)}, "", func(t T) { s.Linear(t[0], t[1], w) }},
		{"Linears", n("dst", "x"), T{f(3, 5), f(3, 6)}, "", func(t T) {
			backend.Linears(s, []tensor.Tensor{f(3, 4), t[0]}, t[1], []backend.Weight{g[0], w})
		}},
		{"LinearRows", n("dst", "x", "rows"), T{f(3, 2), f(3, 6), i(5, 2)}, "", func(t T) { s.LinearRows(t[0], t[1], w, t[2]) }},
		{"Project", n("dst", "x", "w"), T{f(3, 5), f(3, 6), f(5, 6)}, "", func(t T) { s.Project(t[0], t[1], t[2]) }},
		{"AddBias", n("dst", "x", "b"), T{f(3, 6), f(3, 6), f(6)}, "", func(t T) { s.AddBias(t[0], t[1], t[2]) }},
		{"Add", n("dst", "a", "b"), T{f(3, 6), f(3, 6), f(3, 6)}, "", func(t T) { s.Add(t[0], t[1], t[2]) }},
		{"RMSNorm", n("dst", "x", "w"), T{f(3, 6), f(3, 6), f(6)}, "", func(t T) { s.RMSNorm(t[0], t[1], t[2], 1e-6) }},
		{"LayerNorm", n("dst", "x", "w", "b"), T{f(3, 6), f(3, 6), f(6), f(6)}, "", func(t T) { s.LayerNorm(t[0], t[1], t[2], t[3], 1e-6) }},
		{"SwiGLU", n("dst", "gate", "up"), T{f(3, 6), f(3, 6), f(3, 6)}, "", func(t T) { s.SwiGLU(t[0], t[1], t[2]) }},
		{"SigmoidMul", n("dst", "x", "gate"), T{f(3, 6), f(3, 6), f(3, 6)}, "", func(t T) { s.SigmoidMul(t[0], t[1], t[2]) }},
		{"SigmoidMul", n("dst", "x", "gate"), T{f(3, 2, 6), f(3, 2, 6), f(3, 2, 6)}, "", func(t T) { s.SigmoidMul(t[0], t[1], t[2]) }},
		{"Gather", n("dst", "x", "rows"), T{f(2, 6), f(3, 6), i(3, 2)}, "", func(t T) { s.Gather(t[0], t[1], t[2]) }},
		{"SumRows", n("x"), T{f(3, 6)}, "", func(t T) { s.SumRows(plan(), t[0]) }},
		{"Copy", n("dst", "src"), T{f(3, 6), f(3, 6)}, "", func(t T) { s.Copy(t[0], t[1]) }},
		{"ArgMax", n("dst", "x"), T{i(9, 3), f(3, 6)}, "", func(t T) { s.ArgMax(t[0], t[1]) }},
		{"Softmax", n("dst", "x"), T{f(3, 6), f(3, 6)}, "", func(t T) { s.Softmax(t[0], t[1]) }},
		{"NormRoPE", n("dst", "x", "w"), T{f(3, 2, 6), f(3, 2, 6), f(6)}, "w", func(t T) { s.NormRoPE(t[0], t[1], t[2], 1e-6, rope, plan()) }},
		{"PutKV", n("k", "v"), T{f(3, 2, 6), f(3, 2, 6)}, "", func(t T) { s.PutKV(plan(), 0, t[0], t[1]) }},
		{"Attention", n("dst", "q"), T{f(3, 4, 6), f(3, 4, 6)}, "", func(t T) { s.Attention(t[0], t[1], plan(), 0, 1, 0) }},
		{"AttnWeights", n("dst", "q"), T{f(3, 4, 7), f(3, 4, 6)}, "", func(t T) { s.AttnWeights(t[0], t[1], plan(), 0, 1, 0) }},
		{"AttnScores", n("dst", "q"), T{f(3, 4, 7), f(3, 4, 6)}, "", func(t T) { s.AttnScores(t[0], t[1], plan(), 0, 1, 0) }},
		{"AttentionWeights", n("dst", "w", "q"), T{f(3, 4, 6), f(3, 4, 7), f(3, 4, 6)}, "", func(t T) { s.AttentionWeights(t[0], t[1], t[2], plan(), 0, 0, 1, 0) }},
		{"Moments", n("sum", "square", "w"), T{f(2, 7), f(2, 7), f(3, 4, 7)}, "square", func(t T) { s.Moments(t[0], t[1], t[2]) }},
		{"GetPage", n("dst", "page"), T{f(2, 2, 3, 6), page}, "", func(t T) { s.GetPage(t[0], t[1]) }},
		{"PutPage", n("page", "src"), T{page, f(2, 2, 3, 6)}, "", func(t T) { s.PutPage(t[0], t[1]) }},
		{"Conv", n("dst", "x", "w"), T{f(3, 6), f(3, 6), f(4, 6)}, "", func(t T) { s.Conv(t[0], t[1], t[2], plan(), 0) }},
		{"L2Norm", n("dst", "x"), T{f(3, 2, 6), f(3, 2, 6)}, "", func(t T) { s.L2Norm(t[0], t[1], 1e-6, 1) }},
		{"DeltaGates", n("g", "beta", "a", "b", "aExp", "dtBias"), T{f(3, 2), f(3, 2), f(3, 2), f(3, 2), f(2), f(2)}, "", func(t T) { s.DeltaGates(t[0], t[1], t[2], t[3], t[4], t[5]) }},
		{"GatedDelta", n("dst", "q", "k", "v", "g", "beta"), T{f(3, 2, 5), f(3, 1, 4), f(3, 1, 4), f(3, 2, 5), f(3, 2), f(3, 2)}, "",
			func(t T) { s.GatedDelta(t[0], t[1], t[2], t[3], t[4], t[5], plan(), 0) }},
		{"GatedRMSNorm", n("dst", "x", "z", "w"), T{f(3, 2, 6), f(3, 2, 6), f(3, 2, 6), f(6)}, "", func(t T) { s.GatedRMSNorm(t[0], t[1], t[2], t[3], 1e-6) }},
		{"Route", n("experts", "weights", "logits"), T{i(2, 3, 2), f(3, 2), f(3, 4)}, "", func(t T) { s.Route(t[0], t[1], t[2], 2, true) }},
		{"Experts", n("dst", "x", "experts", "weights"), T{f(3, 6), f(3, 6), i(2, 3, 1), f(3, 1)}, "", func(t T) { s.Experts(t[0], t[1], t[2], t[3], g, g, d) }},
		{"AddGated", n("dst", "y", "x", "gate"), T{f(3, 6), f(3, 6), f(3, 6), f(3, 1)}, "", func(t T) { s.AddGated(t[0], t[1], t[2], t[3]) }},
	}
}

// spoilt are the ways to break an operand.
func spoilt(t tensor.Tensor) map[string]tensor.Tensor {
	dim := make([]int, t.Dims())
	for i := range dim {
		dim[i] = t.Dim(i)
	}
	buf, off := t.Buffer()
	other, retyped := append([]int(nil), dim...), tensor.I32
	other[len(other)-1]--
	if t.DType() == tensor.I32 {
		retyped = tensor.F32
	}
	m := map[string]tensor.Tensor{"invalid": {}, "elsewhere": t.On(far{buf.Len()})}
	m["of another type"], _ = tensor.New(buf, off, retyped, dim...)
	m["narrower"], _ = tensor.New(buf, off, t.DType(), other...)
	m["without values"] = t.Cols(0, 0)
	if t.Dims() < tensor.MaxDims {
		m["with an axis more"] = t.Reshape(append([]int{1}, dim...)...)
	} else {
		m["with an axis less"] = t.Index(0)
	}
	return m
}

// fits lists spoilt operands that are still right: other rows are another
// question to ask, and a page may lie behind more slots than a sequence has.
func (u *use) fits(name, how string) bool {
	switch {
	case how == "invalid":
		return name == u.optional
	case name == "dst" && (u.op == "AttnWeights" || u.op == "AttnScores"):
		return how == "narrower"
	case name == "w" && u.op == "AttentionWeights":
		return how == "narrower"
	}
	return how == "narrower" && (u.op == "ArgMax" && name == "x" || u.op == "Route" && name == "logits")
}

// refuseSpoilt demands that every op takes its operands and refuses them with any one
// spoilt, unless it fits all the same.
func refuseSpoilt(t *testing.T, e *Env, probe tensor.Tensor, all []use, fits func(u *use, name, how string) bool) {
	t.Helper()
	for i := range all {
		u := &all[i]
		u.call(u.operands)
		if err := e.S.Sync(); err != nil {
			t.Fatalf("%s refuses a valid call: %v", u.op, err)
		}
		for i, o := range u.operands {
			for how, bad := range spoilt(o) {
				if fits(u, u.names[i], how) {
					continue
				}
				ts := append([]tensor.Tensor(nil), u.operands...)
				ts[i] = bad
				u.call(ts)
				refused(t, e, probe, "%s with %s %s", u.op, u.names[i], how)
			}
		}
	}
}

func runErrors(t *testing.T, dev backend.Device) {
	e := newEnv(t, dev)
	defer e.close()
	all := uses(e)
	probe := e.In([]float32{1, 2}, 1, 2)
	refuseSpoilt(t, e, probe, all, (*use).fits)
	for _, c := range wrong(e) {
		c.call()
		refused(t, e, probe, "%s", c.what)
	}
}

// refused checks that a call failed, that the failure sticks and that Reset
// forgets it.
func refused(t *testing.T, e *Env, probe tensor.Tensor, format string, args ...any) {
	t.Helper()
	what := name(format, args...)
	err := e.S.Sync()
	if err == nil {
		t.Errorf("%s is accepted", what)
		return
	}
	if e.S.Err() == nil {
		t.Errorf("%s: Sync reports %v, Err nothing", what, err)
	}
	e.outs = nil
	e.S.Reset()
	dst := e.Out("dst", 1, 2)
	e.S.Linear(tensor.Tensor{}, tensor.Tensor{}, nil)
	first := e.S.Err()
	e.S.Add(dst, probe, probe)
	e.S.Copy(tensor.Tensor{}, probe)
	if got := e.S.Sync(); first == nil || got != first {
		t.Errorf("%s: the first failure %v must stick, Sync reports %v", what, first, got)
	}
	e.S.Reset()
	if r := e.Results(); r[0].F32[0] == r[0].F32[0] {
		t.Errorf("%s: an op after a failure wrote %v", what, r[0].F32)
	}
	e.S.Add(dst, probe, probe)
	if r := e.Results(); r[0].F32[1] != 4 {
		t.Errorf("%s: after Reset 2+2 is %v", what, r[0].F32[1])
	}
	e.outs = nil
}

type badCall struct {
	what string
	call func()
}

// wrong are calls whose operands are right by themselves.
func wrong(e *Env) []badCall {
	r := tensortest.NewRand(Seed, "wrong")
	f := func(dim ...int) tensor.Tensor { return e.Flat(make([]float32, product(dim)), dim...) }
	ids := func(v ...int32) tensor.Tensor { return e.Ints(v, len(v)) }
	w := e.Pack(r, tensortest.Ordinary, tensor.F32, 5, 6)
	g, d := e.Pack(r, tensortest.Ordinary, tensor.F32, 4, 6), e.Pack(r, tensortest.Ordinary, tensor.F32, 6, 4)
	pages := e.pages(1, 2, 6, 130)
	s := e.S
	one := func(w backend.Weight) []backend.Weight { return []backend.Weight{w} }
	seg := func(rows int) backend.Seg { return backend.Seg{Rows: rows, KV: pages} }
	plan := func(l ...backend.Seg) backend.Plan { return s.Plan(l) }
	other := newEnv(e.T, e.Dev)
	foreign := other.S.Plan([]backend.Seg{seg(1)})
	wide, err := backend.NewRoPE(1e4, 8, backend.Scaling{}, nil)
	e.must(err)
	nan := f(1, 4)
	s.Softmax(nan, e.In([]float32{float32(inf()), float32(inf()), 0, 0}, 1, 4)) // Inf - Inf

	l := []badCall{
		{"an id below the table", func() { s.Embed(f(1, 6), w, ids(-1)) }},
		{"an id behind the table", func() { s.Embed(f(2, 6), w, ids(4, 5)) }},
		{"an output behind the weight", func() { s.LinearRows(f(1, 1), f(1, 6), w, ids(5)) }},
		{"a negative output", func() { s.LinearRows(f(1, 1), f(1, 6), w, ids(-7)) }},
		{"a nil weight among several", func() { backend.Linears(s, []tensor.Tensor{f(1, 5), f(1, 5)}, f(1, 6), []backend.Weight{w, nil}) }},
		{"a row behind x", func() { s.Gather(f(1, 6), f(3, 6), ids(3)) }},
		{"a negative row", func() { s.Gather(f(1, 6), f(3, 6), ids(-1)) }},
		{"an expert too many", func() { s.Experts(f(1, 6), f(1, 6), e.Ints([]int32{1}, 1, 1), f(1, 1), one(g), one(g), one(d)) }},
		{"a negative expert", func() { s.Experts(f(1, 6), f(1, 6), e.Ints([]int32{-1}, 1, 1), f(1, 1), one(g), one(g), one(d)) }},
		{"no experts", func() { s.Experts(f(1, 6), f(1, 6), e.Ints([]int32{0}, 1, 1), f(1, 1), nil, nil, nil) }},
		{"lists of other lengths", func() { s.Experts(f(1, 6), f(1, 6), e.Ints([]int32{0}, 1, 1), f(1, 1), one(g), nil, one(d)) }},
		{"a nil expert", func() { s.Experts(f(1, 6), f(1, 6), e.Ints([]int32{0}, 1, 1), f(1, 1), one(g), one(nil), one(d)) }},
		{"an expert of another width", func() { s.Experts(f(1, 6), f(1, 6), e.Ints([]int32{0}, 1, 1), f(1, 1), one(g), one(d), one(d)) }},
		{"a foreign expert", func() {
			s.Experts(f(1, 6), f(1, 6), e.Ints([]int32{0}, 1, 1), f(1, 1), one(g), one(alien{4, 6}), one(d))
		}},
		{"more experts per row than there are", func() { s.Route(e.Ints([]int32{0, 0}, 1, 2), f(1, 2), f(1, 1), 2, false) }},
		{"no experts per row", func() { s.Route(e.Ints(nil, 1, 0), f(1, 0), f(1, 4), 0, false) }},
		{"a router that says NaN", func() { s.Route(e.Ints([]int32{0}, 1, 1), f(1, 1), nan, 1, false) }},
		{"a nil weight", func() { s.Linear(f(1, 5), f(1, 6), nil) }},
		{"a nil table", func() { s.Embed(f(1, 6), nil, ids(0)) }},
		{"a nil weight of LinearRows", func() { s.LinearRows(f(1, 1), f(1, 6), nil, ids(0)) }},
		{"a foreign weight", func() { s.Linear(f(1, 5), f(1, 6), alien{5, 6}) }},
		{"a foreign table", func() { s.Embed(f(1, 6), alien{5, 6}, ids(0)) }},
		{"other rows", func() { s.Linear(f(2, 5), f(3, 6), w) }},
		{"another width", func() { s.Linear(f(2, 5), f(2, 7), w) }},
		{"other outputs", func() { s.Linear(f(2, 6), f(2, 6), w) }},
		{"rows of nothing", func() { s.RMSNorm(f(2, 0), f(2, 0), f(0), 1) }},
		{"a projection of nothing", func() { s.Project(f(2, 3), f(2, 0), f(3, 0)) }},

		{"a plan that begins at row 1", func() { plan(backend.Seg{Row: 1, Rows: 1}) }},
		{"a plan with a gap", func() { plan(seg(1), backend.Seg{Row: 2, Rows: 1}) }},
		{"a segment without rows", func() { plan(backend.Seg{}) }},
		{"a segment with too many rows", func() { plan(backend.Seg{Rows: math.MaxInt}) }},
		{"a negative slot", func() { plan(backend.Seg{Rows: 1, Slot: -1}) }},
		{"a slot beyond all pages", func() { plan(backend.Seg{Rows: 2, Slot: 1<<31 - 2, KV: pages}) }},
		{"a negative position", func() { plan(backend.Seg{Rows: 1, Pos: -1}) }},
		{"a position that is no float32", func() { plan(backend.Seg{Rows: 1, Pos: 1 << 24}) }},
		{"a position that becomes none", func() { plan(backend.Seg{Rows: 2, Pos: 1<<24 - 1}) }},
		{"too few pages", func() { plan(backend.Seg{Rows: 1, Slot: 192, KV: pages}) }},
		{"pages of several shapes", func() { plan(backend.Seg{Rows: 1, KV: []tensor.Tensor{pages[0], e.pages(1, 1, 6, 1)[0]}}) }},
		{"pages that are too short", func() { plan(backend.Seg{Rows: 1, KV: []tensor.Tensor{f(2, 2, 63, 6)}}) }},
		{"pages with gaps", func() { plan(backend.Seg{Rows: 1, KV: []tensor.Tensor{f(2, 2, 64, 6).Cols(0, 3)}}) }},
		{"pages elsewhere", func() { plan(backend.Seg{Rows: 1, KV: []tensor.Tensor{pages[0].On(far{bufLen(pages[0])})}}) }},
		{"a recurrent state with gaps", func() { plan(backend.Seg{Rows: 1, DeltaIn: f(1, 1, 4, 4).Cols(0, 2)}) }},
		{"a recurrent state with three axes", func() { plan(backend.Seg{Rows: 1, DeltaOut: f(1, 4, 4)}) }},
		{"a history with two axes", func() { plan(backend.Seg{Rows: 1, ConvIn: f(4, 4)}) }},
		{"a history elsewhere", func() { plan(backend.Seg{Rows: 1, ConvOut: f(1, 3, 4).On(far{bufLen(f(1, 3, 4))})}) }},

		{"no plan", func() { s.Attention(f(1, 4, 6), f(1, 4, 6), nil, 0, 1, 0) }},
		{"no plan for PutKV", func() { s.PutKV(nil, 0, f(1, 2, 6), f(1, 2, 6)) }},
		{"no plan for Conv", func() { s.Conv(f(1, 6), f(1, 6), f(4, 6), nil, 0) }},
		{"a running sum with two axes", func() { plan(backend.Seg{Rows: 1, SumIn: f(1, 4)}) }},
		{"a running sum elsewhere", func() { plan(backend.Seg{Rows: 1, SumOut: f(4).On(far{bufLen(f(4))})}) }},
		{"no plan for SumRows", func() { s.SumRows(nil, f(1, 6)) }},
		{"another stream's plan for SumRows", func() { s.SumRows(foreign, f(1, 6)) }},
		{"a plan without sums", func() { s.SumRows(plan(seg(1)), f(1, 6)) }},
		{"sums of another width", func() { s.SumRows(plan(backend.Seg{Rows: 1, SumIn: f(6), SumOut: f(5)}), f(1, 6)) }},

		{"no plan for NormRoPE", func() { s.NormRoPE(f(1, 2, 6), f(1, 2, 6), f(6), 1, nil, nil) }},
		{"no plan for GatedDelta", func() { s.GatedDelta(f(1, 1, 4), f(1, 1, 4), f(1, 1, 4), f(1, 1, 4), f(1, 1), f(1, 1), nil, 0) }},
		{"a plan of another stream", func() { s.Attention(f(1, 4, 6), f(1, 4, 6), foreign, 0, 1, 0) }},
		{"another stream's plan for PutKV", func() { s.PutKV(foreign, 0, f(1, 2, 6), f(1, 2, 6)) }},
		{"another stream's plan for NormRoPE", func() { s.NormRoPE(f(1, 2, 6), f(1, 2, 6), f(6), 1, nil, foreign) }},
		{"a plan with other rows", func() { s.Attention(f(1, 4, 6), f(1, 4, 6), plan(seg(2)), 0, 1, 0) }},
		{"a layer too many", func() { s.Attention(f(1, 4, 6), f(1, 4, 6), plan(seg(1)), 1, 1, 0) }},
		{"a negative layer", func() { s.PutKV(plan(seg(1)), -1, f(1, 2, 6), f(1, 2, 6)) }},
		{"heads that do not divide", func() { s.Attention(f(1, 3, 6), f(1, 3, 6), plan(seg(1)), 0, 1, 0) }},
		{"another head width", func() { s.Attention(f(1, 4, 5), f(1, 4, 5), plan(seg(1)), 0, 1, 0) }},
		{"other key heads", func() { s.PutKV(plan(seg(1)), 0, f(1, 1, 6), f(1, 1, 6)) }},
		{"a plan without pages", func() { s.Attention(f(1, 4, 6), f(1, 4, 6), plan(backend.Seg{Rows: 1}), 0, 1, 0) }},
		{"fewer columns than slots", func() { s.AttnWeights(f(2, 4, 1), f(2, 4, 6), plan(seg(2)), 0, 1, 0) }},
		{"fewer columns than slots for both", func() { s.AttentionWeights(f(2, 4, 6), f(2, 4, 1), f(2, 4, 6), plan(seg(2)), 0, 0, 1, 0) }},
		{"rows behind the pass", func() { s.AttentionWeights(f(2, 4, 6), f(2, 4, 3), f(2, 4, 6), plan(seg(3)), 2, 0, 1, 0) }},
		{"rows before the pass", func() { s.AttentionWeights(f(2, 4, 6), f(2, 4, 3), f(2, 4, 6), plan(seg(3)), -1, 0, 1, 0) }},
		{"no plan for weights", func() { s.AttentionWeights(f(1, 4, 6), f(1, 4, 3), f(1, 4, 6), nil, 0, 0, 1, 0) }},
		{"groups that do not divide", func() { s.Moments(f(3, 5), f(3, 5), f(2, 4, 5)) }},
		{"no groups", func() { s.Moments(f(0, 5), f(0, 5), f(2, 4, 5)) }},
		{"sums with gaps", func() { s.Moments(f(2, 6).Cols(0, 5), f(2, 5), f(2, 4, 5)) }},
		{"squares with gaps", func() { s.Moments(f(2, 5), f(2, 6).Cols(0, 5), f(2, 4, 5)) }},
		{"a rotary width beyond the head", func() { s.NormRoPE(f(1, 2, 6), f(1, 2, 6), f(6), 1, wide, plan(seg(1))) }},
		{"a plan without history", func() { s.Conv(f(1, 6), f(1, 6), f(4, 6), plan(seg(1)), 0) }},
		{"a history of other taps", func() {
			s.Conv(f(1, 6), f(1, 6), f(4, 6), plan(backend.Seg{Rows: 1, ConvIn: f(1, 2, 6), ConvOut: f(1, 3, 6)}), 0)
		}},
		{"more taps than one chain", func() {
			s.Conv(f(1, 6), f(1, 6), f(129, 6), plan(backend.Seg{Rows: 1, ConvIn: f(1, 128, 6), ConvOut: f(1, 128, 6)}), 0)
		}},
		{"no taps", func() { s.Conv(f(1, 6), f(1, 6), f(0, 6), plan(seg(1)), 0) }},
		{"a state of other heads", func() {
			s.GatedDelta(f(1, 2, 4), f(1, 1, 4), f(1, 1, 4), f(1, 2, 4), f(1, 2), f(1, 2), plan(backend.Seg{Rows: 1, DeltaIn: f(1, 1, 4, 4), DeltaOut: f(1, 2, 4, 4)}), 0)
		}},
		{"value heads that are no multiple", func() {
			s.GatedDelta(f(1, 3, 4), f(1, 2, 4), f(1, 2, 4), f(1, 3, 4), f(1, 3), f(1, 3), plan(backend.Seg{Rows: 1, DeltaIn: f(1, 3, 4, 4), DeltaOut: f(1, 3, 4, 4)}), 0)
		}},
		{"more slots than a page has", func() { s.GetPage(f(2, 2, 65, 6), pages[0]) }},
		{"a page of other heads", func() { s.PutPage(pages[0], f(2, 1, 3, 6)) }},

		{"Read of too few bytes", func() { s.Read(make([]byte, 7), f(1, 2)) }},
		{"Read of nothing", func() { s.Read(nil, tensor.Tensor{}) }},
		{"Read with gaps", func() { s.Read(make([]byte, 8), f(2, 2).Cols(0, 1)) }},
		{"Read from elsewhere", func() { s.Read(make([]byte, 4), tensor.Tensor{}.On(far{8})) }},
		{"Write of too many bytes", func() { s.Write(f(1, 2), make([]byte, 9)) }},
		{"Write to nothing", func() { s.Write(tensor.Tensor{}, nil) }},
		{"Write with gaps", func() { s.Write(f(2, 2).Cols(0, 1), make([]byte, 8)) }},
	}
	if p, ok := s.(backend.Products); ok {
		l = append(l, badCall{"more weights than outputs", func() { p.Linears([]tensor.Tensor{f(1, 5)}, f(1, 6), []backend.Weight{w, w}) }})
	}
	return l
}

func bufLen(t tensor.Tensor) int { b, _ := t.Buffer(); return b.Len() }

// runMemory tests what Alloc, Read, Write and Pack promise.
func runMemory(t *testing.T, dev backend.Device) {
	if dev.Name() == "" || dev.Info().Name != dev.Name() {
		t.Errorf("the device calls itself %q and %q", dev.Name(), dev.Info().Name)
	}
	e := newEnv(t, dev)
	defer e.close()
	for _, n := range []int{0, 1, 255, 4096, 3<<20 + 5} {
		b, err := dev.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		if b.Len() != n {
			t.Errorf("Alloc(%d) gives %d bytes", n, b.Len())
		}
		if h := b.Host(); len(h) > 0 && addr(h)%256 != 0 {
			t.Errorf("Alloc(%d) begins at %#x, want a multiple of 256", n, addr(h))
		}
		x, err := tensor.New(b, 0, tensor.U8, n)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		for i := range got {
			got[i] = 1
		}
		e.S.Read(got, x)
		e.must(e.S.Sync())
		for i, v := range got {
			if v != 0 {
				t.Fatalf("Alloc(%d): byte %d is %d, want 0", n, i, v)
			}
		}
		want := tensortest.NewRand(1).Bytes(n)
		e.S.Write(x, want)
		e.S.Read(got, x)
		e.must(e.S.Sync())
		if string(got) != string(want) {
			t.Errorf("%d bytes written are read otherwise", n)
		}
		dev.Free(b)
	}
	for _, n := range []int{-1, math.MaxInt / 2, math.MaxInt} {
		if _, err := dev.Alloc(n); !errors.Is(err, backend.ErrNoMemory) {
			t.Errorf("Alloc(%d) gives %v", n, err)
		}
	}
	ok, _ := tensor.FromF32(make([]float32, 12), 3, 4)
	ints, _ := tensor.FromI32(make([]int32, 12), 3, 4)
	empty, _ := tensor.FromF32(nil, 0, 4)
	for what, c := range map[string]struct {
		w   tensor.Tensor
		use backend.Use
	}{
		"an invalid tensor": {tensor.Tensor{}, backend.UseLinear}, "a vector": {ok.Reshape(12), backend.UseLinear}, "three axes": {ok.Reshape(1, 3, 4), backend.UseLinear},
		"integers": {ints, backend.UseLinear}, "nothing": {empty, backend.UseLinear}, "columns": {ok.Cols(0, 2), backend.UseLinear}, "no use": {ok, 0},
		"elsewhere": {ok.On(far{48}), backend.UseLinear},
	} {
		if _, err := dev.Pack(c.w, c.use); err == nil {
			t.Errorf("Pack accepts %s", what)
		}
	}
	if _, err := dev.Pack(ints, backend.UseLinear); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("Pack of integers gives %v, want ErrUnsupported", err)
	}
}

// runClosed tests devices and streams after their end.
func runClosed(t *testing.T, dev backend.Device) {
	e := newEnv(t, dev)
	dst, x := e.Out("dst", 1, 2), e.In([]float32{1, 2}, 1, 2)
	e.must(e.S.Close())
	for range 2 {
		e.S.Add(dst, x, x)
		if err := e.S.Sync(); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("an op of a closed stream gives %v, want ErrClosed", err)
		}
		e.S.Reset()
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if err := dev.Close(); err != nil {
		t.Errorf("the second Close gives %v", err)
	}
	if _, err := dev.NewStream(); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("NewStream of a closed device gives %v, want ErrClosed", err)
	}
	w, _ := tensor.FromF32(make([]float32, 4), 2, 2)
	if _, err := dev.Pack(w, backend.UseLinear); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("Pack of a closed device gives %v, want ErrClosed", err)
	}
}
