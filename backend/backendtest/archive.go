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

// ArchiveCases is the table of the ops of backend.Archive, for RunCases on a device
// whose streams have them.
func ArchiveCases() []Case {
	return slices.Concat(archiveCases(), archiveRowCases())
}

func (e *Env) archive() backend.Archive { return e.S.(backend.Archive) }

// archiveCase is a shape and the options of a layer.
type archiveCase struct {
	rows, past    []int // per sequence: of the pass, and before it
	kv, group, a  int   // key heads, query heads per key head, archive heads per key head
	d             int
	window, sinks int
	m, s, rank    int
	raw           bool
	set           func(w *backend.ArchiveParams)
	why           string
}

var archives = []archiveCase{
	{[]int{1}, []int{0}, 1, 1, 1, 3, 1, 0, 1, 1, 0, false, nil, "the smallest, no event yet"},
	{[]int{1}, []int{130}, 2, 1, 1, 32, 128, 0, 16, 4, 8, true, nil, "decode in the published shape"},
	{[]int{7}, []int{0}, 1, 2, 2, 5, 3, 0, 4, 2, 0, false, nil, "from nothing over the first event"},
	{[]int{3, 1, 9}, []int{70, 0, 5}, 2, 2, 2, 7, 6, 2, 5, 3, 2, true, nil, "ragged, sinks, an archive per query head"},
	{[]int{5}, []int{90}, 2, 4, 1, 9, 11, 0, 3, 3, 3, true, nil, "an archive shared by the queries of a key head"},
	{[]int{4}, []int{10}, 1, 1, 1, 130, 4, 1, 3, 2, 129, false, nil, "sums of two blocks over components and rank"},
	{[]int{4}, []int{10}, 2, 1, 1, 6, 4, 0, 133, 2, 0, false, nil, "more codes than a block"},
	{[]int{6}, []int{9}, 2, 1, 1, 8, 4, 0, 7, 4, 2, false, func(w *backend.ArchiveParams) { w.PerCode = true }, "a division per code"},
	{[]int{6}, []int{9}, 2, 1, 1, 8, 4, 0, 7, 4, 2, false, func(w *backend.ArchiveParams) { w.Active = 3 }, "sparse reads"},
	{[]int{6}, []int{9}, 2, 1, 1, 8, 4, 0, 7, 4, 0, false, func(w *backend.ArchiveParams) { w.Active, w.SparsePerCode = 2, true }, "sparse reads, a division per code"},
	{[]int{6, 1}, []int{9, 40}, 2, 1, 1, 8, 4, 0, 7, 4, 2, false, func(w *backend.ArchiveParams) { w.Active, w.Lazy = 3, true }, "lazy decay"},
	{[]int{6}, []int{9}, 1, 1, 1, 8, 4, 0, 5, 2, 0, true, func(w *backend.ArchiveParams) { w.Active, w.Lazy, w.Gated, w.PerCode = 5, true, true, true }, "lazy decay of all codes behind a gate"},
	{[]int{6}, []int{9}, 2, 1, 1, 8, 4, 0, 7, 4, 0, false, func(w *backend.ArchiveParams) { w.Gated, w.Threshold = true, 0.25 }, "a content gate"},
	{[]int{6}, []int{9}, 2, 1, 1, 8, 4, 0, 7, 4, 0, true, func(w *backend.ArchiveParams) { w.Features = true }, "kernel features"},
	{[]int{6}, []int{3}, 2, 1, 1, 8, 4, 0, 7, 4, 2, true, func(w *backend.ArchiveParams) { w.Landmarks, w.LandmarkTemp = backend.PersistentLandmarks, 2 }, "landmarks"},
	{[]int{6}, []int{3}, 2, 1, 1, 8, 4, 0, 3, 4, 0, true, func(w *backend.ArchiveParams) { w.Landmarks, w.LandmarkTemp = backend.PrefixLandmarks, 1 }, "the first events"},
	{[]int{6}, []int{0}, 2, 1, 1, 8, 2, 0, 3, 4, 0, true, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp, w.Lexical = backend.PairLandmarks, 1, true
	}, "the first events in pairs, with lexical addresses"},
	{[]int{1, 1, 5}, []int{9, 10, 11}, 2, 1, 1, 8, 4, 0, 7, 4, 0, false, func(w *backend.ArchiveParams) { w.Reuse, w.Stride = true, 2 }, "reads that are used again"},
	{[]int{1, 1}, []int{9, 30}, 2, 1, 1, 8, 4, 0, 7, 4, 0, false, func(w *backend.ArchiveParams) {
		w.Reuse, w.Stride, w.Close, w.Closeness = true, 1, true, 0
	}, "reads that are used again for close queries"},
}

func archiveCases() []Case {
	var l []Case
	for _, z := range archives {
		kinds := []tensortest.Kind{tensortest.Ordinary}
		if z.d == 8 || z.rank == 2 {
			kinds = tensortest.Kinds()
		}
		for _, k := range kinds {
			l = append(l, Case{"Archive", name("%v+%v/heads=%d:%d:%d/d=%d/w=%d+%d/%dx%d/%s/%s", z.past, z.rows, z.kv, z.group, z.a, z.d, z.window, z.sinks, z.m, z.s, z.why, k), z.why,
				func(e *Env, r *tensortest.Rand) { z.run(e, r, k) }})
		}
	}
	return l
}

// filled is F32 with values that a state may hold: counts are whole and scores may
// be -Inf.
func (z *archiveCase) bank(e *Env, r *tensortest.Rand, k tensortest.Kind, w *backend.ArchiveParams, past, slots int) (in, out backend.ArchiveBank) {
	const layers = 2
	heads, hq := z.kv*z.a, z.kv*z.group
	add := func(to, from *tensor.Tensor, what string, v []float32, dim ...int) {
		dim = append([]int{layers}, dim...)
		*from = e.Flat(v, dim...)
		*to = e.State(what, r.F32(tensortest.Ordinary, product(dim)), dim...)
	}
	value := func(n int) []float32 { return r.F32(k, layers*n) }
	events := w.Events(past)
	count := func(n, limit int) []float32 {
		v := make([]float32, layers*n)
		for i := range v {
			v[i] = float32(r.Intn(limit + 1))
		}
		return v
	}
	score := func(n int) []float32 {
		v := value(n)
		for i := range v {
			if r.Intn(3) == 0 {
				v[i] = float32(math.Inf(-1))
			}
		}
		return v
	}
	m, d := z.m, z.d
	add(&out.Num, &in.Num, "numerators", value(heads*m*z.s*d), heads, m*z.s, d)
	add(&out.Den, &in.Den, "denominators", value(heads*m*z.s), heads, m*z.s)
	if w.Lazy {
		add(&out.Last, &in.Last, "last writes", count(heads*m, events), heads, m)
	}
	if w.Landmarks != backend.NoLandmarks {
		add(&out.LandKey, &in.LandKey, "landmark keys", value(heads*m*d), heads, m, d)
		add(&out.LandValue, &in.LandValue, "landmark values", value(heads*m*d), heads, m, d)
		add(&out.LandScore, &in.LandScore, "landmark scores", score(heads*m), heads, m)
	}
	if w.Reuse {
		add(&out.ReadQuery, &in.ReadQuery, "last queries", value(hq*d), hq, d)
		add(&out.ReadValue, &in.ReadValue, "last reads", value(hq*d), hq, d)
		add(&out.ReadMark, &in.ReadMark, "mark", count(2, 1), 2)
	}
	if slots > 0 {
		add(&out.Key, &in.Key, "table keys", value(hq*slots*d), hq, slots, d)
		add(&out.Value, &in.Value, "table values", value(hq*slots*d), hq, slots, d)
		add(&out.Score, &in.Score, "table scores", score(hq*slots), hq, slots)
		add(&out.Age, &in.Age, "table ages", count(hq*slots, events), hq, slots)
		add(&out.Next, &in.Next, "next slots", count(hq, slots-1), hq)
	}
	return in, out
}

// fill plans a pass over segments whose windows hold their past in random values,
// and returns them.
func (z *archiveCase) fill(e *Env, r *tensortest.Rand, k tensortest.Kind, w *backend.ArchiveParams, slots int) []backend.Seg {
	const layers = 2
	var segs []backend.Seg
	row := 0
	for i, n := range z.rows {
		past := z.past[i]
		skip := 0
		if first := max((z.sinks+backend.Page-1)/backend.Page, max(0, past-z.window)/backend.Page); z.sinks == 0 {
			skip = first
		}
		a := &backend.ArchiveSeg{Slot: past - skip*backend.Page}
		planes := 2 * layers
		if z.raw {
			a.Raw, planes = planes, 3*layers
		}
		a.Window = e.pages(planes/2, z.kv, z.d, a.Slot+n)
		a.In, a.Out = z.bank(e, r, k, w, past, slots)
		if a.Slot > 0 {
			old := []backend.Seg{{Rows: a.Slot, Archive: &backend.ArchiveSeg{Window: a.Window, Raw: a.Raw}}}
			z.put(e, r, k, old, a.Slot)
		}
		segs = append(segs, backend.Seg{Row: row, Rows: n, Slot: past, Pos: past, Archive: a})
		row += n
	}
	return segs
}

func (z *archiveCase) put(e *Env, r *tensortest.Rand, k tensortest.Kind, segs []backend.Seg, rows int) backend.Plan {
	p := e.S.Plan(segs)
	n := rows * z.kv * z.d
	for layer := range 2 {
		raw := tensor.Tensor{}
		if z.raw {
			raw = e.In(r.F32(k, n), rows, z.kv, z.d)
		}
		e.archive().PutWindow(p, layer, e.In(r.F32(k, n), rows, z.kv, z.d), e.In(r.F32(k, n), rows, z.kv, z.d), raw)
	}
	return p
}

func (z *archiveCase) params(e *Env, r *tensortest.Rand, k tensortest.Kind) *backend.ArchiveParams {
	heads := z.kv * z.a
	f := func(dim ...int) tensor.Tensor { return e.Flat(r.F32(k, product(dim)), dim...) }
	w := &backend.ArchiveParams{WindowParams: backend.WindowParams{Scale: 0.3125, Window: z.window, Sinks: z.sinks},
		Codes: f(heads, z.m, z.d), Mix: f(heads, z.m, z.s), LandmarkMix: f(heads)}
	for s := range z.s {
		w.Decay, w.Gain = append(w.Decay, 1-0.3/float32(1+3*s)), append(w.Gain, 0.5)
	}
	if z.rank > 0 {
		w.CorrV, w.CorrU, w.CorrScale = f(heads, z.d, z.rank), f(heads, z.rank, z.d), f(heads, z.rank, z.s)
	}
	if z.set != nil {
		z.set(w)
	}
	return w
}

// run is a pass of one layer: window, archive, and an exact tier of some kind.
func (z *archiveCase) run(e *Env, r *tensortest.Rand, k tensortest.Kind) {
	const slots, layer = 70, 1
	w := z.params(e, r, k)
	segs := z.fill(e, r, k, w, slots)
	rows, hq := segs[len(segs)-1].Row+segs[len(segs)-1].Rows, z.kv*z.group
	p := z.put(e, r, k, segs, rows)
	a := e.archive()
	q := e.In(r.F32(k, rows*hq*z.d), rows, hq, z.d)
	local, mass, remote := e.Out("local", rows, hq, z.d), e.Out("mass", rows, hq), e.Out("remote", rows, hq, z.d)
	a.WindowAttention(local, mass, q, p, layer, w.WindowParams)
	a.WindowAttention(e.Out("local without mass", rows, hq, z.d), tensor.Tensor{}, q, p, layer, w.WindowParams)
	for _, s := range segs { // both layers, so that outputs are whole
		for _, t := range s.Archive.Out.Tensors() {
			if t.Valid() {
				e.S.Copy(t.Index(1-layer), t.Index(layer))
			}
		}
	}
	other := e.Out("other layer", rows, hq, z.d)
	a.ArchiveScan(other, q, p, 1-layer, w)
	a.ArchiveScan(remote, e.In(r.F32(k, rows*hq*z.d), rows, hq, z.d), p, layer, w)

	x := &backend.ExactParams{WindowParams: w.WindowParams, Sets: 35, Ways: 2, Probe: 35, Confidence: 0.5, ConfidenceTemp: 5, Admission: 1, Diversity: 0.25, SoftTemp: 4}
	f := func(dim ...int) tensor.Tensor { return e.Flat(r.F32(k, product(dim)), dim...) }
	x.AdmKey, x.AdmValue, x.AdmBias, x.Mix = f(hq, z.d), f(hq, z.d), f(hq), f(hq)
	switch r.Intn(5) {
	case 0:
		x.FIFO, x.Threshold = true, -1
	case 1:
		x.Mass, x.QualityFirst, x.Threshold = true, true, -1e9
	case 2:
		x.Probe, x.SetCodes, x.Recency = 3, f(hq, 35, z.d), 0.5
	case 3:
		x.Soft, x.QualityFirst = true, true
	}
	exact, weight := e.Out("exact", rows, hq, z.d), e.Out("weight", rows, hq)
	for l := range 2 {
		a.ExactTier(exact, weight, q, p, l, x)
	}
	promote := e.In(r.F32(k, rows*hq), rows, hq)
	a.GateMix(e.Out("mix", rows, hq, z.d), local, remote, e.In(r.F32(k, rows*hq), rows, hq), tensor.Tensor{}, p, backend.GateParams{From: z.window + z.sinks})
	a.GateMix(e.Out("promoted", rows, hq, z.d), local, remote, e.In(r.F32(k, rows*hq), rows, hq), promote, p, backend.GateParams{From: z.window, Norm: r.Intn(2) == 0})
	a.GateMix(e.Out("constant mix", rows, hq, z.d), local, remote, tensor.Tensor{}, tensor.Tensor{}, p, backend.GateParams{Remote: 0.125, Norm: r.Intn(2) == 0})
	a.MassMerge(e.Out("merged", rows, hq, z.d), local, mass, exact, weight)
}

func archiveRowCases() []Case {
	var l []Case
	for _, z := range headSizes {
		for _, k := range tensortest.Kinds() {
			n := z.r * z.h * z.d
			l = append(l,
				Case{"Blend", name("%dx%dx%d/%s", z.r, z.h, z.d, k), z.why, func(e *Env, r *tensortest.Rand) {
					e.archive().Blend(e.Out("dst", z.r, z.h, z.d), e.In(r.F32(k, n), z.r, z.h, z.d), e.In(r.F32(k, n), z.r, z.h, z.d), e.In(r.F32(k, z.r*z.h), z.r, z.h))
				}},
				Case{"QueryCorrection", name("%dx%dx%d/%s", z.r, z.h, z.d, k), z.why, func(e *Env, r *tensortest.Rand) {
					const rank = 3
					e.archive().QueryCorrection(e.Out("dst", z.r, z.h, z.d), e.In(r.F32(k, n), z.r, z.h, z.d),
						e.Flat(r.F32(k, z.h*z.d*rank), z.h, z.d, rank), e.Flat(r.F32(k, z.h*z.d*rank), z.h, rank, z.d))
				}},
				Case{"GELU", name("%dx%d/%s", z.r, z.h*z.d, k), z.why, func(e *Env, r *tensortest.Rand) {
					e.archive().GELU(e.Out("dst", z.r, z.h*z.d), e.In(r.F32(k, n), z.r, z.h*z.d))
				}})
		}
	}
	return l
}

// withArchive is a plan whose first segment has another archive.
func withArchive(e *Env, p backend.Plan, set func(a *backend.ArchiveSeg)) backend.Plan {
	segs := slices.Clone(p.Segs())
	a := *segs[0].Archive
	set(&a)
	segs[0].Archive = &a
	return e.S.Plan(segs)
}

// ArchiveErrors checks that wrong calls of the ops of backend.Archive fail, and
// that no state is written then.
func ArchiveErrors(t *testing.T, dev backend.Device) {
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	z := &archives[3]
	for _, c := range []struct {
		name string
		call func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams)
	}{
		{"no parameters", func(e *Env, p backend.Plan, q, dst tensor.Tensor, _ *backend.ArchiveParams) {
			e.archive().ArchiveScan(dst, q, p, 0, nil)
		}},
		{"a layer that is not there", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			e.archive().ArchiveScan(dst, q, p, 2, w)
		}},
		{"a negative layer", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			e.archive().WindowAttention(dst, tensor.Tensor{}, q, p, -1, w.WindowParams)
		}},
		{"no window", func(e *Env, p backend.Plan, q, dst tensor.Tensor, _ *backend.ArchiveParams) {
			e.archive().WindowAttention(dst, tensor.Tensor{}, q, p, 0, backend.WindowParams{})
		}},
		{"a window whose rows were left out", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			v := w.WindowParams
			v.Window = 70
			e.archive().WindowAttention(dst, tensor.Tensor{}, q, p, 0, v)
		}},
		{"too many active codes", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			w.Active = w.Codes.Dim(1) + 1
			e.archive().ArchiveScan(dst, q, p, 0, w)
		}},
		{"lazy decay of a state without times", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			w.Active, w.Lazy = 1, true
			e.archive().ArchiveScan(dst, q, p, 0, w)
		}},
		{"addresses behind the planes", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			e.archive().ArchiveScan(dst, q, withArchive(e, p, func(a *backend.ArchiveSeg) { a.Raw = 100 }), 0, w)
		}},
		{"addresses before the planes", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			e.archive().ArchiveScan(dst, q, withArchive(e, p, func(a *backend.ArchiveSeg) { a.Raw = -1 }), 0, w)
		}},
		{"a layer whose planes overflow", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			e.archive().ArchiveScan(dst, q, p, math.MaxInt, w)
		}},
		{"a window beyond all slots", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			w.Window = math.MaxInt
			e.archive().ArchiveScan(dst, q, p, 0, w)
		}},
		{"an odd plane", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			odd := withArchive(e, p, func(a *backend.ArchiveSeg) {
				a.Window = slices.Clone(a.Window)
				for i, t := range a.Window {
					a.Window[i] = t.Rows(0, t.Dim(0)-1)
				}
			})
			e.archive().ArchiveScan(dst, q, odd, 0, w)
		}},
		{"no plan", func(e *Env, _ backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			e.archive().ArchiveScan(dst, q, nil, 0, w)
		}},
		{"queries of another width", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			e.archive().ArchiveScan(dst.Cols(0, 2), q.Cols(0, 2), p, 0, w)
		}},
		{"an empty table", func(e *Env, p backend.Plan, q, dst tensor.Tensor, w *backend.ArchiveParams) {
			e.archive().ExactTier(dst, e.Out("weight", q.Dim(0), q.Dim(1)), q, p, 0, &backend.ExactParams{WindowParams: w.WindowParams})
		}},
		{"a gate of other rows", func(e *Env, p backend.Plan, q, dst tensor.Tensor, _ *backend.ArchiveParams) {
			e.archive().GateMix(dst, q, q, e.Out("gate", 1, 1), tensor.Tensor{}, p, backend.GateParams{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &Env{T: t, Dev: dev, S: s, shared: true, pad: 3}
			defer e.close()
			r := tensortest.NewRand(Seed, "archive errors")
			w := z.params(e, r, tensortest.Ordinary)
			segs := z.fill(e, r, tensortest.Ordinary, w, 0)
			if c.name == "a window whose rows were left out" {
				for i := range segs[:1] {
					segs[i].Slot, segs[i].Pos = segs[i].Slot+backend.Page, segs[i].Pos+backend.Page
				}
			}
			rows := segs[len(segs)-1].Row + segs[len(segs)-1].Rows
			p := z.put(e, r, tensortest.Ordinary, segs, rows)
			q := e.In(r.F32(tensortest.Ordinary, rows*4*z.d), rows, 4, z.d)
			e.must(s.Sync())
			c.call(e, p, q, e.Out("dst", rows, 4, z.d), w)
			if err := s.Sync(); err == nil || errors.Is(err, backend.ErrClosed) {
				t.Errorf("%v, want a failure", err)
			}
		})
	}
}
