package backendtest

import (
	"math"
	"slices"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

var headSizes = []struct {
	r, h, d int
	why     string
}{
	{1, 1, 8, "one head"},
	{1, 14, 64, "decode"},
	{5, 3, 20, "odd head width"},
	{17, 2, 128, "a whole block"},
	{2, 5, 256, "two blocks"},
	{0, 2, 8, "no rows"},
}

// part is one sequence of a pass: rows that follow past others.
type part struct{ past, rows int }

// cache makes poisoned pages for a part and stores its past in them.
func (e *Env) cache(r *tensortest.Rand, k tensortest.Kind, layers, heads, d int, p part) []tensor.Tensor {
	e.T.Helper()
	pages := e.pages(layers, heads, d, p.past+p.rows)
	if p.past > 0 {
		pl := e.S.Plan([]backend.Seg{{Rows: p.past, KV: pages}})
		for l := range layers {
			e.S.PutKV(pl, l, e.In(r.F32(k, p.past*heads*d), p.past, heads, d), e.In(r.F32(k, p.past*heads*d), p.past, heads, d))
		}
	}
	return pages
}

// pages makes NaN pages for some slots.
func (e *Env) pages(layers, heads, d, slots int) []tensor.Tensor {
	e.T.Helper()
	var l []tensor.Tensor
	for range (slots + backend.Page - 1) / backend.Page {
		if e.half {
			g := tensortest.NewGuarded(0, layers*heads*backend.Page, d)
			buf, at := e.guarded(g.Set(slices.Repeat([]float32{math.Float32frombits(math.MaxUint32)}, layers*heads*backend.Page*d))).t.Buffer()
			pg, err := tensor.New(buf, at, tensor.BF16, 2*layers, heads, backend.Page, d)
			e.must(err)
			l = append(l, pg)
			continue
		}
		g := tensortest.NewGuarded(0, 2*layers*heads*backend.Page, d)
		l = append(l, e.guarded(g).t.Reshape(2*layers, heads, backend.Page, d))
	}
	return l
}

// readPages adds the written slots of pages to the results.
func (e *Env) readPages(pages []tensor.Tensor, slots int) {
	e.T.Helper()
	for i, pg := range pages {
		n := min(backend.Page, slots-i*backend.Page)
		e.S.GetPage(e.State(name("page %d", i), nil, pg.Dim(0), pg.Dim(1), n, pg.Dim(3)), pg)
	}
}

// rowsOf is the number of rows of a pass.
func rowsOf(parts []part) int {
	n := 0
	for _, p := range parts {
		n += p.rows
	}
	return n
}

// attends is a shape of attention.
type attends struct {
	parts          []part
	hq, hkv, d     int
	window, layers int
	why            string
}

func (a attends) String() string {
	return name("%v/heads=%d:%d/d=%d/window=%d", a.parts, a.hq, a.hkv, a.d, a.window)
}

var attentions = []attends{
	{[]part{{0, 1}}, 1, 1, 8, 0, 1, "the first row sees itself"},
	{[]part{{62, 1}}, 2, 1, 64, 0, 2, "last slot but one of a page"},
	{[]part{{63, 1}}, 4, 2, 64, 0, 1, "last slot of a page"},
	{[]part{{64, 1}}, 4, 2, 64, 0, 1, "first slot of a page"},
	{[]part{{0, 67}}, 3, 1, 20, 0, 1, "prefill across a page, odd width"},
	{[]part{{130, 5}}, 8, 1, 32, 0, 1, "a group of eight"},
	{[]part{{61, 7}}, 5, 5, 40, 0, 1, "no grouping, rows on both sides of a page"},
	{[]part{{600, 1}}, 2, 1, 16, 0, 1, "a long past, which may be split over blocks"},
	{[]part{{700, 2}, {515, 1}}, 3, 1, 12, 0, 1, "two long pasts of other lengths"},
	{[]part{{40, 3}}, 7, 1, 256, 0, 1, "scores of two blocks, a group of seven"},
	{[]part{{20, 3}}, 6, 2, 160, 0, 1, "a width between"},
	{[]part{{0, 1}, {65, 1}, {128, 1}, {3, 1}}, 4, 2, 24, 0, 1, "decode of four sequences"},
	{[]part{{0, 9}, {64, 1}, {10, 70}}, 2, 2, 8, 0, 1, "ragged"},
	{[]part{{150, 5}}, 4, 2, 64, 40, 1, "a window that begins inside a page"},
	{[]part{{127, 2}}, 2, 1, 64, 64, 1, "a window of a page"},
	{[]part{{70, 3}}, 2, 1, 16, 1, 1, "a window of one"},
	{[]part{{0, 80}}, 2, 1, 8, 33, 1, "prefill with a window"},
	{[]part{{200, 1}, {5, 2}}, 2, 2, 8, 100000, 1, "a window longer than the past"},
	{[]part{{200, 2}, {400, 1}}, 4, 1, 16, 130, 2, "windows skip whole pages"},
}

// pass stores the rows' keys and values in every layer and returns q and plan.
func (a attends) pass(e *Env, r *tensortest.Rand, k tensortest.Kind) (tensor.Tensor, backend.Plan) {
	var segs []backend.Seg
	row := 0
	for _, p := range a.parts {
		segs = append(segs, backend.Seg{Row: row, Rows: p.rows, Slot: p.past, Pos: p.past, KV: e.cache(r, k, a.layers, a.hkv, a.d, p)})
		row += p.rows
	}
	pl := e.S.Plan(segs)
	for l := range a.layers {
		e.S.PutKV(pl, l, e.In(r.F32(k, row*a.hkv*a.d), row, a.hkv, a.d), e.In(r.F32(k, row*a.hkv*a.d), row, a.hkv, a.d))
	}
	return e.In(r.F32(k, row*a.hq*a.d), row, a.hq, a.d), pl
}

func (a attends) slots() int {
	n := 0
	for _, p := range a.parts {
		n = max(n, p.past+p.rows)
	}
	return n
}

func attentionCases() []Case {
	var l []Case
	for _, a := range attentions {
		l = append(l, attentionCase(a, tensortest.Ordinary),
			Case{"PutKV", a.String(), a.why, func(e *Env, r *tensortest.Rand) {
				_, p := a.pass(e, r, tensortest.Ordinary)
				for i, s := range p.Segs() {
					e.readPages(s.KV, a.parts[i].past+a.parts[i].rows)
				}
			}})
	}
	for i, z := range headSizes {
		l = append(l, normCases(z.r, z.h, z.d, z.why, tensortest.Kinds()[i%3])...)
	}
	l = append(l, normCases(3, 2, 64, "values at the edges", tensortest.Specials)...)
	for _, n := range []int{1, 5, 64} {
		l = append(l, Case{"GetPage", name("n=%d", n), "pages go out and come back", func(e *Env, r *tensortest.Rand) {
			src := r.F32(tensortest.Ordinary, 4*3*n*20)
			pg := e.pages(2, 3, 20, 1)[0]
			e.S.PutPage(pg, e.Flat(src, 4, 3, n, 20))
			e.S.GetPage(e.State("rows", nil, 4, 3, n, 20), pg)
		}})
		l = append(l, Case{"GetPage", name("n=%d of rows with gaps", n), "the slots outside need not lie side by side", func(e *Env, r *tensortest.Rand) {
			pg := e.pages(2, 3, 20, 1)[0]
			e.S.PutPage(pg, e.Flat(r.F32(tensortest.Ordinary, 4*3*n*23), 4, 3, n, 23).Cols(2, 22))
			e.S.GetPage(e.State("rows", r.F32(tensortest.Ordinary, 4*3*n*27), 4, 3, n, 27).Cols(1, 21), pg)
		}})
	}
	return l
}

func attentionCase(a attends, k tensortest.Kind) Case {
	return Case{"Attention", name("%v/%s", a, k), a.why, func(e *Env, r *tensortest.Rand) {
		q, p := a.pass(e, r, k)
		rows, slots := rowsOf(a.parts), a.slots()
		for l := range a.layers {
			e.S.Attention(e.Out(name("attention %d", l), rows, a.hq, a.d), q, p, l, 0.125, a.window)
			e.S.AttnScores(e.Out(name("scores %d", l), rows, a.hq, slots+3), q, p, l, 0.125, a.window)
			e.S.AttnWeights(e.Out(name("weights %d", l), rows, a.hq, slots), q, p, l, 0.125, a.window)
			for at := 0; at <= rows; at += max(1, rows/2) { // the last begins behind the rows
				n := min(max(1, rows/2), rows-at)
				e.S.AttentionWeights(e.Out(name("attention %d of both from %d", l, at), n, a.hq, a.d), e.Out(name("weights %d of both from %d", l, at), n, a.hq, slots+1),
					q.Rows(at, at+n), p, at, l, 0.125, a.window)
			}
		}
		// The same through a view: queries and gates side by side.
		e.S.Attention(e.Out("flat", rows, a.hq*a.d).Heads(a.hq, a.d), q, p, 0, 0.3, a.window)
	}}
}

func normCases(rows, h, d int, why string, k tensortest.Kind) []Case {
	var l []Case
	for _, v := range []struct {
		name  string
		norm  bool
		width int // rotary
		theta float64
		pos   int
	}{
		{"norm+rope", true, d / 2 * 2, 1e6, 0},
		{"rope", false, d / 2 * 2, 1e4, 1000},
		{"partial", true, max(2, d/4/2*2), 1e7, 77},
		{"norm", true, 0, 0, 5},
		{"copy", false, 0, 0, 0},
		{"far", true, d / 2 * 2, 5e5, 1<<20 - 20},
	} {
		l = append(l, Case{"NormRoPE", name("%dx%dx%d/%s/%s", rows, h, d, v.name, k), why, func(e *Env, r *tensortest.Rand) {
			var rope *backend.RoPE
			if v.width > 0 {
				var err error
				s := backend.Scaling{}
				if v.name == "far" {
					s = backend.Scaling{Type: "yarn", Factor: 4, Original: 1 << 15}
				}
				rope, err = backend.NewRoPE(v.theta, v.width, s, nil)
				e.must(err)
			}
			var w tensor.Tensor
			if v.norm {
				w = e.In(r.F32(k, d), d)
			}
			var segs []backend.Seg
			if rows > 0 {
				segs = append(segs, backend.Seg{Rows: (rows + 1) / 2, Pos: v.pos})
			}
			if n := rows / 2; n > 0 {
				segs = append(segs, backend.Seg{Row: (rows + 1) / 2, Rows: n, Slot: 9, Pos: v.pos / 2})
			}
			p := e.S.Plan(segs)
			n := rows * h * d
			e.S.NormRoPE(e.Out("dst", rows, h, d), e.In(r.F32(k, n), rows, h, d), w, 1e-6, rope, p)
			both := e.In(r.F32(k, 2*n), rows, 2*h*d).Heads(h, 2*d)
			e.S.NormRoPE(e.Out("from a gated view", rows, h*d).Heads(h, d), both.Cols(0, d), w, 1e-6, rope, p)
		}})
	}
	return l
}

// numberCases put the edges of float32 through attention.
func numberCases() []Case {
	var l []Case
	for _, k := range tensortest.Kinds() {
		if k == tensortest.Ordinary {
			continue
		}
		for _, a := range []attends{
			{[]part{{70, 3}}, 4, 2, 32, 0, 1, "edges of float32"},
			{[]part{{600, 1}}, 2, 1, 16, 0, 1, "edges of float32, split over blocks"},
			{[]part{{130, 9}}, 2, 1, 12, 20, 1, "edges of float32 behind a window"},
		} {
			l = append(l, attentionCase(a, k))
		}
	}
	return l
}
