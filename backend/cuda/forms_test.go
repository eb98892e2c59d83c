package cuda_test

import (
	"fmt"
	"slices"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/ref"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// The suite's operands have gaps and odd addresses; those of models do not, which
// lets kernels read 16 bytes at a time and take larger tiles. Forms are uses of
// ops that run that side.

// form is a use of ops with aligned operands, and the kernels that it must reach.
type form struct {
	name    string
	kernels []string
	long    bool // left out of short tests
	run     func(r *rig, rnd *tensortest.Rand) []tensor.Tensor
}

// rig runs ops with aligned operands on one device.
type rig struct {
	t   testing.TB
	dev backend.Device
	s   backend.Stream
}

func newRig(t testing.TB, dev backend.Device) *rig {
	t.Helper()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &rig{t, dev, s}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func product(dim []int) int {
	n := 1
	for _, d := range dim {
		n *= d
	}
	return n
}

// f32 is a tensor of its own, filled with v or zeros.
func (r *rig) f32(v []float32, dim ...int) tensor.Tensor {
	r.t.Helper()
	b, err := r.dev.Alloc(4 * product(dim))
	r.must(err)
	r.t.Cleanup(func() { r.dev.Free(b) })
	x, err := tensor.New(b, 0, tensor.F32, dim...)
	r.must(err)
	if v != nil {
		r.s.Write(x, tensor.AsBytes(v))
	}
	return x
}

// framed is a tensor of its own within another one, filled with sevens, that has a
// column more, before the others: what is written outside of a row is seen, and what is
// read or written behind the last row lies outside of memory.
func (r *rig) framed(dim ...int) (whole, x tensor.Tensor) {
	r.t.Helper()
	wide := slices.Clone(dim)
	wide[len(wide)-1]++
	v := make([]float32, product(wide))
	for i := range v {
		v[i] = 7
	}
	whole = r.f32(v, wide...)
	return whole, whole.Cols(1, dim[len(dim)-1]+1)
}

// ints is an I32 tensor of its own.
func (r *rig) ints(v []int32, dim ...int) tensor.Tensor {
	r.t.Helper()
	b, off := r.f32(nil, dim...).Buffer()
	x, err := tensor.New(b, off, tensor.I32, dim...)
	r.must(err)
	r.s.Write(x, tensor.AsBytes(v))
	return x
}

// tiny is a scale at which every sum is of subnormals: exact, and a sum that does
// not begin with zero is seen.
const tiny = 1e-41

// random is a tensor of random values times scale, all bits of which matter:
// products with weights of few bits are not exact, either.
func (r *rig) random(rnd *tensortest.Rand, scale float32, dim ...int) tensor.Tensor {
	r.t.Helper()
	v := rnd.F32(tensortest.Ordinary, product(dim))
	for i := range v {
		v[i] *= scale * 1.0123457
	}
	return r.f32(v, dim...)
}

// results runs a form on a device and reads what it returns.
func (f *form) results(t testing.TB, dev backend.Device) []backendtest.Result {
	t.Helper()
	r := newRig(t, dev)
	var l []backendtest.Result
	for i, x := range f.run(r, tensortest.NewRand(backendtest.Seed, f.name)) {
		v := make([]float32, x.Len())
		r.s.Read(tensor.AsBytes(v), x)
		l = append(l, backendtest.Result{Name: fmt.Sprintf("output %d", i), F32: v})
	}
	r.must(r.s.Sync())
	return l
}

// forms is the table.
func forms() []form {
	return slices.Concat(linearForms(), attentionForms(), deltaForms(), rowForms(), expertForms(), gradForms(), expForms())
}

func TestForms(t *testing.T) { runForms(t, forms()) }

// played are forms, by name, whose results are those of package ref: what judges the
// tests by mutants begins with them and need not run them again.
var played = map[string]*trial{}

// runForms compares the bits of forms with those of package ref.
func runForms(t *testing.T, forms []form) {
	t.Helper()
	dev, watch := watched(t)
	for i := range forms {
		f := &forms[i]
		if testing.Short() && (f.long || i%5 > 0) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			x := &trial{name: f.name, run: f.results}
			x.play(t, dev, watch)
			if d := backendtest.Differ(f.results(t, ref.New()), x.want); d != "" {
				t.Fatalf("(-ref +%s): %s", dev.Name(), d)
			}
			played[f.name] = x
			for _, k := range f.kernels {
				if watch.Counts()[k].Launches == 0 {
					t.Errorf("%s was not launched", k)
				}
			}
		})
	}
}

// upTo is the least whole number of a type's blocks that holds k values.
func upTo(dt tensor.DType, k int) int {
	b := dt.BlockValues()
	return (k + b - 1) / b * b
}

// minima is where blocks of a type keep the minimum, a float16.
var minima = map[tensor.DType]int{tensor.Q4_1: 2, tensor.Q5_1: 2, tensor.Q2_K: 82, tensor.Q4_K: 2, tensor.Q5_K: 2}

// weight packs a random matrix. Minima of some blocks are so large that taking them
// off rounds.
func (r *rig) weight(rnd *tensortest.Rand, dt tensor.DType, n, k int) backend.Weight {
	r.t.Helper()
	b := backendtest.Weights(rnd, tensortest.Ordinary, dt, n*k)
	if at, ok := minima[dt]; ok {
		for i := at; i < len(b); i += 3 * dt.BlockBytes() {
			b[i+1] = b[i+1]&0x83 | 0x64 // 2^10 to 2^11
		}
	}
	raw, err := tensor.New(tensor.Bytes(b), 0, dt, n, k)
	r.must(err)
	w, err := r.dev.Pack(raw, backend.UseLinear)
	r.must(err)
	r.t.Cleanup(func() { r.dev.Unpack(w) })
	return w
}

// outputRests are numbers of columns of small tiles with all rests of a thread's eight.
var outputRests = []int{65, 66, 67, 68, 97, 98, 99, 100}

func linearForms() []form {
	var l []form
	// Rows and outputs have all rests that a thread's part of a tile can have: the
	// first row or output that is none is next to each of them once, outputs also where
	// a thread has all of its rows.
	type shape struct {
		rows, n, k int
		kernel     string
	}
	shapes := []shape{{1, 70, 132, "gemv1"}, {1, 33, 4500, "gemv1"}, {1, 34, 180, "gemv1"}, {1, 32, 220, "gemv1"}, {1, 33, 1, "gemv1"}, {1, 33, 129, "gemv1"}, {1, 33, 384, "gemv1"},
		{3, 33, 132, "gemv4"}, {8, 64, 180, "gemv4"}, {5, 33, 4500, "gemv4"}, {6, 31, 220, "gemv4"}, {2, 33, 1, "gemv4"}, {3, 33, 129, "gemv4"}, {7, 33, 384, "gemv4"},
		{9, 65, 132, "gemmSmall"}, {70, 130, 300, "gemmSmall"}, {11, 71, 40, "gemmSmall"}, {12, 68, 140, "gemmSmall"},
		{44, 36, 40, "gemmSmall"}, {10, 33, 40, "gemmSmall"}, {13, 98, 40, "gemmSmall"}, {15, 35, 40, "gemmSmall"}, {14, 96, 40, "gemmSmall"},
		{129, 65, 132, "gemmLarge"}, {70, 96, 40, "gemmLarge"}, {130, 66, 40, "gemmLarge"}, {131, 67, 40, "gemmLarge"}, {132, 68, 40, "gemmLarge"},
		{65, 129, 40, "gemmLarge"}, {66, 130, 40, "gemmLarge"}, {67, 131, 40, "gemmLarge"}, {68, 132, 520, "gemmLarge"},
		{68, 65, 40, "gemmLarge"}, {68, 66, 40, "gemmLarge"}, {68, 67, 40, "gemmLarge"}, {68, 129, 40, "gemmLarge"}, {68, 130, 40, "gemmLarge"}, {68, 131, 40, "gemmLarge"}}
	for _, n := range outputRests {
		shapes = append(shapes, shape{12, n, 40, "gemmSmall"})
	}
	for _, dt := range backendtest.Dtypes() {
		for _, z := range shapes {
			k := upTo(dt, z.k)
			long := z.n*z.rows > 4000 && dt != tensor.BF16
			one := func(name string, scale float32) {
				l = append(l, form{fmt.Sprintf("Linear/%v/%dx%dx%d%s", dt, z.rows, z.n, k, name), []string{fmt.Sprintf("%s_%v", z.kernel, dt)}, long, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
					w := r.weight(rnd, dt, z.n, k)
					width := k
					if z.kernel == "gemmSmall" {
						width++ // rows that are not aligned
					}
					v := rnd.F32(tensortest.Ordinary, z.rows*width)
					for i := range v {
						if v[i] *= scale; i/width&8 > 0 { // of the second eight rows of sixteen
							v[i] *= tiny
						}
					}
					whole, y := r.framed(z.rows, z.n)
					r.s.Linear(y, r.f32(v, z.rows, width).Cols(0, k), w)
					return []tensor.Tensor{whole}
				}})
			}
			one("", 1.0123457)
			if z.k == 129 && k == z.k { // rows of aligned addresses that are no whole blocks
				l = append(l, form{fmt.Sprintf("Linear/%v/%dx%dx%d/gap", dt, z.rows, z.n, k), []string{fmt.Sprintf("%s_%v", z.kernel, dt)}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
					whole, y := r.framed(z.rows, z.n)
					r.s.Linear(y, r.random(rnd, 1, z.rows, k+3).Cols(0, k), r.weight(rnd, dt, z.n, k))
					return []tensor.Tensor{whole}
				}})
			}
			if z.k == 384 { // rows that begin, or follow each other, at other addresses than whole blocks need
				for _, gap := range []int{1, 4} {
					l = append(l, form{fmt.Sprintf("Linear/%v/%dx%dx%d/gap %d", dt, z.rows, z.n, k, gap), []string{fmt.Sprintf("%s_%v", z.kernel, dt)}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
						whole, y := r.framed(z.rows, z.n)
						from := gap / 4
						r.s.Linear(y, r.random(rnd, 1, z.rows, k+gap).Cols(from, k+from), r.weight(rnd, dt, z.n, k))
						return []tensor.Tensor{whole}
					}})
				}
			}
			if z.rows < 8 && z.k != 220 {
				one("/tiny", tiny)
			}
		}
	}
	for _, n := range outputRests {
		l = append(l, form{fmt.Sprintf("Project/12x%dx40", n), []string{"project"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			whole, y := r.framed(12, n)
			r.s.Project(y, r.random(rnd, 1, 12, 40), r.random(rnd, 1, n, 40))
			return []tensor.Tensor{whole}
		}})
	}
	l = append(l, form{"Project/70x130x300", []string{"project"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
		whole, y := r.framed(70, 130)
		r.s.Project(y, r.random(rnd, 1, 70, 301).Cols(1, 301), r.random(rnd, 1, 130, 303).Cols(2, 302))
		return []tensor.Tensor{whole}
	}}, form{"LinearRows/2x3x4300", []string{"linearRows"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
		w, y := r.weight(rnd, tensor.BF16, 40, 4300), r.f32(nil, 2, 3)
		r.s.LinearRows(y, r.random(rnd, 1, 2, 4300), w, r.ints([]int32{39, 2, 33}, 3))
		return []tensor.Tensor{y}
	}})
	for k := 33; k <= 40; k++ { // all rests of groups of eight
		dt := []tensor.DType{tensor.F32, tensor.BF16, tensor.F16}[k%3]
		for _, scale := range []float32{1, tiny} {
			l = append(l, form{fmt.Sprintf("groups/%v/%d/%g", dt, k, scale), []string{"project", "linearRows", "embed"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
				rows, n := k-28, k+1
				w, x := r.weight(rnd, dt, n, k), r.random(rnd, scale, rows, k)
				whole, a := r.framed(rows, n)
				b, c := r.f32(nil, rows, 3), r.f32(nil, 3, k)
				r.s.Project(a, x, r.random(rnd, 1, n, k))
				ids := r.ints([]int32{2, int32(n - 1), 0}, 3)
				r.s.LinearRows(b, x, w, ids)
				r.s.Embed(c, w, ids)
				return []tensor.Tensor{whole, b, c}
			}})
		}
	}
	for _, dt := range backendtest.Dtypes() {
		l = append(l, form{fmt.Sprintf("rows of %v", dt), []string{"linearRows", "embed"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			k := upTo(dt, 300)
			w, b, c := r.weight(rnd, dt, 70, k), r.f32(nil, 2, 4), r.f32(nil, 4, k)
			ids := r.ints([]int32{69, 1, 33, 64}, 4)
			r.s.LinearRows(b, r.random(rnd, 1, 2, k), w, ids)
			r.s.Embed(c, w, ids)
			return []tensor.Tensor{b, c}
		}})
	}
	return l
}

func attentionForms() []form {
	var l []form
	type use struct {
		past, rows, hq, hkv, d, window int
		kernels                        []string
		how                            string
	}
	uses := []use{
		{130, 1, 2, 2, 64, 0, []string{"attendBlocks1", "mergeBlocks"}, ""},
		{2300, 1, 4, 1, 128, 0, []string{"attendBlocks4", "mergeBlocks"}, ""},
		{300, 2, 5, 1, 256, 200, []string{"attendBlocks4", "mergeBlocks"}, ""},
		{70, 3, 4, 1, 320, 0, []string{"attendBlocks4", "mergeBlocks"}, ""},
		{0, 33, 1, 1, 320, 0, []string{"attendBlocks1", "mergeBlocks"}, ""},
		{70, 2, 40, 1, 8, 0, []string{"attendBlocks4"}, ""},
		{70, 2, 6, 2, 12, 0, []string{"attendBlocks1"}, ""},
		{70, 1, 4, 1, 150, 40, []string{"attendBlocks4"}, ""},
		{70, 2, 4, 1, 1, 0, []string{"attendBlocks4"}, ""},
		{70, 2, 2, 2, 1, 0, []string{"attendBlocks1"}, ""},
		{200, 2, 8, 2, 140, 0, []string{"attendBlocks4"}, "odd"},
		{200, 2, 4, 2, 136, 0, []string{"attendBlocks1"}, "odd"},
		{100, 2, 4, 1, 132, 0, []string{"attendBlocks4"}, "queries"},
		{100, 2, 4, 1, 133, 0, []string{"attendBlocks4"}, "queries"},
		{100, 2, 4, 1, 40, 0, []string{"attendBlocks4"}, "values"},
		{100, 2, 1, 1, 132, 0, []string{"attendBlocks1"}, "queries"},
		{100, 2, 1, 1, 131, 0, []string{"attendBlocks1"}, "queries"},
		{100, 2, 1, 1, 40, 0, []string{"attendBlocks1"}, "values"},
		{65, 40, 2, 1, 64, 0, []string{"attendTile1"}, ""},
		{190, 66, 4, 2, 20, 30, []string{"attendTile1"}, ""},
		{100, 33, 2, 2, 15, 0, []string{"attendTile1"}, ""},
		{71, 38, 4, 2, 36, 50, []string{"attendTile1"}, "odd"},
		{30, 35, 1, 1, 62, 0, []string{"attendTile1"}, ""},
		{93, 37, 1, 1, 13, 60, []string{"attendTile1"}, ""},
		{20, 12, 1, 1, 60, 0, []string{"attendTile1"}, "queries"},
		{20, 12, 1, 1, 60, 0, []string{"attendTile1"}, "values"},
		{190, 35, 2, 1, 128, 150, []string{"attendTile2"}, ""},
		{60, 40, 4, 2, 100, 0, []string{"attendTile2"}, "odd"},
		{101, 41, 4, 2, 127, 90, []string{"attendTile2"}, ""},
		{128, 38, 2, 2, 66, 40, []string{"attendTile2"}, ""},
		{71, 33, 1, 1, 65, 0, []string{"attendTile2"}, ""},
		{20, 12, 1, 1, 128, 0, []string{"attendTile2"}, "queries"},
		{20, 12, 1, 1, 124, 0, []string{"attendTile2"}, "values"},
		{0, 70, 2, 1, 132, 0, []string{"attendTile4"}, ""},
		{128, 64, 1, 1, 256, 0, []string{"attendTile4"}, ""},
		// The last slot is the first of a block; windows longer than the text.
		{64, 1, 4, 1, 40, 0, []string{"attendBlocks4"}, ""},
		{70, 2, 4, 1, 60, 20, []string{"attendBlocks4"}, ""},
		{100, 2, 4, 1, 44, 0, []string{"attendBlocks4"}, ""},
		{128, 1, 1, 1, 40, 0, []string{"attendBlocks1"}, ""},
		{20, 2, 4, 1, 24, 64, []string{"attendBlocks4"}, ""},
		{20, 2, 1, 1, 24, 64, []string{"attendBlocks1"}, ""},
		{30, 40, 2, 1, 24, 75, []string{"attendTile1"}, ""},
		{30, 40, 2, 1, 72, 75, []string{"attendTile2"}, ""},
		{30, 40, 2, 1, 200, 75, []string{"attendTile4"}, ""},
		// Tiles of which some rows begin a block, without a window and with one.
		{50, 33, 1, 1, 64, 0, []string{"attendTile1"}, ""},
		{50, 33, 1, 1, 128, 0, []string{"attendTile2"}, ""},
		{50, 33, 1, 1, 256, 0, []string{"attendTile4"}, ""},
		{178, 33, 1, 1, 64, 100, []string{"attendTile1"}, ""},
		{178, 33, 1, 1, 128, 90, []string{"attendTile2"}, ""},
		{178, 33, 1, 1, 256, 80, []string{"attendTile4"}, ""},
		{63, 36, 4, 2, 200, 100, []string{"attendTile4"}, "odd"},
		{101, 33, 1, 1, 255, 45, []string{"attendTile4"}, ""},
		{190, 35, 2, 2, 160, 150, []string{"attendTile4"}, ""},
		{72, 34, 2, 2, 130, 0, []string{"attendTile4"}, ""},
		{90, 14, 4, 2, 193, 60, []string{"attendTile4"}, ""},
		{20, 12, 1, 1, 256, 0, []string{"attendTile4"}, "queries"},
		{20, 12, 1, 1, 252, 0, []string{"attendTile4"}, "values"},
		{190, 35, 2, 1, 256, 0, []string{"attendTile4"}, ""},
		{190, 35, 2, 1, 253, 150, []string{"attendTile4"}, ""},
		// Windows that later rows of a tile have left, with values that the rows on both
		// sides must not see.
		{70, 32, 1, 1, 24, 5, []string{"attendTile1"}, "middle"},
		{70, 32, 1, 1, 128, 5, []string{"attendTile2"}, "middle"},
		{70, 32, 1, 1, 256, 5, []string{"attendTile4"}, "middle"},
	}
	for past := 79; past < 87; past++ { // all rests of the slots of a block
		uses = append(uses, use{past, 1, 4, 1, 8, 0, []string{"attendBlocks4"}, ""}, use{past, 1, 1, 1, 8, 0, []string{"attendBlocks1"}, ""})
	}
	for _, z := range uses {
		name := fmt.Sprintf("Attention/%d+%d/%d:%d/%d/%d%s", z.past, z.rows, z.hq, z.hkv, z.d, z.window, z.how)
		l = append(l, form{name, append(z.kernels, "attnScores"), false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			var pages, before []tensor.Tensor
			for range (z.past + z.rows + backend.Page - 1) / backend.Page {
				if z.how == "odd" { // not at a multiple of 16 bytes
					b, _ := r.f32(nil, 4*z.hkv*backend.Page*z.d+1).Buffer()
					p, err := tensor.New(b, 4, tensor.F32, 4, z.hkv, backend.Page, z.d)
					r.must(err)
					pages = append(pages, p)
					continue
				}
				pages = append(pages, r.f32(nil, 4, z.hkv, backend.Page, z.d))
			}
			put := func(from, n int) backend.Plan {
				p := r.s.Plan([]backend.Seg{{Rows: n, Slot: from, Pos: from, KV: pages}})
				if before != nil { // the pass has a row of another text first
					p = r.s.Plan([]backend.Seg{{Rows: 1, KV: before}, {Row: 1, Rows: n, Slot: from, Pos: from, KV: pages}})
					n++
				}
				v := rnd.F32(tensortest.Ordinary, 2*n*z.hkv*z.d)
				for i := range v {
					if v[i] *= 1.0123457; z.how == "values" && i >= len(v)/2 {
						v[i] *= tiny
					}
				}
				if z.how == "middle" && from > 0 {
					for i := len(v) - 16*z.d; i < len(v)-15*z.d; i++ { // of row 16 of 32
						v[i] = float32(inf)
					}
				}
				if z.how == "" { // values that rows before or behind must not see
					lost := n - 1
					if from == 0 {
						if lost = n - z.window + 6; lost < 0 || z.window == 0 {
							lost = n
						}
					}
					for i := len(v) - (n-lost)*z.hkv*z.d; lost < n && i < len(v)-(n-lost-1)*z.hkv*z.d; i++ {
						v[i] = float32(inf)
					}
				}
				r.s.PutKV(p, 1, r.f32(v[:len(v)/2], n, z.hkv, z.d), r.f32(v[len(v)/2:], n, z.hkv, z.d))
				return p
			}
			if z.past > 0 {
				put(0, z.past)
			}
			before = []tensor.Tensor{r.f32(nil, 4, z.hkv, backend.Page, z.d)}
			p, rows := put(z.past, z.rows), z.rows+1
			q := r.random(rnd, 1, rows, z.hq, z.d)
			whole, y := r.framed(rows, z.hq, z.d)
			w, v := r.f32(nil, rows, z.hq, z.past+z.rows), r.f32(nil, rows, z.hq, z.past+z.rows)
			scale := float32(0.1270003)
			switch z.how {
			case "odd":
				q = r.random(rnd, 1, rows, z.hq, z.d+1).Cols(1, z.d+1)
			case "queries": // the smallest scores matter
				q, scale = r.random(rnd, tiny, rows, z.hq, z.d), 3e38
			}
			r.s.Attention(y, q, p, 1, scale, z.window)
			r.s.AttnWeights(w, q, p, 1, scale, z.window)
			r.s.AttnScores(v, q, p, 1, scale, z.window)
			return []tensor.Tensor{whole, w, v}
		}})
	}
	return l
}

func deltaForms() []form {
	var l []form
	for _, dk := range []int{32, 64, 128, 96, 70, 135} {
		kernel := fmt.Sprintf("gatedDelta%d", dk)
		if dk != 32 && dk != 64 && dk != 128 {
			kernel = "gatedDelta"
		}
		for _, scale := range []float32{1, tiny} {
			l = append(l, form{fmt.Sprintf("GatedDelta/%d/%g", dk, scale), []string{kernel}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
				const hk, hv, dv, rows = 1, 2, 64, 6
				var segs []backend.Seg
				for i, n := range []int{1, 2, 3} {
					segs = append(segs, backend.Seg{Row: i * (i + 1) / 2, Rows: n, DeltaIn: r.random(rnd, scale, 2, hv, dk, dv), DeltaOut: r.f32(nil, 2, hv, dk, dv)})
				}
				p, y := r.s.Plan(segs), r.f32(nil, rows, hv, dv)
				r.s.GatedDelta(y, r.random(rnd, 0.1, rows, hk, dk), r.random(rnd, 0.1, rows, hk, dk), r.random(rnd, scale, rows, hv, dv),
					r.random(rnd, 0.5, rows, hv), r.random(rnd, 0.5, rows, hv), p, 1)
				return []tensor.Tensor{y, segs[0].DeltaOut, segs[1].DeltaOut, segs[2].DeltaOut}
			}})
		}
	}
	return l
}

func rowForms() []form {
	var l []form
	one := func(name, kernel string, run func(r *rig, rnd *tensortest.Rand) []tensor.Tensor) {
		l = append(l, form{name, []string{kernel}, false, run})
	}
	const long = 33*1024 + 40 // more blocks than a CTA has warps
	one("RMSNorm/long", "rmsNorm", func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
		y := r.f32(nil, 1, long)
		r.s.RMSNorm(y, r.random(rnd, 1, 1, long), r.random(rnd, 1, long), 1e-6)
		return []tensor.Tensor{y}
	})
	one("LayerNorm/long", "layerNorm", func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
		y := r.f32(nil, 1, long)
		r.s.LayerNorm(y, r.random(rnd, 1, 1, long), r.random(rnd, 1, long), r.random(rnd, 1, long), 1e-5)
		return []tensor.Tensor{y}
	})
	one("Softmax/long", "softmax", func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
		y := r.f32(nil, 1, long)
		r.s.Softmax(y, r.random(rnd, 1, 1, long))
		return []tensor.Tensor{y}
	})
	for _, z := range []struct{ rows, n, k int }{{2, 300, 5}, {1, 1100, 40}, {1, long, 2}} {
		one(fmt.Sprintf("Route/%d of %d", z.k, z.n), "route", func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			ids, w := r.ints(make([]int32, z.rows*z.k), z.rows, z.k), r.f32(nil, z.rows, z.k)
			r.s.Route(ids, w, r.random(rnd, 1, z.rows, z.n), z.k, true)
			b, off := ids.Buffer()
			bits, err := tensor.New(b, off, tensor.F32, z.rows, z.k) // small numbers are no NaN
			r.must(err)
			return []tensor.Tensor{bits, w}
		})
	}
	for _, z := range []struct {
		name       string
		scale, eps float32
		k          int
	}{{"", 1, 1e-6, 125}, {"/long", 1, 1e-6, 1100}, {"/tiny", 1e-21, 1e-43, 125}, {"/large", 40, 1e-6, 300}} { // exp has its limits within ±104
		one("norms of heads"+z.name, "gatedRMSNorm", func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			k := z.k
			x, g, w := r.random(rnd, z.scale, 3, 2, k), r.random(rnd, 1, 3, 2, k), r.random(rnd, 1, k)
			if z.scale > 1 {
				g = x
			}
			a, b, c := r.f32(nil, 3, 2, k), r.f32(nil, 3, 2, k), r.f32(nil, 3, 2, k)
			r.s.GatedRMSNorm(a, x, g, w, z.eps)
			r.s.L2Norm(b, x, z.eps, 0.25)
			r.s.NormRoPE(c, x, w, z.eps, nil, r.s.Plan([]backend.Seg{{Rows: 3}}))
			return []tensor.Tensor{a, b, c}
		})
		one("elements"+z.name, "swiGLU", func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			k := z.k
			x, g, w := r.random(rnd, 1, 3, k), r.random(rnd, z.scale, 3, k), r.random(rnd, 1, k)
			var l []tensor.Tensor
			y := func() tensor.Tensor { l = append(l, r.f32(nil, 3, k)); return l[len(l)-1] }
			r.s.SwiGLU(y(), g, x)
			r.s.SigmoidMul(y(), x, g)
			r.s.AddGated(y(), x, x, r.random(rnd, z.scale, 3, 1))
			r.s.DeltaGates(y(), y(), g, g, w, w)
			r.s.RMSNorm(y(), g, w, z.eps)
			r.s.LayerNorm(y(), g, w, w, z.eps)
			r.s.Softmax(y(), g)
			history := func() tensor.Tensor { return r.random(rnd, z.scale, 2, 3, k) }
			a, b := history(), history()
			p := r.s.Plan([]backend.Seg{{Rows: 1, ConvIn: history(), ConvOut: a}, {Row: 1, Rows: 2, ConvIn: history(), ConvOut: b}})
			r.s.Conv(y(), g, r.random(rnd, 1, 4, k), p, 1)
			p = r.s.Plan([]backend.Seg{{Rows: 3, ConvIn: a, ConvOut: history()}})
			r.s.Conv(y(), g, r.random(rnd, 1, 4, k), p, 0)
			l = append(l, a, b)
			return l
		})
	}
	for _, d := range []int{8, 6} {
		one(fmt.Sprintf("pages/%d", d), "getPage", func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			page, other := r.f32(nil, 4, 3, backend.Page, d), r.f32(nil, 4, 3, backend.Page, d)
			whole, y := r.framed(4, 3, 41, d)
			r.s.PutPage(page, r.random(rnd, 1, 4, 3, 50, d))
			r.s.GetPage(y, page)
			r.s.PutPage(other, y)
			all := r.f32(nil, 4, 3, backend.Page, d)
			r.s.GetPage(all, other)
			return []tensor.Tensor{whole, all}
		})
	}
	for size, dt := range map[int]tensor.DType{1: tensor.U8, 2: tensor.BF16, 4: tensor.F32} {
		one(fmt.Sprintf("Copy/%v", dt), fmt.Sprintf("copy%d", size), func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			src, dst := r.random(rnd, 1, 5*7*3*20), r.f32(nil, 5*7*3*20)
			view := func(t tensor.Tensor, from int) tensor.Tensor {
				b, off := t.Buffer()
				x, err := tensor.New(b, off, dt, 5, 7, 3, 20)
				r.must(err)
				return x.Cols(from, from+15).Rows(1, 5)
			}
			r.s.Copy(view(dst, 2), view(src, 4))
			return []tensor.Tensor{dst}
		})
	}
	return l
}

func expertForms() []form {
	var l []form
	for _, dt := range backendtest.Dtypes() {
		c, f := upTo(dt, 150), upTo(dt, 70)
		for _, z := range [][2]int{{c, f}, {upTo(dt, 2100), upTo(dt, 33)}, {upTo(dt, 33), upTo(dt, 2100)}} {
			long := z[0]+z[1] > 2000
			if long && dt != tensor.F32 {
				continue
			}
			l = append(l, form{fmt.Sprintf("Experts/%v/%dx%d", dt, z[0], z[1]), []string{"expertsUp", "expertsDown"}, false, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
				var gate, up, down []backend.Weight
				for range 3 {
					gate, up, down = append(gate, r.weight(rnd, dt, z[1], z[0])), append(up, r.weight(rnd, dt, z[1], z[0])), append(down, r.weight(rnd, dt, z[0], z[1]))
				}
				y := r.f32(nil, 2, z[0])
				r.s.Experts(y, r.random(rnd, 1, 2, z[0]), r.ints([]int32{0, 2, 1, 2}, 2, 2), r.random(rnd, 1, 2, 2), gate, up, down)
				return []tensor.Tensor{y}
			}})
		}
	}
	return l
}
