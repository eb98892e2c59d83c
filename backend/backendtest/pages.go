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
