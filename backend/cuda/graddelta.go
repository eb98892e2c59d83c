package cuda

import (
	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

func (s *stream) ConvGrad(dx, dw, dy, x, w tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckConvGrad(dx, dw, dy, x, w, p, layer)) || s.away(dx, dw, dy, x, w) || !s.current(p) || x.Len() == 0 {
		return
	}
	taps, rows, cols := w.Dim(0), x.Dim(0), x.Dim(1)
	du, ok := s.tmp(scratchSlopes, 4*rows*cols)
	if !ok {
		return
	}
	tables := func(p *driver.Params) *driver.Params { return p.Ptr(s.plan.segAt).Ptr(s.plan.ofAt) }
	shape := func(p *driver.Params) *driver.Params { return p.Int32(int32(taps)).Int32(int32(cols)) }
	tables(shape(s.view(s.view(s.kernel().Ptr(du), dy), x).Ptr(s.at(w)))).Int32(int32(layer))
	if s.each("graddelta", "convSlopes", cols, rows); s.err != nil {
		return
	}
	tables(shape(s.view(s.kernel(), dx).Ptr(du).Ptr(s.at(w))))
	if s.each("graddelta", "convGrad", cols, rows); s.err != nil || !dw.Valid() {
		return
	}
	s.addParts(dw, func(t *rowTable, part driver.Ptr) {
		tables(shape(s.view(s.kernel().Ptr(part).Ptr(du), x))).Int32(int32(layer)).Ptr(t.blockAt).Int32(int32(t.blocks))
		s.each("graddelta", "convParts", cols, t.blocks*taps)
	})
}

func (s *stream) DeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias tensor.Tensor, p backend.Plan) {
	if s.err != nil || s.fails(backend.CheckDeltaGatesGrad(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias, p)) ||
		s.away(da, db, dAExp, dDTBias, dg, dbeta, g, beta, a, aExp, dtBias) || (dAExp.Valid() || dDTBias.Valid()) && !s.current(p) {
		return
	}
	heads := g.Dim(1)
	gates := func(p *driver.Params) *driver.Params {
		return s.view(s.view(s.view(p, dg), g), a).Ptr(s.at(aExp)).Ptr(s.at(dtBias))
	}
	q := gates(s.kernel())
	for _, t := range [4]tensor.Tensor{da, db, dbeta, beta} {
		s.view(q, t)
	}
	q.Int32(int32(heads))
	s.each("graddelta", "deltaGatesGrad", heads, g.Dim(0))
	for i, d := range [2]tensor.Tensor{dAExp, dDTBias} {
		if s.err != nil || !d.Valid() {
			continue
		}
		s.addParts(d, func(t *rowTable, part driver.Ptr) {
			gates(s.kernel().Ptr(part)).Ptr(t.blockAt).Int32(int32(t.blocks)).Int32(int32(heads))
			s.each("graddelta", [2]string{"aExpParts", "dtBiasParts"}[i], heads, t.blocks)
		})
	}
}

// deltaShape divides the gradient of the gated delta rule. States are made twice:
// before every chunk of rows of a sequence, all of them kept, and before every row
// of the chunk under way.
type deltaShape struct {
	segs, rows, hv, per, dk, dv int

	chunk int // rows: about the root of the longest sequence
	slots int // of states that are kept
	wide  bool
	warps int // that work on the rows of D, in the second kernel
	room  int // floats of its shared memory, without D
	bytes int // of shared memory
}

func (z *deltaShape) size() int { return z.dk * z.dv }

// perHead is the scratch memory of a value head in floats: what it keeps, the states
// of chunks, D, what rows write and what the head adds to dq and dk.
func (z *deltaShape) perHead() (kept, states, d, write, add int) {
	return z.slots * z.size(), z.segs * z.chunk * z.size(), z.segs * z.size(), z.rows * z.dv, z.rows * z.dk
}

// fit chooses the warps and where D lies: in shared memory, if the device has that
// much.
func (z *deltaShape) fit(shared, most int) {
	z.warps = min(8, (max(z.dk, z.dv)+31)/32)
	room := func() int { return 3*z.dk + 5*z.dv + z.warps*32*33 }
	for z.warps > 1 && 4*room() > shared {
		z.warps--
	}
	z.room = room()
	z.bytes = 4 * (z.room + z.dk*(z.dv|1))
	if z.wide = z.bytes > most; z.wide {
		z.bytes = 4 * z.room
	}
}

func (s *stream) GatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta tensor.Tensor, p backend.Plan, layer int) {
	if s.err != nil || s.fails(backend.CheckGatedDeltaGrad(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta, p, layer)) ||
		s.away(dq, dk, dv, dg, dbeta, dy, q, k, v, g, beta) || !s.current(p) || v.Len() == 0 {
		return
	}
	z := deltaShape{segs: len(s.plan.segs), rows: v.Dim(0), hv: v.Dim(1), per: v.Dim(1) / q.Dim(1), dk: q.Dim(2), dv: v.Dim(2), chunk: 1}
	for i := range s.plan.segs {
		for z.chunk*z.chunk < s.plan.segs[i].Rows {
			z.chunk *= 2
		}
	}
	z.slots = z.rows/z.chunk + z.segs + 1
	z.fit(s.dev.info.Shared, s.dev.info.SharedOptin)
	kept, states, d, write, add := z.perHead()
	each := kept + states + d + 2*write + 2*add
	heads := max(s.dev.scratch/(4*each*z.per), 1) * z.per
	mem, ok := s.tmp(scratchDelta, 4*each*min(heads, z.hv))
	if !ok {
		return
	}
	for first := 0; first < z.hv && s.err == nil; first += heads {
		n := min(heads, z.hv-first)
		at := mem
		take := func(each int) driver.Ptr {
			a := at
			at += driver.Ptr(4 * each * n)
			return a
		}
		pk, ps, pd, po, pq, pc, pD := take(kept), take(states), take(write), take(write), take(add), take(add), take(d)
		s.forget(mem, int(at-mem))
		args := func() *driver.Params {
			p := s.views(dv, dg, dbeta, dy, q, k, v, g, beta).Ptr(s.plan.segAt)
			for _, a := range [7]driver.Ptr{pk, ps, pd, po, pq, pc, pD} {
				p.Ptr(a)
			}
			for _, n := range [8]int{layer, z.hv, z.per, z.dk, z.dv, first, n, z.chunk} {
				p.Int32(int32(n))
			}
			return p
		}
		args()
		grid := [3]uint32{uint32((z.dv + 31) / 32), uint32(n), uint32(z.segs)}
		if bytes := 4 * 32 * z.dk; bytes <= s.dev.info.Shared {
			s.launch("graddelta", "deltaForward", grid, [3]uint32{32, 1, 1}, bytes)
		} else {
			s.launch("graddelta", "deltaForwardWide", grid, [3]uint32{32, 1, 1}, 0)
		}
		name := "deltaGrad"
		if z.wide {
			name = "deltaGradWide"
		}
		if s.err != nil || !s.allow("graddelta", name, z.bytes) {
			return
		}
		if a := args(); !z.wide {
			a.Int32(int32(z.room))
		}
		s.launch("graddelta", name, [3]uint32{uint32(n), uint32(z.segs), 1}, [3]uint32{32, uint32(z.warps + 1), 1}, z.bytes)
		for i, t := range [2]tensor.Tensor{dq, dk} {
			if s.err != nil {
				return
			}
			s.view(s.kernel(), t).Ptr([2]driver.Ptr{pq, pc}[i])
			for _, n := range [5]int{first / z.per, n, z.per, z.dk, z.rows} {
				s.params.Int32(int32(n))
			}
			s.each("graddelta", "addHeads", z.dk, z.rows*n/z.per)
		}
	}
}

// allow sees to it that a kernel may have that much dynamic shared memory.
func (s *stream) allow(module, name string, bytes int) bool {
	if bytes <= s.dev.info.Shared {
		return true
	}
	f, err := s.dev.function(module, name)
	return !s.fails(err) && !s.fails(s.dev.ctx.SetMaxShared(f, bytes))
}
