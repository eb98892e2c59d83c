package opencl

import (
	"encoding/binary"

	"samebit/backend"
	"samebit/tensor"
)

var _ backend.Archive = (*stream)(nil)

// Programs of windows and archives, compiled where a model has them.
var (
	archiveOps  = program{file: "archive"}
	landmarkOps = program{file: "landmarks"}
	tableOps    = program{file: "table"}
	mixOps      = program{file: "mixing"}
)

// Parts of a bank as window.cl numbers them: those of the archive, of the exact tier,
// and of the last read.
const (
	archiveParts = 0
	tableParts   = 6
	readParts    = 11
	bankParts    = 14
)

// archiveBytes are those of an Archive of window.cl.
const archiveBytes = 16 + 4*16 + 2*8*bankParts

// archives uploads what the plan's sequences bring to archive ops, once per plan. It
// reports false where that fails.
func (s *stream) archives() bool {
	p := &s.plan
	if p.archived {
		return true
	}
	le := binary.LittleEndian
	b := make([]byte, 0, archiveBytes*len(p.segs))
	pages := 0
	for i := range p.segs {
		a := p.segs[i].Archive
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
			for _, t := range side {
				b = le.AppendUint64(b, s.ref(*t))
			}
		}
		pages += len(a.Window)
	}
	p.windowsAt = len(b)
	for i := range p.segs {
		for _, t := range p.segs[i].Archive.Window {
			b = le.AppendUint64(b, s.ref(t))
		}
	}
	if p.archive = s.grown(p.archive, len(b)); p.archive == nil || !s.upload(p.archive, 0, b) {
		return false
	}
	p.archived = true
	return true
}

// archives passes the arena and where the plan's tables lie, those of archives among them.
func (c *call) archives(p *plan) *call {
	if c.tables(p); c.err != nil {
		c.n += 2
		return c
	}
	return c.u64(p.archive.ref(0)).u64(p.archive.ref(int64(p.windowsAt)))
}

// window passes a layer's window: key heads, head width, and its slots.
func (s *stream) window(c *call, layer, d int, w backend.WindowParams) *call {
	return c.archives(&s.plan).u32(layer).u32(s.keyHeads()).u32(d).u32(w.Window)
}

// keyHeads is the number of key heads of the plan's windows.
func (s *stream) keyHeads() int { return s.plan.segs[0].Archive.Window[0].Dim(1) }

func (s *stream) PutWindow(p backend.Plan, layer int, k, v, raw tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckPutWindow(p, layer, k, v, raw)) || s.away(k, v, raw) || !s.current(p) || k.Len() == 0 || !s.archives() {
		return
	}
	s.begin(archiveOps, "put_window").archives(&s.plan).u32(layer).u32(k.Dim(1)).u32(k.Dim(2)).view(k).view(v).maybe(s, raw)
	s.end(int(groupSize), k.Dim(2), k.Dim(1), k.Dim(0))
}

func (s *stream) WindowAttention(dst, mass, q tensor.Tensor, p backend.Plan, layer int, w backend.WindowParams) {
	if s.err != nil || s.fails(backend.CheckWindowAttention(dst, mass, q, p, layer, w)) || s.away(dst, mass, q) || !s.current(p) || q.Len() == 0 || !s.archives() {
		return
	}
	s.window(s.begin(archiveOps, "window_attention"), layer, q.Dim(2), w).u32(w.Sinks).f32(w.Scale).view(dst).maybe(s, mass).view(q)
	s.end(int(groupSize), int(groupSize), q.Dim(1), q.Dim(0))
}

// carry copies a layer's parts of the banks to where the pass may change them.
func (s *stream) carry(layer, first, parts int) {
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
	if most > 0 {
		s.begin(archiveOps, "carry").archives(&s.plan).u32(layer).u32(first)
		s.end(int(groupSize), most, parts, len(s.plan.segs))
	}
}

// layout lays arrays of floats out in scratch memory.
type layout int

func (r *layout) take(n int) uint64 {
	at := *r
	*r += layout(n)
	return uint64(at)
}

// portion is how many of the rows of a pass scratch memory takes at once, with so many
// floats for each.
func portion(rows, floats int) int { return min(rows, max(1, partBytes/4/max(floats, 1))) }

// part passes scratch memory and where some arrays lie in it.
func (c *call) part(m *memory, at ...uint64) *call {
	if c.err == nil {
		c.mem(c.d.slabs[m.slab].mem)
	}
	return c.offsets(m, at...)
}

// offsets passes where some more arrays lie.
func (c *call) offsets(m *memory, at ...uint64) *call {
	for _, v := range at {
		c.u64(uint64(m.off/4) + v)
	}
	return c
}

// run launches a kernel over the work items of three axes, unless the stream failed or there
// are none.
func (s *stream) run(p program, name string, set func(c *call), n0, n1, n2 int) {
	if s.err == nil && n0 > 0 && n1 > 0 && n2 > 0 {
		set(s.begin(p, name))
		s.end(int(groupSize), n0, n1, n2)
	}
}

func (s *stream) GateMix(dst, local, remote, gate, promote tensor.Tensor, p backend.Plan, w backend.GateParams) {
	if s.err != nil || s.fails(backend.CheckGateMix(dst, local, remote, gate, promote, p, w)) || s.away(dst, local, remote, gate, promote) || !s.current(p) || dst.Len() == 0 {
		return
	}
	s.begin(mixOps, "gate_mix").tables(&s.plan).u32(dst.Dim(2)).view(dst).view(local).view(remote).maybe(s, gate).maybe(s, promote).u32(max(w.From, 0)).f32(w.Remote).flag(w.Norm)
	s.groups(rowsOf(dst))
}

func (s *stream) Blend(dst, x, y, a tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckBlend(dst, x, y, a)) || s.away(dst, x, y, a) || dst.Len() == 0 {
		return
	}
	s.begin(mixOps, "blend").u32(dst.Dim(2)).view(dst).view(x).view(y).view(a)
	s.elements(dst.Dim(2), rowsOf(dst))
}

func (s *stream) MassMerge(dst, local, massLocal, exact, massExact tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckMassMerge(dst, local, massLocal, exact, massExact)) || s.away(dst, local, massLocal, exact, massExact) || dst.Len() == 0 {
		return
	}
	s.begin(mixOps, "mass_merge").u32(dst.Dim(2)).view(dst).view(local).view(massLocal).view(exact).view(massExact)
	s.elements(dst.Dim(2), rowsOf(dst))
}

// latent writes the queries' part of a low-rank correction v [A, D, N] to z, for rows from
// first on.
func (s *stream) latent(q, v tensor.Tensor, first, rows int, z *memory, at uint64) {
	heads, n := q.Dim(1), v.Dim(2)
	if s.err != nil || n == 0 {
		return
	}
	s.begin(mixOps, "latent").u32(n).u32(q.Dim(2)).u32(heads/v.Dim(0)).view(q).u64(uint64(first*heads)).view(v).floats(z, int64(at))
	s.elements(n, rows*heads)
}

func (s *stream) QueryCorrection(dst, q, v, u tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckQueryCorrection(dst, q, v, u)) || s.away(dst, q, v, u) || q.Len() == 0 {
		return
	}
	z := s.space(rowsOf(q) * v.Dim(2))
	if z == nil {
		return
	}
	if s.latent(q, v, 0, q.Dim(0), z, 0); s.err != nil {
		return
	}
	s.begin(mixOps, "correct").u32(q.Dim(2)).u32(v.Dim(2)).u32(q.Dim(1)/v.Dim(0)).view(dst).view(q).view(u).at(z, 4)
	s.elements(q.Dim(2), rowsOf(q))
}

func (s *stream) GELU(dst, x tensor.Tensor) {
	if s.err != nil || s.fails(backend.CheckRows("GELU", dst, x)) || s.away(dst, x) || x.Len() == 0 {
		return
	}
	s.begin(mixOps, "gelu_").u32(x.Dim(1)).view(dst).view(x)
	s.elements(x.Dim(1), x.Dim(0))
}
