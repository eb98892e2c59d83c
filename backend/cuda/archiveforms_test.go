package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// archiveForm is a use of archive ops with wide heads, many codes, or many sets, whose
// scores are moderate: no code outweighs the others.
type archiveForm struct {
	name          string
	rows, past    []int // per sequence: of the pass, and before it
	kv, group, a  int   // key heads, query heads per key head, archive heads per key head
	d             int
	window, sinks int
	m, s, rank    int
	raw           bool
	sets, ways    int
	set           func(w *backend.ArchiveParams)
	exact         []func(x *backend.ExactParams)
	at            scales
}

// scales are the magnitudes of operands; 0 is 1.
type scales struct {
	keys, queries, values float32
	adm, dy               float32 // of the parameters of admission, of gradients
}

func orOne(scale float32) float32 {
	if scale == 0 {
		return 1
	}
	return scale
}

// little is a scale at which sums of squares are of subnormals, and much one that
// makes up for it in products.
const little, much = 3e-21, 1e14

const archiveLayers = 2

func (z *archiveForm) params(r *rig, rnd *tensortest.Rand) *backend.ArchiveParams {
	heads := z.kv * z.a
	w := &backend.ArchiveParams{WindowParams: backend.WindowParams{Scale: 1 / float32(math.Sqrt(float64(z.d))), Window: z.window, Sinks: z.sinks},
		Codes: r.random(rnd, 1, heads, z.m, z.d), Mix: r.random(rnd, 1, heads, z.m, z.s), LandmarkMix: r.random(rnd, 0.5, heads)}
	for s := range z.s {
		w.Decay, w.Gain = append(w.Decay, 1-0.3/float32(1+s%5)), append(w.Gain, 0.5+0.07*float32(s%7))
	}
	if z.rank > 0 {
		w.CorrV, w.CorrU, w.CorrScale = r.random(rnd, 0.1, heads, z.d, z.rank), r.random(rnd, 0.1, heads, z.rank, z.d), r.random(rnd, 0.2, heads, z.rank, z.s)
	}
	if z.set != nil {
		z.set(w)
	}
	return w
}

// counts are whole numbers up to a limit.
func (r *rig) counts(rnd *tensortest.Rand, limit int, dim ...int) tensor.Tensor {
	v := make([]float32, product(dim))
	for i := range v {
		v[i] = float32(rnd.Intn(limit + 1))
	}
	return r.f32(v, dim...)
}

// grades are scores of slots, every third of which is empty.
func (r *rig) grades(rnd *tensortest.Rand, dim ...int) tensor.Tensor {
	v := rnd.F32(tensortest.Ordinary, product(dim))
	for i := range v {
		if v[i] *= 0.2; rnd.Intn(3) == 0 {
			v[i] = float32(math.Inf(-1))
		}
	}
	return r.f32(v, dim...)
}

func (z *archiveForm) bank(r *rig, rnd *tensortest.Rand, w *backend.ArchiveParams, past int) (b backend.ArchiveBank) {
	const l = archiveLayers
	heads, hq, events, slots := z.kv*z.a, z.kv*z.group, w.Events(past), z.sets*z.ways
	b.Num, b.Den = r.random(rnd, orOne(z.at.values), l, heads, z.m*z.s, z.d), r.counts(rnd, 5, l, heads, z.m*z.s)
	if w.Lazy {
		b.Last = r.counts(rnd, events, l, heads, z.m)
	}
	if w.Landmarks != backend.NoLandmarks {
		b.LandKey, b.LandValue, b.LandScore = r.random(rnd, 1, l, heads, z.m, z.d), r.random(rnd, orOne(z.at.values), l, heads, z.m, z.d), r.grades(rnd, l, heads, z.m)
	}
	if w.Reuse {
		b.ReadQuery, b.ReadValue, b.ReadMark = r.random(rnd, orOne(z.at.keys), l, hq, z.d), r.random(rnd, 1, l, hq, z.d), r.f32([]float32{1, 4, 1, 3}, l, 2)
	}
	if slots > 0 {
		b.Key, b.Value = r.random(rnd, orOne(z.at.queries), l, hq, slots, z.d), r.random(rnd, orOne(z.at.values), l, hq, slots, z.d)
		b.Score, b.Age, b.Next = r.grades(rnd, l, hq, slots), r.counts(rnd, events, l, hq, slots), r.counts(rnd, slots-1, l, hq)
	}
	return b
}

func (z *archiveForm) put(r *rig, rnd *tensortest.Rand, p backend.Plan) {
	for layer := range archiveLayers {
		in := func(scale float32) tensor.Tensor { return r.random(rnd, orOne(scale), p.Rows(), z.kv, z.d) }
		raw := tensor.Tensor{}
		if z.raw {
			raw = in(z.at.keys)
		}
		r.s.(backend.Archive).PutWindow(p, layer, in(z.at.keys), in(z.at.values), raw)
	}
}

func (z *archiveForm) run(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
	const layer = 1
	w, op := z.params(r, rnd), r.s.(backend.Archive)
	var segs []backend.Seg
	row := 0
	for i, n := range z.rows {
		a := &backend.ArchiveSeg{Slot: z.past[i], In: z.bank(r, rnd, w, z.past[i])}
		planes := 2 * archiveLayers
		if z.raw {
			a.Raw, planes = planes, planes+archiveLayers
		}
		for range (a.Slot + n + backend.Page - 1) / backend.Page {
			a.Window = append(a.Window, r.f32(nil, planes, z.kv, backend.Page, z.d))
		}
		in, out := a.In.Tensors(), a.Out.Tensors()
		for j, t := range in {
			if t.Valid() {
				*out[j] = r.f32(nil, t.Shape()...)
			}
		}
		if a.Slot > 0 {
			z.put(r, rnd, r.s.Plan([]backend.Seg{{Rows: a.Slot, Archive: &backend.ArchiveSeg{Window: a.Window, Raw: a.Raw}}}))
		}
		segs = append(segs, backend.Seg{Row: row, Rows: n, Slot: a.Slot, Pos: a.Slot, Archive: a})
		row += n
	}
	p := r.s.Plan(segs)
	z.put(r, rnd, p)
	hq := z.kv * z.group
	q := r.random(rnd, orOne(z.at.queries), row, hq, z.d)
	if w.Close { // sequences ask what they asked before, every second one with a head less
		for i, s := range segs {
			n := hq - i%2
			r.s.Copy(s.Archive.In.ReadQuery.Index(layer).Rows(0, n), q.Index(s.Row).Rows(0, n))
		}
	}
	local, mass, remote := r.f32(nil, row, hq, z.d), r.f32(nil, row, hq), r.f32(nil, row, hq, z.d)
	op.WindowAttention(local, mass, q, p, layer, w.WindowParams)
	op.ArchiveScan(remote, q, p, layer, w)
	outs := []tensor.Tensor{local, mass, remote}
	keep := func() {
		for _, s := range segs {
			for _, t := range s.Archive.Out.Tensors() {
				if t.Valid() {
					to := r.f32(nil, t.Shape()[1:]...)
					r.s.Copy(to, t.Index(layer))
					outs = append(outs, to)
				}
			}
		}
	}
	keep()
	for _, set := range z.exact {
		x := &backend.ExactParams{WindowParams: w.WindowParams, Sets: z.sets, Ways: z.ways, Probe: z.sets, Confidence: 0.25, ConfidenceTemp: 2, Threshold: -1, Admission: 0.7, Diversity: 0.3, SoftTemp: 3}
		adm := 0.3 * orOne(z.at.adm)
		x.AdmKey, x.AdmValue, x.AdmBias, x.Mix = r.random(rnd, adm, hq, z.d), r.random(rnd, adm, hq, z.d), r.random(rnd, adm, hq), r.random(rnd, 1, hq)
		x.SetCodes = r.random(rnd, orOne(z.at.queries), hq, z.sets, z.d)
		if set(x); z.at.adm != 0 {
			x.Admission, x.Diversity = 1, 0
		}
		y, weight := r.f32(nil, row, hq, z.d), r.f32(nil, row, hq)
		op.ExactTier(y, weight, q, p, layer, x)
		outs = append(outs, y, weight)
		keep()
	}
	return outs
}

// exacts are the kinds of an exact tier.
var exacts = []func(x *backend.ExactParams){
	func(x *backend.ExactParams) { x.Recency = 0.3 },
	func(x *backend.ExactParams) { x.FIFO, x.Soft, x.Probe = true, true, x.Sets-1 },
	func(x *backend.ExactParams) { x.Mass, x.QualityFirst, x.Diversity = true, true, 0.5 },
	func(x *backend.ExactParams) { x.Probe, x.Recency, x.QualityFirst = 2, 0.5, true },
	func(x *backend.ExactParams) { x.Soft, x.Probe, x.Threshold = true, x.Sets-1, 0.1 },
}

var archiveUses = []archiveForm{
	{"wide", []int{2, 1}, []int{9, 4}, 2, 2, 2, 1030, 3, 1, 5, 2, 2, true, 3, 2, func(w *backend.ArchiveParams) {
		w.Features, w.Scale, w.Landmarks, w.LandmarkTemp = true, 0.002, backend.PersistentLandmarks, 1.5
	}, exacts, scales{}},
	{"many sets", []int{3, 2}, []int{8, 70}, 2, 2, 1, 67, 3, 0, 2, 2, 0, false, 35, 4, nil, exacts, scales{}},
	{"full tables", []int{9, 4}, []int{30, 5}, 2, 1, 1, 35, 3, 1, 2, 1, 0, true, 4, 2, nil, exacts, scales{}},
	{"lazy", []int{5, 3}, []int{9, 70}, 2, 2, 2, 37, 5, 1, 133, 3, 3, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Active, w.Lazy, w.Gated, w.Threshold = 129, true, true, -0.1
	}, nil, scales{}},
	{"sparse", []int{4, 1}, []int{40, 0}, 2, 2, 1, 33, 5, 1, 70, 2, 2, false, 0, 0, func(w *backend.ArchiveParams) {
		w.Active, w.SparsePerCode = 35, true
	}, nil, scales{}},
	{"many scales", []int{3, 3}, []int{9, 7}, 1, 4, 2, 34, 5, 0, 3, 131, 130, false, 0, 0, nil, nil, scales{}},
	{"many scales per code", []int{3, 3}, []int{9, 7}, 1, 2, 2, 6, 5, 0, 33, 131, 3, false, 0, 0, func(w *backend.ArchiveParams) { w.PerCode = true }, nil, scales{}},
	{"many landmarks", []int{4, 3}, []int{9, 70}, 2, 2, 2, 131, 5, 1, 131, 1, 0, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp, w.Lexical, w.Gated, w.Threshold = backend.PersistentLandmarks, 1.5, true, true, 0.1
	}, nil, scales{}},
	{"first events", []int{6, 3}, []int{9, 0}, 2, 2, 1, 35, 2, 1, 33, 2, 2, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp = backend.PrefixLandmarks, 1.5
	}, nil, scales{}},
	{"pairs of events", []int{7, 5}, []int{9, 0}, 2, 2, 2, 34, 2, 1, 6, 2, 2, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp, w.Lexical = backend.PairLandmarks, 1.5, true
	}, nil, scales{}},
	{"reuse", []int{1, 1, 1, 3}, []int{9, 8, 72, 5}, 1, 35, 1, 35, 3, 1, 2, 1, 0, false, 0, 0, func(w *backend.ArchiveParams) {
		w.Reuse, w.Stride, w.Close, w.Closeness, w.Landmarks, w.LandmarkTemp = true, 2, true, 0.9, backend.PersistentLandmarks, 1
	}, nil, scales{}},
	{"wide reuse", []int{1, 1}, []int{9, 8}, 1, 2, 1, 1030, 3, 1, 2, 1, 0, false, 0, 0, func(w *backend.ArchiveParams) {
		w.Reuse, w.Stride, w.Close, w.Closeness = true, 1, true, 0.99
	}, nil, scales{}},
	{"window", []int{5, 70}, []int{150, 3}, 2, 2, 1, 130, 70, 3, 1, 1, 0, false, 0, 0, nil, nil, scales{}},
	{"tiny values", []int{4, 2}, []int{8, 70}, 2, 2, 1, 35, 3, 1, 4, 2, 2, true, 5, 3, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp = backend.PersistentLandmarks, 1.5
	}, exacts, scales{values: tiny, adm: tiny}},
	{"tiny keys", []int{3, 2}, []int{8, 7}, 2, 2, 2, 66, 3, 1, 4, 2, 0, false, 5, 3, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp = backend.PersistentLandmarks, 1.5
	}, exacts, scales{keys: tiny, adm: 0.5}},
	{"little keys", []int{3, 2}, []int{8, 7}, 2, 2, 1, 67, 3, 0, 2, 1, 0, false, 5, 3, nil, exacts, scales{keys: little, queries: much, values: little}},
	{"little queries", []int{3, 2}, []int{8, 7}, 2, 2, 1, 67, 3, 0, 2, 1, 0, false, 5, 3, nil, exacts, scales{keys: much, queries: little}},
	{"reuse of little queries", []int{1, 1}, []int{8, 6}, 1, 2, 1, 67, 3, 0, 2, 1, 0, false, 0, 0, func(w *backend.ArchiveParams) {
		w.Reuse, w.Stride, w.Close, w.Closeness = true, 2, true, 0.05
	}, nil, scales{keys: much, queries: little}},
}

// restUses are archives whose sizes leave all rests of loops of four steps, after at
// least one whole round, and more codes, scales and slots than a block of RSUM has.
var restUses = []archiveForm{
	{"sevens", []int{4, 3}, []int{9, 20}, 1, 2, 1, 7, 3, 1, 7, 7, 7, true, 7, 3, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp, w.Features, w.Scale = backend.PersistentLandmarks, 1.5, true, 0.1
	}, exacts, scales{}},
	{"sixes", []int{4, 3}, []int{9, 20}, 1, 2, 2, 6, 3, 1, 6, 6, 6, true, 6, 3, func(w *backend.ArchiveParams) { w.PerCode = true }, exacts, scales{}},
	{"fives", []int{4, 3}, []int{9, 20}, 2, 1, 1, 5, 3, 1, 5, 5, 5, false, 5, 3, func(w *backend.ArchiveParams) {
		w.Active, w.Lazy = 3, true
	}, exacts, scales{}},
	{"keys in fours", []int{4, 3}, []int{9, 20}, 2, 2, 1, 68, 3, 1, 7, 2, 2, true, 5, 3, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp, w.Features, w.Scale = backend.PersistentLandmarks, 1.5, true, 0.02
	}, exacts, scales{}},
	{"long keys in fours", []int{3, 2}, []int{9, 70}, 1, 2, 1, 1036, 3, 1, 5, 1, 0, false, 3, 3, func(w *backend.ArchiveParams) {
		w.Features, w.Scale = true, 0.002
	}, exacts[2:4], scales{}},
	{"little keys in fours", []int{3, 2}, []int{8, 7}, 2, 2, 1, 60, 3, 0, 2, 1, 0, false, 5, 3, nil, exacts, scales{keys: little, queries: much, values: little}},
	{"after a block", []int{3, 2}, []int{9, 20}, 1, 1, 1, 135, 3, 1, 134, 1, 133, false, 0, 0, nil, nil, scales{}},
	{"more landmarks than a block", []int{2, 1}, []int{9, 4}, 1, 1, 1, 5, 3, 1, 1030, 1, 0, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp, w.PerCode = backend.PersistentLandmarks, 1.5, true
	}, nil, scales{}},
	{"more scales than a block", []int{2, 1}, []int{9, 4}, 1, 1, 1, 3, 3, 1, 1, 1030, 0, false, 0, 0, nil, nil, scales{}},
	{"more slots than a block", []int{1, 2}, []int{9, 20}, 1, 1, 1, 3, 3, 1, 1, 1, 0, false, 40, 40, nil, exacts[4:], scales{}},
	{"many events", []int{40, 1}, []int{9, 8}, 2, 2, 1, 39, 3, 1, 2, 1, 0, true, 8, 8, nil, []func(x *backend.ExactParams){
		func(x *backend.ExactParams) { x.FIFO, x.Threshold = true, -9 },
		func(x *backend.ExactParams) { x.FIFO, x.Threshold, x.QualityFirst = true, -9, true },
	}, scales{}},
}

// archiveGrads are archives with gradients; past and the tables are not used.
var archiveGrads = []archiveForm{
	{"wide", []int{7, 6}, nil, 2, 2, 2, 1030, 2, 1, 3, 2, 2, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Features, w.Scale, w.Landmarks, w.LandmarkTemp = true, 0.002, backend.PersistentLandmarks, 1.5
	}, nil, scales{}},
	{"many codes", []int{8, 6}, nil, 2, 2, 2, 7, 2, 1, 133, 2, 3, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Gated, w.Threshold, w.Landmarks, w.LandmarkTemp = true, -0.3, backend.PersistentLandmarks, 1.5
	}, nil, scales{}},
	{"many codes, features", []int{7, 6}, nil, 2, 2, 1, 37, 2, 1, 1030, 1, 0, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Features, w.Scale = true, 0.02
	}, nil, scales{}},
	{"many scales", []int{7, 6}, nil, 1, 4, 2, 35, 2, 1, 3, 131, 131, false, 0, 0, nil, nil, scales{}},
	{"many scales per code", []int{6, 7}, nil, 2, 2, 2, 6, 2, 1, 35, 6, 35, true, 0, 0, func(w *backend.ArchiveParams) { w.PerCode = true }, nil, scales{}},
	{"first events", []int{9, 7}, nil, 2, 2, 1, 131, 2, 1, 5, 2, 2, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp = backend.PrefixLandmarks, 1.5
	}, nil, scales{}},
	{"pairs of events", []int{9, 70}, nil, 2, 2, 2, 34, 60, 1, 6, 2, 2, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp = backend.PairLandmarks, 1.5
	}, nil, scales{}},
	{"sevens", []int{8, 6}, nil, 1, 2, 1, 7, 2, 1, 7, 7, 7, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Features, w.Scale, w.Landmarks, w.LandmarkTemp = true, 0.1, backend.PersistentLandmarks, 1.5
	}, nil, scales{}},
	{"sixes", []int{8, 6}, nil, 2, 2, 1, 6, 2, 1, 6, 6, 6, true, 0, 0, func(w *backend.ArchiveParams) { w.PerCode = true }, nil, scales{}},
	{"fives", []int{8, 6}, nil, 1, 2, 2, 5, 2, 1, 5, 5, 5, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Gated, w.Threshold = true, -0.3
	}, nil, scales{}},
	{"after a block", []int{7, 6}, nil, 1, 1, 1, 135, 2, 1, 134, 1, 133, true, 0, 0, nil, nil, scales{}},
	{"more landmarks than a block", []int{6, 5}, nil, 1, 1, 1, 5, 2, 1, 1030, 1, 0, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Landmarks, w.LandmarkTemp, w.PerCode = backend.PersistentLandmarks, 1.5, true
	}, nil, scales{}},
	{"tiny", []int{7, 6}, nil, 2, 2, 2, 35, 2, 1, 6, 3, 2, true, 0, 0, func(w *backend.ArchiveParams) {
		w.Features, w.Landmarks, w.LandmarkTemp = true, backend.PersistentLandmarks, 1.5
	}, nil, scales{dy: tiny}},
	{"tiny, a division per code", []int{7, 6}, nil, 2, 2, 1, 35, 2, 1, 6, 3, 2, true, 0, 0, func(w *backend.ArchiveParams) { w.PerCode = true }, nil, scales{dy: tiny}},
}

func (z *archiveForm) grad(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
	w, p := z.params(r, rnd), r.segments(z.rows...)
	rows, hq := p.Rows(), z.kv*z.group
	var outs []tensor.Tensor
	sum := func(t tensor.Tensor) tensor.Tensor {
		if !t.Valid() {
			return t
		}
		to := r.random(rnd, 0.1*orOne(z.at.dy), t.Shape()...)
		outs = append(outs, to)
		return to
	}
	heads := func(n int) tensor.Tensor {
		whole, x := r.starting(rnd, 0.1*orOne(z.at.dy), rows, n, z.d)
		outs = append(outs, whole)
		return x
	}
	d := &backend.ArchiveGrads{Q: heads(hq), K: heads(z.kv), V: heads(z.kv), Codes: sum(w.Codes), Mix: sum(w.Mix), CorrV: sum(w.CorrV), CorrU: sum(w.CorrU), CorrScale: sum(w.CorrScale)}
	if w.Landmarks == backend.PersistentLandmarks {
		d.LandmarkMix = sum(w.LandmarkMix)
	}
	in := func(n int) tensor.Tensor { return r.random(rnd, 1, rows, n, z.d) }
	r.s.(backend.ArchiveGrad).ArchiveScanGrad(d, r.random(rnd, orOne(z.at.dy), rows, hq, z.d), in(hq), in(z.kv), in(z.kv), p, w)
	return outs
}

// archiveForms are uses of archives and of the ops beside them.
func archiveForms() []form {
	var l []form
	for i := range archiveUses {
		l = append(l, form{"Archive/" + archiveUses[i].name, []string{"archiveScan"}, true, archiveUses[i].run})
	}
	for i := range restUses {
		l = append(l, form{"Archive/" + restUses[i].name, []string{"archiveScan"}, true, restUses[i].run})
	}
	for i := range archiveGrads {
		l = append(l, form{"ArchiveScanGrad/" + archiveGrads[i].name, []string{"readBack"}, true, archiveGrads[i].grad})
	}
	for _, z := range []struct {
		rows          []int
		hq, hkv, d    int
		window, sinks int
		dy            float32
	}{{[]int{5, 3}, 4, 2, 131, 3, 1, 1}, {[]int{3, 70}, 2, 1, 67, 40, 2, 1}, {[]int{140}, 1, 1, 6, 70, 66, 1}, {[]int{4, 131}, 2, 2, 9, 20, 3, 1}, {[]int{4, 9}, 2, 1, 35, 3, 1, tiny}} {
		l = append(l, form{fmt.Sprintf("WindowAttentionGrad/%v/%d:%d/%d/%g", z.rows, z.hq, z.hkv, z.d, z.dy), []string{"windowGradKV"}, true, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			p := r.segments(z.rows...)
			in := func(n int) tensor.Tensor { return r.random(rnd, 1, p.Rows(), n, z.d) }
			wq, dq := r.starting(rnd, 0.1*z.dy, p.Rows(), z.hq, z.d)
			wk, dk := r.starting(rnd, 0.1*z.dy, p.Rows(), z.hkv, z.d)
			wv, dv := r.starting(rnd, 0.1*z.dy, p.Rows(), z.hkv, z.d)
			r.s.(backend.ArchiveGrad).WindowAttentionGrad(dq, dk, dv, r.random(rnd, z.dy, p.Rows(), z.hq, z.d), in(z.hq), in(z.hq), in(z.hkv), in(z.hkv), p,
				backend.WindowParams{Scale: 1 / float32(math.Sqrt(float64(z.d))), Window: z.window, Sinks: z.sinks})
			return []tensor.Tensor{wq, wk, wv}
		}})
	}
	l = append(l, archiveSharpForms()...)
	for _, z := range []struct {
		d          int
		x, y, grad float32
	}{{1030, 1, 1.5, 1}, {131, 1, 1.5, 1}, {34, 1, 1.5, 1}, {33, tiny, tiny, tiny}, {67, little, 1e-6, 1}, {67, 1e-6, little, tiny}} {
		kernels := []string{"gateMix", "latentGrad"}
		if z.d == 34 { // without a rank
			kernels = kernels[:1]
		}
		l = append(l, form{fmt.Sprintf("beside archives/%d/%g,%g,%g", z.d, z.x, z.y, z.grad), kernels, true, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			return besideArchives(r, rnd, z.d, z.x, z.y, z.grad)
		}})
	}
	return l
}

// besideArchives runs what joins responses of scales sx and sy, and its gradients.
func besideArchives(r *rig, rnd *tensortest.Rand, d int, sx, sy, grad float32) []tensor.Tensor {
	const heads = 6
	rank := 3
	if d < 200 {
		rank = 131
	}
	if d == 34 {
		rank = 0
	}
	op, g, p := r.s.(backend.Archive), r.s.(backend.ArchiveGrad), r.segments(3, 5)
	rows := p.Rows()
	in := func() tensor.Tensor { return r.random(rnd, sx, rows, heads, d) }
	dy := func() tensor.Tensor { return r.random(rnd, grad, rows, heads, d) }
	gate := func() tensor.Tensor { return r.random(rnd, 1, rows, heads) }
	var outs []tensor.Tensor
	out := func(dim ...int) tensor.Tensor {
		whole, x := r.starting(rnd, 0.1*grad, dim...)
		outs = append(outs, whole)
		return x
	}
	v, u := r.random(rnd, 0.1, 2, d, rank), r.random(rnd, 0.1, 2, rank, d)
	op.QueryCorrection(out(rows, heads, d), in(), v, u)
	op.Blend(out(rows, heads, d), in(), in(), gate())
	op.MassMerge(out(rows, heads, d), in(), gate(), in(), gate())
	op.GELU(out(rows, d), r.random(rnd, sx, rows, d))
	dv, du := r.random(rnd, 0.1*grad, 2, d, rank), r.random(rnd, 0.1*grad, 2, rank, d)
	outs = append(outs, dv, du)
	g.QueryCorrectionGrad(out(rows, heads, d), dv, du, dy(), in(), v, u, p)
	g.GELUGrad(out(rows, d), r.random(rnd, grad, rows, d), r.random(rnd, 1, rows, d))
	for _, w := range []backend.GateParams{{From: 2}, {From: 1, Norm: true}, {Remote: 0.3}, {Remote: 0.3, Norm: true}} {
		var by, dby tensor.Tensor
		if w.Remote == 0 {
			by, dby = gate(), out(rows, heads)
		}
		local, remote := in(), r.random(rnd, sy, rows, heads, d)
		op.GateMix(out(rows, heads, d), local, remote, by, gate(), p, w)
		op.GateMix(out(rows, heads, d), local, remote, by, tensor.Tensor{}, p, w)
		g.GateMixGrad(out(rows, heads, d), out(rows, heads, d), dby, dy(), local, remote, by, p, w)
	}
	return outs
}

func TestArchiveForms(t *testing.T) {
	if testing.Short() {
		t.Skip("they take long")
	}
	runForms(t, archiveForms())
}
