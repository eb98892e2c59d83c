package ref

import (
	"samebit/backend"
	"samebit/internal/archive"
	"samebit/internal/canon"
	"samebit/tensor"
)

var math32 = &archive.Canon

// windowSlot returns what a plane of the window pages holds at a page slot.
func windowSlot(a *backend.ArchiveSeg, plane, head, j int) []float32 {
	return a.Window[j/backend.Page].Index(plane).Vec(head, j%backend.Page)
}

func (s *stream) PutWindow(p backend.Plan, layer int, k, v, raw tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPutWindow(p, layer, k, v, raw)) || s.away(k, v, raw) || !s.current(p) {
		return
	}
	for _, g := range p.Segs() {
		for i := range g.Rows {
			for h := range k.Dim(1) {
				j := g.Archive.Slot + i
				copy(windowSlot(g.Archive, 2*layer, h, j), k.Vec(g.Row+i, h))
				copy(windowSlot(g.Archive, 2*layer+1, h, j), v.Vec(g.Row+i, h))
				if raw.Valid() {
					copy(windowSlot(g.Archive, g.Archive.Raw+layer, h, j), raw.Vec(g.Row+i, h))
				}
			}
		}
	}
}

func (s *stream) WindowAttention(dst, mass, q tensor.Tensor, p backend.Plan, layer int, w backend.WindowParams) {
	if s.err != nil || s.fails(backend.CheckWindowAttention(dst, mass, q, p, layer, w)) || s.away(dst, mass, q) || !s.current(p) {
		return
	}
	for _, g := range p.Segs() {
		a := g.Archive
		group := q.Dim(1) / a.Window[0].Dim(1)
		for i := range g.Rows {
			own := a.Slot + i
			visible := func(j int) bool { return j > own-w.Window || j < w.Sinks }
			for h := range q.Dim(1) {
				lse := math32.Attend(dst.Vec(g.Row+i, h), q.Vec(g.Row+i, h), w.Scale, own+1, visible,
					func(j int) []float32 { return windowSlot(a, 2*layer, h/group, j) },
					func(j int) []float32 { return windowSlot(a, 2*layer+1, h/group, j) })
				if mass.Valid() {
					mass.Row(g.Row + i)[h] = lse
				}
			}
		}
	}
}

// part returns a layer's values of a bank's tensor, of one head if it is not
// negative.
func part(t tensor.Tensor, layer, head int) []float32 {
	if !t.Valid() {
		return nil
	}
	if t = t.Index(layer); head >= 0 {
		t = t.Index(head)
	}
	v, _ := t.F32()
	return v
}

// values returns a parameter's values of one head.
func values(t tensor.Tensor, head int) []float32 {
	if !t.Valid() {
		return nil
	}
	if t.Dims() == 1 {
		v, _ := t.F32()
		return v[head : head+1]
	}
	v, _ := t.Index(head).F32()
	return v
}

// carry copies a layer's state to where this pass may change it; before the first
// row it is +0.
func carry(g *backend.Seg, layer int, pick func(b *backend.ArchiveBank) tensor.Tensor) {
	in, out := pick(&g.Archive.In), pick(&g.Archive.Out)
	if !out.Valid() {
		return
	}
	if o := part(out, layer, -1); g.Slot == 0 {
		clear(o)
	} else {
		copy(o, part(in, layer, -1))
	}
}

func archiveOptions(w *backend.ArchiveParams) *archive.Options[float32] {
	o := &archive.Options[float32]{
		Math: math32, M: w.Codes.Dim(1), S: len(w.Decay), D: w.Codes.Dim(2), Decay: w.Decay, Gain: w.Gain, Scale: w.Scale,
		Active: w.Active, Lazy: w.Lazy, PerCode: w.PerCode, SparsePer: w.SparsePerCode, Features: w.Features, Gate: w.Gated, Threshold: w.Threshold,
		Landmarks: int(w.Landmarks), LandmarkTemp: w.LandmarkTemp,
	}
	if w.CorrV.Valid() {
		o.R = w.CorrV.Dim(2)
	}
	return o
}

func (s *stream) ArchiveScan(dst, q tensor.Tensor, p backend.Plan, layer int, w *backend.ArchiveParams) {
	if s.err != nil || s.fails(backend.CheckArchiveScan(dst, q, p, layer, w)) || s.away(dst, q, w.Codes, w.Mix, w.CorrV, w.CorrU, w.CorrScale, w.LandmarkMix) || !s.current(p) {
		return
	}
	o := archiveOptions(w)
	segs := p.Segs()
	for gi := range segs {
		g := &segs[gi]
		out := &g.Archive.Out
		for i := range 6 {
			carry(g, layer, func(b *backend.ArchiveBank) tensor.Tensor { return *b.Tensors()[i] })
		}
		heads := make([]*archive.Head[float32], w.Codes.Dim(0))
		for a := range heads {
			h := &archive.Head[float32]{
				Options: o, Codes: values(w.Codes, a), Mix: values(w.Mix, a), CorrV: values(w.CorrV, a), CorrU: values(w.CorrU, a), CorrScale: values(w.CorrScale, a),
				Num: part(out.Num, layer, a), Den: part(out.Den, layer, a), Last: part(out.Last, layer, a),
				LandKey: part(out.LandKey, layer, a), LandValue: part(out.LandValue, layer, a), LandScore: part(out.LandScore, layer, a),
			}
			if w.Landmarks == backend.PersistentLandmarks {
				h.LandMix = values(w.LandmarkMix, a)[0]
			}
			if g.Slot == 0 {
				h.Init()
			}
			heads[a] = h
		}
		reads := newReuse(g, layer, w)
		for i := range g.Rows {
			events := w.Events(g.Slot + i + 1)
			if events == 0 {
				for h := range q.Dim(1) {
					clear(dst.Vec(g.Row+i, h))
				}
				continue
			}
			for a, h := range heads {
				k, v := event(g, layer, w, i, a, len(heads))
				h.Write(events-1, k, v)
			}
			if !reads.again(dst, q, g, i) {
				for h := range q.Dim(1) {
					heads[h/(q.Dim(1)/len(heads))].Read(dst.Vec(g.Row+i, h), q.Vec(g.Row+i, h), events)
				}
				reads.keep(dst, q, g, i)
			}
		}
		reads.end()
	}
}

// event returns the address and the value of the event of a segment's row for one
// of the archive heads.
func event(g *backend.Seg, layer int, w *backend.ArchiveParams, row, a, heads int) (k, v []float32) {
	j, kv := g.Archive.Slot+row-w.Window, a/(heads/g.Archive.Window[0].Dim(1))
	k, v = windowSlot(g.Archive, 2*layer, kv, j), windowSlot(g.Archive, 2*layer+1, kv, j)
	if g.Archive.Raw > 0 {
		k = windowSlot(g.Archive, g.Archive.Raw+layer, kv, j)
	}
	if w.Lexical {
		v = k
	}
	return k, v
}

// reuse decides which rows need no read of their own (numerics.md 16.5).
type reuse struct {
	w           *backend.ArchiveParams
	on          bool
	query, resp tensor.Tensor // [Hq, D]
	mark        []float32     // whether there is a last read, number of reads
}

func newReuse(g *backend.Seg, layer int, w *backend.ArchiveParams) *reuse {
	if !w.Reuse {
		return &reuse{w: w}
	}
	for i := 11; i < 14; i++ {
		carry(g, layer, func(b *backend.ArchiveBank) tensor.Tensor { return *b.Tensors()[i] })
	}
	out := &g.Archive.Out
	r := &reuse{w: w, on: g.Rows == 1, query: out.ReadQuery.Index(layer), resp: out.ReadValue.Index(layer), mark: part(out.ReadMark, layer, -1)}
	if !r.on {
		r.mark[0] = 0
	}
	return r
}

// again writes the last response to row i if that is good enough.
func (r *reuse) again(dst, q tensor.Tensor, g *backend.Seg, i int) bool {
	if !r.on || r.mark[0] == 0 {
		return false
	}
	if r.w.Stride == 1 || (g.Slot+i)%r.w.Stride == 0 {
		close := r.w.Close
		for h := 0; h < q.Dim(1) && close; h++ {
			close = !(math32.Cosine(q.Vec(g.Row+i, h), r.query.Row(h)) < r.w.Closeness)
		}
		if !close {
			return false
		}
	}
	for h := range q.Dim(1) {
		copy(dst.Vec(g.Row+i, h), r.resp.Row(h))
	}
	return true
}

func (r *reuse) keep(dst, q tensor.Tensor, g *backend.Seg, i int) {
	if r.mark == nil {
		return
	}
	r.mark[1]++
	if !r.on {
		return
	}
	r.mark[0] = 1
	for h := range q.Dim(1) {
		copy(r.query.Row(h), q.Vec(g.Row+i, h))
		copy(r.resp.Row(h), dst.Vec(g.Row+i, h))
	}
}

// end forgets what a pass of many rows leaves behind.
func (r *reuse) end() {
	if r.mark != nil && !r.on {
		q, _ := r.query.F32()
		v, _ := r.resp.F32()
		clear(q)
		clear(v)
	}
}

func (s *stream) ExactTier(dst, weight, q tensor.Tensor, p backend.Plan, layer int, w *backend.ExactParams) {
	if s.err != nil || s.fails(backend.CheckExactTier(dst, weight, q, p, layer, w)) || s.away(dst, weight, q, w.AdmKey, w.AdmValue, w.AdmBias, w.Mix, w.SetCodes) || !s.current(p) {
		return
	}
	heads := q.Dim(1)
	o := &archive.TableOptions[float32]{
		Math: math32, Sets: w.Sets, Ways: w.Ways, Probe: w.Probe, D: q.Dim(2), FIFO: w.FIFO, Hard: !w.Soft,
		Admission: w.Admission, Diversity: w.Diversity, Recency: w.Recency, Temperature: w.SoftTemp,
	}
	segs := p.Segs()
	for gi := range segs {
		g := &segs[gi]
		out := &g.Archive.Out
		for i := 6; i < 11; i++ {
			carry(g, layer, func(b *backend.ArchiveBank) tensor.Tensor { return *b.Tensors()[i] })
		}
		next := part(out.Next, layer, -1)
		tables := make([]*archive.Table[float32], heads)
		for h := range tables {
			tables[h] = &archive.Table[float32]{
				TableOptions: o, SetCodes: values(w.SetCodes, h), Key: part(out.Key, layer, h), Value: part(out.Value, layer, h),
				Score: part(out.Score, layer, h), Age: part(out.Age, layer, h), Cursor: &next[h],
			}
			if g.Slot == 0 {
				tables[h].Init()
			}
		}
		for i := range g.Rows {
			if w.Events(g.Slot+i+1) > 0 {
				offer(tables, g, q, layer, i, w)
			}
			for h, t := range tables {
				d, to := dst.Vec(g.Row+i, h), &weight.Row(g.Row + i)[h]
				if w.Mass {
					*to = t.Attend(d, q.Vec(g.Row+i, h), w.Scale)
				} else {
					*to = math32.Confidence(t.Read(d, q.Vec(g.Row+i, h)), values(w.Mix, h)[0], w.Confidence, w.ConfidenceTemp)
				}
			}
		}
	}
}

// offer shows the event of a segment's row to every head's table.
func offer(tables []*archive.Table[float32], g *backend.Seg, q tensor.Tensor, layer, row int, w *backend.ExactParams) {
	a, j, step := g.Archive, g.Archive.Slot+row-w.Window, float32(w.Events(g.Slot+row+1))
	per := len(tables) / a.Window[0].Dim(1)
	for h, t := range tables {
		k, v := windowSlot(a, 2*layer, h/per, j), windowSlot(a, 2*layer+1, h/per, j)
		var score float32
		if w.QualityFirst {
			score = math32.Cosine(k, q.Vec(g.Row+row, h))
		} else {
			address := k
			if a.Raw > 0 {
				address = windowSlot(a, a.Raw+layer, h/per, j)
			}
			score = math32.Admit(address, v, values(w.AdmKey, h), values(w.AdmValue, h), values(w.AdmBias, h)[0])
		}
		if score >= w.Threshold {
			t.Write(k, v, score, step)
		}
	}
}

func (s *stream) GateMix(dst, local, remote, gate, promote tensor.Tensor, p backend.Plan, w backend.GateParams) {
	if s.err != nil || s.fails(backend.CheckGateMix(dst, local, remote, gate, promote, p, w)) || s.away(dst, local, remote, gate, promote) || !s.current(p) {
		return
	}
	for _, g := range p.Segs() {
		for r := g.Row; r < g.Row+g.Rows; r++ {
			for h := range dst.Dim(1) {
				if g.Slot+r-g.Row < w.From {
					copy(dst.Vec(r, h), local.Vec(r, h))
					continue
				}
				weight, up := w.Remote, float32(0)
				if gate.Valid() {
					weight = canon.Sigmoid(gate.Row(r)[h])
				}
				if promote.Valid() {
					up = promote.Row(r)[h]
				}
				math32.Mix(dst.Vec(r, h), local.Vec(r, h), remote.Vec(r, h), weight, up, !gate.Valid(), w.Norm)
			}
		}
	}
}

func (s *stream) Blend(dst, x, y, a tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckBlend(dst, x, y, a)) || s.away(dst, x, y, a) {
		return
	}
	for r := range dst.Dim(0) {
		for h := range dst.Dim(1) {
			math32.Blend(dst.Vec(r, h), a.Row(r)[h], y.Vec(r, h), x.Vec(r, h))
		}
	}
}

func (s *stream) MassMerge(dst, local, massLocal, exact, massExact tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckMassMerge(dst, local, massLocal, exact, massExact)) || s.away(dst, local, massLocal, exact, massExact) {
		return
	}
	for r := range dst.Dim(0) {
		for h := range dst.Dim(1) {
			math32.MassMerge(dst.Vec(r, h), local.Vec(r, h), exact.Vec(r, h), massLocal.Row(r)[h], massExact.Row(r)[h])
		}
	}
}

func (s *stream) QueryCorrection(dst, q, v, u tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckQueryCorrection(dst, q, v, u)) || s.away(dst, q, v, u) {
		return
	}
	per := q.Dim(1) / v.Dim(0)
	for h := range q.Dim(1) {
		a := &archive.Head[float32]{Options: &archive.Options[float32]{Math: math32, D: q.Dim(2), R: v.Dim(2)}, CorrV: values(v, h/per), CorrU: values(u, h/per)}
		for r := range q.Dim(0) {
			a.Correct(dst.Vec(r, h), q.Vec(r, h))
		}
	}
}

func (s *stream) GELU(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("GELU", dst, x)) || s.away(dst, x) {
		return
	}
	for r := range x.Dim(0) {
		d, v := dst.Row(r), x.Row(r)
		for i := range v {
			d[i] = canon.GELU(v[i])
		}
	}
}
