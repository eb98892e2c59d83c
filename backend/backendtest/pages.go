package backendtest

import (
	"errors"
	"math"
	"slices"
	"testing"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// bf16PageCases are the cases that store and read keys and values, on pages of BF16.
func bf16PageCases() []Case {
	var l []Case
	for _, c := range slices.Concat(attentionCases(), numberCases()) {
		if c.Op == "NormRoPE" {
			continue
		}
		run := c.Run
		c.Name += "/bf16"
		c.Run = func(e *Env, r *tensortest.Rand) {
			e.half = true
			run(e, r)
		}
		l = append(l, c)
	}
	return l
}

// nearest is the bf16 value next to x, the even one of two as near.
func nearest(x float32) float32 {
	if x != x || math.IsInf(float64(x), 0) {
		return x
	}
	down := math.Float32frombits(math.Float32bits(x) &^ 0xffff) // towards zero
	up := math.Float32bits(down) + 0x10000
	next := float64(math.Float32frombits(up))
	if up&0x7fffffff == 0x7f800000 {
		next = math.Copysign(0x1p128, float64(x)) // what Inf stands for when rounding
	}
	a, b := math.Abs(float64(x)-float64(down)), math.Abs(next-float64(x))
	if a < b || a == b && up>>16&1 == 1 {
		return down
	}
	return math.Float32frombits(up)
}

// roundedFirst tests that attention over pages of BF16 is attention over pages of F32 that
// hold rounded keys and values, bit by bit, and as near to that of values that are not
// rounded as 2^-9 of each allows: a score moves by at most e = 2^-9·scale·Σ|q_c·k_c|, so a
// weight by a factor within exp(±2e), and the result by (exp(2e) - 1 + 2^-9)·max|v|.
func roundedFirst(t *testing.T, dev backend.Device) {
	const hq, hkv, d, past, rows, scale = 4, 2, 48, 70, 3, 0.125
	e := newEnv(t, dev)
	defer e.close()
	r := tensortest.NewRand(Seed, "rounded first")
	n := past + rows
	q, k, v := r.F32(tensortest.Ordinary, n*hq*d), r.F32(tensortest.Ordinary, n*hkv*d), r.F32(tensortest.Ordinary, n*hkv*d)
	rounded := func(x []float32) []float32 {
		y := make([]float32, len(x))
		for i := range x {
			y[i] = nearest(x[i])
		}
		return y
	}
	attention := func(name string, k, v []float32, half bool) {
		e.half = half
		p := e.S.Plan([]backend.Seg{{Rows: n, KV: e.pages(1, hkv, d, n)}})
		e.S.PutKV(p, 0, e.In(k, n, hkv, d), e.In(v, n, hkv, d))
		e.S.Attention(e.Out(name, n, hq, d), e.In(q, n, hq, d), p, 0, scale, 0)
	}
	attention("bf16", k, v, true)
	attention("f32 of rounded values", rounded(k), rounded(v), false)
	attention("f32", k, v, false)
	got := e.Results()
	if d := tensortest.DiffBits(got[1].F32, got[0].F32); d != "" {
		t.Errorf("seed %d: attention over pages of BF16 is not that over rounded keys and values: %s", Seed, d)
	}
	for row := range n {
		for h := range hq {
			moved, largest := 0.0, 0.0
			for j := range row + 1 {
				s := 0.0
				for c := range d {
					at := (j*hkv+h/(hq/hkv))*d + c
					s += math.Abs(float64(q[(row*hq+h)*d+c]) * float64(k[at]))
					largest = max(largest, math.Abs(float64(v[at])))
				}
				moved = max(moved, 0x1p-9*scale*s)
			}
			bound := (math.Expm1(2*moved)+0x1p-9)*largest + 1e-5*largest // and the sums of both
			for c := range d {
				i := (row*hq+h)*d + c
				if x := math.Abs(float64(got[0].F32[i]) - float64(got[2].F32[i])); !(x <= bound) {
					t.Fatalf("seed %d: row %d, head %d, component %d: bf16 moves it by %g, more than %g", Seed, row, h, c, x, bound)
				}
			}
		}
	}
}

// runPageTypes tests what is stored in pages of BF16, or that they are refused.
func runPageTypes(t *testing.T, dev backend.Device) {
	e := newEnv(t, dev)
	defer e.close()
	f32 := e.pages(1, 1, 8, 64)
	e.half = true
	pages := e.pages(1, 1, 8, 64)
	if !dev.Info().BF16Pages {
		if err := backend.CheckPageType(dev, tensor.BF16); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("CheckPageType: %v, want ErrUnsupported", err)
		}
		rows := e.Flat(make([]float32, 2*3*8), 2, 1, 3, 8)
		for what, call := range map[string]func(){
			"Plan":    func() { e.S.Plan([]backend.Seg{{Rows: 1, KV: pages}}) },
			"GetPage": func() { e.S.GetPage(rows, pages[0]) },
			"PutPage": func() { e.S.PutPage(pages[0], rows) },
		} {
			call()
			if err := e.S.Sync(); !errors.Is(err, backend.ErrUnsupported) {
				t.Errorf("%s with pages of BF16: %v, want ErrUnsupported", what, err)
			}
			e.S.Reset()
		}
		return
	}
	e.must(backend.CheckPageType(dev, tensor.BF16))
	for _, segs := range [][]backend.Seg{
		{{Rows: 1, KV: pages}, {Row: 1, Rows: 1, KV: f32}},
		{{Rows: 65, KV: []tensor.Tensor{f32[0], pages[0]}}},
	} {
		e.S.Plan(segs)
		if e.S.Sync() == nil {
			t.Error("a pass with pages of two storage types: no error")
		}
		e.S.Reset()
	}

	roundedFirst(t, dev)
	r := tensortest.NewRand(Seed, "page types")
	for _, k := range tensortest.Kinds() {
		v := r.F32(k, 2*64*8)
		for i := range v {
			switch b := math.Float32bits(v[i]); i % 4 {
			case 1: // half way between two
				v[i] = math.Float32frombits(b&^0xffff | 0x8000)
			case 2:
				v[i] = math.Float32frombits(b&^0xffff | 0x8001)
			case 3:
				v[i] = math.Float32frombits(b&^0xffff | 0x7fff)
			}
		}
		want := make([]float32, len(v))
		for i, x := range v {
			want[i] = nearest(x)
		}
		e.outs = nil
		e.S.PutPage(pages[0], e.Flat(v, 2, 1, 64, 8))
		e.S.GetPage(e.State("put as a page", nil, 2, 1, 64, 8), pages[0])
		p := e.S.Plan([]backend.Seg{{Rows: 64, KV: pages}})
		e.S.PutKV(p, 0, e.In(v[:64*8], 64, 1, 8), e.In(v[64*8:], 64, 1, 8))
		e.S.GetPage(e.State("put by rows", nil, 2, 1, 64, 8), pages[0])
		for _, got := range e.Results() {
			if d := tensortest.DiffBits(want, got.F32); d != "" {
				t.Errorf("%s, %s, seed %d: not the nearest bf16: %s", got.Name, k, Seed, d)
			}
		}
	}
}
