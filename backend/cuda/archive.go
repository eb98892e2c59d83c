package cuda

import (
	"encoding/binary"

	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/tensor"
)

var _ backend.Archive = (*stream)(nil)

// Parts of a bank in the order of backend.ArchiveBank: those of the archive, of the
// exact tier, and of the last read.
const (
	archiveParts = 0
	tableParts   = 6
	readParts    = 11
	bankParts    = 14
)

// archiveTable is what the plan's sequences bring to archive ops, on the device:
// structs Archive of kernels/archive.cuh and the pages of their windows. It is made
// when the first op of a pass asks for it.
type archiveTable struct {
	serial uint64 // of the plan
	host   []byte
	mem    area

	windowAt driver.Ptr
}

// archives makes the table of the current plan. It reports false where that fails.
func (s *stream) archives() bool {
	t := &s.archive
	if t.serial == s.plan.serial {
		return true
	}
	le := binary.LittleEndian
	b := t.host[:0]
	pages := 0
	for i := range s.plan.segs {
		a := s.plan.segs[i].Archive
		in, out := a.In.Tensors(), a.Out.Tensors()
		if s.away(a.Window...) {
			return false
		}
		for _, v := range [4]int{a.Slot, a.Raw, pages, 0} {
			b = le.AppendUint32(b, uint32(v))
		}
		for j := range 16 {
			n := 0
			if j < bankParts && out[j].Valid() {
				if s.away(*in[j], *out[j]) {
					return false
				}
				n = out[j].Len() / max(out[j].Dim(0), 1)
			}
			b = le.AppendUint32(b, uint32(n))
		}
		for _, side := range [2][bankParts]*tensor.Tensor{in, out} {
			for _, x := range side {
				b = le.AppendUint64(b, uint64(s.maybe(*x)))
			}
		}
		pages += len(a.Window)
	}
	windowAt := len(b)
	for i := range s.plan.segs {
		for _, x := range s.plan.segs[i].Archive.Window {
			b = le.AppendUint64(b, uint64(s.at(x)))
		}
	}
	b = append(b, make([]byte, -len(b)&(planPiece-1))...)
	t.host = b
	if !s.room(&t.mem, len(b)) || !s.send(t.mem.ptr, b) {
		return false
	}
	t.windowAt = t.mem.ptr + driver.Ptr(windowAt)
	t.serial = s.plan.serial
	return true
}

// maybe is the address of a tensor, 0 of an invalid one.
func (s *stream) maybe(t tensor.Tensor) driver.Ptr {
	if !t.Valid() {
		return 0
	}
	return s.at(t)
}

// optional is view for a tensor that may be invalid: it has no memory then.
func (s *stream) optional(p *driver.Params, t tensor.Tensor) *driver.Params {
	if t.Valid() {
		return s.view(p, t)
	}
	return p.Ptr(0).Uint64(0).Uint64(0).Int32(1).Int32(0)
}

// past says which rows of the pass a kernel takes, in which layer.
type past struct {
	layer, d, hq int
	backend.WindowParams
	first, rows int
}

// start starts a parameter list with the struct Past of kernels/archive.cuh.
func (a past) start(s *stream) *driver.Params {
	p := s.kernel().Ptr(s.plan.segAt).Ptr(s.plan.ofAt).Ptr(s.archive.mem.ptr).Ptr(s.archive.windowAt)
	heads := s.plan.segs[0].Archive.Window[0].Dim(1)
	for _, n := range [8]int{a.layer, heads, a.d, min(a.Window, 1<<30), min(a.Sinks, 1<<30), a.first, a.rows, a.hq} {
		p.Int32(int32(n))
	}
	return p
}

// cells launches a kernel with threads over the first axis and CTAs over the others.
// The second may be longer than a grid where the kernel walks over it, as over the
// third.
func (s *stream) cells(module, name string, n0, n1, n2 int) {
	if s.err != nil || n0 == 0 || n1 == 0 || n2 == 0 {
		return
	}
	block := min(128, (n0+31)/32*32)
	s.launch(module, name, [3]uint32{uint32((n0 + block - 1) / block), uint32(min(n1, maxGrid)), uint32(min(n2, maxGrid))}, [3]uint32{uint32(block), 1, 1}, 0)
}

// warps is perHead without launching anything after a failure.
func (s *stream) warps(module, name string, n int) {
	if s.err == nil {
		s.perHead(module, name, n)
	}
}

func (s *stream) PutWindow(p backend.Plan, layer int, k, v, raw tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPutWindow(p, layer, k, v, raw)) || s.away(k, v, raw) || !s.current(p) || k.Len() == 0 || !s.archives() {
		return
	}
	a := past{layer: layer, d: k.Dim(2), rows: k.Dim(0)}
	s.optional(s.view(s.view(a.start(s), k), v), raw)
	s.each("archive", "putWindow", k.Dim(1)*k.Dim(2), k.Dim(0))
}

func (s *stream) WindowAttention(dst, mass, q tensor.Tensor, p backend.Plan, layer int, w backend.WindowParams) {
	if s.err != nil || s.fails(backend.CheckWindowAttention(dst, mass, q, p, layer, w)) || s.away(dst, mass, q) || !s.current(p) || q.Len() == 0 || !s.archives() {
		return
	}
	a := past{layer: layer, d: q.Dim(2), hq: q.Dim(1), WindowParams: w, rows: q.Dim(0)}
	s.view(s.optional(s.view(a.start(s), dst), mass), q).Float32(w.Scale)
	s.launch("archive", "windowAttention", [3]uint32{uint32(a.hq), uint32(min(a.rows, maxGrid)), 1}, [3]uint32{32, 2, 1}, 0)
}

// carry copies a layer's parts of the banks to where the pass may change them.
func (s *stream) carry(a past, first, parts int) {
	if s.err != nil {
		return
	}
	most := 0
	for i := range s.plan.segs {
		out := s.plan.segs[i].Archive.Out.Tensors()
		for _, t := range out[first : first+parts] {
			if t.Valid() {
				most = max(most, t.Len()/max(t.Dim(0), 1))
			}
		}
	}
	a.start(s).Int32(int32(first))
	s.cells("archive", "archiveCarry", most, parts, len(s.plan.segs))
}

// layout lays arrays of words out in scratch memory, each from a multiple of 16 bytes.
type layout struct {
	at   driver.Ptr
	next int
}

func (r *layout) take(n int) driver.Ptr {
	p := r.at + driver.Ptr(4*r.next)
	r.next += (n + 3) &^ 3
	return p
}

// portion is how many of the rows of a pass scratch memory takes at once, with so many
// words for each.
func (s *stream) portion(rows, words int) int {
	return min(rows, max(1, s.dev.scratch/4/max(words, 1)))
}

func (s *stream) GateMix(dst, local, remote, gate, promote tensor.Tensor, p backend.Plan, w backend.GateParams) {
	if s.err != nil || s.fails(backend.CheckGateMix(dst, local, remote, gate, promote, p, w)) || s.away(dst, local, remote, gate, promote) || !s.current(p) || dst.Len() == 0 {
		return
	}
	k := s.view(s.view(s.view(s.kernel().Ptr(s.plan.segAt).Ptr(s.plan.ofAt), dst), local), remote)
	s.optional(s.optional(k, gate), promote).Int32(int32(min(max(w.From, 0), 1<<30))).Float32(w.Remote).Int32(flag(w.Norm)).Int32(int32(dst.Dim(2)))
	s.perHead("archivemix", "gateMix", rowsOf(dst))
}

// flag is 1 or 0.
func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

func (s *stream) Blend(dst, x, y, a tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckBlend(dst, x, y, a)) || s.away(dst, x, y, a) || dst.Len() == 0 {
		return
	}
	s.views(dst, x, y, a).Int32(int32(dst.Dim(2)))
	s.each("archivemix", "blend", dst.Dim(2), rowsOf(dst))
}

func (s *stream) MassMerge(dst, local, massLocal, exact, massExact tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckMassMerge(dst, local, massLocal, exact, massExact)) || s.away(dst, local, massLocal, exact, massExact) || dst.Len() == 0 {
		return
	}
	s.views(dst, local, massLocal, exact, massExact).Int32(int32(dst.Dim(2)))
	s.each("archivemix", "massMerge", dst.Dim(2), rowsOf(dst))
}

// latent writes the queries' part of a low-rank correction v [A, D, N] to z, for rows
// from first on.
func (s *stream) latent(z driver.Ptr, q, v tensor.Tensor, first, rows int) {
	heads, n := q.Dim(1), v.Dim(2)
	if s.err != nil || n == 0 {
		return
	}
	s.view(s.kernel().Ptr(z), q).Ptr(s.at(v))
	for _, x := range [5]int{first * heads, rows * heads, n, q.Dim(2), heads / v.Dim(0)} {
		s.params.Int32(int32(x))
	}
	s.each("archivemix", "latent", n, rows*heads)
}

func (s *stream) QueryCorrection(dst, q, v, u tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckQueryCorrection(dst, q, v, u)) || s.away(dst, q, v, u) || q.Len() == 0 {
		return
	}
	n := v.Dim(2)
	z, ok := s.tmp(scratchArchive, 4*rowsOf(q)*n)
	if !ok {
		return
	}
	if s.latent(z, q, v, 0, q.Dim(0)); s.err != nil {
		return
	}
	s.views(dst, q).Ptr(z).Ptr(s.maybe(u)).Int32(int32(n)).Int32(int32(q.Dim(2))).Int32(int32(q.Dim(1) / v.Dim(0)))
	s.each("archivemix", "correct", q.Dim(2), rowsOf(q))
}

func (s *stream) GELU(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("GELU", dst, x)) || s.away(dst, x) || x.Len() == 0 {
		return
	}
	s.views(dst, x).Int32(int32(x.Dim(1)))
	s.each("archivemix", "geluRows", x.Dim(1), x.Dim(0))
}
