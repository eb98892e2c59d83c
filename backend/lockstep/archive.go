package lockstep

import (
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

// archiveStream is a stream of two devices that both have archive attention.
type archiveStream struct{ *stream }

// withOps gives a stream the ops that both sides have besides.
func withOps(s *stream) backend.Stream {
	archive, grad, all := have[backend.Archive](s), have[backend.Grad](s), have[backend.ArchiveGrad](s)
	switch {
	case archive && grad && all:
		return struct {
			archiveStream
			gradOps
			archiveGradOps
		}{archiveStream{s}, gradOps{s}, archiveGradOps{s}}
	case archive && grad:
		return struct {
			archiveStream
			gradOps
		}{archiveStream{s}, gradOps{s}}
	case archive:
		return archiveStream{s}
	case grad:
		return struct {
			*stream
			gradOps
		}{s, gradOps{s}}
	}
	return s
}

// have reports whether both sides of a stream are an I.
func have[I any](s *stream) bool {
	_, a := s.a.(I)
	_, b := s.b.(I)
	return a && b
}

func (x *side) archive() backend.Archive { return x.Stream.(backend.Archive) }

// splitArchive is a segment's window and archive on each device.
func splitArchive(s *backend.ArchiveSeg) (a, b *backend.ArchiveSeg) {
	if s == nil {
		return nil, nil
	}
	a, b = &backend.ArchiveSeg{Slot: s.Slot, Raw: s.Raw}, &backend.ArchiveSeg{Slot: s.Slot, Raw: s.Raw}
	for _, pg := range s.Window {
		x, y := split(pg)
		a.Window, b.Window = append(a.Window, x), append(b.Window, y)
	}
	for i := range s.In.Tensors() {
		*a.In.Tensors()[i], *b.In.Tensors()[i] = split(*s.In.Tensors()[i])
		*a.Out.Tensors()[i], *b.Out.Tensors()[i] = split(*s.Out.Tensors()[i])
	}
	return a, b
}

// banks compares a layer of what the segments' archives hold now.
func (s *stream) banks(layer int, from, to int) {
	for i := range s.plan.segs {
		for j, t := range s.plan.segs[i].Archive.Out.Tensors() {
			if j >= from && j < to && t.Valid() && !s.same(fmt.Sprintf("part %d of the archive of segment %d", j, i), t.Index(layer)) {
				return
			}
		}
	}
}

func (s archiveStream) PutWindow(p backend.Plan, layer int, k, v, raw tensor.Tensor) {
	s.unseen("PutWindow", 0, func(x *side) { x.archive().PutWindow(x.plan(s.stream, p), layer, x.t[0], x.t[1], x.t[2]) }, k, v, raw)
}

func (s archiveStream) WindowAttention(dst, mass, q tensor.Tensor, p backend.Plan, layer int, w backend.WindowParams) {
	s.run("WindowAttention", 2, func(x *side) {
		x.archive().WindowAttention(x.t[0], x.t[1], x.t[2], x.plan(s.stream, p), layer, w)
	}, dst, mass, q)
}

func (s archiveStream) ArchiveScan(dst, q tensor.Tensor, p backend.Plan, layer int, w *backend.ArchiveParams) {
	if w == nil {
		w = &backend.ArchiveParams{}
	}
	ok := s.run("ArchiveScan", 1, func(x *side) {
		y := *w
		y.Codes, y.Mix, y.CorrV, y.CorrU, y.CorrScale, y.LandmarkMix = x.t[2], x.t[3], x.t[4], x.t[5], x.t[6], x.t[7]
		x.archive().ArchiveScan(x.t[0], x.t[1], x.plan(s.stream, p), layer, &y)
	}, dst, q, w.Codes, w.Mix, w.CorrV, w.CorrU, w.CorrScale, w.LandmarkMix)
	if ok {
		s.banks(layer, 0, 6)
		s.banks(layer, 11, 14)
	}
}

func (s archiveStream) ExactTier(dst, weight, q tensor.Tensor, p backend.Plan, layer int, w *backend.ExactParams) {
	if w == nil {
		w = &backend.ExactParams{}
	}
	ok := s.run("ExactTier", 2, func(x *side) {
		y := *w
		y.AdmKey, y.AdmValue, y.AdmBias, y.Mix, y.SetCodes = x.t[3], x.t[4], x.t[5], x.t[6], x.t[7]
		x.archive().ExactTier(x.t[0], x.t[1], x.t[2], x.plan(s.stream, p), layer, &y)
	}, dst, weight, q, w.AdmKey, w.AdmValue, w.AdmBias, w.Mix, w.SetCodes)
	if ok {
		s.banks(layer, 6, 11)
	}
}

func (s archiveStream) GateMix(dst, local, remote, gate, promote tensor.Tensor, p backend.Plan, w backend.GateParams) {
	s.run("GateMix", 1, func(x *side) {
		x.archive().GateMix(x.t[0], x.t[1], x.t[2], x.t[3], x.t[4], x.plan(s.stream, p), w)
	}, dst, local, remote, gate, promote)
}

func (s archiveStream) Blend(dst, x, y, a tensor.Tensor) {
	s.run("Blend", 1, func(d *side) { d.archive().Blend(d.t[0], d.t[1], d.t[2], d.t[3]) }, dst, x, y, a)
}

func (s archiveStream) MassMerge(dst, local, massLocal, exact, massExact tensor.Tensor) {
	s.run("MassMerge", 1, func(x *side) { x.archive().MassMerge(x.t[0], x.t[1], x.t[2], x.t[3], x.t[4]) }, dst, local, massLocal, exact, massExact)
}

func (s archiveStream) QueryCorrection(dst, q, v, u tensor.Tensor) {
	s.run("QueryCorrection", 1, func(x *side) { x.archive().QueryCorrection(x.t[0], x.t[1], x.t[2], x.t[3]) }, dst, q, v, u)
}

func (s archiveStream) GELU(dst, v tensor.Tensor) {
	s.run("GELU", 1, func(x *side) { x.archive().GELU(x.t[0], x.t[1]) }, dst, v)
}
